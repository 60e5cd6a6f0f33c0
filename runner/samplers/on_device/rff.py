"""Draw by random Fourier features on a device; features, tree and draws have the bits of ``samplers.rff``.

Legend: B rows, F features, M draws of a row or ids that a caller asks for, X draws of all rows, U distinct classes.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from runner import rng
from runner.contracts import Passed, Query
from runner.output.torch import words
from runner.output.torch.arrays import array_of, ids_of
from runner.output.torch.batches import Targets, TorchProposal, hidden_on
from runner.output.torch.layer import TorchLayer
from runner.samplers.on_device.sum_tree import TorchFourier, TorchSumTree
from runner.samplers.rff import Rff, RffConfig

_AT_ONCE = 2**14  # classes whose features are computed together


class TorchRff(Rff):
    """Draw by a sum tree of the classes' features. A refresh waits once, to learn which classes moved."""

    tree: TorchSumTree  # type: ignore[assignment]

    def __init__(self, config: RffConfig, layer: TorchLayer, seed: int) -> None:
        self.on_device = layer
        super().__init__(config, layer, seed)

    def _build_tree(self, block_size: int) -> None:
        layer = self.on_device
        self._fourier = TorchFourier(self.fourier, layer.device)
        self.tree = TorchSumTree(layer.num_classes, self.fourier.num_features, block_size, layer.device)
        features_NF = layer.of_classes(None, self._features_of_held)
        if features_NF is not self.tree.features_NF:
            self.tree.features_NF.copy_(features_NF)
        self.tree.rebuild()

    def _features_of_held(self, rows_U: np.ndarray | None) -> Tensor:
        """Return the features of rows that are held here (None: all), (U, F); those of all classes lie in the tree."""
        part, features_UF = self.on_device.part, self.tree.features_NF
        if rows_U is not None or not part.held.is_all:
            count = part.hi - part.lo if rows_U is None else len(rows_U)
            features_UF = features_UF.new_empty((count, features_UF.shape[1]))
        done = 0
        for rows in part.blocks_of_rows(rows_U, _AT_ONCE):
            made = self._fourier.features(part.rows_of(rows))
            features_UF[done : done + len(made)] = made
            done += len(made)
        return features_UF

    def follow(self, moved_U: np.ndarray) -> None:
        features_UF = self.on_device.of_classes(moved_U, self._features_of_held)
        self.tree.features_NF[ids_of(moved_U, self.on_device.device)] = features_UF
        self.tree.update(moved_U)

    # ------------------------------------------------------------ drawing

    def _queries_on_device(self, query: Query) -> tuple[Tensor, int]:
        """Return phi of the hidden states, (B, F) int64, or their sum (1, F) of a shared draw, and its floor."""
        features_BF = self._fourier.features(hidden_on(query, self.on_device.device)).long()
        if not self.config.shared:
            return features_BF, self._floor
        return features_BF.sum(0, keepdim=True), self._floor * query.num_rows

    def _log_counts(self, probability: Tensor) -> Tensor:
        return (self.config.num_samples * probability).log().float()

    def sample(self, query: Query, step: int) -> TorchProposal:
        device, draws = self.on_device.device, self.config.num_samples
        queries_BF, floor = self._queries_on_device(query)
        row_B1 = torch.arange(len(queries_BF), device=device)[:, None]
        key_B1 = words.stream(self.seed, rng.SAMPLE, step, row_B1, device)
        unit_BM = words.unit(words.word(key_B1, torch.arange(draws, device=device))).sort(dim=1).values
        row_X = row_B1.expand(unit_BM.shape).reshape(-1)
        ids_X, probability_X = self.tree.walk(queries_BF, row_X, unit_BM.reshape(-1), floor, draws=True)
        shape = (draws,) if self.config.shared else unit_BM.shape
        return TorchProposal(ids_X.reshape(shape), self._log_counts(probability_X).reshape(shape), distinct=False)

    def _counts_of(self, query: Query, row_X: Tensor, ids_X: Tensor) -> Tensor:
        queries_BF, floor = self._queries_on_device(query)
        row_X = torch.zeros_like(row_X) if self.config.shared else row_X
        return self._log_counts(self.tree.walk(queries_BF, row_X, ids_X, floor, draws=False)[1])

    def log_expected_count(self, query: Query, ids_M: np.ndarray, step: int) -> np.ndarray:
        device, shape = self.on_device.device, (query.num_rows, len(ids_M))
        row_B1 = torch.arange(query.num_rows, device=device)[:, None]
        row_X, ids_X = (tensor.expand(shape).reshape(-1) for tensor in (row_B1, ids_of(ids_M, device)))
        return array_of(self._counts_of(query, row_X, ids_X).reshape(shape))

    def log_expected_count_of_targets(self, query: Query, proposal: Any, step: int) -> Passed:
        """Return the log expected count of each target in its own row, (P,) float32, as a tensor."""
        targets = Targets.of(query, self.on_device.device)
        return self._counts_of(query, targets.row_P, targets.ids_P)

    # ------------------------------------------------------------ state

    def state_dict(self) -> dict[str, np.ndarray]:
        return {**super().state_dict(), "features": array_of(self.tree.features_NF)}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        features = torch.tensor(state["features"], device=self.on_device.device)
        super().load_state_dict({**state, "features": features})  # type: ignore[dict-item]

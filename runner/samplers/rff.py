"""Draw classes by a Gaussian kernel of directions, estimated by random Fourier features (RF-softmax).

q_i is proportional to phi(w_i) . phi(h), where phi are the features (``runner.structures.features``) of the
l2-normalised class vector and hidden state. That is about exp(nu cos(w_i, h)), the softmax of normalised vectors at
inverse temperature nu. q ignores biases. A draw costs O(D log n) by a tree of sums of phi
(``runner.structures.sum_tree``).

The estimate phi . phi can be negative: its noise is about (2 D)^-1/2, and the kernel of two vectors at right angles is
e^-nu. With D = 256 and nu = 4 these are 0.044 and 0.018, so the estimate is negative for a third of the classes in
random directions. The paper does not say what to do then. Here masses are raised to a floor. For a class the floor is
(2 D)^-1/2, but at most e^-nu, a typical class's kernel, and at least e^-2 nu, the kernel's least value. For a subtree
it is that times its number of classes.

A smaller floor does harm: an estimate below its noise carries no information, but a class held nearly impossible has a
huge weight when it is drawn. docs/log.md compares this floor with e^-2 nu. The stated counts are those of the draws as
made, with the floor, so they are exact.

@inproceedings{rawat2019sampled, title={Sampled Softmax with Random Fourier Features}, author={Rawat, Ankit Singh
and Chen, Jiecao and Yu, Felix X. and Suresh, Ananda Theertha and Kumar, Sanjiv}, booktitle={NeurIPS}, year={2019}}
@inproceedings{blanc2018adaptive, title={Adaptive Sampled Softmax with Kernel Based Sampling},
author={Blanc, Guy and Rendle, Steffen}, booktitle={ICML}, year={2018}}

Legend: B rows, D hidden size (the setting ``D`` is the number of frequencies), N classes (in a ``Proposal`` and in what
the tree draws: candidates of all rows), F = 2 D features, M ids that a caller asks for, P targets of all rows, R rows
of the class matrix, U distinct classes.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from runner.contracts import Proposal, Query, TrainingFacts
from runner.errors import require
from runner.options.fields import option
from runner.output.layer import Layer
from runner.samplers.base import Sampler, SamplerConfig
from runner.samplers.followed import FollowingSampler
from runner.structures.features import ONE, RandomFourier
from runner.structures.sum_tree import MOST_CLASSES, SumTree

_FEW = {"num_samples": 40, "D": 64, "nu": 1.0, "refresh_every_steps": 3}
_NEGATIVE = {"num_samples": 40, "D": 5, "nu": 4.0, "refresh_every_steps": 3}
BLOCK = 16  # classes of a leaf: with fewer, sums need more memory than features do; with more, a draw reads more


@dataclass(frozen=True, kw_only=True)
class RffConfig(SamplerConfig):
    """Draw by a Gaussian kernel of directions, estimated by random Fourier features (RF-softmax).

    Without ``tree``, the floor applies to each class by itself. A shared draw needs one walk down the tree, because the
    mass is linear in the query's phi. Orthogonal frequencies cost less and have less noise.
    """

    contract_cases: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tree": _FEW,
        "orthogonal": {**_FEW, "features": "orthogonal"},
        "flat": {**_FEW, "tree": False},
        "shared": {**_FEW, "shared": True},
        # So few frequencies that many kernel estimates are negative.
        "negative": _NEGATIVE,
        "negative_flat": {**_NEGATIVE, "tree": False},
        "negative_shared": {**_NEGATIVE, "shared": True},
    }
    num_samples: int = option(100, "draws of a row, with replacement", low=1)
    D: int = option(256, "number of random frequencies", low=1, high=2**16)
    nu: float = option(
        4.0,
        "sharpness of the kernel exp(-nu |w - h|^2 / 2) of normalised vectors; below the logits' inverse temperature",
        above=0,
        high=100,
    )
    features: Literal["plain", "orthogonal"] = option(
        "plain", "", choices={"plain": "independent frequencies", "orthogonal": "structured ones"}
    )
    tree: bool = option(True, "false: evaluate every class for every query (few classes only)")
    shared: bool = option(
        False, "true: one draw for the whole batch, by the mean of its rows' kernels; false: draws for each row"
    )
    refresh_every_steps: int = option(1, "steps between updates of the touched classes' features", low=1)

    @property
    def floor(self) -> float:
        """Return the least mass of a class, in units of the kernel."""
        return max(math.exp(-2 * self.nu), min(math.exp(-self.nu), (2 * self.D) ** -0.5))

    def check_size(self, num_classes: int) -> None:
        """Raise ConfigError if sums over so many classes would not be exact."""
        require(
            num_classes <= MOST_CLASSES,
            f"sampler=rff holds at most {MOST_CLASSES:,} classes, but the data set has {num_classes:,}; take another"
            " sampler",
        )

    def build(self, *, layer: Layer, training: TrainingFacts, seed: int) -> Sampler:
        self.check_size(layer.num_classes)
        return Rff(self, layer, seed)


class Rff(FollowingSampler):
    """Draw by a sum tree of the classes' features; where ``tree`` is false, the tree is one leaf."""

    def __init__(self, config: RffConfig, layer: Layer, seed: int) -> None:
        super().__init__(layer, config.refresh_every_steps)
        self.config = config
        self.seed = seed
        self.fourier = RandomFourier(dim=layer.dim, D=config.D, nu=config.nu, kind=config.features, seed=seed)
        self._floor = max(1, round(config.floor * ONE * config.D))
        self._build_tree(BLOCK if config.tree else layer.num_classes)

    def _build_tree(self, block_size: int) -> None:
        n = self.layer.num_classes
        self.tree = SumTree(n, self.fourier.num_features, block_size)
        self._write_features(None)
        self.tree.rebuild()

    def _write_features(self, rows_U: np.ndarray | None) -> None:
        """Write the features of these classes (None: all) into the tree."""
        features_NF = self.tree.features_NF

        def made(matrix: np.ndarray, places_U: np.ndarray) -> np.ndarray:
            out = features_NF if len(places_U) == len(features_NF) else None
            return self.fourier.features(matrix, places_U, out)

        features_UF = self.classes.of_rows(rows_U, made)
        if features_UF is not features_NF:
            features_NF[slice(None) if rows_U is None else rows_U] = features_UF

    # ------------------------------------------------------------ drawing

    def _queries(self, query: Query) -> tuple[np.ndarray, int]:
        """Return phi of the hidden states, (B, F) int16, or their sum (1, F) int32 of a shared draw, and its floor."""
        features_BF = self.fourier.features(query.hidden_BD, np.arange(query.num_rows, dtype=np.int32))
        if not self.config.shared:
            return features_BF.astype(np.int16), self._floor
        return features_BF.sum(axis=0, keepdims=True, dtype=np.int32), self._floor * query.num_rows

    def _log_count(self, probability: np.ndarray) -> np.ndarray:
        return np.log(self.config.num_samples * probability).astype(np.float32)

    def sample(self, query: Query, step: int) -> Proposal:
        num_samples = self.config.num_samples
        queries_BF, floor = self._queries(query)
        ids_N, probability_N = self.tree.draw(queries_BF, num_samples, floor, self.seed, step)
        log_count_N = self._log_count(probability_N)
        if self.config.shared:
            return Proposal(ids_N=ids_N, log_expected_count_N=log_count_N, distinct=False)
        indptr = np.arange(query.num_rows + 1, dtype=np.int64) * num_samples
        return Proposal(ids_N=ids_N, log_expected_count_N=log_count_N, indptr_B1=indptr, distinct=False)

    def log_expected_count(self, query: Query, ids_M: np.ndarray, step: int) -> np.ndarray:
        queries_BF, floor = self._queries(query)
        unique, position = np.unique(ids_M, return_inverse=True)
        rows = len(queries_BF)
        indptr = np.arange(rows + 1, dtype=np.int64) * len(unique)
        probability = self.tree.probability(queries_BF, np.tile(unique, rows), indptr, floor)
        log_count = self._log_count(probability).reshape(rows, len(unique))[:, position]
        return np.broadcast_to(log_count, (query.num_rows, len(ids_M)))

    def log_expected_count_of_targets(self, query: Query, proposal: Any, step: int) -> np.ndarray:
        if self.config.shared:
            return super().log_expected_count_of_targets(query, proposal, step)
        queries_BF, floor = self._queries(query)  # only a row's own targets, not every row's
        return self._log_count(self.tree.probability(queries_BF, query.targets_P, query.target_indptr_B1, floor))

    # ------------------------------------------------------------ following the weights

    def follow(self, moved_U: np.ndarray) -> None:
        self._write_features(moved_U)
        self.tree.update(moved_U)

    @property
    def statistics(self) -> dict[str, float]:
        return {**super().statistics, "table_mb": self.tree.nbytes / 2**20}

    def state_dict(self) -> dict[str, np.ndarray]:
        # The features are made of the vectors at the last refresh, which the layer has lost.
        return {**super().state_dict(), "features": self.tree.features_NF}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        super().load_state_dict(state)
        self.tree.features_NF[...] = state["features"]
        self.tree.rebuild()

"""Draw from the softmax through the cells of an index, on a device; draws are those of ``samplers.midx_exact``.

The running sums over the classes, in the order of their cells, hold the mass of every cell.

Legend: B rows, b rows that are worked on together, N classes in the order of cells, C cells, K first codewords, M draws
of a row or ids that a caller asks for.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from runner import rng
from runner.contracts import Passed, Query
from runner.errors import Diverged
from runner.output.torch import words
from runner.output.torch.arrays import array_of, ids_of
from runner.output.torch.batches import Targets, TorchProposal, TorchQuery, hidden_on
from runner.output.torch.layer import TorchLayer
from runner.samplers.midx_exact import MidxExact, MidxExactConfig
from runner.samplers.on_device.nearest_pairs import assign_on

_ELEMENTS = 2**25  # running sums over the classes of some rows: 256 MB


class TorchMidxExact(MidxExact):
    """Draw by Theorem 1 from the current weights."""

    asks_what_moved = False

    def __init__(self, config: MidxExactConfig, layer: TorchLayer, period: int, seed: int) -> None:
        self.on_device, self.num_classes = layer, layer.num_classes
        self._latest: tuple[TorchProposal, Tensor] | None = None
        super().__init__(config, layer, period, seed)

    def follows(self, step: int) -> bool:
        """Tell whether the index is rebuilt after ``step``."""
        return step >= self.schedule.next

    def assign(self, codebooks_2CD: np.ndarray, step: int) -> tuple[np.ndarray, float, float]:
        return assign_on(self.on_device, codebooks_2CD, beam=self.quantizer.beam, step=step)

    def _set(self, codebooks_2CD: np.ndarray, codes_2N: np.ndarray) -> None:
        super()._set(codebooks_2CD, codes_2N)
        device = self.on_device.device
        self._start_C1, self._members_N = ids_of(self.cell_start, device), ids_of(self.members_N, device)

    def _parts(self, query: Query, step: int) -> tuple[Tensor, list[slice]]:
        """Return vectors of the hidden states, (B, D), and the rows to work on together."""
        self.on_device.read(None, step)
        at_once = max(1, _ELEMENTS // self.num_classes)
        rows = [slice(lo, min(lo + at_once, query.num_rows)) for lo in range(0, max(1, query.num_rows), at_once)]
        return self.on_device.queries(hidden_on(query, self.on_device.device)), rows

    def sample(self, query: Query, step: int) -> TorchProposal:
        device = self.on_device.device
        queries_BD, parts = self._parts(query, step)
        key_B1 = words.stream(self.seed, rng.SAMPLE, step, torch.arange(query.num_rows, device=device)[:, None], device)
        targets, indptr_B1, drawn = Targets.of(query, device), query.target_indptr_B1, []
        for rows in parts:
            logits_bN = self.on_device.block(queries_BD[rows], 0, self.num_classes)
            here = slice(int(indptr_B1[rows.start]), int(indptr_B1[rows.stop]))
            target_logit_P = logits_bN[targets.row_P[here] - rows.start, targets.ids_P[here]]
            drawn.append((*self._draw_rows(logits_bN, key_B1[rows]), target_logit_P))
        ids_BM, log_count_BM, log_partition_B, target_logit_P = (torch.cat(kind) for kind in zip(*drawn, strict=True))
        if not isinstance(query, TorchQuery) and not bool(log_partition_B.isfinite().all()):
            raise Diverged(f"sampler={self.config.name}: a logit is not a finite number; try a smaller optimizer.lr")
        proposal = TorchProposal(ids_BM, log_count_BM, distinct=False)
        self._latest = proposal, self._counts(target_logit_P, log_partition_B[targets.row_P])
        return proposal

    def _draw_rows(self, logits_bN: Tensor, key_b1: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return ids and log expected counts of some rows, (b, M), and their log partitions, (b,)."""
        codewords, draws = self.config.codewords, self.config.num_samples
        logits_bN = logits_bN[:, self._members_N]
        upto_bN, top_b1 = _running_sums(logits_bN)
        bound_bC1 = torch.nn.functional.pad(upto_bN, (1, 0))[:, self._start_C1]
        draw_M = torch.arange(draws, device=key_b1.device)
        unit_1, unit_2, unit_3 = (words.unit(words.word(key_b1, 3 * draw_M + which)) for which in range(3))
        # The first codeword by its share of the whole, then the second by its share of the first, then a class.
        bound_bK1 = bound_bC1[:, ::codewords].contiguous()
        k1_bM = _reached(bound_bK1, (1 - unit_1) * bound_bK1[:, -1:])
        goal_bM = _between(bound_bK1, k1_bM, 1 - unit_2)
        cell_bM = _reached(bound_bC1, goal_bM)
        goal_bM = _between(bound_bC1, cell_bM, unit_3)
        place_bM = torch.searchsorted(upto_bN, goal_bM, right=True)
        place_bM = torch.minimum(place_bM, self._start_C1[cell_bM + 1] - 1)
        place_bM = torch.maximum(place_bM, self._start_C1[cell_bM]).clamp_max_(self.num_classes - 1)
        log_partition_b = bound_bC1[:, -1].log() + top_b1[:, 0]
        log_count_bM = self._counts(logits_bN.gather(1, place_bM), log_partition_b[:, None])
        return self._members_N[place_bM], log_count_bM, log_partition_b

    def _counts(self, logits: Tensor, log_partition: Tensor) -> Tensor:
        return (logits + (np.log(self.config.num_samples) - log_partition)).float()

    def log_expected_count(self, query: Query, ids_M: np.ndarray, step: int) -> np.ndarray:
        queries_BD, parts = self._parts(query, step)
        layer, ids = self.on_device, ids_of(ids_M, self.on_device.device)
        counts = []
        for rows in parts:
            logits_bN = layer.block(queries_BD[rows], 0, self.num_classes)
            upto_bN, top_b1 = _running_sums(logits_bN)
            log_partition_b1 = upto_bN[:, -1:].log() + top_b1
            counts.append(self._counts(logits_bN[:, ids], log_partition_b1))
        return array_of(torch.cat(counts))

    def log_expected_count_of_targets(self, query: Query, proposal: Any, step: int) -> Passed:
        """Return the log expected count of each target, (P,) float32, as a tensor."""
        if self._latest is None or self._latest[0] is not proposal:
            self.sample(query, step)
        assert self._latest is not None
        return self._latest[1]


def _running_sums(logits_bN: Tensor) -> tuple[Tensor, Tensor]:
    """Return the running sums of exp(logit - highest), (b, N) float64, and each row's highest logit, (b, 1)."""
    top_b1 = logits_bN.amax(1, keepdim=True)
    return (logits_bN - top_b1).exp_().cumsum(1, dtype=torch.float64), top_b1


def _reached(bound_bX1: Tensor, goal_bM: Tensor) -> Tensor:
    """Return the first parts whose upper bounds reach the goals, (b, M)."""
    return torch.searchsorted(bound_bX1[:, 1:].contiguous(), goal_bM).clamp_max_(bound_bX1.shape[1] - 2)


def _between(bound_bX1: Tensor, part_bM: Tensor, share_bM: Tensor) -> Tensor:
    """Return what lies a share of the way from the lower bound of a part to its upper one, (b, M)."""
    low_bM = bound_bX1.gather(1, part_bM)
    return low_bM + share_bM * (bound_bX1.gather(1, part_bM + 1) - low_bM)

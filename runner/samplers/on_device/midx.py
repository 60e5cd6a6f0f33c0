"""Draw a cell of MIDX's index, then a class of the cell, on a device; draws are those of ``samplers.midx``.

Codewords are made on the CPU once a period, from a copy of some class vectors; classes are assigned to them on the
device.

Legend: B rows, D hidden size, K codewords of a codebook, C cells (k1 K + k2), M draws of a row, X pairs.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from runner import rng
from runner.contracts import Passed, Query
from runner.errors import Diverged
from runner.output.torch import words
from runner.output.torch.arrays import array_of, ids_of, tensor_of
from runner.output.torch.batches import Targets, TorchProposal, TorchQuery
from runner.output.torch.layer import TorchLayer
from runner.samplers.midx import Midx, MidxConfig
from runner.samplers.on_device.nearest_pairs import assign_on

_CELL_ELEMENTS = 2**26  # running sums over the cells of some rows: 512 MB


class TorchMidx(Midx):
    """Draw by Theorem 2, or with popularity in the last factor, by tensors of the index."""

    def __init__(
        self, config: MidxConfig, layer: TorchLayer, period: int, seed: int, weight_N: np.ndarray | None
    ) -> None:
        self.on_device = layer
        super().__init__(config, layer, period, seed, weight_N)

    asks_what_moved = False

    def follows(self, step: int) -> bool:
        """Tell whether the index is rebuilt after ``step``; which classes the steps before touched does not matter."""
        return step >= self.schedule.next

    def assign(self, codebooks_2CD: np.ndarray, step: int) -> tuple[np.ndarray, float, float]:
        return assign_on(self.on_device, codebooks_2CD, beam=self.quantizer.beam, step=step)

    def _set(self, codebooks_2CD: np.ndarray, codes_2N: np.ndarray) -> None:
        super()._set(codebooks_2CD, codes_2N)
        device = self.on_device.device
        self._codewords_KD = tensor_of(codebooks_2CD.reshape(-1, codebooks_2CD.shape[-1]), device)
        self._mass_C = tensor_of(self._log_mass_CC.T.reshape(-1), device)
        self._codes_2N = ids_of(codes_2N, device)
        self._start_C1, self._members_N = ids_of(self.cell_start, device), ids_of(self.members_N, device)
        self._upto_N = tensor_of(self._popular_N, device)
        no_weights = np.zeros(0)
        self._weights_N = tensor_of(no_weights if self._log_weight_N is None else self._log_weight_N, device)

    # ------------------------------------------------------------ cells

    def _scores(self, query: Query) -> Tensor:
        """Return products with the words of both codebooks, (2, B, K) float64."""
        hidden = query.hidden if isinstance(query, TorchQuery) else query.hidden_BD
        scores_BK = self.on_device.queries(hidden) @ self._codewords_KD.t()
        return torch.stack(scores_BK.double().chunk(2, dim=1))

    def _log_cells(self, scores_2BK: Tensor) -> Tensor:
        """Return log mass + s1 + s2 of every cell, (B, C)."""
        first_BK, second_BK = scores_2BK
        return (first_BK[:, :, None] + second_BK[:, None, :]).flatten(1).add_(self._mass_C)

    def _rows_at_once(self) -> int:
        return max(1, _CELL_ELEMENTS // len(self._mass_C))

    def sample(self, query: Query, step: int) -> TorchProposal:
        scores_2BK, device = self._scores(query), self.on_device.device
        row_B1 = torch.arange(query.num_rows, device=device)[:, None]
        key_B1 = words.stream(self.seed, rng.SAMPLE, step, row_B1, device)
        at_once = self._rows_at_once()
        parts = [
            self._draw_rows(scores_2BK[:, lo : lo + at_once], key_B1[lo : lo + at_once])
            for lo in range(0, query.num_rows, at_once)
        ]
        ids_BM, log_count_BM = (torch.cat(kind) for kind in zip(*parts, strict=True))
        if not isinstance(query, TorchQuery) and not bool(log_count_BM.isfinite().all()):
            raise Diverged(f"sampler={self.config.name}: a score is not a finite number; try a smaller optimizer.lr")
        return TorchProposal(ids_BM, log_count_BM, distinct=False)

    def _draw_rows(self, scores_2BK: Tensor, key_B1: Tensor) -> tuple[Tensor, Tensor]:
        """Return ids and log expected counts of some rows, (B, M)."""
        codewords, draws = self.config.codewords, self.config.num_samples
        log_cells_BC = self._log_cells(scores_2BK)
        log_partition_B1 = log_cells_BC.logsumexp(1, keepdim=True)
        upto_BC = log_cells_BC.sub_(log_partition_B1).exp_().cumsum(1)
        draw_M = torch.arange(draws, device=key_B1.device)
        unit_1, unit_2, bits = (words.word(key_B1, 3 * draw_M + which) for which in range(3))
        # The first codeword by its share of the whole, then the second by its share of the first.
        ends_BK = upto_BC[:, codewords - 1 :: codewords].contiguous()
        k1_BM = torch.searchsorted(ends_BK, (1 - words.unit(unit_1)) * ends_BK[:, -1:]).clamp_max_(codewords - 1)
        end_BM = ends_BK.gather(1, k1_BM)
        begin_BM = torch.where(k1_BM > 0, ends_BK.gather(1, (k1_BM - 1).clamp_min(0)), 0)
        goal_BM = begin_BM + (1 - words.unit(unit_2)) * (end_BM - begin_BM)
        cell_BM = torch.searchsorted(upto_BC, goal_BM).clamp_max_(upto_BC.shape[1] - 1)
        first_BM = self._start_C1[cell_BM]
        size_BM = self._start_C1[cell_BM + 1] - first_BM
        if len(self._weights_N):
            last_BM = (first_BM + size_BM - 1).clamp_min(0)
            place_BM = self._place(1 - words.unit(bits), first_BM, last_BM)
        else:
            place_BM = first_BM + words.below(bits, size_BM)
        ids_BM = self._members_N[place_BM.clamp_max_(len(self._members_N) - 1)]
        score_BM = scores_2BK[0].gather(1, cell_BM // codewords) + scores_2BK[1].gather(1, cell_BM % codewords)
        return ids_BM, self._counts(score_BM, ids_BM, log_partition_B1)

    def _place(self, unit_BM: Tensor, first_BM: Tensor, last_BM: Tensor) -> Tensor:
        """Return the first members of cells up to which the weights reach a share of the cell's, by bisection."""
        goal_BM = unit_BM * self._upto_N[last_BM]
        low_BM, high_BM = first_BM, last_BM
        for _ in range(len(self._upto_N).bit_length()):
            middle_BM = (low_BM + high_BM) // 2
            is_short = self._upto_N[middle_BM] < goal_BM
            low_BM = torch.minimum(torch.where(is_short, middle_BM + 1, low_BM), last_BM)
            high_BM = torch.where(is_short, high_BM, middle_BM)
        return low_BM

    # ------------------------------------------------------------ counts

    def _counts(self, score: Tensor, ids: Tensor, log_partition: Tensor) -> Tensor:
        if len(self._weights_N):
            score = score + self._weights_N[ids]
        return (score + (np.log(self.config.num_samples) - log_partition)).float()

    def _counts_of(self, query: Query, row_X: Tensor, ids_X: Tensor) -> Tensor:
        """Return log expected counts of pairs of rows and ids, which broadcast."""
        scores_2BK, at_once = self._scores(query), self._rows_at_once()
        log_partition_B = torch.cat([part.logsumexp(1) for part in map(self._log_cells, scores_2BK.split(at_once, 1))])
        first_X, second_X = self._codes_2N[:, ids_X]
        score_X = scores_2BK[0][row_X, first_X] + scores_2BK[1][row_X, second_X]
        return self._counts(score_X, ids_X, log_partition_B[row_X])

    def log_expected_count(self, query: Query, ids_M: np.ndarray, step: int) -> np.ndarray:
        device = self.on_device.device
        row_B1 = torch.arange(query.num_rows, device=device)[:, None]
        return array_of(self._counts_of(query, row_B1, ids_of(ids_M, device)[None, :]))

    def log_expected_count_of_targets(self, query: Query, proposal: Any, step: int) -> Passed:
        """Return the log expected count of each target, (P,) float32, as a tensor."""
        targets = Targets.of(query, self.on_device.device)
        return self._counts_of(query, targets.row_P, targets.ids_P)

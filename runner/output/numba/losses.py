"""Compute losses in two phases: take statistics of rows, combine them over all that hold classes, take gradients.

Legend: B rows of a batch, P targets of the batch that are held here, N candidates of all rows that are held here.
"""

from dataclasses import dataclass

import numpy as np

from runner.kernels import losses as kernels
from runner.output.across import Across
from runner.output.row_logits import Power


@dataclass(frozen=True, kw_only=True)
class NumbaRowLogits:
    """Hold the logits of a batch in arrays (``RowLogits``).

    Row b has the targets ``target_P[target_indptr_B1[b] : target_indptr_B1[b + 1]]`` and the candidates
    ``candidate_N[begin_B[b] : end_B[b]]``, float32. ``num_targets_B``: int64 numbers of the rows' targets, wherever
    they are held. ``weight_B``: float32 factors of the rows' losses in the sum whose gradients are taken.
    """

    target_indptr_B1: np.ndarray
    target_P: np.ndarray
    begin_B: np.ndarray
    end_B: np.ndarray
    candidate_N: np.ndarray
    num_targets_B: np.ndarray
    weight_B: np.ndarray
    num_classes: int
    across: Across

    @property
    def _candidates(self) -> tuple[np.ndarray, ...]:
        return self.begin_B, self.end_B, self.candidate_N

    @property
    def _all(self) -> tuple[np.ndarray, ...]:
        return self.num_targets_B, self.target_indptr_B1, self.target_P, *self._candidates

    def softmax(self) -> np.ndarray:
        return self._softmax(adds_targets=True)

    def partition(self) -> np.ndarray:
        return self._softmax(adds_targets=False)

    def _softmax(self, *, adds_targets: bool) -> np.ndarray:
        top_B, sum_B, mean_B = kernels.softmax_statistics(*self._all, adds_targets)
        everywhere = (*self.across.log_sum_exp(top_B, sum_B), self.across.sum(mean_B))
        losses_B: np.ndarray = kernels.softmax_gradients(*self._all, self.weight_B, adds_targets, top_B, *everywhere)
        return losses_B

    def logistic(self, power: Power) -> np.ndarray:
        num_candidates_B = self.across.sum(kernels.count_unmasked(*self._candidates))
        power_B = power(num_candidates_B, self.num_classes).astype(np.float32)
        return self.across.sum(kernels.logistic_loss(*self._all, self.weight_B, power_B))

    def blackout(self) -> np.ndarray:
        highest_HB = self.across.gather(kernels.highest_candidates(*self._candidates))
        holder_B = highest_HB.argmax(axis=0)  # of equal ones the first
        highest_B = np.take_along_axis(highest_HB, holder_B[None], axis=0)[0]
        best_B = kernels.leave_best_out(*self._candidates, highest_B, holder_B == self.across.place)
        top_B, sum_B, mean_B = kernels.softmax_statistics(*self._all, True)
        others = (highest_B, top_B, *self.across.log_sum_exp(top_B, sum_B))
        loss_B, odds_B = kernels.blackout_sums(self.num_targets_B, *self._candidates, *others)
        sums = (self.across.sum(mean_B), self.across.sum(loss_B), self.across.sum(odds_B))
        losses_B: np.ndarray = kernels.blackout_gradients(*self._all, self.weight_B, best_B, *others, *sums)
        return losses_B

"""Compute losses in two phases: take statistics of rows, combine them over all that hold classes, take gradients.

Legend: B rows of a batch, P targets of the batch that are held here, M candidates, or places for each row's own.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from runner.output.across import Across
from runner.output.row_logits import Power
from runner.output.torch.groups import segment_sums, segment_tops


@dataclass(frozen=True, kw_only=True)
class TorchRowLogits:
    """Hold the logits of a batch in tensors (``RowLogits``).

    ``target_P``: targets, those of row b from ``target_indptr_B1[b]`` on. ``candidate_BM``: candidates. Both are
    float32, are replaced by gradients, and hold -inf where nothing is or counts. ``num_targets_B``: the rows' numbers
    of targets, wherever they are held, float32. ``weight_B``: factors of the rows' losses.
    """

    target_P: Tensor
    target_indptr_B1: Tensor
    target_row_P: Tensor
    candidate_BM: Tensor
    num_targets_B: Tensor
    weight_B: Tensor
    num_classes: int
    across: Across

    @property
    def _counts_B(self) -> Tensor:
        """Tell which rows have a target; the others have loss 0 and no gradient."""
        return self.num_targets_B > 0

    @property
    def _share_B(self) -> Tensor:
        """Return what a target counts for in its row."""
        return 1 / self.num_targets_B.clamp_min(1)

    def _mean_target_B(self) -> Tensor:
        return segment_sums(self.target_P, self.target_indptr_B1) * self._share_B

    def _across(self, name: str, *values: Tensor) -> Any:
        return getattr(self.across, name)(*values)

    # ------------------------------------------------------------ softmax, and an estimate of its partition

    def softmax(self) -> Tensor:
        return self._softmax(adds_targets=True)

    def partition(self) -> Tensor:
        return self._softmax(adds_targets=False)

    def _statistics(self, *, adds_targets: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Return each row's highest logit, sum of exp(logit - highest) and mean target logit; leave exponentials."""
        mean_B = self._mean_target_B()
        top_B = _tops(self.candidate_BM)
        if adds_targets:
            top_B = torch.maximum(top_B, segment_tops(self.target_P, self.target_indptr_B1))
        finite_B = torch.where(top_B == -torch.inf, 0, top_B)  # a row of nothing but -inf: exp(-inf - 0) is 0
        sum_B = self.candidate_BM.sub_(finite_B[:, None]).exp_().sum(1)
        if adds_targets:
            self.target_P.sub_(finite_B[self.target_row_P]).exp_()
            sum_B = sum_B + segment_sums(self.target_P, self.target_indptr_B1)
        return top_B, sum_B, mean_B

    def _softmax(self, *, adds_targets: bool) -> Tensor:
        top_B, sum_B, mean_B = self._statistics(adds_targets=adds_targets)
        all_top_B, all_sum_B = self._across("log_sum_exp", top_B, sum_B)
        counts_B = self._counts_B & (all_top_B > -torch.inf)
        losses_B = torch.where(counts_B, all_top_B + all_sum_B.log() - self._across("sum", mean_B), 0)
        factor_B = torch.where(counts_B, self.weight_B / all_sum_B * (top_B - all_top_B).exp(), 0)
        self.candidate_BM.mul_(factor_B[:, None])
        row_P = self.target_row_P
        share_P = torch.where(counts_B, self.weight_B * self._share_B, 0)[row_P]
        if adds_targets:
            self.target_P.mul_(factor_B[row_P]).sub_(share_P)
        else:
            self.target_P.copy_(-share_P)
        return losses_B

    # ------------------------------------------------------------ a binary problem for each target and candidate

    def logistic(self, power: Power) -> Tensor:
        candidate_BM, target_P, row_P = self.candidate_BM, self.target_P, self.target_row_P
        num_candidates_B = self._across("sum", (candidate_BM > -torch.inf).sum(1))
        share_P = (power(num_candidates_B, self.num_classes).float() * self._share_B)[row_P]
        of_targets_B = segment_sums(share_P * torch.nn.functional.softplus(-target_P), self.target_indptr_B1)
        of_candidates_B = torch.nn.functional.softplus(candidate_BM).sum(1)  # of -inf it is 0
        losses_B = torch.where(self._counts_B, of_targets_B + of_candidates_B, 0)
        weight_B = torch.where(self._counts_B, self.weight_B, 0)
        candidate_BM.sigmoid_().mul_(weight_B[:, None])
        target_P.copy_(-weight_B[row_P] * share_P * torch.sigmoid(-target_P))
        return self._across("sum", losses_B)

    # ------------------------------------------------------------ discriminative softmax

    def blackout(self) -> Tensor:
        """Compute BlackOut; for the formulas, and why the best candidate is apart, see ``kernels.losses``."""
        candidate_BM = self.candidate_BM
        highest_B, best_B = (candidate_BM.max(1)) if candidate_BM.shape[1] else _nothing(self.num_targets_B)
        highest_HB = self._across("gather", highest_B)
        holder_B = highest_HB.argmax(0)
        highest_B = highest_HB.gather(0, holder_B[None])[0]
        is_here_B = (holder_B == self.across.place) & (highest_B > -torch.inf)
        if candidate_BM.shape[1]:
            kept_B = torch.where(is_here_B, -torch.inf, candidate_BM.gather(1, best_B[:, None])[:, 0])
            candidate_BM.scatter_(1, best_B[:, None], kept_B[:, None])
        top_B, sum_B, mean_B = self._statistics(adds_targets=True)
        all_top_B, all_sum_B = self._across("log_sum_exp", top_B, sum_B)
        log_others_B = all_top_B + all_sum_B.log()
        ahead_B = highest_B - log_others_B
        p_best_B, left_B = ahead_B.sigmoid(), (-ahead_B).sigmoid()
        of_others_B = torch.where(self._counts_B, (top_B - all_top_B).exp() / all_sum_B, 0)
        p_BM = candidate_BM * (left_B * of_others_B)[:, None]
        odds_BM = p_BM / (1 - p_BM)
        loss_B = self._across("sum", -torch.log1p(-p_BM).sum(1))
        odds_B = self._across("sum", odds_BM.sum(1))
        mean_B = self._across("sum", mean_B)
        losses_B = log_others_B - mean_B + 2 * torch.nn.functional.softplus(ahead_B) + loss_B
        weight_B = torch.where(self._counts_B, self.weight_B, 0)
        common_B = left_B * (1 - odds_B) - p_best_B
        candidate_BM.mul_((of_others_B * common_B)[:, None]).add_(odds_BM).mul_(weight_B[:, None])
        if candidate_BM.shape[1]:
            of_best_B = torch.where(
                is_here_B, weight_B * p_best_B * (2 - odds_B), candidate_BM.gather(1, best_B[:, None])[:, 0]
            )
            candidate_BM.scatter_(1, best_B[:, None], of_best_B[:, None])
        row_P = self.target_row_P
        self.target_P.mul_((of_others_B * common_B)[row_P]).sub_(self._share_B[row_P]).mul_(weight_B[row_P])
        return torch.where(self._counts_B, losses_B, 0)


def _nothing(like_B: Tensor) -> tuple[Tensor, Tensor]:
    return torch.full_like(like_B, -torch.inf), torch.zeros_like(like_B, dtype=torch.int64)


def _tops(values_BM: Tensor) -> Tensor:
    if values_BM.shape[1] == 0:
        return values_BM.new_full((len(values_BM),), -torch.inf)
    return values_BM.amax(1)

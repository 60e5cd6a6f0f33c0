"""Correct and mask the logits of targets and listed candidates, and take their loss.

Legend: B rows of a batch, P targets of the batch, M shared candidates, or places for each row's own.
"""

import torch
from torch import Tensor

from runner.output.across import Across
from runner.output.losses import LossConfig
from runner.output.torch.batches import Targets
from runner.output.torch.losses import TorchRowLogits


def listed_losses(
    loss: LossConfig,
    target_P: Tensor,
    candidate_BM: Tensor,
    *,
    targets: Targets,
    ids: Tensor,
    log_count: Tensor,
    valid: Tensor | None,
    distinct: bool,
    log_count_P: Tensor | None,
    weight_B: Tensor,
    num_classes: int,
    across: Across,
) -> Tensor:
    """Return the loss of each row, (B,) float32, and replace both kinds of logits by their gradients.

    ``ids``, ``log_count``, ``valid`` and ``distinct``: those of the candidates (``TorchProposal``); shared ids ascend.
    An invalid place may have any id. ``log_count_P``: log expected counts of the targets, if the loss corrects them.
    """
    signs = [values.sign() for values in (target_P, candidate_BM)] if loss.by_magnitude else []
    if loss.by_magnitude:
        target_P.abs_()
        candidate_BM.abs_()
    if loss.corrects_candidates:
        candidate_BM.sub_(log_count)
    if log_count_P is not None:
        target_P.sub_(log_count_P)
    if valid is not None:
        candidate_BM.masked_fill_(~valid, -torch.inf)
    if loss.masks_hits_where(distinct=distinct) and len(targets.ids_P) and ids.shape[-1]:
        if distinct and ids.dim() == 1:
            _mask_once(candidate_BM, ids, targets)
        else:
            candidate_BM.masked_fill_(_hits(ids, targets), -torch.inf)
    rows = TorchRowLogits(
        target_P=target_P,
        target_indptr_B1=targets.indptr_B1,
        target_row_P=targets.row_P,
        candidate_BM=candidate_BM,
        num_targets_B=targets.counts_B,
        weight_B=weight_B,
        num_classes=num_classes,
        across=across,
    )
    losses_B: Tensor = loss.apply(rows)
    for grad, sign in zip((target_P, candidate_BM), signs, strict=False):
        grad.mul_(sign)
    return losses_B


def _hits(ids: Tensor, targets: Targets) -> Tensor:
    """Return which candidates are targets of their rows, (B, M) bool."""
    # Targets ascend in each row, so these keys ascend.
    row_B1 = torch.arange(targets.num_rows, device=ids.device)[:, None]
    key_P = (targets.row_P << 32) + targets.ids_P
    key_BM = (row_B1 << 32) + ids
    place_BM = torch.searchsorted(key_P, key_BM).clamp_(max=len(key_P) - 1)
    return key_P[place_BM] == key_BM


def _mask_once(candidate_BM: Tensor, ids_M: Tensor, targets: Targets) -> None:
    """Mask hits among shared candidates, of which the first with a class is the one that counts."""
    place_P = torch.searchsorted(ids_M, targets.ids_P).clamp_(max=len(ids_M) - 1)
    # Subtract infinity or nothing there, so that no size depends on the number of hits.
    mask_P = torch.where(ids_M[place_P] == targets.ids_P, -torch.inf, 0.0)
    candidate_BM.index_put_((targets.row_P, place_P), mask_P, accumulate=True)

"""Let autograd differentiate losses of a class matrix; products, losses and logit gradients are those of scores.

A loss is linear in the factors of its rows, so the forward pass computes the gradients of all logits with factors 1,
and the backward pass multiplies hidden states by the factors that it is given. Nothing of the size of all candidates'
vectors, or of all logits, is kept.

Legend: B rows of a batch, D hidden size, P targets of the batch, M shared candidates, or places for each row's own,
R rows of the matrix, C classes of a block.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from runner.contracts import Products
from runner.output.across import ALONE
from runner.output.losses import LossConfig
from runner.output.torch.batches import Targets
from runner.output.torch.groups import bag_sums, segment_sums
from runner.output.torch.listed import listed_losses
from runner.output.torch.scores import _PAIR_ELEMENTS as PAIR_ELEMENTS
from runner.output.torch.scores import Product


class PlacedTargets(Targets):
    """Hold targets as places in a list of rows (or as rows of the whole matrix), ascending in each row of the batch.

    ``one_each``: every row lists exactly one.

    ``counts_B``: the numbers of targets, float32; a row with none has loss 0 and no gradient, even if it lists some.
    """

    def __init__(
        self, ids_P: Tensor, row_P: Tensor, indptr_B1: Tensor, counts_B: Tensor, *, one_each: bool = False
    ) -> None:
        self.num_rows, self.one_each = len(counts_B), one_each
        self.ids_P, self.row_P, self.indptr_B1, self.counts_B = ids_P, row_P, indptr_B1, counts_B

    def at(self, ids_P: Tensor) -> "PlacedTargets":
        """Return the same targets at other places."""
        return PlacedTargets(ids_P, self.row_P, self.indptr_B1, self.counts_B, one_each=self.one_each)

    @property
    def share_P(self) -> Tensor:
        """Return what each target counts for in its row; 0 in a row that counts for nothing."""
        counts_P = self.counts_B[self.row_P]
        return torch.where(counts_P > 0, 1 / counts_P.clamp_min(1), 0)


@dataclass(frozen=True, kw_only=True)
class Listed:
    """Say what a loss needs besides hidden states and rows: targets, candidates (``TorchProposal``) and settings."""

    targets: PlacedTargets
    ids: Tensor
    log_count: Tensor
    valid: Tensor | None
    distinct: bool
    log_count_P: Tensor | None
    loss: LossConfig
    num_classes: int
    products: Products = "float32"

    def losses(self, target_P: Tensor, candidate_BM: Tensor) -> Tensor:
        """Return the loss of each row, and replace both kinds of logits by their gradients with factor 1."""
        return listed_losses(
            self.loss,
            target_P,
            candidate_BM,
            targets=self.targets,
            ids=self.ids,
            log_count=self.log_count,
            valid=self.valid,
            distinct=self.distinct,
            log_count_P=self.log_count_P,
            weight_B=torch.ones_like(self.targets.counts_B),
            num_classes=self.num_classes,
            across=ALONE,
        )


def _of_targets(hidden_BD: Tensor, rows_RD: Tensor, bias_R: Tensor, targets: Targets) -> tuple[Tensor, Tensor]:
    """Return the targets' vectors, (P, D), and their logits, (P,)."""
    vectors_PD = rows_RD.index_select(0, targets.ids_P)
    logits_P = (vectors_PD * hidden_BD.index_select(0, targets.row_P)).sum(1)
    return vectors_PD, logits_P + bias_R.index_select(0, targets.ids_P)


def _back_of_targets(one_each: bool, vectors_PD: Tensor, grad_P: Tensor, row_P: Tensor, rows: int) -> Tensor:
    """Return the part of the hidden states' gradient that comes from the targets, (B, D)."""
    parts_PD = vectors_PD * grad_P[:, None]
    return parts_PD if one_each else parts_PD.new_zeros((rows, parts_PD.shape[1])).index_add_(0, row_P, parts_PD)


def _sums_of_rows(
    num_rows: int, ids_N: Tensor, sources_SD: Tensor, source_N: Tensor, weight_N: Tensor, bias_N: Tensor
) -> tuple[Tensor, Tensor]:
    """Return each row's sum of weights times sources, (R, D), and of gradients of its bias, (R,), in a fixed order."""
    sorted_N, order_N = torch.sort(ids_N, stable=True)
    offset_R1 = torch.searchsorted(sorted_N, torch.arange(num_rows + 1, device=ids_N.device))
    grad_RD = bag_sums(sources_SD, source_N[order_N], weight_N[order_N], offset_R1)
    return grad_RD, segment_sums(bias_N[order_N], offset_R1)


class SharedLosses(Function):
    """Score the whole batch's candidates by dense products."""

    @staticmethod
    def forward(ctx: Any, hidden_BD: Tensor, rows_RD: Tensor, bias_R: Tensor, listed: Listed) -> Tensor:
        targets, ids_M = listed.targets, listed.ids
        vectors_PD, target_P = _of_targets(hidden_BD, rows_RD, bias_R, targets)
        vectors_MD = rows_RD.index_select(0, ids_M)
        product = Product(hidden_BD, listed.products)
        candidate_BM = product.logits(vectors_MD, bias_R.index_select(0, ids_M))
        losses_B = listed.losses(target_P, candidate_BM)
        ctx.save_for_backward(
            hidden_BD, vectors_PD, vectors_MD, target_P, candidate_BM, targets.ids_P, targets.row_P, ids_M
        )
        ctx.num_rows, ctx.one_each, ctx.products = len(rows_RD), targets.one_each, listed.products
        return losses_B

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, factor_B: Tensor) -> Any:
        hidden_BD, vectors_PD, vectors_MD, target_P, candidate_BM, ids_P, row_P, ids_M = ctx.saved_tensors
        with torch.autocast(hidden_BD.device.type, enabled=False):
            weighted_BD = hidden_BD * factor_B[:, None]
            product = Product(weighted_BD, ctx.products)
            grad_hidden_BD = _back_of_targets(ctx.one_each, vectors_PD, target_P, row_P, len(hidden_BD))
            grad_MD = product.back(candidate_BM, vectors_MD, grad_hidden_BD)
            # Candidates are pairs with the sources B, B + 1, ..., the rows of their dense gradient.
            sources_SD = torch.cat([weighted_BD, grad_MD])
            source_M = torch.arange(len(hidden_BD), len(sources_SD), device=ids_M.device)
            weight_N = torch.cat([target_P, torch.ones_like(source_M, dtype=torch.float32)])
            bias_N = torch.cat([target_P * factor_B[row_P], factor_B @ candidate_BM])
            grads = _sums_of_rows(
                ctx.num_rows, torch.cat([ids_P, ids_M]), sources_SD, torch.cat([row_P, source_M]), weight_N, bias_N
            )
            return grad_hidden_BD.mul_(factor_B[:, None]), *grads, None


class PairLosses(Function):
    """Score each row's own candidates as (row, class) pairs."""

    @staticmethod
    def forward(ctx: Any, hidden_BD: Tensor, rows_RD: Tensor, bias_R: Tensor, listed: Listed) -> Tensor:
        targets, ids_BM = listed.targets, listed.ids
        rows, places = ids_BM.shape
        vectors_PD, target_P = _of_targets(hidden_BD, rows_RD, bias_R, targets)
        at_once = max(1, PAIR_ELEMENTS // max(1, places * hidden_BD.shape[1]))
        parts = [
            torch.matmul(rows_RD[ids_BM[lo : lo + at_once]], hidden_BD[lo : lo + at_once, :, None])[:, :, 0]
            for lo in range(0, rows, at_once)
        ]
        candidate_BM = torch.cat(parts).add_(bias_R[ids_BM])
        losses_B = listed.losses(target_P, candidate_BM)
        ctx.save_for_backward(
            hidden_BD, rows_RD, vectors_PD, target_P, candidate_BM, targets.ids_P, targets.row_P, ids_BM
        )
        ctx.one_each = targets.one_each
        return losses_B

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, factor_B: Tensor) -> Any:
        hidden_BD, rows_RD, vectors_PD, target_P, candidate_BM, ids_P, row_P, ids_BM = ctx.saved_tensors
        rows, places = ids_BM.shape
        with torch.autocast(hidden_BD.device.type, enabled=False):
            offset_B1 = torch.arange(rows + 1, device=ids_BM.device) * places
            grad_hidden_BD = bag_sums(rows_RD, ids_BM.reshape(-1), candidate_BM.reshape(-1), offset_B1)
            grad_hidden_BD += _back_of_targets(ctx.one_each, vectors_PD, target_P, row_P, rows)
            row_BM = torch.arange(rows, device=ids_BM.device)[:, None].expand(rows, places)
            source_N = torch.cat([row_P, row_BM.reshape(-1)])
            ids_N = torch.cat([ids_P, ids_BM.reshape(-1)])
            weight_N = torch.cat([target_P, candidate_BM.reshape(-1)])
            weighted_BD = hidden_BD * factor_B[:, None]
            bias_N = weight_N * factor_B[source_N]
            grads = _sums_of_rows(len(rows_RD), ids_N, weighted_BD, source_N, weight_N, bias_N)
            return grad_hidden_BD.mul_(factor_B[:, None]), *grads, None


class FullLosses(Function):
    """Score every class, block by block in both passes; the gradient of the rows is dense."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_BD: Tensor,
        rows_RD: Tensor,
        bias_R: Tensor,
        targets: PlacedTargets,
        by_magnitude: bool = False,
        products: Products = "float32",
    ) -> Tensor:
        product = Product(hidden_BD, products)
        top_B = hidden_BD.new_full((len(hidden_BD),), -torch.inf)
        sum_B = torch.zeros_like(top_B)
        for lo, hi in _blocks(hidden_BD, rows_RD):
            logits_BC = product.logits(rows_RD[lo:hi], bias_R[lo:hi])
            if by_magnitude:
                logits_BC.abs_()
            highest_B = torch.maximum(top_B, logits_BC.amax(1))
            sum_B = sum_B * (top_B - highest_B).exp() + logits_BC.sub_(highest_B[:, None]).exp_().sum(1)
            top_B = highest_B
        partition_B = top_B + sum_B.log()
        _, target_P = _of_targets(hidden_BD, rows_RD, bias_R, targets)
        if by_magnitude:
            target_P = target_P.abs()
        mean_B = torch.zeros_like(top_B).index_add_(0, targets.row_P, target_P * targets.share_P)
        ctx.save_for_backward(
            hidden_BD, rows_RD, bias_R, partition_B, targets.ids_P, targets.row_P, targets.share_P, targets.counts_B
        )
        ctx.by_magnitude, ctx.products = by_magnitude, products
        return torch.where(targets.counts_B > 0, partition_B - mean_B, 0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, factor_B: Tensor) -> Any:
        hidden_BD, rows_RD, bias_R, partition_B, ids_P, row_P, share_P, counts_B = ctx.saved_tensors
        with torch.autocast(hidden_BD.device.type, enabled=False):
            factor_B = torch.where(counts_B > 0, factor_B, 0)
            product = Product(hidden_BD, ctx.products)
            weighted = Product(hidden_BD * factor_B[:, None], ctx.products)
            grad_hidden_BD = torch.zeros_like(hidden_BD)
            grad_RD, grad_bias_R = torch.empty_like(rows_RD), torch.empty_like(bias_R)
            for lo, hi in _blocks(hidden_BD, rows_RD):
                grad_BC = product.logits(rows_RD[lo:hi], bias_R[lo:hi])
                sign_BC = grad_BC.sign() if ctx.by_magnitude else None
                if sign_BC is not None:
                    grad_BC.abs_()
                grad_BC.sub_(partition_B[:, None]).exp_()
                # Targets outside the block subtract nothing somewhere in it.
                taken_P = torch.where((ids_P >= lo) & (ids_P < hi), -share_P, 0)
                place_P = (ids_P - lo).clamp(0, hi - lo - 1)
                grad_BC.index_put_((row_P, place_P), taken_P, accumulate=True)
                if sign_BC is not None:
                    grad_BC.mul_(sign_BC)
                grad_RD[lo:hi] = weighted.back(grad_BC, rows_RD[lo:hi], grad_hidden_BD)
                grad_bias_R[lo:hi] = factor_B @ grad_BC
            return grad_hidden_BD.mul_(factor_B[:, None]), grad_RD, grad_bias_R, None, None, None


def _blocks(hidden_BD: Tensor, rows_RD: Tensor) -> list[tuple[int, int]]:
    # A GPU is busy with 2^24 logits at a time; a CPU's cache holds 2^22.
    elements = 2**24 if hidden_BD.is_cuda else 2**22
    width = max(256, elements // max(1, len(hidden_BD)))
    return [(lo, min(lo + width, len(rows_RD))) for lo in range(0, len(rows_RD), width)]


class SparseRows(Function):
    """Take distinct rows of a parameter, ascending; its gradient is a coalesced sparse tensor."""

    @staticmethod
    def forward(ctx: Any, weight_RD: Tensor, rows_U: Tensor) -> Tensor:
        ctx.save_for_backward(rows_U)
        ctx.shape = weight_RD.shape
        return weight_RD.index_select(0, rows_U)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_UD: Tensor) -> Any:
        (rows_U,) = ctx.saved_tensors
        made = torch.sparse_coo_tensor(
            rows_U[None], grad_UD.contiguous(), ctx.shape, is_coalesced=True, check_invariants=False
        )
        return made, None

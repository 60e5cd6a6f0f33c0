"""Turn a proposal into losses, gradients and updates of the class matrix, in tensors.

Three kinds of proposal have the same interface (``output.layer.Scores``):

- everything: blocks of classes, in two passes; nothing has the size of all logits or of all gradients;
- shared candidates: dense products for the batch;
- candidates of each row: products of hidden states with gathered rows.

No step asks the device for a number, so the processor never waits for it.

Legend: B rows of a batch, D hidden size, P targets of the batch, M shared candidates, or places for each row's own,
N values of all targets and candidates, G places of distinct rows (``output.torch.groups``), C classes of a block, R
classes.
"""

from abc import ABC, abstractmethod
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from runner.contracts import Everything, Passed, Products, Proposal, Query
from runner.output.across import Across
from runner.output.held import Held
from runner.output.layer import RowGradient
from runner.output.losses import LossConfig
from runner.output.of_all import OfAllHolders
from runner.output.torch.arrays import array_of, tensor_of
from runner.output.torch.batches import Targets, TorchProposal, TorchQuery, held_candidates, proposal_on
from runner.output.torch.directions import HiddenDirections, carry_to_rows, inverse_norms
from runner.output.torch.groups import Groups, bag_sums, group_rows, segment_sums
from runner.output.torch.listed import listed_losses
from runner.output.torch.row_table import TorchRowGradient, TorchRowTable

_PAIR_ELEMENTS = 2**26  # numbers of class vectors that are gathered at a time: 256 MB


class ClassMatrix(Protocol):
    """Describe what scoring needs of the layer."""

    table: TorchRowTable
    held: Held
    across: Across
    scale: float | None


def score(layer: ClassMatrix, query: Query, proposal: Proposal | Everything, step: int) -> "TorchScores":
    """Compute the logits of the batch's targets and of its candidates, listed or all classes."""
    layer.table.before_step(step)
    if isinstance(proposal, Everything):
        return EverythingScores(layer, query, step, proposal.products)
    listed = proposal_on(proposal, layer.table.device)
    if not layer.held.is_all:
        listed = held_candidates(listed, layer.held)
    return (SharedScores if listed.is_shared else PairScores)(layer, query, listed, step)


class TorchScores(ABC):
    """Hold the logits of a batch; what comes in and goes out may be arrays or tensors."""

    def __init__(self, layer: ClassMatrix, query: Query, step: int) -> None:
        self.layer, self.table, self.step = layer, layer.table, step
        device = self.table.device
        self.gives_tensors = isinstance(query, TorchQuery)
        hidden_BD = query.hidden if isinstance(query, TorchQuery) else tensor_of(query.hidden_BD, device)
        self.directions = None if layer.scale is None else HiddenDirections(hidden_BD, layer.scale)
        self.hidden_BD = hidden_BD if self.directions is None else self.directions.scaled_BD
        self.targets = Targets.of(query, device) if layer.held.is_all else Targets(query, device, layer.held)

    @property
    def rows(self) -> int:
        return self.targets.num_rows

    @property
    def touched_U(self) -> np.ndarray:
        """Return the distinct classes that the update touches, (U,) ascending int32; this waits for the device."""
        rows_U = array_of(self.touched_rows)
        return self.layer.held.classes(rows_U[rows_U != self.table.nobody].astype(np.int32))

    @property
    @abstractmethod
    def touched_rows(self) -> Tensor:
        """Return the rows that the update touches, ascending; the last may be nobody's."""

    def _weights(self, weight_B: np.ndarray | Tensor | None) -> Tensor:
        if weight_B is None:
            return torch.full((self.rows,), 1 / max(1, self.rows), device=self.table.device)
        return tensor_of(weight_B, self.table.device)

    def _out(self, values: Tensor) -> Passed:
        return values if self.gives_tensors else array_of(values)

    def loss(self, loss: LossConfig, log_count_P: Passed | None = None, weight_B: Passed | None = None) -> Passed:
        """Return the loss of each row, (B,) float32, and replace the logits by their gradients (``Scores.loss``)."""
        given_P = None if log_count_P is None else tensor_of(log_count_P, self.table.device)
        if given_P is not None and self.targets.kept_P is not None:
            given_P = given_P[self.targets.kept_P]
        return self._out(self._loss(loss, given_P, self._weights(weight_B)))

    @abstractmethod
    def _loss(self, loss: LossConfig, log_count_P: Tensor | None, weight_B: Tensor) -> Tensor: ...

    @abstractmethod
    def update(self) -> Passed:
        """Apply the gradients to the touched classes; return the gradient of the hidden states (B, D)."""

    @abstractmethod
    def gradients(self) -> tuple[RowGradient, Passed]:
        """Return the gradient of the touched classes, without applying it, and that of the hidden states (B, D)."""

    def _of_all(self, held: TorchRowGradient) -> RowGradient:
        return held if self.layer.held.is_all else OfAllHolders(held, self.layer.across)

    def _back_to_hidden(self, grad_BD: Tensor) -> Passed:
        grad_BD = self.layer.across.sum(grad_BD)
        return self._out(grad_BD if self.directions is None else self.directions.back(grad_BD))


# ---------------------------------------------------------------- listed candidates


class _ListedScores(TorchScores):
    """Hold what is common to both kinds of listed candidates."""

    groups: Groups
    target_P: Tensor
    candidate_BM: Tensor

    def __init__(self, layer: ClassMatrix, query: Query, proposal: TorchProposal, step: int) -> None:
        super().__init__(layer, query, step)
        self.proposal = proposal
        ids, nobody = proposal.ids, self.table.nobody
        self.ids = ids if proposal.valid is None else torch.where(proposal.valid, ids, nobody)
        self.groups = group_rows(torch.cat([self.targets.ids_P, self.ids.reshape(-1)]), nobody)
        self.table.read_for_update(self.groups.rows_G, step)
        self.target_PD = self._vectors(self.targets.ids_P)
        self.target_P = (self.target_PD * self.hidden_BD[self.targets.row_P]).sum(1)
        self.target_P.add_(self.table.bias[self.targets.ids_P])

    def _vectors(self, rows_X: Tensor) -> Tensor:
        """Return what hidden states are multiplied with, (X, D): rows, or their directions."""
        vectors_XD = self.table.weights[rows_X]
        return vectors_XD if self.layer.scale is None else vectors_XD.mul_(inverse_norms(vectors_XD)[:, None])

    @property
    def touched_rows(self) -> Tensor:
        return self.groups.rows_G

    def _loss(self, loss: LossConfig, log_count_P: Tensor | None, weight_B: Tensor) -> Tensor:
        proposal = self.proposal
        return listed_losses(
            loss,
            self.target_P,
            self.candidate_BM,
            targets=self.targets,
            ids=proposal.ids,
            log_count=proposal.log_count,
            valid=proposal.valid,
            distinct=proposal.distinct,
            log_count_P=log_count_P,
            weight_B=weight_B,
            num_classes=self.layer.held.num_classes,
            across=self.layer.across,
        )

    def logit_gradients(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the row, class and gradient of each logit of targets and candidates; call it after ``loss``."""
        shape = self.candidate_BM.shape
        row_BM = torch.arange(self.rows, device=self.table.device)[:, None].expand(shape)
        ids_BM, valid = self.ids.expand(shape), self.proposal.valid
        parts = [(row_BM, self.targets.row_P), (ids_BM, self.targets.ids_P), (self.candidate_BM, self.target_P)]
        kept = torch.ones(shape, dtype=torch.bool, device=self.table.device) if valid is None else valid.expand(shape)
        row_N, ids_N, grad_N = (array_of(torch.cat([of_targets, own[kept]])) for own, of_targets in parts)
        return row_N.astype(np.int32), self.layer.held.classes(ids_N.astype(np.int32)), grad_N

    def update(self) -> Passed:
        """Apply the gradients to the touched classes; return the gradient of the hidden states (B, D)."""
        grad_hidden_BD = self._hidden_gradient()
        self._row_gradient().apply(self.step)
        return self._back_to_hidden(grad_hidden_BD)

    def gradients(self) -> tuple[RowGradient, Passed]:
        """Return the gradient of the touched classes, without applying it, and that of the hidden states (B, D)."""
        return self._of_all(self._row_gradient()), self._back_to_hidden(self._hidden_gradient())

    @abstractmethod
    def _hidden_gradient(self) -> Tensor: ...

    @abstractmethod
    def _row_gradient(self) -> TorchRowGradient: ...

    def _hidden_gradient_of_targets(self) -> Tensor:
        place_P = torch.arange(len(self.target_P), device=self.table.device)
        return bag_sums(self.target_PD, place_P, self.target_P, self.targets.indptr_B1)

    def _of_rows(self, grad_GD: Tensor, bias_grad_N: Tensor) -> TorchRowGradient:
        if self.layer.scale is None:
            return self.table.gradient(self.groups.rows_G, grad_GD, self.groups.sums(bias_grad_N))
        rows_GD = self.table.weights[self.groups.rows_G]
        carry_to_rows(grad_GD, rows_GD, inverse_norms(rows_GD))
        return self.table.gradient(self.groups.rows_G, grad_GD, torch.zeros_like(grad_GD[:, 0]))


class SharedScores(_ListedScores):
    """Score targets as (row, class) pairs, and the whole batch's candidates by dense products."""

    def __init__(self, layer: ClassMatrix, query: Query, proposal: TorchProposal, step: int) -> None:
        super().__init__(layer, query, proposal, step)
        self.candidate_MD = self._vectors(self.ids)
        self.candidate_BM = torch.addmm(self.table.bias[self.ids], self.hidden_BD, self.candidate_MD.t())

    def _hidden_gradient(self) -> Tensor:
        return self._hidden_gradient_of_targets().addmm_(self.candidate_BM, self.candidate_MD)

    def _row_gradient(self) -> TorchRowGradient:
        # In the update, shared candidates are pairs with the sources B, B + 1, ..., the rows of their dense gradient.
        grad_MD = self.candidate_BM.t() @ self.hidden_BD
        sources = torch.cat([self.hidden_BD, grad_MD])
        own_M = torch.arange(self.rows, self.rows + len(self.ids), device=self.table.device)
        source_N = torch.cat([self.targets.row_P, own_M])
        weight_N = torch.cat([self.target_P, torch.ones_like(own_M, dtype=torch.float32)])
        grad_GD = self.groups.weighted_sums(sources, source_N, weight_N)
        return self._of_rows(grad_GD, torch.cat([self.target_P, self.candidate_BM.sum(0)]))


class PairScores(_ListedScores):
    """Score targets and each row's own candidates as (row, class) pairs."""

    def __init__(self, layer: ClassMatrix, query: Query, proposal: TorchProposal, step: int) -> None:
        super().__init__(layer, query, proposal, step)
        weights, hidden_BD = self.table.weights, self.hidden_BD
        self.candidate_BM = torch.empty(self.ids.shape, device=self.table.device)
        self.inverse_BM: Tensor | None = None if layer.scale is None else torch.empty_like(self.candidate_BM)
        at_once = max(1, _PAIR_ELEMENTS // max(1, self.ids.shape[1] * self.table.num_columns))
        for lo in range(0, self.rows, at_once):
            here = slice(lo, lo + at_once)
            vectors_bMD = weights[self.ids[here]]
            torch.matmul(vectors_bMD, hidden_BD[here, :, None], out=self.candidate_BM[here, :, None])
            if self.inverse_BM is not None:
                flat = vectors_bMD.reshape(-1, self.table.num_columns)
                self.inverse_BM[here] = inverse_norms(flat).reshape(vectors_bMD.shape[:2])
        if self.inverse_BM is not None:
            self.candidate_BM.mul_(self.inverse_BM)
        self.candidate_BM.add_(self.table.bias[self.ids])

    def _hidden_gradient(self) -> Tensor:
        grad_BM = self.candidate_BM if self.inverse_BM is None else self.candidate_BM * self.inverse_BM
        offset_B1 = torch.arange(self.rows + 1, device=self.table.device) * self.ids.shape[1]
        of_candidates = bag_sums(self.table.weights, self.ids.reshape(-1), grad_BM.reshape(-1), offset_B1)
        return self._hidden_gradient_of_targets().add_(of_candidates)

    def _row_gradient(self) -> TorchRowGradient:
        row_BM = torch.arange(self.rows, device=self.table.device)[:, None].expand(self.ids.shape)
        source_N = torch.cat([self.targets.row_P, row_BM.reshape(-1)])
        weight_N = torch.cat([self.target_P, self.candidate_BM.reshape(-1)])
        return self._of_rows(self.groups.weighted_sums(self.hidden_BD, source_N, weight_N), weight_N)


# ---------------------------------------------------------------- every class


class EverythingScores(TorchScores):
    """Compute full softmax: log partition in a first pass over blocks of classes, gradients and steps in a second."""

    def __init__(self, layer: ClassMatrix, query: Query, step: int, products: Products) -> None:
        super().__init__(layer, query, step)
        table = self.table
        table.read(None, step)
        self.product = Product(self.hidden_BD, products)
        top_B = torch.full((self.rows,), -torch.inf, device=table.device)
        sum_B = torch.zeros_like(top_B)
        for lo, hi in self._blocks():
            logits_BC = self._logits(lo, hi)
            highest_B = torch.maximum(top_B, logits_BC.amax(1))
            sum_B = sum_B * (top_B - highest_B).exp() + logits_BC.sub_(highest_B[:, None]).exp_().sum(1)
            top_B = highest_B
        top_B, sum_B = layer.across.log_sum_exp(top_B, sum_B)
        self.log_partition_B = top_B + sum_B.log()
        vectors_PD = table.weights[self.targets.ids_P]
        if layer.scale is not None:
            vectors_PD.mul_(inverse_norms(vectors_PD)[:, None])
        self.target_P = self.product.of_pairs(vectors_PD, self.targets.row_P)
        self.target_P.add_(table.bias[self.targets.ids_P])
        self.weight_B = self._weights(None)

    @property
    def touched_rows(self) -> Tensor:
        return torch.arange(self.table.num_rows, device=self.table.device)

    def _blocks(self) -> list[tuple[int, int]]:
        # A GPU is busy with 2^24 logits at a time; a CPU's cache holds 2^22.
        elements = 2**24 if self.table.device.type == "cuda" else 2**22
        rows = self.table.num_rows
        width = min(max(256, elements // max(1, self.rows)), max(1, rows))
        return [(lo, min(lo + width, rows)) for lo in range(0, rows, width)]

    def _vectors(self, lo: int, hi: int) -> Tensor:
        vectors_CD = self.table.weights[lo:hi]
        return vectors_CD if self.layer.scale is None else vectors_CD * inverse_norms(vectors_CD)[:, None]

    def _logits(self, lo: int, hi: int) -> Tensor:
        return self.product.logits(self._vectors(lo, hi), self.table.bias[lo:hi])

    def _loss(self, loss: LossConfig, log_count_P: Tensor | None, weight_B: Tensor) -> Tensor:
        """Return the cross-entropy of each row. Every count is 1, so there is nothing to correct."""
        targets, self.weight_B = self.targets, weight_B
        sums_B = self.layer.across.sum(segment_sums(self.target_P, targets.indptr_B1))
        mean_B = sums_B / targets.counts_B.clamp_min(1)
        return torch.where(targets.counts_B > 0, self.log_partition_B - mean_B, 0)

    # ------------------------------------------------------------ the second pass

    def update(self) -> Passed:
        """Step every class, block by block; return the gradient of the hidden states (B, D)."""
        grad_hidden_BD = torch.zeros_like(self.hidden_BD)
        for lo, hi in self._blocks():
            grad_CD, bias_grad_C = self._block_gradient(lo, hi, grad_hidden_BD)
            self.table.apply(slice(lo, hi), grad_CD, bias_grad_C, self.step)
        self.table.all_stepped(self.step)
        return self._back_to_hidden(grad_hidden_BD)

    def gradients(self) -> tuple[RowGradient, Passed]:
        """Return the gradient of every class, which takes as much memory as the matrix, and the hidden states'."""
        grad_hidden_BD = torch.zeros_like(self.hidden_BD)
        grad_RD = torch.empty_like(self.table.tensor)
        bias_grad_R = torch.empty_like(grad_RD[:, 0])
        for lo, hi in self._blocks():
            grad_RD[lo:hi], bias_grad_R[lo:hi] = self._block_gradient(lo, hi, grad_hidden_BD)
        return self._of_all(self.table.gradient(None, grad_RD, bias_grad_R)), self._back_to_hidden(grad_hidden_BD)

    def _block_gradient(self, lo: int, hi: int, grad_hidden_BD: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients of a block's rows and biases, and add the block's part to the hidden states'."""
        targets = self.targets
        weight_B = torch.where(targets.counts_B > 0, self.weight_B, 0)
        vectors_CD = self._vectors(lo, hi)
        grad_BC = self.product.logits(vectors_CD, self.table.bias[lo:hi])
        grad_BC.sub_((self.log_partition_B - weight_B.log())[:, None]).exp_()
        # Targets outside the block subtract nothing somewhere in it.
        here_P = (targets.ids_P >= lo) & (targets.ids_P < hi)
        share_P = torch.where(here_P, -(weight_B / targets.counts_B.clamp_min(1))[targets.row_P], 0)
        column_P = (targets.ids_P - lo).clamp_(0, hi - lo - 1)
        grad_BC.index_put_((targets.row_P, column_P), share_P, accumulate=True)
        grad_CD = self.product.back(grad_BC, vectors_CD, grad_hidden_BD)
        bias_grad_C = grad_BC.sum(0)
        if self.layer.scale is not None:
            rows_CD = self.table.weights[lo:hi]
            carry_to_rows(grad_CD, rows_CD, inverse_norms(rows_CD))
            bias_grad_C.zero_()
        return grad_CD, bias_grad_C


class Product:
    """Multiply the hidden states of a batch with blocks of classes, in float32 or with operands of bfloat16.

    Sums of products are float32 in either case. A CPU multiplies rounded operands in float32.
    """

    def __init__(self, hidden_BD: Tensor, products: Products) -> None:
        self._is_bf16 = products == "bf16"
        self._hidden_BD = self._operand(hidden_BD)

    def _operand(self, values: Tensor) -> Tensor:
        if not self._is_bf16:
            return values
        rounded = values.to(torch.bfloat16)
        return rounded if values.is_cuda else rounded.float()

    def _mm(self, left: Tensor, right: Tensor) -> Tensor:
        if left.dtype == torch.bfloat16:
            return torch.mm(left, right, out_dtype=torch.float32)
        return left @ right

    def logits(self, vectors_CD: Tensor, bias_C: Tensor) -> Tensor:
        """Return the logits of a block, (B, C) float32."""
        if self._is_bf16:
            return self._mm(self._hidden_BD, self._operand(vectors_CD).t()).add_(bias_C)
        return torch.addmm(bias_C, self._hidden_BD, vectors_CD.t())

    def of_pairs(self, vectors_PD: Tensor, row_P: Tensor) -> Tensor:
        """Return the products of vectors with the hidden states of their rows, (P,) float32, of the same operands."""
        return (self._operand(vectors_PD).float() * self._hidden_BD[row_P].float()).sum(1)

    def back(self, grad_BC: Tensor, vectors_CD: Tensor, grad_hidden_BD: Tensor) -> Tensor:
        """Return the gradient of a block's vectors, (C, D), and add the block's part to the hidden states'."""
        grad, vectors = self._operand(grad_BC), self._operand(vectors_CD)
        if self._is_bf16:
            grad_hidden_BD.add_(self._mm(grad, vectors))
        else:
            grad_hidden_BD.addmm_(grad, vectors)
        return self._mm(grad.t(), self._hidden_BD)

"""The class matrix: scores of proposals, gradients, updates, and exact ranking over all classes.

Legend: B rows of a batch, D hidden size, P targets of the batch, M shared candidates, N candidates of all rows,
C classes of a block, R classes.

Three kinds of proposal, one interface (score -> loss -> update, each on its own clock):

- everything: blocks of classes that never leave the cache (``kernels.full_softmax``);
- shared candidates: dense products for the batch;
- candidates of each row: (row, class) pairs grouped by class, so that a class row is read once to score and once
  to update, in ascending order, whatever the number of rows that want it.
"""

import math
from typing import Any

import numpy as np
import torch

from runner.kernels import dense, full_softmax, full_softmax_bf16
from runner.kernels import losses as loss_kernels
from runner.kernels import topk as topk_kernels
from runner.kernels.groups import group_by_id
from runner.losses import LossConfig
from runner.optimizers import RowTable
from runner.samplers.base import Everything, Proposal, Query

_BLOCK_ELEMENTS = 2**22  # logits ranked at a time: 16 MB, about the size of a last-level cache


def _as_tensor(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(array)


class Scratch:
    """Named float32 buffers that live on from step to step: fresh memory costs more than what is computed in it."""

    def __init__(self) -> None:
        self._held: dict[str, np.ndarray] = {}

    def take(self, name: str, *shape: int) -> np.ndarray:
        """An array of undefined contents; whatever was taken under this name before is overwritten."""
        size = math.prod(shape)
        if name not in self._held or len(self._held[name]) < size:
            self._held[name] = np.empty(size, dtype=np.float32)
        return self._held[name][:size].reshape(shape)


class OutputLayer:
    """Class vectors and biases with their optimizer state, in a ``RowTable``."""

    def __init__(self, table: RowTable) -> None:
        self.table = table
        self.num_classes, self.dim = table.weights.shape
        self.scratch = Scratch()

    # ------------------------------------------------------------ training

    def score(self, query: Query, proposal: Proposal | Everything, step: int) -> Any:
        """Logits of the batch's targets and candidates; the result is passed to ``loss`` and then to ``update``."""
        self.table.before_step(step)
        if isinstance(proposal, Everything):
            return _EverythingScores(self, query, proposal, step)
        return (_SharedScores if proposal.is_shared else _PairScores)(self, query, proposal, step)

    # ------------------------------------------------------------ ranking

    def blocks(self, num_rows: int) -> list[tuple[int, int]]:
        """Ranges of classes whose logits for ``num_rows`` rows make one block."""
        width = max(256, min(self.num_classes, _BLOCK_ELEMENTS // max(1, num_rows)))
        return [(lo, min(lo + width, self.num_classes)) for lo in range(0, self.num_classes, width)]

    def block_logits(self, hidden_BD: np.ndarray, lo: int, hi: int, out_BC: np.ndarray) -> None:
        """out = hidden . weights[lo:hi]^T + bias[lo:hi]."""
        bias = _as_tensor(self.table.bias_view[lo:hi])
        torch.addmm(bias, _as_tensor(hidden_BD), _as_tensor(self.table.weights[lo:hi]).t(), out=_as_tensor(out_BC))

    def largest(self, hidden_BD: np.ndarray, k: int, *, ranked: bool = True) -> np.ndarray:
        """(B, k) int32 ids of the k largest logits over all classes, ties by lower id.

        Best first, or by ascending id when not ``ranked``. Rows must be current (``table.read``).
        """
        rows = len(hidden_BD)
        width = 2 * k + 64
        values = np.empty((rows, width), dtype=np.float32)
        ids = np.empty((rows, width), dtype=np.int32)
        count = np.zeros(rows, dtype=np.int64)
        bar = np.full(rows, -np.inf, dtype=np.float32)
        for lo, hi in self.blocks(rows):
            logits = np.empty((rows, hi - lo), dtype=np.float32)
            self.block_logits(hidden_BD, lo, hi, logits)
            topk_kernels.fold_block(logits, lo, k, values, ids, count, bar)
        out = np.empty((rows, k), dtype=np.int32)
        topk_kernels.finish(values, ids, count, k, ranked, out)
        return out


class _EverythingScores:
    """Full softmax: log partition in a first pass over blocks of classes, gradients and update in a second."""

    def __init__(self, layer: OutputLayer, query: Query, proposal: Everything, step: int) -> None:
        self.layer, self.query, self.step = layer, query, step
        self.kernels = full_softmax_bf16 if proposal.products == "bf16" else full_softmax
        table = layer.table
        table.read(None, step)
        rows = query.num_rows
        self.padded_BD, self.panels = full_softmax.padded(query.hidden_BD)
        log_partition = self.kernels.log_partition(table.weights, table.bias, self.panels)
        # Rows that only pad the batch get no gradient, nor do rows without a target.
        log_partition[rows:] = np.inf
        log_partition[:rows][np.diff(query.target_indptr_B1) == 0] = np.inf
        self.log_partition_B = log_partition
        self.groups = group_by_id(query.targets_P, layer.num_classes)
        self.target_logit_P = np.empty(len(query.targets_P), dtype=np.float32)
        table.score(self.groups, query.hidden_BD, query.row_P, self.target_logit_P)

    @property
    def touched_U(self) -> np.ndarray:
        """Classes that the update touches: all."""
        return np.arange(self.layer.num_classes, dtype=np.int32)

    def loss(self, loss: LossConfig, target_log_count_P: np.ndarray | None = None) -> np.ndarray:
        """Cross-entropy of each row (B,); with every count 1 there is nothing to correct."""
        rows = self.query.num_rows
        counts = np.diff(self.query.target_indptr_B1)
        sums = np.bincount(self.query.row_P, weights=self.target_logit_P, minlength=rows)
        losses = self.log_partition_B[:rows] - (sums / np.maximum(counts, 1)).astype(np.float32)
        return np.where(counts > 0, losses, np.float32(0))

    def update(self) -> np.ndarray:
        """Apply gradients to every class; returns the gradient of the hidden states (B, D)."""
        query = self.query
        rows = query.num_rows
        grad_hidden_BD = np.zeros_like(query.hidden_BD)
        order = self.groups[0]
        row_P = query.row_P[order]
        share_P = (1 / (rows * np.diff(query.target_indptr_B1)[row_P])).astype(np.float32)
        self.layer.table.update_all(
            self.kernels.gradients_and_adam, self.step,
            self.padded_BD, self.panels, self.log_partition_B, np.float32(1 / rows),
            query.targets_P[order], row_P, share_P, grad_hidden_BD,
        )  # fmt: skip
        return grad_hidden_BD


class _PairScores:
    """Targets and each row's own candidates as (row, class) pairs."""

    def __init__(self, layer: OutputLayer, query: Query, proposal: Proposal, step: int) -> None:
        self.layer, self.query, self.proposal, self.step = layer, query, proposal, step
        assert proposal.indptr_B1 is not None
        self.begin_B, self.end_B = proposal.indptr_B1[:-1], proposal.indptr_B1[1:]
        candidate_row_N = np.repeat(np.arange(query.num_rows, dtype=np.int32), self.end_B - self.begin_B)
        self.row_N = np.concatenate([query.row_P, candidate_row_N])
        self.groups = group_by_id(np.concatenate([query.targets_P, proposal.ids_N]), layer.num_classes)
        self.logits_N = layer.scratch.take("logits", len(self.row_N))
        layer.table.score_for_update(self.groups, query.hidden_BD, self.row_N, self.logits_N, step)

    @property
    def touched_U(self) -> np.ndarray:
        """Classes that the update touches, ascending."""
        return self.groups[1]

    def loss(self, loss: LossConfig, target_log_count_P: np.ndarray | None = None) -> np.ndarray:
        """Loss of each row (B,); logits become gradients. ``target_log_count_P`` where the loss corrects targets."""
        query, proposal = self.query, self.proposal
        target, candidate = np.split(self.logits_N, [len(query.targets_P)])  # views
        if loss.corrects_candidates:
            candidate -= proposal.log_expected_count_N
        if target_log_count_P is not None:
            target -= target_log_count_P
        hits = (query.target_indptr_B1, query.targets_P)
        loss_kernels.mask_pairs(candidate, proposal.ids_N, self.begin_B, self.end_B, *hits)
        return loss.apply(query.target_indptr_B1, target, self.begin_B, self.end_B, candidate)

    def update(self) -> np.ndarray:
        """Apply gradients to the touched classes; returns the gradient of the hidden states (B, D)."""
        query = self.query
        grad_hidden_BD = np.zeros_like(query.hidden_BD)
        grad_N = self.logits_N
        self.layer.table.update_groups(self.groups, query.hidden_BD, self.row_N, grad_N, grad_hidden_BD, self.step)
        return grad_hidden_BD


class _SharedScores:
    """Targets as (row, class) pairs, candidates of the whole batch by dense products."""

    def __init__(self, layer: OutputLayer, query: Query, proposal: Proposal, step: int) -> None:
        self.layer, self.query, self.proposal, self.step = layer, query, proposal, step
        table, take, ids_M = layer.table, layer.scratch.take, proposal.ids_N
        # For the update, shared candidates are pairs with sources B, B+1, ...: the rows of their dense gradient.
        self.groups = group_by_id(np.concatenate([query.targets_P, ids_M]), layer.num_classes)
        table.read_for_update(self.groups[1], step)
        self.target_P = np.empty(len(query.targets_P), dtype=np.float32)
        target_groups = group_by_id(query.targets_P, layer.num_classes)
        table.score(target_groups, query.hidden_BD, query.row_P, self.target_P)

        self.hidden_BD = dense.padded_rows(query.hidden_BD)
        batch, dim = self.hidden_BD.shape
        candidates = dense.padded_size(len(ids_M))
        self.candidate_MD = take("candidates", candidates, dim)
        panels = take("panels", candidates // dense.COLUMNS, dim, dense.COLUMNS)
        dense.gather_candidates(table.weights, ids_M, self.candidate_MD, panels)
        self.logits_BM = take("logits", batch, dense.pitch(len(ids_M)))
        dense.logits(self.hidden_BD, panels, table.bias_view[ids_M], self.logits_BM)

    @property
    def touched_U(self) -> np.ndarray:
        """As ``_PairScores.touched_U``."""
        return self.groups[1]

    def loss(self, loss: LossConfig, target_log_count_P: np.ndarray | None = None) -> np.ndarray:
        """As ``_PairScores.loss``."""
        query, proposal = self.query, self.proposal
        logits_BM = self.logits_BM[: query.num_rows]
        log_count_M = proposal.log_expected_count_N if loss.corrects_candidates else None
        loss_kernels.correct_and_mask_shared(
            logits_BM, log_count_M, proposal.ids_N, query.target_indptr_B1, query.targets_P
        )
        if target_log_count_P is not None:
            self.target_P -= target_log_count_P
        begin_B = np.arange(query.num_rows, dtype=np.int64) * logits_BM.shape[1]
        end_B = begin_B + len(proposal.ids_N)
        return loss.apply(query.target_indptr_B1, self.target_P, begin_B, end_B, logits_BM.reshape(-1))

    def update(self) -> np.ndarray:
        """As ``_PairScores.update``."""
        query, take = self.query, self.layer.scratch.take
        rows, dim = query.hidden_BD.shape
        shared = len(self.proposal.ids_N)
        grad_BM = self.logits_BM
        dense.clear_padding(grad_BM, rows, shared, len(self.candidate_MD))
        grad_MD = take("grad_candidates", *self.candidate_MD.shape)
        dense.grad_candidates(grad_BM, self.hidden_BD, grad_MD)
        grad_BD = take("grad_hidden", *self.hidden_BD.shape)
        dense.grad_hidden(grad_BM, self.candidate_MD, grad_BD)
        bias_grad_M = np.empty(shared, dtype=np.float32)
        dense.column_sums(grad_BM[:rows], bias_grad_M)

        grad_hidden_BD = np.ascontiguousarray(grad_BD[:rows, :dim])
        self.layer.table.update_groups(
            self.groups,
            np.concatenate([query.hidden_BD, grad_MD[:shared, :dim]]),
            np.concatenate([query.row_P, np.arange(rows, rows + shared, dtype=np.int32)]),
            np.concatenate([self.target_P, np.ones(shared, dtype=np.float32)]),
            grad_hidden_BD,
            self.step,
            np.concatenate([self.target_P, bias_grad_M]),
        )
        return grad_hidden_BD

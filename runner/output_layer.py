"""The class matrix: scores of proposals, gradients, updates, and exact ranking over all classes.

Legend: B rows of a batch, D hidden size, P targets of the batch, M shared candidates, N candidates of all rows,
C classes of a block, R classes.

Three kinds of proposal, one interface (score -> loss -> update, each on its own clock):

- everything: blocks of classes with a streaming log-sum-exp;
- shared candidates: one dense product for the batch;
- candidates of each row: (row, class) pairs grouped by class, so that a class row is read once to score and once
  to update, in ascending order, whatever the number of rows that want it.
"""

from typing import Any

import numpy as np
import torch

from runner.kernels import losses as loss_kernels
from runner.kernels import topk as topk_kernels
from runner.kernels.groups import group_by_id
from runner.kernels.rows import gather_rows
from runner.losses import LossConfig
from runner.optimizers import RowTable
from runner.samplers.base import Everything, Proposal, Query

_BLOCK_ELEMENTS = 2**22  # logits of one block: 16 MB, about the size of a last-level cache
_KEPT_ELEMENTS = 2**25  # logits kept between forward and backward when all fit in 128 MB; else recomputed


def _as_tensor(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(array)


class OutputLayer:
    """Class vectors and biases with their optimizer state, in a ``RowTable``."""

    def __init__(self, table: RowTable) -> None:
        self.table = table
        self.num_classes, self.dim = table.weights.shape

    # ------------------------------------------------------------ training

    def score(self, query: Query, proposal: Proposal | Everything, step: int) -> Any:
        """Logits of the batch's targets and candidates; the result is passed to ``loss`` and then to ``update``."""
        self.table.before_step(step)
        if isinstance(proposal, Everything):
            return _EverythingScores(self, query, step)
        return _CandidateScores(self, query, proposal, step)

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
    """Full softmax: log partition in a first pass over blocks, gradient and update in a second."""

    def __init__(self, layer: OutputLayer, query: Query, step: int) -> None:
        self.layer, self.query, self.step = layer, query, step
        layer.table.read(None, step)
        rows = query.num_rows
        self.blocks = layer.blocks(rows)
        keep = rows * layer.num_classes <= _KEPT_ELEMENTS
        self.kept: list[np.ndarray] = []
        top = np.full(rows, -np.inf, dtype=np.float32)
        total = np.zeros(rows, dtype=np.float32)
        scratch = np.empty(0 if keep else rows * (self.blocks[0][1] - self.blocks[0][0]), dtype=np.float32)
        for lo, hi in self.blocks:
            size = rows * (hi - lo)
            logits = (np.empty(size, dtype=np.float32) if keep else scratch[:size]).reshape(rows, hi - lo)
            layer.block_logits(query.hidden_BD, lo, hi, logits)
            loss_kernels.streaming_log_sum_exp(logits, top, total)
            if keep:
                self.kept.append(logits)
        self.log_partition_B = top + np.log(total)
        self.row_P = np.repeat(np.arange(rows, dtype=np.int32), np.diff(query.target_indptr_B1))
        self.groups = group_by_id(query.targets_P, layer.num_classes)
        self.target_logit_P = np.empty(len(query.targets_P), dtype=np.float32)
        layer.table.score(self.groups, query.hidden_BD, self.row_P, self.target_logit_P)

    def loss(self, loss: LossConfig, target_log_count_P: np.ndarray | None = None) -> np.ndarray:
        """Cross-entropy of each row (B,); with every count 1 there is nothing to correct."""
        counts = np.maximum(np.diff(self.query.target_indptr_B1), 1)
        sums = np.bincount(self.row_P, weights=self.target_logit_P, minlength=len(counts))
        return self.log_partition_B - (sums / counts).astype(np.float32)

    def update(self) -> np.ndarray:
        """Apply gradients to every class; returns the gradient of the hidden states (B, D)."""
        layer, query = self.layer, self.query
        rows = query.num_rows
        hidden = _as_tensor(query.hidden_BD)
        grad_hidden_BD = np.zeros_like(query.hidden_BD)
        counts = np.diff(query.target_indptr_B1)
        order, unique, start = self.groups
        sorted_classes = np.repeat(unique, np.diff(start))
        scratch = np.empty(0 if self.kept else rows * (self.blocks[0][1] - self.blocks[0][0]), dtype=np.float32)
        for index, (lo, hi) in enumerate(self.blocks):
            if self.kept:
                logits = self.kept[index]
            else:
                logits = scratch[: rows * (hi - lo)].reshape(rows, hi - lo)
                layer.block_logits(query.hidden_BD, lo, hi, logits)
            loss_kernels.softmax_block(logits, self.log_partition_B, np.float32(1 / rows))
            begin, end = np.searchsorted(sorted_classes, [lo, hi])
            row = self.row_P[order[begin:end]]
            logits[row, sorted_classes[begin:end] - lo] -= (1 / (rows * counts[row])).astype(np.float32)
            grad = _as_tensor(logits)
            _as_tensor(grad_hidden_BD).addmm_(grad, _as_tensor(layer.table.weights[lo:hi]))
            grad_rows = torch.mm(grad.t(), hidden)
            layer.table.update_block(lo, grad_rows.numpy(), grad.sum(0).numpy(), self.step)
        return grad_hidden_BD


class _CandidateScores:
    """Targets as (row, class) pairs; candidates as pairs too, or as one dense product when shared."""

    def __init__(self, layer: OutputLayer, query: Query, proposal: Proposal, step: int) -> None:
        self.layer, self.query, self.proposal, self.step = layer, query, proposal, step
        rows = query.num_rows
        table = layer.table
        row_P = np.repeat(np.arange(rows, dtype=np.int32), np.diff(query.target_indptr_B1))
        if proposal.indptr_B1 is None:
            # Shared candidates join the groups as pairs with sources B, B+1, ...: the rows of their dense gradient.
            shared = len(proposal.ids_N)
            source_N = np.arange(rows, rows + shared, dtype=np.int32)
            self.candidate_indptr_B1 = np.arange(rows + 1, dtype=np.int64) * shared
        else:
            self.candidate_indptr_B1 = proposal.indptr_B1
            source_N = np.repeat(np.arange(rows, dtype=np.int32), np.diff(proposal.indptr_B1))
        pair_ids = np.concatenate([query.targets_P, proposal.ids_N])
        self.pair_source = np.concatenate([row_P, source_N])
        self.groups = group_by_id(pair_ids, layer.num_classes)
        self.num_targets = len(query.targets_P)
        if proposal.indptr_B1 is None:
            table.read_for_update(self.groups[1], step)
            self.target = np.empty(self.num_targets, dtype=np.float32)
            target_groups = group_by_id(query.targets_P, layer.num_classes)
            table.score(target_groups, query.hidden_BD, row_P, self.target)
            self.shared_MD = np.empty((len(proposal.ids_N), layer.dim), dtype=np.float32)
            gather_rows(table.weights, proposal.ids_N, self.shared_MD)
            bias_M = _as_tensor(table.bias_view[proposal.ids_N])
            candidate_BM = torch.addmm(bias_M, _as_tensor(query.hidden_BD), _as_tensor(self.shared_MD).t()).numpy()
            self.candidate = candidate_BM.reshape(-1)
        else:
            logits = np.empty(len(pair_ids), dtype=np.float32)
            table.score_for_update(self.groups, query.hidden_BD, self.pair_source, logits, step)
            self.logits = logits  # targets and candidates of all pairs; the two views below share it
            self.target = logits[: self.num_targets]
            self.candidate = logits[self.num_targets :]

    def loss(self, loss: LossConfig, target_log_count_P: np.ndarray | None = None) -> np.ndarray:
        """Loss of each row (B,); logits become gradients. ``target_log_count_P`` where the loss corrects targets."""
        query, proposal = self.query, self.proposal
        log_count = proposal.log_expected_count_N
        if not loss.corrects_candidates:
            log_count = np.zeros_like(log_count)
        hits = (query.target_indptr_B1, query.targets_P)
        if proposal.indptr_B1 is None:
            logits_BM = self.candidate.reshape(query.num_rows, -1)
            loss_kernels.correct_shared(logits_BM, log_count, proposal.ids_N, *hits)
        else:
            loss_kernels.correct_per_row(self.candidate, log_count, proposal.ids_N, proposal.indptr_B1, *hits)
        if target_log_count_P is not None:
            self.target -= target_log_count_P
        return loss.apply(query.target_indptr_B1, self.target, self.candidate_indptr_B1, self.candidate)

    def update(self) -> np.ndarray:
        """Apply gradients to the touched classes; returns the gradient of the hidden states (B, D)."""
        query, table = self.query, self.layer.table
        grad_hidden_BD = np.zeros_like(query.hidden_BD)
        sources, pair_grad, bias_grad = query.hidden_BD, None, None
        if self.proposal.indptr_B1 is None:
            rows, dim = query.hidden_BD.shape
            grad_BM = _as_tensor(self.candidate.reshape(rows, -1))
            sources = np.empty((rows + grad_BM.shape[1], dim), dtype=np.float32)
            sources[:rows] = query.hidden_BD
            torch.mm(grad_BM.t(), _as_tensor(query.hidden_BD), out=_as_tensor(sources[rows:]))
            torch.mm(grad_BM, _as_tensor(self.shared_MD), out=_as_tensor(grad_hidden_BD))
            ones = np.ones(grad_BM.shape[1], dtype=np.float32)
            pair_grad = np.concatenate([self.target, ones])
            bias_grad = np.concatenate([self.target, grad_BM.sum(0).numpy()])
        else:
            pair_grad = self.logits
        table.update_groups(self.groups, sources, self.pair_source, pair_grad, grad_hidden_BD, self.step, bias_grad)
        return grad_hidden_BD

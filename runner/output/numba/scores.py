"""Turn a proposal into losses, gradients and updates of the class matrix, on a CPU.

Three kinds of proposal have the same interface (``output.layer.Scores``):

- everything: blocks of classes that never leave the cache (``kernels.full_softmax``);
- shared candidates: dense products for the batch;
- candidates of each row: (row, class) pairs grouped by class. A class row is read once to score and once to update, in
  ascending order, however many rows have it as a candidate.

A normalised layer (RF-softmax) has logits scale * (h / |h|) . (w / |w|). This module normalises the hidden states,
before scores and after gradients; the kernels that read class rows normalise those (``least_norm``). The biases of such
a layer are constant.

@inproceedings{rawat2019sampled, title={Sampled Softmax with Random Fourier Features}, author={Rawat, Ankit Singh and
Chen, Jiecao and Yu, Felix X. and Suresh, Ananda Theertha and Kumar, Sanjiv}, booktitle={NeurIPS}, year={2019}}

Legend: B rows of a batch, D hidden size, P targets of the batch, M shared candidates, N candidates of all rows (in
``row_N`` and ``logits_N`` after the targets; classes in ``stored_NB``), U distinct classes, S shifts of stored logits.
Of targets, candidates and classes, those that are held here.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from runner.contracts import Everything, Proposal, Query
from runner.kernels import dense, full_softmax, full_softmax_bf16
from runner.kernels import losses as loss_kernels
from runner.kernels.groups import group_by_id
from runner.kernels.rows import LEAST_NORM
from runner.kernels.scratch import Scratch
from runner.output.across import Across
from runner.output.held import Held
from runner.output.layer import CandidateScores, RowGradient, Scores
from runner.output.losses import LossConfig
from runner.output.numba.losses import NumbaRowLogits
from runner.output.numba.row_table import RowTable
from runner.output.of_all import OfAllHolders


class Directions:
    """Compute scale * h / |h| for the hidden states of a batch, and carry gradients back through it."""

    def __init__(self, hidden_BD: np.ndarray, scale: float) -> None:
        norm_B1 = np.linalg.norm(hidden_BD, axis=1, keepdims=True)
        # A row of zeros has no direction: it scores 0 everywhere and learns nothing.
        self._inverse_B1 = np.where(norm_B1 > LEAST_NORM, 1 / np.maximum(norm_B1, LEAST_NORM), np.float32(0))
        self._unit_BD = hidden_BD * self._inverse_B1
        self._scale = np.float32(scale)
        self.scaled_BD = self._scale * self._unit_BD

    def back(self, grad_BD: np.ndarray) -> np.ndarray:
        """Return the hidden states' gradient, scale (G - u (u . G)) / |h|, for the gradient G of ``scaled_BD``."""
        along_B1 = (self._unit_BD * grad_BD).sum(axis=1, keepdims=True)
        return self._scale * self._inverse_B1 * (grad_BD - along_B1 * self._unit_BD)


class ClassMatrix(Protocol):
    """Describe what scoring needs of the layer."""

    table: RowTable
    held: Held
    across: Across
    scratch: Scratch
    scale: float | None
    least_norm: np.float32 | None


def score(layer: ClassMatrix, query: Query, proposal: Proposal | Everything, step: int) -> Scores:
    """Compute the logits of the batch's targets and of its candidates, listed or all classes."""
    if isinstance(proposal, Proposal):
        return score_candidates(layer, query, proposal, step)
    layer.table.before_step(step)
    if layer.scale is None:
        return _EverythingScores(layer, query, proposal, step)
    directions = Directions(query.hidden_BD, layer.scale)
    query = replace(query, hidden_BD=directions.scaled_BD)
    return _DirectionScores(directions, _EverythingScores(layer, query, proposal, step))


def score_candidates(layer: ClassMatrix, query: Query, proposal: Proposal, step: int) -> CandidateScores:
    """Compute the logits of the batch's targets and of listed candidates, shared by the batch or each row's own."""
    layer.table.before_step(step)
    kind = _SharedScores if proposal.is_shared else _PairScores
    if layer.scale is None:
        return kind(layer, query, proposal, step)
    directions = Directions(query.hidden_BD, layer.scale)
    query = replace(query, hidden_BD=directions.scaled_BD)
    return _DirectionCandidateScores(directions, kind(layer, query, proposal, step))


def _equal_weights(query: Query) -> np.ndarray:
    """Return 1 / B for each row, (B,) float32."""
    return np.full(query.num_rows, np.float32(1.0 / query.num_rows), dtype=np.float32)


def _for_all_holders(
    layer: ClassMatrix, gradient: RowGradient, grad_hidden_BD: np.ndarray
) -> tuple[RowGradient, np.ndarray]:
    return (gradient if layer.held.is_all else OfAllHolders(gradient, layer.across)), grad_hidden_BD


class _DirectionScores:
    """Score the vectors scale * h / |h|, but return the gradient of h."""

    def __init__(self, directions: Directions, scores: Scores) -> None:
        self.directions, self.scores = directions, scores

    @property
    def touched_U(self) -> np.ndarray:
        return self.scores.touched_U

    def loss(
        self, loss: LossConfig, log_count_P: np.ndarray | None = None, weight_B: np.ndarray | None = None
    ) -> np.ndarray:
        return self.scores.loss(loss, log_count_P, weight_B)

    def update(self) -> np.ndarray:
        return self.directions.back(self.scores.update())

    def gradients(self) -> tuple[RowGradient, np.ndarray]:
        rows, grad_hidden_BD = self.scores.gradients()
        return rows, self.directions.back(grad_hidden_BD)


class _DirectionCandidateScores(_DirectionScores):
    scores: CandidateScores

    def logit_gradients(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self.scores.logit_gradients()


class _EverythingScores:
    """Compute full softmax: log partition in a first pass over blocks of classes, gradients and update in a second."""

    def __init__(self, layer: ClassMatrix, query: Query, proposal: Everything, step: int) -> None:
        self.layer, self.query, self.step = layer, layer.held.targets(query), step
        self.num_targets_B = np.diff(query.target_indptr_B1)
        self.kernels = full_softmax_bf16 if proposal.products == "bf16" else full_softmax
        table, query = layer.table, self.query
        table.read(None, step)
        rows = query.num_rows
        self.padded_BD, self.panels = full_softmax.padded(query.hidden_BD)
        self.stored = self._room_for_logits() if proposal.stores_logits else (None, None)
        log_partition = self.kernels.log_partition(
            table.weights, table.bias, self.panels, layer.least_norm, *self.stored
        )
        top, total = layer.across.log_sum_exp(log_partition, np.ones_like(log_partition))
        log_partition = top + np.log(total)
        # Rows that only pad the batch get no gradient; neither do rows without a target.
        log_partition[rows:] = np.inf
        log_partition[:rows][self.num_targets_B == 0] = np.inf
        self.log_partition_B = log_partition
        self.groups = group_by_id(query.targets_P, table.shape[0])
        self.target_logit_P = np.empty(len(query.targets_P), dtype=np.float32)
        self.weight_B: np.ndarray | None = None
        table.score(self.groups, query.hidden_BD, query.row_P, self.target_logit_P, layer.least_norm)

    def _room_for_logits(self) -> tuple[np.ndarray, np.ndarray]:
        """Return ``stored_NB`` and ``shift_SB`` for the kernels, in memory that is kept from step to step."""
        take, classes, rows = self.layer.scratch.take, self.layer.table.shape[0], len(self.padded_BD)
        halves = take("logits of all classes", classes, rows // 2)  # two bfloat16 a float32; padded rows are even
        return halves.view(np.uint16), take("highest logits", full_softmax.num_shifts(classes), rows)

    @property
    def touched_U(self) -> np.ndarray:
        return np.arange(self.layer.held.lo, self.layer.held.hi, dtype=np.int32)

    def loss(
        self, loss: LossConfig, log_count_P: np.ndarray | None = None, weight_B: np.ndarray | None = None
    ) -> np.ndarray:
        """Return the cross-entropy of each row, (B,) float32. Every count is 1, so there is nothing to correct."""
        self.weight_B = weight_B
        rows, counts = self.query.num_rows, self.num_targets_B
        sums = np.bincount(self.query.row_P, weights=self.target_logit_P, minlength=rows)
        sums = self.layer.across.sum(sums.astype(np.float64))  # of no targets, bincount returns integers
        losses = self.log_partition_B[:rows] - (sums / np.maximum(counts, 1)).astype(np.float32)
        return np.where(counts > 0, losses, np.float32(0))

    def update(self) -> np.ndarray:
        return self._back(self.layer.table.update_all)[1]

    def gradients(self) -> tuple[RowGradient, np.ndarray]:
        return _for_all_holders(self.layer, *self._back(self.layer.table.gradients_of_all))

    def _back(self, act: Callable[..., Any]) -> tuple[Any, np.ndarray]:
        query = self.query
        rows = query.num_rows
        grad_hidden_BD = np.zeros_like(query.hidden_BD)
        order = self.groups[0]
        row_P = query.row_P[order]
        targets_of_row_P = self.num_targets_B[row_P]
        if self.weight_B is None:
            scale, log_partition_B = np.float32(1 / rows), self.log_partition_B
            share_P = (1 / (rows * targets_of_row_P)).astype(np.float32)
        else:  # weight * exp(logit - log partition), as one exponential
            scale, log_partition_B = np.float32(1), self.log_partition_B.copy()
            with np.errstate(divide="ignore"):  # a row of weight 0 has no gradient
                log_partition_B[:rows] -= np.log(self.weight_B)
            share_P = (self.weight_B[row_P] / targets_of_row_P).astype(np.float32)
        done = act(
            self.kernels.gradients_and_adam, self.step,
            self.padded_BD, self.panels, log_partition_B, scale,
            query.targets_P[order], row_P, share_P, grad_hidden_BD, self.layer.least_norm, *self.stored,
        )  # fmt: skip
        return done, self.layer.across.sum(grad_hidden_BD)


class _ListedScores(ABC):
    """Hold what is common to both kinds of listed candidates: the held part of a batch, and losses of its rows."""

    groups: tuple[np.ndarray, np.ndarray, np.ndarray]

    def __init__(self, layer: ClassMatrix, query: Query, proposal: Proposal, step: int) -> None:
        self.layer, self.step, self._whole_query = layer, step, query
        self.query, self.proposal = layer.held.targets(query), layer.held.candidates(proposal)

    @property
    def touched_U(self) -> np.ndarray:
        return self.layer.held.classes(self.groups[1])

    def _of_targets(self, log_count_P: np.ndarray) -> np.ndarray:
        return self.layer.held.of_targets(self._whole_query, log_count_P)

    def _losses(
        self, loss: LossConfig, target_P: np.ndarray, candidate_N: np.ndarray, begin_B: np.ndarray, end_B: np.ndarray,
        weight_B: np.ndarray | None,
    ) -> np.ndarray:  # fmt: skip
        """Return the losses, and put gradients in place of logits that are corrected and masked."""
        rows = NumbaRowLogits(
            target_indptr_B1=self.query.target_indptr_B1,
            target_P=target_P,
            begin_B=begin_B,
            end_B=end_B,
            candidate_N=candidate_N,
            num_targets_B=np.diff(self._whole_query.target_indptr_B1),
            weight_B=_equal_weights(self.query) if weight_B is None else weight_B,
            num_classes=self.layer.held.num_classes,
            across=self.layer.across,
        )
        return loss.apply(rows)

    def update(self) -> np.ndarray:
        return self._back(self.layer.table.update_groups)[1]

    def gradients(self) -> tuple[RowGradient, np.ndarray]:
        return _for_all_holders(self.layer, *self._back(self.layer.table.gradients_of_groups))

    @abstractmethod
    def _back(self, act: Callable[..., Any]) -> tuple[Any, np.ndarray]:
        """Give the gradients to ``act``; return what it returns, and the gradient of the hidden states (B, D)."""


class _PairScores(_ListedScores):
    """Score targets and each row's own candidates as (row, class) pairs."""

    def __init__(self, layer: ClassMatrix, query: Query, proposal: Proposal, step: int) -> None:
        super().__init__(layer, query, proposal, step)
        query, proposal = self.query, self.proposal
        assert proposal.indptr_B1 is not None
        self.begin_B, self.end_B = proposal.indptr_B1[:-1], proposal.indptr_B1[1:]
        candidate_row_N = np.repeat(np.arange(query.num_rows, dtype=np.int32), self.end_B - self.begin_B)
        self.row_N = np.concatenate([query.row_P, candidate_row_N])
        self.groups = group_by_id(np.concatenate([query.targets_P, proposal.ids_N]), layer.table.shape[0])
        self.logits_N = layer.scratch.take("logits", len(self.row_N))
        layer.table.score_for_update(self.groups, query.hidden_BD, self.row_N, self.logits_N, step, layer.least_norm)

    def loss(
        self, loss: LossConfig, log_count_P: np.ndarray | None = None, weight_B: np.ndarray | None = None
    ) -> np.ndarray:
        query, proposal = self.query, self.proposal
        negative_N = loss_kernels.magnitudes(self.logits_N) if loss.by_magnitude else None
        target, candidate = np.split(self.logits_N, [len(query.targets_P)])  # views
        if loss.corrects_candidates:
            candidate -= proposal.log_expected_count_N
        if log_count_P is not None:
            target -= self._of_targets(log_count_P)
        target_indptr_B1 = query.target_indptr_B1
        if loss.masks_hits_where(distinct=proposal.distinct):
            own = (self.begin_B, self.end_B)
            loss_kernels.mask_pairs(candidate, proposal.ids_N, *own, target_indptr_B1, query.targets_P)
        losses = self._losses(loss, target, candidate, self.begin_B, self.end_B, weight_B)
        if negative_N is not None:
            loss_kernels.restore_signs(self.logits_N, negative_N)
        return losses

    def logit_gradients(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        ids_N = np.concatenate([self.query.targets_P, self.proposal.ids_N])
        return self.row_N, self.layer.held.classes(ids_N), self.logits_N.copy()

    def _back(self, act: Callable[..., Any]) -> tuple[Any, np.ndarray]:
        query = self.query
        grad_hidden_BD = np.zeros_like(query.hidden_BD)
        done = act(
            self.groups, query.hidden_BD, self.row_N, self.logits_N, grad_hidden_BD, self.step,
            least_norm=self.layer.least_norm,
        )  # fmt: skip
        return done, self.layer.across.sum(grad_hidden_BD)


class _SharedScores(_ListedScores):
    """Score targets as (row, class) pairs, and the whole batch's candidates by dense products."""

    def __init__(self, layer: ClassMatrix, query: Query, proposal: Proposal, step: int) -> None:
        super().__init__(layer, query, proposal, step)
        query = self.query
        table, take, ids_M = layer.table, layer.scratch.take, self.proposal.ids_N
        rows = table.shape[0]
        # In the update, shared candidates are pairs with the sources B, B + 1, ..., the rows of their dense gradient.
        self.groups = group_by_id(np.concatenate([query.targets_P, ids_M]), rows)
        table.read_for_update(self.groups[1], step)
        self.target_P = np.empty(len(query.targets_P), dtype=np.float32)
        target_groups = group_by_id(query.targets_P, rows)
        table.score(target_groups, query.hidden_BD, query.row_P, self.target_P, layer.least_norm)

        self.hidden_BD = dense.padded_rows(query.hidden_BD)
        batch, dim = self.hidden_BD.shape
        shared = max(1, len(ids_M))  # products over no candidates at all would leave their results as they were
        candidates = dense.padded_size(shared)
        self.candidate_MD = take("candidates", candidates, dim)
        panels = take("panels", candidates // dense.COLUMNS, dim, dense.COLUMNS)
        dense.gather_candidates(table.rows(), ids_M, self.candidate_MD, panels, layer.least_norm)
        self.logits_BM = take("logits", batch, dense.pitch(shared))
        dense.logits(self.hidden_BD, panels, table.biases()[ids_M], self.logits_BM)

    def loss(
        self, loss: LossConfig, log_count_P: np.ndarray | None = None, weight_B: np.ndarray | None = None
    ) -> np.ndarray:
        query, proposal = self.query, self.proposal
        logits_BM = self.logits_BM[: query.num_rows]
        logits_N = logits_BM.reshape(-1)  # a view
        signed = (self.target_P, logits_N) if loss.by_magnitude else ()
        negative = [loss_kernels.magnitudes(logits) for logits in signed]
        log_count_M = proposal.log_expected_count_N if loss.corrects_candidates else None
        target_indptr_B1 = query.target_indptr_B1
        # To mask no hits, pretend that the rows have no targets.
        hits_B1 = (
            target_indptr_B1 if loss.masks_hits_where(distinct=proposal.distinct) else np.zeros_like(target_indptr_B1)
        )
        loss_kernels.correct_and_mask_shared(logits_BM, log_count_M, proposal.ids_N, hits_B1, query.targets_P)
        if log_count_P is not None:
            self.target_P -= self._of_targets(log_count_P)
        begin_B = np.arange(query.num_rows, dtype=np.int64) * logits_BM.shape[1]
        end_B = begin_B + len(proposal.ids_N)
        losses = self._losses(loss, self.target_P, logits_N, begin_B, end_B, weight_B)
        for grad, was_negative in zip(signed, negative, strict=True):
            loss_kernels.restore_signs(grad, was_negative)
        return losses

    def logit_gradients(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        query, ids_M = self.query, self.layer.held.classes(self.proposal.ids_N)
        rows, shared = query.num_rows, len(ids_M)
        return (
            np.concatenate([query.row_P, np.repeat(np.arange(rows, dtype=np.int32), shared)]),
            np.concatenate([self.layer.held.classes(query.targets_P), np.tile(ids_M, rows)]),
            np.concatenate([self.target_P, self.logits_BM[:rows, :shared].reshape(-1)]),
        )

    def _back(self, act: Callable[..., Any]) -> tuple[Any, np.ndarray]:
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
        done = act(
            self.groups,
            np.concatenate([query.hidden_BD, grad_MD[:shared, :dim]]),
            np.concatenate([query.row_P, np.arange(rows, rows + shared, dtype=np.int32)]),
            np.concatenate([self.target_P, np.ones(shared, dtype=np.float32)]),
            grad_hidden_BD,
            self.step,
            np.concatenate([self.target_P, bias_grad_M]),
            self.layer.least_norm,
        )
        return done, self.layer.across.sum(grad_hidden_BD)

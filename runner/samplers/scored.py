"""Score every class and draw by a weight of its logit: the softmax itself, or the quadratic kernel.

``exact`` is the oracle: it draws from q = p, the softmax over the classes that are not the row's targets (EXP in the
RF-softmax paper). A candidate's exp(logit) over its expected count is then the same number for every class. So the
sampled softmax's partition is exact and its gradient has no bias, however few the draws. ``quadratic`` (called
``sphere`` elsewhere) draws from q_i proportional to alpha o_i^2 + 1.

Both cost O(n d) a row. Dense products score blocks of classes for the whole batch, and each row carries its draws from
block to block: draw j moves into a block with probability (weight of the block) / (weight of all blocks so far). So one
pass is enough, and no matrix of all logits is kept.

The paper draws from the quadratic kernel by a tree, at O(d^2 log n) a draw; ``quadratic_tree`` does. Visiting a node
costs as much as scoring d / 2 classes, so for hundreds of draws of a row the dense pass is faster.

@inproceedings{blanc2018adaptive, title={Adaptive Sampled Softmax with Kernel Based Sampling}, author={Blanc, Guy and
Rendle, Steffen}, booktitle={ICML}, year={2018}}

Legend: B rows, D hidden size, N candidates of all rows, C classes of a block, M draws of a row or ids that a caller
asks for, P targets of all rows.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numba import njit, prange

from runner import rng
from runner.contracts import Proposal, Query, TrainingFacts
from runner.errors import Diverged
from runner.kernels.math import fast_exp
from runner.kernels.rows import FAST
from runner.options.fields import option
from runner.output.layer import Layer
from runner.samplers.base import Sampler, SamplerConfig

_CHUNK = 64  # classes whose weights are summed before a draw's class is looked for among them


@njit(cache=True, inline="always")
def _log_weight(logit, alpha):
    """Return the log of e^o if alpha = 0, else the log of alpha o^2 + 1."""
    x = np.float64(logit)
    return x if alpha == 0.0 else np.log(alpha * x * x + 1.0)


@njit(cache=True, fastmath=FAST, forceinline=True)  # else its bits depend on whether it was compiled or cached
def _weights(logits, alpha, top, out):
    """Set ``out`` to e^(o - top) if alpha = 0, else to alpha o^2 + 1; return its sum."""
    total = np.float32(0.0)
    if alpha == 0.0:
        for i in range(logits.shape[0]):
            out[i] = fast_exp(logits[i] - top)
            total += out[i]
    else:
        scale = np.float32(alpha)
        for i in range(logits.shape[0]):
            out[i] = scale * logits[i] * logits[i] + np.float32(1.0)
            total += out[i]
    return total


@njit(cache=True)
def _all_finite(logits):
    finite = True
    for i in range(logits.shape[0]):
        finite &= logits[i] < np.inf  # false for NaN; -inf marks a class that must not be drawn
    return finite


@njit(cache=True, parallel=True)
def _fold_block(logits_BC, lo, alpha, seed, step, log_total_B, ids_BM, logit_BM):
    """Add a block's weight to ``log_total_B``, and choose classes for the draws that move into it."""
    rows, width = logits_BC.shape
    draws = ids_BM.shape[1]
    chunks = (width + _CHUNK - 1) // _CHUNK
    for row in prange(rows):
        logits = logits_BC[row]
        if not _all_finite(logits):
            log_total_B[row] = np.nan
            continue
        top = np.float32(0.0)
        if alpha == 0.0:
            top = np.float32(-np.inf)
            for i in range(width):
                top = max(top, logits[i])
            if top == np.float32(-np.inf):
                continue
        weight = np.empty(width, dtype=np.float32)
        upto = np.empty(chunks, dtype=np.float64)
        block = 0.0
        for chunk in range(chunks):
            first, last = chunk * _CHUNK, min((chunk + 1) * _CHUNK, width)
            block += _weights(logits[first:last], alpha, top, weight[first:last])
            upto[chunk] = block
        log_block = np.log(block) + np.float64(top)
        before = log_total_B[row]
        larger = max(before, log_block)
        total = larger + np.log(np.exp(before - larger) + np.exp(log_block - larger))
        log_total_B[row] = total
        share = np.exp(log_block - total)
        key = rng.stream(seed, rng.SAMPLE, step, row)
        for draw in range(draws):
            # A uniform number below ``share`` moves the draw into this block; divided by ``share``, it chooses the
            # class.
            unit = rng.unit(rng.mix(rng.word(key, draw) ^ np.uint64(lo)))
            if unit >= share:
                continue
            goal = unit / share * block
            chunk = np.searchsorted(upto, goal, side="right")
            if chunk == chunks:
                chunk = chunks - 1
            place = chunk * _CHUNK
            left = goal - (upto[chunk - 1] if chunk > 0 else 0.0)
            last = min(place + _CHUNK, width) - 1
            while place < last and left >= weight[place]:
                left -= weight[place]
                place += 1
            while weight[place] == np.float32(0.0) and place > 0:  # rounding led past the last class with weight
                place -= 1
            ids_BM[row, draw] = lo + place
            logit_BM[row, draw] = logits[place]


@njit(cache=True, parallel=True)
def _log_counts(logit_BM, alpha, log_total_B, num_samples, out_BM):
    for row in prange(logit_BM.shape[0]):
        for i in range(logit_BM.shape[1]):
            out_BM[row, i] = _log_weight(logit_BM[row, i], alpha) - log_total_B[row] + np.log(num_samples)


@dataclass(frozen=True, kw_only=True)
class ScoredConfig(SamplerConfig):
    """Draw by the weights of all logits."""

    avoids_targets: ClassVar[bool] = False
    refuses_nan: ClassVar[bool] = True
    contract_cases: ClassVar[Mapping[str, Mapping[str, Any]]] = {"draws": {"num_samples": 40}}
    num_samples: int = option(100, "draws of a row, with replacement", low=1)

    @property
    def kernel_alpha(self) -> float:
        """Return the quadratic kernel's alpha, or 0 for the softmax's e^o."""
        return 0.0

    def build(self, *, layer: Layer, training: TrainingFacts, seed: int) -> Sampler:
        return Scored(self, layer, seed)


@dataclass(frozen=True, kw_only=True)
class ExactConfig(ScoredConfig):
    """Draw from the softmax over the classes that are not the row's targets.

    A row whose targets are all classes draws from the softmax over them.
    """

    avoids_targets: ClassVar[bool] = True

    @property
    def can_draw_every_class(self) -> bool:
        return False


@dataclass(frozen=True, kw_only=True)
class QuadraticConfig(ScoredConfig):
    """Draw with q_i proportional to alpha o_i^2 + 1.

    The kernel was made for ``loss=absolute_softmax``, which favours large |o| too.
    """

    by_magnitude: ClassVar[bool] = True
    contract_cases: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "steep": {"num_samples": 40},
        "flat": {"num_samples": 40, "alpha": 0.5},
    }
    alpha: float = option(100.0, "weight of the squared logit", low=1e-12, high=1e12)

    @property
    def kernel_alpha(self) -> float:
        return self.alpha


class Scored(Sampler):
    """Score all classes and draw by the weight of each logit. Raise Diverged if a logit is not finite."""

    def __init__(self, config: ScoredConfig, layer: Layer, seed: int) -> None:
        self.config = config
        self.layer = layer
        self.seed = seed
        self._latest: tuple[Proposal, np.ndarray] | None = None  # with the targets' log expected counts

    @property
    def avoids_targets(self) -> bool:
        return self.config.avoids_targets

    def _blocks(self, query: Query, step: int) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the first class and the logits (B, C) of every block; targets to avoid have logit -inf."""
        self.layer.read(None, step)
        rows = query.num_rows
        has_others = np.diff(query.target_indptr_B1) < self.layer.num_classes
        held = np.empty(0, dtype=np.float32)
        for lo, hi in self.layer.blocks(rows):
            if len(held) < rows * (hi - lo):
                held = np.empty(rows * (hi - lo), dtype=np.float32)
            logits_BC = held[: rows * (hi - lo)].reshape(rows, hi - lo)
            self.layer.block_logits(query.hidden_BD, lo, hi, logits_BC)
            if self.config.avoids_targets:
                here = (query.targets_P >= lo) & (query.targets_P < hi) & has_others[query.row_P]
                logits_BC[query.row_P[here], query.targets_P[here] - lo] = -np.inf
            yield lo, logits_BC

    def _draw(self, query: Query, step: int, draws: int) -> tuple[np.ndarray, ...]:
        """Return ids and their logits (B, M each), the targets' logits (P,), and the log of the sum of weights (B,)."""
        rows = query.num_rows
        target_logit_P = np.empty(len(query.targets_P), dtype=np.float32)
        ids_BM = np.zeros((rows, draws), dtype=np.int32)
        logit_BM = np.zeros((rows, draws), dtype=np.float32)
        log_total_B = np.full(rows, -np.inf)
        for lo, logits_BC in self._blocks(query, step):
            _fold_block(logits_BC, lo, self.config.kernel_alpha, self.seed, step, log_total_B, ids_BM, logit_BM)
            here = (query.targets_P >= lo) & (query.targets_P < lo + logits_BC.shape[1])
            target_logit_P[here] = logits_BC[query.row_P[here], query.targets_P[here] - lo]
        if not np.isfinite(log_total_B).all():
            raise Diverged(f"sampler={self.config.name}: a logit is not a finite number; try a smaller optimizer.lr")
        return ids_BM, logit_BM, target_logit_P, log_total_B

    def _log_count(self, logit_BM: np.ndarray, log_total_B: np.ndarray) -> np.ndarray:
        out_BM = np.empty(logit_BM.shape, dtype=np.float32)
        _log_counts(logit_BM, self.config.kernel_alpha, log_total_B, self.config.num_samples, out_BM)
        return out_BM

    def sample(self, query: Query, step: int) -> Proposal:
        draws = self.config.num_samples
        ids_BM, logit_BM, target_logit_P, log_total_B = self._draw(query, step, draws)
        proposal = Proposal(
            ids_N=ids_BM.reshape(-1),
            log_expected_count_N=self._log_count(logit_BM, log_total_B).reshape(-1),
            indptr_B1=np.arange(query.num_rows + 1, dtype=np.int64) * draws,
            distinct=False,
        )
        log_count_P = self._log_count(target_logit_P[:, None], log_total_B[query.row_P])[:, 0]
        self._latest = proposal, np.ascontiguousarray(log_count_P)
        return proposal

    def log_expected_count_of_targets(self, query: Query, proposal: Any, step: int) -> np.ndarray:
        """Return what the pass that made the proposal found; a second pass over all classes would cost as much."""
        if self._latest is not None and self._latest[0] is proposal:
            return self._latest[1]
        return super().log_expected_count_of_targets(query, proposal, step)

    def log_expected_count(self, query: Query, ids_M: np.ndarray, step: int) -> np.ndarray:
        *_, log_total_B = self._draw(query, step, 0)
        logit_BM = np.empty((query.num_rows, len(ids_M)), dtype=np.float32)
        for lo, logits_BC in self._blocks(query, step):
            here = (ids_M >= lo) & (ids_M < lo + logits_BC.shape[1])
            logit_BM[:, here] = logits_BC[:, ids_M[here] - lo]
        return self._log_count(logit_BM, log_total_B)

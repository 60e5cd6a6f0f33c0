"""Loss kernels over targets and candidates of each row: logits in, gradients out, in place.

Legend: B rows, P targets of all rows, N candidates of all rows. Logits come corrected by the caller; a masked
candidate has logit -inf and gets gradient 0. The loss of a row is averaged over its targets (uniform target
distribution); gradients carry the factor 1 / B of the batch mean. Returned: (B,) float32 losses.
"""

import numpy as np
from numba import njit, prange

from runner.kernels.math import fast_exp
from runner.kernels.rows import FAST

_LANES = 32


@njit(cache=True)
def _largest(values, begin, end):
    """Maximum of values[begin:end], lane by lane so that the compiler needs no licence to ignore NaN."""
    top_W = np.full(_LANES, -np.inf, dtype=np.float32)
    whole = begin + (end - begin) // _LANES * _LANES
    for i in range(begin, whole, _LANES):
        for lane in range(_LANES):
            top_W[lane] = max(top_W[lane], values[i + lane])
    top = np.float32(-np.inf)
    for lane in range(_LANES):
        top = max(top, top_W[lane])
    for i in range(whole, end):
        top = max(top, values[i])
    return top


# Loops over contiguous slices, apart from the parallel loop: only so are they compiled to vector instructions.


@njit(cache=True, fastmath=FAST)
def _exponentials(values, top):
    """In place: exp(value - top); returns their sum."""
    total = np.float32(0.0)
    for i in range(values.shape[0]):
        values[i] = fast_exp(values[i] - top)
        total += values[i]
    return total


@njit(cache=True, fastmath=FAST)
def _scale(values, factor):
    for i in range(values.shape[0]):
        values[i] *= factor


@njit(cache=True, parallel=True, fastmath=FAST)
def softmax_loss(target_indptr, target_P, begin_B, end_B, candidate_N):
    """-mean over targets of log softmax, over the row's active set {targets} + {candidates}."""
    rows = target_indptr.shape[0] - 1
    losses = np.zeros(rows, dtype=np.float32)
    scale = np.float32(1.0 / rows)
    for row in prange(rows):
        t0, t1 = target_indptr[row], target_indptr[row + 1]
        c0, c1 = begin_B[row], end_B[row]
        if t0 == t1:  # no target: no loss, no gradient
            for i in range(c0, c1):
                candidate_N[i] = np.float32(0.0)
            continue
        top = np.float32(-np.inf)
        mean = np.float32(0.0)
        share = np.float32(1.0) / np.float32(t1 - t0)
        for i in range(t0, t1):
            top = max(top, target_P[i])
            mean += target_P[i] * share
        top = max(top, _largest(candidate_N, c0, c1))
        total = np.float32(0.0)
        for i in range(t0, t1):
            target_P[i] = fast_exp(target_P[i] - top)
            total += target_P[i]
        total += _exponentials(candidate_N[c0:c1], top)
        losses[row] = top + np.log(total) - mean
        inverse = scale / total
        for i in range(t0, t1):
            target_P[i] = target_P[i] * inverse - scale * share
        _scale(candidate_N[c0:c1], inverse)
    return losses


@njit(cache=True, parallel=True, fastmath=FAST)
def logistic_loss(target_indptr, target_P, begin_B, end_B, candidate_N):
    """mean over targets of softplus(-logit) + sum over candidates of softplus(logit) (NCE's binary problems)."""
    rows = target_indptr.shape[0] - 1
    losses = np.zeros(rows, dtype=np.float32)
    scale = np.float32(1.0 / rows)
    one = np.float32(1.0)
    for row in prange(rows):
        t0, t1 = target_indptr[row], target_indptr[row + 1]
        loss = np.float32(0.0)
        share = one / np.float32(max(t1 - t0, 1))
        for i in range(t0, t1):
            x = target_P[i]
            small = fast_exp(-abs(x))
            loss += share * (max(-x, np.float32(0.0)) + np.log(one + small))
            sigmoid_of_minus = small / (one + small) if x > 0 else one / (one + small)
            target_P[i] = -scale * share * sigmoid_of_minus
        for i in range(begin_B[row], end_B[row]):
            x = candidate_N[i]
            if x == np.float32(-np.inf) or t0 == t1:
                candidate_N[i] = np.float32(0.0)
                continue
            small = fast_exp(-abs(x))
            loss += max(x, np.float32(0.0)) + np.log(one + small)
            sigmoid = one / (one + small) if x > 0 else small / (one + small)
            candidate_N[i] = scale * sigmoid
        losses[row] = loss
    return losses


@njit(cache=True, parallel=True)
def correct_and_mask_shared(logits_BM, log_count_M, ids_M, target_indptr, targets_P):
    """In place, for shared ascending ids: subtract log counts (None: do not) and mask accidental hits with -inf.

    Rows of ``logits_BM`` may be longer than the ids.
    """
    for row in prange(logits_BM.shape[0]):
        if log_count_M is not None:
            for i in range(ids_M.shape[0]):
                logits_BM[row, i] -= log_count_M[i]
        for t in range(target_indptr[row], target_indptr[row + 1]):
            i = np.searchsorted(ids_M, targets_P[t])
            while i < ids_M.shape[0] and ids_M[i] == targets_P[t]:
                logits_BM[row, i] = np.float32(-np.inf)
                i += 1


@njit(cache=True, parallel=True)
def mask_pairs(logits_N, ids_N, begin_B, end_B, target_indptr, targets_P):
    """In place, for each row's own candidates: mask accidental hits with -inf."""
    for row in prange(begin_B.shape[0]):
        for t in range(target_indptr[row], target_indptr[row + 1]):
            target = targets_P[t]
            for i in range(begin_B[row], end_B[row]):
                if ids_N[i] == target:
                    logits_N[i] = np.float32(-np.inf)

"""These loss kernels replace the logits of each row's targets and candidates by their gradients, in place.

Legend: B rows, P targets of all rows, N candidates of all rows, M candidates that all rows share, W lanes.
Row b has the targets target_indptr[b] to target_indptr[b + 1] - 1, and the candidates begin[b] to end[b] - 1.
The caller has already corrected the logits; a masked candidate has logit -inf and gets gradient 0. A row without
targets has loss 0 and no gradient. The loss of a row is averaged over its targets (uniform target distribution).
Gradients are multiplied by the row's factor ``weight_B`` (float32, 1 / B for a batch mean). Each loss kernel returns
the losses, (B,) float32, without that factor.
"""

import numpy as np
from numba import njit, prange

from runner.kernels.groups import PRANGE, place_of
from runner.kernels.math import fast_exp
from runner.kernels.rows import FAST

_LANES = 32


@njit(cache=True)
def _largest(values, begin, end):
    """Return the maximum of values[begin:end].

    It is taken lane by lane, so that the compiler can vectorise it without permission to ignore NaN.
    """
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


# These loops over contiguous slices are functions outside the parallel loop; only then are they vectorised.


@njit(cache=True, fastmath=FAST)
def _exponentials(values, top):
    """Replace each value by exp(value - top), in place, and return the sum."""
    total = np.float32(0.0)
    for i in range(values.shape[0]):
        values[i] = fast_exp(values[i] - top)
        total += values[i]
    return total


@njit(cache=True, fastmath=FAST)
def _scale(values, factor):
    for i in range(values.shape[0]):
        values[i] *= factor


@njit(cache=True, parallel=PRANGE, fastmath=FAST)
def softmax_loss(target_indptr, target_P, begin_B, end_B, candidate_N, weight_B):
    """Return -mean over targets of log softmax, over the row's active set {targets} + {candidates}."""
    rows = target_indptr.shape[0] - 1
    losses = np.zeros(rows, dtype=np.float32)
    for row in prange(rows):
        scale = weight_B[row]
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
def partition_loss(target_indptr, target_P, begin_B, end_B, candidate_N, weight_B):
    """Return log(sum over candidates of exp(logit)) - (mean over targets of the logit); targets are not in the sum.

    A row whose sum is empty has loss 0 and no gradient, like a row without targets.
    """
    rows = target_indptr.shape[0] - 1
    losses = np.zeros(rows, dtype=np.float32)
    for row in prange(rows):
        scale = weight_B[row]
        t0, t1 = target_indptr[row], target_indptr[row + 1]
        c0, c1 = begin_B[row], end_B[row]
        top = _largest(candidate_N, c0, c1)
        if t0 == t1 or top == np.float32(-np.inf):
            target_P[t0:t1] = np.float32(0.0)
            candidate_N[c0:c1] = np.float32(0.0)
            continue
        mean = np.float32(0.0)
        share = np.float32(1.0) / np.float32(t1 - t0)
        for i in range(t0, t1):
            mean += target_P[i] * share
            target_P[i] = -scale * share
        total = _exponentials(candidate_N[c0:c1], top)
        losses[row] = top + np.log(total) - mean
        _scale(candidate_N[c0:c1], scale / total)
    return losses


@njit(cache=True, parallel=PRANGE, fastmath=FAST)
def logistic_loss(target_indptr, target_P, begin_B, end_B, candidate_N, weight_B, power_B):
    """Return mean over targets of power * softplus(-logit) + sum over candidates of softplus(logit).

    This is the loss of one binary problem per class; ``power_B`` is the factor of a row's targets.
    """
    rows = target_indptr.shape[0] - 1
    losses = np.zeros(rows, dtype=np.float32)
    one = np.float32(1.0)
    for row in prange(rows):
        scale = weight_B[row]
        t0, t1 = target_indptr[row], target_indptr[row + 1]
        loss = np.float32(0.0)
        share = power_B[row] / np.float32(max(t1 - t0, 1))
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


@njit(cache=True, parallel=PRANGE)
def count_unmasked(begin_B, end_B, candidate_N):
    """Return the number of candidates of each row whose logit is not -inf, (B,) int64."""
    count_B = np.zeros(begin_B.shape[0], dtype=np.int64)
    for row in prange(begin_B.shape[0]):
        count = 0
        for i in range(begin_B[row], end_B[row]):
            count += 1 if candidate_N[i] > np.float32(-np.inf) else 0
        count_B[row] = count
    return count_B


@njit(cache=True, fastmath=FAST)
def _odds(values, factor):
    """Return the sums of -log(1 - p) and of p / (1 - p) for p = factor * value; no p may be above a half."""
    loss, odds = np.float32(0.0), np.float32(0.0)
    one = np.float32(1.0)
    for i in range(values.shape[0]):
        p = factor * values[i]
        loss -= np.log1p(-p)
        odds += p / (one - p)
    return loss, odds


@njit(cache=True, fastmath=FAST)
def _blackout_gradients(values, of_others, left, common, scale):
    """Replace values by scale * (p' common + p / (1 - p)), in place, for p' = of_others * value and p = left * p'."""
    one = np.float32(1.0)
    for i in range(values.shape[0]):
        among_others = of_others * values[i]
        p = left * among_others
        values[i] = scale * (among_others * common + p / (one - p))


@njit(cache=True, parallel=True, fastmath=FAST)
def blackout_loss(target_indptr, target_P, begin_B, end_B, candidate_N, weight_B):
    """Return -mean over targets of log p - sum over candidates of log(1 - p).

    p is the softmax over {targets} + {candidates}. Let r_c = p_c / (1 - p_c), and R their sum over candidates. The
    gradient of logit i is p_i (1 - R), plus r_i for a candidate, or minus the target's share for a target.

    Only the best candidate can have p above a half, where 1 - p and r lose all their digits. Therefore it is left out
    of the softmax (p' below is the softmax over all others) and compared with their sum: p* = sigmoid(its logit -
    logsumexp of the others), p_i = (1 - p*) p'_i. With R' the sum of r without r*, the gradients are

        for the best candidate   p* (2 - R')
        for any other i          p'_i ((1 - p*)(1 - R') - p*), plus r_i (candidate) or minus its share (target).
    """
    rows = target_indptr.shape[0] - 1
    losses = np.zeros(rows, dtype=np.float32)
    zero, one, two = np.float32(0.0), np.float32(1.0), np.float32(2.0)
    for row in prange(rows):
        scale = weight_B[row]
        t0, t1 = target_indptr[row], target_indptr[row + 1]
        c0, c1 = begin_B[row], end_B[row]
        if t0 == t1:  # no target: no loss, no gradient
            candidate_N[c0:c1] = zero
            continue
        highest = _largest(candidate_N, c0, c1)
        best = c0
        while best < c1 and candidate_N[best] < highest:
            best += 1
        if best < c1:
            candidate_N[best] = np.float32(-np.inf)
        top = _largest(candidate_N, c0, c1)
        mean = zero
        share = one / np.float32(t1 - t0)
        for i in range(t0, t1):
            top = max(top, target_P[i])
            mean += target_P[i] * share
        total = zero
        for i in range(t0, t1):
            target_P[i] = fast_exp(target_P[i] - top)
            total += target_P[i]
        total += _exponentials(candidate_N[c0:c1], top)
        of_others = one / total
        log_others = top + np.log(total)

        ahead = highest - log_others  # -inf where there is no candidate
        small = fast_exp(-abs(ahead))
        softplus = max(ahead, zero) + np.log1p(small)
        p_best = one / (one + small) if ahead > 0 else small / (one + small)
        left = small / (one + small) if ahead > 0 else one / (one + small)
        loss, odds = _odds(candidate_N[c0:c1], left * of_others)
        losses[row] = log_others - mean + two * softplus + loss

        common = left * (one - odds) - p_best
        for i in range(t0, t1):
            target_P[i] = scale * (target_P[i] * of_others * common - share)
        _blackout_gradients(candidate_N[c0:c1], of_others, left, common, scale)
        if best < c1:
            candidate_N[best] = scale * p_best * (two - odds)
    return losses


@njit(cache=True, parallel=PRANGE)
def magnitudes(values_N):
    """Replace each value by its absolute value, in place; return which were negative, (N,) bool."""
    negative_N = np.empty(values_N.shape[0], dtype=np.bool_)
    for i in prange(values_N.shape[0]):
        negative_N[i] = values_N[i] < 0
        values_N[i] = abs(values_N[i])
    return negative_N


@njit(cache=True, parallel=PRANGE)
def restore_signs(grad_N, negative_N):
    """Turn gradients of magnitudes into gradients of the values that ``magnitudes`` was given, in place."""
    for i in prange(grad_N.shape[0]):
        grad_N[i] = -grad_N[i] if negative_N[i] else grad_N[i]


@njit(cache=True, parallel=PRANGE)
def correct_and_mask_shared(logits_BM, log_count_M, ids_M, target_indptr, targets_P):
    """Subtract log counts and mask accidental hits with -inf, in place, for shared ids in ascending order.

    ``log_count_M`` None subtracts nothing. Rows of ``logits_BM`` may be longer than the ids.
    """
    for row in prange(logits_BM.shape[0]):
        if log_count_M is not None:
            for i in range(ids_M.shape[0]):
                logits_BM[row, i] -= log_count_M[i]
        for t in range(target_indptr[row], target_indptr[row + 1]):
            i = place_of(targets_P[t], ids_M, 0, ids_M.shape[0])
            while i < ids_M.shape[0] and ids_M[i] == targets_P[t]:
                logits_BM[row, i] = np.float32(-np.inf)
                i += 1


@njit(cache=True, parallel=PRANGE)
def mask_pairs(logits_N, ids_N, begin_B, end_B, target_indptr, targets_P):
    """Mask accidental hits with -inf, in place, where each row has candidates of its own."""
    for row in prange(begin_B.shape[0]):
        for t in range(target_indptr[row], target_indptr[row + 1]):
            target = targets_P[t]
            for i in range(begin_B[row], end_B[row]):
                if ids_N[i] == target:
                    logits_N[i] = np.float32(-np.inf)

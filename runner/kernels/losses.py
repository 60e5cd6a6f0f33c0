"""Take statistics of each row's logits, and replace logits by gradients once the statistics are those of all classes.

The classes of a row may be held in several places, so a loss never goes from logits to gradients in one kernel: between
two kernels, statistics are combined over all places (``output.across``).

Legend: B rows, P targets of all rows, N candidates of all rows, M candidates that all rows share, W lanes.
Row b has the targets target_indptr[b] to target_indptr[b + 1] - 1, and the candidates begin[b] to end[b] - 1, as far as
they are held here; ``num_targets_B`` counts the row's targets wherever they are. The caller has already corrected the
logits; a masked candidate has logit -inf and gets gradient 0. A row without targets has loss 0 and no gradient. The
loss of a row is averaged over its targets (uniform target distribution). Gradients are multiplied by the row's factor
``weight_B`` (float32, 1 / B for a batch mean). Losses are (B,) float32, without that factor.
"""

import numpy as np
from numba import njit, prange

from runner.kernels.groups import PRANGE, place_of
from runner.kernels.math import fast_exp, fast_log1p
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


# These loops over contiguous slices are functions outside the parallel loop; only then are they vectorised. Where they
# divide, the error model of NumPy keeps them so: Python's asks at each division whether it is by zero.


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


# ---------------------------------------------------------------- softmax, and an estimate of its partition


@njit(cache=True, parallel=PRANGE, fastmath=FAST)
def softmax_statistics(num_targets_B, target_indptr, target_P, begin_B, end_B, candidate_N, adds_targets):
    """Return each row's highest logit, sum of exp(logit - highest) and mean target logit; leave the exponentials.

    ``adds_targets``: targets are part of the sum, not candidates alone; if not, their logits stay. The mean divides by
    the number of all targets, so the means of several places add up.
    """
    rows = target_indptr.shape[0] - 1
    top_B = np.full(rows, -np.inf, dtype=np.float32)
    sum_B = np.zeros(rows, dtype=np.float32)
    mean_B = np.zeros(rows, dtype=np.float32)
    for row in prange(rows):
        if num_targets_B[row] == 0:
            continue
        t0, t1 = target_indptr[row], target_indptr[row + 1]
        c0, c1 = begin_B[row], end_B[row]
        top = np.float32(-np.inf)
        mean = np.float32(0.0)
        share = np.float32(1.0) / np.float32(num_targets_B[row])
        for i in range(t0, t1):
            if adds_targets:
                top = max(top, target_P[i])
            mean += target_P[i] * share
        top = max(top, _largest(candidate_N, c0, c1))
        mean_B[row] = mean
        if top == np.float32(-np.inf):  # nothing that counts is held here; other places may hold some
            candidate_N[c0:c1] = np.float32(0.0)
            continue
        total = np.float32(0.0)
        if adds_targets:
            for i in range(t0, t1):
                target_P[i] = fast_exp(target_P[i] - top)
                total += target_P[i]
        total += _exponentials(candidate_N[c0:c1], top)
        top_B[row], sum_B[row] = top, total
    return top_B, sum_B, mean_B


@njit(cache=True, parallel=PRANGE, fastmath=FAST)
def softmax_gradients(
    num_targets_B, target_indptr, target_P, begin_B, end_B, candidate_N, weight_B, adds_targets,
    top_B, all_top_B, all_sum_B, all_mean_B,
):  # fmt: skip
    """Return the loss of each row, log sum - mean target logit; turn what ``softmax_statistics`` left into gradients.

    ``top_B``: the highest logits held here. ``all_...``: statistics over every place. A row whose sum is empty has loss
    0 and no gradient, like a row without targets.
    """
    rows = target_indptr.shape[0] - 1
    losses = np.zeros(rows, dtype=np.float32)
    for row in prange(rows):
        scale = weight_B[row]
        t0, t1 = target_indptr[row], target_indptr[row + 1]
        c0, c1 = begin_B[row], end_B[row]
        if num_targets_B[row] == 0 or all_top_B[row] == np.float32(-np.inf):
            target_P[t0:t1] = np.float32(0.0)
            candidate_N[c0:c1] = np.float32(0.0)
            continue
        total = all_sum_B[row]
        losses[row] = all_top_B[row] + np.log(total) - all_mean_B[row]
        share = np.float32(1.0) / np.float32(num_targets_B[row])
        inverse = scale / total
        if top_B[row] != all_top_B[row]:
            inverse *= fast_exp(top_B[row] - all_top_B[row])
        for i in range(t0, t1):
            target_P[i] = target_P[i] * inverse - scale * share if adds_targets else -scale * share
        _scale(candidate_N[c0:c1], inverse)
    return losses


# ---------------------------------------------------------------- a binary problem for each target and candidate


@njit(cache=True, fastmath=FAST, error_model="numpy")
def _binary(values, scale):
    """Replace each value by scale * sigmoid(value), in place, and return the sum of softplus(value); -inf counts 0."""
    zero, one = np.float32(0.0), np.float32(1.0)
    total = zero
    for i in range(values.shape[0]):
        x = values[i]
        small = fast_exp(-abs(x))
        total += max(x, zero) + fast_log1p(small)
        values[i] = scale * (one if x > zero else small) / (one + small)
    return total


@njit(cache=True, parallel=PRANGE, fastmath=FAST)
def logistic_loss(num_targets_B, target_indptr, target_P, begin_B, end_B, candidate_N, weight_B, power_B):
    """Return mean over targets of power * softplus(-logit) + sum over candidates of softplus(logit); leave gradients.

    This is the loss of one binary problem per class; ``power_B`` is the factor of a row's targets. Each gradient is of
    its own logit alone, and the losses of several places add up.
    """
    rows = target_indptr.shape[0] - 1
    losses = np.zeros(rows, dtype=np.float32)
    one = np.float32(1.0)
    for row in prange(rows):
        scale = weight_B[row]
        t0, t1 = target_indptr[row], target_indptr[row + 1]
        loss = np.float32(0.0)
        counts = num_targets_B[row] > 0
        share = power_B[row] / np.float32(max(num_targets_B[row], 1))
        for i in range(t0, t1):
            x = target_P[i]
            small = fast_exp(-abs(x))
            loss += share * (max(-x, np.float32(0.0)) + np.log(one + small))
            sigmoid_of_minus = small / (one + small) if x > 0 else one / (one + small)
            target_P[i] = -scale * share * sigmoid_of_minus
        if counts:
            loss += _binary(candidate_N[begin_B[row] : end_B[row]], scale)
        else:
            candidate_N[begin_B[row] : end_B[row]] = np.float32(0.0)
        losses[row] = loss
    return losses


@njit(cache=True)
def _count_unmasked(values):
    """Return how many values are not -inf, in numbers as wide as the values, so that the compiler vectorises it."""
    count = np.int32(0)
    for i in range(values.shape[0]):
        count += np.int32(1) if values[i] > np.float32(-np.inf) else np.int32(0)
    return count


@njit(cache=True, parallel=PRANGE)
def count_unmasked(begin_B, end_B, candidate_N):
    """Return the number of candidates of each row whose logit is not -inf, (B,) int64."""
    count_B = np.zeros(begin_B.shape[0], dtype=np.int64)
    for row in prange(begin_B.shape[0]):
        count_B[row] = _count_unmasked(candidate_N[begin_B[row] : end_B[row]])
    return count_B


@njit(cache=True, fastmath=FAST, error_model="numpy")
def _odds(values, factor):
    """Return the sums of -log(1 - p) and of p / (1 - p) for p = factor * value; no p may be above a half."""
    loss, odds = np.float32(0.0), np.float32(0.0)
    one = np.float32(1.0)
    for i in range(values.shape[0]):
        p = factor * values[i]
        loss -= fast_log1p(-p)
        odds += p / (one - p)
    return loss, odds


@njit(cache=True, fastmath=FAST, error_model="numpy")
def _blackout_gradients(values, of_others, left, common, scale):
    """Replace values by scale * (p' common + p / (1 - p)), in place, for p' = of_others * value and p = left * p'."""
    one = np.float32(1.0)
    for i in range(values.shape[0]):
        among_others = of_others * values[i]
        p = left * among_others
        values[i] = scale * (among_others * common + p / (one - p))


# BlackOut's loss is -mean over targets of log p - sum over candidates of log(1 - p). p is the softmax over {targets} +
# {candidates}. Let r_c = p_c / (1 - p_c), and R their sum over candidates. The gradient of logit i is p_i (1 - R), plus
# r_i for a candidate, or minus the target's share for a target.
#
# Only the best candidate can have p above a half, where 1 - p and r lose all their digits. Therefore it is left out of
# the softmax (p' below is the softmax over all others) and compared with their sum: p* = sigmoid(its logit - logsumexp
# of the others), p_i = (1 - p*) p'_i. With R' the sum of r without r*, the gradients are
#
#     for the best candidate   p* (2 - R')
#     for any other i          p'_i ((1 - p*)(1 - R') - p*), plus r_i (candidate) or minus its share (target).


@njit(cache=True, parallel=PRANGE)
def highest_candidates(begin_B, end_B, candidate_N):
    """Return the highest logit of each row's candidates, (B,) float32; -inf without any."""
    highest_B = np.empty(begin_B.shape[0], dtype=np.float32)
    for row in prange(begin_B.shape[0]):
        highest_B[row] = _largest(candidate_N, begin_B[row], end_B[row])
    return highest_B


@njit(cache=True, parallel=PRANGE)
def leave_best_out(begin_B, end_B, candidate_N, highest_B, is_here_B):
    """Mask the first candidate of each row with the highest logit, where it is held here; return its place, else -1."""
    best_B = np.full(begin_B.shape[0], -1, dtype=np.int64)
    for row in prange(begin_B.shape[0]):
        best = begin_B[row]
        while best < end_B[row] and candidate_N[best] < highest_B[row]:
            best += 1
        if is_here_B[row] and best < end_B[row]:
            best_B[row] = best
            candidate_N[best] = np.float32(-np.inf)
    return best_B


@njit(cache=True, inline="always", fastmath=FAST)
def _against_others(highest, log_others):
    """Return p* of the best candidate, 1 - p*, and softplus(its logit - logsumexp of the others)."""
    zero, one = np.float32(0.0), np.float32(1.0)
    ahead = highest - log_others  # -inf where there is no candidate
    small = fast_exp(-abs(ahead))
    softplus = max(ahead, zero) + np.log1p(small)
    p_best = one / (one + small) if ahead > 0 else small / (one + small)
    left = small / (one + small) if ahead > 0 else one / (one + small)
    return p_best, left, softplus


@njit(cache=True, inline="always", fastmath=FAST)
def _of_others(top, all_top, all_sum):
    """Return the factor that turns exponentials relative to ``top`` into p'."""
    of_others = np.float32(1.0) / all_sum
    return of_others if top == all_top else of_others * fast_exp(top - all_top)


@njit(cache=True, parallel=PRANGE, fastmath=FAST)
def blackout_sums(num_targets_B, begin_B, end_B, candidate_N, highest_B, top_B, all_top_B, all_sum_B):
    """Return each row's sums of -log(1 - p) and of r over the candidates held here, the best one left out."""
    loss_B = np.zeros(begin_B.shape[0], dtype=np.float32)
    odds_B = np.zeros(begin_B.shape[0], dtype=np.float32)
    for row in prange(begin_B.shape[0]):
        if num_targets_B[row] == 0:
            continue
        _, left, _ = _against_others(highest_B[row], all_top_B[row] + np.log(all_sum_B[row]))
        of_others = _of_others(top_B[row], all_top_B[row], all_sum_B[row])
        loss_B[row], odds_B[row] = _odds(candidate_N[begin_B[row] : end_B[row]], left * of_others)
    return loss_B, odds_B


@njit(cache=True, parallel=PRANGE, fastmath=FAST)
def blackout_gradients(
    num_targets_B, target_indptr, target_P, begin_B, end_B, candidate_N, weight_B,
    best_B, highest_B, top_B, all_top_B, all_sum_B, all_mean_B, all_loss_B, all_odds_B,
):  # fmt: skip
    """Return the losses, and turn what ``softmax_statistics`` left into gradients; ``all_...`` are over every place."""
    rows = target_indptr.shape[0] - 1
    losses = np.zeros(rows, dtype=np.float32)
    one, two = np.float32(1.0), np.float32(2.0)
    for row in prange(rows):
        scale = weight_B[row]
        t0, t1 = target_indptr[row], target_indptr[row + 1]
        c0, c1 = begin_B[row], end_B[row]
        if num_targets_B[row] == 0:  # no target: no loss, no gradient
            candidate_N[c0:c1] = np.float32(0.0)
            continue
        log_others = all_top_B[row] + np.log(all_sum_B[row])
        of_others = _of_others(top_B[row], all_top_B[row], all_sum_B[row])
        p_best, left, softplus = _against_others(highest_B[row], log_others)
        odds = all_odds_B[row]
        losses[row] = log_others - all_mean_B[row] + two * softplus + all_loss_B[row]
        share = one / np.float32(num_targets_B[row])
        common = left * (one - odds) - p_best
        for i in range(t0, t1):
            target_P[i] = scale * (target_P[i] * of_others * common - share)
        _blackout_gradients(candidate_N[c0:c1], of_others, left, common, scale)
        if best_B[row] >= 0:
            candidate_N[best_B[row]] = scale * p_best * (two - odds)
    return losses


# ---------------------------------------------------------------- before and after a loss


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

"""Kernels over the rows of a large matrix: catch-up, scores, gradient and Adam, one pass over each touched row.

Legend: R rows of the matrix, D columns, N (row, source) pairs, U distinct rows, B sources (batch rows),
G gaps (missed steps), S last steps.
All loops are split into a fixed number of parts, so results have the same bits for any number of threads.

Rows come in ascending order but with gaps, which hardware prefetchers do not follow: each kernel asks for the rows
of a later group while it works on the present one.

A bias is a one-column matrix with moments of its own; its arrays have no rows where a table has no bias.

Where a kernel takes ``least_norm``, None means rows as they are; a number, that each row w stands for its direction
w / max(|w|, least_norm): scores are the direction's, gradients given are with respect to it and are carried back to the
row, and biases stand still. None and a number are two types, so each case is compiled by itself and plain rows pay
nothing.
"""

import numpy as np
from numba import njit, prange

from runner.kernels.groups import CHUNKS
from runner.kernels.memory import prefetch_row

# Sums may be reordered by the compiler (it does so the same way each time); infinities keep their meaning.
FAST = {"reassoc", "contract", "arcp", "nsz"}
_AHEAD = 2  # groups between asking for a row and using it
LEAST_NORM = np.float32(1e-12)  # below it a row counts as zero and has no direction


@njit(cache=True, inline="always")
def _part(start, part):
    """First group of a part, when groups are split so that parts hold about equally many pairs and rows."""
    num_groups = start.shape[0] - 1
    # A group costs its pairs plus one row of memory traffic, weighed as four pairs.
    target = (start[num_groups] + 4 * num_groups) * part // CHUNKS
    lo, hi = 0, num_groups
    while lo < hi:
        middle = (lo + hi) // 2
        if start[middle] + 4 * middle < target:
            lo = middle + 1
        else:
            hi = middle
    return lo


# ---------------------------------------------------------------- rows that missed steps


@njit(cache=True, inline="always")
def _power(powers_G, base, gap):
    """base ** gap as float32, from a table for the gaps it covers."""
    return powers_G[gap] if gap < powers_G.shape[0] else np.float32(base ** np.float64(gap))


@njit(cache=True, inline="always", fastmath=FAST)
def _drift_row(weights_RD, first_RD, second_RD, row, drift, damping):
    """Move a row by its momentum of the missed steps; see ``optimizers.Drift``."""
    for k in range(weights_RD.shape[1]):
        weights_RD[row, k] -= drift * first_RD[row, k] / (np.sqrt(second_RD[row, k]) + damping)


@njit(cache=True, inline="always")
def _catch_up_weights(
    weights_RD, first_RD, second_RD, bias_R1, bias_first_R1, bias_second_R1, row, last, upto, drift_S, damping_S
):  # fmt: skip
    """Weights and bias of a row as of the end of step ``upto``; its moments stay as of its last step.

    A row never updated (last = 0) has no momentum.
    """
    if 0 < last < upto:
        drift, damping = drift_S[last], damping_S[last]
        _drift_row(weights_RD, first_RD, second_RD, row, drift, damping)
        if bias_R1.shape[0] > 0:
            _drift_row(bias_R1, bias_first_R1, bias_second_R1, row, drift, damping)


@njit(cache=True, parallel=True)
def catch_up_weights(
    weights_RD, first_RD, second_RD, bias_R1, bias_first_R1, bias_second_R1, rows_U, last_step_R, upto,
    drift_S, damping_S,
):  # fmt: skip
    """Bring weights (not moments) of the listed rows up to step ``upto``, for rows that this step will update.

    ``update_groups`` makes up for the moments, which saves writing them twice.
    """
    for part in prange(CHUNKS):
        hi = (part + 1) * rows_U.shape[0] // CHUNKS
        for i in range(part * rows_U.shape[0] // CHUNKS, hi):
            if i + _AHEAD < hi:
                prefetch_row(weights_RD, rows_U[i + _AHEAD])
                prefetch_row(first_RD, rows_U[i + _AHEAD])
                prefetch_row(second_RD, rows_U[i + _AHEAD])
            _catch_up_weights(
                weights_RD, first_RD, second_RD, bias_R1, bias_first_R1, bias_second_R1,
                rows_U[i], last_step_R[rows_U[i]], upto, drift_S, damping_S,
            )  # fmt: skip


@njit(cache=True, inline="always", fastmath=FAST)
def _decay_row(first_RD, second_RD, row, decay1, decay2):
    for k in range(first_RD.shape[1]):
        first_RD[row, k] *= decay1
        second_RD[row, k] *= decay2


@njit(cache=True, parallel=True)
def catch_up_rows(
    weights_RD, first_RD, second_RD, bias_R1, bias_first_R1, bias_second_R1, rows_U, last_step_R, upto,
    drift_S, damping_S, beta1, beta2, powers1_G, powers2_G,
):  # fmt: skip
    """Bring the listed rows, moments included, up to step ``upto``."""
    for part in prange(CHUNKS):
        for i in range(part * rows_U.shape[0] // CHUNKS, (part + 1) * rows_U.shape[0] // CHUNKS):
            row = rows_U[i]
            last = last_step_R[row]
            if 0 < last < upto:
                _catch_up_weights(
                    weights_RD, first_RD, second_RD, bias_R1, bias_first_R1, bias_second_R1,
                    row, last, upto, drift_S, damping_S,
                )  # fmt: skip
                decay1 = _power(powers1_G, beta1, upto - last)
                decay2 = _power(powers2_G, beta2, upto - last)
                _decay_row(first_RD, second_RD, row, decay1, decay2)
                if bias_R1.shape[0] > 0:
                    _decay_row(bias_first_R1, bias_second_R1, row, decay1, decay2)
                last_step_R[row] = upto


# ---------------------------------------------------------------- directions of rows


@njit(cache=True, inline="always", fastmath=FAST)
def inverse_norm(matrix_RD, row, least_norm):
    """1 / max(|row|, least_norm)."""
    total = np.float32(0.0)
    for k in range(matrix_RD.shape[1]):
        total += matrix_RD[row, k] * matrix_RD[row, k]
    return np.float32(1.0) / max(np.sqrt(total), least_norm)


@njit(cache=True, inline="always", fastmath=FAST)
def scale_row(matrix_RD, row, factor):
    for k in range(matrix_RD.shape[1]):
        matrix_RD[row, k] *= factor


@njit(cache=True, inline="always", fastmath=FAST)
def carry_to_row(grad_D, weights_RD, row, inverse):
    """In place: the gradient G of a row's direction u becomes the row's own, (G - u (u . G)) / norm."""
    along = np.float32(0.0)
    for k in range(grad_D.shape[0]):
        along += grad_D[k] * weights_RD[row, k]
    along *= inverse * inverse
    for k in range(grad_D.shape[0]):
        grad_D[k] = inverse * (grad_D[k] - along * weights_RD[row, k])


# ---------------------------------------------------------------- scores


@njit(cache=True, parallel=True, fastmath=FAST)
def score_pairs(
    weights_RD, first_RD, second_RD, bias_R1, bias_first_R1, bias_second_R1, last_step_R, upto, drift_S, damping_S,
    sources_BD, order_N, unique_U, start_U1, pair_source_N, logits_N, least_norm=None,
):  # fmt: skip
    """logits[i] = weights[row of pair i] . sources[pair_source[i]] + bias[row of pair i], for grouped pairs.

    Weights are brought up to step ``upto`` on the way, as by ``catch_up_weights``; upto = 0 leaves them alone.
    """
    columns = weights_RD.shape[1]
    for part in prange(CHUNKS):
        hi = _part(start_U1, part + 1)
        for group in range(_part(start_U1, part), hi):
            row = unique_U[group]
            if group + _AHEAD < hi:
                later = unique_U[group + _AHEAD]
                prefetch_row(weights_RD, later)
                if upto > 0:
                    prefetch_row(first_RD, later)
                    prefetch_row(second_RD, later)
            _catch_up_weights(
                weights_RD, first_RD, second_RD, bias_R1, bias_first_R1, bias_second_R1,
                row, last_step_R[row], upto, drift_S, damping_S,
            )  # fmt: skip
            if least_norm is not None:
                inverse = inverse_norm(weights_RD, row, least_norm)
            for i in range(start_U1[group], start_U1[group + 1]):
                pair = order_N[i]
                source = pair_source_N[pair]
                total = np.float32(0.0)
                for k in range(columns):
                    total += weights_RD[row, k] * sources_BD[source, k]
                if least_norm is not None:
                    total *= inverse
                logits_N[pair] = total + bias_R1[row, 0]


# ---------------------------------------------------------------- updates


@njit(cache=True, inline="always", fastmath=FAST)
def adam_row(weights_RD, first_RD, second_RD, row, grad_D, step_size, keep1, keep2, beta1, beta2, root, epsilon):
    """keep1, keep2: the betas times the decay of the steps that the row's moments missed."""
    for k in range(grad_D.shape[0]):
        grad = grad_D[k]
        first = keep1 * first_RD[row, k] + (np.float32(1.0) - beta1) * grad
        second = keep2 * second_RD[row, k] + (np.float32(1.0) - beta2) * grad * grad
        first_RD[row, k] = first
        second_RD[row, k] = second
        weights_RD[row, k] -= step_size * first / (np.sqrt(second) * root + epsilon)


@njit(cache=True, parallel=True, fastmath=FAST)
def update_groups(
    weights_RD, first_RD, second_RD, bias_R1, bias_first_R1, bias_second_R1, last_step_R, step, upto,
    step_size, beta1, beta2, root, epsilon, powers1_G, powers2_G,
    sources_SD, order_N, unique_U, start_U1, pair_source_N, grad_N, bias_grad_N, source_grad_BD, least_norm=None,
):  # fmt: skip
    """Back-propagate through grouped pairs and apply Adam, touching each row of the matrix once.

    A row's gradient is sum_i grad[i] * sources[pair_source[i]] over its pairs, its bias's sum_i bias_grad[i]; each of
    the first B sources gets grad[i] * (the row before its update) added to source_grad_BD, which has 0 rows if nobody
    asks. Weights must be current (``score_pairs`` or ``catch_up_weights`` at this step); moments are brought up to
    step ``upto`` here (0: left as they are).
    step_size = lr / (1 - beta1^t); root = 1 / sqrt(1 - beta2^t) (Kingma & Ba 2015, as torch.optim.Adam).
    """
    columns = weights_RD.shape[1]
    num_sources = source_grad_BD.shape[0]
    # One copy of the source gradient a part, added in order at the end: no races, rounding fixed.
    partial = np.zeros((CHUNKS, num_sources, columns), dtype=np.float32)
    for part in prange(CHUNKS):
        grad_D = np.empty(columns, dtype=np.float32)
        bias_grad = np.empty(1, dtype=np.float32)
        hi = _part(start_U1, part + 1)
        for group in range(_part(start_U1, part), hi):
            row = unique_U[group]
            if group + _AHEAD < hi:
                later = unique_U[group + _AHEAD]
                prefetch_row(weights_RD, later)
                prefetch_row(first_RD, later)
                prefetch_row(second_RD, later)
            grad_D[:] = np.float32(0.0)
            bias_grad[0] = np.float32(0.0)
            if least_norm is not None:
                inverse = inverse_norm(weights_RD, row, least_norm)
            for i in range(start_U1[group], start_U1[group + 1]):
                pair = order_N[i]
                scale = grad_N[pair]
                bias_grad[0] += bias_grad_N[pair]
                source = pair_source_N[pair]
                for k in range(columns):
                    grad_D[k] += scale * sources_SD[source, k]
                if source < num_sources:
                    if least_norm is not None:
                        scale *= inverse
                    for k in range(columns):
                        partial[part, source, k] += scale * weights_RD[row, k]
            missed = max(0, upto - last_step_R[row])
            keep1 = beta1 * _power(powers1_G, beta1, missed)
            keep2 = beta2 * _power(powers2_G, beta2, missed)
            if least_norm is not None:
                carry_to_row(grad_D, weights_RD, row, inverse)
            adam_row(weights_RD, first_RD, second_RD, row, grad_D, step_size, keep1, keep2, beta1, beta2, root, epsilon)
            if least_norm is None and bias_R1.shape[0] > 0:
                adam_row(
                    bias_R1, bias_first_R1, bias_second_R1, row, bias_grad, step_size, keep1, keep2, beta1, beta2,
                    root, epsilon,
                )  # fmt: skip
            last_step_R[row] = step
    for source in prange(num_sources):
        for part in range(CHUNKS):
            for k in range(columns):
                source_grad_BD[source, k] += partial[part, source, k]

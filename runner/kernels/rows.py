"""Kernels over the rows of a large matrix: catch-up, scores, gradient and Adam, one pass over each touched row.

Legend: R rows of the matrix, D columns, N (row, source) pairs, U distinct rows, B sources (batch rows).
All loops are split into a fixed number of parts, so results have the same bits for any number of threads.
"""

import numpy as np
from numba import njit, prange

from runner.kernels.groups import CHUNKS

# Sums may be reordered by the compiler (it does so the same way each time); infinities keep their meaning.
FAST = {"reassoc", "contract", "arcp", "nsz"}


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


@njit(cache=True, parallel=True, fastmath=FAST)
def score_pairs(weights_RD, bias_R, sources_BD, order_N, unique_U, start_U1, pair_source_N, logits_N):
    """logits[i] = weights[row of pair i] . sources[pair_source[i]] + bias[row of pair i], for grouped pairs."""
    columns = weights_RD.shape[1]
    for part in prange(CHUNKS):
        for group in range(_part(start_U1, part), _part(start_U1, part + 1)):
            row = unique_U[group]
            for i in range(start_U1[group], start_U1[group + 1]):
                pair = order_N[i]
                source = pair_source_N[pair]
                total = np.float32(0.0)
                for k in range(columns):
                    total += weights_RD[row, k] * sources_BD[source, k]
                logits_N[pair] = total + bias_R[row]


@njit(cache=True, inline="always", fastmath=FAST)
def _adam_row(weights_RD, first_RD, second_RD, row, grad_D, step_size, beta1, beta2, root, epsilon):
    for k in range(grad_D.shape[0]):
        grad = grad_D[k]
        first = beta1 * first_RD[row, k] + (np.float32(1.0) - beta1) * grad
        second = beta2 * second_RD[row, k] + (np.float32(1.0) - beta2) * grad * grad
        first_RD[row, k] = first
        second_RD[row, k] = second
        weights_RD[row, k] -= step_size * first / (np.sqrt(second) * root + epsilon)


@njit(cache=True, parallel=True, fastmath=FAST)
def update_groups(
    weights_RD, first_RD, second_RD, sources_SD, order_N, unique_U, start_U1, pair_source_N, grad_N,
    last_step_R, step, step_size, beta1, beta2, root, epsilon, source_grad_BD,
):  # fmt: skip
    """Back-propagate through grouped pairs and apply Adam, touching each row of the matrix once.

    A row's gradient is sum_i grad[i] * sources[pair_source[i]] over its pairs; each of the first B sources
    gets grad[i] * (the row before its update) added to source_grad_BD, which has 0 rows if nobody asks.
    step_size = lr / (1 - beta1^t); root = 1 / sqrt(1 - beta2^t) (Kingma & Ba 2015, as torch.optim.Adam).
    """
    columns = weights_RD.shape[1]
    num_sources = source_grad_BD.shape[0]
    # One copy of the source gradient a part, added in order at the end: no races, rounding fixed.
    partial = np.zeros((CHUNKS, num_sources, columns), dtype=np.float32)
    for part in prange(CHUNKS):
        grad_D = np.empty(columns, dtype=np.float32)
        for group in range(_part(start_U1, part), _part(start_U1, part + 1)):
            row = unique_U[group]
            grad_D[:] = np.float32(0.0)
            for i in range(start_U1[group], start_U1[group + 1]):
                pair = order_N[i]
                scale = grad_N[pair]
                source = pair_source_N[pair]
                for k in range(columns):
                    grad_D[k] += scale * sources_SD[source, k]
                if source < num_sources:
                    for k in range(columns):
                        partial[part, source, k] += scale * weights_RD[row, k]
            _adam_row(weights_RD, first_RD, second_RD, row, grad_D, step_size, beta1, beta2, root, epsilon)
            last_step_R[row] = step
    for source in prange(num_sources):
        for part in range(CHUNKS):
            for k in range(columns):
                source_grad_BD[source, k] += partial[part, source, k]


@njit(cache=True, parallel=True, fastmath=FAST)
def adam_block(
    weights_RD, first_RD, second_RD, grad_BD, first_row,
    last_step_R, step, step_size, beta1, beta2, root, epsilon,
):  # fmt: skip
    """Adam on the contiguous rows first_row.. with one dense gradient row each."""
    for i in prange(grad_BD.shape[0]):
        _adam_row(
            weights_RD, first_RD, second_RD, first_row + i, grad_BD[i],
            step_size, beta1, beta2, root, epsilon,
        )  # fmt: skip
        last_step_R[first_row + i] = step


@njit(cache=True, inline="always", fastmath=FAST)
def _drift_row(weights_RD, first_RD, second_RD, row, decay1, decay2, drift, damping):
    for k in range(weights_RD.shape[1]):
        first = first_RD[row, k]
        second = second_RD[row, k]
        if first != np.float32(0.0):
            weights_RD[row, k] -= drift * first / (np.sqrt(second) + damping)
        first_RD[row, k] = decay1 * first
        second_RD[row, k] = decay2 * second


@njit(cache=True, parallel=True, fastmath=FAST)
def catch_up_rows(weights_RD, first_RD, second_RD, rows_U, last_step_R, upto, drift_S, damping_S, beta1, beta2):
    """Apply to each listed row the zero-gradient Adam steps last_step+1 .. upto that it missed.

    drift_S, damping_S: per last step s, the coefficients of ``optimizers.Drift`` for upto steps.
    """
    for part in prange(CHUNKS):
        for i in range(part * rows_U.shape[0] // CHUNKS, (part + 1) * rows_U.shape[0] // CHUNKS):
            row = rows_U[i]
            last = last_step_R[row]
            if 0 < last < upto:  # a row never updated has zero moments: nothing to decay
                gap = np.float64(upto - last)
                _drift_row(
                    weights_RD, first_RD, second_RD, row,
                    np.float32(beta1**gap), np.float32(beta2**gap),
                    np.float32(drift_S[last]), np.float32(damping_S[last]),
                )  # fmt: skip
                last_step_R[row] = upto


@njit(cache=True, parallel=True)
def gather_rows(matrix_RD, rows_U, out_UD):
    """out[i] = matrix[rows[i]]."""
    for part in prange(CHUNKS):
        for i in range(part * rows_U.shape[0] // CHUNKS, (part + 1) * rows_U.shape[0] // CHUNKS):
            out_UD[i, :] = matrix_RD[rows_U[i], :]

"""Work on rows of a large matrix: catch-up, scores, gradient and Adam, one pass over each touched row.

Legend: R rows of the matrix, D columns, N (row, source) pairs, U distinct rows, B sources (batch rows),
G gaps (missed steps), S last steps, X any number of values. In ``sources_SD`` of ``update_groups``, S counts sources,
of which the first B get a gradient.
All loops are split into a fixed number of parts, so results have the same bits for any number of threads.

Rows come in ascending order but with gaps, which hardware prefetchers do not follow. Therefore each kernel asks for the
rows of a later group while it works on the current one.

A bias is a one-column matrix with its own moments; its arrays have 0 rows where a table has no bias.

Second moments ``second_RD`` are (R, D), or (R,): one a row, the mean of those of its elements, as the row-wise Adam of
FBGEMM keeps. The number of dimensions is part of an array's type, so each case is compiled separately. For ``rounding``
and first moments of 16 bits see ``kernels.moments``. Moments of biases are float32, one each.

Where a kernel takes ``least_norm``, None means that rows are used as they are. A number means that each row w stands
for its direction w / max(|w|, least_norm): scores use the direction, gradients with respect to it are carried back to
the row, and biases do not change. None and a number are two types, so each case is compiled separately and
plain rows have no extra cost.
"""

import numpy as np
from numba import njit, prange

from runner.kernels.groups import CHUNKS, PRANGE
from runner.kernels.memory import prefetch_row
from runner.kernels.moments import held, key_of_row, prefetch_moments, value_of

# Python's error model asks at each division whether it is by zero, and such a loop is not vectorised. Loops inside
# prange have NumPy's model anyway; functions that they call need error_model="numpy". A call for each row costs a tenth
# of an update, so these are inlined.

# The compiler may reorder sums (it does so the same way each time), but must respect infinities.
FAST = {"reassoc", "contract", "arcp", "nsz"}
_AHEAD = 2  # number of groups between asking for a row and using it
LEAST_NORM = np.float32(1e-12)  # a row with a smaller norm counts as zero and has no direction


@njit(cache=True, inline="always")
def _part(start, part):
    """Return the first group of a part; the parts have about equal numbers of pairs and rows."""
    num_groups = start.shape[0] - 1
    # A group costs its pairs plus one row of memory traffic, which counts as four pairs.
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
    """Return base ** gap as float32, from a table where that covers the gap."""
    return powers_G[gap] if gap < powers_G.shape[0] else np.float32(base ** np.float64(gap))


@njit(cache=True, forceinline=True, error_model="numpy", fastmath=FAST)
def _drift_row(weights_RD, first_RD, second_RD, row, drift, damping, rounding):
    """Move a row by the momentum of the steps it missed; see ``optimizers.Drift``."""
    if second_RD.ndim == 1:
        rate = drift / (np.sqrt(second_RD[row]) + damping)
        for k in range(weights_RD.shape[1]):
            weights_RD[row, k] -= rate * value_of(first_RD[row, k], rounding)
    else:
        for k in range(weights_RD.shape[1]):
            first = value_of(first_RD[row, k], rounding)
            weights_RD[row, k] -= drift * first / (np.sqrt(second_RD[row, k]) + damping)


@njit(cache=True, inline="always")
def _catch_up_weights(
    weights_RD, first_RD, second_RD, bias_R1, bias_first_R1, bias_second_R1, row, last, upto, drift_S, damping_S,
    rounding,
):  # fmt: skip
    """Bring weights and bias of a row to the end of step ``upto``; its moments stay at its last step.

    A row that was never updated (last = 0) has no momentum.
    """
    if 0 < last < upto:
        drift, damping = drift_S[last], damping_S[last]
        _drift_row(weights_RD, first_RD, second_RD, row, drift, damping, rounding)
        if bias_R1.shape[0] > 0:
            _drift_row(bias_R1, bias_first_R1, bias_second_R1, row, drift, damping, None)


@njit(cache=True, parallel=PRANGE)
def catch_up_weights(
    weights_RD, first_RD, second_RD, bias_R1, bias_first_R1, bias_second_R1, rows_U, last_step_R, upto,
    drift_S, damping_S, rounding,
):  # fmt: skip
    """Bring weights and biases (not moments) of the listed rows up to step ``upto``.

    Use it for rows that this step will update: ``update_groups`` brings their moments up to date, which saves writing
    them twice.
    """
    for part in prange(CHUNKS):
        hi = (part + 1) * rows_U.shape[0] // CHUNKS
        for i in range(part * rows_U.shape[0] // CHUNKS, hi):
            if i + _AHEAD < hi:
                prefetch_row(weights_RD, rows_U[i + _AHEAD])
                prefetch_moments(first_RD, second_RD, rows_U[i + _AHEAD])
            _catch_up_weights(
                weights_RD, first_RD, second_RD, bias_R1, bias_first_R1, bias_second_R1,
                rows_U[i], last_step_R[rows_U[i]], upto, drift_S, damping_S, rounding,
            )  # fmt: skip


@njit(cache=True, fastmath=FAST)
def _decay_row(first_RD, second_RD, row, decay1, decay2, rounding):
    key = key_of_row(rounding, row)
    if second_RD.ndim == 1:
        second_RD[row] *= decay2
    for k in range(first_RD.shape[1]):
        first_RD[row, k] = held(value_of(first_RD[row, k], key) * decay1, key, k)
        if second_RD.ndim == 2:
            second_RD[row, k] *= decay2


@njit(cache=True, parallel=PRANGE)
def catch_up_rows(
    weights_RD, first_RD, second_RD, bias_R1, bias_first_R1, bias_second_R1, rows_U, last_step_R, upto,
    drift_S, damping_S, rounding, beta1, beta2, powers1_G, powers2_G,
):  # fmt: skip
    """Bring the listed rows, with biases and moments, up to step ``upto``."""
    for part in prange(CHUNKS):
        for i in range(part * rows_U.shape[0] // CHUNKS, (part + 1) * rows_U.shape[0] // CHUNKS):
            row = rows_U[i]
            last = last_step_R[row]
            if 0 < last < upto:
                _catch_up_weights(
                    weights_RD, first_RD, second_RD, bias_R1, bias_first_R1, bias_second_R1,
                    row, last, upto, drift_S, damping_S, rounding,
                )  # fmt: skip
                decay1 = _power(powers1_G, beta1, upto - last)
                decay2 = _power(powers2_G, beta2, upto - last)
                _decay_row(first_RD, second_RD, row, decay1, decay2, rounding)
                if bias_R1.shape[0] > 0:
                    _decay_row(bias_first_R1, bias_second_R1, row, decay1, decay2, None)
                last_step_R[row] = upto


# ---------------------------------------------------------------- directions of rows


@njit(cache=True, inline="always", fastmath=FAST)
def inverse_norm(matrix_RD, row, least_norm):
    """Return 1 / max(|row|, least_norm)."""
    total = np.float32(0.0)
    for k in range(matrix_RD.shape[1]):
        total += matrix_RD[row, k] * matrix_RD[row, k]
    return np.float32(1.0) / max(np.sqrt(total), least_norm)


@njit(cache=True, inline="always", fastmath=FAST)
def scale_row(matrix_RD, row, factor):
    """Multiply a row by ``factor``, in place."""
    for k in range(matrix_RD.shape[1]):
        matrix_RD[row, k] *= factor


@njit(cache=True, inline="always", fastmath=FAST)
def carry_to_row(grad_D, weights_RD, row, inverse):
    """Turn the gradient G of a row's direction u into that of the row, (G - u (u . G)) / norm, in place."""
    along = np.float32(0.0)
    for k in range(grad_D.shape[0]):
        along += grad_D[k] * weights_RD[row, k]
    along *= inverse * inverse
    for k in range(grad_D.shape[0]):
        grad_D[k] = inverse * (grad_D[k] - along * weights_RD[row, k])


# ---------------------------------------------------------------- scores


@njit(cache=True, parallel=PRANGE, fastmath=FAST)
def score_pairs(
    weights_RD, first_RD, second_RD, bias_R1, bias_first_R1, bias_second_R1, last_step_R, upto, drift_S, damping_S,
    rounding, sources_BD, order_N, unique_U, start_U1, pair_source_N, logits_N, least_norm=None,
):  # fmt: skip
    """Write logits[i] = weights[row of pair i] . sources[pair_source[i]] + bias[row of pair i], for grouped pairs.

    Weights are first brought up to step ``upto``, as ``catch_up_weights`` does; upto = 0 leaves them unchanged.
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
                    prefetch_moments(first_RD, second_RD, later)
            _catch_up_weights(
                weights_RD, first_RD, second_RD, bias_R1, bias_first_R1, bias_second_R1,
                row, last_step_R[row], upto, drift_S, damping_S, rounding,
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


@njit(cache=True, forceinline=True, error_model="numpy", fastmath=FAST)
def adam_row(
    weights_RD, first_RD, second_RD, row, grad_D, step_size, keep1, keep2, beta1, beta2, root, epsilon, rounding
):  # fmt: skip
    """Apply one Adam step to a row.

    keep1 and keep2 are the betas times the decay of the steps that the row's moments missed. For ``step_size`` and
    ``root`` see ``update_groups``.
    """
    key = key_of_row(rounding, row)
    if second_RD.ndim == 1:
        total = np.float32(0.0)
        for k in range(grad_D.shape[0]):
            total += grad_D[k] * grad_D[k]
        second = keep2 * second_RD[row] + (np.float32(1.0) - beta2) * (total / np.float32(grad_D.shape[0]))
        second_RD[row] = second
        rate = step_size / (np.sqrt(second) * root + epsilon)
        for k in range(grad_D.shape[0]):
            first = keep1 * value_of(first_RD[row, k], key) + (np.float32(1.0) - beta1) * grad_D[k]
            first_RD[row, k] = held(first, key, k)
            weights_RD[row, k] -= rate * first
    else:
        for k in range(grad_D.shape[0]):
            grad = grad_D[k]
            first = keep1 * value_of(first_RD[row, k], key) + (np.float32(1.0) - beta1) * grad
            second = keep2 * second_RD[row, k] + (np.float32(1.0) - beta2) * grad * grad
            first_RD[row, k] = held(first, key, k)
            second_RD[row, k] = second
            weights_RD[row, k] -= step_size * first / (np.sqrt(second) * root + epsilon)


@njit(cache=True, parallel=PRANGE, fastmath=FAST)
def update_groups(
    weights_RD, first_RD, second_RD, bias_R1, bias_first_R1, bias_second_R1, last_step_R, step, upto,
    step_size, beta1, beta2, root, epsilon, rounding, powers1_G, powers2_G,
    sources_SD, order_N, unique_U, start_U1, pair_source_N, grad_N, bias_grad_N, source_grad_BD, least_norm=None,
    grad_UD=None, bias_grad_U=None,
):  # fmt: skip
    """Back-propagate through grouped pairs and apply Adam, touching each row of the matrix once.

    Where ``grad_UD`` and ``bias_grad_U`` are given, gradients are written there and no row changes. None and an array
    are two types, so each case is compiled separately, as with ``least_norm``.

    A row's gradient is sum_i grad[i] * sources[pair_source[i]] over its pairs; its bias's gradient is sum_i
    bias_grad[i]. For each of the first B sources, grad[i] * (the row before its update) is added to source_grad_BD,
    which has 0 rows if the caller does not need it. Weights must be current (``score_pairs`` or ``catch_up_weights`` at
    this step). Moments are brought up to step ``upto`` here; 0 leaves them as they are.
    step_size = lr / (1 - beta1^t); root = 1 / sqrt(1 - beta2^t) (Kingma & Ba 2015, as torch.optim.Adam).
    """
    columns = weights_RD.shape[1]
    num_sources = source_grad_BD.shape[0]
    # Each part has its own copy of the source gradient; adding them in order avoids races and fixes the rounding.
    partial = np.empty((CHUNKS, num_sources, columns), dtype=np.float32)
    for part in prange(CHUNKS):
        for source in range(num_sources):
            for k in range(columns):
                partial[part, source, k] = np.float32(0.0)
        grad_D = np.empty(columns, dtype=np.float32)
        bias_grad = np.empty(1, dtype=np.float32)
        hi = _part(start_U1, part + 1)
        for group in range(_part(start_U1, part), hi):
            row = unique_U[group]
            if group + _AHEAD < hi:
                later = unique_U[group + _AHEAD]
                prefetch_row(weights_RD, later)
                if grad_UD is None:
                    prefetch_moments(first_RD, second_RD, later)
            for k in range(columns):
                grad_D[k] = np.float32(0.0)
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
            if grad_UD is not None:
                for k in range(columns):
                    grad_UD[group, k] = grad_D[k]
                bias_grad_U[group] = bias_grad[0] if least_norm is None else np.float32(0.0)
            else:
                adam_row(
                    weights_RD, first_RD, second_RD, row, grad_D, step_size, keep1, keep2, beta1, beta2, root, epsilon,
                    rounding,
                )  # fmt: skip
                if least_norm is None and bias_R1.shape[0] > 0:
                    adam_row(
                        bias_R1, bias_first_R1, bias_second_R1, row, bias_grad, step_size, keep1, keep2, beta1, beta2,
                        root, epsilon, None,
                    )  # fmt: skip
                last_step_R[row] = step
    for source in prange(num_sources):
        for part in range(CHUNKS):
            for k in range(columns):
                source_grad_BD[source, k] += partial[part, source, k]


# ---------------------------------------------------------------- gradients that were kept


@njit(cache=True, parallel=True)
def add_rows(rows_A, grad_AD, bias_A, rows_B, grad_BD, bias_B):
    """Return the rows of two gradients, ascending int32, and the sums of their gradients and of their biases'.

    ``rows_A`` and ``rows_B`` are ascending and distinct each. Sums are those of A's numbers plus B's.
    """
    most = rows_A.shape[0] + rows_B.shape[0]
    rows = np.empty(most, dtype=np.int32)
    place_A, place_B = np.empty(most, dtype=np.int32), np.empty(most, dtype=np.int32)
    total, a, b = 0, 0, 0
    while a < rows_A.shape[0] or b < rows_B.shape[0]:
        in_A = b == rows_B.shape[0] or (a < rows_A.shape[0] and rows_A[a] <= rows_B[b])
        in_B = a == rows_A.shape[0] or (b < rows_B.shape[0] and rows_B[b] <= rows_A[a])
        rows[total] = rows_A[a] if in_A else rows_B[b]
        place_A[total] = a if in_A else -1
        place_B[total] = b if in_B else -1
        a, b, total = a + in_A, b + in_B, total + 1
    grad, bias = np.empty((total, grad_AD.shape[1]), dtype=np.float32), np.empty(total, dtype=np.float32)
    for row in prange(total):
        a, b = place_A[row], place_B[row]
        if a < 0:
            grad[row], bias[row] = grad_BD[b], bias_B[b]
        elif b < 0:
            grad[row], bias[row] = grad_AD[a], bias_A[a]
        else:
            grad[row], bias[row] = grad_AD[a] + grad_BD[b], bias_A[a] + bias_B[b]
    return rows[:total].copy(), grad, bias


@njit(cache=True, parallel=PRANGE, fastmath=FAST)
def adam_rows(
    weights_RD, first_RD, second_RD, bias_R1, bias_first_R1, bias_second_R1, last_step_R, step, upto,
    step_size, beta1, beta2, root, epsilon, rounding, powers1_G, powers2_G, rows_U, grad_UD, bias_grad_U, factor,
):  # fmt: skip
    """Apply Adam to distinct rows with their gradients times ``factor``.

    The gradients are those that ``update_groups`` wrote to ``grad_UD``; other arguments are as there.
    """
    for part in prange(CHUNKS):
        grad_D = np.empty(weights_RD.shape[1], dtype=np.float32)
        bias_grad = np.empty(1, dtype=np.float32)
        for i in range(part * rows_U.shape[0] // CHUNKS, (part + 1) * rows_U.shape[0] // CHUNKS):
            row = rows_U[i]
            for k in range(grad_D.shape[0]):
                grad_D[k] = factor * grad_UD[i, k]
            missed = max(0, upto - last_step_R[row])
            keep1 = beta1 * _power(powers1_G, beta1, missed)
            keep2 = beta2 * _power(powers2_G, beta2, missed)
            adam_row(
                weights_RD, first_RD, second_RD, row, grad_D, step_size, keep1, keep2, beta1, beta2, root, epsilon,
                rounding,
            )  # fmt: skip
            if bias_R1.shape[0] > 0:
                bias_grad[0] = factor * bias_grad_U[i]
                adam_row(
                    bias_R1, bias_first_R1, bias_second_R1, row, bias_grad, step_size, keep1, keep2, beta1, beta2,
                    root, epsilon, None,
                )  # fmt: skip
            last_step_R[row] = step


@njit(cache=True, parallel=PRANGE, fastmath=FAST)
def descend_rows(weights_RD, bias_R1, rows_U, grad_UD, bias_grad_U, rate):
    """Subtract rate * gradient from distinct rows, and from their biases where there are any."""
    for part in prange(CHUNKS):
        for i in range(part * rows_U.shape[0] // CHUNKS, (part + 1) * rows_U.shape[0] // CHUNKS):
            row = rows_U[i]
            for k in range(weights_RD.shape[1]):
                weights_RD[row, k] -= rate * grad_UD[i, k]
            if bias_R1.shape[0] > 0:
                bias_R1[row, 0] -= rate * bias_grad_U[i]


@njit(cache=True, parallel=PRANGE, fastmath=FAST)
def adagrad_rows(weights_RD, second_RD, bias_R1, bias_second_R1, rows_U, grad_UD, bias_grad_U, rate, epsilon, factor):
    """Take an AdaGrad step with distinct rows, and with their biases where there are any, by factor * gradient."""
    for part in prange(CHUNKS):
        for i in range(part * rows_U.shape[0] // CHUNKS, (part + 1) * rows_U.shape[0] // CHUNKS):
            row = rows_U[i]
            for k in range(weights_RD.shape[1]):
                grad = factor * grad_UD[i, k]
                second_RD[row, k] += grad * grad
                weights_RD[row, k] -= rate * grad / (np.sqrt(second_RD[row, k]) + epsilon)
            if bias_R1.shape[0] > 0:
                grad = factor * bias_grad_U[i]
                bias_second_R1[row, 0] += grad * grad
                bias_R1[row, 0] -= rate * grad / (np.sqrt(bias_second_R1[row, 0]) + epsilon)


@njit(cache=True, fastmath=FAST)
def _sum_of_squares(values):
    total = 0.0
    for i in range(values.shape[0]):
        total += np.float64(values[i]) * np.float64(values[i])
    return total


@njit(cache=True, parallel=PRANGE)
def squared_norm(values_X):
    """Return the sum of squares of a vector in float64, summed in a fixed order."""
    partial = np.zeros(CHUNKS, dtype=np.float64)
    for part in prange(CHUNKS):
        first, last = part * values_X.shape[0] // CHUNKS, (part + 1) * values_X.shape[0] // CHUNKS
        partial[part] = _sum_of_squares(values_X[first:last])
    total = 0.0
    for part in range(CHUNKS):
        total += partial[part]
    return total

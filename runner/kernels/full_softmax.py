"""Compute softmax over all classes without storing a matrix of logits.

It makes two passes over blocks of classes, and each block stays in cache. Pass 1 (``log_partition``) computes the
logits of a block and folds them into running maxima and sums. Pass 2 (``gradients_and_adam``) computes the logits
again, then probabilities, both gradients, and Adam on the block's rows while these are in cache. This takes four
products of 2 B N D operations, where a stored logit matrix takes three, but it saves B N floats of memory.

Where ``stored_NB`` and ``shift_SB`` are given, pass 1 stores the logits there as bfloat16 and pass 2 computes none. The
stored number is the logit's distance to the row's highest logit so far, the ``shift``. Likely classes are near the
shift, where bfloat16 is finest, so p changes by at most about 2^-9 p log(1 / p). The partition is that of the rounded
logits, so that a row's probabilities sum to 1.

Legend: B rows of the batch (padded to whole tiles), D hidden size (padded), N classes, C classes of a block, S blocks,
W columns of a tile, P (row, target) pairs sorted by class, X parts of the work, or a dimension of B plus padding
(``logits_CX``, ``grad_X``). For ``least_norm`` see ``kernels.rows``.
The work is split into a fixed number of parts, whose results are added in order, so results have the same bits for any
number of threads.
"""

import numpy as np
from numba import njit, prange

from runner.kernels.groups import CHUNKS, PRANGE, place_of
from runner.kernels.math import fast_exp
from runner.kernels.products import COLUMNS, ROWS, from_bf16, round_up, tile_float32, to_bf16
from runner.kernels.rows import FAST, adam_row, carry_to_row, inverse_norm, scale_row

# Classes at a time. Their probabilities (256 KB for 1,024 rows) fit in the second-level cache.
BLOCK = round_up(64, ROWS)
DEPTH = 256  # rows of the batch summed at a time, for the same reason


def padded(hidden_BD: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return hidden states padded with zeros to whole tiles, (B, D), and as panels of columns, (B / W, D, W)."""
    rows, dim = hidden_BD.shape
    out = np.zeros((round_up(rows, COLUMNS), round_up(dim, COLUMNS)), dtype=np.float32)
    out[:rows, :dim] = hidden_BD
    panels = np.ascontiguousarray(out.reshape(-1, COLUMNS, out.shape[1]).transpose(0, 2, 1))
    return out, panels


def num_shifts(num_classes: int) -> int:
    """Return the number of rows of ``shift_SB``: one for each block (see ``shift_of``), and a few unused ones."""
    return num_classes // BLOCK + CHUNKS


@njit(cache=True, inline="always")
def shift_of(part, lo):
    """Return the row of ``shift_SB`` for the block of a part that begins with class ``lo``.

    A part may begin anywhere in a block of BLOCK classes, so each part before it needs one more row.
    """
    return lo // BLOCK + part


@njit(cache=True, inline="always")
def load_block(weights_ND, lo, hi, block_CD):
    """Copy rows lo to hi - 1 into a block and pad it with zeros."""
    for i in range(hi - lo):
        for k in range(weights_ND.shape[1]):
            block_CD[i, k] = weights_ND[lo + i, k]
    for i in range(hi - lo, block_CD.shape[0]):
        for k in range(block_CD.shape[1]):
            block_CD[i, k] = np.float32(0.0)


@njit(cache=True, inline="always")
def take_directions(block_CD, count, least_norm, inverse_C):
    """Divide the first ``count`` rows of a block by their norms; write the factors used to ``inverse_C``."""
    for i in range(count):
        inverse_C[i] = inverse_norm(block_CD, i, least_norm)
        scale_row(block_CD, i, inverse_C[i])


@njit(cache=True, parallel=PRANGE, fastmath=FAST)
def log_partition(weights_ND, bias_N1, panels, least_norm=None, stored_NB=None, shift_SB=None):
    """Return log sum_c exp(w_c . h_b + bias_c) for every (padded) row of the batch, (B,) float32."""
    num_panels, dim, width = panels.shape
    batch = num_panels * width
    classes = weights_ND.shape[0]
    top_XB = np.full((CHUNKS, batch), -np.inf, dtype=np.float32)
    total_XB = np.zeros((CHUNKS, batch), dtype=np.float32)
    for part in prange(CHUNKS):
        block = np.zeros((BLOCK, dim), dtype=np.float32)
        pitch = batch + COLUMNS
        logits = np.empty((BLOCK, pitch), dtype=np.float32)
        if least_norm is not None:
            inverse = np.empty(BLOCK, dtype=np.float32)
        at_block, at_panels, at_logits = block.ctypes.data, panels.ctypes.data, logits.ctypes.data
        first, last = part * classes // CHUNKS, (part + 1) * classes // CHUNKS
        for lo in range(first, last, BLOCK):
            hi = min(lo + BLOCK, last)
            load_block(weights_ND, lo, hi, block)
            if least_norm is not None:
                take_directions(block, hi - lo, least_norm, inverse)
            for panel in range(num_panels):
                for i in range(0, hi - lo, ROWS):
                    tile_float32(
                        at_block + 4 * i * dim, dim, 1, at_panels + 4 * panel * dim * width, width, dim,
                        at_logits + 4 * (i * pitch + panel * width), pitch, False,
                    )  # fmt: skip
            if stored_NB is None:
                fold(logits, bias_N1, lo, hi, top_XB[part], total_XB[part])
            else:
                shift_B = shift_SB[shift_of(part, lo)]
                fold_and_store(logits, bias_N1, lo, hi, top_XB[part], total_XB[part], stored_NB, shift_B)
    return combine(top_XB, total_XB)


@njit(cache=True)
def combine(top_XB, total_XB):
    """Return the log partitions, (B,) float32, from the maxima and sums of X parts, added in order."""
    log_partition_B = np.empty(top_XB.shape[1], dtype=np.float32)
    for b in range(log_partition_B.shape[0]):
        top = top_XB[0, b]
        for part in range(1, top_XB.shape[0]):
            if top_XB[part, b] > top or top_XB[part, b] != top_XB[part, b]:  # NaN stays
                top = top_XB[part, b]
        total = np.float32(0.0)
        for part in range(top_XB.shape[0]):
            if total_XB[part, b] > 0:
                total += total_XB[part, b] * fast_exp(top_XB[part, b] - top)
        log_partition_B[b] = top + np.log(total)
    return log_partition_B


@njit(cache=True, fastmath=FAST)
def fold(logits_CX, bias_N1, lo, hi, top_B, total_B):
    """Fold a block's logits into the rows' maxima and sums of exp(logit - maximum).

    The logits are in the first B columns and do not include the biases, which are added here.
    """
    _raise_all(logits_CX, bias_N1, lo, hi, top_B, total_B)
    for i in range(hi - lo):
        _add_exponentials(logits_CX[i], bias_N1[lo + i, 0], top_B, total_B)


@njit(cache=True, fastmath=FAST)
def fold_and_store(logits_CX, bias_N1, lo, hi, top_B, total_B, stored_NB, shift_B):
    """Do what ``fold`` does, but with rounded logits; store their distances to ``shift`` in stored[lo:hi]."""
    _raise_all(logits_CX, bias_N1, lo, hi, top_B, total_B)
    for b in range(top_B.shape[0]):
        shift_B[b] = top_B[b]
    for i in range(hi - lo):
        _store_and_add(logits_CX[i], bias_N1[lo + i, 0], top_B, total_B, stored_NB[lo + i])


@njit(cache=True, fastmath=FAST)
def _raise_all(logits_CX, bias_N1, lo, hi, top_B, total_B):
    """Raise the maxima to a block's logits and rescale the sums so far to the new maxima."""
    count = hi - lo
    before_B, higher_B = top_B.copy(), np.empty_like(top_B)
    for i in range(0, count, 2):
        j = min(i + 1, count - 1)  # counting a class twice does not change a maximum
        _raise(logits_CX[i], bias_N1[lo + i, 0], logits_CX[j], bias_N1[lo + j, 0], before_B, higher_B)
        before_B, higher_B = higher_B, before_B
    for b in range(top_B.shape[0]):
        total_B[b] *= fast_exp(top_B[b] - before_B[b])
        top_B[b] = before_B[b]


# The loops over whole rows stand in functions of their own; only then are they compiled to vector instructions.


@njit(cache=True, fastmath=FAST)
def _raise(logits_X, bias, others_X, others_bias, top_B, higher_B):
    """Write higher = max(top, logits, others).

    In place, it would be compiled to masked stores, which are slow on AVX2.
    """
    for b in range(top_B.shape[0]):
        higher_B[b] = max(max(logits_X[b] + bias, others_X[b] + others_bias), top_B[b])


@njit(cache=True, fastmath=FAST)
def _add_exponentials(logits_X, bias, top_B, total_B):
    for b in range(top_B.shape[0]):
        total_B[b] += fast_exp(logits_X[b] + bias - top_B[b])


@njit(cache=True, fastmath=FAST)
def _store_and_add(logits_X, bias, top_B, total_B, stored_B):
    for b in range(top_B.shape[0]):
        bits = to_bf16(logits_X[b] + bias - top_B[b])
        stored_B[b] = bits
        total_B[b] += fast_exp(from_bf16(bits))


@njit(cache=True, parallel=PRANGE, fastmath=FAST)
def gradients_and_adam(
    weights_ND, first_ND, second_ND, bias_N1, bias_first_N1, bias_second_N1, last_step_N, step,
    step_size, beta1, beta2, root, epsilon, rounding,
    hidden_BD, panels, log_partition_B, scale, class_P, row_P, share_P, grad_hidden_BD, least_norm=None,
    stored_NB=None, shift_SB=None, grad_ND=None, bias_grad_N=None,
):  # fmt: skip
    """Apply Adam to every class, and add the gradient of the hidden states to ``grad_hidden_BD``.

    The hidden states' gradient uses the weights before the step. Where ``grad_ND`` and ``bias_grad_N`` are given, the
    classes' gradients are written there and no class changes.

    The gradient of logit (b, c) is scale * exp(logit - log_partition[b]), minus share[p] where pair p is (b, c).
    ``class_P`` is in ascending order. Padding rows of the batch have log_partition +inf, so their gradient is 0.
    """
    num_panels, dim, width = panels.shape
    batch = num_panels * width
    classes = weights_ND.shape[0]
    # Here rows of the batch are rows of tiles, whose height may not divide the batch: the last tile reads zeros.
    partial = np.empty((CHUNKS, (batch + ROWS - 1) // ROWS * ROWS, dim), dtype=np.float32)
    for part in prange(CHUNKS):
        for b in range(partial.shape[1]):
            for k in range(dim):
                partial[part, b, k] = np.float32(0.0)
        block = np.zeros((BLOCK, dim), dtype=np.float32)
        # One tile of slack: rows a power of two apart would share a few sets of the first-level cache.
        pitch = batch + COLUMNS
        grad = np.zeros((BLOCK, pitch), dtype=np.float32)
        grad_block = np.empty((BLOCK, dim), dtype=np.float32)
        bias_grad = np.empty(1, dtype=np.float32)
        if least_norm is not None:
            inverse = np.empty(BLOCK, dtype=np.float32)
        # Use addresses: slicing an array updates its reference count, on which all threads would wait.
        at_block, at_panels, at_hidden = block.ctypes.data, panels.ctypes.data, hidden_BD.ctypes.data
        at_grad, at_grad_block, at_partial = grad.ctypes.data, grad_block.ctypes.data, partial[part].ctypes.data
        first, last = part * classes // CHUNKS, (part + 1) * classes // CHUNKS
        pair = place_of(first, class_P, 0, class_P.shape[0])
        for lo in range(first, last, BLOCK):
            hi = min(lo + BLOCK, last)
            size = (hi - lo + ROWS - 1) // ROWS * ROWS
            load_block(weights_ND, lo, hi, block)
            if least_norm is not None:
                take_directions(block, hi - lo, least_norm, inverse)
            if stored_NB is None:
                for panel in range(num_panels):
                    for i in range(0, size, ROWS):
                        tile_float32(
                            at_block + 4 * i * dim, dim, 1, at_panels + 4 * panel * dim * width, width, dim,
                            at_grad + 4 * (i * pitch + panel * width), pitch, False,
                        )  # fmt: skip
                for i in range(hi - lo):
                    probabilities(grad[i, :batch], bias_N1[lo + i, 0], log_partition_B, scale)
            else:
                recall(stored_NB, lo, hi, shift_SB[shift_of(part, lo)], log_partition_B, scale, grad)
            for i in range(hi - lo, size):
                for b in range(pitch):
                    grad[i, b] = np.float32(0.0)
            while pair < class_P.shape[0] and class_P[pair] < hi:
                grad[class_P[pair] - lo, row_P[pair]] -= share_P[pair]
                pair += 1
            for b in range(0, batch, DEPTH):
                for k in range(0, dim, COLUMNS):
                    for i in range(0, size, ROWS):
                        tile_float32(
                            at_grad + 4 * (i * pitch + b), pitch, 1, at_hidden + 4 * (b * dim + k), dim,
                            min(DEPTH, batch - b), at_grad_block + 4 * (i * dim + k), dim, b > 0,
                        )  # fmt: skip
            for b in range(0, batch, ROWS):
                for k in range(0, dim, COLUMNS):
                    tile_float32(
                        at_grad + 4 * b, 1, pitch, at_block + 4 * k, dim, size,
                        at_partial + 4 * (b * dim + k), dim, True,
                    )  # fmt: skip
            for i in range(hi - lo):
                if least_norm is not None:
                    carry_to_row(grad_block[i, : weights_ND.shape[1]], weights_ND, lo + i, inverse[i])
                if grad_ND is not None:
                    for k in range(weights_ND.shape[1]):
                        grad_ND[lo + i, k] = grad_block[i, k]
                    bias_grad_N[lo + i] = sum_of(grad[i, :batch]) if least_norm is None else np.float32(0.0)
                else:
                    adam_row(
                        weights_ND, first_ND, second_ND, lo + i, grad_block[i, : weights_ND.shape[1]], step_size,
                        beta1, beta2, beta1, beta2, root, epsilon, rounding,
                    )  # fmt: skip
                    if least_norm is None:
                        bias_grad[0] = sum_of(grad[i, :batch])
                        adam_row(
                            bias_N1, bias_first_N1, bias_second_N1, lo + i, bias_grad, step_size, beta1, beta2, beta1,
                            beta2, root, epsilon, None,
                        )  # fmt: skip
                    last_step_N[lo + i] = step
    for b in prange(grad_hidden_BD.shape[0]):
        for part in range(CHUNKS):
            for k in range(grad_hidden_BD.shape[1]):
                grad_hidden_BD[b, k] += partial[part, b, k]


@njit(cache=True, fastmath=FAST)
def probabilities(logits_B, bias, log_partition_B, scale):
    """Turn the logits of one class, without bias, into scaled probabilities, in place."""
    for b in range(logits_B.shape[0]):
        logits_B[b] = scale * fast_exp(logits_B[b] + bias - log_partition_B[b])


@njit(cache=True, fastmath=FAST)
def recall(stored_NB, lo, hi, shift_B, log_partition_B, scale, grad_CX):
    """Write a block's scaled probabilities to its first B columns, from the logits that ``fold_and_store`` stored."""
    offset_B = shift_B - log_partition_B
    for i in range(hi - lo):
        _recall_class(stored_NB[lo + i], offset_B, scale, grad_CX[i])


@njit(cache=True, fastmath=FAST)
def _recall_class(stored_B, offset_B, scale, grad_X):
    for b in range(stored_B.shape[0]):
        grad_X[b] = scale * fast_exp(from_bf16(stored_B[b]) + offset_B[b])


@njit(cache=True, fastmath=FAST)
def sum_of(values):
    """Return the float32 sum of a vector."""
    total = np.float32(0.0)
    for i in range(values.shape[0]):
        total += values[i]
    return total

"""Compute what ``full_softmax`` computes, with bfloat16 products.

Operands are rounded to significands of 8 bits; sums, exponentials and Adam are in float32. The processor's dot product
takes pairs along the summed dimension in one 32-bit word, so each product needs its own packing of the same block.
Products are AMX's where the processor has it, and AVX512_BF16's elsewhere.
Legend: as in ``full_softmax``; X, Y are the rows and columns of a matrix to pack, Z pairs of either.
"""

import numpy as np
from numba import njit, prange

from runner.kernels import amx, products
from runner.kernels.full_softmax import (
    BLOCK,
    DEPTH,
    combine,
    fold,
    fold_and_store,
    load_block,
    probabilities,
    recall,
    shift_of,
    sum_of,
    take_directions,
)
from runner.kernels.groups import CHUNKS, place_of
from runner.kernels.products import COLUMNS, to_bf16
from runner.kernels.rows import FAST, adam_row, carry_to_row
from runner.kernels.target import target

if target().has_amx:
    ROWS, tile, begin_tiles, end_tiles = amx.ROWS, amx.tile_amx, amx.begin_tiles, amx.end_tiles
    # Tiles write whole squares and take whole steps of the summed dimension. No length here may end within one.
    assert ROWS == COLUMNS == amx.COLUMNS == 2 * amx.DEPTH
    assert BLOCK % ROWS == DEPTH % ROWS == 0
else:
    ROWS, tile = products.ROWS, products.tile_bf16

    @njit(cache=True, inline="always")
    def begin_tiles():
        """Do nothing: AVX512_BF16 works on the usual vector registers."""

    @njit(cache=True, inline="always")
    def end_tiles():
        """Do nothing."""


@njit(cache=True, fastmath=FAST)
def _pack_rows(values_XY, words_XZ):
    """Pack neighbours along the second dimension: words[x, z] = (values[x, 2 z], values[x, 2 z + 1])."""
    for x in range(words_XZ.shape[0]):
        for z in range(words_XZ.shape[1]):
            words_XZ[x, z] = to_bf16(values_XY[x, 2 * z]) | (to_bf16(values_XY[x, 2 * z + 1]) << np.uint32(16))


@njit(cache=True, fastmath=FAST)
def _pack_columns(values_XY, words_ZY):
    """Pack neighbours along the first dimension: words[z, y] = (values[2 z, y], values[2 z + 1, y])."""
    for z in range(words_ZY.shape[0]):
        for y in range(words_ZY.shape[1]):
            words_ZY[z, y] = to_bf16(values_XY[2 * z, y]) | (to_bf16(values_XY[2 * z + 1, y]) << np.uint32(16))


@njit(cache=True, fastmath=FAST)
def _pack_columns_as_rows(values_XY, words_YZ):
    """Pack neighbours along the first dimension: words[y, z] = (values[2 z, y], values[2 z + 1, y])."""
    for y in range(words_YZ.shape[0]):
        for z in range(words_YZ.shape[1]):
            words_YZ[y, z] = to_bf16(values_XY[2 * z, y]) | (to_bf16(values_XY[2 * z + 1, y]) << np.uint32(16))


def _hidden_words(hidden_BD: np.ndarray) -> np.ndarray:
    """Return padded hidden states packed along b, (B / 2, D) uint32."""
    words = np.empty((hidden_BD.shape[0] // 2, hidden_BD.shape[1]), dtype=np.uint32)
    _pack_columns(hidden_BD, words)
    return words


def _panel_words(panels: np.ndarray) -> np.ndarray:
    """Return panels packed along d, (B / W, D / 2, W) uint32."""
    num_panels, dim, width = panels.shape
    words = np.empty((num_panels, dim // 2, width), dtype=np.uint32)
    _pack_columns(panels.reshape(-1, width), words.reshape(-1, width))
    return words


def log_partition(
    weights_ND: np.ndarray,
    bias_N1: np.ndarray,
    panels: np.ndarray,
    least_norm: np.float32 | None = None,
    stored_NB: np.ndarray | None = None,
    shift_SB: np.ndarray | None = None,
) -> np.ndarray:
    """Return what ``full_softmax.log_partition`` returns, from bfloat16 products."""
    return _log_partition(weights_ND, bias_N1, _panel_words(panels), least_norm, stored_NB, shift_SB)


@njit(cache=True, parallel=True, fastmath=FAST)
def _log_partition(weights_ND, bias_N1, panels, least_norm, stored_NB, shift_SB):
    num_panels, half_dim, width = panels.shape
    batch = num_panels * width
    classes = weights_ND.shape[0]
    top_XB = np.full((CHUNKS, batch), -np.inf, dtype=np.float32)
    total_XB = np.zeros((CHUNKS, batch), dtype=np.float32)
    for part in prange(CHUNKS):
        block = np.zeros((BLOCK, 2 * half_dim), dtype=np.float32)
        words = np.empty((BLOCK, half_dim), dtype=np.uint32)
        pitch = batch + COLUMNS
        logits = np.empty((BLOCK, pitch), dtype=np.float32)
        if least_norm is not None:
            inverse = np.empty(BLOCK, dtype=np.float32)
        at_words, at_panels, at_logits = words.ctypes.data, panels.ctypes.data, logits.ctypes.data
        first, last = part * classes // CHUNKS, (part + 1) * classes // CHUNKS
        begin_tiles()
        for lo in range(first, last, BLOCK):
            hi = min(lo + BLOCK, last)
            load_block(weights_ND, lo, hi, block)
            if least_norm is not None:
                take_directions(block, hi - lo, least_norm, inverse)
            _pack_rows(block, words)
            for panel in range(num_panels):
                for i in range(0, hi - lo, ROWS):
                    tile(
                        at_words + 4 * i * half_dim, half_dim, 1, at_panels + 4 * panel * half_dim * width, width,
                        half_dim, at_logits + 4 * (i * pitch + panel * width), pitch, False,
                    )  # fmt: skip
            if stored_NB is None:
                fold(logits, bias_N1, lo, hi, top_XB[part], total_XB[part])
            else:
                shift_B = shift_SB[shift_of(part, lo)]
                fold_and_store(logits, bias_N1, lo, hi, top_XB[part], total_XB[part], stored_NB, shift_B)
        end_tiles()
    return combine(top_XB, total_XB)


def gradients_and_adam(
    weights_ND, first_ND, second_ND, bias_N1, bias_first_N1, bias_second_N1, last_step_N, step,
    step_size, beta1, beta2, root, epsilon, rounding,
    hidden_BD, panels, log_partition_B, scale, class_P, row_P, share_P, grad_hidden_BD, least_norm=None,
    stored_NB=None, shift_SB=None, grad_ND=None, bias_grad_N=None,
):  # fmt: skip
    """Do what ``full_softmax.gradients_and_adam`` does, with bfloat16 products."""
    _gradients_and_adam(
        weights_ND, first_ND, second_ND, bias_N1, bias_first_N1, bias_second_N1, last_step_N, step,
        step_size, beta1, beta2, root, epsilon, rounding,
        _hidden_words(hidden_BD), _panel_words(panels), log_partition_B, scale, class_P, row_P, share_P, grad_hidden_BD,
        least_norm, stored_NB, shift_SB, grad_ND, bias_grad_N,
    )  # fmt: skip


@njit(cache=True, parallel=True, fastmath=FAST)
def _gradients_and_adam(
    weights_ND, first_ND, second_ND, bias_N1, bias_first_N1, bias_second_N1, last_step_N, step,
    step_size, beta1, beta2, root, epsilon, rounding,
    hidden_words, panels, log_partition_B, scale, class_P, row_P, share_P, grad_hidden_BD, least_norm,
    stored_NB, shift_SB, grad_ND, bias_grad_N,
):  # fmt: skip
    num_panels, half_dim, width = panels.shape
    dim, batch = 2 * half_dim, num_panels * width
    classes = weights_ND.shape[0]
    partial = np.zeros((CHUNKS, dim, batch), dtype=np.float32)
    for part in prange(CHUNKS):
        block = np.zeros((BLOCK, dim), dtype=np.float32)
        block_along_d = np.empty((BLOCK, half_dim), dtype=np.uint32)
        block_along_c = np.empty((dim, BLOCK // 2), dtype=np.uint32)
        pitch = batch + COLUMNS
        grad = np.zeros((BLOCK, pitch), dtype=np.float32)
        grad_along_b = np.empty((BLOCK, pitch // 2), dtype=np.uint32)
        grad_along_c = np.empty((BLOCK // 2, pitch), dtype=np.uint32)
        grad_block = np.empty((BLOCK, dim), dtype=np.float32)
        bias_grad = np.empty(1, dtype=np.float32)
        if least_norm is not None:
            inverse = np.empty(BLOCK, dtype=np.float32)
        at_panels, at_hidden, at_partial = panels.ctypes.data, hidden_words.ctypes.data, partial[part].ctypes.data
        at_block_along_d, at_block_along_c = block_along_d.ctypes.data, block_along_c.ctypes.data
        at_grad_along_b, at_grad_along_c = grad_along_b.ctypes.data, grad_along_c.ctypes.data
        at_grad, at_grad_block = grad.ctypes.data, grad_block.ctypes.data
        first, last = part * classes // CHUNKS, (part + 1) * classes // CHUNKS
        pair = place_of(first, class_P, 0, class_P.shape[0])
        begin_tiles()
        for lo in range(first, last, BLOCK):
            hi = min(lo + BLOCK, last)
            size = (hi - lo + ROWS - 1) // ROWS * ROWS
            load_block(weights_ND, lo, hi, block)
            if least_norm is not None:
                take_directions(block, hi - lo, least_norm, inverse)
            _pack_columns_as_rows(block, block_along_c)
            if stored_NB is None:
                _pack_rows(block, block_along_d)
                for panel in range(num_panels):
                    for i in range(0, size, ROWS):
                        tile(
                            at_block_along_d + 4 * i * half_dim, half_dim, 1, at_panels + 4 * panel * half_dim * width,
                            width, half_dim, at_grad + 4 * (i * pitch + panel * width), pitch, False,
                        )  # fmt: skip
                for i in range(hi - lo):
                    probabilities(grad[i, :batch], bias_N1[lo + i, 0], log_partition_B, scale)
            else:
                recall(stored_NB, lo, hi, shift_SB[shift_of(part, lo)], log_partition_B, scale, grad)
            grad[hi - lo : size] = np.float32(0.0)
            while pair < class_P.shape[0] and class_P[pair] < hi:
                grad[class_P[pair] - lo, row_P[pair]] -= share_P[pair]
                pair += 1
            _pack_rows(grad[:size], grad_along_b[:size])
            _pack_columns(grad[:size], grad_along_c[: size // 2])
            for b in range(0, batch, DEPTH):
                for k in range(0, dim, COLUMNS):
                    for i in range(0, size, ROWS):
                        tile(
                            at_grad_along_b + 4 * (i * pitch + b) // 2, pitch // 2, 1,
                            at_hidden + 4 * (b // 2 * dim + k), dim, min(DEPTH, batch - b) // 2,
                            at_grad_block + 4 * (i * dim + k), dim, b > 0,
                        )  # fmt: skip
            for k in range(0, dim, ROWS):
                for b in range(0, batch, COLUMNS):
                    tile(
                        at_block_along_c + 4 * (k * BLOCK // 2), BLOCK // 2, 1, at_grad_along_c + 4 * b, pitch,
                        size // 2, at_partial + 4 * (k * batch + b), batch, True,
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
        end_tiles()
    for k in prange(grad_hidden_BD.shape[1]):
        total_B = np.empty(grad_hidden_BD.shape[0], dtype=np.float32)
        for b in range(total_B.shape[0]):
            total_B[b] = grad_hidden_BD[b, k]
        for part in range(CHUNKS):
            for b in range(total_B.shape[0]):
                total_B[b] += partial[part, k, b]
        for b in range(total_B.shape[0]):
            grad_hidden_BD[b, k] = total_B[b]

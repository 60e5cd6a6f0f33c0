"""Compute the three products with candidates that the whole batch shares, from register tiles.

Legend: B rows of the batch, D hidden size, M shared candidates, W columns of a tile, N classes, X rows of any matrix or
parts of a sum. In docstrings, a prime means padded to whole tiles with zeros: B', M', D', X'. Every element is summed
in one fixed order, so results have the same bits for any number of threads.
"""

import numpy as np
from numba import njit, prange

from runner.kernels.groups import CHUNKS, PRANGE
from runner.kernels.products import COLUMNS, ROWS, WHOLE, round_up, tile_float32
from runner.kernels.rows import FAST, inverse_norm, scale_row

_DEPTH = 128  # terms summed at a time, so that one factor stays in the cache while the other is read
_SLACK = COLUMNS  # rows a power of two apart would share a few sets of the cache


def padded_size(size: int) -> int:
    """Round a number of rows or candidates up to whole tiles, of which they are both rows and columns."""
    return round_up(size, WHOLE)


def padded_dim(dim: int) -> int:
    """Round a hidden size up to whole tiles, of which it is only columns."""
    return round_up(dim, COLUMNS)


def pitch(num_candidates: int) -> int:
    """Return the distance between rows of a (B', M') matrix of logits or gradients, in elements."""
    return padded_size(num_candidates) + _SLACK


def padded_rows(values_XD: np.ndarray) -> np.ndarray:
    """Return a copy of the matrix padded with zeros to (X', D') float32."""
    out = np.zeros((padded_size(values_XD.shape[0]), padded_dim(values_XD.shape[1])), dtype=np.float32)
    out[: values_XD.shape[0], : values_XD.shape[1]] = values_XD
    return out


@njit(cache=True, parallel=PRANGE, fastmath=FAST)
def gather_candidates(weights_ND, ids_M, rows_MD, panels, least_norm=None):
    """Write the candidates' class vectors to ``rows_MD``, (M', D'), and as columns to ``panels``, (M' / W, D', W).

    Padding is zero. For ``least_norm`` see ``kernels.rows``.
    """
    num_panels, dim, width = panels.shape
    for panel in prange(num_panels):
        for w in range(width):
            m = panel * width + w
            for k in range(dim):
                rows_MD[m, k] = np.float32(0.0)
            if m < ids_M.shape[0]:
                for k in range(weights_ND.shape[1]):
                    rows_MD[m, k] = weights_ND[ids_M[m], k]
            if least_norm is not None:
                scale_row(rows_MD, m, inverse_norm(rows_MD, m, least_norm))
        for k in range(dim):
            for w in range(width):
                panels[panel, k, w] = rows_MD[panel * width + w, k]


@njit(cache=True, parallel=PRANGE)
def logits(hidden_BD, panels, bias_M, logits_BM):
    """Write logits[b, m] = hidden[b] . candidate[m] + bias[m], (B', M')."""
    batch, dim = hidden_BD.shape
    num_panels, _, width = panels.shape
    pitch = logits_BM.shape[1]
    at_hidden, at_panels, at_logits = hidden_BD.ctypes.data, panels.ctypes.data, logits_BM.ctypes.data
    padded_bias = np.empty(num_panels * width, dtype=np.float32)
    for m in range(padded_bias.shape[0]):
        padded_bias[m] = bias_M[m] if m < bias_M.shape[0] else np.float32(0.0)
    for panel in prange(num_panels):
        at_panel = at_panels + 4 * panel * dim * width
        for b in range(0, batch, ROWS):
            for row in range(b, b + ROWS):
                for w in range(COLUMNS):
                    logits_BM[row, panel * COLUMNS + w] = padded_bias[panel * COLUMNS + w]
            tile_float32(
                at_hidden + 4 * b * dim, dim, 1, at_panel, width, dim, at_logits + 4 * (b * pitch + panel * width),
                pitch, True,
            )  # fmt: skip


@njit(cache=True, parallel=PRANGE)
def grad_candidates(grad_BM, hidden_BD, grad_MD):
    """Write the candidates' gradients, grad[m] = sum_b grad[b, m] hidden[b], (M', D')."""
    candidates, dim = grad_MD.shape
    batch, pitch = hidden_BD.shape[0], grad_BM.shape[1]
    at_grad, at_hidden, at_out = grad_BM.ctypes.data, hidden_BD.ctypes.data, grad_MD.ctypes.data
    for strip in prange(candidates // WHOLE):
        for b in range(0, batch, _DEPTH):
            for m in range(strip * WHOLE, (strip + 1) * WHOLE, ROWS):
                for k in range(0, dim, COLUMNS):
                    tile_float32(
                        at_grad + 4 * (b * pitch + m), 1, pitch, at_hidden + 4 * (b * dim + k), dim,
                        min(_DEPTH, batch - b), at_out + 4 * (m * dim + k), dim, b > 0,
                    )  # fmt: skip


@njit(cache=True, parallel=PRANGE)
def grad_hidden(grad_BM, rows_MD, grad_BD):
    """Write the hidden states' gradients, grad[b] = sum_m grad[b, m] candidate[m], (B', D')."""
    batch, dim = grad_BD.shape
    candidates, pitch = rows_MD.shape[0], grad_BM.shape[1]
    at_grad, at_rows, at_out = grad_BM.ctypes.data, rows_MD.ctypes.data, grad_BD.ctypes.data
    for strip in prange(batch // WHOLE):
        for m in range(0, candidates, _DEPTH):
            for b in range(strip * WHOLE, (strip + 1) * WHOLE, ROWS):
                for k in range(0, dim, COLUMNS):
                    tile_float32(
                        at_grad + 4 * (b * pitch + m), pitch, 1, at_rows + 4 * (m * dim + k), dim,
                        min(_DEPTH, candidates - m), at_out + 4 * (b * dim + k), dim, m > 0,
                    )  # fmt: skip


@njit(cache=True, parallel=PRANGE)
def clear_padding(grad_BM, batch, candidates, end):
    """Set the padding of a gradient matrix to zero: rows from ``batch`` on, columns from ``candidates`` to ``end``."""
    for row in prange(grad_BM.shape[0]):
        for m in range(candidates if row < batch else 0, end):
            grad_BM[row, m] = np.float32(0.0)


@njit(cache=True, fastmath=FAST)
def _add(values, sums):
    for i in range(sums.shape[0]):
        sums[i] += values[i]


@njit(cache=True, parallel=PRANGE)
def double_column_sums(rows_RD, sums_D):
    """Write sums[d] = sum_r rows[r, d] in float64.

    Whoever adds up rows in another order, or parts of them, gets the same float32 numbers but for the rarest cases.
    """
    rows = rows_RD.shape[0]
    partial_XD = np.zeros((CHUNKS, sums_D.shape[0]), dtype=np.float64)
    for part in prange(CHUNKS):
        for r in range(part * rows // CHUNKS, (part + 1) * rows // CHUNKS):
            for d in range(sums_D.shape[0]):
                partial_XD[part, d] += rows_RD[r, d]
    for d in range(sums_D.shape[0]):
        sums_D[d] = 0.0
    for part in range(CHUNKS):
        for d in range(sums_D.shape[0]):
            sums_D[d] += partial_XD[part, d]


@njit(cache=True, parallel=PRANGE)
def column_sums(grad_BM, sums_M):
    """Write sums[m] = sum_b grad[b, m] of the first M columns, summed in a fixed order."""
    batch = grad_BM.shape[0]
    partial_XM = np.zeros((CHUNKS, sums_M.shape[0]), dtype=np.float32)
    for part in prange(CHUNKS):
        for b in range(part * batch // CHUNKS, (part + 1) * batch // CHUNKS):
            _add(grad_BM[b], partial_XM[part])
    for m in range(sums_M.shape[0]):
        sums_M[m] = np.float32(0.0)
    for part in range(CHUNKS):
        _add(partial_XM[part], sums_M)

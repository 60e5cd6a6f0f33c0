"""Find the nearest pair of codewords for every row of a large matrix.

Legend: N rows (classes), D columns, C codewords of a codebook, 2 the two codebooks, K columns of a block of products:
those of the first codebook, padded to whole tiles, then those of the second.
Each row is computed independently, so results have the same bits for any number of threads.
"""

import numpy as np
from numba import njit, prange

from runner.kernels.full_softmax import load_block
from runner.kernels.groups import CHUNKS
from runner.kernels.products import COLUMNS, ROWS, round_up, tile_float32
from runner.kernels.rows import FAST

_BLOCK = round_up(64, ROWS)  # rows at a time: these and their products fit in the first- and second-level caches


def panels_of(codebooks_2CD: np.ndarray) -> np.ndarray:
    """Return both codebooks as panels of columns, (2 P, D, W) float32.

    W is the width of a tile; each codebook is padded with zeros to P panels.
    """
    codewords, dim = codebooks_2CD.shape[1:]
    padded = np.zeros((2, round_up(codewords, COLUMNS), dim), dtype=np.float32)
    padded[:, :codewords] = codebooks_2CD
    return np.ascontiguousarray(padded.reshape(-1, COLUMNS, dim).transpose(0, 2, 1))


@njit(cache=True, parallel=True, fastmath=FAST)
def squared_norms(values_ND):
    """Return the sum of squares of each row, (N,) float32."""
    rows = values_ND.shape[0]
    norm_N = np.empty(rows, dtype=np.float32)
    for part in prange(CHUNKS):
        for row in range(part * rows // CHUNKS, (part + 1) * rows // CHUNKS):
            total = np.float32(0.0)
            for k in range(values_ND.shape[1]):
                total += values_ND[row, k] * values_ND[row, k]
            norm_N[row] = total
    return norm_N


@njit(cache=True, fastmath=FAST)
def _distances(product_K, offset, norm_C, out_C):
    """Write out[c] = |codeword|^2 - 2 row . codeword: the squared distance minus the row's squared norm."""
    for c in range(out_C.shape[0]):
        out_C[c] = norm_C[c] - np.float32(2.0) * product_K[offset + c]


@njit(cache=True)
def _argmin(values_C):
    """Return the index of the smallest value; of equal values, the first index."""
    best, place = values_C[0], 0
    for c in range(1, values_C.shape[0]):
        if values_C[c] < best:
            best, place = values_C[c], c
    return place


@njit(cache=True, fastmath=FAST)
def _add_twice(a_C, b_C, out_C):
    for c in range(out_C.shape[0]):
        out_C[c] = a_C[c] + np.float32(2.0) * b_C[c]


@njit(cache=True, parallel=True)
def nearest_pairs(values_ND, norm_N, panels, norm_2C, cross_CC, beam, codes_2N, error_N):
    """Find for each row the codewords (k1, k2) with the smallest |row - first[k1] - second[k2]|^2.

    Writes the codewords to ``codes_2N`` and the squared error to ``error_N``. ``norm_N`` and ``norm_2C`` are the
    squared norms of rows and codewords, ``panels`` comes from ``panels_of``.

    The kernel tries the ``beam`` first codewords nearest to the row, each with all second codewords. The error of a
    pair is the sum of its two distances plus twice the inner product of its codewords, ``cross_CC`` (first, second).
    beam = 1 is greedy, which is exact where all inner products are 0 (product quantisation); beam = C is always exact.
    """
    num_panels, dim, width = panels.shape
    codewords = cross_CC.shape[0]
    rows = values_ND.shape[0]
    pitch = num_panels * width + COLUMNS
    second = num_panels // 2 * width
    at_panels = panels.ctypes.data
    for part in prange(CHUNKS):
        block = np.zeros((_BLOCK, dim), dtype=np.float32)
        product = np.empty((_BLOCK, pitch), dtype=np.float32)
        distance_1 = np.empty(codewords, dtype=np.float32)
        distance_2 = np.empty(codewords, dtype=np.float32)
        joint = np.empty(codewords, dtype=np.float32)
        at_block, at_product = block.ctypes.data, product.ctypes.data
        first, last = part * rows // CHUNKS, (part + 1) * rows // CHUNKS
        for lo in range(first, last, _BLOCK):
            hi = min(lo + _BLOCK, last)
            load_block(values_ND, lo, hi, block)
            for panel in range(num_panels):
                for i in range(0, hi - lo, ROWS):
                    tile_float32(
                        at_block + 4 * i * dim, dim, 1, at_panels + 4 * panel * dim * width, width, dim,
                        at_product + 4 * (i * pitch + panel * width), pitch, False,
                    )  # fmt: skip
            for i in range(hi - lo):
                _distances(product[i], 0, norm_2C[0], distance_1)
                _distances(product[i], second, norm_2C[1], distance_2)
                least = np.float32(np.inf)
                best_1, best_2 = 0, 0
                for _ in range(beam):
                    k1 = _argmin(distance_1)
                    _add_twice(distance_2, cross_CC[k1], joint)
                    k2 = _argmin(joint)
                    here = distance_1[k1] + joint[k2]
                    if here < least:
                        least, best_1, best_2 = here, k1, k2
                    distance_1[k1] = np.inf
                codes_2N[0, lo + i] = best_1
                codes_2N[1, lo + i] = best_2
                error_N[lo + i] = max(np.float32(0.0), norm_N[lo + i] + least)

"""SimHash: the signs of random projections, computed by fast Hadamard transforms.

P[h(x) = h(y)] = 1 - angle(x, y) / pi for one bit (Goemans & Williamson 1995; Charikar 2002), so a table of K
bits collides with probability alpha^K. Projections are rows of (H D)^3, D random signs and H the normalised
Hadamard matrix: three rounds make each row nearly a Gaussian direction even for one-hot vectors
(Andoni et al. 2015, "Practical and Optimal LSH for Angular Distance"), at O(d log d) for d projections.
"""

import numpy as np
from numba import njit, prange

from runner import rng
from runner.errors import require
from runner.kernels.groups import CHUNKS

_ROUNDS = 3
_LANES = 16
_FAST = {"reassoc", "contract", "arcp", "nsz"}


@njit(cache=True, inline="always", fastmath=_FAST)
def _hadamard(x):
    """In-place Walsh-Hadamard transform (unnormalised) along W of a flattened (W, lanes) array, W a power of two."""
    half = _LANES
    while half < x.shape[0]:
        for base in range(0, x.shape[0], 2 * half):
            low, high = x[base : base + half], x[base + half : base + 2 * half]
            for i in range(half):
                a, b = low[i], high[i]
                low[i] = a + b
                high[i] = a - b
        half *= 2


@njit(cache=True, parallel=True, fastmath=_FAST)
def _simhash(vectors, rows, shift, signs, bits, codes):
    """codes[t, i] = K sign bits of table t for vectors[rows[i]] - shift.

    Vectors are hashed a few at a time, one to a lane, so that every butterfly is one vector instruction.
    """
    tables, num_rows = codes.shape
    blocks, rounds, width = signs.shape
    columns = vectors.shape[1]
    groups = (num_rows + _LANES - 1) // _LANES
    for part in prange(CHUNKS):
        x = np.empty(width * _LANES, dtype=np.float32)
        projections = np.empty(blocks * width * _LANES, dtype=np.float32)
        code_L = np.empty(_LANES, dtype=np.int32)
        for group in range(part * groups // CHUNKS, (part + 1) * groups // CHUNKS):
            first = group * _LANES
            lanes = min(_LANES, num_rows - first)
            for block in range(blocks):
                x[:] = np.float32(0.0)
                for lane in range(lanes):
                    for k in range(columns):
                        x[k * _LANES + lane] = vectors[rows[first + lane], k] - shift[k]
                for turn in range(rounds):
                    for k in range(width):
                        sign = signs[block, turn, k]
                        for lane in range(_LANES):
                            x[k * _LANES + lane] *= sign
                    _hadamard(x)
                projections[block * width * _LANES : (block + 1) * width * _LANES] = x
            position = 0
            for table in range(tables):
                code_L[:] = 0
                for _ in range(bits):
                    for lane in range(_LANES):
                        code_L[lane] = 2 * code_L[lane] + (1 if projections[position + lane] > np.float32(0.0) else 0)
                    position += _LANES
                for lane in range(lanes):
                    codes[table, first + lane] = code_L[lane]


class SimHash:
    """K x L sign bits. ``code_bits`` = K; ``hash(vectors_RD, rows_U, shift_D)`` -> codes (L, U) uint32."""

    @staticmethod
    def check(K: int, bin_size: int) -> None:
        """ConfigError unless a table of K bits can be built."""
        require(1 <= K <= 24, "sampler.K must lie in [1, 24] for simhash (2^K buckets a table)")

    def __init__(self, *, dim: int, K: int, L: int, seed: int, bin_size: int = 0) -> None:
        self.check(K, bin_size)
        self.K, self.L = K, L
        self.code_bits = K
        width = 1 << max(3, (dim - 1).bit_length())
        blocks = -(-K * L // width)
        flips = rng.generator(seed, rng.HASH).integers(0, 2, size=(blocks, _ROUNDS, width))
        self._signs = (2 * flips - 1).astype(np.float32)

    def hash(self, vectors_RD: np.ndarray, rows_U: np.ndarray, shift_D: np.ndarray | None = None) -> np.ndarray:
        """Codes of the given rows, each minus ``shift_D`` (default 0)."""
        shift = np.zeros(vectors_RD.shape[1], dtype=np.float32) if shift_D is None else shift_D
        codes = np.empty((self.L, len(rows_U)), dtype=np.uint32)
        _simhash(vectors_RD, rows_U, shift, self._signs, self.K, codes)
        return codes

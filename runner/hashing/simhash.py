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
_FAST = {"reassoc", "contract", "arcp", "nsz"}


@njit(cache=True, inline="always", fastmath=_FAST)
def _hadamard(x):
    """In-place Walsh-Hadamard transform of a vector whose length is a power of two (unnormalised)."""
    half = 1
    while half < x.shape[0]:
        for base in range(0, x.shape[0], 2 * half):
            for i in range(base, base + half):
                a, b = x[i], x[i + half]
                x[i] = a + b
                x[i + half] = a - b
        half *= 2


@njit(cache=True, parallel=True, fastmath=_FAST)
def _simhash(vectors, rows, signs, bits, codes):
    """codes[t, i] = K sign bits of table t for vectors[rows[i]]; columns i are rows of the caller's choice."""
    tables = codes.shape[0]
    blocks, rounds, width = signs.shape
    columns = vectors.shape[1]
    for part in prange(CHUNKS):
        lo, hi = part * rows.shape[0] // CHUNKS, (part + 1) * rows.shape[0] // CHUNKS
        x = np.empty(width, dtype=np.float32)
        projections = np.empty(blocks * width, dtype=np.float32)
        for i in range(lo, hi):
            row = rows[i]
            for block in range(blocks):
                x[:columns] = vectors[row]
                x[columns:] = np.float32(0.0)
                for turn in range(rounds):
                    for k in range(width):
                        x[k] *= signs[block, turn, k]
                    _hadamard(x)
                projections[block * width : (block + 1) * width] = x
            position = 0
            for table in range(tables):
                code = 0
                for _ in range(bits):
                    code = 2 * code + (1 if projections[position] > np.float32(0.0) else 0)
                    position += 1
                codes[table, i] = code


class SimHash:
    """K x L sign bits. ``code_bits`` = K; ``hash(vectors_RD, rows_U)`` -> codes (L, U) uint32."""

    def __init__(self, *, dim: int, K: int, L: int, seed: int, bin_size: int = 0) -> None:
        require(1 <= K <= 24, "sampler.K must lie in [1, 24] for simhash (2^K buckets a table)")
        self.K, self.L = K, L
        self.code_bits = K
        width = 1 << max(3, (dim - 1).bit_length())
        blocks = -(-K * L // width)
        flips = rng.generator(seed, rng.HASH).integers(0, 2, size=(blocks, _ROUNDS, width))
        self._signs = (2 * flips - 1).astype(np.float32)

    def hash(self, vectors_RD: np.ndarray, rows_U: np.ndarray) -> np.ndarray:
        codes = np.empty((self.L, len(rows_U)), dtype=np.uint32)
        _simhash(vectors_RD, rows_U, self._signs, self.K, codes)
        return codes

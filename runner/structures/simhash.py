"""Hash vectors by the signs of random projections (SimHash), computed by fast Hadamard transforms.

For one bit, P[h(x) = h(y)] = 1 - angle(x, y) / pi = alpha (Goemans & Williamson 1995; Charikar 2002). So two vectors
collide in a table of K bits with probability alpha^K. Projections are rows of (M S)^3, where S are random signs and M
is the normalised Hadamard matrix. Three rounds make each row nearly a Gaussian direction, even for one-hot vectors
(Andoni et al. 2015, "Practical and Optimal LSH for Angular Distance"), at O(d log d) for d projections.

Legend: R vectors, D their size, U chosen rows; the setting ``L`` is the number of tables.
"""

import numpy as np
from numba import njit, prange

from runner import rng
from runner.errors import require
from runner.kernels.groups import CHUNKS, PRANGE
from runner.kernels.hadamard import LANES, hadamard, multiply, width_for

_ROUNDS = 3
_FAST = {"reassoc", "contract", "arcp", "nsz"}


@njit(cache=True, inline="always")
def _append_bit(projections, code):
    for lane in range(code.shape[0]):
        code[lane] = 2 * code[lane] + np.int32(projections[lane] > np.float32(0.0))


@njit(cache=True, inline="always")
def _load(vectors, rows, shift, first, lanes, x):
    """Load rows minus the shift, one to a lane; unused lanes and coordinates are zero."""
    if lanes < LANES or vectors.shape[1] * LANES < x.shape[0]:
        for k in range(x.shape[0]):
            x[k] = np.float32(0.0)
    for lane in range(lanes):
        row = rows[first + lane]
        for k in range(vectors.shape[1]):
            x[k * LANES + lane] = vectors[row, k] - shift[k]


@njit(cache=True, parallel=PRANGE, fastmath=_FAST)
def _simhash(vectors, rows, shift, signs, bits, codes):
    """Set codes[t, i] to the K sign bits of table t for vectors[rows[i]] - shift.

    Vectors are hashed a few at a time, one to a lane, so that every butterfly is one vector instruction. ``signs``
    (blocks, rounds, width * LANES) has each sign once per lane.
    """
    tables, num_rows = codes.shape
    blocks, rounds, size = signs.shape
    groups = (num_rows + LANES - 1) // LANES
    for part in prange(CHUNKS):
        x = np.empty(size, dtype=np.float32)
        projections = np.empty(blocks * size, dtype=np.float32)
        lane_codes = np.empty(LANES, dtype=np.int32)
        for group in range(part * groups // CHUNKS, (part + 1) * groups // CHUNKS):
            first = group * LANES
            lanes = min(LANES, num_rows - first)
            _load(vectors, rows, shift, first, lanes, x)
            for block in range(blocks):
                y = projections[block * size : (block + 1) * size]
                for k in range(size):
                    y[k] = x[k]
                for turn in range(rounds):
                    multiply(y, signs[block, turn])
                    hadamard(y)
            position = 0
            for table in range(tables):
                for lane in range(LANES):
                    lane_codes[lane] = 0
                for _ in range(bits):
                    _append_bit(projections[position : position + LANES], lane_codes)
                    position += LANES
                for lane in range(lanes):
                    codes[table, first + lane] = lane_codes[lane]


@njit(cache=True, fastmath=_FAST)
def codes_of_one(vector, flips, bits, codes):
    """Set codes[t] to the ``bits`` sign bits of table t for one vector (D,), as ``SimHash.hash`` does for many.

    ``flips``: the random signs, (blocks, rounds, width) float32.
    """
    blocks, rounds, width = flips.shape
    y = np.empty(width, dtype=np.float32)
    position, table = 0, 0
    code = np.int64(0)
    for block in range(blocks):
        for k in range(width):
            y[k] = vector[k] if k < vector.shape[0] else np.float32(0.0)
        for turn in range(rounds):
            multiply(y, flips[block, turn])
            half = 1
            while half < width:
                for base in range(0, width, 2 * half):
                    low, high = y[base : base + half], y[base + half : base + 2 * half]
                    for i in range(half):
                        a, b = low[i], high[i]
                        low[i] = a + b
                        high[i] = a - b
                half *= 2
        for k in range(width):
            code = 2 * code + np.int64(y[k] > np.float32(0.0))
            position += 1
            if position == bits:
                codes[table] = code
                position, code, table = 0, np.int64(0), table + 1
                if table == codes.shape[0]:
                    return


class SimHash:
    """Hash vectors to K sign bits for each of L tables; ``code_bits`` is K."""

    @staticmethod
    def check(K: int, bin_size: int) -> None:
        """Raise ConfigError unless a table of K bits can be built."""
        require(1 <= K <= 24, "sampler.K must lie in [1, 24] for simhash (2^K buckets a table)")

    def __init__(self, *, dim: int, K: int, L: int, seed: int, bin_size: int = 0) -> None:
        self.check(K, bin_size)
        self.K, self.L = K, L
        self.code_bits = K
        width = width_for(dim)
        blocks = -(-K * L // width)
        flips = rng.generator(seed, rng.HASH).integers(0, 2, size=(blocks, _ROUNDS, width))
        self.flips = (2 * flips - 1).astype(np.float32)
        self._signs = np.repeat(self.flips, LANES, axis=2)

    def hash(
        self,
        vectors_RD: np.ndarray,
        rows_U: np.ndarray,
        shift_D: np.ndarray | None = None,
        out: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return the codes (L, U) of the given rows, each minus ``shift_D`` (None: 0).

        They are written to ``out`` if it is given, else to a new uint32 array.
        """
        shift = np.zeros(vectors_RD.shape[1], dtype=np.float32) if shift_D is None else shift_D
        codes = np.empty((self.L, len(rows_U)), dtype=np.uint32) if out is None else out
        _simhash(vectors_RD, rows_U, shift, self._signs, self.K, codes)
        return codes

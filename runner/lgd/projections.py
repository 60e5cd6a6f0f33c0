"""Hash vectors by the signs of random projections, on demand for one table or in bulk for all.

Three kinds of projections:

- ``gaussian``: dense normal entries. For one bit P[h(x) = h(y)] = 1 - angle(x, y) / pi holds exactly (Goemans &
  Williamson 1995), and one table of one query costs K inner products.
- ``sparse``: entries are 0 but for a share ``density``, which are +-1 with equal odds (Li, Hastie & Church 2006;
  density 1 / 30 in the LGD paper, section 2.2). They cost less; the law above holds only for vectors that are spread
  over many coordinates. A projection that misses every coordinate of a vector gives bit 0.
- ``hadamard``: three rounds of random signs and Hadamard transforms (``simhash``), whose projections come by the block,
  so that a query is hashed for all tables at once.

``quadratic`` hashes T(v) = v x v (all products of two coordinates) by sparse projections without making T(v): a bit is
the sign of a sum over drawn pairs (j, k) of +- v_j v_k (LGD paper, section 2.1). T(x) . T(y) = (x . y)^2, so that a
vector and its negative collide, and the cosine in the law is squared.

Legend: X vectors, D their size, L tables, K bits of a table, J drawn entries of a projection.
"""

from typing import Literal, NamedTuple

import numpy as np
from numba import njit, prange

from runner import rng
from runner.kernels.dense import gather_candidates, logits, padded_dim, padded_size, pitch
from runner.kernels.groups import CHUNKS, PRANGE
from runner.kernels.products import COLUMNS
from runner.structures.simhash import SimHash, codes_of_one

Kind = Literal["gaussian", "sparse", "hadamard"]
GAUSSIAN, SPARSE, QUADRATIC, HADAMARD = range(4)
MOST_BITS = 16
_BLOCK = 4096  # vectors that are hashed at a time, so that their products stay in the cache
_FAST = {"reassoc", "contract", "arcp", "nsz"}


class Projections(NamedTuple):
    """Hold the projections of all tables in the form that kernels read; arrays of other kinds are empty.

    ``kind``: GAUSSIAN, SPARSE, QUADRATIC or HADAMARD. ``dense`` (L, K, D) float32: normal entries. Drawn entries of a
    sparse projection: ``entries`` (L, K) int32 of them, at ``first`` (and ``second``, for pairs) (L, K, J) int32, with
    ``sign`` (L, K, J) float32. ``flips`` (blocks, rounds, width) float32: the random signs of Hadamard projections.
    """

    kind: int
    dense: np.ndarray
    entries: np.ndarray
    first: np.ndarray
    second: np.ndarray
    sign: np.ndarray
    flips: np.ndarray


@njit(cache=True, inline="always", fastmath=_FAST)
def dot(a, b):
    """Return the inner product of two float32 vectors of the same length."""
    total = np.float32(0.0)
    for k in range(a.shape[0]):
        total += a[k] * b[k]
    return total


@njit(cache=True, inline="always")
def code_in(projections, vector, table):
    """Return the K sign bits of a vector (D,) in one table; not for Hadamard projections."""
    code = 0
    if projections.kind == GAUSSIAN:
        for bit in range(projections.dense.shape[1]):
            code = 2 * code + np.int64(dot(projections.dense[table, bit], vector) > np.float32(0.0))
        return code
    first, second, sign = projections.first[table], projections.second[table], projections.sign[table]
    for bit in range(first.shape[0]):
        total = np.float32(0.0)
        if projections.kind == SPARSE:
            for j in range(projections.entries[table, bit]):
                total += sign[bit, j] * vector[first[bit, j]]
        else:
            for j in range(projections.entries[table, bit]):
                total += sign[bit, j] * vector[first[bit, j]] * vector[second[bit, j]]
        code = 2 * code + np.int64(total > np.float32(0.0))
    return code


@njit(cache=True, fastmath=_FAST)
def codes_in_all(projections, vector, bits, codes):
    """Set codes[t] to the K = ``bits`` sign bits of a vector (D,) in every table t, for projections of any kind."""
    if projections.kind == HADAMARD:
        codes_of_one(vector, projections.flips, bits, codes)
        return
    for table in range(codes.shape[0]):
        codes[table] = code_in(projections, vector, table)


@njit(cache=True, parallel=PRANGE)
def _pack(products, bits, first, end, codes):
    """Set codes[t, first + i] to the signs of products[i, t * bits : (t + 1) * bits], for the codes below ``end``.

    Whole codes are given, because a part of them would be another type, for which all would be compiled again.
    """
    tables, count = codes.shape[0], end - first
    for part in prange(CHUNKS):
        for i in range(part * count // CHUNKS, (part + 1) * count // CHUNKS):
            for table in range(tables):
                code = 0
                for bit in range(table * bits, (table + 1) * bits):
                    code = 2 * code + np.int64(products[i, bit] > np.float32(0.0))
                codes[table, first + i] = code


def _hash_dense(dense_LKD: np.ndarray, vectors_XD: np.ndarray, codes_LX: np.ndarray) -> None:
    """Set the codes of all vectors under dense projections, as products of blocks with all projections at once."""
    tables, bits, dim = dense_LKD.shape
    matrix = dense_LKD.reshape(tables * bits, dim)
    rows = np.empty((padded_size(len(matrix)), padded_dim(dim)), dtype=np.float32)
    panels = np.empty((len(rows) // COLUMNS, rows.shape[1], COLUMNS), dtype=np.float32)
    gather_candidates(matrix, np.arange(len(matrix), dtype=np.int32), rows, panels, None)
    block = np.zeros((padded_size(min(_BLOCK, len(vectors_XD))), rows.shape[1]), dtype=np.float32)
    products = np.empty((len(block), pitch(len(matrix))), dtype=np.float32)
    no_bias = np.zeros(0, dtype=np.float32)
    for begin in range(0, len(vectors_XD), _BLOCK):
        here = vectors_XD[begin : begin + _BLOCK]
        block[: len(here), :dim] = here
        logits(block, panels, no_bias, products)
        _pack(products, bits, begin, begin + len(here), codes_LX)


@njit(cache=True, parallel=PRANGE, fastmath=_FAST)
def _hash_all(projections, vectors, codes):
    """Set codes[t, i] to the code of vectors[i] in table t, for sparse projections."""
    tables, count = codes.shape
    for part in prange(CHUNKS):
        for i in range(part * count // CHUNKS, (part + 1) * count // CHUNKS):
            for table in range(tables):
                codes[table, i] = code_in(projections, vectors[i], table)


def _none(dtype: type, dimensions: int) -> np.ndarray:
    return np.zeros((0,) * dimensions, dtype=dtype)


class SignProjections:
    """Hash vectors of size ``dim`` to K bits in each of L tables. ``density`` matters to sparse projections only."""

    def __init__(
        self, *, dim: int, K: int, L: int, seed: int, kind: Kind, density: float = 1 / 30, quadratic: bool = False
    ) -> None:
        self.K, self.L, self.code_bits = K, L, K
        self._simhash = SimHash(dim=dim, K=K, L=L, seed=seed) if kind == "hadamard" else None
        generator = rng.generator(seed, rng.HASH)
        dense = _none(np.float32, 3)
        count, first, second, sign = _none(np.int32, 2), _none(np.int32, 3), _none(np.int32, 3), _none(np.float32, 3)
        number = HADAMARD
        if kind == "gaussian":
            number = GAUSSIAN
            dense = generator.standard_normal((L, K, dim), dtype=np.float32)
        elif kind == "sparse":
            number = QUADRATIC if quadratic else SPARSE
            places = dim * dim if quadratic else dim
            # A projection without any entry would put all vectors into one bucket.
            count = np.maximum(generator.binomial(places, density, (L, K)), 1).astype(np.int32)
            flat = np.zeros((L, K, count.max()), dtype=np.int64)
            for table in range(L):
                for bit in range(K):
                    drawn = generator.choice(places, count[table, bit], replace=False)
                    flat[table, bit, : len(drawn)] = np.sort(drawn)
            first = (flat // dim if quadratic else flat).astype(np.int32)
            second = (flat % dim).astype(np.int32)
            sign = np.where(generator.random(flat.shape) < 0.5, -1, 1).astype(np.float32)
        flips = _none(np.float32, 3) if self._simhash is None else self._simhash.flips
        self.arrays = Projections(number, dense, count, first, second, sign, flips)

    def hash_all(self, vectors_XD: np.ndarray) -> np.ndarray:
        """Return the codes (L, X) uint16 of all vectors."""
        codes = np.empty((self.L, len(vectors_XD)), dtype=np.uint16)
        if self.arrays.kind == GAUSSIAN:
            _hash_dense(self.arrays.dense, vectors_XD, codes)
            return codes
        if self._simhash is None:
            _hash_all(self.arrays, vectors_XD, codes)
            return codes
        return self._simhash.hash(vectors_XD, np.arange(len(vectors_XD), dtype=np.int32), out=codes)

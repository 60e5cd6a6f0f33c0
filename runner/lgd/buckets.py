"""Draw training examples from hash tables, with their expected counts (LGD paper, Algorithm 1).

A draw picks a table at random, looks up the query's bucket, and takes one of its members. If the gradient grows with
the magnitude of query . vector, the bucket of the negated query, whose code is the complement, is joined to it.

The chance that an example and the query share one bit is ``alpha`` = 1 - angle / pi. So an example is in the
(joined) bucket with P = alpha^K (+ (1 - alpha)^K), over the draw of the hash functions, and a member of a bucket S is
drawn with P / |S|.

Legend: X examples, D size of the vectors, L tables, M draws.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from runner.lgd.projections import HADAMARD, Projections, code_in, codes_in_all, dot
from runner.rng import below, mix, word

ONE_SIDED, BOTH_SIGNS, SQUARED = range(3)  # what the tables are asked: q, q and -q, or T(q)
_FAST = {"reassoc", "contract", "arcp", "nsz"}
MOST_TRIES = 64  # empty buckets in a row after which a redrawn example comes from all examples


class Buckets(NamedTuple):
    """Hold everything a draw reads, as arrays and numbers.

    ``bits``: K. ``start`` (L, 2^K + 1) int32 and ``members`` (L, X) int32: the buckets. ``inverse_norm`` (X,) float32:
    1 / norm of each stored vector, 0 for a zero vector. ``sides``: one of this module's constants. ``redraws``: whether
    another table is tried if a bucket is empty. ``least_count``: smallest count of a draw that is stated.
    """

    projections: Projections
    bits: int
    start: np.ndarray
    members: np.ndarray
    inverse_norm: np.ndarray
    sides: int
    redraws: bool
    least_count: float


@njit(cache=True, inline="always")
def seed_prefix(seed, purpose):
    """Return the part of ``rng.stream`` that all steps share."""
    return mix(mix(np.uint64(seed)) ^ np.uint64(purpose))


@njit(cache=True, inline="always")
def stream_after(prefix, step, row):
    """Return ``rng.stream`` for a prefix of ``seed_prefix``."""
    return mix(mix(prefix ^ np.uint64(step)) ^ np.uint64(row))


@njit(cache=True, inline="always")
def arccos(x):
    """Return the arc cosine of a float32 in [-1, 1], with an error below 5e-7 (Abramowitz & Stegun 4.4.46)."""
    a = abs(x)
    p = np.float32(-0.0012624911)
    p = p * a + np.float32(0.0066700901)
    p = p * a - np.float32(0.0170881256)
    p = p * a + np.float32(0.0308918810)
    p = p * a - np.float32(0.0501743046)
    p = p * a + np.float32(0.0889789874)
    p = p * a - np.float32(0.2145988016)
    p = p * a + np.float32(1.5707963050)
    angle = np.sqrt(np.float32(1.0) - a) * p
    return angle if x >= 0 else np.float32(np.pi) - angle


@njit(cache=True, inline="always")
def chance_of_bucket(cosine, bits, sides):
    """Return the chance that a vector at this cosine to the query is in the query's (joined) bucket."""
    cosine = min(np.float32(1.0), max(np.float32(-1.0), cosine))
    if sides == SQUARED:
        cosine = cosine * cosine
    alpha = np.float32(1.0) - arccos(cosine) * np.float32(1 / np.pi)
    here, there = np.float32(1.0), np.float32(1.0)
    for _ in range(bits):
        here *= alpha
        there *= np.float32(1.0) - alpha
    return here + there if sides == BOTH_SIGNS else here


@njit(cache=True, inline="always")
def _bucket(buckets, code, table):
    """Return where the query's bucket begins and its size, and the same of the joined one (size 0: none is joined)."""
    begin = np.int64(buckets.start[table, code])
    size = np.int64(buckets.start[table, code + 1]) - begin
    if buckets.sides != BOTH_SIGNS:
        return begin, size, np.int64(0), np.int64(0)
    other = (1 << buckets.bits) - 1 - code
    begin_other = np.int64(buckets.start[table, other])
    return begin, size, begin_other, np.int64(buckets.start[table, other + 1]) - begin_other


@njit(cache=True, fastmath=_FAST)
def draw_examples(prefix, first_step, per_step, vectors, query, buckets, rows, counts):
    """Draw examples for several steps with one query: rows[m] is an example, counts[m] its expected count in a draw.

    ``vectors`` (X, D) and ``query`` (D,) float32. Draw m is number m % per_step of step first_step + m // per_step, and
    depends on these numbers alone. ``counts`` (M,) float64 is infinite where a bucket was empty and is skipped.

    The draws go in passes over all M, so that the scattered reads of one draw overlap with those of the next.
    """
    num_examples, tables = buckets.members.shape[1], buckets.members.shape[0]
    draws = rows.shape[0]
    all_codes = np.zeros(tables, dtype=np.int64)
    in_bulk = buckets.projections.kind == HADAMARD
    if in_bulk:
        codes_in_all(buckets.projections, query, buckets.bits, all_codes)
    table_M = np.empty(draws, dtype=np.int64)  # -1: drawn from all examples
    size_M = np.empty(draws, dtype=np.int64)
    tries_M = np.zeros(draws, dtype=np.int64)
    for m in range(draws):
        key = stream_after(prefix, first_step + m // per_step, m % per_step)
        table_M[m], size_M[m] = -1, num_examples
        rows[m] = below(word(key, 0), num_examples)
        for attempt in range(MOST_TRIES if buckets.redraws else 1):
            table = below(word(key, 1 + 2 * attempt), tables)
            code = all_codes[table] if in_bulk else code_in(buckets.projections, query, table)
            begin, size, begin_other, joined = _bucket(buckets, code, table)
            if size + joined > 0:
                place = below(word(key, 2 + 2 * attempt), size + joined)
                table_M[m], size_M[m], tries_M[m] = table, size + joined, attempt
                rows[m] = begin + place if place < size else begin_other + place - size
                break
    for m in range(draws):
        if table_M[m] >= 0:
            rows[m] = buckets.members[table_M[m], rows[m]]
    squared = np.float32(0.0)
    for k in range(query.shape[0]):
        squared += query[k] * query[k]
    inverse = np.float32(1.0) / np.sqrt(squared) if squared > np.float32(0.0) else np.float32(0.0)
    cosine_M = np.empty(draws, dtype=np.float32)
    for m in range(draws):
        cosine_M[m] = dot(query, vectors[rows[m]]) * buckets.inverse_norm[rows[m]]
    for m in range(draws):
        if table_M[m] < 0:
            counts[m] = 1.0 / num_examples if buckets.redraws else np.inf
            continue
        chance = np.float64(chance_of_bucket(cosine_M[m] * inverse, buckets.bits, buckets.sides))
        if tries_M[m] > 0:
            chance *= (1.0 - chance) ** tries_M[m]
        counts[m] = max(buckets.least_count, chance / size_M[m])

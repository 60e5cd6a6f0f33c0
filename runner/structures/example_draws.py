"""Draw training examples from hash tables, with their expected counts (LGD paper, Algorithm 1).

A draw picks a table at random, looks up the query's bucket, and takes one of its members. If the gradient grows with
the magnitude of query . vector, the bucket of the negated query, whose code is the complement, is joined to it.

The chance that an example and the query share one bit is ``alpha`` = 1 - angle / pi. So an example is in the
(joined) bucket with P = alpha^K (+ (1 - alpha)^K), over the draw of the hash functions, and a member of a bucket S is
drawn with P / |S|. Given the tables, the chance is the mean over tables of [it is in the bucket] / |S|.

Legend: X examples, D size of the vectors, L tables, M draws.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from runner.rng import below, mix, unit, word
from runner.structures.projections import HADAMARD, QUADRATIC, Projections, code_in, codes_in_all, dot

ONE_SIDED, BOTH_SIGNS, SQUARED = range(3)  # what the tables are asked: q, q and -q, or T(q)
REDRAW, SKIP, UNIFORM = range(3)  # what happens if a bucket is empty
MOST_TRIES = 64  # empty buckets in a row after which a redrawn example comes from all examples


class Buckets(NamedTuple):
    """Hold everything a draw reads, as arrays and numbers.

    ``bits``: K. ``start`` (L, 2^K + 1) int32 and ``members`` (L, X) int32: the buckets. ``inverse_norm`` (X,) float32:
    1 / norm of each stored vector, 0 for a zero vector. ``codes`` (X, L) uint16: the tables' codes by example, empty
    unless chances are those given the tables. ``sides``, ``when_empty``: one of this module's constants (UNIFORM goes
    with chances given the tables). ``uniform_share``: share of draws that come from all examples, 0 unless chances are
    those given the tables. ``least_count``: smallest stated count of one draw.
    """

    projections: Projections
    bits: int
    start: np.ndarray
    members: np.ndarray
    inverse_norm: np.ndarray
    codes: np.ndarray
    sides: int
    when_empty: int
    uniform_share: float
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
    """Return the arc cosine of a float32 in [-1, 1], with an error below 3e-7 (Abramowitz & Stegun 4.4.46)."""
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


@njit(cache=True)
def chance_given_tables(buckets, query_codes, weight_L, empty_share, example):
    """Return the chance that a draw from the tables yields the example, given the tables.

    ``weight_L``: 1 / size of the query's (joined) bucket in each table, 0 if it is empty. ``empty_share``: share of
    tables where it is empty, in which case all examples are drawn from.
    """
    codes = buckets.codes[example]
    flipped = (1 << buckets.bits) - 1
    chance = 0.0
    for table in range(codes.shape[0]):
        is_there = codes[table] == query_codes[table]
        if buckets.sides == BOTH_SIGNS:
            is_there |= codes[table] == flipped - query_codes[table]
        if is_there:
            chance += weight_L[table]
    return chance / codes.shape[0] + empty_share / buckets.codes.shape[0]


@njit(cache=True)
def draw_examples(prefix, first_step, per_step, vectors, query, buckets, rows, counts):
    """Draw examples for several steps with one query: rows[m] is an example, counts[m] its expected count in a draw.

    ``vectors`` (X, D) and ``query`` (D,) float32. Draw m is number m % per_step of step first_step + m // per_step, and
    depends on these numbers alone. ``counts`` (M,) float64 is infinite where a bucket was empty and is skipped.

    The draws go in passes over all M, so that the scattered reads of one draw overlap with those of the next.
    """
    num_examples, tables = buckets.members.shape[1], buckets.members.shape[0]
    given_tables = buckets.codes.shape[0] > 0
    draws = rows.shape[0]
    share = buckets.uniform_share
    query_codes = np.zeros(tables, dtype=np.int64)
    weight_L = np.zeros(tables, dtype=np.float64)
    empty_share = 0.0
    all_codes = given_tables or buckets.projections.kind == HADAMARD
    if all_codes:
        codes_in_all(buckets.projections, query, buckets.bits, query_codes)
    if given_tables:
        for table in range(tables):
            _, size, _, joined = _bucket(buckets, query_codes[table], table)
            if size + joined > 0:
                weight_L[table] = 1.0 / (size + joined)
            else:
                empty_share += 1.0 / tables
    table_M = np.empty(draws, dtype=np.int64)  # -1: drawn from all examples
    size_M = np.empty(draws, dtype=np.int64)  # 0: skipped
    tries_M = np.zeros(draws, dtype=np.int64)
    for m in range(draws):
        key = stream_after(prefix, first_step + m // per_step, m % per_step)
        table_M[m], size_M[m] = -1, num_examples
        rows[m] = below(word(key, 1), num_examples)
        if share > 0.0 and unit(word(key, 0)) < share:
            continue
        for attempt in range(MOST_TRIES):
            table = below(word(key, 2 + 2 * attempt), tables)
            code = query_codes[table] if all_codes else code_in(buckets.projections, query, table)
            begin, size, begin_other, joined = _bucket(buckets, code, table)
            if size + joined > 0:
                place = below(word(key, 3 + 2 * attempt), size + joined)
                table_M[m], size_M[m], tries_M[m] = table, size + joined, attempt
                rows[m] = begin + place if place < size else begin_other + place - size
                break
            if buckets.when_empty == SKIP:
                size_M[m] = 0
            if buckets.when_empty != REDRAW:
                break
    for m in range(draws):
        if table_M[m] >= 0:
            rows[m] = buckets.members[table_M[m], rows[m]]
    if given_tables:
        for m in range(draws):
            chance = chance_given_tables(buckets, query_codes, weight_L, empty_share, rows[m])
            counts[m] = max(buckets.least_count, (1.0 - share) * chance + share / num_examples)
        return
    squared = np.float32(0.0)
    for k in range(query.shape[0]):
        squared += query[k] * query[k]
    inverse = np.float32(1.0) / np.sqrt(squared) if squared > np.float32(0.0) else np.float32(0.0)
    cosine_M = np.empty(draws, dtype=np.float32)
    for m in range(draws):
        cosine_M[m] = dot(query, vectors[rows[m]]) * buckets.inverse_norm[rows[m]]
    for m in range(draws):
        if size_M[m] == 0:
            counts[m] = np.inf
        elif table_M[m] < 0:
            counts[m] = 1.0 / num_examples
        else:
            chance = np.float64(chance_of_bucket(cosine_M[m] * inverse, buckets.bits, buckets.sides))
            if tries_M[m] > 0:
                chance *= (1.0 - chance) ** tries_M[m]
            counts[m] = max(buckets.least_count, chance / size_M[m])


__all__ = ["BOTH_SIGNS", "ONE_SIDED", "QUADRATIC", "REDRAW", "SKIP", "SQUARED", "UNIFORM", "Buckets", "draw_examples", "seed_prefix", "stream_after"]

"""Compare samplers of training examples on frozen weights: variance and bias of one draw, directions, Lemma 1 of LGD.

A draw yields an example i with a weight w, in units of a uniform draw's, and estimates the mean gradient g by w g_i.
Every possible outcome of a draw can be listed, for hash tables too, so that its moments are exact:

- gradient norm: E |g_i|, over the draws that yield an example;
- variance: the trace of the covariance, E |w g_i|^2 - |E[w g_i]|^2;
- bias: |E[w g_i] - g|, given the tables at hand. Samplers that know the chances of their draws have none.

Over the draw of the hash functions, LGD's second moment is 1/N^2 sum_i |g_i|^2 sum_j P(i, j in S) / p_i^2 (equation 7
of the paper, where S is the query's bucket and p_i the chance that i is in it), and uniform's is 1/N sum_i |g_i|^2.
Lemma 1 (equation 8) says that LGD has less variance if the first is smaller.

Legend: X examples, F size of a gradient, D size of stored vectors, O outcomes of a draw, L tables, R repeats, S
numbers of samples, M draws of a repeat, I examples of a sum.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit, prange

from runner import rng
from runner.kernels.groups import CHUNKS
from runner.lgd.buckets import BOTH_SIGNS, MOST_TRIES, SQUARED, Buckets, arccos, chance_of_bucket
from runner.lgd.projections import codes_in_all, dot

_MOST_PRODUCTS = 2e10  # multiplications that Lemma 1's double sum may take; beyond, examples of the outer sum are drawn
_MOST_PAIRS = 4e8
_NEGLIGIBLE = 1e-18  # chance of as many empty buckets in a row as no longer matter


@dataclass(frozen=True, kw_only=True)
class Gradients:
    """Hold the gradients of all examples, (X, F) float64, their norms (X,) and their mean (F,)."""

    each_XF: np.ndarray
    norm_X: np.ndarray
    mean_F: np.ndarray

    @classmethod
    def of(cls, slope_X: np.ndarray, vectors_XF: np.ndarray) -> "Gradients":
        """Return the gradients slope * vector of a linear model."""
        each_XF = slope_X[:, None] * vectors_XF.astype(np.float64)
        return cls(each_XF=each_XF, norm_X=np.sqrt(np.square(each_XF).sum(axis=1)), mean_F=each_XF.mean(axis=0))


@dataclass(frozen=True, kw_only=True)
class Outcomes:
    """Hold what one draw can yield: the example ``row_O`` with the chance ``chance_O`` and the weight ``weight_O``.

    Chances that are missing from 1 are those of a draw that yields nothing. ``empty``: share of the hash tables whose
    bucket is empty.
    """

    row_O: np.ndarray
    chance_O: np.ndarray
    weight_O: np.ndarray
    empty: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Moments:
    """Hold the moments of one draw: E |g_i|, the trace of the covariance of w g_i, and |E[w g_i] - g|."""

    gradient_norm: float
    variance: float
    bias: float


def moments(outcomes: Outcomes, gradients: Gradients) -> Moments:
    """Return the moments of a draw; the norm is that of draws that yield an example, 0 if none does."""
    norm_O = gradients.norm_X[outcomes.row_O]
    drawn = float(outcomes.chance_O.sum())
    factor_X = np.bincount(
        outcomes.row_O, outcomes.chance_O * outcomes.weight_O, minlength=len(gradients.norm_X)
    )  # E[w 1(i is drawn)]
    mean_F = factor_X @ gradients.each_XF
    second = float((outcomes.chance_O * np.square(outcomes.weight_O * norm_O)).sum())
    return Moments(
        gradient_norm=float((outcomes.chance_O * norm_O).sum()) / drawn if drawn > 0 else 0.0,
        variance=second - float(mean_F @ mean_F),
        bias=float(np.linalg.norm(mean_F - gradients.mean_F)),
    )


# ---------------------------------------------------------------- outcomes of a draw


def outcomes_of_chances(chance_X: np.ndarray) -> Outcomes:
    """Return the outcomes of a sampler that draws each example with a known chance, and weighs it by the inverse."""
    row_O = np.flatnonzero(chance_X)
    chance_O = chance_X[row_O]
    return Outcomes(row_O=row_O, chance_O=chance_O, weight_O=1 / (len(chance_X) * chance_O))


def outcomes_of_buckets(buckets: Buckets, vectors_XD: np.ndarray, query_D: np.ndarray) -> Outcomes:
    """Return the outcomes of a draw from hash tables: every member of the query's bucket in every table.

    With redraws, a member after a empty buckets is an outcome of its own, since its weight differs.
    """
    tables, count = buckets.members.shape
    code_L = np.zeros(tables, dtype=np.int64)
    query_D = np.ascontiguousarray(query_D, dtype=np.float32)
    codes_in_all(buckets.projections, query_D, buckets.bits, code_L)
    chance_X = np.empty(count)
    _bucket_chances(vectors_XD, query_D, buckets.inverse_norm, buckets.bits, buckets.sides, chance_X)
    rows, sizes = [], []
    for table in range(tables):
        codes = [code_L[table]]
        if buckets.sides == BOTH_SIGNS:
            codes.append((1 << buckets.bits) - 1 - code_L[table])
        start = buckets.start[table]
        members = np.concatenate([buckets.members[table, start[code] : start[code + 1]] for code in codes])
        rows.append(members.astype(np.int64))
        sizes.append(len(members))
    row_O, size_O = np.concatenate(rows), np.repeat(sizes, sizes)
    member_O, chance_O = chance_X[row_O] / size_O, 1 / (tables * size_O)
    empty = sizes.count(0) / tables
    parts = []
    tries = 0
    while tries < (MOST_TRIES if buckets.redraws else 1) and empty**tries > _NEGLIGIBLE:
        stated_O = np.maximum(buckets.least_count, member_O * (1 - chance_X[row_O]) ** tries)
        parts.append((row_O, empty**tries * chance_O, 1 / (count * stated_O)))
        tries += 1
    if buckets.redraws and empty**MOST_TRIES > _NEGLIGIBLE:  # such a draw comes from all examples
        parts.append((np.arange(count), np.full(count, empty**MOST_TRIES / count), np.ones(count)))
    row, chance, weight = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return Outcomes(row_O=row, chance_O=chance, weight_O=weight, empty=empty)


@njit(cache=True)
def _bucket_chances(vectors, query, inverse_norm, bits, sides, chances):
    """Set chances[i] to the chance that example i is in the query's bucket, as draws state it."""
    squared = np.float32(0.0)
    for k in range(query.shape[0]):
        squared += query[k] * query[k]
    inverse = np.float32(1.0) / np.sqrt(squared) if squared > np.float32(0.0) else np.float32(0.0)
    for i in range(vectors.shape[0]):
        chances[i] = chance_of_bucket(dot(query, vectors[i]) * inverse_norm[i] * inverse, bits, sides)


# ---------------------------------------------------------------- several samples


@dataclass(frozen=True, kw_only=True)
class Course:
    """Hold what the mean of the first s samples is like, for several s, as means over repeats.

    ``similarity_S``: 1 - arccos(cos(estimate, g)) / pi; an estimate of 0 has no direction and counts as 1/2.
    ``norm_S``: the mean norm of the sampled gradients.
    """

    similarity_S: np.ndarray
    norm_S: np.ndarray


def course(rows_RM: np.ndarray, weight_RM: np.ndarray, gradients: Gradients, samples_S: np.ndarray) -> Course:
    """Follow the estimates of repeated draws; ``samples_S`` ascends to at most M. A weight of 0 is no example."""
    repeats = len(rows_RM)
    similarity_RS = np.empty((repeats, len(samples_S)))
    norm_RS = np.empty_like(similarity_RS)
    length = np.linalg.norm(gradients.mean_F)
    for repeat in range(repeats):
        rows_M, weight_M = rows_RM[repeat], weight_RM[repeat]
        sum_SF = np.cumsum(weight_M[:, None] * gradients.each_XF[rows_M], axis=0)[samples_S - 1]
        product_S = np.linalg.norm(sum_SF, axis=1) * length
        has_one = product_S > 0
        cosine_S = np.zeros(len(samples_S))
        np.divide(sum_SF @ gradients.mean_F, product_S, out=cosine_S, where=has_one)
        similarity_RS[repeat] = 1 - np.arccos(np.clip(cosine_S, -1, 1)) / np.pi
        drawn_M = weight_M > 0
        drawn_S = np.cumsum(drawn_M)[samples_S - 1]
        norm_RS[repeat] = np.cumsum(drawn_M * gradients.norm_X[rows_M])[samples_S - 1] / np.maximum(drawn_S, 1)
    return Course(
        similarity_S=similarity_RS.mean(axis=0),
        norm_S=norm_RS.mean(axis=0),
    )


# ---------------------------------------------------------------- Lemma 1


@dataclass(frozen=True, kw_only=True)
class Lemma:
    """Hold both sides of Lemma 1's condition (equation 8) divided by N^2: second moments of one draw.

    ``examples``: how many examples of the outer sum were taken; fewer than all are drawn by their squared norms.
    """

    left: float
    right: float
    examples: int

    @property
    def holds(self) -> bool:
        """Tell whether the condition holds: LGD has less variance than uniform draws, over the hash functions."""
        return self.left < self.right

    def record(self) -> dict[str, Any]:
        """Return the numbers as they are stored."""
        return {"lemma_left": self.left, "lemma_right": self.right, "lemma_examples": self.examples}


def lemma(
    vectors_XD: np.ndarray, query_D: np.ndarray, norm_X: np.ndarray, *, bits: int, sides: int, seed: int = 0
) -> Lemma:
    """Evaluate the condition for tables of dense normal projections, whose joint chances are known.

    Three vectors at angles a, b, c lie on one side of a random hyperplane with chance 1 - (a + b + c) / (2 pi). Under
    ``SQUARED``, angles are those of the products of pairs, whose cosines are squares. ``norm_X``: norms of gradients.
    """
    count, dim = vectors_XD.shape
    vectors_XD, query_D = _unit(vectors_XD), _unit(query_D[None])[0]
    most = int(min(count, max(1, _MOST_PRODUCTS // (count * dim)), max(1, _MOST_PAIRS // count)))
    total = float(np.square(norm_X).sum())
    share_X = np.square(norm_X) / total
    rows_I = np.arange(count)
    if most < count:
        rows_I = np.sort(rng.generator(seed, rng.EXAMPLES).choice(count, size=most, p=share_X))
    sum_I = np.empty(len(rows_I))
    _joint_sums(vectors_XD, query_D, rows_I, bits, sides, sum_I)
    ratio = float((share_X * sum_I).sum() if most == count else sum_I.mean()) / count
    right = total / count
    return Lemma(left=ratio * right, right=right, examples=len(rows_I))


def _unit(vectors: np.ndarray) -> np.ndarray:
    norms = np.sqrt(np.square(vectors, dtype=np.float64).sum(axis=1, keepdims=True))
    return (vectors / np.where(norms > 0, norms, 1)).astype(np.float32)


@njit(cache=True, inline="always")
def _angle(one, other, sides):
    cosine = min(np.float32(1.0), max(np.float32(-1.0), dot(one, other)))
    return arccos(cosine * cosine if sides == SQUARED else cosine)


@njit(cache=True, parallel=True)
def _joint_sums(vectors, query, rows, bits, sides, sums):
    """Set sums[m] to sum_j P(i, j in S) / p_i^2 for i = rows[m]; vectors and query have length 1."""
    count = vectors.shape[0]
    angles = np.empty(count)
    for i in range(count):
        angles[i] = _angle(query, vectors[i], sides)
    for part in prange(CHUNKS):
        for m in range(part * len(rows) // CHUNKS, (part + 1) * len(rows) // CHUNKS):
            i = rows[m]
            a = angles[i]
            chance = (1.0 - a / np.pi) ** bits
            if sides == BOTH_SIGNS:
                chance += (a / np.pi) ** bits
            total = 0.0
            for j in range(count):
                b, c = angles[j], np.float64(_angle(vectors[i], vectors[j], sides)) if j != i else 0.0
                total += max(0.0, 1.0 - (a + b + c) / (2 * np.pi)) ** bits
                if sides == BOTH_SIGNS:  # i and j may lie in the bucket of the query or in that of its negative
                    total += max(0.0, (a + b - c) / (2 * np.pi)) ** bits  # both in the latter
                    total += max(0.0, (b + c - a) / (2 * np.pi)) ** bits  # only j there
                    total += max(0.0, (a + c - b) / (2 * np.pi)) ** bits  # only i there
            sums[m] = total / chance**2 if chance > 0 else 0.0

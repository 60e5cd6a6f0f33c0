"""Moments of samplers of examples agree with brute force on tiny sets, with draws, and with means over hash tables."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest

from runner.contracts import Examples
from runner.lgd import estimates
from runner.lgd.buckets import BOTH_SIGNS, ONE_SIDED, SQUARED
from runner.lgd.estimates import Gradients, Outcomes, course, lemma, moments
from runner.lgd.hashed import Lgd, LgdConfig
from runner.lgd.norm_oracle import NormOracleConfig
from runner.lgd.strata import LgdStrataConfig
from runner.lgd.task import FixedVectors
from runner.lgd.uniform import UniformExamplesConfig


class Still(FixedVectors):
    """Show stored vectors [x, y] and the query [theta, -1] of a linear model that does not move."""

    by_magnitude = True

    def __init__(self, count: int, dim: int, *, seed: int = 0) -> None:
        generator = np.random.default_rng(seed)
        self.matrix = generator.standard_normal((count, dim)).astype(np.float32)
        self.matrix[: count // 4] *= 4  # a few large gradients
        self.query_D = np.append(generator.standard_normal(dim - 1), -1).astype(np.float32)
        self.examples: Any = self

    @property
    def gradients(self) -> Gradients:
        return Gradients.of(2 * self.matrix.astype(np.float64) @ self.query_D, self.matrix[:, :-1])

    def gradient_norms(self, rows: np.ndarray | None = None) -> np.ndarray:
        return self.gradients.norm_X if rows is None else self.gradients.norm_X[rows]


def built(config: Any, view: Still, seed: int = 0) -> Any:
    sampler = config.build(examples=Examples(count=len(view.matrix)), batch_size=1, seed=seed)
    sampler.refresh(0, view)
    return sampler


def outcomes_of(sampler: Any, view: Still) -> Outcomes:
    if isinstance(sampler, Lgd):
        return estimates.outcomes_of_buckets(sampler.buckets, view.matrix, sampler.query_D)
    return estimates.outcomes_of_chances(sampler.chances())


# ---------------------------------------------------------------- chances that are known


def test_uniform_and_oracle_have_the_textbooks_moments() -> None:
    """Their variances are mean |g|^2 - |mean g|^2 and (mean |g|)^2 - |mean g|^2, and neither has a bias."""
    view = Still(30, 4)
    gradients = view.gradients
    norms, length2 = gradients.norm_X, float(gradients.mean_F @ gradients.mean_F)
    uniform = moments(outcomes_of(built(UniformExamplesConfig(), view), view), gradients)
    oracle = moments(outcomes_of(built(NormOracleConfig(), view), view), gradients)
    assert uniform.variance == pytest.approx(np.mean(norms**2) - length2)
    assert oracle.variance == pytest.approx(np.mean(norms) ** 2 - length2)
    assert uniform.gradient_norm == pytest.approx(norms.mean())
    assert oracle.gradient_norm == pytest.approx((norms**2).sum() / norms.sum())
    assert max(uniform.bias, oracle.bias) == pytest.approx(0, abs=1e-12)


def test_strata_have_the_variance_of_their_cells() -> None:
    """An example of a cell of c members and chance p is drawn with p / c; variances follow cell by cell."""
    view = Still(60, 3)
    sampler, gradients = built(LgdStrataConfig(K=2, norm_levels=2, uniform_share=0.1), view), view.gradients
    chance_X = sampler.chances()
    assert chance_X.sum() == pytest.approx(1)
    second = sum(gradients.norm_X[i] ** 2 / (60**2 * chance_X[i]) for i in range(60))
    found = moments(outcomes_of(sampler, view), gradients)
    assert found.variance == pytest.approx(second - gradients.mean_F @ gradients.mean_F)
    assert found.bias == pytest.approx(0, abs=1e-12)
    rows = sampler.draws(1, 200_000).rows_M
    # Each frequency is within 5 standard deviations; 60 such tests fail by chance once in 30,000.
    np.testing.assert_array_less(
        np.abs(np.bincount(rows, minlength=60) / 200_000 - chance_X), 5 * np.sqrt(chance_X / 200_000)
    )


def test_an_example_that_is_never_drawn_makes_a_bias() -> None:
    gradients = Gradients.of(np.array([1.0, 1.0]), np.array([[3.0, 4.0], [1.0, 0.0]]))
    found = moments(estimates.outcomes_of_chances(np.array([1.0, 0.0])), gradients)
    assert found.gradient_norm == 5
    assert found.bias == pytest.approx(0.5), "half of the second gradient is missing"
    assert found.variance == pytest.approx(0)


# ---------------------------------------------------------------- hash tables


def by_hand(sampler: Lgd, view: Still) -> tuple[float, np.ndarray]:
    """Return E |w g|^2 and E[w g] of a draw that skips empty buckets, by the definition, in float64."""
    config, count = sampler.config, len(view.matrix)
    planes = sampler.buckets.projections.dense.astype(np.float64)
    vectors, query = view.matrix.astype(np.float64), view.query_D.astype(np.float64)
    gradients = view.gradients
    second, mean = 0.0, np.zeros(vectors.shape[1] - 1)
    for table in range(config.L):
        of_query, of_each = planes[table] @ query > 0, vectors @ planes[table].T > 0
        bucket = [i for i in range(count) if (of_each[i] == of_query).all() or (of_each[i] != of_query).all()]
        for i in bucket:
            cosine = vectors[i] @ query / np.linalg.norm(vectors[i]) / np.linalg.norm(query)
            alpha = 1 - np.arccos(cosine) / np.pi
            weight = len(bucket) / (count * (alpha**config.K + (1 - alpha) ** config.K))
            weight = min(weight, config.max_weight or np.inf)
            second += weight**2 * gradients.norm_X[i] ** 2 / (config.L * len(bucket))
            mean += weight * gradients.each_XF[i] / (config.L * len(bucket))
    return second, mean


@pytest.mark.parametrize("max_weight", [None, 1.5])
def test_outcomes_of_tables_are_those_of_their_definition(max_weight: float | None) -> None:
    view = Still(25, 4, seed=1)
    sampler = built(LgdConfig(K=3, L=7, max_weight=max_weight), view)
    second, mean = by_hand(sampler, view)
    gradients = view.gradients
    found = moments(outcomes_of(sampler, view), gradients)
    assert found.variance == pytest.approx(second - mean @ mean, rel=1e-5)
    assert found.bias == pytest.approx(np.linalg.norm(mean - gradients.mean_F), rel=1e-5)
    assert found.bias > 0.01, "one draw of hash functions is biased"


@pytest.mark.parametrize("when_empty", ["skip", "redraw"])
@pytest.mark.parametrize(("K", "projections"), [(3, "gaussian"), (6, "sparse"), (6, "hadamard")])
def test_outcomes_of_tables_are_those_of_draws(K: int, projections: Any, when_empty: Any) -> None:
    """With K = 6 and 20 examples many buckets are empty. All comparisons are within 5 standard errors."""
    view = Still(20, 5, seed=2)
    density = 0.5 if projections == "sparse" else LgdConfig.density
    config = LgdConfig(K=K, L=30, projections=projections, density=density, when_empty=when_empty, max_weight=20.0)
    sampler, gradients = built(config, view), view.gradients
    outcomes = outcomes_of(sampler, view)
    assert (outcomes.empty > 0.2) == (K == 6)
    assert outcomes.chance_O.sum() == pytest.approx(1 if when_empty == "redraw" else 1 - outcomes.empty)
    count = 100_000
    draws = sampler.draws(1, count)
    weight_M = 1 / (20 * draws.count_M)
    found = moments(outcomes, gradients)
    estimates_MF = weight_M[:, None] * gradients.each_XF[draws.rows_M]
    squares_M = np.square(estimates_MF).sum(axis=1)
    mean_F = np.bincount(outcomes.row_O, outcomes.chance_O * outcomes.weight_O, minlength=20) @ gradients.each_XF
    error_F = np.abs(estimates_MF.mean(axis=0) - mean_F)
    assert (error_F < 5 * estimates_MF.std(axis=0) / np.sqrt(count)).all()
    second = found.variance + mean_F @ mean_F
    assert abs(squares_M.mean() - second) < 5 * squares_M.std() / np.sqrt(count)
    norms_M = gradients.norm_X[draws.rows_M[weight_M > 0]]
    assert abs(norms_M.mean() - found.gradient_norm) < 5 * norms_M.std() / np.sqrt(len(norms_M))


# ---------------------------------------------------------------- Lemma 1


def test_lemma_1_is_the_second_moment_averaged_over_hash_functions() -> None:
    """Equation 7 by its definition: 10,000 tables of dense projections, without a limit of weights."""
    view = Still(12, 4, seed=3)
    gradients = view.gradients
    for K in (1, 3):
        sampler = built(LgdConfig(K=K, L=10_000, max_weight=None), view)
        outcomes = outcomes_of(sampler, view)
        squares_O = np.square(outcomes.weight_O * gradients.norm_X[outcomes.row_O])
        found = lemma(view.matrix, view.query_D, gradients.norm_X, bits=K, sides=BOTH_SIGNS)
        assert found.left == pytest.approx(float((outcomes.chance_O * squares_O).sum()), rel=0.05)
        assert found.right == pytest.approx(np.mean(gradients.norm_X**2))
        assert found.examples == 12


@pytest.mark.parametrize("sides", [ONE_SIDED, BOTH_SIGNS, SQUARED])
def test_joint_chances_are_frequencies_of_random_hyperplanes(sides: int) -> None:
    """Both sides of equation 8 for 5 vectors, with P(i, j in S) counted over 400,000 hyperplanes and K = 2 of them.

    Pairs of hyperplanes are independent, so a joint chance is a sum of squares of frequencies of one hyperplane.
    """
    generator = np.random.default_rng(4)
    vectors, query = generator.standard_normal((5, 3)), generator.standard_normal(3)
    norms = generator.uniform(0.5, 2, 5)
    expand = (lambda v: np.einsum("...i,...j->...ij", v, v).reshape(*v.shape[:-1], 9)) if sides == SQUARED else np.array
    planes = generator.standard_normal((400_000, 9 if sides == SQUARED else 3))
    same = (planes @ expand(vectors).T > 0) == (planes @ expand(query) > 0)[:, None]
    joint = np.zeros((5, 5))
    for i, j in [*combinations(range(5), 2), *((i, i) for i in range(5))]:
        parts = [np.mean(same[:, i] & same[:, j])]
        if sides == BOTH_SIGNS:
            for mine, other in ((~same[:, i], ~same[:, j]), (same[:, i], ~same[:, j]), (~same[:, i], same[:, j])):
                parts.append(np.mean(mine & other))
        joint[i, j] = joint[j, i] = sum(part**2 for part in parts)
    expected = sum(norms[i] ** 2 * joint[i].sum() / joint[i, i] ** 2 for i in range(5)) / 5**2
    found = lemma(vectors, query, norms, bits=2, sides=sides)
    assert found.left == pytest.approx(expected, rel=0.01)
    assert found.holds == (expected < np.mean(norms**2))


def test_lemma_1_of_a_large_set_takes_a_sample_by_squared_norms(monkeypatch: pytest.MonkeyPatch) -> None:
    view = Still(300, 4, seed=5)
    norms = view.gradients.norm_X
    exact = lemma(view.matrix, view.query_D, norms, bits=3, sides=BOTH_SIGNS)
    monkeypatch.setattr(estimates, "_MOST_PAIRS", 300 * 200)
    sampled = lemma(view.matrix, view.query_D, norms, bits=3, sides=BOTH_SIGNS)
    assert (exact.examples, sampled.examples) == (300, 200)
    assert sampled.left == pytest.approx(exact.left, rel=0.1)
    assert sampled.left != exact.left
    assert sampled.right == exact.right


def test_lemma_1_holds_where_large_gradients_collide_and_fails_where_they_do_not() -> None:
    """The few large gradients lie along the query, all others across it; or the other way round."""
    generator = np.random.default_rng(6)
    vectors = generator.standard_normal((200, 5))
    vectors[:, 0] *= 0.02
    vectors[:10] = 0.05 * generator.standard_normal((10, 5))
    vectors[:10, 0] = 1
    query, large = np.eye(5)[0], np.where(np.arange(200) < 10, 100.0, 0.1)
    assert lemma(vectors, query, large, bits=5, sides=BOTH_SIGNS).holds
    small = np.where(np.arange(200) < 10, 0.1, 100.0)
    assert not lemma(vectors, query, small, bits=5, sides=BOTH_SIGNS).holds


# ---------------------------------------------------------------- several samples


def test_the_course_of_estimates_by_hand() -> None:
    """Gradients (1, 0) and (0, 1): one is 45 degrees off their mean, both together are right; nothing is at 1/2."""
    gradients = Gradients.of(np.array([1.0, 1.0]), np.eye(2))
    rows = np.array([[0, 1, 1], [0, 0, 1]])
    weights = np.array([[1.0, 1.0, 0.0], [0.0, 2.0, 2.0]])
    found = course(rows, weights, gradients, np.array([1, 2, 3]))
    np.testing.assert_allclose(found.similarity_S, [(0.75 + 0.5) / 2, (1 + 0.75) / 2, 1], atol=1e-7)
    np.testing.assert_allclose(found.norm_S, [0.5, 1, 1])  # the second repeat's first draw yields nothing

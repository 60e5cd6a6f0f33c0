"""What the MIDX paper proves and what its index must keep true.

Legend: B queries, N classes, D coordinates, C codewords.
"""

from typing import Any

import numpy as np
import pytest
from quantized import (
    Layers,
    Queries,
    approximate_logits,
    build,
    divergence,
    grouped_layer,
    log_q,
    log_softmax,
    logits_of,
    one_step,
)
from scipy.stats import chi2

from runner import rng
from runner.contracts import Proposal, TrainingFacts
from runner.samplers import SAMPLERS

FAST = ["midx_pq", "midx_rq"]

# ---------------------------------------------------------------- Theorem 1


@pytest.mark.parametrize("quantizer", ["pq", "rq"])
@pytest.mark.parametrize(
    ("n", "dim", "codewords", "rows"),
    [(1, 4, 3, 2), (7, 5, 2, 3), (90, 16, 8, 33), (400, 9, 30, 70), (300, 33, 1, 5), (50, 8, 100, 4)],
)
def test_exact_midx_is_the_softmax(
    quantizer: str, n: int, dim: int, codewords: int, rows: int, make_layer: Layers, make_query: Queries
) -> None:
    """All classes' probabilities, biases included, with more cells than classes too."""
    layer, query = make_layer(n, dim, norm=3.0), make_query(rows, dim, n)
    sampler = build("midx_exact", layer, quantizer=quantizer, codewords=codewords)
    if codewords**2 > n:
        assert sampler.statistics["cells_in_use"] < codewords**2
    q, p = np.exp(log_q(sampler, query)), np.exp(log_softmax(logits_of(layer, query)))
    np.testing.assert_allclose(q, p, rtol=1e-5)
    np.testing.assert_allclose(q.sum(1), 1, rtol=1e-6)


def test_exact_midx_follows_the_weights_between_refreshes(make_layer: Layers, make_query: Queries) -> None:
    layer, query = make_layer(90, 16, norm=2.0), make_query(5, 16, 90)
    sampler = build("midx_exact", layer, codewords=8, refresh_every_steps=1000)
    layer.table.weights[:] = layer.table.weights[::-1].copy()
    q, p = np.exp(log_q(sampler, query)), np.exp(log_softmax(logits_of(layer, query)))
    np.testing.assert_allclose(q, p, rtol=1e-5)


@pytest.mark.parametrize("rows", ["dense", "touched", "catch_up"])
def test_exact_midx_sees_rows_that_lag(rows: str, make_layer: Layers, make_query: Queries) -> None:
    """A step on few classes, then steps on none: the softmax of step 5 is of weights with the momentum applied."""
    layer, query = make_layer(90, 16, norm=2.0, rows=rows), make_query(5, 16, 90)
    sampler = build("midx_exact", layer, codewords=8, num_samples=3, refresh_every_steps=1000)
    one_step(layer, query, sampler)
    q = np.exp(log_q(sampler, query, step=5))
    layer.table.read(None, 5)
    np.testing.assert_allclose(q, np.exp(log_softmax(logits_of(layer, query))), rtol=1e-5)


# ---------------------------------------------------------------- Theorem 2


@pytest.mark.parametrize("name", FAST)
@pytest.mark.parametrize(("n", "dim", "codewords"), [(1, 4, 3), (90, 16, 8), (400, 9, 30), (300, 33, 1), (50, 7, 100)])
@pytest.mark.parametrize("within", ["uniform", "popularity"])
def test_midx_is_the_softmax_of_the_quantised_logits(
    name: str, n: int, dim: int, codewords: int, within: str, make_layer: Layers, make_query: Queries
) -> None:
    """q is proportional to v exp(o - residual logit), and sums to 1."""
    layer, query = make_layer(n, dim, norm=3.0), make_query(6, dim, n)
    counts = np.random.default_rng(2).integers(0, 50, n)
    sampler = build(name, layer, counts=counts, codewords=codewords, within=within, exponent=0.7)
    weight = np.maximum(counts, 1) ** 0.7 if within == "popularity" else np.ones(n)
    stated = log_q(sampler, query)
    np.testing.assert_allclose(np.exp(stated).sum(1), 1, rtol=2e-6)
    expected = log_softmax(approximate_logits(sampler, query) + np.log(weight))
    np.testing.assert_allclose(stated, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", FAST)
@pytest.mark.parametrize("scale", [0.0, 30.0, 1e4])
def test_scores_of_any_size_give_a_distribution(
    name: str, scale: float, make_layer: Layers, make_query: Queries
) -> None:
    """Draws stay where q is, when exp of a score overflows a double too."""
    layer, query = make_layer(200, 12, norm=2.0), make_query(20, 12, 200)
    query.hidden_BD[:] *= np.float32(scale)
    sampler = build(name, layer, codewords=10)
    stated = log_q(sampler, query)
    np.testing.assert_allclose(np.exp(stated).sum(1), 1, rtol=1e-5 if scale < 1e3 else 0.02)
    proposal = sampler.sample(query, 1)
    drawn = stated[np.repeat(np.arange(20), 100), proposal.ids_N]
    assert drawn.min() > -20, "a class of probability under 2e-9 in 2,000 draws: 4e-6 of seeds"


def test_scores_that_are_not_numbers_stay_visible(make_layer: Layers, make_query: Queries) -> None:
    """Ids remain valid, so that nothing is read out of bounds, and the counts make the loss a NaN."""
    for name in [*FAST, "midx_exact"]:
        layer, query = make_layer(50, 8), make_query(4, 8, 50)
        sampler = build(name, layer, codewords=5)
        query.hidden_BD[1] = np.nan
        query.hidden_BD[2, 3] = np.inf
        proposal = sampler.sample(query, 1)
        assert 0 <= proposal.ids_N.min() <= proposal.ids_N.max() < 50
        finite = np.isfinite(proposal.log_expected_count_N).reshape(4, -1)
        assert finite[[0, 3]].all()
        assert not finite[[1, 2]].any()


# ---------------------------------------------------------------- Theorem 5


@pytest.mark.parametrize("name", FAST)
def test_divergence_is_bounded_by_the_residual_logits(name: str, make_layer: Layers, make_query: Queries) -> None:
    """KL(p || q) <= 2 max |residual logit| for each query, and so for the uniform proposal with the logits."""
    for n, dim, codewords, norm in ((300, 16, 8, 1.0), (300, 16, 8, 5.0), (1000, 24, 32, 3.0), (64, 8, 64, 3.0)):
        layer, query = make_layer(n, dim, norm=norm), make_query(40, dim, n)
        sampler = build(name, layer, codewords=codewords)
        logits = logits_of(layer, query)
        residual = logits - approximate_logits(sampler, query)
        kl = divergence(log_softmax(logits), log_q(sampler, query))
        assert (kl > -1e-5).all()
        assert (kl <= 2 * np.abs(residual).max(1) + 1e-5).all()


@pytest.mark.parametrize("name", FAST)
def test_divergence_and_distortion_shrink_with_codewords(name: str, make_layer: Layers, make_query: Queries) -> None:
    layer, query = grouped_layer(make_layer, 4000, 16), make_query(60, 16, 4000)
    log_p = log_softmax(logits_of(layer, query))
    uniform = divergence(log_p, np.full_like(log_p, -np.log(4000))).mean()
    kls, distortions = [uniform], [1.0]
    for codewords in (8, 16, 32, 64):
        sampler = build(name, layer, codewords=codewords)
        kls.append(divergence(log_p, log_q(sampler, query)).mean())
        distortions.append(sampler.statistics["distortion"])
    assert (np.diff(kls) < 0).all(), kls
    assert (np.diff(distortions) < 0).all(), distortions
    assert kls[-1] < 0.4 * uniform


# ---------------------------------------------------------------- popularity


def chi_square(drawn_N: np.ndarray, expected_N: np.ndarray) -> float:
    """P-value of draws against expectations, classes expected less than 5 times taken together."""
    place_N = np.where(expected_N < 5, 0, np.arange(1, len(expected_N) + 1))
    drawn, expected = (np.bincount(place_N, values)[np.unique(place_N)] for values in (drawn_N, expected_N))
    return float(chi2.sf((np.square(drawn - expected) / expected).sum(), len(drawn) - 1))


@pytest.mark.parametrize("name", FAST)
def test_a_popularity_vector_shifted_by_one_is_caught(name: str, make_layer: Layers, make_query: Queries) -> None:
    """Draws against stated q by chi-square: 200,000 draws of a query; false alarm 1e-6 of seeds for each query.

    Counts that belong to the class before give draws that the same test refuses.
    """
    n = 120
    layer, query = make_layer(n, 16, norm=2.0), make_query(3, 16, n)
    counts = np.random.default_rng(7).permutation((200 / np.arange(1, n + 1)).astype(np.int64))
    options: dict[str, Any] = {"within": "popularity", "codewords": 6, "num_samples": 2000}
    right = build(name, layer, counts=counts, **options)
    shifted = build(name, layer, counts=np.roll(counts, 1), **options)
    expected = 200_000 * np.exp(log_q(right, query))
    for sampler, agrees in ((right, True), (shifted, False)):
        drawn = np.zeros((3, n))
        for step in range(1, 101):
            ids = sampler.sample(query, step).ids_N.reshape(3, -1)
            for row in range(3):
                drawn[row] += np.bincount(ids[row], minlength=n)
        for row in range(3):
            assert (chi_square(drawn[row], expected[row]) > 1e-6) == agrees


@pytest.mark.parametrize("name", FAST)
def test_popularity_puts_back_what_does_not_depend_on_the_query(
    name: str, make_layer: Layers, make_query: Queries
) -> None:
    """Biases that are log frequencies, which no codeword knows of: popularity restores them."""
    layer, query = grouped_layer(make_layer, 2000, 16), make_query(60, 16, 2000)
    counts = np.random.default_rng(1).permutation((3000 / np.arange(1, 2001)).astype(np.int64)) + 1
    layer.table.bias[:, 0] = np.log(counts)
    log_p = log_softmax(logits_of(layer, query))
    plain, popular = (
        divergence(log_p, log_q(build(name, layer, counts=counts, codewords=16, within=within), query)).mean()
        for within in ("uniform", "popularity")
    )
    assert popular < 0.6 * plain, (popular, plain)


# ---------------------------------------------------------------- following the weights


@pytest.mark.parametrize("name", FAST)
def test_refreshes_come_once_a_period_and_null_is_an_epoch(name: str, make_layer: Layers, make_query: Queries) -> None:
    layer, query = make_layer(60, 8), make_query(3, 8, 60)
    nobody = np.zeros(0, dtype=np.int32)
    for period, due in ((4, [4, 8, 12]), (None, [5, 10])):
        config: Any = SAMPLERS[name](name=name, codewords=4, refresh_every_steps=period)  # type: ignore[call-arg]
        training = TrainingFacts(label_counts_N=np.ones(60, dtype=np.int64), num_rows=700, steps_per_epoch=5)
        sampler = config.build(layer=layer, training=training, seed=0)
        assert [step for step in range(1, 15) if sampler.refresh(query, step, nobody)] == due


def test_a_refresh_starts_from_the_codebooks_it_has(make_layer: Layers, make_query: Queries) -> None:
    layer, query = make_layer(600, 8), make_query(3, 8, 600)
    sampler = build("midx_rq", layer, codewords=8, refresh_every_steps=2, kmeans_iterations=1)
    made, generator = sampler.quantizer, rng.generator(sampler.seed, rng.QUANTIZE, 2)
    expected = made.fit(layer.table.weights, generator, sampler.codebooks_2CD)
    assert sampler.refresh(query, 2, np.zeros(0, dtype=np.int32))
    np.testing.assert_array_equal(sampler.codebooks_2CD, expected)


@pytest.mark.parametrize("rows", ["dense", "touched", "catch_up"])
def test_a_rebuild_sees_rows_that_lag(rows: str, make_layer: Layers, make_query: Queries) -> None:
    """A class touched once moves on by its momentum: under catch_up in closed form, when the rebuild asks."""
    layer, query = make_layer(80, 8, rows=rows), make_query(4, 8, 80, most_targets=1)
    sampler = build("midx_rq", layer, codewords=5, refresh_every_steps=6)
    before = layer.table.weights.copy()
    one_step(layer, query, sampler)
    for step in range(1, 7):
        layer.table.before_step(step)
        done = sampler.refresh(query, step, np.zeros(0, dtype=np.int32))
    assert done
    layer.table.read(None, 7)
    assert not np.array_equal(layer.table.weights, before)
    codes, error = sampler.quantizer.assign(layer.table.weights, sampler.codebooks_2CD)
    np.testing.assert_array_equal(sampler.codes_2N, codes)
    assert sampler.statistics["distortion"] == pytest.approx(
        error.sum() / np.square(layer.table.weights).sum(), rel=1e-4
    )


@pytest.mark.parametrize("name", FAST)
def test_queries_touch_no_more_of_a_larger_index(name: str, make_layer: Layers, make_query: Queries) -> None:
    """What a query reads besides one member a draw: scores of 2 C codewords and C^2 masses, at any n."""
    for n in (300, 30_000):
        layer, query = make_layer(n, 8), make_query(4, 8, n)
        sampler = build(name, layer, codewords=8)
        assert sampler.scores(query.hidden_BD).shape[1] == sampler.second * 2
        assert sampler._log_mass_CC.shape == (8, 8)
        proposal = sampler.sample(query, 1)
        assert isinstance(proposal, Proposal)
        assert len(proposal.ids_N) == 400

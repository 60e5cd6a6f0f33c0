"""What the MIDX paper proves and what its index must keep true.

Legend: B queries, N classes, D coordinates, C codewords.
"""

import itertools
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest
import torch
from scipy.stats import chi2

from runner import rng
from runner.contracts import Proposal, Query, TrainingFacts
from runner.errors import ConfigError, Diverged
from runner.heads.output_layer import OutputLayer
from runner.losses import LOSSES
from runner.samplers import SAMPLERS
from runner.structures.quantizers import Learning, Quantizer

FAST = ["midx_pq", "midx_rq"]
Layers = Callable[..., OutputLayer]
Queries = Callable[..., Query]


def build(name: str, layer: OutputLayer, *, counts: np.ndarray | None = None, seed: int = 3, **options: Any) -> Any:
    config = SAMPLERS[name](name=name, **options)
    counts = np.ones(layer.num_classes, dtype=np.int64) if counts is None else counts
    return config.build(layer=layer, training=TrainingFacts.one_label_a_row(counts), seed=seed)


def one_step(layer: OutputLayer, query: Query, sampler: Any) -> None:
    """Step 1 of training on the query's targets and the sampler's candidates."""
    layer.table.before_step(1)
    scores = layer.score(query, sampler.sample(query, 1), 1)
    scores.loss(LOSSES["sampled_softmax"](name="sampled_softmax"))
    scores.update()


def log_q(sampler: Any, query: Query, step: int = 1) -> np.ndarray:
    """(B, N) stated log probabilities."""
    ids = np.arange(sampler.layer.num_classes, dtype=np.int32)
    stated = sampler.log_expected_count(query, ids, step).astype(np.float64)
    return stated - np.log(sampler.config.num_samples)


def log_softmax(logits: np.ndarray) -> np.ndarray:
    out: np.ndarray = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    return out


def logits_of(layer: OutputLayer, query: Query) -> np.ndarray:
    """(B, N) true logits in double precision."""
    return query.hidden_BD.astype(np.float64) @ layer.table.weights.T + layer.table.bias_view


def approximate_logits(sampler: Any, query: Query) -> np.ndarray:
    """(B, N) o - residual logit: the query's products with the quantised vectors."""
    (first, second), (k1, k2) = sampler.codebooks_2CD.astype(np.float64), sampler.codes_2N
    out: np.ndarray = query.hidden_BD.astype(np.float64) @ (first[k1] + second[k2]).T
    return out


def divergence(log_p: np.ndarray, log_q: np.ndarray) -> np.ndarray:
    """(B,) KL(p || q)."""
    out: np.ndarray = (np.exp(log_p) * (log_p - log_q)).sum(1)
    return out


def grouped_layer(make_layer: Layers, n: int, dim: int, *, groups: int = 40, spread: float = 0.6) -> OutputLayer:
    """Class vectors around common centres, as training makes them; the biases are small."""
    layer = make_layer(n, dim, norm=spread)
    layer.table.bias[:] *= 0.2
    generator = np.random.default_rng(5)
    centres = generator.standard_normal((groups, dim)).astype(np.float32) * np.float32(2 / np.sqrt(dim))
    layer.table.weights += centres[generator.integers(0, groups, n)]
    return layer


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


# ---------------------------------------------------------------- quantisers


def quantizer(kind: Any, codewords: int, **options: Any) -> Quantizer:
    return Quantizer(kind=kind, codewords=codewords, **{"rows": 100_000, "iterations": 20, **options})


def vectors(kind: str, n: int = 3000, dim: int = 16) -> np.ndarray:
    generator = np.random.default_rng(8)
    values = generator.standard_normal((n, dim))
    if kind == "grouped":
        values = 0.4 * values + generator.standard_normal((60, dim))[generator.integers(0, 60, n)]
    return values.astype(np.float32)


@pytest.mark.parametrize("kind", ["gaussian", "grouped"])
def test_residual_quantisation_distorts_less_than_product_quantisation(kind: str) -> None:
    values = vectors(kind)
    error = {}
    for name in ("pq", "rq"):
        made = quantizer(name, 16)
        error[name] = made.assign(values, made.fit(values, np.random.default_rng(0)))[1].mean()
    assert error["rq"] < error["pq"], error


def test_a_wider_beam_never_hurts() -> None:
    """The same codebooks: a class's error under a wider beam is never above that under a narrower one."""
    values = vectors("gaussian")
    made = quantizer("rq", 16)
    codebooks = made.fit(values, np.random.default_rng(0))
    errors = [made.assign(values, codebooks, beam=beam)[1] for beam in (1, 2, 4, 16)]
    for narrow, wide in itertools.pairwise(errors):
        assert (wide <= narrow).all()
    assert errors[2].mean() < 0.99 * errors[0].mean()
    assert errors[3].mean() > 0.97 * errors[2].mean(), "beyond 4 there is little left to gain"


@pytest.mark.parametrize("kind", ["pq", "rq"])
@pytest.mark.parametrize("dim", [2, 3, 7])
def test_codebooks_live_in_their_parts(kind: str, dim: int) -> None:
    """Odd sizes give the first half the coordinate in the middle."""
    made = quantizer(kind, 4)
    codebooks = made.fit(vectors("gaussian", 200, dim), np.random.default_rng(0))
    half = (dim + 1) // 2
    inside = np.zeros((2, 1, dim), dtype=bool)
    inside[0, :, : half if kind == "pq" else dim] = True
    inside[1, :, half if kind == "pq" else 0 :] = True
    np.testing.assert_array_equal(codebooks != 0, np.broadcast_to(inside, codebooks.shape))


def test_product_quantisation_needs_two_coordinates() -> None:
    with pytest.raises(ConfigError, match="at least 2 coordinates"):
        quantizer("pq", 4).fit(vectors("gaussian", 20, 1), np.random.default_rng(0))
    codebooks = quantizer("rq", 4).fit(vectors("gaussian", 20, 1), np.random.default_rng(0))
    assert codebooks.shape == (2, 4, 1)


@pytest.mark.parametrize("kind", ["pq", "rq"])
@pytest.mark.parametrize("case", ["one", "two", "three", "duplicates", "zeros", "nearly_equal", "as_many", "sparse"])
def test_vectors_that_k_means_dislikes(kind: str, case: str) -> None:
    """Fewer distinct vectors than codewords are met exactly, without a warning, from a cold and a warm start."""
    generator = np.random.default_rng(4)
    some = generator.standard_normal((5, 6)).astype(np.float32)
    values = {
        "one": some[:1], "two": some[:2], "three": some[:3], "as_many": generator.standard_normal((8, 6)),
        "duplicates": some[generator.integers(0, 5, 300)], "zeros": np.zeros((300, 6)),
        "nearly_equal": 1 + 1e-7 * generator.integers(0, 3, (300, 6)),
        "sparse": np.eye(300, 6),
    }[case].astype(np.float32)  # fmt: skip
    made = quantizer(kind, 8)
    codebooks = made.fit(values, np.random.default_rng(0))
    for _ in range(2):
        codes, error = made.assign(values, codebooks)
        assert np.isfinite(codebooks).all()
        np.testing.assert_allclose(error, 0, atol=1e-5)
        assert codes.max() < 8
        codebooks = made.fit(values, np.random.default_rng(1), codebooks)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e25])
def test_weights_that_are_not_finite_are_an_error_of_one_line(
    bad: float, make_layer: Layers, make_query: Queries
) -> None:
    layer, query = make_layer(60, 8), make_query(3, 8, 60)
    sampler = build("midx_rq", layer, codewords=4, refresh_every_steps=2)
    layer.table.weights[7, 3] = bad
    nobody = np.zeros(0, dtype=np.int32)
    assert not sampler.refresh(query, 1, nobody)
    with pytest.raises(Diverged, match=r"class vectors are not finite .* after step 2; try a smaller optimizer\.lr$"):
        sampler.refresh(query, 2, nobody)
    for operation in (
        lambda: quantizer("rq", 4).fit(layer.table.weights, np.random.default_rng(0)),
        lambda: quantizer("rq", 4).assign(layer.table.weights, sampler.codebooks_2CD),
    ):
        with pytest.raises(Diverged, match="not finite"):
            operation()


@pytest.mark.parametrize("kind", ["pq", "rq"])
def test_a_warm_start_goes_on_from_where_it_was(kind: str) -> None:
    """One pass from the codebooks of vectors that hardly moved beats one pass from nothing."""
    values = vectors("grouped")
    codebooks = quantizer(kind, 16).fit(values, np.random.default_rng(0))
    moved = values + 0.05 * vectors("gaussian")
    short = quantizer(kind, 16, iterations=1)
    error = {
        name: short.assign(moved, short.fit(moved, np.random.default_rng(1), start))[1].mean()
        for name, start in (("warm", codebooks), ("cold", None))
    }
    assert error["warm"] < error["cold"], error


def test_same_codebooks_with_one_thread_and_two(make_layer: Layers, make_query: Queries) -> None:
    """k-means and learning too, whose libraries have threads of their own: 65,536 numbers are enough to wake them."""
    layer, query = grouped_layer(make_layer, 5000, 16), make_query(40, 16, 5000)
    states = []
    for threads in (1, 2):
        numba.set_num_threads(threads)
        torch.set_num_threads(threads)
        sampler = build("midx_learn_rq", layer, codewords=12, refresh_every_steps=1, learn_steps=4)
        assert sampler.refresh(query, 1, np.zeros(0, dtype=np.int32))
        assert torch.get_num_threads() == threads
        states.append(sampler.state_dict())
    for name, value in states[0].items():
        np.testing.assert_array_equal(value, states[1][name], err_msg=name)


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


@pytest.mark.parametrize("name", [*FAST, "midx_learn_rq"])
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


# ---------------------------------------------------------------- learnt codebooks


def trained_like(make_layer: Layers) -> tuple[OutputLayer, Query, Query]:
    """Classes in groups, and hidden states near the vectors of Zipf-distributed targets: to learn from, to judge by."""
    n, dim, rows = 3000, 16, 200
    layer = grouped_layer(make_layer, n, dim, spread=0.8)
    generator = np.random.default_rng(3)
    share = 1 / np.arange(1, n + 1)
    queries = []
    for _ in range(2):
        targets = generator.choice(n, rows, p=share / share.sum())
        noise = generator.standard_normal((rows, dim)) * 0.3
        hidden = np.maximum(3 * layer.table.weights[targets] + noise, 0).astype(np.float32)
        indptr = np.arange(rows + 1, dtype=np.int64)
        queries.append(Query(hidden_BD=hidden, target_indptr_B1=indptr, targets_P=targets.astype(np.int32)))
    return layer, queries[0], queries[1]


@pytest.mark.parametrize("kind", ["pq", "rq"])
def test_learning_lowers_the_divergence_on_new_queries(kind: str, make_layer: Layers) -> None:
    """Hard assignments: the sampler's KL(p || q) falls below that of k-means codebooks by a tenth at least."""
    layer, seen, fresh = trained_like(make_layer)
    log_p = log_softmax(logits_of(layer, fresh))
    nobody = np.zeros(0, dtype=np.int32)
    kl = {}
    for name in (f"midx_{kind}", f"midx_learn_{kind}"):
        sampler = build(name, layer, codewords=8, refresh_every_steps=1)
        assert sampler.refresh(seen, 1, nobody)
        kl[name] = divergence(log_p, log_q(sampler, fresh)).mean()
    assert kl[f"midx_learn_{kind}"] < 0.9 * kl[f"midx_{kind}"], kl


def test_learning_allows_for_popularity(make_layer: Layers) -> None:
    """Where classes are drawn by popularity, codewords unlearn what popularity says; uniform learning would not."""
    layer, seen, fresh = trained_like(make_layer)
    weight = np.random.default_rng(2).permutation(1000 / np.arange(1, layer.num_classes + 1))
    layer.table.bias[:, 0] = np.log(weight)
    made = quantizer("rq", 8)
    start = made.fit(layer.table.weights, np.random.default_rng(0))
    kl = []
    for log_weight in (None, np.log(weight)):
        learning = Learning(assignment="hard", classes=10_000, steps=60, lr=0.01)
        first, second = learning.train(
            made, start, layer.table.weights, seen.hidden_BD, np.random.default_rng(0), bias_N=layer.table.bias_view,
            log_weight_N=log_weight,
        )  # fmt: skip
        k1, k2 = made.assign(layer.table.weights, np.stack([first, second]))[0]
        logits = fresh.hidden_BD.astype(np.float64) @ (first[k1] + second[k2]).T + np.log(weight)
        kl.append(divergence(log_softmax(logits_of(layer, fresh)), log_softmax(logits)).mean())
    assert kl[1] < 0.97 * kl[0], kl


@pytest.mark.parametrize("assignment", ["hard", "soft"])
@pytest.mark.parametrize("kind", ["pq", "rq"])
def test_learning_lowers_its_own_objective(assignment: Any, kind: Any, make_layer: Layers) -> None:
    """Reconstruction + KL over all classes, computed here in NumPy, falls with steps of Adam."""
    layer, seen, _ = trained_like(make_layer)
    weights, bias = layer.table.weights, layer.table.bias_view
    made = quantizer(kind, 8)
    start = made.fit(weights, np.random.default_rng(0))

    def soft(scores: np.ndarray) -> np.ndarray:
        return np.exp(log_softmax(scores))

    def objective(codebooks: np.ndarray) -> float:
        values, (first, second) = weights.astype(np.float64), codebooks.astype(np.float64)
        if assignment == "soft":
            near = soft(values @ first.T) @ first
            approximate = near + soft((values - near) @ second.T) @ second
        else:
            k1, k2 = made.assign(weights, codebooks)[0]
            approximate = first[k1] + second[k2]
        hidden = seen.hidden_BD.astype(np.float64)
        kl = divergence(log_softmax(hidden @ values.T + bias), log_softmax(hidden @ approximate.T)).mean()
        return float(np.square(values - approximate).sum(1).mean() + kl)

    values = [objective(start)]
    for steps in (5, 25):
        learning = Learning(assignment=assignment, classes=10_000, steps=steps, lr=0.01)
        learnt = learning.train(made, start, weights, seen.hidden_BD, np.random.default_rng(0), bias_N=bias)
        values.append(objective(learnt))
        for codebook, part in zip(learnt, made.parts(16), strict=True):
            outside = np.ones(16, dtype=bool)
            outside[part] = False
            assert (codebook[:, outside] == 0).all(), "codewords stay in their half"
    assert values[0] > values[1] > values[2], values


@pytest.mark.parametrize("assignment", ["hard", "soft"])
def test_learning_that_overflows_says_which_key(assignment: Any, make_layer: Layers) -> None:
    layer, seen, _ = trained_like(make_layer)
    made = quantizer("rq", 4)
    start = made.fit(layer.table.weights, np.random.default_rng(0))
    learning = Learning(assignment=assignment, classes=100, steps=5, lr=1e30)
    with pytest.raises(Diverged, match=r"sampler\.learn_lr"):
        learning.train(made, start, layer.table.weights, seen.hidden_BD, np.random.default_rng(0))

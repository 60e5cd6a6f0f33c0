"""Bias of the sampled softmax, and the cost of a step as the number of classes grows."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from runner.config import compose
from runner.contracts import Everything, Proposal, Query, TrainingFacts
from runner.errors import ConfigError
from runner.heads.classes import estimate
from runner.machine.clock import StageClock
from runner.optimizers import AdamConfig
from runner.output.losses import LOSSES
from runner.output.numba.layer import NumbaLayer
from runner.output.numba.row_table import RowTable
from runner.samplers import SAMPLERS
from runner.samplers.static import UnigramConfig

N, DIM = 200, 8


def twins(one: Query, rows: int) -> Query:
    """Many identical rows: candidates of their own give independent estimates in one step."""
    return Query(
        hidden_BD=np.repeat(one.hidden_BD, rows, axis=0),
        target_indptr_B1=np.arange(rows + 1, dtype=np.int64),
        targets_P=np.repeat(one.targets_P, rows),
    )


def hidden_gradient(layer: NumbaLayer, query: Query, proposal: Proposal | Everything, loss: str) -> np.ndarray:
    scores = layer.score(query, proposal, 1)
    scores.loss(LOSSES[loss](name=loss))
    return scores.update()


def test_counts_of_draws_until_classes_are_distinct_are_exact() -> None:
    """Few classes and few draws, where TensorFlow's 1 - (1 - q)^tries is off by many standard deviations (bound: 5)."""
    n, draws, rows = 8, 3, 40_000
    config = compose(["sampler=log_uniform", "sampler.until_distinct=true", "sampler.shared=false",
                      f"sampler.num_samples={draws}"])  # fmt: skip
    layer = NumbaLayer(RowTable(AdamConfig(), np.zeros((n, 1), dtype=np.float32), bias=True))
    training = TrainingFacts.one_label_a_row(np.arange(n, 0, -1))
    sampler = config.sampler.build(layer=layer, training=training, seed=0)
    query = Query(
        hidden_BD=np.zeros((rows, 1), dtype=np.float32),
        target_indptr_B1=np.arange(rows + 1, dtype=np.int64),
        targets_P=np.zeros(rows, dtype=np.int32),
    )
    drawn_BN = np.zeros((rows, n))
    np.put_along_axis(drawn_BN, sampler.sample(query, 1).ids_N.reshape(rows, draws), 1, axis=1)
    excess_BN = drawn_BN - np.exp(sampler.log_expected_count(query, np.arange(n, dtype=np.int32), 1))
    score_N = np.sqrt(rows) * excess_BN.mean(0) / excess_BN.std(0)
    assert np.abs(score_N).max() < 5


def test_noise_contrastive_estimation_learns_the_probabilities() -> None:
    """The method's own draws, on rows without features: the logits that minimise the loss are log p.

    The minimum over a sample of rows deviates by sd(gradient of a row) / (slope sqrt(rows)). False alarms: 1 in 10^5.
    """
    p_N, rows, draws = np.array([0.5, 0.2, 0.1, 0.1, 0.06, 0.04]), 40_000, 4
    config = compose(["method=nce", "sampler.shared=false", f"sampler.num_samples={draws}"])
    targets = np.random.default_rng(0).choice(len(p_N), rows, p=p_N).astype(np.int32)
    query = Query(
        hidden_BD=np.zeros((rows, 1), dtype=np.float32),
        target_indptr_B1=np.arange(rows + 1, dtype=np.int64),
        targets_P=targets,
    )
    layer = NumbaLayer(RowTable(AdamConfig(), np.zeros((len(p_N), 1), dtype=np.float32), bias=True))
    sampler = config.sampler.build(
        layer=layer, training=TrainingFacts.one_label_a_row(np.bincount(targets, minlength=len(p_N))), seed=0
    )

    def gradient_BN(logits_N: np.ndarray) -> np.ndarray:
        layer.table.biases()[:] = logits_N
        scores = estimate(layer, sampler, config.loss, query, 1, StageClock()).scores
        row_X, class_X, gradient_X = scores.logit_gradients()
        out_BN = np.zeros((rows, len(p_N)))
        np.add.at(out_BN, (row_X, class_X), rows * gradient_X)
        return out_BN

    logits_N = np.full(len(p_N), -np.log(len(p_N)))
    for _ in range(6):  # Newton's method: the loss is a sum of convex functions of one logit each
        mean_N = gradient_BN(logits_N).mean(0)
        slope_N = (gradient_BN(logits_N + 0.01).mean(0) - gradient_BN(logits_N - 0.01).mean(0)) / 0.02
        logits_N = logits_N - mean_N / slope_N
    error_N = p_N * gradient_BN(logits_N).std(0) / (slope_N * np.sqrt(rows))
    assert error_N[0] < 0.005, "the test could not tell .5 from .6"
    np.testing.assert_array_less(np.abs(np.exp(logits_N) - p_N), 4.6 * error_N)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("loss", ["sampled_softmax", "absolute_softmax", "nce"])
@pytest.mark.parametrize("q", [(0.25, 0.25, 0.25, 0.25), (0.6, 0.2, 0.15, 0.05)])
def test_corrected_targets_and_draws_with_replacement_learn_the_distribution(
    q: tuple[float, ...], loss: str, shared: bool
) -> None:
    """At logits log p the gradient's expectation, summed over every target and every pair of draws, is 0."""
    p, q_N = np.array([0.6, 0.2, 0.15, 0.05]), np.array(q)
    n, draws = len(p), 2
    above = 9 if loss == "absolute_softmax" else 0  # so that logits are their own magnitudes
    config = LOSSES[loss](name=loss) if loss == "nce" else LOSSES[loss](name=loss, correct_target=True)  # type: ignore[call-arg]
    log_count_N = np.log(draws * q_N).astype(np.float32)
    table = RowTable(AdamConfig(), np.zeros((n, 1), dtype=np.float32), bias=True)
    table.biases()[:] = np.log(p) + above
    query = Query(
        hidden_BD=np.ones((n, 1), dtype=np.float32),
        target_indptr_B1=np.arange(n + 1, dtype=np.int64),
        targets_P=np.arange(n, dtype=np.int32),
    )
    expected_N = np.zeros(n)
    for drawn in itertools.product(range(n), repeat=draws):
        ids = np.sort(np.array(drawn, dtype=np.int32))
        proposal = Proposal(ids_N=ids, log_expected_count_N=log_count_N[ids], distinct=False)
        if not shared:
            proposal = Proposal(
                ids_N=np.tile(ids, n), log_expected_count_N=log_count_N[np.tile(ids, n)],
                indptr_B1=draws * np.arange(n + 1), distinct=False,
            )  # fmt: skip
        scores = NumbaLayer(table).score(query, proposal, 1)
        scores.loss(config, log_count_N)
        row_X, class_X, gradient_X = scores.logit_gradients()
        np.add.at(expected_N, class_X, n * gradient_X * p[row_X] * q_N[list(drawn)].prod())
    np.testing.assert_allclose(expected_N, 0, atol=1e-6)


def test_gradient_bias_falls_like_one_over_m(
    make_layer: Callable[..., NumbaLayer], make_query: Callable[..., Query]
) -> None:
    """The sampled softmax is a ratio estimate, so its gradient is biased by O(1 / m) (Rawat et al. 2019).

    The slope of log bias against log m over m = 8 .. 64 is -1 within 0.25. Many identical rows with
    candidates of their own give independent estimates in one step; noise of the mean is below a fifth of each
    bias measured.
    """
    rows, repeats = 1000, 60
    one = make_query(1, DIM, N, seed=3, most_targets=1)
    query = twins(one, rows)
    exact = hidden_gradient(make_layer(N, DIM, norm=1.5), one, Everything(N), "full")[0]
    samples, biases = [8, 16, 32, 64], []
    for m in samples:
        layer = make_layer(N, DIM, norm=1.5)
        config = SAMPLERS["uniform"](name="uniform", num_samples=m, shared=False, unique=False)  # type: ignore[call-arg]
        sampler = config.build(layer=layer, training=TrainingFacts.one_label_a_row(np.ones(N, dtype=np.int64)), seed=1)
        start = {key: value.copy() for key, value in layer.table.state_dict().items()}
        means = []
        for step in range(1, repeats + 1):
            layer.table.load_state_dict(start)
            grad = hidden_gradient(layer, query, sampler.sample(query, step), "sampled_softmax")
            means.append(rows * grad.mean(0))  # gradients carry 1 / rows
        noise = np.linalg.norm(np.std(means, axis=0)) / np.sqrt(repeats)
        bias = float(np.linalg.norm(np.mean(means, axis=0) - exact))
        assert noise < bias / 5, (m, noise, bias)
        biases.append(bias)
    slope = np.polyfit(np.log(samples), np.log(biases), 1)[0]
    assert -1.25 < slope < -0.75, (slope, biases)


@pytest.mark.parametrize("num_samples", [1, 2, 4])
def test_exact_draws_leave_no_bias(
    num_samples: int, make_layer: Callable[..., NumbaLayer], make_query: Callable[..., Query]
) -> None:
    """Drawn from the softmax outside the target, the estimate is the gradient, even of a target with p > 0.5.

    60 means of 1,000 rows; drawn from the softmax over all classes (midx_exact), hits make the partition random and
    the bias of one to four draws is far above the noise.
    """
    rows, repeats = 1000, 60
    one = make_query(1, DIM, N, seed=3, most_targets=1)

    def made() -> NumbaLayer:
        layer = make_layer(N, DIM, norm=1.5)
        layer.table.bias[one.targets_P[0]] = 6.0
        return layer

    layer = made()
    logits_N = layer.table.weights.astype(np.float64) @ one.hidden_BD[0] + layer.table.biases()
    assert np.exp(logits_N[one.targets_P[0]]) > 0.5 * np.exp(logits_N).sum()
    exact = hidden_gradient(layer, one, Everything(N), "full")[0]
    found = {}
    for name, options in (("exact", {}), ("midx_exact", {"codewords": 4})):
        layer = made()
        config = SAMPLERS[name](name=name, num_samples=num_samples, **options)  # type: ignore[arg-type]
        sampler = config.build(layer=layer, training=TrainingFacts.one_label_a_row(np.ones(N, dtype=np.int64)), seed=1)
        start = {key: value.copy() for key, value in layer.table.state_dict().items()}
        means = []
        for step in range(1, repeats + 1):
            layer.table.load_state_dict(start)
            means.append(rows * hidden_gradient(layer, twins(one, rows), sampler.sample(twins(one, rows), step),
                                                "sampled_softmax").mean(0))  # fmt: skip
        noise = float(np.linalg.norm(np.std(means, axis=0)) / np.sqrt(repeats))
        found[name] = float(np.linalg.norm(np.mean(means, axis=0) - exact)), noise
    size = np.linalg.norm(exact)
    assert found["exact"][1] < 0.02 * size
    assert found["exact"][0] < 2 * found["exact"][1], found
    assert found["midx_exact"][0] > 5 * found["midx_exact"][1], "the test must be able to tell"


@pytest.mark.parametrize("name", ["uniform", "log_uniform", "unigram", "lsh_label", "lsh_embedding", "midx_pq"])
def test_work_of_a_step_does_not_grow_with_the_classes(
    name: str, make_layer: Callable[..., NumbaLayer], make_query: Callable[..., Query]
) -> None:
    """Rows of the class matrix read and written in a step, at 2,000 and 32,000 classes alike configured.

    Static samplers touch at most targets + num_samples rows. LSH: at most the larger of ``min_candidates``
    and L buckets of ``max_per_bucket`` a query, whatever n.
    """
    touched = []
    for n in (2000, 32_000):
        layer = make_layer(n, DIM, rows="touched")
        query = make_query(4, DIM, n)
        options = (
            {"K": 6, "L": 5, "max_per_bucket": 16, "min_candidates": 60, "sparsity_budget": 1.0}
            if name.startswith("lsh")
            else {"num_samples": 100}
        )
        config = SAMPLERS[name](name=name, **options)  # type: ignore[arg-type]
        sampler = config.build(layer=layer, training=TrainingFacts.one_label_a_row(np.ones(n, dtype=np.int64)), seed=0)
        proposal = sampler.sample(query, 1)
        assert isinstance(proposal, Proposal)
        hidden_gradient(layer, query, proposal, "sampled_softmax")
        updated = np.flatnonzero(layer.table.last_step)
        np.testing.assert_array_equal(updated, np.union1d(proposal.ids_N, query.targets_P))
        touched.append(len(updated))
        most = 100 if not name.startswith("lsh") else int(max(60, 3 * 5 * 16))
        assert proposal.candidates_per_row(4) <= most
    assert touched[1] <= 1.5 * touched[0] + 60


def test_catch_up_touches_only_what_it_is_asked_for(make_layer: Callable[..., NumbaLayer]) -> None:
    """Reading a few rows after many steps leaves all other rows' memory alone: that is the point of it."""
    layer = make_layer(1000, DIM)
    table = layer.table
    table.first[:] = 1
    table.second[:] = 1
    table.last_step[:] = 1
    before = table.weights.copy()
    table.read(np.array([3, 500], dtype=np.int32), 50)
    assert np.flatnonzero((table.weights != before).any(1)).tolist() == [3, 500]


def test_log_counts_are_what_the_code_released_with_midx_draws_by() -> None:
    """Its weights are log(count + 1); here a class without positives has the count 1, so that every class may come."""
    counts_N = np.array([0, 1, 9, 99])
    usual = UnigramConfig(name="unigram").distribution(counts_N)
    logs = UnigramConfig(name="unigram", weight="log_count").distribution(counts_N)
    np.testing.assert_allclose(usual, np.array([1, 1, 9, 99]) / 110)
    np.testing.assert_allclose(logs, np.log([2, 2, 10, 100]) / np.log([2, 2, 10, 100]).sum())


def test_a_subset_has_the_targets_of_the_whole_batch(make_layer: Callable[..., NumbaLayer]) -> None:
    """With loss=active_set, every row is trained on the softmax over one set of classes (Jean et al. 2015)."""
    config = UnigramConfig(name="unigram", num_samples=5, with_targets=True)
    training = TrainingFacts(label_counts_N=np.ones(100, dtype=np.int64), num_rows=100, steps_per_epoch=10)
    sampler = config.build(layer=make_layer(100, 4), training=training, seed=0)
    query = Query(
        hidden_BD=np.zeros((2, 4), np.float32), target_indptr_B1=np.array([0, 1, 3]),
        targets_P=np.array([7, 42, 99], np.int32),
    )  # fmt: skip
    proposal = sampler.sample(query, 1)
    assert {7, 42, 99} <= set(proposal.ids_N.tolist())
    assert 3 < len(proposal.ids_N) <= 8
    certain = np.isin(proposal.ids_N, query.targets_P)
    assert (proposal.log_expected_count_N[certain] == 0).all()
    assert (proposal.log_expected_count_N[~certain] < 0).all()
    with pytest.raises(ConfigError, match="leave shared and unique true"):
        UnigramConfig(name="unigram", shared=False, with_targets=True)

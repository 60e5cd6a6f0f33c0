"""Measures of samplers where theory or NumPy says what they are.

Legend: B rows, N classes, M candidates, D hidden size.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from runner import rng
from runner.contracts import Everything, Proposal, Query, TrainingFacts
from runner.measures.by_rank import proposal_against_truth
from runner.measures.divergence import Divergence, fresh_samplers, measure_divergence
from runner.measures.gradients import BELOW_NOISE, INFINITE
from runner.measures.truth import Truth
from runner.output.losses import LOSSES
from runner.output.numba.layer import NumbaLayer
from runner.samplers import SAMPLERS, Sampler

N, DIM, ROWS = 90, 8, 5
TRAINING = TrainingFacts.one_label_a_row(1 + np.arange(N, dtype=np.int64) % 7)


class Drawn(Sampler):
    """Draws with replacement, each row from its own q (B, N)."""

    def __init__(self, q_BN: np.ndarray, num_samples: int) -> None:
        self.q_BN, self.num_samples = q_BN, num_samples

    def sample(self, query: Query, step: int) -> Proposal:
        generator = rng.generator(5, rng.SAMPLE, step)
        ids = [generator.choice(len(q), self.num_samples, p=q) for q in self.q_BN]
        log_count = [self.log_expected_count(query, chosen, step)[row] for row, chosen in enumerate(ids)]
        return Proposal(
            ids_N=np.concatenate(ids).astype(np.int32),
            log_expected_count_N=np.concatenate(log_count),
            indptr_B1=np.arange(len(ids) + 1, dtype=np.int64) * self.num_samples,
        )

    def log_expected_count(self, query: Query, ids_M: np.ndarray, step: int) -> np.ndarray:
        return np.log(self.num_samples * self.q_BN[:, ids_M]).astype(np.float32)


@pytest.fixture
def layer(make_layer: Callable[..., NumbaLayer]) -> NumbaLayer:
    return make_layer(N, DIM, norm=2.0)


@pytest.fixture
def query(make_query: Callable[..., Query]) -> Query:
    return make_query(ROWS, DIM, N)


def softmax_of(layer: NumbaLayer, query: Query) -> np.ndarray:
    logits_BN = query.hidden_BD.astype(np.float64) @ layer.table.weights.T.astype(np.float64) + layer.table.biases()
    weight_BN = np.exp(logits_BN - logits_BN.max(1, keepdims=True))
    return weight_BN / weight_BN.sum(1, keepdims=True)


def logit_gradient_of(p_BN: np.ndarray, query: Query) -> np.ndarray:
    gradient_BN = p_BN.copy()
    for row in range(len(p_BN)):
        targets = query.targets_P[query.target_indptr_B1[row] : query.target_indptr_B1[row + 1]]
        gradient_BN[row, targets] -= 1 / len(targets)
    return gradient_BN


def measures_of(sampler: Sampler, layer: NumbaLayer, query: Query, loss: str = "sampled_softmax",
                draws: int = 4, **options: Any) -> Divergence:  # fmt: skip
    return measure_divergence(
        sampler, Truth.of(layer, query), LOSSES[loss](name=loss), first_step=9, draws=draws, **options
    )


def build(name: str, layer: NumbaLayer, **options: Any) -> Sampler:
    return SAMPLERS[name](name=name, **options).build(layer=layer, training=TRAINING, seed=3)


# ---------------------------------------------------------------- the softmax


def test_truth_is_full_softmax(layer: NumbaLayer, query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    p_BN = softmax_of(layer, query)
    gradient_BN = logit_gradient_of(p_BN, query)
    for blocks in ([(0, N)], [(0, 33), (33, 34), (34, N)]):
        monkeypatch.setattr(layer, "blocks", lambda rows, blocks=blocks: blocks)
        truth = Truth.of(layer, query)
        for row in range(ROWS):
            log_p_N, gradient_N = truth.softmax(row)
            np.testing.assert_allclose(np.exp(log_p_N), p_BN[row], rtol=1e-5)
            np.testing.assert_allclose(gradient_N, gradient_BN[row], atol=1e-6)
        np.testing.assert_allclose(truth.hidden_gradient_BD, gradient_BN @ layer.table.weights, atol=1e-5)


def test_truth_by_magnitude(layer: NumbaLayer, query: Query) -> None:
    """Cross-entropy of the softmax of |logit|, its gradient by central differences of the hidden state."""

    def loss(hidden_D: np.ndarray, row: int) -> float:
        size_N = np.abs(hidden_D @ layer.table.weights.T.astype(np.float64) + layer.table.biases())
        targets = query.targets_P[query.target_indptr_B1[row] : query.target_indptr_B1[row + 1]]
        return float(np.log(np.exp(size_N).sum()) - size_N[targets].mean())

    truth = Truth.of(layer, query, by_magnitude=True)
    for row in range(ROWS):
        for k in range(DIM):
            aside = 1e-6 * np.eye(DIM)[k]
            hidden_D = query.hidden_BD[row].astype(np.float64)
            slope = (loss(hidden_D + aside, row) - loss(hidden_D - aside, row)) / 2e-6
            assert truth.hidden_gradient_BD[row, k] == pytest.approx(slope, abs=2e-5)


# ---------------------------------------------------------------- proposals with known measures


def test_exact_proposal(layer: NumbaLayer, query: Query) -> None:
    """q = p: no divergence, and every one of m draws weighs the same."""
    measures = measures_of(Drawn(softmax_of(layer, query), 30), layer, query)
    np.testing.assert_allclose(measures.kl_B, 0, atol=1e-6)
    np.testing.assert_allclose(measures.renyi2_B, 0, atol=1e-6)
    np.testing.assert_allclose(measures.ess_B, 30, rtol=1e-5)
    np.testing.assert_allclose(measures.reachable_mass_B, 1, rtol=1e-6)
    assert (measures.candidates_B == 30).all()
    np.testing.assert_allclose(measures.truth_G, measures.proposal_G, atol=1e-6)
    assert measures.rank_end_G[-1] == N
    assert measures.truth_G[-1] == pytest.approx(1)


@pytest.mark.parametrize("options", [{"unique": False}, {"unique": True, "shared": False}])
def test_uniform_proposal(options: dict[str, Any], layer: NumbaLayer, query: Query) -> None:
    """KL = log n - H(p); log sum p^2 / q = log n + log sum p^2; cumulative q = rank / n."""
    p_BN = softmax_of(layer, query)
    measures = measures_of(build("uniform", layer, num_samples=20, **options), layer, query)
    entropy_B = -(p_BN * np.log(p_BN)).sum(1)
    np.testing.assert_allclose(measures.kl_B, np.log(N) - entropy_B, rtol=1e-5)
    np.testing.assert_allclose(measures.renyi2_B, np.log(N * np.square(p_BN).sum(1)), rtol=1e-5)
    assert (measures.renyi2_B >= measures.kl_B).all()
    np.testing.assert_allclose(measures.proposal_G, measures.rank_end_G / N, rtol=1e-5)


def test_weights_and_coverage_of_drawn_candidates(layer: NumbaLayer, query: Query) -> None:
    sampler = build("unigram", layer, num_samples=25, unique=False, shared=False)
    p_BN = softmax_of(layer, query)
    ess_B, covered_B, recall_B = np.zeros(ROWS), np.zeros(ROWS), np.zeros(ROWS)
    nearest_B = [set(ids[:10].tolist()) for ids in np.argsort(-p_BN, axis=1)]
    for step in range(9, 13):
        proposal = sampler.sample(query, step)
        assert isinstance(proposal, Proposal)
        for row, ids in enumerate(np.split(proposal.ids_N, ROWS)):
            weight = p_BN[row, ids] / np.exp(sampler.log_expected_count(query, ids, step)[row])
            ess_B[row] += weight.sum() ** 2 / (weight**2).sum() / 4
            targets = query.targets_P[query.target_indptr_B1[row] : query.target_indptr_B1[row + 1]]
            covered_B[row] += p_BN[row, list({*ids.tolist(), *targets.tolist()})].sum() / 4
            recall_B[row] += len(nearest_B[row] & set(ids.tolist())) / 10 / 4
    measures = measures_of(sampler, layer, query)
    np.testing.assert_allclose(measures.ess_B, ess_B, rtol=1e-4)
    np.testing.assert_allclose(measures.covered_mass_B, covered_B, rtol=1e-5)
    np.testing.assert_allclose(measures.recall_B, recall_B)
    assert 0 < recall_B.mean() < 1


@pytest.mark.parametrize(("found", "recall"), [(4, 0.4), (10, 1.0), (15, 1.0)])
def test_recall_of_the_exact_nearest_classes(found: int, recall: float, layer: NumbaLayer, query: Query) -> None:
    measures = measures_of(build("topk", layer, num_nearest=found), layer, query, "active_set")
    np.testing.assert_allclose(measures.recall_B, recall)
    assert measures.record()["recall"] == pytest.approx(recall)


def test_classes_out_of_reach_make_divergences_infinite_not_numbers(layer: NumbaLayer, query: Query) -> None:
    measures = measures_of(build("topk", layer, num_nearest=10), layer, query, "active_set")
    p_BN = softmax_of(layer, query)
    record = measures.record()
    assert record["kl"] == record["renyi2"] == INFINITE
    assert record["kl_deviation"] is None
    assert record["rows_out_of_reach"] == ROWS
    best_B = np.sort(p_BN, axis=1)[:, -10:].sum(1)
    np.testing.assert_allclose(measures.reachable_mass_B, best_B, rtol=1e-5)
    assert (measures.covered_mass_B >= measures.reachable_mass_B - 1e-9).all()
    assert measures.proposal_G[measures.rank_end_G == 10] == pytest.approx(1)


def test_a_row_without_candidates_reaches_nothing(layer: NumbaLayer, query: Query) -> None:
    sampler = build("sce", layer, buckets=1, bucket_rows=2, bucket_classes=30)
    measures = measures_of(sampler, layer, query, "active_set")
    reached_B = np.diff(sampler.sample(query, 9).indptr_B1) > 0  # type: ignore[union-attr,arg-type]
    assert reached_B.sum() == 2
    np.testing.assert_array_equal(measures.reachable_mass_B > 0, reached_B)
    assert measures.record()["rows_out_of_reach"] == ROWS
    assert measures.proposal_G[-1] == pytest.approx(2 / ROWS)


def test_full_softmax_has_no_error_and_no_proposal(layer: NumbaLayer, query: Query) -> None:
    record = measures_of(build("full", layer), layer, query, "full").record()
    assert record["kl"] is None
    assert record["ess"] is None
    assert record["covered_mass"] == record["recall"] == 1
    assert record["candidates"] == N
    for what in ("hidden", "classes"):
        assert record[f"{what}_bias"] == record[f"{what}_std"] == record[f"{what}_bias_net"] == 0


# ---------------------------------------------------------------- gradients


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("loss", ["sampled_softmax", "active_set", "nce"])
def test_logit_gradients_are_those_of_the_update(
    shared: bool, loss: str, make_layer: Callable[..., NumbaLayer], make_query: Callable[..., Query]
) -> None:
    """Their products with class vectors and hidden states are what a step hands back and adds to Adam's moments."""
    layer, query = make_layer(N, DIM, norm=2.0), make_query(ROWS, DIM, N)
    sampler = build("unigram", layer, num_samples=25, unique=False, shared=shared)
    chosen = LOSSES[loss](name=loss)
    log_count = (
        sampler.log_expected_count_of_targets(query, sampler.sample(query, 1), 1) if chosen.corrects_targets else None
    )
    scores = layer.score(query, sampler.sample(query, 1), 1)
    scores.loss(chosen, log_count)
    row_N, ids_N, grad_N = scores.logit_gradients()
    gradient_BN = np.zeros((ROWS, N))
    np.add.at(gradient_BN, (row_N, ids_N), grad_N)
    weights_ND = layer.table.weights.astype(np.float64)
    grad_hidden_BD = scores.update()
    np.testing.assert_allclose(gradient_BN @ weights_ND, grad_hidden_BD, atol=1e-6)
    share = 1 - layer.table.config.beta1
    np.testing.assert_allclose(gradient_BN.T @ query.hidden_BD, layer.table.first / share, atol=1e-6)


@pytest.mark.parametrize("shared", [True, False])
def test_errors_are_those_of_the_drawn_gradients(shared: bool, layer: NumbaLayer, query: Query) -> None:
    """Against dense NumPy gradients of the same draws."""
    draws = 6
    sampler = build("uniform", layer, num_samples=30, unique=False, shared=shared)
    p_BN = softmax_of(layer, query)
    exact_BN = logit_gradient_of(p_BN, query)
    estimate_RBN = np.zeros((draws, ROWS, N))
    for draw in range(draws):
        proposal = sampler.sample(query, 9 + draw)
        assert isinstance(proposal, Proposal)
        for row in range(ROWS):
            ids = proposal.ids_N if shared else np.split(proposal.ids_N, ROWS)[row]
            targets = query.targets_P[query.target_indptr_B1[row] : query.target_indptr_B1[row + 1]]
            weight_N = np.bincount(ids, minlength=N) * p_BN[row] * N / 30
            weight_N[targets] = p_BN[row, targets]
            estimate_RBN[draw, row] = weight_N / weight_N.sum()
            estimate_RBN[draw, row, targets] -= 1 / len(targets)
    measures = measures_of(sampler, layer, query, draws=draws)
    weights_ND = layer.table.weights.astype(np.float64)
    for error, matrix in ((measures.classes, np.eye(N)), (measures.hidden, weights_ND)):
        exact, estimate = exact_BN @ matrix, estimate_RBN @ matrix
        np.testing.assert_allclose(error.squared_norm_B, np.square(exact).sum(1), rtol=1e-4)
        np.testing.assert_allclose(error.squared_bias_B, np.square(estimate.mean(0) - exact).sum(1), rtol=1e-3)
        np.testing.assert_allclose(error.variance_B, estimate.var(0, ddof=1).sum(1), rtol=1e-3)
        record = error.record()
        relative_B = np.sqrt(error.squared_bias_B / error.squared_norm_B)
        assert record["bias"] == pytest.approx(relative_B.mean())
        assert record["bias_deviation"] == pytest.approx(relative_B.std(ddof=1))
        floor_B = np.sqrt(error.variance_B / draws / error.squared_norm_B)
        assert record["noise_floor"] == pytest.approx(floor_B.mean())


def test_a_sampler_without_chance_has_bias_alone(layer: NumbaLayer, query: Query) -> None:
    record = measures_of(build("topk", layer, num_nearest=10), layer, query, "active_set").record()
    for what in ("hidden", "classes"):
        assert record[f"{what}_std"] < 1e-6
        assert record[f"{what}_bias"] > 0.01
        assert record[f"{what}_bias_net"] > 0.01


@pytest.mark.slow
@pytest.mark.parametrize("what", ["hidden", "classes"])
def test_bias_falls_like_one_over_m_and_deviation_like_its_root(
    what: str, make_layer: Callable[..., NumbaLayer], make_query: Callable[..., Query]
) -> None:
    """Sampled softmax is a ratio estimate (Rawat et al. 2019): slopes of -1 and -1/2 over m = 8 .. 64, within 0.25.

    At m = 64 the mean of 1,000 draws is as noisy as it is biased: what is fitted has the noise taken off, over 12 rows.
    """
    layer, query = make_layer(N, DIM, norm=1.5), make_query(12, DIM, N, most_targets=1)
    samples = [8, 16, 32, 64]
    sampler = {m: build("uniform", layer, num_samples=m, unique=False, shared=False) for m in samples}
    records = [measures_of(sampler[m], layer, query, draws=1000).record() for m in samples]
    bias = [record[f"{what}_bias_net"] for record in records]
    assert BELOW_NOISE not in bias, bias
    slope = np.polyfit(np.log(samples), np.log(bias), 1)[0]
    assert -1.25 < slope < -0.75, (slope, bias)
    deviation = [record[f"{what}_std"] for record in records]
    slope = np.polyfit(np.log(samples), np.log(deviation), 1)[0]
    assert -0.75 < slope < -0.25, (slope, deviation)


def test_fresh_tables_average_out_the_bias_of_fixed_ones(
    make_layer: Callable[..., NumbaLayer], make_query: Callable[..., Query]
) -> None:
    """Given the tables the estimate has a bias of its own direction; over tables the directions partly cancel."""
    layer, query = make_layer(N, DIM, norm=3.0), make_query(12, DIM, N)
    config = SAMPLERS["lsh_embedding"](
        name="lsh_embedding", K=3, L=2, max_per_bucket=N, sparsity_budget=1.0, min_candidates=1, num_tail=4
    )  # type: ignore[call-arg]
    assert config.random_tables
    sampler = config.build(layer=layer, training=TRAINING, seed=3)
    fresh = list(fresh_samplers(config, layer, TRAINING, 3, 100))
    assert len(fresh) == 100
    record = measures_of(sampler, layer, query, draws=100, fresh=fresh).record()
    for what in ("hidden", "classes"):
        fixed_bias, fresh_bias = record[f"{what}_bias_net"], record[f"fresh_{what}_bias_net"]
        assert isinstance(fixed_bias, float)
        assert fresh_bias == BELOW_NOISE or fresh_bias < 0.9 * fixed_bias
        assert record[f"fresh_{what}_std"] > 0


def test_samplers_without_tables_have_no_fresh_ones(layer: NumbaLayer, query: Query) -> None:
    config = SAMPLERS["uniform"](name="uniform")
    assert list(fresh_samplers(config, layer, TRAINING, 0, 5)) == []
    assert not any(name.startswith("fresh") for name in measures_of(build("uniform", layer), layer, query).record())


# ---------------------------------------------------------------- nothing moves


@pytest.mark.parametrize("rows", ["catch_up", "dense", "touched"])
def test_measuring_moves_nothing_and_repeats(
    rows: str, make_layer: Callable[..., NumbaLayer], make_query: Callable[..., Query]
) -> None:
    """Draws at later steps must not make rows catch up with steps that were never taken."""
    layer, query = make_layer(N, DIM, norm=2.0, rows=rows), make_query(ROWS, DIM, N)
    table = layer.table
    generator = np.random.default_rng(0)
    table.first[:] = generator.standard_normal(table.first.shape)
    table.second[:] = generator.random(table.second.shape)
    table.last_step[:] = 8
    before = {name: array.copy() for name, array in table.state_dict().items()}
    for name, loss in (("topk", "active_set"), ("uniform", "nce"), ("lsh_label", "active_set")):
        options: dict[str, Any] = {"num_nearest": 10} if name == "topk" else {"K": 3} if name == "lsh_label" else {}
        sampler = build(name, layer, **options)
        first = measures_of(sampler, layer, query, loss).record()
        assert measures_of(sampler, layer, query, loss).record() == first
        proposal_against_truth(sampler, layer, query, 40)
        for key, array in table.state_dict().items():
            np.testing.assert_array_equal(array, before[key], err_msg=f"{name}: {key}")
    table.read(None, 20)
    assert rows == "touched" or (table.weights != before["weights"]).any(), "afterwards rows move again"


def test_everything_by_rank(layer: NumbaLayer, query: Query) -> None:
    """Full softmax proposes each class once: its share of a group of ranks is the group's size."""
    sampler = build("full", layer)
    assert isinstance(sampler.sample(query, 1), Everything)
    record = proposal_against_truth(sampler, layer, query, 1)
    assert sum(record["proposal"]) == pytest.approx(1)
    assert sum(record["truth"]) == pytest.approx(1)

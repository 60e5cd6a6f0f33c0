"""The sampler contract, for every entry of the sampler table.

Legend: B rows, N classes, S steps. Bounds are 5 standard deviations: one comparison is a false alarm in 6e-7
of seeds. The frequency and partition tests make about 10,000 comparisons in all, so 0.6 % of seeds would fail.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
import yaml

from runner.contracts import Everything, Proposal, Query, TrainingFacts
from runner.errors import RunnerError
from runner.heads.output_layer import OutputLayer
from runner.samplers import SAMPLERS, Sampler

N, DIM, ROWS = 120, 16, 6
BOUND = 5.0

_STATIC: dict[str, dict[str, Any]] = {
    "shared": {"num_samples": 40},
    "per_row": {"num_samples": 40, "shared": False},
    "repeats": {"num_samples": 40, "unique": False},
    "per_row_repeats": {"num_samples": 40, "shared": False, "unique": False},
}
_LSH: dict[str, dict[str, Any]] = {
    # Whole buckets and no budget: what is retrieved is the same at each step.
    "simhash": {
        "hash": "simhash", "K": 4, "L": 3, "bucket_cap": N, "sparsity_budget": 1.0, "min_candidates": 20,
        "tail_candidates": 15, "refresh_period": 3,
    },
    "dwta": {
        "hash": "dwta", "K": 2, "L": 3, "bin_size": 4, "bucket_cap": N, "sparsity_budget": 1.0,
        "min_candidates": 20, "tail_candidates": 15, "refresh_period": 3,
    },
    # Buckets above the cap, tables above the budget.
    "simhash_capped": {
        "hash": "simhash", "K": 2, "L": 4, "bucket_cap": 4, "sparsity_budget": 0.05, "min_candidates": 30,
        "tail_candidates": 5, "refresh_period": 3,
    },
    "dwta_folded": {
        "hash": "dwta", "K": 6, "L": 5, "bin_size": 8, "bucket_cap": 2, "sparsity_budget": 0.1,
        "min_candidates": 1, "tail_candidates": 90, "refresh_period": 3,
    },
    "shared": {
        "hash": "simhash", "K": 5, "L": 2, "bucket_cap": N, "sparsity_budget": 1.0, "min_candidates": 1,
        "tail_candidates": 15, "shared": True, "refresh_period": 3,
    },
    # A tail only because little is retrieved.
    "shared_topped_up": {
        "hash": "simhash", "K": 7, "L": 1, "bucket_cap": 4, "sparsity_budget": 0.1, "min_candidates": 60,
        "tail_candidates": 0, "shared": True, "refresh_period": 3,
    },
    "shared_log_uniform_tail": {
        "hash": "simhash", "K": 5, "L": 2, "bucket_cap": N, "sparsity_budget": 1.0, "min_candidates": 1,
        "tail": "log_uniform", "tail_candidates": 25, "shared": True, "refresh_period": 3,
    },
    "shared_unigram_tail": {
        "hash": "simhash", "K": 4, "L": 2, "bucket_cap": N, "sparsity_budget": 1.0, "max_hits": 3, "min_candidates": 1,
        "tail": "unigram", "tail_candidates": 25, "shared": True, "refresh_period": 3,
    },
    "max_hits": {
        "hash": "simhash", "K": 3, "L": 6, "bucket_cap": N, "sparsity_budget": 1.0, "max_hits": 10,
        "min_candidates": 1, "tail_candidates": 15, "refresh_period": 3,
    },
    "shared_max_hits": {
        "hash": "dwta", "K": 2, "L": 6, "bin_size": 4, "bucket_cap": N, "sparsity_budget": 1.0, "max_hits": 4,
        "min_candidates": 1, "tail_candidates": 15, "shared": True, "refresh_period": 3,
    },
}  # fmt: skip
_RFF: dict[str, dict[str, Any]] = {
    "tree": {"num_samples": 40, "D": 64, "nu": 1.0, "refresh_period": 3},
    "orthogonal": {"num_samples": 40, "D": 64, "nu": 1.0, "features": "orthogonal", "refresh_period": 3},
    "flat": {"num_samples": 40, "D": 64, "nu": 1.0, "tree": False, "refresh_period": 3},
    "shared": {"num_samples": 40, "D": 64, "nu": 1.0, "shared": True, "refresh_period": 3},
    # So few frequencies that many kernel estimates are negative.
    "negative": {"num_samples": 40, "D": 5, "nu": 4.0, "refresh_period": 3},
    "negative_flat": {"num_samples": 40, "D": 5, "nu": 4.0, "tree": False, "refresh_period": 3},
    "negative_shared": {"num_samples": 40, "D": 5, "nu": 4.0, "shared": True, "refresh_period": 3},
}  # fmt: skip
_MIDX: dict[str, Any] = {"num_samples": 40, "codewords": 6, "refresh_period": 3}
_LEARN: dict[str, dict[str, Any]] = {
    "hard": {**_MIDX, "learn_classes": 60, "learn_steps": 3},
    "soft": {**_MIDX, "learn_assignment": "soft", "learn_steps": 3, "within": "popularity"},
}
CASES: dict[str, dict[str, dict[str, Any]]] = {
    "full": {"full": {}},
    "uniform": _STATIC,
    "log_uniform": _STATIC,
    "unigram": {**_STATIC, "flattened": {"num_samples": 40, "exponent": 0.75}},
    "topk": {"topk": {"k": 25}},
    "exact": {"exact": {"num_samples": 40}},
    "quadratic": {"quadratic": {"num_samples": 40}, "flat": {"num_samples": 40, "alpha": 0.5}},
    "sphere": {"sphere": {"num_samples": 40}},
    "in_batch": {"in_batch": {}},
    "lsh": {
        "simhash": {"num_samples": 40, "K": 4, "L": 5, "refresh_period": 3},
        "dwta": {"num_samples": 40, "hash": "dwta", "K": 1, "bin_size": 4, "L": 3, "refresh_period": 3},
        "empty_buckets": {"num_samples": 40, "K": 9, "L": 2, "refresh_period": 3},
        "published": {"num_samples": 40, "K": 3, "L": 2, "uniform_share": 0.0, "refresh_period": 3},
    },
    "lsh_topk": {
        "all_ranked": {"K": 1, "L": 6, "k": 20, "tail_candidates": 15, "refresh_period": 3},
        "few_retrieved": {"K": 5, "L": 2, "k": 60, "tail_candidates": 15, "refresh_period": 3},
        "capped": {"K": 2, "L": 4, "k": 10, "tail_candidates": 30, "bucket_cap": 5, "refresh_period": 3},
    },
    "lsh_label": _LSH,
    "lsh_embedding": _LSH,
    "rff": _RFF,
    "midx_pq": {"uniform": _MIDX, "popularity": {**_MIDX, "within": "popularity", "exponent": 0.5}},
    "midx_rq": {"uniform": {**_MIDX, "kmeans_rows": 60}, "popularity": {**_MIDX, "within": "popularity"}},
    "midx_exact": {"rq": _MIDX, "pq": {**_MIDX, "quantizer": "pq"}},
    "midx_learn_pq": _LEARN,
    "midx_learn_rq": _LEARN,
}
# What can not draw every class estimates the partition of those it can.
TRUNCATING = {"topk-topk", "lsh-published", "exact-exact"}

_UNIQUE = {"uniform", "log_uniform", "unigram"}  # samplers that can drop repeated draws

ALL = [pytest.param(name, case, id=f"{name}-{case}") for name, cases in CASES.items() for case in cases]
LOOKS_AT_EVERY_VECTOR = {name for name in CASES if name.startswith("midx")} | {"exact", "quadratic", "sphere"}
DETERMINISTIC = ("full", "topk", "in_batch")  # given the batch
RANDOM = [param for param in ALL if param.values[0] not in DETERMINISTIC]
# For in_batch the batch is the draw: its counts are tested over batches, below.
DRAWN = [param for param in ALL if param.values[0] != "in_batch"]
HASHED = [param for param in ALL if param.values[0].startswith("lsh")]  # tables that follow the weights
LNS = [param for param in HASHED if param.values[0] in ("lsh_label", "lsh_embedding")]
UNIFORM_TAIL = [param for param in LNS if "tail" not in CASES[param.values[0]][param.values[1]]]
NOBODY = np.zeros(0, dtype=np.int32)


def label_counts(n: int) -> np.ndarray:
    """Frequencies in no order of id, some zero."""
    counts = np.random.default_rng(7).permutation((200 / np.arange(1, n + 1)).astype(np.int64))
    counts[n // 2] = 0
    return counts


def repeats(name: str, case: str) -> bool:
    """Whether a row's candidates may hold a class several times."""
    return "num_samples" in CASES[name][case] and not (name in _UNIQUE and CASES[name][case].get("unique", True))


def build(name: str, case: str, layer: OutputLayer, *, seed: int = 3, **changes: Any) -> Sampler:
    config = SAMPLERS[name](name=name, **{**CASES[name][case], **changes})
    n = layer.num_classes
    return config.build(layer=layer, training=TrainingFacts.one_label_a_row(label_counts(n)), seed=seed)


def rows_of(proposal: Proposal | Everything, num_rows: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Each row's ids and log expected counts."""
    if isinstance(proposal, Everything):
        everything = np.arange(proposal.num_classes), np.zeros(proposal.num_classes)
        return [everything] * num_rows
    if proposal.indptr_B1 is None:
        return [(proposal.ids_N, proposal.log_expected_count_N)] * num_rows
    cuts = proposal.indptr_B1[1:-1]
    return list(zip(np.split(proposal.ids_N, cuts), np.split(proposal.log_expected_count_N, cuts), strict=True))


def same(a: Proposal | Everything, b: Proposal | Everything) -> bool:
    if isinstance(a, Everything) or isinstance(b, Everything):
        return a == b
    if (a.indptr_B1 is None) != (b.indptr_B1 is None):
        return False
    return (
        np.array_equal(a.ids_N, b.ids_N)
        and np.array_equal(a.log_expected_count_N, b.log_expected_count_N)
        and (a.indptr_B1 is None or np.array_equal(a.indptr_B1, b.indptr_B1))
    )


@pytest.fixture
def layer(make_layer: Callable[..., OutputLayer]) -> OutputLayer:
    return make_layer(N, DIM, norm=2.0)


@pytest.fixture
def query(make_query: Callable[..., Query]) -> Query:
    return make_query(ROWS, DIM, N)


# ---------------------------------------------------------------- the table


def test_every_sampler_has_cases() -> None:
    assert set(CASES) == set(SAMPLERS), "a sampler without cases here is a sampler without a contract"


def test_every_yaml_is_a_sampler_and_every_sampler_has_a_yaml() -> None:
    folder = Path(__file__).resolve().parents[2] / "conf" / "sampler"
    names = {path.stem: yaml.safe_load(path.read_text())["name"] for path in folder.glob("*.yaml")}
    assert set(names) == set(SAMPLERS)
    assert all(stem == name for stem, name in names.items())


# ---------------------------------------------------------------- shape and determinism


@pytest.mark.parametrize(("name", "case"), ALL)
def test_proposals_are_well_formed(name: str, case: str, layer: OutputLayer, query: Query) -> None:
    sampler = build(name, case, layer)
    for step in (1, 2, 900):
        proposal = sampler.sample(query, step)
        if isinstance(proposal, Everything):
            assert proposal.num_classes == N
            assert proposal.candidates_per_row(ROWS) == N
            continue
        assert proposal.ids_N.dtype == np.int32
        assert proposal.log_expected_count_N.dtype == np.float32
        assert proposal.ids_N.shape == proposal.log_expected_count_N.shape
        assert proposal.ids_N.min() >= 0
        assert proposal.ids_N.max() < N
        assert np.isfinite(proposal.log_expected_count_N).all()
        if proposal.indptr_B1 is None:
            assert proposal.is_shared
            assert (np.diff(proposal.ids_N) >= 0).all(), "shared ids ascend: hits are found by bisection"
            assert proposal.candidates_per_row(ROWS) == len(proposal.ids_N)
        else:
            assert proposal.indptr_B1.dtype == np.int64
            assert proposal.indptr_B1.shape == (ROWS + 1,)
            assert proposal.indptr_B1[0] == 0
            assert proposal.indptr_B1[-1] == len(proposal.ids_N)
            assert (np.diff(proposal.indptr_B1) > 0).all()
            assert proposal.candidates_per_row(ROWS) == pytest.approx(len(proposal.ids_N) / ROWS)
        assert proposal.distinct == (not repeats(name, case))
        if proposal.distinct:
            for ids, log_counts in rows_of(proposal, ROWS):
                assert len(np.unique(ids)) == len(ids)
                assert log_counts.max() <= 0, "a class that stands at most once is expected at most once"


@pytest.mark.parametrize(("name", "case"), ALL)
def test_pure_in_seed_and_step(name: str, case: str, layer: OutputLayer, query: Query) -> None:
    sampler = build(name, case, layer)
    first = sampler.sample(query, 5)
    sampler.sample(query, 6)
    assert same(first, sampler.sample(query, 5)), "drawing in between must not matter"
    assert same(first, build(name, case, layer).sample(query, 5)), "neither must the object's age"


@pytest.mark.parametrize(("name", "case"), RANDOM)
def test_steps_seeds_and_rows_differ(name: str, case: str, layer: OutputLayer, query: Query) -> None:
    sampler = build(name, case, layer)
    first = sampler.sample(query, 5)
    assert not same(first, sampler.sample(query, 6))
    assert not same(first, build(name, case, layer, seed=4).sample(query, 5))
    twins = Query(
        hidden_BD=np.repeat(query.hidden_BD[:1], 2, axis=0),
        target_indptr_B1=np.array([0, 1, 2], dtype=np.int64),
        targets_P=np.repeat(query.targets_P[:1], 2),
    )
    proposal = sampler.sample(twins, 5)
    assert isinstance(proposal, Proposal)
    if not proposal.is_shared:
        (a, _), (b, _) = rows_of(proposal, 2)
        assert not np.array_equal(a, b), "rows draw for themselves"


@pytest.mark.parametrize(("name", "case"), ALL)
def test_same_bits_with_one_thread_and_two(
    name: str, case: str, make_layer: Callable[..., OutputLayer], query: Query
) -> None:
    def proposals(threads: int) -> list[Proposal | Everything]:
        numba.set_num_threads(threads)
        sampler = build(name, case, make_layer(N, DIM, norm=2.0))
        return [sampler.sample(query, step) for step in range(1, 6)]

    assert all(same(a, b) for a, b in zip(proposals(1), proposals(2), strict=True))


@pytest.mark.parametrize(("name", "case"), ALL)
def test_threads_may_change_after_construction(name: str, case: str, layer: OutputLayer, query: Query) -> None:
    numba.set_num_threads(1)
    sampler = build(name, case, layer)
    one = sampler.sample(query, 4)
    numba.set_num_threads(2)
    assert same(one, sampler.sample(query, 4))


# ---------------------------------------------------------------- stated counts are true counts


def stated_counts(sampler: Sampler, query: Query, step: int) -> np.ndarray:
    return np.exp(sampler.log_expected_count(query, np.arange(N, dtype=np.int32), step).astype(np.float64))


@pytest.mark.parametrize(("name", "case"), ALL)
def test_counts_of_any_id_agree_with_the_proposal(name: str, case: str, layer: OutputLayer, query: Query) -> None:
    sampler = build(name, case, layer)
    for step in (1, 7):
        log_count_BN = sampler.log_expected_count(query, np.arange(N, dtype=np.int32), step)
        assert log_count_BN.shape == (ROWS, N)
        for row, (ids, log_counts) in enumerate(rows_of(sampler.sample(query, step), ROWS)):
            np.testing.assert_array_equal(log_count_BN[row, ids], log_counts)
        some = np.array([5, 0, 5, N - 1], dtype=np.int32)
        np.testing.assert_array_equal(sampler.log_expected_count(query, some, step), log_count_BN[:, some])


@pytest.mark.parametrize(("name", "case"), ALL)
def test_counts_of_targets_are_those_of_any_id(name: str, case: str, layer: OutputLayer, query: Query) -> None:
    sampler = build(name, case, layer)
    for step in (1, 7):
        log_count_BN = sampler.log_expected_count(query, np.arange(N, dtype=np.int32), step)
        log_count_P = sampler.log_expected_count_of_targets(query, sampler.sample(query, step), step)
        np.testing.assert_array_equal(log_count_P, log_count_BN[query.row_P, query.targets_P])


@pytest.mark.parametrize(("name", "case"), DRAWN)
def test_mean_number_of_candidates_is_the_sum_of_the_counts(
    name: str, case: str, layer: OutputLayer, query: Query
) -> None:
    sampler = build(name, case, layer)
    # Exact at every step: |S| + |T| is what is stated.
    if not repeats(name, case) and name not in _UNIQUE and "tail" not in CASES[name][case]:
        proposal = rows_of(sampler.sample(query, 3), ROWS)
        sizes = [len(ids) for ids, _ in proposal]
        np.testing.assert_allclose(stated_counts(sampler, query, 3).sum(1), sizes, rtol=1e-5)
    elif repeats(name, case):
        np.testing.assert_allclose(stated_counts(sampler, query, 1).sum(1), 40, rtol=1e-5)


def frequency_scores(sampler: Sampler, query: Query, draws: int, *, unique: bool, moving: bool) -> np.ndarray:
    """Standard scores of (times drawn - stated count) of every class and row, over steps with ``draws`` candidates.

    Summed over steps that is a martingale whatever the tables retrieve. ``unique``: a class is drawn or not; otherwise
    its number of a row's draws is binomial. ``moving``: stated counts differ between steps. Classes expected fewer than
    ten times are taken together, those whose count is certain must be met exactly.
    """
    proposal = sampler.sample(query, 1)
    rows = 1 if isinstance(proposal, Everything) or proposal.is_shared else ROWS
    candidates = proposal.candidates_per_row(ROWS)
    counts_BN = stated_counts(sampler, query, 1)[:rows]
    excess_BN, variance_BN, expected_BN = np.zeros((rows, N)), np.zeros((rows, N)), np.zeros((rows, N))
    for step in range(1, 1 + math.ceil(draws / (rows * candidates))):
        if moving:
            counts_BN = stated_counts(sampler, query, step)[:rows]
        drawn_BN = np.zeros((rows, N))
        for row, (ids, _) in enumerate(rows_of(sampler.sample(query, step), ROWS)[:rows]):
            drawn_BN[row] = np.bincount(ids, minlength=N)
        certain = (counts_BN == 0) | (unique & (counts_BN > 1 - 1e-6))
        np.testing.assert_array_equal(drawn_BN[certain], counts_BN[certain].round())
        spread = counts_BN * (1 - counts_BN) if unique else counts_BN * (1 - counts_BN / candidates)
        variance_BN += np.where(certain, 0, spread)
        excess_BN += np.where(certain, 0, drawn_BN - counts_BN)
        expected_BN += counts_BN
    often = (expected_BN >= 10) & (variance_BN > 0)
    scores = [excess_BN[often] / np.sqrt(variance_BN[often])]
    rarely = variance_BN[~often].sum()
    if expected_BN[~often & (variance_BN > 0)].sum() >= 10:
        scores.append(excess_BN[~often].sum(keepdims=True) / np.sqrt(rarely))
    return np.concatenate(scores)


def surprise(scores: np.ndarray) -> float:
    """Probability of a sum of squared scores at least this large, were the counts true (chi-square)."""
    from scipy.stats import chi2

    return float(chi2.sf(np.square(scores).sum(), len(scores)))


@pytest.mark.parametrize(("name", "case"), DRAWN)
def test_frequencies_match_the_stated_counts(name: str, case: str, layer: OutputLayer, query: Query) -> None:
    """Chi-square and largest deviation of a million candidates (a sampler's first case; 70,000 the others).

    False alarm: 1e-6 of seeds a case for the chi-square.
    """
    draws = 1_000_000 if case == next(iter(CASES[name])) and name not in DETERMINISTIC else 70_000
    moving = name in ("lsh_label", "lsh_embedding", "lsh_topk")
    scores = frequency_scores(build(name, case, layer), query, draws, unique=not repeats(name, case), moving=moving)
    if name in DETERMINISTIC:
        assert len(scores) == 0
        return
    assert np.abs(scores).max() < BOUND
    assert surprise(scores) > 1e-6


class _Mistaken(Sampler):
    """Draws as ``inner`` does and states other counts."""

    def __init__(self, inner: Sampler, state: Callable[[np.ndarray, Query], np.ndarray]) -> None:
        self.inner, self.state = inner, state

    def sample(self, query: Query, step: int) -> Proposal | Everything:
        return self.inner.sample(query, step)

    def log_expected_count(self, query: Query, ids_M: np.ndarray, step: int) -> np.ndarray:
        everyone = np.arange(N, dtype=np.int32)
        return self.state(self.inner.log_expected_count(query, everyone, step), query)[:, ids_M]


@pytest.mark.parametrize(
    "mistake",
    ["log m with the wrong sign", "another sampler's weights", "popularity shifted by one", "one row's counts"],
)
def test_known_mistakes_are_caught(mistake: str, layer: OutputLayer, query: Query) -> None:
    """What public code got wrong, and this suite must see with the draws it takes of a case that is not the first."""
    rff = build("rff", "tree", layer)
    everyone = np.arange(N, dtype=np.int32)
    name, case, state = {
        "log m with the wrong sign": ("rff", "tree", lambda log_count, _: log_count - 2 * np.log(40)),
        "another sampler's weights": (
            "uniform", "per_row_repeats", lambda _, query: rff.log_expected_count(query, everyone, 1)
        ),
        "popularity shifted by one": ("unigram", "per_row_repeats", lambda log_count, _: np.roll(log_count, 1, axis=1)),
        "one row's counts": ("quadratic", "quadratic", lambda log_count, _: np.repeat(log_count[:1], ROWS, axis=0)),
    }[mistake]  # fmt: skip
    inner = build(name, case, layer)
    true = frequency_scores(inner, query, 70_000, unique=False, moving=False)
    mistaken = frequency_scores(_Mistaken(inner, state), query, 70_000, unique=False, moving=False)
    assert surprise(true) > 1e-6
    assert surprise(mistaken) < 1e-30


@pytest.mark.parametrize(("name", "case"), DRAWN)
def test_partition_estimate_is_unbiased(name: str, case: str, layer: OutputLayer, query: Query) -> None:
    """E[sum over candidates of exp(logit - log count)] = sum over classes that can be drawn of exp(logit)."""
    sampler = build(name, case, layer)
    weight_BN = np.exp(query.hidden_BD.astype(np.float64) @ layer.table.weights.T + layer.table.bias_view)
    assert (stated_counts(sampler, query, 1) > 0).all() == (f"{name}-{case}" not in TRUNCATING)
    check_partition(sampler, query, weight_BN)


def check_partition(sampler: Sampler, query: Query, weight_BN: np.ndarray) -> None:
    """The mean estimate of 1,500 steps is within 5 standard errors of the sum of what can be drawn."""
    possible_BN = stated_counts(sampler, query, 1) > 0
    exact_B = (weight_BN * possible_BN).sum(1)
    steps = 1500
    estimate_SB = np.empty((steps, ROWS))
    for step in range(steps):
        for row, (ids, log_counts) in enumerate(rows_of(sampler.sample(query, step + 1), ROWS)):
            estimate_SB[step, row] = (weight_BN[row, ids] / np.exp(log_counts.astype(np.float64))).sum()
    mean_B = estimate_SB.mean(0)
    error_B = estimate_SB.std(0) / np.sqrt(steps) + 2e-6 * exact_B
    assert (np.abs(mean_B - exact_B) < BOUND * error_B).all()


def test_topk_takes_the_largest_logits(layer: OutputLayer, query: Query) -> None:
    logits_BN = query.hidden_BD @ layer.table.weights.T + layer.table.bias_view
    for row, (ids, _) in enumerate(rows_of(build("topk", "topk", layer).sample(query, 1), ROWS)):
        np.testing.assert_array_equal(ids, np.sort(np.argsort(-logits_BN[row])[:25]))


def test_in_batch_counts_hold_over_batches(layer: OutputLayer) -> None:
    """A row's candidates over random batches, the rest drawn from all training rows but its own.

    40,000 batches of 8 out of 60 rows with one or two of 20 classes each; z < 5 in 20 comparisons, false alarm 1e-5.
    """
    generator = np.random.default_rng(2)
    rows, batch, classes = 60, 8, 20
    labels = [np.sort(generator.choice(classes, generator.integers(1, 3), replace=False)) for _ in range(rows)]
    counts = np.bincount(np.concatenate(labels), minlength=N)
    training = TrainingFacts(label_counts_N=counts, num_rows=rows, steps_per_epoch=1)
    sampler = SAMPLERS["in_batch"](name="in_batch").build(layer=layer, training=training, seed=0)  # type: ignore[call-arg]
    steps, seen, stated = 40_000, np.zeros(N), np.zeros(N)
    for _ in range(steps):
        chosen = [0, *(1 + generator.choice(rows - 1, batch - 1, replace=False))]
        seen[np.unique(np.concatenate([labels[row] for row in chosen]))] += 1
    query = Query(
        hidden_BD=np.zeros((batch, DIM), dtype=np.float32),
        target_indptr_B1=np.concatenate([[0], np.cumsum([len(labels[row]) for row in chosen])]).astype(np.int64),
        targets_P=np.concatenate([labels[row] for row in chosen]).astype(np.int32),
    )
    proposal = sampler.sample(query, 1)
    assert isinstance(proposal, Proposal)
    np.testing.assert_array_equal(proposal.ids_N, np.unique(query.targets_P))
    stated = np.exp(sampler.log_expected_count(query, np.arange(N, dtype=np.int32), 1)[0].astype(np.float64))
    assert (counts[:classes] > 0).all()
    others = np.setdiff1d(np.arange(classes), labels[0])  # the row's own targets are masked, whatever is stated
    error = np.sqrt(steps * stated[others] * (1 - stated[others]))
    assert (np.abs(seen[others] - steps * stated[others]) < BOUND * error).all()


@pytest.mark.parametrize(("rows", "batch", "count"), [(10**9, 256, 1), (9 * 10**7, 2, 1), (1000, 11, 3), (12, 12, 4)])
def test_in_batch_counts_at_any_size(rows: int, batch: int, count: int, layer: OutputLayer) -> None:
    """1 - product over draws j of (1 - c / (R - 1 - j)), in exact arithmetic."""
    training = TrainingFacts(label_counts_N=np.full(N, count), num_rows=rows, steps_per_epoch=1)
    sampler = SAMPLERS["in_batch"](name="in_batch").build(layer=layer, training=training, seed=0)  # type: ignore[call-arg]
    miss = Fraction(1)
    for j in range(batch - 1):
        miss *= max(Fraction(0), 1 - Fraction(count, rows - 1 - j))
    query = Query(
        hidden_BD=np.zeros((batch, DIM), dtype=np.float32),
        target_indptr_B1=np.arange(batch + 1, dtype=np.int64),
        targets_P=np.arange(batch, dtype=np.int32) % N,
    )
    stated = sampler.log_expected_count(query, np.arange(N, dtype=np.int32), 1)
    np.testing.assert_allclose(np.exp(stated.astype(np.float64)), float(1 - miss), rtol=1e-5)


FIRST = [pytest.param(name, next(iter(cases)), id=name) for name, cases in CASES.items() if name != "in_batch"]


@pytest.mark.parametrize(("name", "case"), FIRST)
def test_counts_hold_in_a_normalised_layer(name: str, case: str, layer: OutputLayer, query: Query) -> None:
    """Logits are 4 cos(h, w) + b: frequencies of 70,000 candidates and the partition of those logits."""
    layer = OutputLayer(layer.table, 4.0)
    layer.table.weights *= np.geomspace(0.2, 5, N, dtype=np.float32)[:, None]
    sampler = build(name, case, layer)
    moving = name in ("lsh_label", "lsh_embedding", "lsh_topk")
    scores = frequency_scores(sampler, query, 70_000, unique=not repeats(name, case), moving=moving)
    if name not in DETERMINISTIC:
        assert np.abs(scores).max() < BOUND
        assert surprise(scores) > 1e-6
    weights = layer.table.weights.astype(np.float64)
    cosine_BN = (query.hidden_BD / np.linalg.norm(query.hidden_BD, axis=1, keepdims=True)) @ (
        weights / np.linalg.norm(weights, axis=1, keepdims=True)
    ).T
    weight_BN = np.exp(4 * cosine_BN + layer.table.bias_view)
    check_partition(sampler, query, weight_BN)
    if name in ("topk", "lsh_topk"):  # what is certain is what has the largest logits of those looked at
        counts_BN = stated_counts(sampler, query, 1)
        for row in range(ROWS):
            assert weight_BN[row][counts_BN[row] == 1].mean() > weight_BN[row].mean()


@pytest.mark.parametrize("case", list(CASES["lsh_topk"]))
def test_lsh_topk_takes_the_largest_logits_it_retrieves(case: str, layer: OutputLayer, query: Query) -> None:
    sampler: Any = build("lsh_topk", case, layer, bucket_cap=N)
    logits_BN = query.hidden_BD @ layer.table.weights.T + layer.table.bias_view
    code_LN = full_hashing(sampler, layer)
    code_LB = sampler.index.family.hash(query.hidden_BD, np.arange(ROWS, dtype=np.int32))
    retrieved_BN = (code_LN[:, None, :] == code_LB[:, :, None]).any(0)
    for row, (ids, log_counts) in enumerate(rows_of(sampler.sample(query, 1), ROWS)):
        found = np.flatnonzero(retrieved_BN[row])
        best = found[np.argsort(-logits_BN[row, found])[: sampler.k]]
        np.testing.assert_array_equal(np.sort(ids[log_counts == 0]), np.sort(best))
        assert (log_counts != 0).sum() == sampler.tail


@pytest.mark.parametrize("name", list(CASES))
def test_a_class_vector_that_is_not_a_number(name: str, layer: OutputLayer, query: Query) -> None:
    """One line that says so, or (what does not look at vectors) a proposal as well formed as ever."""
    layer.table.weights[7] = np.nan
    layer.table.weights[11] = np.inf
    for case in CASES[name]:
        if name in LOOKS_AT_EVERY_VECTOR:
            with pytest.raises(RunnerError, match=r"^[^\n]*not (a )?finite number[^\n]*; try a smaller optimizer\.lr$"):
                build(name, case, layer).sample(query, 1)
            continue
        proposal = build(name, case, layer).sample(query, 1)
        for ids, log_counts in rows_of(proposal, ROWS):
            assert len(ids) > 0
            assert 0 <= ids.min() <= ids.max() < N
            assert np.isfinite(log_counts).all()


@pytest.mark.parametrize(("name", "case"), UNIFORM_TAIL)
def test_retrieved_classes_count_once_and_tail_classes_their_share(
    name: str, case: str, layer: OutputLayer, query: Query
) -> None:
    sampler = build(name, case, layer)
    for row, (ids, log_counts) in enumerate(rows_of(sampler.sample(query, 2), ROWS)):
        retrieved = int((log_counts == 0).sum())
        tail = len(ids) - retrieved
        assert 0 < tail < N - retrieved, f"row {row}: this case must leave something undrawn"
        assert tail >= CASES[name][case]["tail_candidates"]
        np.testing.assert_allclose(np.exp(log_counts[log_counts != 0]), tail / (N - retrieved), rtol=1e-5)


def test_lsh_label_retrieves_the_target_itself(layer: OutputLayer, query: Query) -> None:
    """A target's vector falls into its own buckets, so with whole buckets it is always retrieved."""
    sampler = build("lsh_label", "simhash", layer)
    log_count_BN = sampler.log_expected_count(query, np.arange(N, dtype=np.int32), 1)
    for row in range(ROWS):
        targets = query.targets_P[query.target_indptr_B1[row] : query.target_indptr_B1[row + 1]]
        assert (log_count_BN[row, targets] == 0).all()


@pytest.mark.parametrize("mode", ["lsh_label", "lsh_embedding"])
@pytest.mark.parametrize("case", ["simhash", "dwta"])
@pytest.mark.parametrize("center", [False, True])
def test_retrieved_set_is_the_union_of_the_query_buckets(
    mode: str, case: str, center: bool, layer: OutputLayer, query: Query
) -> None:
    """Brute force over codes: i is retrieved if and only if it agrees with a query in some table's code."""
    sampler: Any = build(mode, case, layer, center=center)
    weights = layer.table.weights - layer.table.weights.mean(0) if center else layer.table.weights
    code_LN = sampler.index.family.hash(weights, np.arange(N, dtype=np.int32))
    code_LB = sampler.index.family.hash(query.hidden_BD, np.arange(ROWS, dtype=np.int32))
    for row, (ids, log_counts) in enumerate(rows_of(sampler.sample(query, 1), ROWS)):
        targets = query.targets_P[query.target_indptr_B1[row] : query.target_indptr_B1[row + 1]]
        asked = code_LN[:, targets] if mode == "lsh_label" else code_LB[:, row : row + 1]
        expected = np.flatnonzero((code_LN[:, :, None] == asked[:, None, :]).any((0, 2)))
        np.testing.assert_array_equal(np.sort(ids[log_counts == 0]), expected)


def test_caps_and_budgets_hold(layer: OutputLayer, query: Query) -> None:
    """|S| is at most the budget plus one capped bucket for each query of the row."""
    settings = {"tail_candidates": 0, "min_candidates": 1, "K": 1, "L": 40}
    sampler = build("lsh_label", "simhash_capped", layer, **settings)
    queries_B = np.diff(query.target_indptr_B1)
    for step in range(1, 20):
        for row, (ids, _) in enumerate(rows_of(sampler.sample(query, step), ROWS)):
            assert 1 <= len(ids) <= int(0.05 * N) + 4 * queries_B[row]


# ---------------------------------------------------------------- LSH: fewest and shared candidates

MODES = ["lsh_label", "lsh_embedding"]


def collisions(sampler: Any, layer: OutputLayer, query: Query) -> np.ndarray:
    """(B, N): how many of the row's buckets hold a class, one for each table and query."""
    code_LN = full_hashing(sampler, layer)
    if sampler.config.queries_with_label:
        asked_LP, row_P = code_LN[:, query.targets_P], query.row_P
    else:
        asked_LP = sampler.index.family.hash(query.hidden_BD, np.arange(ROWS, dtype=np.int32))
        row_P = np.arange(ROWS)
    met_BN = np.zeros((ROWS, N), dtype=np.int64)
    np.add.at(met_BN, row_P, (code_LN[:, :, None] == asked_LP[:, None, :]).sum(0).T)
    return met_BN


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("tail", [0, 15])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("max_hits", [1, 7, 30])
def test_max_hits_keeps_the_classes_met_most(
    mode: str, tail: int, shared: bool, max_hits: int, layer: OutputLayer, query: Query
) -> None:
    """Every class above the least count kept, none below it; ties at it fill up, at random."""
    sampler = build(mode, "max_hits", layer, max_hits=max_hits, shared=shared, tail_candidates=tail)
    met_BN = collisions(sampler, layer, query)
    least_B1 = np.maximum(np.sort(met_BN, axis=1)[:, [-max_hits]], 1)
    size_B = np.minimum((met_BN > 0).sum(1), max_hits)
    assert (size_B == max_hits).any(), "the limit must bite"
    chosen = []
    for step in (1, 2, 3, 4):
        rows = rows_of(sampler.sample(query, step), ROWS)
        if shared:
            ids, log_counts = rows[0]
            kept = ids[log_counts == 0]
            assert set(np.flatnonzero((met_BN > least_B1).any(0))) <= set(kept)
            assert set(kept) <= set(np.flatnonzero((met_BN >= least_B1).any(0)))
            assert size_B.max() <= len(kept) <= size_B.sum()
        for row, (ids, log_counts) in enumerate([] if shared else rows):
            kept = ids[log_counts == 0]
            assert len(np.unique(kept)) == len(kept) == size_B[row]
            assert set(np.flatnonzero(met_BN[row] > least_B1[row])) <= set(kept)
            assert (met_BN[row, kept] >= least_B1[row]).all()
        chosen.append(rows[0][0])
        if not tail:
            assert all((log_counts == 0).all() for _, log_counts in rows)
            stated = stated_counts(sampler, query, step)
            assert ((stated == 0) | (stated == 1)).all(), "without a tail nothing else can be drawn"
    if max_hits == 7 and not tail:
        assert any(not np.array_equal(np.sort(chosen[0]), np.sort(other)) for other in chosen), "ties fall by step"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shared", [False, True])
def test_max_hits_beyond_what_is_met_changes_nothing(mode: str, shared: bool, layer: OutputLayer, query: Query) -> None:
    sampler = build(mode, "max_hits", layer, max_hits=None, shared=shared)
    most = int((collisions(sampler, layer, query) > 0).sum(1).max())
    assert most < N
    for max_hits in (most, 10 * N):
        limited = build(mode, "max_hits", layer, max_hits=max_hits, shared=shared)
        assert all(same(limited.sample(query, step), sampler.sample(query, step)) for step in (1, 2, 3))


@pytest.mark.parametrize("mode", MODES)
def test_more_collisions_than_a_byte_counts_are_a_tie(mode: str, layer: OutputLayer, query: Query) -> None:
    layer.table.weights[:] = layer.table.weights[0]
    query.hidden_BD[:] = layer.table.weights[0]
    sampler = build(mode, "max_hits", layer, L=300, tail_candidates=0, center=False)
    assert (collisions(sampler, layer, query) >= 300).all()
    for ids, _ in rows_of(sampler.sample(query, 1), ROWS):
        assert len(np.unique(ids)) == len(ids) == 10


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("tail", [0, 15])
def test_shared_is_the_union_of_what_rows_retrieve(mode: str, tail: int, layer: OutputLayer, query: Query) -> None:
    sampler = build(mode, "shared", layer, tail_candidates=tail)
    union = np.flatnonzero(collisions(sampler, layer, query).any(0))
    proposal = sampler.sample(query, 1)
    assert isinstance(proposal, Proposal)
    assert proposal.is_shared
    assert (np.diff(proposal.ids_N) > 0).all()
    np.testing.assert_array_equal(proposal.ids_N[proposal.log_expected_count_N == 0], union)
    assert len(proposal.ids_N) == len(union) + tail


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", ["shared", "shared_topped_up"])
def test_shared_tail_is_uniform_outside_the_union(mode: str, case: str, layer: OutputLayer, query: Query) -> None:
    """Chi-square of draws without replacement, corrected for what a draw excludes; false alarm 1e-6 of seeds."""
    from scipy.stats import chi2

    sampler = build(mode, case, layer, bucket_cap=N, sparsity_budget=1.0)
    outside = np.flatnonzero(~collisions(sampler, layer, query).any(0))
    steps, drawn = 3000, np.zeros(N)
    for step in range(1, steps + 1):
        ids, log_counts = rows_of(sampler.sample(query, step), 1)[0]
        tail = ids[log_counts != 0]
        np.testing.assert_allclose(log_counts[log_counts != 0], np.log(len(tail) / len(outside)), rtol=1e-5)
        drawn[tail] += 1
    assert drawn.sum() == drawn[outside].sum()
    share = len(tail) / len(outside)
    assert 0 < share < 1
    squares = np.square(drawn[outside] - steps * share).sum() / (steps * share * (1 - share))
    assert chi2.sf(squares * (1 - 1 / len(outside)), len(outside) - 1) > 1e-6


# ---------------------------------------------------------------- following the weights


def move_rows(layer: OutputLayer, ids: list[int], step: int, seed: int) -> np.ndarray:
    """One real optimizer step on some class rows, large enough to change their codes; returns their ids."""
    from runner.kernels.groups import group_by_id

    chosen = np.array(ids, dtype=np.int32)
    groups = group_by_id(chosen, layer.num_classes)
    layer.table.before_step(step)
    layer.table.read(groups[1], step)
    grad = np.random.default_rng(seed).standard_normal((len(ids), layer.dim)).astype(np.float32)
    pairs = np.arange(len(ids), dtype=np.int32)
    ones = np.ones(len(ids), dtype=np.float32)
    nobody = np.zeros((0, layer.dim), dtype=np.float32)
    layer.table.update_groups(groups, grad, pairs, ones, nobody, step)
    return groups[1]


def full_hashing(sampler: Any, layer: OutputLayer) -> np.ndarray:
    """Codes of all class vectors around the centre that the sampler's codes stand around."""
    return sampler.index.family.hash(
        layer.table.weights, np.arange(layer.num_classes, dtype=np.int32), sampler.index._center_D
    )


@pytest.mark.parametrize(("name", "case"), HASHED)
@pytest.mark.parametrize("rows", ["dense", "touched", "catch_up"])
@pytest.mark.parametrize("center", [False, True])
def test_refresh_is_a_rebuild(
    name: str, case: str, rows: str, center: bool, make_layer: Callable[..., OutputLayer], query: Query
) -> None:
    """Whether some or all classes are hashed: with a centre, vectors so short leave it and all are."""
    layer = make_layer(N, DIM, norm=0.05, rows=rows)
    sampler: Any = build(name, case, layer, center=center)
    before = sampler.tables.codes.copy()
    rounds = 0
    for step in range(1, 15):
        touched = move_rows(layer, [step, 40 + step, 80 + (step % 3)], step, seed=step)
        stale = sampler.tables.codes.copy()
        if not sampler.refresh(query, step, touched):
            np.testing.assert_array_equal(sampler.tables.codes, stale)
            continue
        rounds += 1
        layer.table.read(None, step + 1)
        codes = full_hashing(sampler, layer)
        np.testing.assert_array_equal(sampler.tables.codes, codes)
        for table, members in enumerate(np.split(sampler.tables.members, len(codes))):
            np.testing.assert_array_equal(np.sort(members[0]), np.arange(N))
            np.testing.assert_array_equal(codes[table, members[0]], np.sort(codes[table]))
    assert rounds >= 3
    assert not np.array_equal(sampler.tables.codes, before), "the steps must have moved some code"
    if not center:
        assert sampler.index.rehashed_rows < 2 * N, "the steps touched 31 classes"


@pytest.mark.parametrize("rows", ["dense", "touched", "catch_up"])
def test_only_classes_that_moved_are_hashed_again(
    rows: str, make_layer: Callable[..., OutputLayer], query: Query
) -> None:
    """Ten classes touched once, refreshes every ten steps: hashed again until their momentum is spent.

    By then 0.1 % of the first step's speed is left, so a later code may differ from a full hashing's only where the
    vector stands at a bucket's very border: at most 1 in 1,000 (here none).
    """
    layer = make_layer(N, DIM, norm=2.0, rows=rows)
    sampler: Any = build("lsh_embedding", "simhash", layer, refresh_period=10, refresh_growth=1.0)
    moved = move_rows(layer, list(range(10)), 1, seed=1)
    sampler.note_touched(moved, 1)
    for step in range(2, 201):
        layer.table.before_step(step)
        if sampler.refresh(query, step, NOBODY):
            layer.table.read(None, step + 1)
            assert (sampler.tables.codes == full_hashing(sampler, layer)).mean() > 0.999
    settling = layer.table.settling_steps
    assert settling == (0 if rows == "touched" else 66)
    # Refreshes at 10, 20, ...: those whose predecessor came before the class had settled.
    hashed = sum(previous < 1 + settling for previous in range(0, 200, 10))
    assert sampler.statistics["rehashed_rows"] == N + 10 * hashed
    assert sampler.refreshes == 20


def test_many_moved_classes_are_hashed_in_bulk(make_layer: Callable[..., OutputLayer]) -> None:
    layer = make_layer(N, DIM, norm=2.0)
    sampler: Any = build("lsh_embedding", "simhash", layer)
    sampler.note_touched(move_rows(layer, list(range(N // 2 + 1)), 1, seed=1), 1)
    sampler.rebuild(1)
    assert sampler.index.rehashed_rows == 2 * N
    np.testing.assert_allclose(sampler.index._center_D, layer.table.weights.mean(0), atol=1e-6)


@pytest.mark.parametrize(("share", "center", "bulk"), [(0.05, True, False), (0.2, True, True), (0.2, False, False)])
def test_a_mean_that_left_the_centre_moves_it(
    share: float, center: bool, bulk: bool, make_layer: Callable[..., OutputLayer]
) -> None:
    """``share``: how far the mean moves, in units of the vectors' distance from it; the tolerance is 0.1."""
    layer = make_layer(N, DIM, norm=2.0)
    sampler: Any = build("lsh_label", "simhash", layer, center=center)
    weights, start = layer.table.weights, sampler.index._center_D.copy()
    spread = np.sqrt(np.square(weights - weights.mean(0)).sum(1).mean())
    weights += np.float32(share * spread / np.sqrt(DIM))
    sampler.rebuild(1)
    assert sampler.index.rehashed_rows == (2 * N if bulk else N)
    np.testing.assert_allclose(sampler.index._center_D, weights.mean(0) if bulk else start, atol=1e-6)


@pytest.mark.parametrize("name", ["lsh_label", "lsh_embedding"])
def test_refreshes_come_at_growing_intervals(name: str, make_layer: Callable[..., OutputLayer], query: Query) -> None:
    sampler = build(name, "simhash", make_layer(N, DIM), refresh_period=4, refresh_growth=2.0)
    due = [step for step in range(1, 61) if sampler.refresh(query, step, NOBODY)]
    assert due == [4, 12, 28, 60]


@pytest.mark.parametrize(("name", "case"), ALL)
def test_state_round_trip(name: str, case: str, make_layer: Callable[..., OutputLayer], query: Query) -> None:
    layer = make_layer(N, DIM, norm=0.05)
    sampler = build(name, case, layer)
    follows = bool(sampler.state_dict())
    for step in range(1, 5):
        sampler.refresh(query, step, move_rows(layer, [step, 50 + step], step, seed=step))
    # The tables are now behind the weights.
    sampler.refresh(query, 5, move_rows(layer, list(range(0, N, 2)), 5, seed=99))
    state = {key: value.copy() for key, value in sampler.state_dict().items()}
    other = build(name, case, layer)
    if follows and name != "midx_exact":  # whose draws do not depend on its index
        assert not same(other.sample(query, 6), sampler.sample(query, 6)), "there must be something to restore"
    other.load_state_dict(state)
    for step in range(6, 12):
        if follows or name in (*_UNIQUE, "full", "in_batch"):  # others follow the weights, which are the layer's state
            assert same(other.sample(query, step), sampler.sample(query, step))
        assert other.refresh(query, step, NOBODY) == sampler.refresh(query, step, NOBODY)
        assert other.statistics == sampler.statistics


# ---------------------------------------------------------------- odd sizes and odd vectors


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize(("name", "case"), ALL)
def test_very_few_classes(
    name: str, case: str, n: int,
    make_layer: Callable[..., OutputLayer], make_query: Callable[..., Query],
) -> None:  # fmt: skip
    layer = make_layer(n, DIM)
    query = make_query(4, DIM, n)
    sampler = build(name, case, layer)
    for step in range(1, 5):
        proposal = sampler.sample(query, step)
        for ids, log_counts in rows_of(proposal, 4):
            assert len(ids) > 0
            assert set(ids.tolist()) <= set(range(n))
            assert np.isfinite(log_counts).all()
        stated = sampler.log_expected_count(query, np.arange(n, dtype=np.int32), step)
        assert stated.shape == (4, n)
        sampler.refresh(query, step, NOBODY)


def test_more_classes_than_a_float_can_count(make_layer: Callable[..., OutputLayer]) -> None:
    """2^24 and more classes: no sampler rounds ids through float32 or stops at torch.multinomial's limit.

    Of draws that are about uniform (class vectors are short), a tenth lies in the last tenth of the classes, and some
    60 of 8,000 above 2^24, where a float32 has no odd numbers: all even would be one in 2^60.
    """
    n = 2**24 + 2**17
    layer = make_layer(n, 4)
    query = Query(
        hidden_BD=np.ones((2, 4), dtype=np.float32),
        target_indptr_B1=np.array([0, 1, 2], dtype=np.int64),
        targets_P=np.array([n - 1, 2**24 + 5], dtype=np.int32),
    )
    training = TrainingFacts.one_label_a_row(np.ones(n, dtype=np.int64))
    some = np.array([0, 2**24 - 1, 2**24, 2**24 + 1, n - 2], dtype=np.int32)
    for name, options in {
        "uniform": {"num_samples": 4000, "shared": False, "unique": False},
        "log_uniform": {"num_samples": 4000},
        "unigram": {"num_samples": 4000},
        "exact": {"num_samples": 4000},
        "lsh": {"num_samples": 4000, "K": 8, "L": 2},
        "lsh_embedding": {"K": 12, "L": 2},
        "lsh_topk": {"K": 12, "L": 2},
        "midx_rq": {"num_samples": 4000},
        "rff": {"num_samples": 4000, "D": 2},
        "topk": {"k": 50},
        "in_batch": {},
    }.items():
        sampler = SAMPLERS[name](name=name, **options).build(layer=layer, training=training, seed=1)  # type: ignore[arg-type]
        for ids, log_counts in rows_of(sampler.sample(query, 1), 2):
            assert 0 <= ids.min() <= ids.max() < n, name
            assert np.isfinite(log_counts).all(), name
            if name not in ("log_uniform", "topk", "in_batch", "lsh_topk", "lsh_embedding"):
                assert 0.05 < (ids > 0.9 * n).mean() < 0.15, name
                assert (ids[ids >= 2**24] & 1).any(), f"{name}: odd ids above 2^24 need more than float32"
        if name != "topk":
            assert np.isfinite(sampler.log_expected_count(query, some, 1)).all(), name
        del sampler


@pytest.mark.parametrize("name", ["uniform", "log_uniform", "unigram"])
@pytest.mark.parametrize("case", ["shared", "per_row", "repeats"])
def test_more_samples_than_classes(name: str, case: str, layer: OutputLayer, query: Query) -> None:
    sampler = build(name, case, layer, num_samples=20 * N)
    proposal = sampler.sample(query, 1)
    for ids, _ in rows_of(proposal, ROWS):
        assert len(ids) == 20 * N if case == "repeats" else len(ids) <= N
    assert (stated_counts(sampler, query, 1) > 0).all()


@pytest.mark.parametrize("name", ["lsh_label", "lsh_embedding"])
@pytest.mark.parametrize("more", [{"min_candidates": 10 * N}, {"tail_candidates": 10 * N}])
def test_asking_for_more_candidates_than_classes_gives_every_class_once(
    name: str, more: dict[str, int], layer: OutputLayer, query: Query
) -> None:
    sampler = build(name, "simhash", layer, **more)
    for ids, log_counts in rows_of(sampler.sample(query, 1), ROWS):
        assert sorted(ids.tolist()) == list(range(N))
        np.testing.assert_allclose(log_counts, 0, atol=1e-6)


@pytest.mark.parametrize(("name", "case"), ALL)
@pytest.mark.parametrize("vectors", ["equal", "zero", "zero_query"])
def test_degenerate_vectors(name: str, case: str, vectors: str, layer: OutputLayer, query: Query) -> None:
    if vectors == "equal":
        layer.table.weights[:] = layer.table.weights[0]
    elif vectors == "zero":
        layer.table.weights[:] = 0
    else:
        query.hidden_BD[:] = 0
    sampler = build(name, case, layer)
    for step in (1, 2):
        for ids, log_counts in rows_of(sampler.sample(query, step), ROWS):
            assert len(ids) > 0
            assert np.isfinite(log_counts).all()
            if not repeats(name, case):
                assert len(np.unique(ids)) == len(ids)
        assert not sampler.refresh(query, step, NOBODY)


@pytest.mark.parametrize("hash_case", ["simhash_capped", "dwta_folded"])
def test_a_bucket_above_the_cap_favours_no_class(hash_case: str, layer: OutputLayer, query: Query) -> None:
    """All classes in one bucket: over steps each is retrieved with probability about cap / n.

    Windows of a bucket overlap, so a class's indicators are independent only between steps and rows:
    z < 5 in 120 comparisons, false alarm 7e-5. One table only.
    """
    layer.table.weights[:] = layer.table.weights[0]
    sampler = build("lsh_label", hash_case, layer, L=1, bucket_cap=6, sparsity_budget=1.0, tail_candidates=1,
                    min_candidates=1)  # fmt: skip
    one = Query(
        hidden_BD=query.hidden_BD[:1],
        target_indptr_B1=np.array([0, 1], dtype=np.int64),
        targets_P=np.array([3], dtype=np.int32),
    )
    steps, seen = 4000, np.zeros(N)
    for step in range(1, steps + 1):
        ((ids, log_counts),) = rows_of(sampler.sample(one, step), 1)
        retrieved = ids[log_counts == 0]
        assert len(retrieved) == 6
        seen[retrieved] += 1
    share = 6 / N
    assert np.abs(seen - steps * share).max() < BOUND * np.sqrt(steps * share * (1 - share))

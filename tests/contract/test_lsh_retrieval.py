"""LSH retrieves the union of the query's buckets, limited by cap, budget and max_retrieved, and a tail outside it."""

from typing import Any

import numpy as np
import pytest
from lsh_cases import LNS, LNS_NAMES, N, build, collisions

from runner.check.cases import BOUND, ROWS, cases_of, rows_of, same, stated_counts
from runner.contracts import Proposal, Query
from runner.errors import ConfigError
from runner.output.numba.layer import NumbaLayer
from runner.samplers.lsh import LshEmbeddingConfig


def has_a_uniform_tail(name: str, case: str) -> bool:
    config: Any = cases_of(name)[case].config
    return bool(config.tail_distribution == "uniform")


@pytest.mark.parametrize(("name", "case"), [param for param in LNS if has_a_uniform_tail(*param.values)])
def test_retrieved_classes_count_once_and_tail_classes_their_share(
    name: str, case: str, layer: NumbaLayer, query: Query
) -> None:
    config: Any = cases_of(name)[case].config
    sampler = build(name, case, layer)
    for row, (ids, log_counts) in enumerate(rows_of(sampler.sample(query, 2), ROWS)):
        retrieved = int((log_counts == 0).sum())
        tail = len(ids) - retrieved
        assert 0 < tail < N - retrieved, f"row {row}: this case must leave something undrawn"
        assert tail >= config.num_tail
        np.testing.assert_allclose(np.exp(log_counts[log_counts != 0]), tail / (N - retrieved), rtol=1e-5)


def test_lsh_label_retrieves_the_target_itself(layer: NumbaLayer, query: Query) -> None:
    """A target's vector falls into its own buckets, so with whole buckets it is always retrieved."""
    sampler = build("lsh_label", "simhash", layer)
    log_count_BN = sampler.log_expected_count(query, np.arange(N, dtype=np.int32), 1)
    for row in range(ROWS):
        targets = query.targets_P[query.target_indptr_B1[row] : query.target_indptr_B1[row + 1]]
        assert (log_count_BN[row, targets] == 0).all()


@pytest.mark.parametrize("mode", LNS_NAMES)
@pytest.mark.parametrize("case", ["simhash", "dwta"])
@pytest.mark.parametrize("center", [False, True])
def test_retrieved_set_is_the_union_of_the_query_buckets(
    mode: str, case: str, center: bool, layer: NumbaLayer, query: Query
) -> None:
    """Class i is retrieved if and only if it has a query's code in some table, by brute force over codes."""
    sampler: Any = build(mode, case, layer, center=center)
    weights = layer.table.weights - layer.table.weights.mean(0) if center else layer.table.weights
    code_LN = sampler.index.family.hash(weights, np.arange(N, dtype=np.int32))
    code_LB = sampler.index.family.hash(query.hidden_BD, np.arange(ROWS, dtype=np.int32))
    for row, (ids, log_counts) in enumerate(rows_of(sampler.sample(query, 1), ROWS)):
        targets = query.targets_P[query.target_indptr_B1[row] : query.target_indptr_B1[row + 1]]
        asked = code_LN[:, targets] if mode == "lsh_label" else code_LB[:, row : row + 1]
        expected = np.flatnonzero((code_LN[:, :, None] == asked[:, None, :]).any((0, 2)))
        np.testing.assert_array_equal(np.sort(ids[log_counts == 0]), expected)


def test_caps_and_budgets_hold(layer: NumbaLayer, query: Query) -> None:
    """The size |S| is at most the budget plus one capped bucket for each query of the row."""
    settings = {"num_tail": 0, "min_candidates": 1, "K": 1, "L": 40}
    sampler = build("lsh_label", "simhash_capped", layer, **settings)
    queries_B = np.diff(query.target_indptr_B1)
    for step in range(1, 20):
        for row, (ids, _) in enumerate(rows_of(sampler.sample(query, step), ROWS)):
            assert 1 <= len(ids) <= int(0.05 * N) + 4 * queries_B[row]


@pytest.mark.parametrize("mode", LNS_NAMES)
@pytest.mark.parametrize("tail", [0, 15])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("max_retrieved", [1, 7, 30])
def test_max_hits_keeps_the_classes_met_most(
    mode: str, tail: int, shared: bool, max_retrieved: int, layer: NumbaLayer, query: Query
) -> None:
    """Every class above the least kept count is kept and none below it; ties fill up at random."""
    sampler = build(mode, "max_retrieved", layer, max_retrieved=max_retrieved, shared=shared, num_tail=tail)
    met_BN = collisions(sampler, layer, query)
    least_B1 = np.maximum(np.sort(met_BN, axis=1)[:, [-max_retrieved]], 1)
    size_B = np.minimum((met_BN > 0).sum(1), max_retrieved)
    assert (size_B == max_retrieved).any(), "the limit must bite"
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
    if max_retrieved == 7 and not tail:
        assert any(not np.array_equal(np.sort(chosen[0]), np.sort(other)) for other in chosen), "ties fall by step"


@pytest.mark.parametrize("mode", LNS_NAMES)
@pytest.mark.parametrize("shared", [False, True])
def test_max_hits_beyond_what_is_met_changes_nothing(mode: str, shared: bool, layer: NumbaLayer, query: Query) -> None:
    sampler = build(mode, "max_retrieved", layer, max_retrieved=None, shared=shared)
    most = int((collisions(sampler, layer, query) > 0).sum(1).max())
    assert most < N
    for max_retrieved in (most, 10 * N):
        limited = build(mode, "max_retrieved", layer, max_retrieved=max_retrieved, shared=shared)
        assert all(same(limited.sample(query, step), sampler.sample(query, step)) for step in (1, 2, 3))


@pytest.mark.parametrize("mode", LNS_NAMES)
def test_more_collisions_than_a_byte_counts_are_a_tie(mode: str, layer: NumbaLayer, query: Query) -> None:
    layer.table.weights[:] = layer.table.weights[0]
    query.hidden_BD[:] = layer.table.weights[0]
    sampler = build(mode, "max_retrieved", layer, L=300, num_tail=0, center=False)
    assert (collisions(sampler, layer, query) >= 300).all()
    for ids, _ in rows_of(sampler.sample(query, 1), ROWS):
        assert len(np.unique(ids)) == len(ids) == 10


@pytest.mark.parametrize("mode", LNS_NAMES)
@pytest.mark.parametrize("tail", [0, 15])
def test_shared_is_the_union_of_what_rows_retrieve(mode: str, tail: int, layer: NumbaLayer, query: Query) -> None:
    sampler = build(mode, "shared", layer, num_tail=tail)
    union = np.flatnonzero(collisions(sampler, layer, query).any(0))
    proposal = sampler.sample(query, 1)
    assert isinstance(proposal, Proposal)
    assert proposal.is_shared
    assert (np.diff(proposal.ids_N) > 0).all()
    np.testing.assert_array_equal(proposal.ids_N[proposal.log_expected_count_N == 0], union)
    assert len(proposal.ids_N) == len(union) + tail


@pytest.mark.parametrize("mode", LNS_NAMES)
@pytest.mark.parametrize("case", ["shared", "shared_topped_up"])
def test_shared_tail_is_uniform_outside_the_union(mode: str, case: str, layer: NumbaLayer, query: Query) -> None:
    """The chi-square is corrected for draws without replacement; it is a false alarm for 1e-6 of seeds."""
    from scipy.stats import chi2

    sampler = build(mode, case, layer, max_per_bucket=N, sparsity_budget=1.0)
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


@pytest.mark.parametrize("name", LNS_NAMES)
@pytest.mark.parametrize("more", [{"min_candidates": 10 * N}, {"num_tail": 10 * N}])
def test_asking_for_more_candidates_than_classes_gives_every_class_once(
    name: str, more: dict[str, int], layer: NumbaLayer, query: Query
) -> None:
    sampler = build(name, "simhash", layer, **more)
    for ids, log_counts in rows_of(sampler.sample(query, 1), ROWS):
        assert sorted(ids.tolist()) == list(range(N))
        np.testing.assert_allclose(log_counts, 0, atol=1e-6)


@pytest.mark.parametrize("hash_case", ["simhash_capped", "dwta_folded"])
def test_a_bucket_above_the_cap_favours_no_class(hash_case: str, layer: NumbaLayer, query: Query) -> None:
    """All classes are in one bucket of one table, so over steps each is retrieved with probability about cap / n.

    Windows of a bucket overlap, so a class's indicators are independent only between steps and rows. z < 5 in 120
    comparisons is a false alarm for 7e-5 of seeds.
    """
    layer.table.weights[:] = layer.table.weights[0]
    sampler = build("lsh_label", hash_case, layer, L=1, max_per_bucket=6, sparsity_budget=1.0, num_tail=1,
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


@pytest.mark.parametrize(("classes", "K"), [(1, 1), (983, 5), (13_575, 9), (89_599, 12), (670_091, 15)])
def test_without_K_a_bucket_has_20_to_40_classes(classes: int, K: int) -> None:
    config = LshEmbeddingConfig(name="lsh_embedding", K=None)
    assert config.hashes_of(classes) == K
    assert classes < 40 or 20 <= classes / 2**K < 41


def test_without_K_dwta_and_too_large_tables_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"sampler\.hash=dwta needs a number of hashes"):
        LshEmbeddingConfig(name="lsh_embedding", K=None, hash="dwta")
    with pytest.raises(ConfigError, match=r"at most 2\^28 buckets"):
        LshEmbeddingConfig(name="lsh_embedding", K=None, L=4096).hashes_of(6_700_000)

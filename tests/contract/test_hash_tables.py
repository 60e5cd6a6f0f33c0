"""Hash tables follow the weights: a refresh of moved classes, at growing intervals, gives the tables of a rebuild."""

from typing import Any

import numpy as np
import pytest
from lsh_cases import HASHED, LNS_NAMES, N, build, full_hashing

from runner import rng
from runner.check.cases import DIM, NOBODY, move_rows, random_layer
from runner.contracts import Query
from runner.structures.tables import BucketTables


@pytest.mark.parametrize(("name", "case"), HASHED)
@pytest.mark.parametrize("rows", ["dense", "touched", "catch_up"])
@pytest.mark.parametrize("center", [False, True])
def test_refresh_is_a_rebuild(name: str, case: str, rows: str, center: bool, query: Query) -> None:
    """This holds whether some or all classes are hashed: with a centre, such short vectors leave it, so all are."""
    layer = random_layer(norm=0.05, rows=rows)
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
def test_only_classes_that_moved_are_hashed_again(rows: str, query: Query) -> None:
    """Ten classes are touched once and hashed again by refreshes every ten steps, until their momentum is spent.

    Then 0.1 % of the first step's speed is left. So a later code may differ from a full hashing's only if the vector is
    very near a bucket's border: at most 1 in 1,000 (here none).
    """
    layer = random_layer(rows=rows)
    sampler: Any = build("lsh_embedding", "simhash", layer, refresh_every_steps=10, refresh_growth=1.0)
    moved = move_rows(layer, list(range(10)), 1, seed=1)
    sampler.note_touched(moved, 1)
    for step in range(2, 201):
        layer.table.before_step(step)
        if sampler.refresh(query, step, NOBODY):
            layer.table.read(None, step + 1)
            assert (sampler.tables.codes == full_hashing(sampler, layer)).mean() > 0.999
    settling = layer.table.settling_steps
    assert settling == (0 if rows == "touched" else 66)
    # Of the refreshes at 10, 20, ..., these follow one that came before the class had settled.
    hashed = sum(previous < 1 + settling for previous in range(0, 200, 10))
    assert sampler.statistics["rehashed_rows"] == N + 10 * hashed
    assert sampler.schedule.count == 20


def test_many_moved_classes_are_hashed_in_bulk() -> None:
    layer = random_layer()
    sampler: Any = build("lsh_embedding", "simhash", layer)
    sampler.note_touched(move_rows(layer, list(range(N // 2 + 1)), 1, seed=1), 1)
    sampler.rebuild(1)
    assert sampler.index.rehashed_rows == 2 * N
    np.testing.assert_allclose(sampler.index.center_D, layer.table.weights.mean(0), atol=1e-6)


@pytest.mark.parametrize(("share", "center", "bulk"), [(0.05, True, False), (0.2, True, True), (0.2, False, False)])
def test_a_mean_that_left_the_centre_moves_it(share: float, center: bool, bulk: bool) -> None:
    """``share`` is how far the mean moves, in units of the vectors' distance from it; the tolerance is 0.1."""
    layer = random_layer()
    sampler: Any = build("lsh_label", "simhash", layer, center=center)
    weights, start = layer.table.weights, sampler.index.center_D.copy()
    spread = np.sqrt(np.square(weights - weights.mean(0)).sum(1).mean())
    weights += np.float32(share * spread / np.sqrt(DIM))
    moved = np.arange(N // 4 + 1, dtype=np.int32)  # as many as make it worth looking at the mean
    sampler.note_touched(moved, 1)
    sampler.rebuild(1)
    assert sampler.index.rehashed_rows == N + (N if bulk else len(moved))
    np.testing.assert_allclose(sampler.index.center_D, weights.mean(0) if bulk else start, atol=1e-6)


def test_the_mean_is_looked_at_once_many_classes_have_moved() -> None:
    """A tenth of the classes moves at each step; the third makes more than a quarter."""
    layer = random_layer()
    sampler: Any = build("lsh_label", "simhash", layer)
    layer.table.weights += 1
    few = N // 10
    for step in range(1, 4):
        sampler.note_touched(np.arange(few, dtype=np.int32), step)
        sampler.rebuild(step)
        assert sampler.index.rehashed_rows == (N + step * few if step < 3 else 2 * N + 2 * few)
    np.testing.assert_allclose(sampler.index.center_D, layer.table.weights.mean(0), atol=1e-5)


@pytest.mark.parametrize("name", LNS_NAMES)
def test_refreshes_come_at_growing_intervals(name: str, query: Query) -> None:
    sampler = build(name, "simhash", random_layer(norm=1.0), refresh_every_steps=4, refresh_growth=2.0)
    due = [step for step in range(1, 61) if sampler.refresh(query, step, NOBODY)]
    assert due == [4, 12, 28, 60]


@pytest.mark.parametrize(("tables", "rows", "bits"), [(1, 1, 1), (16, 5000, 6), (37, 5000, 6), (20, 700, 17)])
def test_buckets_hold_their_rows_in_the_order_of_their_words(tables: int, rows: int, bits: int) -> None:
    """However many tables are sorted at once, and however many rows a tile has."""
    built = BucketTables(L=tables, num_rows=rows, code_bits=bits, seed=3)
    built.codes[:] = np.random.default_rng(0).integers(0, 1 << bits, built.codes.shape)
    built.build()
    key = np.uint64(rng.stream(3, rng.BUCKET, 0, 0))
    visit_R = np.argsort([rng.word(key, row) for row in range(rows)])
    for table, codes_R in enumerate(built.codes):
        np.testing.assert_array_equal(built.members[table], visit_R[np.argsort(codes_R[visit_R], kind="stable")])
        np.testing.assert_array_equal(np.diff(built.start[table]), np.bincount(codes_R, minlength=1 << bits))

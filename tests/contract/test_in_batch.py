"""Counts of in-batch negatives are tested over batches, because the batch is the draw, and in exact arithmetic."""

from fractions import Fraction
from functools import partial

import numpy as np
import pytest

from runner.check.cases import BOUND, DIM, NUM_CLASSES
from runner.contracts import Proposal, Query, TrainingFacts
from runner.data.sequences.batches import SequenceWindows
from runner.output.numba.layer import NumbaLayer
from runner.samplers import SAMPLERS

N = NUM_CLASSES


def test_in_batch_counts_hold_over_batches(layer: NumbaLayer) -> None:
    """A row's candidates have the stated counts over random batches of the row and others of the training rows.

    There are 40,000 batches of 8 out of 60 rows, with one or two of 20 classes each; z < 5 in 20 comparisons is a false
    alarm for 1e-5 of seeds.
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
def test_in_batch_counts_at_any_size(rows: int, batch: int, count: int, layer: NumbaLayer) -> None:
    """Counts equal 1 - product over draws j of (1 - c / (R - 1 - j)), computed in exact arithmetic."""
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


def test_in_batch_counts_windows_of_users_who_repeat_items(layer: NumbaLayer) -> None:
    """Counts are those of windows, not of rows, where users take the same item again and again.

    There are 40,000 batches of 6 of 30 windows; z < 5 in some 20 comparisons is a false alarm for 1e-5 of seeds.
    """
    generator = np.random.default_rng(3)
    users, events, batch = 30, 9, 6
    # Every user has a few favourites, so items repeat inside windows.
    items_E = np.concatenate([generator.choice(20, 3)[generator.integers(0, 3, events)] for _ in range(users)])
    begin_U = np.arange(users, dtype=np.int64) * events
    windows = SequenceWindows(items_E=items_E.astype(np.int32), begin_U=begin_U, end_U=begin_U + events, length=20)
    assert windows.examples.count == users
    training = TrainingFacts(
        label_counts_N=np.bincount(items_E[windows.target_places], minlength=N),
        num_rows=len(windows.target_places),
        steps_per_epoch=5,
        num_examples=users,
        count_examples=partial(windows.count_examples, N),
    )
    sampler = SAMPLERS["in_batch"](name="in_batch").build(layer=layer, training=training, seed=0)  # type: ignore[call-arg]
    steps, seen = 40_000, np.zeros(N)
    for _ in range(steps):
        drawn = windows.batch(np.array([0, *(1 + generator.choice(users - 1, batch - 1, replace=False))]))
        seen[np.unique(drawn.targets)] += 1
    query = Query.of(np.zeros((drawn.num_rows, DIM), dtype=np.float32), drawn)
    stated = np.exp(sampler.log_expected_count(query, np.arange(N, dtype=np.int32), 1)[0].astype(np.float64))
    others = np.setdiff1d(items_E[windows.target_places], windows.batch(np.array([0])).targets)
    assert len(others) > 10
    error = np.sqrt(steps * stated[others] * (1 - stated[others]))
    assert (np.abs(seen[others] - steps * stated[others]) < BOUND * error).all()

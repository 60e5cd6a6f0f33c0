"""Windows of sequences hold every training target once, with exactly the items before it; brute force says which.

Legend: E events of all users, U users, S windows, X items of a batch's windows, B rows of a batch.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.contracts import ExampleDraw
from runner.data.sequences.batches import SequenceBatch, SequenceWindows, order_by_length, windows_before
from runner.lgd.uniform import UniformExamplesConfig

# Training events and held-out events of each user; some have none of either.
logs = st.lists(st.tuples(st.integers(0, 14), st.integers(0, 3)), min_size=1, max_size=8)
lengths = st.integers(1, 6)
Log = list[tuple[int, int]]


def log_of(users: Log) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return items, begins, ends of training and ends of the users; item i is event i, so that it tells its place."""
    indptr_U1 = np.cumsum([0, *map(sum, users)]).astype(np.int64)
    train_U = np.array([train for train, _ in users], dtype=np.int64)
    items_E = np.arange(indptr_U1[-1], dtype=np.int32)
    items_E.flags.writeable = False  # as memory-mapped data
    return items_E, indptr_U1[:-1], indptr_U1[:-1] + train_U, indptr_U1[1:]


def windows_of(users: Log, length: int) -> SequenceWindows:
    items_E, begin_U, end_U, _ = log_of(users)
    return SequenceWindows(items_E=items_E, begin_U=begin_U, end_U=end_U, length=length)


def split(batch: SequenceBatch) -> list[list[int]]:
    """Return the items of each window."""
    return [part.tolist() for part in np.split(batch.items_X, np.cumsum(batch.length_S)[:-1])]


def check_form(batch: SequenceBatch, length: int) -> None:
    assert batch.items_X.dtype == batch.targets.dtype == np.int32
    assert batch.length_S.dtype == batch.target_indptr.dtype == np.int64
    for array in (batch.items_X, batch.targets):
        assert array.flags.c_contiguous
        assert array.flags.writeable, "one type for compiled kernels, whatever the batch"
    assert (np.diff(batch.length_S) <= 0).all(), "the longest window comes first"
    assert 1 <= batch.length_S.min() <= batch.length_S.max() <= length
    assert batch.num_rows == len(batch.targets) == (len(batch.length_S) if batch.only_last else len(batch.items_X))
    assert batch.target_indptr.tolist() == list(range(batch.num_rows + 1)), "each row has one target"
    windows = split(batch)
    assert sum(map(len, windows)) == len(batch.items_X)
    assert [batch.items_X[start] for start in batch.start_S] == [window[0] for window in windows]
    assert batch.place_from_end_X.tolist() == [len(w) - 1 - place for w in windows for place in range(len(w))]
    laid = []
    for grid in batch.grids:
        array = np.full(grid.windows * grid.places, -1)
        array[grid.cell_X] = batch.items_X[grid.items]
        assert grid.is_full == (array >= 0).all()
        rows = array.reshape(grid.windows, grid.places)
        laid += [row[row >= 0].tolist() for row in rows]
        assert all((row[len(row[row >= 0]) :] == -1).all() for row in rows), "empty cells come after the items"
        assert grid.places <= 32 or min(map(len, laid[-grid.windows :])) > grid.places // 2
    assert laid == windows


# ---------------------------------------------------------------- training


def test_by_hand() -> None:
    """Two users, of six and three training events, in windows of at most two items."""
    windows = windows_of([(6, 2), (3, 1)], 2)
    assert windows.examples.count == 4
    batch = windows.batch(np.arange(4))
    assert split(batch) == [[1, 2], [3, 4], [8, 9], [0]], "cut from the newest event backwards"
    assert batch.targets.tolist() == [2, 3, 4, 5, 9, 10, 1]
    assert batch.length_S.tolist() == [2, 2, 2, 1]
    assert not batch.only_last
    assert batch.weight_B is None
    assert windows.target_places.tolist() == [1, 2, 3, 4, 5, 9, 10]
    assert windows.event_places.tolist() == [0, 1, 2, 3, 4, 5, 8, 9, 10]


@settings(max_examples=150)
@given(users=logs, length=lengths)
def test_every_training_event_but_a_users_first_is_one_target(users: Log, length: int) -> None:
    _, begin_U, end_U, _ = log_of(users)
    windows = windows_of(users, length)
    expected = [place for begin, end in zip(begin_U, end_U, strict=True) for place in range(begin + 1, end)]
    assert windows.target_places.tolist() == expected
    assert windows.event_places.tolist() == [p for b, e in zip(begin_U, end_U, strict=True) for p in range(b, e)]
    assert windows.examples.exchangeable
    if not expected:
        assert windows.examples.count == 0
        return
    batch = windows.batch(np.arange(windows.examples.count))
    check_form(batch, length)
    assert sorted(batch.targets.tolist()) == expected
    user_of = np.searchsorted(begin_U, np.arange(end_U[-1]), side="right") - 1
    shorter: list[int] = []
    for window, targets in zip(split(batch), np.split(batch.targets, np.cumsum(batch.length_S)[:-1]), strict=True):
        assert window == list(range(window[0], window[0] + len(window))), "items without a gap"
        assert targets.tolist() == [item + 1 for item in window], "after each item, the one that came next"
        (user,) = set(user_of[[*window, *targets]].tolist())
        assert targets[-1] < end_U[user]
        if len(window) < length:
            assert window[0] == begin_U[user], "only the oldest window is shorter"
            shorter.append(user)
    assert len(set(shorter)) == len(shorter)


@settings(max_examples=100)
@given(users=logs, length=lengths, data=st.data())
def test_any_rows_make_the_batch_of_their_windows(users: Log, length: int, data: st.DataObject) -> None:
    windows = windows_of(users, length)
    if windows.examples.count == 0:
        return
    rows = data.draw(st.lists(st.integers(0, windows.examples.count - 1), min_size=1, max_size=9))
    alone = [windows.batch(np.array([row])) for row in rows]
    batch = windows.batch(np.array(rows))
    check_form(batch, length)
    ordered = sorted(alone, key=lambda one: -one.length_S[0])  # stable, as the batch's order is
    assert split(batch) == [one.items_X.tolist() for one in ordered]
    assert batch.targets.tolist() == [target for one in ordered for target in one.targets.tolist()]


@settings(max_examples=100)
@given(users=logs, length=lengths, seed=st.integers(0, 1000))
def test_weights_estimate_the_mean_over_all_targets(users: Log, length: int, seed: int) -> None:
    """The expectation over all draws of one window is exact, whatever the chances of the windows are."""
    windows = windows_of(users, length)
    count = windows.examples.count
    if count == 0:
        return
    generator = np.random.default_rng(seed)
    loss_E = generator.uniform(1, 2, len(windows.items_E))
    chance_S = generator.dirichlet(np.full(count, 5.0)) if count > 1 else np.ones(1)
    expectation = 0.0
    for row, chance in enumerate(chance_S):
        draw = ExampleDraw(rows_B=np.array([row]), log_expected_count_B=np.log([chance]))
        batch = windows.batch(draw.rows_B, draw.weight_B(count))
        assert batch.weight_B is not None
        assert batch.weight_B.dtype == np.float32
        expectation += chance * float(batch.weight_B.astype(np.float64) @ loss_E[batch.targets])
    assert expectation == pytest.approx(loss_E[windows.target_places].mean(), rel=1e-5)


def test_weights_go_with_their_windows() -> None:
    windows = windows_of([(8, 1), (3, 1), (4, 1)], 4)  # four windows of 3, 4, 2 and 3 items, 12 targets
    batch = windows.batch(np.array([2, 1, 0]), np.array([2.0, 1.0, 4.0]))
    assert batch.length_S.tolist() == [4, 3, 2]
    assert batch.weight_B is not None
    assert batch.weight_B.tolist() == pytest.approx([4 / 12 * w for w in [1] * 4 + [4] * 3 + [2] * 2])


def test_uniform_draws_estimate_the_mean() -> None:
    """With batches of windows from the sampler itself: 5 standard errors, a false alarm for 6e-7 of seeds."""
    windows = windows_of([(9, 1), (2, 1), (5, 0), (30, 2), (3, 1)], 4)
    count = windows.examples.count
    sampler = UniformExamplesConfig().build(examples=windows.examples, batch_size=3, seed=0)
    loss_E = np.random.default_rng(1).uniform(1, 2, len(windows.items_E))
    estimates = []
    for step in range(1, 601):
        draw = sampler.draw(step)
        batch = windows.batch(draw.rows_B, draw.weight_B(count))
        estimates.append(batch.weight_B @ loss_E[batch.targets])
    error = np.std(estimates) / np.sqrt(len(estimates))
    assert np.mean(estimates) == pytest.approx(loss_E[windows.target_places].mean(), abs=5 * error)
    assert error < 0.03, "the test would say nothing"


@settings(max_examples=50)
@given(users=logs, length=lengths, seed=st.integers(0, 1000))
def test_who_took_what_in_training(users: Log, length: int, seed: int) -> None:
    """Items repeat here; one that a user took twice counts once."""
    windows = windows_of(users, length)
    items_E = np.random.default_rng(seed).integers(0, 5, len(windows.items_E)).astype(np.int32)
    windows = SequenceWindows(items_E=items_E, begin_U=windows.begin_U, end_U=windows.end_U, length=length)
    expected = np.zeros((len(users), 7))
    for user, (begin, end) in enumerate(zip(windows.begin_U, windows.end_U, strict=True)):
        expected[user, items_E[begin:end]] = 1
    assert (windows.users_items(7).toarray() == expected).all()


# ---------------------------------------------------------------- evaluation


def test_before_by_hand() -> None:
    items_E, begin_U, _, _ = log_of([(3, 2), (1, 3)])
    batch = windows_before(items_E, begin_U[[0, 0, 1, 1]], np.array([3, 4, 6, 8]), 3)
    assert split(batch) == [[0, 1, 2], [1, 2, 3], [5, 6, 7], [5]]
    assert batch.targets.tolist() == [3, 4, 8, 6]
    assert batch.only_last
    assert batch.num_rows == 4


@settings(max_examples=150)
@given(users=logs, length=lengths, data=st.data())
def test_windows_before_hold_exactly_the_events_before(users: Log, length: int, data: st.DataObject) -> None:
    items_E, begin_U, _, end_U = log_of(users)
    possible = [(b, place) for b, e in zip(begin_U, end_U, strict=True) for place in range(b + 1, e)]
    if not possible:
        return
    chosen = data.draw(st.lists(st.sampled_from(possible), min_size=1, max_size=12))
    begin_B, place_B = np.array(chosen).T
    batch = windows_before(items_E, begin_B, place_B, length)
    check_form(batch, length)
    assert batch.weight_B is None
    order_B = order_by_length(begin_B, place_B, length)
    assert sorted(order_B.tolist()) == list(range(len(chosen)))
    for row, window, target in zip(order_B, split(batch), batch.targets, strict=True):
        begin, place = chosen[row]
        assert window == list(range(begin, place))[-length:]
        assert target == place
    same = [(len(w), row) for w, row in zip(split(batch), order_B.tolist(), strict=True)]
    assert same == sorted(same, key=lambda pair: (-pair[0], pair[1])), "rows of equal length keep their order"

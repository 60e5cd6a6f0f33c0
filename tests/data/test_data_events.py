"""Filters and orders of logs against plain Python, and the rule that splits a user's events."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.data.sequences.dataset import split_events
from runner.data.sequences.events import Events, Filters, Log, arrange, by_user, core, without_copies, without_repeats

Row = tuple[str, str, float]  # user, item, time
ROWS = st.lists(
    st.tuples(st.sampled_from("abcd"), st.sampled_from("vwxyz"), st.integers(0, 4).map(float)), min_size=1, max_size=40
)


def events_of(rows: list[Row]) -> Events:
    users, items = (list(dict.fromkeys(row[column] for row in rows)) for column in (0, 1))
    return Events(
        user_E=np.array([users.index(row[0]) for row in rows], np.int32),
        item_E=np.array([items.index(row[1]) for row in rows], np.int32),
        time_E=np.array([row[2] for row in rows]),
        users=users,
        items=items,
    )


def rows_of(events: Events) -> list[Row]:
    return [
        (events.users[user], events.items[item], time)
        for user, item, time in zip(events.user_E, events.item_E, events.time_E.tolist(), strict=True)
    ]


def sequences_of(log: Log) -> list[list[str]]:
    names = [log.item_names[number] for number in log.items_E]
    return [names[a:b] for a, b in zip(log.indptr_U1[:-1], log.indptr_U1[1:], strict=True)]


def core_by_hand(rows: list[Row], min_user: int, min_item: int) -> list[Row]:
    """One user or item falls out at a time, so the order in which they do differs from that of `core`."""
    while True:
        users, items = [row[0] for row in rows], [row[1] for row in rows]
        out = [("user", name) for name in set(users) if users.count(name) < min_user]
        out += [("item", name) for name in set(items) if items.count(name) < min_item]
        if not out:
            return rows
        kind, name = min(out)
        rows = [row for row in rows if row[0 if kind == "user" else 1] != name]


@given(rows=ROWS, min_user=st.integers(1, 5), min_item=st.integers(1, 5))
def test_core_is_what_is_left_when_one_falls_out_at_a_time(rows: list[Row], min_user: int, min_item: int) -> None:
    left = core(events_of(rows), min_user, min_item)
    assert rows_of(left) == core_by_hand(rows, min_user, min_item)


def test_core_by_hand() -> None:
    """x has one event. Without it a has one, without a y has one, and without y b has one; c and z have two."""
    rows = [("a", "x", 0.0), ("a", "y", 1.0), ("b", "y", 0.0), ("b", "z", 1.0), ("c", "z", 2.0), ("c", "z", 3.0)]
    assert rows_of(core(events_of(rows), 2, 2)) == [("c", "z", 2.0), ("c", "z", 3.0)]
    assert len(core(events_of(rows), 3, 2)) == 0


@given(rows=ROWS)
def test_copies_and_repeats(rows: list[Row]) -> None:
    ordered = by_user(events_of(rows))
    in_order = rows_of(ordered)
    assert in_order == [
        row for user in dict.fromkeys(row[0] for row in rows)
        for row in sorted((row for row in rows if row[0] == user), key=lambda row: row[2])
    ]  # fmt: skip
    assert rows_of(without_copies(ordered)) == list(dict.fromkeys(in_order))
    first = {}
    for row in in_order:
        first.setdefault(row[:2], row)
    assert rows_of(without_repeats(ordered)) == list(first.values())


@given(rows=ROWS, keep_unseen=st.booleans())
def test_users_and_items_are_numbered_by_their_first_event(rows: list[Row], keep_unseen: bool) -> None:
    events = by_user(events_of(rows)).take(np.arange(len(rows)) >= len(rows) // 3)
    log = arrange(events, keep_unseen=keep_unseen)
    left = rows_of(events)
    first = {user: min(time for name, _, time in left if name == user) for user in {row[0] for row in left}}
    users = sorted(first, key=lambda user: (first[user], user))
    expected = [[item for name, item, _ in left if name == user] for user in users]
    assert sequences_of(log) == expected
    in_time = sorted(left, key=lambda row: (row[2], users.index(row[0])))  # stable within a user
    items = list(dict.fromkeys(row[1] for row in in_time))
    unseen = [item for item in events.items if item not in items]
    assert log.item_names == items + (unseen if keep_unseen else [])
    assert (log.items_E.dtype, log.indptr_U1.dtype) == (np.int32, np.int64)


def test_split_by_hand() -> None:
    counts = np.array([1, 2, 3, 9, 14, 15, 20, 25, 100])
    indptr_U1 = np.concatenate([[0], np.cumsum(counts)])
    train_U, valid_U = split_events(indptr_U1, "ratio")
    assert (train_U - indptr_U1[:-1]).tolist() == [1, 2, 1, 7, 12, 11, 16, 19, 80]
    assert (indptr_U1[1:] - valid_U).tolist() == [0, 0, 1, 1, 1, 2, 2, 3, 10]
    train_U, valid_U = split_events(indptr_U1, "last_item")
    assert (train_U - indptr_U1[:-1]).tolist() == [1, 2, 1, 7, 12, 13, 18, 23, 98]
    assert (valid_U - train_U).tolist() == (indptr_U1[1:] - valid_U).tolist() == [0, 0, 1, 1, 1, 1, 1, 1, 1]


@pytest.mark.parametrize(("values", "says"), [
    ({"min_rating": float("nan")}, "min_rating must be null or a finite number"),
    ({"min_rating": float("inf")}, "min_rating must be null or a finite number"),
    ({"min_user": 0}, r"min_user must lie in \[1, 2147483647\], got 0"),
    ({"min_item": 2**31}, "min_item must lie in"),
    ({"repeats": "last"}, "repeats: 'last' is not one of all, first"),
])  # fmt: skip
def test_filters_check_their_values(values: dict, says: str) -> None:
    assert re.match(says, Filters(**values).problem() or "")

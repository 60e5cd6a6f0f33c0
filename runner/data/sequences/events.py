"""Filter and order a log of events: who met which item when.

An event is a user, an item and a time. The filters of a log are applied in this order:

1. events rated below ``min_rating`` are left out (the reader does this, because ratings are not kept);
2. of exact copies (same user, item and time) the first in the file stays, if copies are to be left out;
3. with ``repeats`` ``first``, only a user's earliest event of each item stays;
4. users with fewer than ``min_user`` events and items with fewer than ``min_item`` are left out together with their
   events, again and again until every user and every item that is left has enough (the k-core). Repeated events count.

Events of a user are ordered by time, those of the same time by their place in the file. Users are ordered by their
first event that is left, items by their first event when all events are read in the order of time; users of the same
time are ordered by the text of their ids. So rows in another order give the same result, if no user has two events of
the same time.

Legend: E events, U users, I items.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from runner.errors import DataError

Repeats = Literal["all", "first"]
REPEATS = ("all", "first")


@dataclass(frozen=True, kw_only=True)
class Filters:
    """Say which events of a log stay; the module's docstring states the rules and their order.

    ``min_rating``: least rating of an event, None to keep all. ``min_user``, ``min_item``: least number of events of a
    user and of an item. ``repeats``: whether a later event of a user with the same item stays.
    """

    min_rating: float | None = None
    min_user: int = 1
    min_item: int = 1
    repeats: str = "all"

    def problem(self) -> str | None:
        """Return what is wrong with the values, or None if nothing is."""
        if self.min_rating is not None and not abs(self.min_rating) < float("inf"):  # also refuses NaN
            return f"min_rating must be null or a finite number, got {self.min_rating}"
        for key in ("min_user", "min_item"):
            if not 1 <= getattr(self, key) < 2**31:
                return f"{key} must lie in [1, 2147483647], got {getattr(self, key)}"
        if self.repeats not in REPEATS:
            return f"repeats: {self.repeats!r} is not one of {', '.join(REPEATS)}"
        return None


@dataclass(frozen=True, kw_only=True)
class Events:
    """Hold events in the order of their file, or as a function here says; users and items are numbers of names."""

    user_E: np.ndarray  # int32, numbers of `users`
    item_E: np.ndarray  # int32, numbers of `items`
    time_E: np.ndarray  # float64, finite
    users: Sequence[str]
    items: Sequence[str]

    def __len__(self) -> int:
        return len(self.user_E)

    def take(self, chosen: np.ndarray) -> "Events":
        """Return the chosen events, given by their positions or by a mask; users and items keep their numbers."""
        return Events(
            user_E=self.user_E[chosen],
            item_E=self.item_E[chosen],
            time_E=self.time_E[chosen],
            users=self.users,
            items=self.items,
        )


@dataclass(frozen=True, kw_only=True)
class Log:
    """Hold ordered events: those of user u are ``items_E[indptr_U1[u] : indptr_U1[u + 1]]``, oldest first."""

    items_E: np.ndarray  # int32
    indptr_U1: np.ndarray  # int64
    item_names: list[str]  # by number of item


def by_user(events: Events) -> Events:
    """Return the events user by user, each user's in the order of time and, at the same time, of the file."""
    return events.take(np.lexsort((events.time_E, events.user_E)))


def without_copies(events: Events) -> Events:
    """Leave out events of the same user, item and time as an earlier one. The events must be ordered by user."""
    same_E = (events.user_E[1:] == events.user_E[:-1]) & (events.time_E[1:] == events.time_E[:-1])
    # Copies are searched only among events that share user and time with a neighbour.
    begins_E = np.concatenate([[True], ~same_E])
    alone_E = begins_E & np.concatenate([~same_E, [True]])
    tied = np.flatnonzero(~alone_E)
    group, item = np.cumsum(begins_E)[tied], events.item_E[tied]
    order = np.lexsort((item, group))  # stable: of equal events the first stays first
    group, item = group[order], item[order]
    copies = tied[order[1:][(group[1:] == group[:-1]) & (item[1:] == item[:-1])]]
    keep_E = np.ones(len(events), bool)
    keep_E[copies] = False
    return events if len(copies) == 0 else events.take(keep_E)


def without_repeats(events: Events) -> Events:
    """Keep the first event of each user with each item. The events must be ordered by user."""
    pair_E = events.user_E.astype(np.int64) * len(events.items) + events.item_E
    _, first = np.unique(pair_E, return_index=True)
    return events.take(np.sort(first))


def core(events: Events, min_user: int, min_item: int) -> Events:
    """Leave out users and items with too few events until all that are left have enough; none may be left."""
    while len(events):
        keep_E = np.bincount(events.user_E)[events.user_E] >= min_user
        keep_E &= np.bincount(events.item_E)[events.item_E] >= min_item
        if keep_E.all():
            break
        events = events.take(keep_E)
    return events


def arrange(events: Events, *, keep_unseen: bool = False) -> Log:
    """Order users, events and items as the module's docstring says. The events must be ordered by user.

    Items without events are left out, or, with ``keep_unseen``, come last in the order of their numbers.
    """
    begins = np.flatnonzero(np.concatenate([[True], events.user_E[1:] != events.user_E[:-1]]))
    names = [events.users[user] for user in events.user_E[begins].tolist()]
    by_name = np.empty(len(begins), np.int64)
    by_name[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(begins))
    ranked_U = np.lexsort((by_name, events.time_E[begins]))
    count_U = np.diff(np.append(begins, len(events)))[ranked_U]
    indptr_U1 = np.concatenate([[0], np.cumsum(count_U)]).astype(np.int64)
    # Position in the old order of each event in the new one.
    order = np.repeat(begins[ranked_U] - indptr_U1[:-1], count_U) + np.arange(len(events))
    item_E, time_E = events.item_E[order], events.time_E[order]
    in_time = np.argsort(time_E, kind="stable")
    first_I = np.full(len(events.items), len(events), np.int64)
    # The last of several assignments stays, which is that of the first event.
    first_I[item_E[in_time[::-1]]] = np.arange(len(events))[::-1]
    ordered_I = np.argsort(first_I, kind="stable")
    if not keep_unseen:
        ordered_I = ordered_I[: np.count_nonzero(first_I < len(events))]
    number_I = np.empty(len(events.items), np.int32)
    number_I[ordered_I] = np.arange(len(ordered_I), dtype=np.int32)
    return Log(
        items_E=number_I[item_E], indptr_U1=indptr_U1, item_names=[events.items[item] for item in ordered_I.tolist()]
    )


def require_events(events: Events, what: str, why: str) -> None:
    """Raise DataError, naming file and filter, unless events are left."""
    if not len(events):
        raise DataError(f"{what}: no event is left: {why}")

"""Rank the items that users may take next, after the events of a log or after lists of items.

Legend: B users ranked at the same time, N items, K items of a user, E events, U users.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from runner.data.sequences.batches import order_by_length, windows_before
from runner.data.sequences.events import by_user
from runner.data.sequences.logs import LogColumns, read_events
from runner.errors import DataError
from runner.kernels.ranks import hide_seen
from runner.ranking import rows

Line = tuple[Any, ...]
_EXAMPLES = 3  # ids of either side that messages show


@dataclass(frozen=True, kw_only=True)
class Histories:
    """Hold users and the items that they took, (E,) int32, oldest first; ``indptr_U1``: where users begin."""

    users: Sequence[Any]
    items_E: np.ndarray
    indptr_U1: np.ndarray


def ranked(network: Any, task: Any, histories: Histories, k: int, threshold: float = 0) -> Iterator[Line]:
    """Yield the header and, for each user, the best items whose probability is at least ``threshold``.

    A model that is fitted once has scores that are no logits, so there are no probabilities.
    """
    users, items_E, indptr_U1 = histories.users, histories.items_E, histories.indptr_U1
    names, loss = task.data.item_names, task.config.loss
    yield ("user", "rank", "item", "score", *(("probability",) if loss is not None else ()))
    length, at_once = task.config.model.length, max(1, rows.NUMBERS_AT_ONCE // task.data.num_classes)
    # The event to predict comes after a user's last one, so the places below are those of the ends; targets are unused.
    padded_E = np.append(items_E, np.int32(0))
    for first in range(0, len(users), at_once):
        begin_B, place_B = indptr_U1[first : first + at_once + 1][:-1], indptr_U1[first + 1 : first + at_once + 1]
        order_B = order_by_length(begin_B, place_B, length)
        logits_BN = task.logits(network, windows_before(padded_E, begin_B, place_B, length))
        if task.config.ranking.exclude_seen:
            hide_seen(logits_BN, padded_E, begin_B[order_B], place_B[order_B])
        logits_BN = logits_BN[np.argsort(order_B)]
        for row, user in enumerate(users[first : first + at_once]):
            best_K = np.argsort(-logits_BN[row], kind="stable")[:k]
            score_K = logits_BN[row, best_K]
            chance_K = np.ones(len(best_K)) if loss is None else _chances(logits_BN[row], score_K, loss.independent)
            found = zip(best_K.tolist(), score_K.tolist(), chance_K.tolist(), strict=True)
            for rank, (item, score, chance) in enumerate(found, start=1):
                if np.isfinite(score) and chance >= threshold:
                    yield (user, rank, names[item], score, *((chance,) if loss is not None else ()))


def _chances(logits_N: np.ndarray, score_K: np.ndarray, independent: bool) -> np.ndarray:
    """Return the probabilities of some items, (K,): of each by itself, or among all that are ranked."""
    score_K = score_K.astype(np.float64)
    if independent:
        return 1 / (1 + np.exp(-score_K))
    largest = float(logits_N.max())
    if not np.isfinite(largest):  # every item was taken
        return np.zeros(len(score_K))
    return np.exp(score_K - largest) / np.exp(logits_N.astype(np.float64) - largest).sum()


# ---------------------------------------------------------------- where users come from


def histories_of_log(task: Any, file: Path, columns: LogColumns) -> Histories:
    """Read a log; say on standard error what of it is left out. Raises DataError if nothing is left."""
    read = read_events(file, columns, separator=None, header=True, quoted=True, min_rating=None)
    for note in read.notes:
        print(note, file=sys.stderr)
    events = read.events
    known_I = _known(task, events.items)
    kept_E = known_I[events.item_E] >= 0
    if not kept_E.any():
        raise DataError(f"{file}: no event is of an item that the run knows: {_both_sides(task, events.items)}")
    if not kept_E.all():
        unknown = [name for name, number in zip(events.items, known_I.tolist(), strict=True) if number < 0]
        print(
            f"{np.count_nonzero(~kept_E):,} events of items that the run never saw are left out:"
            f" {_both_sides(task, unknown)}",
            file=sys.stderr,
        )
    counting = by_user(events.take(kept_E))
    user_U, count_U = np.unique(counting.user_E, return_counts=True)
    if missing := len(np.unique(events.user_E)) - len(user_U):
        print(f"{missing:,} users have no event that counts, and get no lines", file=sys.stderr)
    indptr_U1 = np.concatenate([[0], np.cumsum(count_U)]).astype(np.int64)
    return Histories(
        users=[events.users[user] for user in user_U], items_E=known_I[counting.item_E], indptr_U1=indptr_U1
    )


def histories_of_lists(task: Any, given: Any) -> Histories:
    """Return the histories of lists of items, oldest first, one for each user, whose number from 0 is the user.

    Items that the run never saw are left out. Raises DataError for a user of whom nothing is left.
    """
    items, sizes = list[np.ndarray](), [0]
    for user, names in enumerate(given):
        if isinstance(names, str):
            raise DataError(f"user {user} is {names[:40]!r}; give a list of items for each user, oldest first")
        names = [str(name) for name in names]
        known = _known(task, names)
        known = known[known >= 0]
        if not len(known):
            raise DataError(f"user {user} has no item that the run knows: {_both_sides(task, names)}")
        items.append(known)
        sizes.append(len(known))
    together = np.concatenate(items) if items else np.zeros(0, np.int32)
    return Histories(users=range(len(items)), items_E=together, indptr_U1=np.cumsum(sizes).astype(np.int64))


def _known(task: Any, names: Sequence[str]) -> np.ndarray:
    """Return the class of each item, -1 for one that the run never saw, (I,) int32."""
    class_of = {name: number for number, name in enumerate(task.data.item_names)}
    return np.array([class_of.get(name, -1) for name in names], dtype=np.int32)


def _both_sides(task: Any, names: Sequence[str]) -> str:
    """Return some ids of both sides in words, so that a reader sees how they differ."""

    def some(ids: Sequence[str]) -> str:
        return ", ".join(repr(name[:40]) for name in ids[:_EXAMPLES]) + (", ..." if len(ids) > _EXAMPLES else "")

    return f"they are called {some(names)}, those of the run {some(task.data.item_names)}"

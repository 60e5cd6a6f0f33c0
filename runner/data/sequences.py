"""Define a prepared log of interactions: each user's items in the order of time, and how they are split.

Legend: E events of all users, U users.
"""

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np

from runner.data.places import damaged
from runner.data.rows import Int32s

Split = Literal["ratio", "last_item"]


@dataclass(frozen=True, kw_only=True)
class SequencesDataset:
    """Hold users' items, oldest first, for sequential recommendation. Arrays read from disk are memory-mapped.

    The events of user u are ``items_E[indptr_U1[u] : indptr_U1[u + 1]]``: first those to train on, up to
    ``train_end_U[u]``, then those for validation, up to ``valid_end_U[u]``, then those to test on. All three are
    positions in ``items_E``. Class ids are numbers of items in the order of their first appearance.
    """

    name: str
    items_E: Int32s
    indptr_U1: np.ndarray  # int64
    train_end_U: np.ndarray  # int64
    valid_end_U: np.ndarray  # int64
    num_classes: int
    items_path: Path
    checksum: str  # sha256 of the events and of the items' names
    variant: str

    def with_split(self, split: Split) -> "SequencesDataset":
        """Return the same events, split by the rule of `split_events`."""
        train_end_U, valid_end_U = split_events(self.indptr_U1, split)
        return dataclasses.replace(self, train_end_U=train_end_U, valid_end_U=valid_end_U)

    @property
    def num_users(self) -> int:
        """Return U, the number of users."""
        return len(self.indptr_U1) - 1

    @cached_property
    def item_names(self) -> tuple[str, ...]:
        """Return the name of each class in the user's log. Raises DataError if the file is damaged."""
        try:
            names = self.items_path.read_bytes().decode("utf-8").split("\n")[:-1]
        except (OSError, UnicodeDecodeError) as error:
            raise damaged(self.items_path, f"it cannot be read ({error})") from None
        if len(names) != self.num_classes:
            raise damaged(self.items_path, f"{len(names)} names for {self.num_classes} classes")
        return tuple(names)


def split_events(indptr_U1: np.ndarray, split: Split) -> tuple[np.ndarray, np.ndarray]:
    """Return where each user's training events and validation events end, (U,) int64 each.

    ``ratio``: of n events the last n / 10, rounded (halves up) but at least one, are for testing, and as many before
    them for validation; this is 8:1:1 inside each user. ``last_item``: the last event is for testing and the one before
    it for validation. Users with fewer than three events are only trained on.
    """
    count_U = np.diff(indptr_U1)
    held_U = np.ones_like(count_U) if split == "last_item" else np.maximum(1, (count_U + 5) // 10)
    held_U = np.where(count_U < 3, 0, held_U)
    valid_end_U = indptr_U1[1:] - held_U
    return valid_end_U - held_U, valid_end_U

"""Define a prepared log of interactions: each user's items in the order of time, and how they are split.

Legend: E events of all users, U users.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np

from runner.data.shared.card import Size
from runner.data.shared.manifests import Dataset, Int32s, Manifest, combine
from runner.data.shared.verify import check_names, check_offsets, map_array, map_ids, read_names

ITEM_NAMES = "items.txt"

Split = Literal["ratio", "last_item"]


@dataclass(frozen=True, kw_only=True)
class SequencesDataset(Dataset):
    """Hold users' items, oldest first, for sequential recommendation. Arrays read from disk are memory-mapped.

    The events of user u are ``items_E[indptr_U1[u] : indptr_U1[u + 1]]``: first those to train on, up to
    ``train_end_U[u]``, then those for validation, up to ``valid_end_U[u]``, then those to test on. All three are
    positions in ``items_E``. Class ids are numbers of items in the order of their first appearance.
    """

    NAMES: ClassVar[Mapping[str, str]] = {"items_path": ITEM_NAMES}

    items_E: Int32s
    indptr_U1: np.ndarray  # int64
    train_end_U: np.ndarray  # int64
    valid_end_U: np.ndarray  # int64
    num_classes: int
    items_path: Path

    @classmethod
    def without_examples(cls, *, num_features: int, num_classes: int, **known: Any) -> Self:
        """Return data that have names of items but no users."""
        none = np.zeros(0, np.int64)
        return cls(
            items_E=np.zeros(0, np.int32), indptr_U1=np.zeros(1, np.int64), train_end_U=none, valid_end_U=none,
            num_classes=num_classes, **known,
        )  # fmt: skip

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
        return read_names(self.items_path, self.num_classes)


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


@dataclass(frozen=True, kw_only=True)
class SequencesManifest(Manifest):
    """Describe a prepared log of events: how many are left after its filters, of how many that were read."""

    family: str = "sequences"
    num_users: int
    num_classes: int
    num_events: int
    events_read: int

    @property
    def size(self) -> Size:
        return Size(unit="events", train=self.num_events, users=self.num_users, classes=self.num_classes)

    def in_words(self) -> str:
        return f"{self.num_events:,} events of {self.num_users:,} users, {self.num_classes:,} classes"

    def checksum_of(self, digests: Mapping[str, str]) -> str:
        return combine(*(digests[name] for name in ("items.npy", "indptr.npy", ITEM_NAMES)))

    def open(self, folder: Path) -> SequencesDataset:
        indptr_U1 = map_array(folder / "indptr.npy", "<i8", self.num_users + 1)
        check_offsets(folder / "indptr.npy", indptr_U1, last=self.num_events)
        check_names(folder / ITEM_NAMES, self.num_classes)
        train_end_U, valid_end_U = split_events(indptr_U1, "ratio")
        return SequencesDataset(
            name=self.name,
            items_E=map_ids(folder / "items.npy", self.num_events, below=self.num_classes),
            indptr_U1=indptr_U1,
            train_end_U=train_end_U,
            valid_end_U=valid_end_U,
            num_classes=self.num_classes,
            items_path=folder / ITEM_NAMES,
            checksum=self.checksum,
            variant=self.variant,
        )

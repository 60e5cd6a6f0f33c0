"""Generate logs of interactions in which the next item follows from one of the last three, of any size.

Model, with I items:

- Every item has CHOICES successors, by CHOICES random permutations of all items.
- A user's first item is popular: the item of rank r (ranks are a random permutation) is drawn in proportion to
  10^9 // (r + 10), r = 0, 1, ....
- Every further item is popular, too, with a probability of POPULAR. Otherwise it is a successor of one of the user's
  last items, each successor with the same probability: of the last item with a probability of LAST, of the one before
  with BEFORE, else of the third last. A user who has fewer items takes the last one instead.
- An item that is among the user's last RECENT ones is replaced by a popular one, up to REDRAWS times.
- A user has between 5 and 2 mean_length - 5 events, each number with the same probability.

So the last item alone says half of what can be known, the order of the last three says all, and popularity says little.

Only integers are drawn and added, so the same configuration gives the same bits on every machine. Each chunk of users
is drawn from a generator keyed by (seed, chunk).

Legend: r users of a chunk, E events, I items.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from runner.data.sequences.dataset import SequencesDataset, Split
from runner.data.shared.base import SPLIT, DatasetConfig, seed_of
from runner.options.fields import option

GENERATOR_VERSION = 2  # part of the folder's hash; raise it when the same configuration gives other data than before
USERS_AT_ONCE = 4096
FEWEST_ITEMS = 20
CHOICES = 2
POPULAR = 10  # of 100 steps
LAST, BEFORE = 50, 30  # of 100 steps that are not popular
RECENT = 50
REDRAWS = 4
FEWEST_EVENTS = 5
RANK_OFFSET = 10  # flattens the head of Zipf's law


@dataclass(frozen=True, kw_only=True)
class SyntheticLogConfig(DatasetConfig):
    """Generate a log of events in which the next item follows from one of the last three."""

    family: ClassVar[str] = "sequences"

    kind: str = "synthetic_log"
    name: str = "synthetic_log"
    num_users: int = option(5000, "number of users", low=1, high=100_000_000)
    num_items: int = option(1000, "number of classes; some may have no event", low=FEWEST_ITEMS, high=10_000_000)
    mean_length: int = option(25, "events of a user", low=FEWEST_EVENTS, high=10_000)
    seed: int = seed_of("the data, which do not depend on the run's seed")
    split: Split = option("ratio", "", choices=SPLIT)

    def build(self) -> SequencesDataset:
        """Generate the log and open it; a configuration that was generated before is only opened."""
        from runner.data.sequences.events import Events
        from runner.data.sequences.write import write_events
        from runner.data.shared.manifests import Manifest, Origin, combine
        from runner.data.shared.places import prepared_dir
        from runner.data.shared.store import load_once_filled

        key = combine(GENERATOR_VERSION, self.num_users, self.num_items, self.mean_length, self.seed)[:16]

        def fill(folder: Path) -> Manifest:
            user_E, item_E = self._events()
            width = len(str(max(self.num_users, self.num_items) - 1))
            events = Events(
                user_E=user_E,
                item_E=item_E,
                time_E=np.arange(len(item_E), dtype=np.float64),  # user by user, so users keep their order
                users=[f"u{number:0{width}d}" for number in range(self.num_users)],
                items=[f"i{number:0{width}d}" for number in range(self.num_items)],
            )
            return write_events(
                folder,
                events,
                Origin(name="synthetic_log", variant=f"generated-seed-{self.seed}", sources={}),
                notes=[],
                num_read=len(item_E),
                keep_unseen=True,
            )

        folder = prepared_dir("synthetic_log", key)
        dataset = load_once_filled(folder, SequencesDataset, self.name, fill, says=f"generating {self.name} {key}")
        return dataset.with_split(self.split)

    def _events(self) -> tuple[np.ndarray, np.ndarray]:
        """Draw users and items of all events, (E,) int32 each, user by user."""
        world = _World(self)
        users, items = [], []
        for chunk, first in enumerate(range(0, self.num_users, USERS_AT_ONCE)):
            sizes_r, item_E = world.chunk(chunk, min(USERS_AT_ONCE, self.num_users - first))
            users.append(np.repeat(np.arange(first, first + len(sizes_r), dtype=np.int32), sizes_r))
            items.append(item_E)
        return np.concatenate(users), np.concatenate(items)


class _World:
    """Hold what all users share: popularity and successors of the items."""

    def __init__(self, config: SyntheticLogConfig) -> None:
        self.config = config
        items = config.num_items
        rng = np.random.default_rng([config.seed, 0])
        self.item_of_rank_I = rng.permutation(items).astype(np.int32)
        self.cumulative_I = np.cumsum(10**9 // (np.arange(items, dtype=np.int64) + RANK_OFFSET))
        self.successors_IC = np.stack([rng.permutation(items) for _ in range(CHOICES)], axis=1).astype(np.int32)

    def chunk(self, number: int, users: int) -> tuple[np.ndarray, np.ndarray]:
        """Draw the events of r users: how many each has, (r,), and their items user by user, int32."""
        rng = np.random.default_rng([self.config.seed, 1, number])
        sizes_r = rng.integers(FEWEST_EVENTS, 2 * self.config.mean_length - FEWEST_EVENTS, size=users, endpoint=True)
        items_rT = np.empty((users, int(sizes_r.max())), np.int32)
        items_rT[:, 0] = self._popular(rng, users)
        for step in range(1, items_rT.shape[1]):
            back_r = 1 + np.searchsorted([LAST, LAST + BEFORE], rng.integers(100, size=users), side="right")
            back_r[back_r > step] = 1
            choice_r = rng.integers(CHOICES, size=users)
            by_chain_r = rng.integers(100, size=users) >= POPULAR
            followed_r = items_rT[np.arange(users), step - back_r]
            item_r = np.where(by_chain_r, self.successors_IC[followed_r, choice_r], self._popular(rng, users))
            recent_rt = items_rT[:, max(step - RECENT, 0) : step]
            for _ in range(REDRAWS):
                taken_r = (recent_rt == item_r[:, None]).any(axis=1)
                item_r = np.where(taken_r, self._popular(rng, users), item_r)
            items_rT[:, step] = item_r
        return sizes_r, items_rT[np.arange(items_rT.shape[1]) < sizes_r[:, None]]

    def _popular(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Draw items by their popularity, (count,) int32."""
        drawn = rng.integers(self.cumulative_I[-1], size=count)
        return self.item_of_rank_I[np.searchsorted(self.cumulative_I, drawn, side="right")]

"""Rank without a network: by popularity, by the last item's successors, or by items that the same users took.

These are the baselines that show what a model is worth. For sequences each says by a sparse matrix how much an item of
the user's window speaks for each item; ``runner.baselines.counted`` adds this up. For rows there is popularity alone.

@inproceedings{sarwar2001item, title={Item-Based Collaborative Filtering Recommendation Algorithms}, author={Sarwar,
Badrul and Karypis, George and Konstan, Joseph and Riedl, John}, booktitle={WWW}, year={2001}}

Legend: N items, U users, I items of a block.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy.sparse import coo_array, csr_array, vstack

from runner.baselines.base import FittedConfig
from runner.baselines.counted import Counts, no_similarity
from runner.options.fields import option

if TYPE_CHECKING:
    from runner.data.sequences.batches import SequenceWindows

_ITEMS_AT_ONCE = 1024


@dataclass(frozen=True, kw_only=True)
class CountsConfig(FittedConfig):
    """Serve as the base of baselines that count; ``length`` is the number of items that a prediction looks back on."""

    selects: ClassVar[Mapping[str, Any]] = {"dataset": "synthetic_log", **FittedConfig.selects}
    reads: ClassVar[str] = "sequences"
    task: ClassVar[str | None] = "fitted_sequences"

    @abstractmethod
    def similarity(self, windows: "SequenceWindows", num_items: int) -> csr_array:
        """Return how much an item of the window (a row) speaks for each item (a column), (N, N) float64."""

    def counted(self, task: Any) -> tuple[np.ndarray, csr_array]:
        """Count the training events of each item, (N,), and of pairs what ``similarity`` does."""
        windows, num_items = task.windows, task.data.num_classes
        counts_N = np.bincount(windows.items_E[windows.event_places], minlength=num_items)
        return counts_N, self.similarity(windows, num_items)

    def build(self, num_classes: int) -> Counts:
        return Counts(num_classes, self.counted)


@dataclass(frozen=True, kw_only=True)
class PopularityConfig(CountsConfig):
    """Recommend the items that were taken most often in training, to everyone."""

    length: ClassVar[int] = 1

    name: str = "popularity"

    def similarity(self, windows: "SequenceWindows", num_items: int) -> csr_array:
        return no_similarity(num_items)


@dataclass(frozen=True, kw_only=True)
class MostFrequentConfig(FittedConfig):
    """Name the classes that most training rows have, for every row: popularity for extreme classification."""

    reads: ClassVar[str] = "rows"
    task: ClassVar[str | None] = "fitted_rows"

    name: str = "most_frequent"

    def counted(self, task: Any) -> tuple[np.ndarray, csr_array]:
        """Count the training rows of each class, (N,)."""
        return task.training.label_counts_N, no_similarity(task.data.num_classes)

    def build(self, num_classes: int) -> Counts:
        return Counts(num_classes, self.counted)


@dataclass(frozen=True, kw_only=True)
class MarkovConfig(CountsConfig):
    """Recommend the items that most often came right after the user's last item, in training."""

    length: ClassVar[int] = 1

    name: str = "markov"

    def similarity(self, windows: "SequenceWindows", num_items: int) -> csr_array:
        before, after = windows.items_E[windows.target_places - 1], windows.items_E[windows.target_places]
        return coo_array((np.ones(len(after)), (before, after)), shape=(num_items, num_items)).tocsr()


@dataclass(frozen=True, kw_only=True)
class ItemKnnConfig(CountsConfig):
    """Recommend the items that are most similar, in sum, to the user's last items (Sarwar et al. 2001)."""

    name: str = "item_knn"
    length: int = option(2, "largest number of items that a prediction looks back on", low=1, high=4096)
    neighbours: int = option(100, "similar items that each item keeps", low=1, high=100_000)
    shrink: float = option(
        10.0, "added to the denominator of the cosine, against similarities that few users cause", low=0, high=1e6
    )

    def similarity(self, windows: "SequenceWindows", num_items: int) -> csr_array:
        return nearest_items(windows.users_items(num_items), self.neighbours, self.shrink)


def nearest_items(taken_UN: csr_array, neighbours: int, shrink: float) -> csr_array:
    """Return the similarities of each item to its ``neighbours`` nearest ones, (N, N): row i holds those of item i.

    ``taken_UN``: 1 where a user took an item. The similarity of two items is the number of users who took both, divided
    by the geometric mean of the two items' numbers of users plus ``shrink``: the cosine if ``shrink`` is 0. Of equally
    near items the lower ids stay. An item is not its own neighbour.
    """
    num_items = taken_UN.shape[1]
    users_N = np.asarray(taken_UN.sum(axis=0), dtype=np.float64).reshape(-1)
    of_item = taken_UN.T.tocsr()
    blocks = []
    for lo in range(0, num_items, _ITEMS_AT_ONCE):
        both_IN = (of_item[lo : lo + _ITEMS_AT_ONCE] @ taken_UN).tocoo()
        row, item = both_IN.coords
        value = both_IN.data / (np.sqrt(users_N[lo + row] * users_N[item]) + shrink)
        other = item != lo + row
        row, item, value = row[other], item[other], value[other]
        order = np.lexsort((item, -value, row))
        row, item, value = row[order], item[order], value[order]
        kept = np.arange(len(row)) - np.searchsorted(row, row) < neighbours
        blocks.append(csr_array((value[kept], (row[kept], item[kept])), shape=(both_IN.shape[0], num_items)))
    return vstack(blocks, format="csr")

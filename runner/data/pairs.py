"""Define a prepared set of sentence pairs: two sentences and a class for each pair.

Legend: R pairs of a split.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from runner.data.rows import Int32s


@dataclass(frozen=True, kw_only=True, eq=False)
class Pairs:
    """Hold R pairs: ``first`` and ``second`` have R sentences each, ``labels_R`` the class ids, int32.

    Two sets of pairs are equal only if they are the same object, so that what was computed for one (its tokens) can be
    looked up by it.
    """

    first: Sequence[str]
    second: Sequence[str]
    labels_R: Int32s

    @property
    def num_pairs(self) -> int:
        """Return R, the number of pairs."""
        return len(self.labels_R)


@dataclass(frozen=True, kw_only=True)
class PairsDataset:
    """Hold the pairs to train on and to test on. A validation set is held out of ``train`` by the task."""

    name: str
    train: Pairs
    test: Pairs
    num_classes: int
    class_names: tuple[str, ...]  # by class id
    checksum: str  # sha256 of the sentences and labels of both splits, and of the names of the classes
    variant: str  # the published (or private) version of the set

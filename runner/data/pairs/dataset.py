"""Define a prepared set of sentence pairs: two sentences and a class for each pair.

Legend: R pairs of a split.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.data.shared.card import Size
from runner.data.shared.manifests import Dataset, Int32s, Manifest, combine
from runner.data.shared.places import damaged
from runner.data.shared.verify import MANIFEST, map_ids, read_lines


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
class PairsDataset(Dataset):
    """Hold the pairs to train on and to test on. A validation set is held out of ``train`` by the task."""

    train: Pairs
    test: Pairs
    num_classes: int
    class_names: tuple[str, ...]  # by class id


@dataclass(frozen=True, kw_only=True)
class PairsManifest(Manifest):
    """Describe a prepared set of sentence pairs; `train` and `test` count pairs."""

    family: str = "pairs"
    num_classes: int
    train: int
    test: int
    class_names: list[str]  # by class id

    @property
    def size(self) -> Size:
        return Size(unit="pairs", train=self.train, test=self.test, classes=self.num_classes)

    def in_words(self) -> str:
        return f"{self.train:,} / {self.test:,} pairs, {self.num_classes:,} classes"

    def checksum_of(self, digests: Mapping[str, str]) -> str:
        splits = (
            combine(*(digests[f"{split}.{file}"] for file in ("first.txt", "second.txt", "labels.npy")))
            for split in ("train", "test")
        )
        return combine(*self.class_names, *splits)

    def open(self, folder: Path) -> PairsDataset:
        def split(name: str, count: int) -> Pairs:
            return Pairs(
                first=read_lines(folder / f"{name}.first.txt", count),
                second=read_lines(folder / f"{name}.second.txt", count),
                labels_R=map_ids(folder / f"{name}.labels.npy", count, below=len(self.class_names)),
            )

        if self.num_classes != len(self.class_names):
            raise damaged(folder / MANIFEST, f"{self.num_classes} classes have {len(self.class_names)} names")
        return PairsDataset(
            name=self.name,
            train=split("train", self.train),
            test=split("test", self.test),
            num_classes=self.num_classes,
            class_names=tuple(self.class_names),
            checksum=self.checksum,
            variant=self.variant,
        )

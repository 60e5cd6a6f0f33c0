"""Say what the cards of sentence pairs hold, and in which layouts their files may be."""

from dataclasses import dataclass
from typing import ClassVar

from runner.data.shared.card import Card, Layout, Size


@dataclass(frozen=True, kw_only=True)
class PairsLayout(Layout):
    """Name the files of sentence pairs and their columns.

    There are either `train` and `test`, or `data` with a file `test_ids` that lists which of its pairs are test pairs,
    by the values of `id_columns`.
    """

    first: str
    second: str
    label: str
    train: str | None = None
    test: str | None = None
    data: str | None = None
    test_ids: str | None = None
    id_columns: tuple[str, ...] = ()

    def file_names(self) -> dict[str, str]:
        return self.given("train", "test", "data", "test_ids")

    def problem(self) -> str | None:
        by_ids = {"data", "test_ids"} if self.id_columns else {"train", "test"}
        if set(self.file_names()) != by_ids:
            return "give either train and test, or data, test_ids and id_columns"
        return None


@dataclass(frozen=True, kw_only=True)
class ExpectedPairs:
    """Hold the published counts of a set of sentence pairs."""

    num_classes: int
    num_train: int
    num_test: int


@dataclass(frozen=True, kw_only=True)
class PairsCard(Card):
    """Describe a set of sentence pairs. `labels`: the labels in the files, in the order of the class ids.

    `class_names`: what the labels mean, if they do not say so themselves.
    """

    family: ClassVar[str] = "pairs"

    expected: ExpectedPairs
    labels: tuple[str, ...]
    class_names: tuple[str, ...] = ()
    layouts: tuple[PairsLayout, ...]

    @property
    def size(self) -> Size:
        counts = self.expected
        return Size(unit="pairs", train=counts.num_train, test=counts.num_test, classes=counts.num_classes)

    def problem(self) -> str | None:
        if not len(self.labels) == len(set(self.labels)) == self.expected.num_classes:
            return f"labels: must be {self.expected.num_classes} different labels"
        if self.class_names and len(self.class_names) != len(self.labels):
            return "class_names: must be as many as labels"
        return None

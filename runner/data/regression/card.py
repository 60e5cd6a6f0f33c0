"""Say what the cards of tables for regression hold, and in which layouts their files may be."""

from dataclasses import dataclass
from typing import ClassVar

from runner.data.shared.card import Card, Layout, Size


@dataclass(frozen=True, kw_only=True)
class Missing:
    """Replace a number that stands for "not measured" in every feature column; the target keeps it."""

    value: float  # the number in the file
    becomes: float


@dataclass(frozen=True, kw_only=True)
class TableLayout(Layout):
    """Name the files of a table of numbers: either `train` and `test`, or `data`, which is split by a stated rule.

    The files are CSV (comma, semicolon, tab or blanks, with or without a header) or svmlight text, whose label is the
    last column here. Every column is a feature unless it is the target, the group, or dropped. `data` is split by
    counts (`train_rows` first, `test_rows` last) or at random (`test_share`, `split_seed`), with a `group` so that all
    rows of a group fall on the same side (`runner/data/shared/splits.py`).
    """

    train: str | None = None
    test: str | None = None
    data: str | None = None
    target: str | int = -1  # name or index of a column; negative indices count from the last
    drop: tuple[str, ...] = ()  # names of columns that are no features
    group: str | None = None
    missing: Missing | None = None
    train_rows: int | None = None
    test_rows: int | None = None
    test_share: float | None = None
    split_seed: int = 0

    def file_names(self) -> dict[str, str]:
        return self.given("train", "test", "data")

    def problem(self) -> str | None:
        given = set(self.file_names())
        if given not in ({"train", "test"}, {"data"}):
            return "give either train and test, or data"
        by_counts = None not in (self.train_rows, self.test_rows)
        if (self.train_rows is None) != (self.test_rows is None) or (by_counts and self.test_share is not None):
            return "give either train_rows and test_rows, or test_share"
        if (given == {"data"}) != (by_counts or self.test_share is not None):
            return "data needs train_rows and test_rows, or test_share; train and test are split already"
        if by_counts and min(self.train_rows or 0, self.test_rows or 0) < 1:
            return "train_rows and test_rows must be at least 1"
        if self.test_share is not None and not 0 < self.test_share < 1:
            return "test_share must lie in (0, 1)"
        if self.split_seed < 0:
            return "split_seed must be 0 or more"
        return "group needs test_share" if self.group is not None and self.test_share is None else None


@dataclass(frozen=True, kw_only=True)
class ExpectedTable:
    """Hold the published counts of a table, None if unknown; features are what remains without target and ids."""

    num_features: int
    num_rows: int  # training and test rows together
    num_train: int | None
    num_test: int | None


@dataclass(frozen=True, kw_only=True)
class RegressionCard(Card):
    """Describe a table of numbers, one column of which is to be predicted from the others."""

    family: ClassVar[str] = "regression"

    expected: ExpectedTable
    layouts: tuple[TableLayout, ...]

    @property
    def size(self) -> Size:
        counts = self.expected
        return Size(unit="rows", train=counts.num_train, test=counts.num_test, features=counts.num_features)

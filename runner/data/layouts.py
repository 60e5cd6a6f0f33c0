"""Define layouts: which files hold a data set, and how each family of data reads them."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from runner.data.readers import LAYOUTS

MATRICES = "npz"


@dataclass(frozen=True, kw_only=True)
class Layout(ABC):
    """Name the files of a data set inside a folder or archive; subclasses do so for one family of data."""

    name: str  # recorded as the variant of what was prepared
    guessed: bool = False  # the names of the files were not seen anywhere, only guessed

    @abstractmethod
    def file_names(self) -> dict[str, str]:
        """Return the names (or patterns of names) of the required files, by field."""

    def optional_names(self) -> dict[str, str]:
        """Return the names of the files that may be missing, by field."""
        return {}

    def how_many(self, field: str) -> int:
        """Return how many files the name of a field stands for."""
        return 1

    @abstractmethod
    def problem(self) -> str | None:
        """Return what is wrong with the values, or None if nothing is."""

    def in_words(self) -> str:
        """Return the names of the required files, for messages."""
        return " and ".join(
            name if self.how_many(field) == 1 else f"{self.how_many(field)} files {name}"
            for field, name in self.file_names().items()
        )


@dataclass(frozen=True, kw_only=True)
class RowsLayout(Layout):
    """Name the files of sparse rows: either `train` and `test`, or `data` with two split files.

    Files of the format `npz` hold matrices of features, so that they need matrices of labels beside them.
    """

    format: str
    feature_start: int  # smallest allowed feature index in the file: 0 or 1
    label_start: int  # smallest allowed label in the file: 0 or 1
    train: str | None = None
    test: str | None = None
    data: str | None = None
    train_split: str | None = None  # 1-based line numbers of `data` after the header
    test_split: str | None = None
    split_column: int = 0  # column of the split files to read, from 0
    train_labels: str | None = None
    test_labels: str | None = None
    label_names: str | None = None  # optional file with one name per line

    def file_names(self) -> dict[str, str]:
        return _given(self, "train", "test", "train_labels", "test_labels", "data", "train_split", "test_split")

    def optional_names(self) -> dict[str, str]:
        return _given(self, "label_names")

    def problem(self) -> str | None:
        if self.format not in (*LAYOUTS, MATRICES):
            return f"format: {self.format!r} is not one of {', '.join((*LAYOUTS, MATRICES))}"
        if {self.feature_start, self.label_start} - {0, 1}:
            return "feature_start and label_start must be 0 or 1"
        pair = self.train is not None and self.test is not None
        split = None not in (self.data, self.train_split, self.test_split)
        if pair == split:
            return "give either train and test, or data, train_split and test_split"
        with_labels = pair and None not in (self.train_labels, self.test_labels)
        if with_labels != (self.format == MATRICES) or (self.train_labels is None) != (self.test_labels is None):
            return f"train_labels and test_labels belong to format {MATRICES}, which needs them"
        return None


@dataclass(frozen=True, kw_only=True)
class TextLayout(Layout):
    """Name the files of a text: either `train`, `valid` and `test`, or `data` and the `cuts` between its splits."""

    train: str | None = None  # a pattern if train_files is above 1; files are read in the order of their names
    valid: str | None = None
    test: str | None = None
    train_files: int = 1
    data: str | None = None
    cuts: tuple[int, ...] = ()  # byte positions in `data` at which valid and test begin

    def file_names(self) -> dict[str, str]:
        return _given(self, "train", "valid", "test", "data")

    def how_many(self, field: str) -> int:
        return self.train_files if field == "train" else 1

    def problem(self) -> str | None:
        if self.train_files < 1:
            return "train_files must be at least 1"
        given = set(self.file_names())
        if (given, len(self.cuts)) not in (({"train", "valid", "test"}, 0), ({"data"}, 2)):
            return "give either train, valid and test, or data and two cuts"
        if self.cuts and not 0 < self.cuts[0] < self.cuts[1]:
            return "cuts must ascend from above 0"
        return None


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
    rows of a group fall on the same side (`runner/data/splits.py`).
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
        return _given(self, "train", "test", "data")

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
        return _given(self, "train", "test", "data", "test_ids")

    def problem(self) -> str | None:
        by_ids = {"data", "test_ids"} if self.id_columns else {"train", "test"}
        if set(self.file_names()) != by_ids:
            return "give either train and test, or data, test_ids and id_columns"
        return None


@dataclass(frozen=True, kw_only=True)
class SequencesLayout(Layout):
    """Name the file of a log of events and say how it is laid out (`runner/data/read_events.py`).

    Either each row is an event, in columns that `separator` (one character or several) separates and that have names
    if there is a `header`, otherwise numbers from 0; quotes are characters like any other. Or, with `users_in_lines`,
    each line holds the items of one user, oldest first, separated by blanks, and no columns are given.
    """

    data: str
    users_in_lines: bool = False
    separator: str = "\t"
    header: bool = False
    user: str | int | None = None
    item: str | int | None = None
    time: str | int | None = None  # a finite number or ISO 8601
    rating: str | int | None = None

    def file_names(self) -> dict[str, str]:
        return _given(self, "data")

    def problem(self) -> str | None:
        used = [column for column in (self.user, self.item, self.time, self.rating) if column is not None]
        if self.users_in_lines:
            return "users_in_lines leaves no use for user, item, time and rating" if used else None
        if None in (self.user, self.item, self.time):
            return "give user, item and time, or users_in_lines"
        if not self.separator or set(self.separator) & set("\r\n"):
            return "separator must be one character or several, but no line end"
        if len(set(used)) < len(used):
            return "user, item, time and rating must be different columns"
        if self.header != all(isinstance(column, str) for column in used):
            return "columns have names if there is a header, otherwise numbers"
        if not self.header and any(isinstance(column, str) or column < 0 for column in used):
            return "columns without a header are numbers from 0"
        return None


def _given(layout: Layout, *fields: str) -> dict[str, str]:
    """Return the values of those fields that are not None, by field."""
    return {field: name for field in fields if (name := getattr(layout, field)) is not None}

"""Say what the cards of sparse rows hold, and in which layouts the files of such sets may be."""

from dataclasses import dataclass
from typing import ClassVar

from runner.data.rows.texts import LAYOUTS
from runner.data.shared.card import Card, Layout, Size
from runner.data.shared.cards import load_card
from runner.errors import ConfigError

MATRICES = "npz"
LINUX = "linux"  # an archive of the kernel's sources


@dataclass(frozen=True, kw_only=True)
class RowsLayout(Layout):
    """Name the files of sparse rows: either `train` and `test`, or `data` with two split files, or `linux`.

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
    linux: str | None = None  # an archive of the kernel's sources, or a pattern of its name
    label_names: str | None = None  # optional file with one name per line

    def file_names(self) -> dict[str, str]:
        return self.given("train", "test", "train_labels", "test_labels", "data", "train_split", "test_split", "linux")

    def optional_names(self) -> dict[str, str]:
        return self.given("label_names")

    def problem(self) -> str | None:
        if self.format not in (*LAYOUTS, MATRICES, LINUX):
            return f"format: {self.format!r} is not one of {', '.join((*LAYOUTS, MATRICES, LINUX))}"
        if (self.format == LINUX) != (self.linux is not None) or (self.linux and len(self.file_names()) > 1):
            return f"linux belongs to format {LINUX}, which needs it and no other file"
        if self.linux is not None:
            return None
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
class Expected:
    """Hold the published counts of a set of rows; `counts_source` of the card says where they come from."""

    num_features: int
    num_classes: int
    num_train: int
    num_test: int
    labels_per_row: float
    features_per_row: float


@dataclass(frozen=True, kw_only=True)
class Derived:
    """Describe a set that is computed from another prepared set by the rule in `runner/data/rows/uniform.py`."""

    base: str
    num_classes: int
    seed: int


@dataclass(frozen=True, kw_only=True)
class RowsCard(Card):
    """Describe a set of sparse feature rows with label sets (extreme classification).

    `propensity_a` and `propensity_b` are the constants A and B of the propensities (Jain et al. 2016, KDD).
    """

    family: ClassVar[str] = "rows"

    propensity_a: float
    propensity_b: float
    expected: Expected
    layouts: tuple[RowsLayout, ...] = ()
    derived: Derived | None = None

    @property
    def base(self) -> str | None:
        return self.derived.base if self.derived is not None else None

    @property
    def size(self) -> Size:
        shape = self.expected
        return Size(
            unit="rows",
            train=shape.num_train,
            test=shape.num_test,
            features=shape.num_features,
            classes=shape.num_classes,
        )


def load_rows_card(name: str) -> RowsCard:
    """Return the card of a set of sparse rows. Raises ConfigError if the set is of another family."""
    card = load_card(name)
    if not isinstance(card, RowsCard):
        raise ConfigError(f"{name} holds {card.family}, not sparse rows")
    return card

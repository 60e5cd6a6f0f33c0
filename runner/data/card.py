"""Dataset cards: what a published set is, where it comes from, and how its files are laid out.

A card is `datasets/<name>/card.yaml`; each mapping in it is one of the dataclasses below, and a misspelt key,
a missing key or a wrong type is a one-line DataError. Cards are of two families, sparse rows and text, which differ in
layouts, expected counts and how other sets are derived from them.
"""

import dataclasses
import functools
import sys
import types
import typing
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from runner.data import places
from runner.data.readers import LAYOUTS
from runner.errors import ConfigError, DataError


@dataclass(frozen=True, kw_only=True)
class SourceFile:
    """One file to download. Its addresses are mirrors, in order; `gdrive:ID` is a Drive file."""

    name: str  # under raw/
    urls: tuple[str, ...]
    sha256: str | None = None  # None: none is published; the first download's is recorded
    md5: str | None = None


@dataclass(frozen=True, kw_only=True)
class Source:
    """Files that together hold one layout. When one cannot be fetched, the next is tried."""

    layout: str
    files: tuple[SourceFile, ...]


@dataclass(frozen=True, kw_only=True)
class Layout(ABC):
    """File names inside a folder or archive."""

    name: str  # recorded as the variant of what was prepared

    @abstractmethod
    def file_names(self) -> dict[str, str]:
        """Field -> file name (or a pattern of names), of the files that must be there."""

    def optional_names(self) -> dict[str, str]:
        return {}

    def how_many(self, field: str) -> int:
        """Number of files that a field's name stands for."""
        return 1

    @abstractmethod
    def problem(self) -> str | None:
        """What is wrong with the values; None when nothing is."""

    def in_words(self) -> str:
        """The files that are wanted, for messages."""
        return " and ".join(
            name if self.how_many(field) == 1 else f"{self.how_many(field)} files {name}"
            for field, name in self.file_names().items()
        )


@dataclass(frozen=True, kw_only=True)
class RowsLayout(Layout):
    """Sparse rows: `data` with split files, or `train` and `test`."""

    format: str
    feature_start: int  # smallest legal feature index in the file: 0 or 1
    label_start: int
    train: str | None = None
    test: str | None = None
    data: str | None = None
    train_split: str | None = None  # 1-based line numbers of `data` after the header
    test_split: str | None = None
    split_column: int = 0
    label_names: str | None = None  # optional file, one name a line

    def file_names(self) -> dict[str, str]:
        return _given(self, "train", "test", "data", "train_split", "test_split")

    def optional_names(self) -> dict[str, str]:
        return _given(self, "label_names")

    def problem(self) -> str | None:
        if self.format not in LAYOUTS:
            return f"format: {self.format!r} is not one of {', '.join(LAYOUTS)}"
        if {self.feature_start, self.label_start} - {0, 1}:
            return "feature_start and label_start must be 0 or 1"
        pair = self.train is not None and self.test is not None
        split = None not in (self.data, self.train_split, self.test_split)
        return "give either train and test, or data, train_split and test_split" if pair == split else None


@dataclass(frozen=True, kw_only=True)
class TextLayout(Layout):
    """Text: `train`, `valid` and `test`, or `data` and the `cuts` between its splits."""

    train: str | None = None  # with train_files: a pattern; the files are read in the order of their names
    valid: str | None = None
    test: str | None = None
    train_files: int = 1
    data: str | None = None
    cuts: tuple[int, ...] = ()  # bytes of `data` at which valid and test begin

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


def _given(layout: Layout, *fields: str) -> dict[str, str]:
    return {field: name for field in fields if (name := getattr(layout, field)) is not None}


@dataclass(frozen=True, kw_only=True)
class Expected:
    """Published shape of a set of rows. Averages may be missing where nobody publishes them."""

    num_features: int
    num_classes: int
    num_train: int
    num_test: int
    labels_per_row: float
    features_per_row: float


@dataclass(frozen=True, kw_only=True)
class ExpectedText:
    """Published counts of a text, `<eos>` and `<unk>` among the classes; None where nobody publishes them."""

    num_classes: int
    train_tokens: int | None
    valid_tokens: int | None
    test_tokens: int | None


@dataclass(frozen=True, kw_only=True)
class Derived:
    """A set computed from another prepared set; `runner/data/uniform.py` states the rule."""

    base: str
    num_classes: int
    seed: int


@dataclass(frozen=True, kw_only=True)
class FirstLines:
    """The first lines of each split of another prepared text, with a vocabulary of their own."""

    base: str
    train_lines: int
    valid_lines: int
    test_lines: int


@dataclass(frozen=True, kw_only=True)
class Size:
    """Expected counts in the terms that all families share."""

    unit: str  # of train and test
    train: int | None
    test: int | None
    features: int | None
    classes: int


@dataclass(frozen=True, kw_only=True)
class Card(ABC):
    """What the card of every family of data says."""

    family: ClassVar[str]

    name: str
    title: str
    description: str
    licence: str
    redistribute: bool
    citation: str  # BibTeX
    counts_source: str  # who publishes the expected counts, and which of them are uncertain
    sources: tuple[Source, ...] = ()
    embedded: tuple[SourceFile, ...] = ()  # files beside the card; their addresses are empty
    by_hand: str = ""  # how to fetch the set with a browser

    @property
    @abstractmethod
    def all_layouts(self) -> tuple[Layout, ...]:
        """Ways in which users may have the files, of the card's family."""

    @property
    @abstractmethod
    def base(self) -> str | None:
        """The set that this one is derived from."""

    @property
    @abstractmethod
    def size(self) -> Size:
        """How large the set is, as its card expects."""


@dataclass(frozen=True, kw_only=True)
class RowsCard(Card):
    """Sparse feature rows with label sets: extreme classification."""

    family: ClassVar[str] = "rows"

    propensity_a: float
    propensity_b: float
    expected: Expected
    layouts: tuple[RowsLayout, ...] = ()
    derived: Derived | None = None

    @property
    def all_layouts(self) -> tuple[Layout, ...]:
        return self.layouts

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


@dataclass(frozen=True, kw_only=True)
class TextCard(Card):
    """Text for language models; `runner/data/words.py` states how words become ids."""

    family: ClassVar[str] = "text"

    expected: ExpectedText
    end_of_line: bool = True  # lines are sentences, their ends are tokens
    most_types: int | None = None  # classes at most; None: every type of the training split has one
    layouts: tuple[TextLayout, ...] = ()
    derived: FirstLines | None = None

    @property
    def all_layouts(self) -> tuple[Layout, ...]:
        return self.layouts

    @property
    def base(self) -> str | None:
        return self.derived.base if self.derived is not None else None

    @property
    def size(self) -> Size:
        counts = self.expected
        return Size(
            unit="tokens",
            train=counts.train_tokens,
            test=counts.test_tokens,
            features=None,
            classes=counts.num_classes,
        )


CARDS: dict[str, type[Card]] = {kind.family: kind for kind in (RowsCard, TextCard)}


def card_names() -> list[str]:
    return sorted(path.parent.name for path in places.CARDS_ROOT.glob("*/card.yaml"))


@functools.cache
def load_card(name: str) -> Card:
    """Raises ConfigError for an unknown name, DataError for a card that is not valid."""
    if name not in card_names():
        raise ConfigError(f"dataset.name: no card {name!r}; choose one of {', '.join(card_names())}")
    return read_card(places.CARDS_ROOT / name / "card.yaml")


def load_rows_card(name: str) -> RowsCard:
    """The card of a set of sparse rows. Raises ConfigError where it is of another family."""
    card = load_card(name)
    if not isinstance(card, RowsCard):
        raise ConfigError(f"{name} holds {card.family}, not sparse rows")
    return card


def read_card(path: Path) -> Card:
    import yaml

    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise DataError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    family = raw.pop("family", "rows") if isinstance(raw, dict) else "rows"  # most cards are of rows and do not say so
    if not isinstance(family, str) or family not in CARDS:
        raise DataError(f"{path}: family: {family!r} is not one of {', '.join(CARDS)}")
    card: Card = _convert(CARDS[family], raw, str(path))
    _check(card, path)
    return card


def _check(card: Card, path: Path) -> None:
    if card.name != path.parent.name:
        raise DataError(f"{path}: name: is {card.name!r}, must be the folder's name {path.parent.name!r}")
    known = [layout.name for layout in card.all_layouts]
    for layout in card.all_layouts:
        if (problem := layout.problem()) is not None:
            raise DataError(f"{path}: layout {layout.name}: {problem}")
    for source in card.sources:
        if source.layout not in known:
            raise DataError(f"{path}: source layout {source.layout!r} is not one of {', '.join(known)}")
    if bool(card.all_layouts) == (card.base is not None):
        raise DataError(f"{path}: give either layouts or derived")


def differences(name: str, expected: Expected | ExpectedText, found: dict[str, int]) -> list[str]:
    """A note, printed too, for every count that is not the published one."""
    published = dataclasses.asdict(expected)
    notes = [
        f"{key} is {value}, the card expects {published[key]}"
        for key, value in found.items()
        if published[key] is not None and value != published[key]
    ]
    for note in notes:
        print(f"{name}: {note}", file=sys.stderr)
    return notes


def _convert(kind: Any, raw: Any, where: str) -> Any:
    """`raw` YAML as `kind`; `where` is the path of keys for messages."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        if not isinstance(raw, dict):
            raise DataError(f"{where}: must be a mapping, found {raw!r}")
        hints = typing.get_type_hints(kind)
        if unknown := raw.keys() - hints.keys():
            raise DataError(f"{where}: unknown key {min(map(str, unknown))!r}; known: {', '.join(hints)}")
        for field in dataclasses.fields(kind):
            if field.name not in raw and field.default is dataclasses.MISSING:
                raise DataError(f"{where}: key {field.name!r} is missing")
        values = {key: _convert(hints[key], value, f"{where}: {key}") for key, value in raw.items()}
        return typing.cast(Any, kind)(**values)
    if origin is tuple:
        if not isinstance(raw, list):
            raise DataError(f"{where}: must be a list, found {raw!r}")
        return tuple(_convert(arguments[0], item, f"{where}[{i}]") for i, item in enumerate(raw))
    if origin in (types.UnionType, typing.Union):
        if raw is None:
            return None
        return _convert(next(a for a in arguments if a is not type(None)), raw, where)
    if kind is float and type(raw) is int:
        return float(raw)
    if type(raw) is not kind:
        raise DataError(f"{where}: must be {kind.__name__}, found {raw!r}")
    return raw

"""Read dataset cards: what a published set is, where it comes from, and how its files are laid out.

A card is `datasets/<name>/card.yaml`. Each mapping in it is one of the dataclasses below; a misspelt key, a missing
key or a wrong type is a DataError of one line. There are five families of cards: sparse rows, text, tables of
numbers for regression, sentence pairs, and sequences of items. They differ in their layouts
(`runner/data/layouts.py`), their expected counts, and the way in which other sets are derived from them.
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
from runner.data.events import Filters
from runner.data.layouts import Layout, PairsLayout, RowsLayout, SequencesLayout, TableLayout, TextLayout
from runner.errors import ConfigError, DataError


@dataclass(frozen=True, kw_only=True)
class SourceFile:
    """Describe a file to download. Its addresses are mirrors, tried in order; `gdrive:ID` is a Google Drive file."""

    name: str  # file name under raw/
    urls: tuple[str, ...]
    sha256: str | None = None  # None if none is published: that of the first download is then recorded
    md5: str | None = None
    guessed: bool = False  # the addresses were not seen anywhere, only guessed


@dataclass(frozen=True, kw_only=True)
class Canonical:
    """State the checksum of a file inside the published archives.

    Copies with other bytes exist that hold the same data, so that a file is not refused, but said to be another one.
    """

    name: str
    sha1: str


@dataclass(frozen=True, kw_only=True)
class Source:
    """List the files that together hold one layout. If a source cannot be fetched, the next source is tried."""

    layout: str
    files: tuple[SourceFile, ...]


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
class ExpectedText:
    """Hold the published counts of a text, None if unknown. The classes include `<eos>` and `<unk>`."""

    num_classes: int
    train_tokens: int | None
    valid_tokens: int | None
    test_tokens: int | None


@dataclass(frozen=True, kw_only=True)
class ExpectedTable:
    """Hold the published counts of a table, None if unknown; features are what remains without target and ids."""

    num_features: int
    num_rows: int  # training and test rows together
    num_train: int | None
    num_test: int | None


@dataclass(frozen=True, kw_only=True)
class ExpectedPairs:
    """Hold the published counts of a set of sentence pairs."""

    num_classes: int
    num_train: int
    num_test: int


@dataclass(frozen=True, kw_only=True)
class ExpectedSequences:
    """Hold the published counts of a log after its filters, None if unknown."""

    num_users: int | None
    num_items: int | None
    num_events: int | None


@dataclass(frozen=True, kw_only=True)
class Derived:
    """Describe a set that is computed from another prepared set by the rule in `runner/data/uniform.py`."""

    base: str
    num_classes: int
    seed: int


@dataclass(frozen=True, kw_only=True)
class FirstLines:
    """Describe a text made of the first lines of each split of another text, with a vocabulary of its own."""

    base: str
    train_lines: int
    valid_lines: int
    test_lines: int


@dataclass(frozen=True, kw_only=True)
class Size:
    """Hold the expected counts in terms that all families share."""

    unit: str  # what `train` and `test` count
    train: int | None
    test: int | None
    features: int | None
    classes: int | None


@dataclass(frozen=True, kw_only=True)
class Card(ABC):
    """Hold the fields that the cards of all families have."""

    family: ClassVar[str]

    name: str
    title: str
    description: str
    licence: str
    redistribute: bool
    citation: str  # BibTeX
    counts_source: str  # who publishes the expected counts, and which of them are uncertain
    sources: tuple[Source, ...] = ()
    embedded: tuple[SourceFile, ...] = ()  # files that lie beside the card and have no addresses
    by_hand: str = ""  # how to fetch the set with a browser

    @property
    @abstractmethod
    def all_layouts(self) -> tuple[Layout, ...]:
        """Return the layouts in which users may have the files."""

    @property
    @abstractmethod
    def base(self) -> str | None:
        """Return the name of the set that this one is derived from, or None."""

    @property
    @abstractmethod
    def size(self) -> Size:
        """Return the size of the set that the card states."""


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
    """Describe a text for language models; `runner/data/words.py` states how words become ids."""

    family: ClassVar[str] = "text"

    expected: ExpectedText
    end_of_line: bool = True  # lines are sentences, and each line end is a token
    canonical: tuple[Canonical, ...] = ()
    most_types: int | None = None  # largest number of classes; None: every type of the training split is a class
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


@dataclass(frozen=True, kw_only=True)
class RegressionCard(Card):
    """Describe a table of numbers, one column of which is to be predicted from the others."""

    family: ClassVar[str] = "regression"

    expected: ExpectedTable
    layouts: tuple[TableLayout, ...]

    @property
    def all_layouts(self) -> tuple[Layout, ...]:
        return self.layouts

    @property
    def base(self) -> str | None:
        return None

    @property
    def size(self) -> Size:
        counts = self.expected
        return Size(
            unit="rows",
            train=counts.num_train,
            test=counts.num_test,
            features=counts.num_features,
            classes=None,
        )


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
    def all_layouts(self) -> tuple[Layout, ...]:
        return self.layouts

    @property
    def base(self) -> str | None:
        return None

    @property
    def size(self) -> Size:
        counts = self.expected
        return Size(
            unit="pairs", train=counts.num_train, test=counts.num_test, features=None, classes=counts.num_classes
        )

    def problem_of_labels(self) -> str | None:
        """Return what is wrong with labels and names, or None if nothing is."""
        if not len(self.labels) == len(set(self.labels)) == self.expected.num_classes:
            return f"labels: must be {self.expected.num_classes} different labels"
        if self.class_names and len(self.class_names) != len(self.labels):
            return "class_names: must be as many as labels"
        return None


@dataclass(frozen=True, kw_only=True)
class SequencesCard(Card):
    """Describe a log of events, each of which is a user, an item and a time.

    `min_rating`, `min_user`, `min_item`, `repeats`: which events stay; `runner/data/events.py` states the rules.
    """

    family: ClassVar[str] = "sequences"

    expected: ExpectedSequences
    min_rating: float | None = None
    min_user: int = 1
    min_item: int = 1
    repeats: str = "all"
    layouts: tuple[SequencesLayout, ...]

    @property
    def filters(self) -> Filters:
        """Return which events stay."""
        return Filters(min_rating=self.min_rating, min_user=self.min_user, min_item=self.min_item, repeats=self.repeats)

    @property
    def all_layouts(self) -> tuple[Layout, ...]:
        return self.layouts

    @property
    def base(self) -> str | None:
        return None

    @property
    def size(self) -> Size:
        """Return the size, whose `train` counts all events: a run chooses how they are split."""
        counts = self.expected
        return Size(unit="events", train=counts.num_events, test=None, features=None, classes=counts.num_items)

    def problem(self) -> str | None:
        """Return what is wrong with the filters, or None if nothing is."""
        if self.min_rating is not None and any(layout.rating is None for layout in self.layouts):
            return "min_rating needs the column rating in every layout"
        return self.filters.problem()


CARDS: dict[str, type[Card]] = {
    kind.family: kind for kind in (RowsCard, TextCard, RegressionCard, PairsCard, SequencesCard)
}


def card_names() -> list[str]:
    """Return the names of all cards, sorted."""
    return sorted(path.parent.name for path in places.CARDS_ROOT.glob("*/card.yaml"))


@functools.cache
def load_card(name: str) -> Card:
    """Return the card of a name. Raises ConfigError for an unknown name, DataError for an invalid card."""
    if name not in card_names():
        raise ConfigError(f"dataset.name: no card {name!r}; choose one of {', '.join(card_names())}")
    return read_card(places.CARDS_ROOT / name / "card.yaml")


def dataset_title(name: str) -> str:
    """Return the printed name of a data set: the title of its card, or the name itself if it has none."""
    return load_card(name).title if name in card_names() else name


def load_rows_card(name: str) -> RowsCard:
    """Return the card of a set of sparse rows. Raises ConfigError if the set is of another family."""
    card = load_card(name)
    if not isinstance(card, RowsCard):
        raise ConfigError(f"{name} holds {card.family}, not sparse rows")
    return card


def read_card(path: Path) -> Card:
    """Read and check a card. Raises DataError, naming file and key."""
    import yaml

    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # also bytes that are no UTF-8, and impossible dates
        raise DataError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    family = raw.pop("family", "rows") if isinstance(raw, dict) else "rows"  # cards of rows may leave it out
    if not isinstance(family, str) or family not in CARDS:
        raise DataError(f"{path}: family: {family!r} is not one of {', '.join(CARDS)}")
    card: Card = _convert(CARDS[family], raw, str(path))
    _check(card, path)
    return card


def _check(card: Card, path: Path) -> None:
    """Raise DataError if parts of the card contradict each other."""
    if card.name != path.parent.name:
        raise DataError(f"{path}: name is {card.name!r}, but must be the folder's name {path.parent.name!r}")
    known = [layout.name for layout in card.all_layouts]
    for layout in card.all_layouts:
        if (problem := layout.problem()) is not None:
            raise DataError(f"{path}: layout {layout.name}: {problem}")
    for source in card.sources:
        if source.layout not in known:
            raise DataError(f"{path}: source layout {source.layout!r} is not one of {', '.join(known)}")
    if bool(card.all_layouts) == (card.base is not None):
        raise DataError(f"{path}: give either layouts or derived")
    if isinstance(card, PairsCard) and (problem := card.problem_of_labels()) is not None:
        raise DataError(f"{path}: {problem}")
    if isinstance(card, SequencesCard) and (problem := card.problem()) is not None:
        raise DataError(f"{path}: {problem}")


def differences(
    name: str,
    expected: Expected | ExpectedText | ExpectedTable | ExpectedPairs | ExpectedSequences,
    found: dict[str, int],
) -> list[str]:
    """Return (and print) a note for every count that differs from the published one."""
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
    """Convert `raw` YAML to the type `kind`; `where` is the path of keys for messages."""
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
        if raw is None and type(None) in arguments:
            return None
        options = [option for option in arguments if option is not type(None)]
        if len(options) > 1 and type(raw) not in options:
            raise DataError(f"{where}: must be {' or '.join(option.__name__ for option in options)}, found {raw!r}")
        return _convert(next((option for option in options if type(raw) is option), options[0]), raw, where)
    if kind is float and type(raw) is int:
        return float(raw)
    if type(raw) is not kind:
        raise DataError(f"{where}: must be {kind.__name__}, found {raw!r}")
    return raw

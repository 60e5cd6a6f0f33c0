"""Dataset cards: what a published set is, where it comes from, and how its files are laid out.

A card is `datasets/<name>/card.yaml`; each mapping in it is one of the dataclasses below, and a misspelt key,
a missing key or a wrong type is a one-line DataError.
"""

import dataclasses
import functools
import types
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
class Layout:
    """File names inside a folder or archive. `data` with split files, or `train` and `test`."""

    name: str  # recorded as the variant of what was prepared
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


@dataclass(frozen=True, kw_only=True)
class Expected:
    """Published shape. Averages may be missing where nobody publishes them."""

    num_features: int
    num_classes: int
    num_train: int
    num_test: int
    labels_per_row: float
    features_per_row: float


@dataclass(frozen=True, kw_only=True)
class Derived:
    """A set computed from another prepared set; `runner/data/uniform.py` states the rule."""

    base: str
    num_classes: int
    seed: int


@dataclass(frozen=True, kw_only=True)
class Card:
    name: str
    title: str
    description: str
    licence: str
    redistribute: bool
    citation: str  # BibTeX
    propensity_a: float
    propensity_b: float
    expected: Expected
    counts_source: str  # who publishes the expected counts, and which of them are uncertain
    layouts: tuple[Layout, ...] = ()
    sources: tuple[Source, ...] = ()
    embedded: tuple[SourceFile, ...] = ()  # files beside the card; their addresses are empty
    derived: Derived | None = None
    by_hand: str = ""  # how to fetch the set with a browser


def card_names() -> list[str]:
    return sorted(path.parent.name for path in places.CARDS_ROOT.glob("*/card.yaml"))


@functools.cache
def load_card(name: str) -> Card:
    """Raises ConfigError for an unknown name, DataError for a card that is not valid."""
    if name not in card_names():
        raise ConfigError(f"dataset.name: no card {name!r}; choose one of {', '.join(card_names())}")
    return read_card(places.CARDS_ROOT / name / "card.yaml")


def read_card(path: Path) -> Card:
    import yaml

    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise DataError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    card: Card = _convert(Card, raw, str(path))
    _check(card, path)
    return card


def _check(card: Card, path: Path) -> None:
    if card.name != path.parent.name:
        raise DataError(f"{path}: name: is {card.name!r}, must be the folder's name {path.parent.name!r}")
    known = [layout.name for layout in card.layouts]
    for layout in card.layouts:
        where = f"{path}: layout {layout.name}"
        if layout.format not in LAYOUTS:
            raise DataError(f"{where}: format: {layout.format!r} is not one of {', '.join(LAYOUTS)}")
        if {layout.feature_start, layout.label_start} - {0, 1}:
            raise DataError(f"{where}: feature_start and label_start must be 0 or 1")
        pair = layout.train is not None and layout.test is not None
        split = None not in (layout.data, layout.train_split, layout.test_split)
        if pair == split:
            raise DataError(f"{where}: give either train and test, or data, train_split and test_split")
    for source in card.sources:
        if source.layout not in known:
            raise DataError(f"{path}: source layout {source.layout!r} is not one of {', '.join(known)}")
    if bool(card.layouts) == (card.derived is not None):
        raise DataError(f"{path}: give either layouts or derived")


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

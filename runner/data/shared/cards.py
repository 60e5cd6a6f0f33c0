"""Find and read dataset cards.

A misspelt key, a missing key or a wrong type is a DataError of one line.
"""

import dataclasses
import functools
import sys
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner.data.shared import places
from runner.data.shared.card import Card, Layout
from runner.data.shared.family import FAMILIES, family_of
from runner.data.shared.files import hash_file
from runner.data.shared.manifests import Origin
from runner.errors import ConfigError, DataError


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


def read_card(path: Path) -> Card:
    """Read and check a card. Raises DataError, naming file and key."""
    from runner.options.yaml_files import parsed

    try:
        raw = parsed(path.read_text(encoding="utf-8"))
    except ValueError as error:  # also bytes that are no UTF-8
        raise DataError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    family = raw.pop("family", "rows") if isinstance(raw, dict) else "rows"  # cards of rows may leave it out
    if not isinstance(family, str) or family not in FAMILIES:
        raise DataError(f"{path}: family: {family!r} is not one of {', '.join(FAMILIES)}")
    card: Card = _convert(family_of(family).card, raw, str(path))
    _check(card, path)
    return card


def _check(card: Card, path: Path) -> None:
    """Raise DataError if parts of the card contradict each other."""
    if card.name != path.parent.name:
        raise DataError(f"{path}: name is {card.name!r}, but must be the folder's name {path.parent.name!r}")
    known = [layout.name for layout in card.layouts]
    for layout in card.layouts:
        if (problem := layout.problem()) is not None:
            raise DataError(f"{path}: layout {layout.name}: {problem}")
    for source in card.sources:
        if source.layout not in known:
            raise DataError(f"{path}: source layout {source.layout!r} is not one of {', '.join(known)}")
    if bool(card.layouts) == (card.base is not None):
        raise DataError(f"{path}: give either layouts or derived")
    if (problem := card.problem()) is not None:
        raise DataError(f"{path}: {problem}")


def origin_of(card: Card, layout: Layout, files: Mapping[str, tuple[Path, ...]]) -> Origin:
    """Say what a card's data are called and which files, in one of its layouts, they are made of."""
    sources = {path.name: hash_file(path) for paths in files.values() for path in paths}
    return Origin(name=card.name, variant=layout.name, sources=sources)


def differences(card: Card, found: Mapping[str, int]) -> list[str]:
    """Return (and print) a note for every count that differs from the published one."""
    published = dataclasses.asdict(card.expected)
    notes = [
        f"{key} is {value}, the card expects {published[key]}"
        for key, value in found.items()
        if published[key] is not None and value != published[key]
    ]
    for note in notes:
        print(f"{card.name}: {note}", file=sys.stderr)
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

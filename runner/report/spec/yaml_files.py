"""Read the files of conf/table into frozen dataclasses; errors name the file and the key."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml

from runner.errors import ConfigError, require
from runner.home import CONF, FILES
from runner.options.conversion import convert, did_you_mean

TABLES = CONF / "table"

T = TypeVar("T")
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml reads eight times as fast; some builds lack it


def read(file: Path) -> dict[str, Any]:
    """Return the mapping in a YAML file; raise ConfigError if it is not YAML or not a mapping."""
    try:
        raw = yaml.load(file.read_text(encoding="utf-8"), Loader=_LOADER)
    except yaml.YAMLError as error:
        raise ConfigError(f"{place(file)}: not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(raw, dict):
        raise ConfigError(f"{place(file)}: expected a mapping of keys")
    return raw


def place(file: Path) -> str:
    """Return the path as a user would write it: relative to the repository if the file lies in it."""
    return str(file.relative_to(FILES)) if file.is_relative_to(FILES) else str(file)


def build(kind: type[T], values: Mapping[str, Any], where: str) -> T:
    """Build a dataclass from values.

    ``where`` is used in messages: the file, ``: ``, and the keys above ``values``, such as ``profiles.small.``.
    """
    file, _, keys = where.partition(": ")
    try:
        return convert(kind, values, keys)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}" if keys in str(error) else f"{file}: {keys}{error}") from None


def build_all(kind: type[T], raw: Any, where: str) -> list[T]:
    """Build a dataclass from each mapping of a list; ``where`` is as in ``build``."""
    return [build(kind, item, f"{where}[{index}].") for index, item in enumerate(items(raw, where))]


def items(raw: Any, where: str) -> list[Mapping[str, Any]]:
    """Return ``raw`` if it is a list of mappings; otherwise raise ConfigError."""
    if not isinstance(raw, list) or not all(isinstance(item, Mapping) for item in raw):
        raise ConfigError(f"{where}: expected a list of mappings, got {raw!r}")
    return raw


def mapping(raw: Any, where: str) -> Mapping[str, Any]:
    """Return ``raw`` if it is a mapping; otherwise raise ConfigError."""
    if not isinstance(raw, Mapping):
        raise ConfigError(f"{where}: expected a mapping of keys, got {raw!r}")
    return raw


def require_unique(named: Iterable[Any], key: str) -> None:
    """Raise ConfigError if two of the items have the same ``name``."""
    names = [item.name for item in named]
    repeated = {name for name in names if names.count(name) > 1}
    require(not repeated, f"{key}: {', '.join(sorted(repeated))} is given twice; remove one")


def require_known(key: str, name: str, names: Iterable[str]) -> None:
    """Raise ConfigError, which suggests a name, unless ``name`` is one of ``names``."""
    names = list(names)
    require(name in names, f"{key}: unknown '{name}'{did_you_mean(name, names)}")

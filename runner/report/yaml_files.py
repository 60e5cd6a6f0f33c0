"""Reading the files of conf/table into frozen dataclasses, with errors that name the file and the key."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml

from runner.config import CONF
from runner.conversion import convert, did_you_mean
from runner.errors import ConfigError, require

TABLES = CONF / "table"

T = TypeVar("T")


def read(file: Path) -> dict[str, Any]:
    """The mapping that a YAML file holds."""
    try:
        raw = yaml.safe_load(file.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ConfigError(f"{place(file)}: not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(raw, dict):
        raise ConfigError(f"{place(file)}: expected a mapping of keys")
    return raw


def place(file: Path) -> str:
    """The file as a user would name it: relative to the repository where it lies in it."""
    root = CONF.parent
    return str(file.relative_to(root)) if file.is_relative_to(root) else str(file)


def build(kind: type[T], values: Mapping[str, Any], where: str) -> T:
    """``where``: the file, ``: ``, and the keys above ``values`` (``profiles.small.``), for messages."""
    file, _, keys = where.partition(": ")
    try:
        return convert(kind, values, keys)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}" if keys in str(error) else f"{file}: {keys}{error}") from None


def build_all(kind: type[T], raw: Any, where: str) -> list[T]:
    return [build(kind, item, f"{where}[{index}].") for index, item in enumerate(items(raw, where))]


def items(raw: Any, where: str) -> list[Mapping[str, Any]]:
    if not isinstance(raw, list) or not all(isinstance(item, Mapping) for item in raw):
        raise ConfigError(f"{where}: expected a list of mappings, got {raw!r}")
    return raw


def mapping(raw: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(raw, Mapping):
        raise ConfigError(f"{where}: expected a mapping of keys, got {raw!r}")
    return raw


def require_unique(named: Iterable[Any], key: str) -> None:
    names = [item.name for item in named]
    repeated = {name for name in names if names.count(name) > 1}
    require(not repeated, f"{key}: {', '.join(sorted(repeated))} stands there twice")


def require_known(key: str, name: str, names: Iterable[str]) -> None:
    names = list(names)
    require(name in names, f"{key}: unknown '{name}'{did_you_mean(name, names)}")

"""Make frozen dataclasses of what files of conf/table say; errors name the file and the key."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from runner.errors import ConfigError, require
from runner.home import CONF
from runner.options.conversion import convert, did_you_mean

TABLES = CONF / "table"

T = TypeVar("T")


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

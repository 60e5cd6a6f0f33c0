"""Read YAML that people write and that runs leave behind; whatever a file holds, errors are one line."""

from pathlib import Path
from typing import Any

import yaml

from runner.errors import ConfigError
from runner.home import FILES

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml reads eight times as fast; some builds lack it
_DEEPEST = 100  # libyaml itself ends the process at some ten thousands
_MOST_VALUES = 100_000


class NotYaml(ValueError):
    """A text is not YAML, or such YAML as no file of this project is; the message is one line."""


def parsed(text: str, *, aliases: bool = True) -> Any:
    """Return what YAML says. Raises NotYaml, also for aliases unless they are allowed, and if they come to too much.

    A few lines of aliases of aliases can stand for more values than any memory holds.
    """
    try:
        _check_size(text, aliases=aliases)
        return yaml.load(text, Loader=_LOADER)
    except NotYaml:
        raise
    except (
        yaml.YAMLError,
        ValueError,
        LookupError,
        ArithmeticError,
        TypeError,
        AttributeError,
        RecursionError,
    ) as error:
        # Others than YAML's own are those of impossible dates, integers of 5,000 digits, `!!int` without a number...
        raise NotYaml(" ".join(str(error).split()) or type(error).__name__) from None


def _check_size(text: str, *, aliases: bool) -> None:
    """Raise NotYaml if the values are nested too deeply, or too many when every alias is written out."""
    inner = [0]  # the values in each collection that is open, the innermost last
    anchors: list[str | None] = []
    values: dict[str, int] = {}  # by anchor, of those that are closed
    for event in yaml.parse(text, Loader=_LOADER):
        count = 0
        if isinstance(event, yaml.CollectionStartEvent):
            inner.append(0)
            anchors.append(event.anchor)
            if len(inner) > _DEEPEST:
                raise NotYaml(f"{_place(event)}: nested more than {_DEEPEST} deep")
        elif isinstance(event, yaml.CollectionEndEvent):
            count, anchor = 1 + inner.pop(), anchors.pop()
            if anchor is not None:
                values[anchor] = count
        elif isinstance(event, yaml.ScalarEvent):
            count = 1
            if event.anchor is not None:
                values[event.anchor] = 1
        elif isinstance(event, yaml.AliasEvent):
            place = f"{_place(event)}: the alias *{event.anchor}"
            if not aliases:
                raise NotYaml(f"{place}: aliases are not allowed here")
            if event.anchor not in values:
                raise NotYaml(f"{place} has no value before it, or holds itself")
            count = values[event.anchor]
        inner[-1] += count
        if inner[-1] > _MOST_VALUES:
            raise NotYaml(f"more than {_MOST_VALUES:,} values, aliases written out")


def _place(event: Any) -> str:
    return f"line {event.start_mark.line + 1}"


def read(file: Path) -> dict[str, Any]:
    """Return the mapping in a YAML file. Raises ConfigError if it is not UTF-8, not YAML or not a mapping."""
    try:
        raw = parsed(file.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise ConfigError(f"{place(file)}: not UTF-8; save it as UTF-8") from None
    except NotYaml as error:
        raise ConfigError(f"{place(file)}: not YAML: {error}") from None
    if not isinstance(raw, dict):
        raise ConfigError(f"{place(file)}: expected a mapping of keys")
    return raw


def place(file: Path) -> str:
    """Return the path as a user would write it: relative to the repository if the file lies in it."""
    return str(file.relative_to(FILES)) if file.is_relative_to(FILES) else str(file)

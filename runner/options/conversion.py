"""Convert a mapping, as YAML gives it, to a frozen dataclass.

Names and types are checked here, ranges by ``runner.options.fields``. Errors are single lines that list valid names.
"""

import dataclasses
import difflib
import math
import re
import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from runner.errors import ConfigError
from runner.options.fields import check

T = TypeVar("T")
_SHOWN = 80  # characters of a value in an error line


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """Return the end of an error line: ``; did you mean 'x'? valid: a, b, c``."""
    names = sorted(names)
    close = difflib.get_close_matches(str(word), names, n=1)
    hint = f"; did you mean '{close[0]}'?" if close else ";"
    return f"{hint} valid: {', '.join(names)}"


def shown(value: Any) -> str:
    """Return a value as an error line shows it: a long one is cut."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def number_in(text: str) -> int | float | None:
    """Return the number that a text is, if Hydra and Python write it alike, else None.

    An integer may have 18 digits at most: Python refuses to read some thousands of them.
    """
    if not re.fullmatch(r"-?(0|[1-9]\d{0,17})(\.\d+)?(e-?\d+)?", text, flags=re.ASCII):
        return None
    return float(text) if set(text) & set(".e") else int(text)


def as_path(text: str | Path, key: str) -> Path:
    """Return the absolute path that a setting names, in which ~ is a home folder. Raises ConfigError, with the key."""
    try:
        path = Path(text).expanduser().absolute()
    except RuntimeError:
        raise ConfigError(f"{key}: {text} begins with ~ and no known user; give a path without ~") from None
    if "\0" in str(path):
        raise ConfigError(f"{key}: {shown(str(text))} has a zero byte, which no path has; give another path")
    return path


def one_spelling(text: str | Path, key: str) -> Path:
    """Return the path that a setting names in its one spelling: absolute, without links, ``..`` and a last slash.

    A path that is part of a run's id is written so. Raises ConfigError, with the key.
    """
    try:
        return as_path(text, key).resolve()
    except (OSError, RuntimeError) as error:  # a link that leads to itself
        raise ConfigError(f"{key}: {text} cannot be followed ({error}); give another path") from None


def _fits(value: Any, annotation: Any) -> tuple[bool, Any]:
    """Return whether a YAML value has the annotated type, and the value converted to that type."""
    origin = typing.get_origin(annotation)
    if annotation is Any:
        return True, value
    if origin in (typing.Union, types.UnionType):
        for option in typing.get_args(annotation):
            fits, converted = _fits(value, option)
            if fits:
                return True, converted
        return False, value
    if origin is typing.Literal:
        return value in typing.get_args(annotation), value
    if origin is tuple:
        item = typing.get_args(annotation)[0]
        if not isinstance(value, list | tuple):
            return False, value
        parts = [_fits(entry, item) for entry in value]
        return all(fits for fits, _ in parts), tuple(entry for _, entry in parts)
    if origin in (list, dict):
        item = typing.get_args(annotation)[-1]
        entries = value.values() if isinstance(value, dict) else value
        return isinstance(value, origin) and all(_fits(entry, item)[0] for entry in entries), value
    if annotation is type(None):
        return value is None, value
    if annotation is float:
        try:
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            return is_number and not math.isinf(value), float(value)  # ranges are checked for NaN
        except (OverflowError, TypeError, ValueError):  # no number, or one beyond every float
            return False, value
    if annotation is int:
        return isinstance(value, int) and not isinstance(value, bool), value
    return isinstance(value, annotation), value


def _type_name(annotation: Any) -> str:
    """Return the name of a type for error messages."""
    if typing.get_origin(annotation) is typing.Literal:
        return "one of " + ", ".join(map(str, typing.get_args(annotation)))
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return " or ".join(_type_name(option) for option in typing.get_args(annotation))
    if annotation is type(None):
        return "null"
    return str(getattr(annotation, "__name__", annotation))


def convert(cls: type[T], values: Mapping[str, Any], path: str) -> T:
    """Build the frozen dataclass ``cls`` from a mapping; ``path`` (e.g. ``sampler.``) is put before keys in errors.

    Raises ConfigError (one line) for an unknown or missing key, a wrong type, or a value out of range.
    """
    fields = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    hints = typing.get_type_hints(cls)
    converted: dict[str, Any] = {}
    for key, value in values.items():
        if key not in fields:
            raise ConfigError(f"unknown key '{path}{key}'{did_you_mean(key, fields)}")
        if dataclasses.is_dataclass(hints[key]) and isinstance(value, Mapping):
            converted[key] = convert(typing.cast(type, hints[key]), value, f"{path}{key}.")
            continue
        fits, converted[key] = _fits(value, hints[key])
        if not fits and isinstance(value, float) and math.isinf(value):
            raise ConfigError(f"{path}{key}: expected a finite number, got {value}")
        if not fits:
            raise ConfigError(f"{path}{key}: expected {_type_name(hints[key])}, got {shown(value)}")
    for key, field in fields.items():
        if key not in converted and field.default is field.default_factory is dataclasses.MISSING:
            raise ConfigError(f"{path}{key} is required: set it on the command line, e.g. {path}{key}=VALUE")
    built = cls(**converted)
    check(built, path)  # a class from outside may lack the base that does so
    return built

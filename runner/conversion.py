"""Convert a mapping, as YAML gives it, to a frozen dataclass.

Names and types are checked here; the dataclass itself checks ranges. Errors are single lines that list valid names.
"""

import dataclasses
import difflib
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from runner.errors import ConfigError

T = TypeVar("T")


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """Return the end of an error line: ``; did you mean 'x'? valid: a, b, c``."""
    names = sorted(names)
    close = difflib.get_close_matches(str(word), names, n=1)
    hint = f"; did you mean '{close[0]}'?" if close else ";"
    return f"{hint} valid: {', '.join(names)}"


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
            return isinstance(value, int | float) and not isinstance(value, bool), float(value)
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
        if not fits:
            raise ConfigError(f"{path}{key}: expected {_type_name(hints[key])}, got {value!r}")
    for key, field in fields.items():
        if key not in converted and field.default is field.default_factory is dataclasses.MISSING:
            raise ConfigError(f"{path}{key} is required: set it on the command line, e.g. {path}{key}=VALUE")
    return cls(**converted)

"""Read the catalogue of methods, conf/method: one file a method, with its settings, its label and its look in figures.

Hydra composes these files for ``method=NAME``. PyYAML reads them here, so that command lines start fast.
"""

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.errors import ConfigError, require
from runner.home import CONF
from runner.options.conversion import convert, did_you_mean
from runner.options.yaml_files import place, read

Marker = str | tuple[int, ...]  # matplotlib's markers; (n, 1, a) is a star of n points, (n, 0, a) a polygon
NO_METHOD = "none"  # the file that chooses nothing
_REQUIRED = ("name", "label", "caveat", "colour", "marker")
_NOT_THERE = object()


@dataclass(frozen=True, kw_only=True)
class KnownMethod:
    """A method of the catalogue.

    ``label``: its name in tables and figures.
    ``caveat``: what to know before one chooses it, a few words.
    ``colour``: #RRGGBB. ``marker``, ``linestyle``: matplotlib's; a list as ``linestyle`` has the lengths of dashes and
    gaps, in widths of the line.
    ``choices``: the option of each group that it chooses; None: the group is left out.
    ``settings``: the keys that it sets, such as ``sampler.unique``.
    """

    name: str
    label: str
    caveat: str
    colour: str
    marker: Marker
    linestyle: str | tuple[float, ...] = "-"
    choices: dict[str, Any]
    settings: dict[str, Any]

    def __post_init__(self) -> None:
        require(
            re.fullmatch("#[0-9A-Fa-f]{6}", self.colour) is not None, f"colour: expected #RRGGBB, got {self.colour!r}"
        )

    @property
    def section(self) -> dict[str, Any]:
        """Return what the section ``method`` of a composed configuration holds, as YAML has it."""
        keys = ("name", "label", "caveat", "colour", "marker", "linestyle")
        values = {key: getattr(self, key) for key in keys}
        return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}

    @property
    def dashes(self) -> str | tuple[float, tuple[float, ...]]:
        """Return the line style as matplotlib takes it."""
        return self.linestyle if isinstance(self.linestyle, str) else (0, self.linestyle)

    def describes(self, config: Any) -> bool:
        """Return whether a run with these settings has all that the method chooses and sets.

        Numbers may differ, such as those of draws and hash tables: they are a method's dials.
        """
        names = {group: getattr(getattr(config, group), "name", None) for group in self.choices}
        return names == self.choices and all(
            value == stated or (_is_number(value) and _is_number(stated))
            for key, stated in self.settings.items()
            for value in [functools.reduce(lambda part, name: getattr(part, name, _NOT_THERE), key.split("."), config)]
        )


def method_names(folder: Path = CONF / "method") -> list[str]:
    """Return the names of all methods."""
    return sorted(path.stem for path in folder.glob("*.yaml") if path.stem != NO_METHOD)


@functools.cache
def known_methods() -> Mapping[str, KnownMethod]:
    """Return all methods by name."""
    return {name: known_method(name) for name in method_names()}


@functools.cache
def known_method(name: str, folder: Path = CONF / "method") -> KnownMethod:
    """Return a method. Raises ConfigError, which names the file, for an unknown method and for a mistake in a file."""
    names = method_names(folder)
    require(name in names, f"unknown option 'method={name}'{did_you_mean(name, names)}")
    section, choices, settings = _read(folder / f"{name}.yaml")
    where = place(folder / f"{name}.yaml")
    lacks = [key for key in _REQUIRED if key not in section]
    is_misspelt = any(key not in (*_REQUIRED, "linestyle") for key in section)
    require(is_misspelt or not lacks, f"{where}: its section method lacks {', '.join(lacks)}")
    try:
        return convert(KnownMethod, {**section, "choices": choices, "settings": settings}, "method.")
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def label_of(name: str) -> str:
    """Return the label of a method; names that the catalogue lacks stay as they are."""
    known = known_methods()
    return known[name].label if name in known else name


def sets_model(name: str) -> bool:
    """Return whether a method chooses the model; False for a name that the catalogue lacks."""
    return name in method_names() and "model" in known_method(name).choices


def _read(file: Path, *above: Path) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return the section ``method`` of a file, the options that it chooses and the keys that it sets.

    A file may build on another one, whose name is then in its list of defaults. ``above``: the files that build on
    this one.
    """
    raw = read(file)
    section: dict[str, Any] = {}
    choices: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    defaults = raw.pop("defaults", [])
    require(isinstance(defaults, list), f"{place(file)}: defaults: expected a list")
    for entry in defaults:
        if isinstance(entry, Mapping):
            choices |= {key.removeprefix("override /"): option for key, option in entry.items()}
        elif entry != "_self_":
            base = file.with_name(f"{entry}.yaml")
            require(base.is_file(), f"{place(file)}: defaults: there is no file {base.name}")
            require(base not in (file, *above), f"{place(file)}: defaults: {base.name} builds on itself")
            section, choices, settings = _read(base, file, *above)
    stated = raw.pop("method", {})
    require(isinstance(stated, dict), f"{place(file)}: method: expected a mapping of keys")
    section |= stated
    return section, choices, settings | dict(_flat(raw))


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)

"""This module reads the catalogue of methods, conf/table/methods.yaml: labels, looks in figures, and overrides.

Every grid and every figure takes methods from the catalogue, so a method has one label, colour and marker everywhere.
"""

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runner.errors import ConfigError, require
from runner.report.yaml_files import TABLES, build, mapping, place, read, require_known

CATALOGUE = "methods"  # the file's name without .yaml
Marker = str | tuple[int, ...]  # matplotlib's markers; (n, 1, a) is a star of n points, (n, 0, a) a polygon


@dataclass(frozen=True, kw_only=True)
class KnownMethod:
    """A method of the catalogue. ``colour`` is #RRGGBB; ``marker`` and ``linestyle`` are matplotlib's.

    A list as ``linestyle`` has the lengths of dashes and gaps, in widths of the line.
    ``caveat``: what to know before one chooses it, a few words.
    """

    label: str
    overrides: tuple[str, ...]
    colour: str
    marker: Marker
    linestyle: str | tuple[float, ...] = "-"
    caveat: str = ""

    def __post_init__(self) -> None:
        require(
            re.fullmatch("#[0-9A-Fa-f]{6}", self.colour) is not None, f"colour: expected #RRGGBB, got {self.colour!r}"
        )

    @property
    def dashes(self) -> str | tuple[float, tuple[float, ...]]:
        """The line style as matplotlib takes it."""
        return self.linestyle if isinstance(self.linestyle, str) else (0, self.linestyle)


@dataclass(frozen=True, kw_only=True)
class Method:
    """A row of a grid's tables.

    ``name`` is unique in the grid. ``published`` is its name in published CSVs if that differs from ``name``. ``look``
    is the catalogue's method whose colour and marker it has in figures, if that differs from ``name``.
    """

    name: str
    label: str
    overrides: tuple[str, ...]
    published: str = ""
    look: str = ""

    @property
    def published_name(self) -> str:
        return self.published or self.name

    @property
    def look_name(self) -> str:
        return self.look or self.name


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """A row of a grid that is a method of the catalogue.

    ``name`` and ``label`` are the catalogue's unless the grid says otherwise. The catalogue's overrides come first,
    then those of the named ``fragments``, then ``overrides``.
    """

    method: str
    name: str = ""
    label: str = ""
    published: str = ""
    fragments: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Catalogue:
    """The catalogue holds, by name, the methods and the ``fragments``: overrides that grids may add to methods."""

    methods: Mapping[str, KnownMethod] = field(default_factory=dict)
    fragments: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def row(self, chosen: Chosen) -> Method:
        """Return the row that a grid asks for; raise ConfigError if the catalogue lacks the method or a fragment."""
        require_known("method", chosen.method, self.methods)
        known = self.methods[chosen.method]
        overrides = [*known.overrides]
        for name in chosen.fragments:
            require_known("fragments", name, self.fragments)
            overrides += self.fragments[name]
        return Method(
            name=chosen.name or chosen.method,
            label=chosen.label or known.label,
            overrides=(*overrides, *chosen.overrides),
            published=chosen.published,
            look=chosen.method,
        )


@dataclass(frozen=True, kw_only=True)
class _Fragment:
    overrides: tuple[str, ...]


def load_catalogue(folder: Path = TABLES) -> Catalogue:
    """Read methods.yaml of a folder of tables; without it the catalogue is empty, and grids define all their rows."""
    file = folder / f"{CATALOGUE}.yaml"
    if not file.exists():
        return Catalogue()
    where = f"{place(file)}: "
    raw = read(file)
    for key in raw:
        require_known(f"{where}keys", key, ("methods", "fragments"))
    methods = mapping(raw.get("methods", {}), f"{where}methods")
    fragments = mapping(raw.get("fragments", {}), f"{where}fragments")
    return Catalogue(
        methods={name: build(KnownMethod, item, f"{where}methods.{name}.") for name, item in methods.items()},
        fragments={
            name: build(_Fragment, {"overrides": item}, f"{where}fragments.{name}.").overrides
            for name, item in fragments.items()
        },
    )


def build_methods(raw: Any, catalogue: Catalogue, extended: Mapping[str, Method], where: str) -> list[Method]:
    """Build the rows of a grid.

    An item is one of three things: a name alone is a row of the extended grid, ``{method: NAME, ...}`` is a method of
    the catalogue, and ``{name, label, overrides}`` is a row of the grid's own.
    """
    if not isinstance(raw, list):
        raise ConfigError(f"{where}: expected a list of methods, got {raw!r}")
    return [_row(item, catalogue, extended, f"{where}[{index}]") for index, item in enumerate(raw)]


def _row(item: Any, catalogue: Catalogue, extended: Mapping[str, Method], where: str) -> Method:
    if isinstance(item, str):
        require(
            bool(extended),
            f"{where}: '{item}' alone is a row of the grid that `extends` names: write {{method: {item}}}",
        )
        require_known(where, item, extended)
        return extended[item]
    if "method" not in mapping(item, where):
        return build(Method, item, f"{where}.")
    chosen = build(Chosen, item, f"{where}.")
    try:
        return catalogue.row(chosen)
    except ConfigError as error:
        raise ConfigError(f"{where}.{error}") from None


@functools.cache
def known_methods() -> Mapping[str, KnownMethod]:
    """Return the methods of conf/table/methods.yaml by name."""
    return load_catalogue().methods


def label_of(name: str) -> str:
    """Return the printed name of a method of the catalogue; other names stay as they are."""
    known = known_methods()
    return known[name].label if name in known else name

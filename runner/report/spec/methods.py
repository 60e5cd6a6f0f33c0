"""Make the rows of a grid, most of which are methods of the catalogue (``runner.methods.catalogue``)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runner.errors import ConfigError, require
from runner.methods.catalogue import known_method, method_names
from runner.report.spec.yaml_files import build, mapping, require_known

_PER_ROW = ("sampler.shared=false", "sampler.unique=false")


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

    ``name`` and ``label`` are the catalogue's unless the grid says otherwise. ``per_row``: each row of a batch has its
    own draws, with replacement. ``overrides`` come after what the catalogue and ``per_row`` set.
    """

    method: str
    name: str = ""
    label: str = ""
    published: str = ""
    per_row: bool = False
    overrides: tuple[str, ...] = ()

    def row(self) -> Method:
        """Return the row. Raises ConfigError if the catalogue lacks the method."""
        require_known("method", self.method, method_names())
        known = known_method(self.method)
        words = [f"method={known.name}"]
        if "model" in known.choices:
            words.append(f"model={known.choices['model']}")  # it takes the place of the data set's
        if self.per_row:
            words += _PER_ROW
        return Method(
            name=self.name or known.name,
            label=self.label or known.label,
            overrides=(*words, *self.overrides),
            published=self.published,
            look=known.name,
        )


def build_methods(raw: Any, extended: Mapping[str, Method], where: str) -> list[Method]:
    """Build the rows of a grid.

    An item is one of three things: a name alone is a row of the extended grid, ``{method: NAME, ...}`` is a method of
    the catalogue, and ``{name, label, overrides}`` is a row of the grid's own.
    """
    if not isinstance(raw, list):
        raise ConfigError(f"{where}: expected a list of methods, got {raw!r}")
    return [_row(item, extended, f"{where}[{index}]") for index, item in enumerate(raw)]


def _row(item: Any, extended: Mapping[str, Method], where: str) -> Method:
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
        return chosen.row()
    except ConfigError as error:
        raise ConfigError(f"{where}.{error}") from None

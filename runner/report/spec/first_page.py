"""Read ``conf/first_page.yaml``: the rule, the tables of who is first, and the figure of the first page."""

from dataclasses import dataclass
from pathlib import Path

from runner.errors import require
from runner.home import CONF
from runner.options.yaml_files import read
from runner.report.spec.yaml_files import build, build_all, items

FILE = CONF / "first_page.yaml"


@dataclass(frozen=True, kw_only=True)
class FigureOfFamily:
    """A figure of curves that may fill a panel, by the data set named or else by its first."""

    name: str
    dataset: str = ""


@dataclass(frozen=True, kw_only=True)
class Family:
    """A panel: its metric, whose numbers ``times`` multiplies, and the methods of its lines."""

    family: str
    label: str
    times: float
    higher_is_better: bool
    methods: tuple[str, ...]
    figures: tuple[FigureOfFamily, ...]


@dataclass(frozen=True, kw_only=True)
class FirstOf:
    """A data set of the tables that say who is first at which level.

    They are taken from a committed table of levels of a profile. ``methods``: those that the page of results shows.
    """

    label: str
    classes: int
    profile: str
    table: str
    dataset: str
    methods: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class FirstPage:
    """The rule, a sentence for each case; ``levels`` says what its numbers are shares of.

    ``sets`` are the rows of the tables of who is first, ``families`` the panels of the figure.
    """

    levels: str
    rule: tuple[str, ...]
    families: tuple[Family, ...]
    sets: tuple[FirstOf, ...] = ()

    def __post_init__(self) -> None:
        require(bool(self.rule), "rule: needs a sentence")


def load_first_page(file: Path = FILE) -> FirstPage:
    """Read the file; ConfigError names it and the key of a mistake."""
    raw = dict(read(file))
    where = f"conf/{file.name}: "
    families = []
    for place, values in enumerate(items(raw.pop("figure", []), f"{where}figure")):
        figures = build_all(FigureOfFamily, values.get("figures"), f"{where}figure[{place}].figures")
        families.append(build(Family, {**values, "figures": tuple(figures)}, f"{where}figure[{place}]."))
    sets = build_all(FirstOf, raw.pop("sets", []), f"{where}sets")
    return build(FirstPage, {**raw, "families": tuple(families), "sets": tuple(sets)}, where)

"""What ``conf/table`` says: the tables and figures, each over a grid of runs or a command of the bench."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from runner.config import CONF
from runner.conversion import did_you_mean
from runner.errors import ConfigError, require
from runner.report.grids import Grid, grid_names, load_grid
from runner.report.methods import CATALOGUE
from runner.report.yaml_files import TABLES, build, build_all, place, read, require_unique

BENCH = "bench"  # folder in it, of tables that no runs make
PUBLISHED = CONF.parent / "results" / "published"
_REPOSITORY = CONF.parent


@dataclass(frozen=True, kw_only=True)
class Published:
    """Where the printed numbers are: a file of results/published and the table's name in it."""

    csv: str
    table: str

    def __post_init__(self) -> None:
        files = [path.name for path in PUBLISHED.glob("*.csv")]
        require(
            self.csv in files,
            f"published.csv: no file '{self.csv}' in results/published{did_you_mean(self.csv, files)}",
        )


@dataclass(frozen=True, kw_only=True)
class ColumnSpec:
    """A column of numbers. ``name`` is its name in CSV files, the published ones included.

    ``metric`` is what the runs measured, ``<split>/<key of a measure>`` such as ``test/p@1``; without it, ``name`` is a
    column of ``runner.report.columns``. ``show``: the metric itself, its natural logarithm, or by how many percent it
    lies above the baseline's.
    """

    name: str
    metric: str = ""
    show: Literal["value", "log", "percent_above_baseline"] = "value"

    def __post_init__(self) -> None:
        require(bool(self.metric) or self.show == "value", "show: goes with metric")


@dataclass(frozen=True, kw_only=True)
class TableSpec:
    """One table or figure, rendered from the grid's run folders.

    ``columns``: of kind numbers; ``with_costs`` adds a second table of epochs, seconds, candidates and memory.
    ``against``: of kind curves, what its second axis counts.
    ``diagnose``: of kind diagnosis, what ``python -m runner.diagnose RUN_FOLDER`` is given beside the folder.
    """

    name: str
    title: str
    kind: Literal[
        "numbers",
        "learning_rates",
        "distribution",
        "curves",
        "effect",
        "frequency",
        "frontier",
        "diagnosis",
    ]
    grid: Grid
    published: Published | None = None
    columns: tuple[ColumnSpec, ...] = ()
    with_costs: bool = False
    against: Literal["step", "epoch"] = "epoch"
    notes: tuple[str, ...] = ()
    diagnose: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        sweep = self.grid.sweep
        if self.kind == "learning_rates":
            alone = len(sweep) == 1 and sweep[0].key == "optimizer.lr" and not sweep[0].methods
            require(
                alone, "kind: learning_rates needs a grid that sweeps optimizer.lr, for all methods, and nothing else"
            )
        elif self.kind == "frontier":
            require(bool(sweep), "kind: frontier needs a grid with a sweep")
        elif self.kind == "effect":
            require(len({swept.key for swept in sweep}) == 1, "kind: effect needs a grid that sweeps one key")
        elif self.kind != "curves":
            require(not sweep, f"kind: {self.kind} shows one run of a method and seed: name a grid without a sweep")
        require(bool(self.columns) == (self.kind == "numbers"), "columns: go with kind: numbers, and only with it")
        require(self.kind == "numbers" or not self.with_costs, "with_costs: goes with kind: numbers")
        require_unique(self.columns, "columns")
        require(
            bool(self.diagnose) == (self.kind == "diagnosis"), "diagnose: goes with kind: diagnosis, and only with it"
        )

    @property
    def is_figure(self) -> bool:
        return self.kind in ("distribution", "curves", "effect", "frequency", "frontier")


@dataclass(frozen=True, kw_only=True)
class BenchSpec:
    """A table that ``scripts/bench.py ARGUMENTS`` measures; it trains nothing and has no profiles."""

    name: str
    title: str
    arguments: tuple[str, ...]

    def report(self, results_dir: Path) -> Path:
        """Where its numbers are written; Markdown beside it."""
        return results_dir / "bench" / f"{self.name}.json"

    def command(self, results_dir: Path) -> list[str]:
        """To be run in the repository; paths are relative to that, so that reports do not tell the machine's."""
        report = self.report(results_dir)
        shown = report.relative_to(_REPOSITORY) if report.is_relative_to(_REPOSITORY) else report
        return [sys.executable, "scripts/bench.py", *self.arguments, "--json", str(shown)]


def table_names(folder: Path = TABLES) -> list[str]:
    return sorted(path.stem for path in folder.glob("*.yaml") if path.stem != CATALOGUE)


def bench_names(folder: Path = TABLES) -> list[str]:
    return sorted(path.stem for path in (folder / BENCH).glob("*.yaml"))


def load_bench(name: str, folder: Path = TABLES) -> BenchSpec:
    """Read conf/table/bench/NAME.yaml."""
    file = folder / BENCH / f"{name}.yaml"
    return build(BenchSpec, {**read(file), "name": name}, f"{place(file)}: ")


def load_table(name: str, folder: Path = TABLES) -> TableSpec:
    """Read conf/table/NAME.yaml and the grid it names."""
    if name in bench_names(folder):
        raise ConfigError(f"{name} comes from no runs: make reproduce TABLE={name} measures it")
    if name not in table_names(folder):
        names = [*table_names(folder), *bench_names(folder)]
        raise ConfigError(f"unknown table '{name}'{did_you_mean(name, names)}")
    file = folder / f"{name}.yaml"
    raw = read(file)
    grid = str(raw.get("grid"))
    grids = grid_names(folder)
    if grid not in grids:
        raise ConfigError(f"{place(file)}: grid: no '{grid}' in {folder.name}/grid{did_you_mean(grid, grids)}")
    values = {**raw, "name": name, "grid": load_grid(grid, folder)}
    if isinstance(raw.get("published"), Mapping):
        values["published"] = build(Published, raw["published"], f"{place(file)}: published.")
    values["columns"] = build_all(ColumnSpec, raw.get("columns", []), f"{place(file)}: columns")
    return build(TableSpec, values, f"{place(file)}: ")

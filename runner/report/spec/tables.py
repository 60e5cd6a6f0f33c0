"""Read ``conf/table``: tables and figures, each made from a grid of runs or by a command of the bench."""

import functools
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from runner.errors import ConfigError, require
from runner.home import FILES, REPOSITORY
from runner.options.conversion import did_you_mean
from runner.options.yaml_files import place, read
from runner.report.spec.grids import PROFILES, Grid, grid_names, load_grid
from runner.report.spec.request import Request, read_request
from runner.report.spec.yaml_files import TABLES, build, build_all, require_unique

Axis = Literal["seconds", "step", "epoch"]
BENCH = "bench"  # the folder in conf/table for tables that are measured, not made from runs
SMALL = PROFILES[0]  # the profile whose plain plan measures these tables too
PUBLISHED = FILES / "results" / "published"


@dataclass(frozen=True, kw_only=True)
class Published:
    """The place of published numbers: a file of results/published and the table's name in it."""

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

    ``metric`` is a metric of the runs, ``<split>/<key of a measure>`` such as ``test/p@1``; without it, ``name`` must
    be a column of ``runner.report.numbers.columns``. ``show`` selects the metric itself, its natural logarithm, or the
    percentage by which it exceeds the baseline's.
    """

    name: str
    metric: str = ""
    show: Literal["value", "log", "percent_above_baseline"] = "value"

    def __post_init__(self) -> None:
        require(bool(self.metric) or self.show == "value", "show: needs a metric beside it")


@dataclass(frozen=True, kw_only=True)
class TableSpec:
    """One table or figure, rendered from the grid's run folders.

    Kind numbers has ``columns``, and ``with_costs`` adds a second table of epochs, seconds, candidates and memory. With
    ``tuned``, numbers and curves show each method's runs with the swept values that validate best
    (``numbers.tuning``). Kind learning_rates shows the headline at every rate, and names those that validate
    best.
    Kind levels shows when each method first reaches a level (``numbers.levels``), with a figure for each data set.
    ``curves`` names the figure of curves of the same grid, from whose committed CSV ``make generated`` makes the
    committed table.
    Kind curves has ``against``, which names what the horizontal axes count; ``metrics``, such as ``test/mse``, each
    of them a picture, whose default is the watched headline; and ``smooth``, the number of neighbouring evaluations
    whose median a line shows.
    Kind diagnosis has ``diagnose``, the arguments of ``python -m
    runner.diagnose RUN_FOLDER`` after the folder. Its runs have classes, unless ``examples`` says that samplers of
    training examples are shown, in a table or as the course of their estimates. Results are stored under the table's
    name, unless ``--name`` is in the arguments, so that a table and a figure can share them.
    ``helps_to_choose`` names the kind of data for which the report's first page takes the table's runs to help choosing
    a sampler; with ``helps_to_choose_unless`` it does so only as long as no run of that other table has finished.
    """

    name: str
    title: str
    kind: Literal[
        "numbers", "levels", "learning_rates", "distribution", "curves", "effect", "frequency", "frontier", "diagnosis"
    ]
    grid: Grid
    published: Published | None = None
    columns: tuple[ColumnSpec, ...] = ()
    with_costs: bool = False
    tuned: bool = False
    curves: str = ""
    against: tuple[Axis, ...] = ("seconds", "epoch")
    metrics: tuple[str, ...] = ()
    smooth: int = 1
    notes: tuple[str, ...] = ()
    diagnose: tuple[str, ...] = ()
    examples: Literal["", "table", "course"] = ""
    helps_to_choose: str = ""
    helps_to_choose_unless: str = ""

    def __post_init__(self) -> None:
        sweep = self.grid.sweep
        if self.kind == "learning_rates":
            keys = [[key for key, _ in point] for row in self.grid.methods for point in self.grid.points(row.name)]
            keys += [[other.key] for other in self.grid.also]
            alone = all(swept == ["optimizer.lr"] for swept in keys)
            require(alone, "kind: learning_rates needs a grid that sweeps only optimizer.lr, and for all methods")
        elif self.kind == "frontier":
            require(bool(sweep), "kind: frontier needs a grid with a sweep")
        elif self.kind == "effect":
            alone = len({swept.key for swept in sweep}) == 1 and not self.grid.also
            require(alone, "kind: effect needs a grid that sweeps one key")
        elif self.tuned:
            require(self.kind in ("numbers", "curves"), "tuned: only for kind: numbers and kind: curves")
            require(bool(sweep), "tuned: needs a grid with a sweep")
        elif self.kind != "curves":
            require(not sweep, f"kind: {self.kind} shows one run of a method and seed: name a grid without a sweep")
        require(bool(self.columns) == (self.kind == "numbers"), "columns: kind: numbers needs them, no other kind does")
        require(self.kind == "numbers" or not self.with_costs, "with_costs: only for kind: numbers")
        require_unique(self.columns, "columns")
        require(self.kind == "numbers" or not self.helps_to_choose, "helps_to_choose: only for kind: numbers")
        alone = bool(self.helps_to_choose) or not self.helps_to_choose_unless
        require(alone, "helps_to_choose_unless: needs helps_to_choose")
        require(bool(self.curves) == (self.kind == "levels"), "curves: kind: levels needs it, no other kind does")
        require(bool(self.against), "against: give at least one")
        if self.kind != "curves":
            require(not self.metrics and self.smooth == 1, "metrics and smooth: only for kind: curves")
        require(self.smooth >= 1 and self.smooth % 2 == 1, "smooth must be an odd number, at least 1")
        require(bool(self.diagnose) == self.is_diagnosed, "diagnose: kind: diagnosis needs it, no other kind does")
        require(self.is_diagnosed or not self.examples, "examples: only for kind: diagnosis")

    @property
    def is_figure(self) -> bool:
        return self.kind in ("distribution", "curves", "effect", "frequency", "frontier")

    @property
    def is_diagnosed(self) -> bool:
        """Tell whether the table needs more than runs: samplers are measured on the weights that these leave."""
        return self.kind == "diagnosis"

    @functools.cached_property
    def request(self) -> Request:
        """What ``diagnose`` asks for; the diagnosis is stored under the table's name unless another is given."""
        asked = read_request(self.diagnose)
        return asked if asked.name else replace(asked, name=self.name)


@dataclass(frozen=True, kw_only=True)
class BenchSpec:
    """A table that ``scripts/bench.py KIND KEY=VALUE...`` measures; it has no runs.

    ``settings`` are those of the kind, whose dataclass in ``runner.bench.settings`` says what they may be. ``small``:
    those that are others at laptop size. ``seconds``: what laptop size takes on an idle usual machine, whose
    ``slowness`` is 1. ``paper`` names the one in whose part of the report it stands.
    """

    name: str
    title: str
    kind: str
    seconds: float
    settings: dict[str, Any] = field(default_factory=dict)
    small: dict[str, Any] = field(default_factory=dict)
    paper: str = ""

    def __post_init__(self) -> None:
        require(self.seconds > 0, f"seconds must be above 0, got {self.seconds}")

    def report(self, results_dir: Path) -> Path:
        """Return the path of the JSON report of full size; the Markdown lies beside it."""
        return results_dir / "bench" / f"{self.name}.json"

    def small_report(self, results_dir: Path) -> Path:
        """Return the path of the JSON report of laptop size, in the folder of what is rendered from one's own runs."""
        return results_dir / "out" / SMALL / "bench" / f"{self.name}.json"

    def command(self, results_dir: Path) -> list[str]:
        """Return the command that measures at full size, to be run in the repository."""
        return self._command(self.settings, self.report(results_dir))

    def small_command(self, results_dir: Path) -> list[str]:
        """Return the command that measures at laptop size, to be run in the repository."""
        return self._command(self.small_settings, self.small_report(results_dir))

    @property
    def small_settings(self) -> dict[str, Any]:
        """The settings of laptop size."""
        return {**self.settings, **self.small}

    def _command(self, settings: Mapping[str, Any], report: Path) -> list[str]:
        """Return a command whose paths are relative to the repository, so that reports show none of the machine's."""
        shown = report.relative_to(REPOSITORY) if report.is_relative_to(REPOSITORY) else report
        return [sys.executable, "scripts/bench.py", self.kind, *words_of(settings), "--json", str(shown)]

    def is_measured(self, results_dir: Path) -> bool:
        """Tell whether laptop size was measured to its end, with the arguments that are now asked for."""
        report = self.small_report(results_dir)
        try:
            found = json.loads(report.read_text(encoding="utf-8"))
            asked = found["provenance"]["command"] == " ".join(self.small_command(results_dir)[1:])
            return bool(asked) and "seconds" in found
        except (OSError, ValueError, KeyError, TypeError):
            return False


def words_of(settings: Mapping[str, Any]) -> list[str]:
    """Return settings as Hydra reads them: KEY=VALUE, with commas between several values."""

    def text(value: Any) -> str:
        if isinstance(value, list | tuple):
            return ",".join(map(text, value)) or "[]"
        plain = {"None": "null", "True": "true", "False": "false"}.get(str(value), str(value))
        return f'"{plain}"' if "=" in plain else plain

    return [f"{key}={text(value)}" for key, value in settings.items()]


def table_names(folder: Path = TABLES) -> list[str]:
    """Return the names of the tables and figures that are made from runs."""
    return sorted(path.stem for path in folder.glob("*.yaml"))


def bench_names(folder: Path = TABLES) -> list[str]:
    """Return the names of the tables that the bench measures."""
    return sorted(path.stem for path in (folder / BENCH).glob("*.yaml"))


def load_bench(name: str, folder: Path = TABLES) -> BenchSpec:
    """Read conf/table/bench/NAME.yaml; ConfigError names the file and key of a mistake."""
    file = folder / BENCH / f"{name}.yaml"
    return build(BenchSpec, {**read(file), "name": name}, f"{place(file)}: ")


def load_table(name: str, folder: Path = TABLES) -> TableSpec:
    """Read conf/table/NAME.yaml and the grid it names; ConfigError names the file and key of a mistake."""
    if name in bench_names(folder):
        raise ConfigError(f"{name} is not made from runs: make reproduce TABLE={name} measures it")
    if name not in table_names(folder):
        names = [*table_names(folder), *bench_names(folder)]
        raise ConfigError(f"unknown table '{name}'{did_you_mean(name, names)}")
    file = folder / f"{name}.yaml"
    raw = read(file)
    grid = str(raw.get("grid"))
    grids = grid_names(folder)
    if grid not in grids:
        raise ConfigError(f"{place(file)}: grid: no '{grid}' in {folder.name}/grid{did_you_mean(grid, grids)}")
    other = raw.get("helps_to_choose_unless", name)
    if other not in (names := table_names(folder)):
        hint = did_you_mean(str(other), names)
        raise ConfigError(f"{place(file)}: helps_to_choose_unless: no table '{other}'{hint}")
    values = {**raw, "name": name, "grid": load_grid(grid, folder)}
    if isinstance(raw.get("published"), Mapping):
        values["published"] = build(Published, raw["published"], f"{place(file)}: published.")
    values["columns"] = build_all(ColumnSpec, raw.get("columns", []), f"{place(file)}: columns")
    return build(TableSpec, values, f"{place(file)}: ")

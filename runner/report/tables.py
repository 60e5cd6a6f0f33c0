"""What ``conf/table`` says: a table or figure of a paper, and the grid of runs that several of them share.

A grid expands, for a profile, to one run per data set, method and seed; all of it is typed and checked before
anything runs. Errors are one line that names the file and the key.
"""

import dataclasses
import functools
import itertools
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml

from runner.config import CONF, RunConfig, compose, convert, did_you_mean
from runner.errors import ConfigError, require

TABLES = CONF / "table"
BENCH = "bench"  # folder in it, of tables that no runs make
PUBLISHED = CONF.parent / "results" / "published"
_REPOSITORY = CONF.parent

T = TypeVar("T")
Point = tuple[tuple[str, int | float], ...]  # (key, value) of every swept setting of one run


# ---------------------------------------------------------------- the grid of runs


@dataclass(frozen=True, kw_only=True)
class Method:
    """A row of the tables: its name in published CSVs, its printed label, the overrides that choose it."""

    name: str
    label: str
    overrides: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Column:
    """A data set of the tables, or a model on one. ``published``: its name in published CSVs; None marks a stand-in.

    ``dataset``: where it is not the column's own name. ``overrides``: what else makes the column, such as the model;
    ``published_model``: that model's name in published CSVs.
    """

    name: str
    label: str
    published: str | None = None
    dataset: str | None = None
    overrides: tuple[str, ...] = ()
    published_model: str | None = None

    def __post_init__(self) -> None:
        require(
            self.published is not None or self.published_model is None,
            "published_model: goes with published, the data set's name",
        )


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """Overrides of some methods on one data set."""

    methods: tuple[str, ...]
    overrides: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Swept:
    """A setting that takes each of several values, for some methods or (none named) for all."""

    key: str
    values: tuple[int | float, ...]
    methods: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require(bool(self.values), "values: give at least one")
        require(len(set(self.values)) == len(self.values), "values: one is repeated")


@dataclass(frozen=True, kw_only=True)
class ProfileDataset:
    """How one column is trained in a profile.

    ``tuned``: settings of some methods, which profiles may share; ``lengths``: how long some train in this one.
    """

    name: str
    overrides: tuple[str, ...] = ()
    tuned: tuple[Tuned, ...] = ()
    lengths: tuple[Tuned, ...] = ()

    def overrides_of(self, method: str) -> tuple[str, ...]:
        tuned = (item.overrides for item in (*self.tuned, *self.lengths) if method in item.methods)
        return (*self.overrides, *(override for overrides in tuned for override in overrides))


@dataclass(frozen=True, kw_only=True)
class Profile:
    """How much is run: data sets, their settings, and seeds."""

    seeds: tuple[int, ...]
    datasets: tuple[ProfileDataset, ...]

    def __post_init__(self) -> None:
        require(bool(self.seeds), "seeds: give at least one")
        require(bool(self.datasets), "datasets: give at least one")
        require(len(set(self.seeds)) == len(self.seeds), "seeds: one is repeated")
        _require_unique(self.datasets, "datasets")


@dataclass(frozen=True, kw_only=True)
class Profiles:
    small: Profile
    medium: Profile
    paper: Profile


PROFILES = tuple(field.name for field in dataclasses.fields(Profiles))


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Methods x combinations of swept settings x data sets x seeds.

    ``paper``: whose tables these are; empty for our own. ``fixed``: overrides of all; ``baseline``: what the rest
    compare with. ``full_methods``: the rows that are full softmax, where there is more than the baseline.
    ``by_name``: so costly that only a table named on the command line makes the runs.
    """

    paper: str = ""
    fixed: tuple[str, ...]
    baseline: str
    full_methods: tuple[str, ...] = ()
    by_name: bool = False
    methods: tuple[Method, ...]
    sweep: tuple[Swept, ...] = ()
    datasets: tuple[Column, ...]
    profiles: Profiles

    def __post_init__(self) -> None:
        _require_unique(self.methods, "methods")
        _require_unique(self.datasets, "datasets")
        methods = [method.name for method in self.methods]
        datasets = [column.name for column in self.datasets]
        _require_known("baseline", self.baseline, methods)
        for name in self.full_methods:
            _require_known("full_methods", name, methods)
        for index, swept in enumerate(self.sweep):
            for name in swept.methods:
                _require_known(f"sweep[{index}].methods", name, methods)
        for profile in PROFILES:
            for dataset in self.profile(profile).datasets:
                _require_known(f"profiles.{profile}.datasets", dataset.name, datasets)
                for key in ("tuned", "lengths"):
                    for item in getattr(dataset, key):
                        for method in item.methods:
                            _require_known(f"profiles.{profile}.{dataset.name}.{key}.methods", method, methods)

    def profile(self, name: str) -> Profile:
        require(name in PROFILES, f"unknown profile '{name}'{did_you_mean(name, PROFILES)}")
        profile: Profile = getattr(self.profiles, name)
        return profile

    def column(self, dataset: str) -> Column:
        return next(column for column in self.datasets if column.name == dataset)

    def points(self, method: str) -> list[Point]:
        """Every combination of the settings swept for the method; one empty combination where none is."""
        swept = [item for item in self.sweep if not item.methods or method in item.methods]
        return list(itertools.product(*([(item.key, value) for value in item.values] for item in swept)))

    def num_runs(self, profile: str) -> int:
        chosen = self.profile(profile)
        points = sum(len(self.points(method.name)) for method in self.methods)
        return points * len(chosen.datasets) * len(chosen.seeds)

    def label(self, run: "PlannedRun") -> str:
        """The run's method as printed, with its values of the swept settings."""
        label = next(method.label for method in self.methods if method.name == run.method)
        return f"{label}, {point_text(run.point)}" if run.point else label


def point_text(point: Point) -> str:
    """``K=9 L=50``"""
    return " ".join(f"{key.rpartition('.')[2]}={value:g}" for key, value in point)


# ---------------------------------------------------------------- a table or figure


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
class TableSpec:
    """One table or figure, rendered from the grid's run folders.

    ``diagnose``: of kind diagnosis, what ``python -m runner.diagnose RUN_FOLDER`` is given beside the folder.
    """

    name: str
    title: str
    kind: Literal[
        "convergence",
        "speed",
        "precision",
        "perplexity",
        "perplexity_loss",
        "codebooks",
        "time_to_accuracy",
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
    return sorted(path.stem for path in folder.glob("*.yaml"))


def bench_names(folder: Path = TABLES) -> list[str]:
    return sorted(path.stem for path in (folder / BENCH).glob("*.yaml"))


def load_bench(name: str, folder: Path = TABLES) -> BenchSpec:
    """Read conf/table/bench/NAME.yaml."""
    file = folder / BENCH / f"{name}.yaml"
    return _build(BenchSpec, {**_read(file), "name": name}, f"{_place(file)}: ")


def load_table(name: str, folder: Path = TABLES) -> TableSpec:
    """Read conf/table/NAME.yaml and the grid it names."""
    if name in bench_names(folder):
        raise ConfigError(f"{name} comes from no runs: make reproduce TABLE={name} measures it")
    if name not in table_names(folder):
        names = [*table_names(folder), *bench_names(folder)]
        raise ConfigError(f"unknown table '{name}'{did_you_mean(name, names)}")
    file = folder / f"{name}.yaml"
    raw = _read(file)
    grid = str(raw.get("grid"))
    grids = [path.stem for path in (folder / "grid").glob("*.yaml")]
    if grid not in grids:
        raise ConfigError(f"{_place(file)}: grid: no '{grid}' in {folder.name}/grid{did_you_mean(grid, grids)}")
    values = {**raw, "name": name, "grid": load_grid(folder / "grid" / f"{grid}.yaml")}
    if isinstance(raw.get("published"), Mapping):
        values["published"] = _build(Published, raw["published"], f"{_place(file)}: published.")
    return _build(TableSpec, values, f"{_place(file)}: ")


def load_grid(file: Path) -> Grid:
    where = f"{_place(file)}: "
    raw = _read(file)
    profiles = raw.get("profiles")
    if isinstance(profiles, Mapping):
        raw["profiles"] = {
            name: _profile(profile, f"{where}profiles.{name}.") if isinstance(profile, Mapping) else profile
            for name, profile in profiles.items()
        }
    for key, kind in (("methods", Method), ("datasets", Column), ("sweep", Swept)):
        raw[key] = _build_all(kind, raw.get(key, [] if key == "sweep" else None), f"{where}{key}")
    return _build(Grid, raw, where)


def _profile(raw: Mapping[str, Any], where: str) -> Profile:
    datasets = []
    for index, item in enumerate(_items(raw.get("datasets"), f"{where}datasets")):
        place = f"{where}datasets[{index}]."
        lists = {key: _build_all(Tuned, item.get(key, []), f"{place}{key}") for key in ("tuned", "lengths")}
        item = {**item, **lists}
        datasets.append(_build(ProfileDataset, item, place))
    return _build(Profile, {**raw, "datasets": datasets}, where)


def _build(kind: type[T], values: Mapping[str, Any], where: str) -> T:
    """``where``: the file, ``: ``, and the keys above ``values`` (``profiles.small.``), for messages."""
    file, _, keys = where.partition(": ")
    try:
        return convert(kind, values, keys)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}" if keys in str(error) else f"{file}: {keys}{error}") from None


def _build_all(kind: type[T], raw: Any, where: str) -> list[T]:
    return [_build(kind, item, f"{where}[{index}].") for index, item in enumerate(_items(raw, where))]


def _items(raw: Any, where: str) -> list[Mapping[str, Any]]:
    if not isinstance(raw, list) or not all(isinstance(item, Mapping) for item in raw):
        raise ConfigError(f"{where}: expected a list of mappings, got {raw!r}")
    return raw


def _read(file: Path) -> dict[str, Any]:
    try:
        raw = yaml.safe_load(file.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ConfigError(f"{_place(file)}: not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(raw, dict):
        raise ConfigError(f"{_place(file)}: expected a mapping of keys")
    return raw


def _place(file: Path) -> str:
    """The file as a user would name it: relative to the repository where it lies in it."""
    root = CONF.parent
    return str(file.relative_to(root)) if file.is_relative_to(root) else str(file)


def _require_unique(items: Iterable[Any], key: str) -> None:
    names = [item.name for item in items]
    repeated = {name for name in names if names.count(name) > 1}
    require(not repeated, f"{key}: {', '.join(sorted(repeated))} stands there twice")


def _require_known(key: str, name: str, names: Iterable[str]) -> None:
    names = list(names)
    require(name in names, f"{key}: unknown '{name}'{did_you_mean(name, names)}")


# ---------------------------------------------------------------- expansion


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """One cell's run: where it stands in the grid, and what ``python -m runner OVERRIDES`` runs."""

    dataset: str
    method: str
    seed: int
    overrides: tuple[str, ...]
    config: RunConfig
    point: Point = ()

    @property
    def run_id(self) -> str:
        return self.config.run_id


def expand(
    grid: Grid, profile_name: str, results_dir: Path, *, datasets: Iterable[str] | None = None
) -> list[PlannedRun]:
    """Every run of the profile (only those ``datasets``), composed and checked; nothing is run."""
    profile = grid.profile(profile_name)
    planned: list[PlannedRun] = []
    for dataset in profile.datasets:
        if datasets is not None and dataset.name not in datasets:
            continue
        for method, point in ((m, point) for m in grid.methods for point in grid.points(m.name)):
            column = grid.column(dataset.name)
            chosen = (
                f"dataset={column.dataset or column.name}",
                *grid.fixed,
                *column.overrides,
                *method.overrides,
                *dataset.overrides_of(method.name),
                *(f"{key}={value}" for key, value in point),
            )
            where = ", ".join(filter(None, [f"profile {profile_name}", dataset.name, method.name, point_text(point)]))
            try:
                config = dataclasses.replace(_composed(chosen), results_dir=str(results_dir))
            except ConfigError as error:
                raise ConfigError(f"{where}: {error}") from None
            for seed in profile.seeds:
                planned.append(
                    PlannedRun(
                        dataset=dataset.name,
                        method=method.name,
                        seed=seed,
                        overrides=(*chosen, f"seed={seed}", f"results_dir={_quoted(str(results_dir))}"),
                        config=dataclasses.replace(config, seed=seed),
                        point=point,
                    )
                )
    ids = [run.run_id for run in planned]
    for run in planned:
        require(
            ids.count(run.run_id) == 1,
            f"profile {profile_name}, {run.dataset}, {run.method}: another method has the same settings",
        )
    return planned


@functools.cache
def _composed(overrides: tuple[str, ...]) -> RunConfig:
    """Composing takes a tenth of a second, and tables that share a grid ask for the same runs."""
    return compose(overrides)


def _quoted(text: str) -> str:
    """A value for Hydra's override grammar, whatever characters it holds."""
    escaped = text.replace("\\'", "\\\\'").replace("'", "\\'")
    return f"'{escaped}'"

"""Read ``conf/table/grid``: a grid is a set of runs that several tables and figures share.

For a profile, a grid expands to one run per data set, method, combination of swept settings and seed. Everything is
typed and checked before anything runs. Errors are one line that names the file and the key.
"""

import dataclasses
import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.config import compose_one_of_many
from runner.errors import ConfigError, require
from runner.options.conversion import did_you_mean, number_in
from runner.options.settings import RunConfig
from runner.options.yaml_files import place, read
from runner.report.spec.methods import Method, build_methods
from runner.report.spec.yaml_files import build, build_all, items, mapping, require_known, require_unique

Value = int | float | str
Point = tuple[tuple[str, Value], ...]  # a run's swept settings as (key, value)


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A data set of the tables, or a model on a data set.

    ``published`` is its name in published CSVs; None marks a stand-in. ``dataset`` is the runner's name of the data set
    if that is not ``name``. ``overrides`` are further settings that belong to it, such as the model, whose name in
    published CSVs is ``published_model``.
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
    """Overrides that some methods take on one data set."""

    methods: tuple[str, ...]
    overrides: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Swept:
    """A setting that takes each of several values, for the methods named, or for all methods if none is named."""

    key: str
    values: tuple[int | float, ...]
    methods: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require(bool(self.values), "values: give at least one")
        require(len(set(self.values)) == len(self.values), "values: one is repeated")


@dataclass(frozen=True, kw_only=True)
class AlsoSwept(Swept):
    """A setting that some methods sweep again, with other settings (``overrides``, as ``key=value``) than usual."""

    overrides: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        require(bool(self.methods), "methods: name at least one")
        for override in self.overrides:
            require("=" in override, f"overrides: '{override}' is not key=value")

    @property
    def points(self) -> list[Point]:
        pairs = (item.partition("=") for item in self.overrides)
        others = tuple((key, text if (number := number_in(text)) is None else number) for key, _, text in pairs)
        return [((self.key, value), *others) for value in self.values]


@dataclass(frozen=True, kw_only=True)
class ProfileDataset:
    """The settings of one data set in a profile.

    ``tuned`` are settings of some methods, which profiles may share. ``lengths`` say how long some methods train in
    this profile. ``also`` are combinations of settings that some methods try besides those of the grid's sweep.
    ``without`` names methods that are not run on the data set, such as those that take too long there. ``seeds`` and
    ``sweep``: those of the data set, if they are not the profile's.
    """

    name: str
    overrides: tuple[str, ...] = ()
    tuned: tuple[Tuned, ...] = ()
    lengths: tuple[Tuned, ...] = ()
    also: tuple[AlsoSwept, ...] = ()
    without: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    sweep: tuple[Swept, ...] = ()

    def __post_init__(self) -> None:
        require_distinct(self.seeds)

    def overrides_of(self, method: str) -> tuple[str, ...]:
        tuned = (item.overrides for item in (*self.tuned, *self.lengths) if method in item.methods)
        return (*self.overrides, *(override for overrides in tuned for override in overrides))


@dataclass(frozen=True, kw_only=True)
class Profile:
    """A profile says how much is run: which data sets, with which settings, and which seeds.

    ``sweep``, if it is given, takes the place of the grid's: the same keys with fewer values.
    """

    seeds: tuple[int, ...]
    datasets: tuple[ProfileDataset, ...]
    sweep: tuple[Swept, ...] = ()

    def __post_init__(self) -> None:
        require(bool(self.seeds), "seeds: give at least one")
        require(bool(self.datasets), "datasets: give at least one")
        require_distinct(self.seeds)
        require_unique(self.datasets, "datasets")

    def seeds_on(self, dataset: ProfileDataset) -> tuple[int, ...]:
        """Return the seeds that are run on one of the profile's data sets."""
        return dataset.seeds or self.seeds


def require_distinct(seeds: Sequence[int]) -> None:
    """Raise ConfigError if a seed is given twice."""
    require(len(set(seeds)) == len(seeds), "seeds: one is repeated")


@dataclass(frozen=True, kw_only=True)
class Profiles:
    small: Profile
    medium: Profile
    paper: Profile


PROFILES = tuple(field.name for field in dataclasses.fields(Profiles))


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A grid of runs: methods x combinations of swept settings x data sets x seeds.

    ``paper`` names the paper that printed these tables; it is empty for our own. ``fixed`` are overrides of all runs.
    ``baseline`` is the method that the others are compared with. ``full_methods`` are the rows that are full softmax,
    if the baseline is not the only one. ``by_name`` marks runs so costly that they are made only for a table named on
    the command line.
    """

    paper: str = ""
    fixed: tuple[str, ...]
    baseline: str
    full_methods: tuple[str, ...] = ()
    by_name: bool = False
    methods: tuple[Method, ...]
    sweep: tuple[Swept, ...] = ()
    datasets: tuple[Dataset, ...]
    profiles: Profiles

    def __post_init__(self) -> None:
        require_unique(self.methods, "methods")
        require_unique(self.datasets, "datasets")
        methods = [method.name for method in self.methods]
        datasets = [dataset.name for dataset in self.datasets]
        require_known("baseline", self.baseline, methods)
        for name in self.full_methods:
            require_known("full_methods", name, methods)
        for index, swept in enumerate(self.sweep):
            for name in swept.methods:
                require_known(f"sweep[{index}].methods", name, methods)
        for profile in PROFILES:
            self._require_fewer(self.profile(profile).sweep, f"profiles.{profile}")
            for dataset in self.profile(profile).datasets:
                require_known(f"profiles.{profile}.datasets", dataset.name, datasets)
                self._require_fewer(dataset.sweep, f"profiles.{profile}.{dataset.name}")
                for key in ("tuned", "lengths", "also"):
                    for item in getattr(dataset, key):
                        for method in item.methods:
                            require_known(f"profiles.{profile}.{dataset.name}.{key}.methods", method, methods)
                for method in dataset.without:
                    require_known(f"profiles.{profile}.{dataset.name}.without", method, methods)
                require(
                    self.baseline not in dataset.without,
                    f"profiles.{profile}.{dataset.name}.without: the others are compared with '{self.baseline}'",
                )

    def _require_fewer(self, sweep: Sequence[Swept], where: str) -> None:
        for index, swept in enumerate(sweep):
            whole = [item for item in self.sweep if (item.key, item.methods) == (swept.key, swept.methods)]
            require(
                any(set(swept.values) <= set(item.values) for item in whole),
                f"{where}.sweep[{index}]: not among the values of the grid's own sweep",
            )

    def profile(self, name: str) -> Profile:
        require(name in PROFILES, f"unknown profile '{name}'{did_you_mean(name, PROFILES)}")
        profile: Profile = getattr(self.profiles, name)
        return profile

    @property
    def also(self) -> list[AlsoSwept]:
        """Return what the profiles' data sets sweep besides."""
        return [item for name in PROFILES for dataset in self.profile(name).datasets for item in dataset.also]

    def dataset(self, dataset: str) -> Dataset:
        return next(found for found in self.datasets if found.name == dataset)

    def methods_on(self, dataset: ProfileDataset) -> list[Method]:
        """Return the methods that a profile runs on one of its data sets."""
        return [method for method in self.methods if method.name not in dataset.without]

    def points(self, method: str, fewer: Sequence[Swept] = ()) -> list[Point]:
        """Return every combination of the settings swept for the method; without any, one empty combination.

        ``fewer``, if it is given, takes the place of the grid's sweep.
        """
        swept = [item for item in fewer or self.sweep if not item.methods or method in item.methods]
        return list(itertools.product(*([(item.key, value) for value in item.values] for item in swept)))

    def points_on(self, dataset: ProfileDataset, method: str, profile: str) -> list[Point]:
        """Return all combinations that the method tries on a profile's data set: the sweep's, then the others."""
        others = (point for item in dataset.also if method in item.methods for point in item.points)
        return [*self.points(method, dataset.sweep or self.profile(profile).sweep), *others]

    def num_runs(self, profile: str) -> int:
        chosen = self.profile(profile)
        return sum(
            len(self.points_on(dataset, m.name, profile)) * len(chosen.seeds_on(dataset))
            for dataset in chosen.datasets
            for m in self.methods_on(dataset)
        )

    def label(self, run: "PlannedRun") -> str:
        """Return the run's method as printed, followed by its values of the swept settings."""
        label = next(method.label for method in self.methods if method.name == run.method)
        return f"{label}, {point_text(run.point)}" if run.point else label


def point_text(point: Point) -> str:
    """Return the swept settings as text, such as ``K=9 L=50 loss=nce``."""
    return " ".join(
        f"{key.rpartition('.')[2]}={value if isinstance(value, str) else format(value, 'g')}" for key, value in point
    )


# ---------------------------------------------------------------- reading


def grid_names(folder: Path) -> list[str]:
    return sorted(path.stem for path in (folder / "grid").glob("*.yaml"))


def load_grid(name: str, folder: Path) -> Grid:
    """Read conf/table/grid/NAME.yaml on top of the grid that it extends, if any.

    A key of the file replaces the same key of the extended grid, with two exceptions: ``methods`` may name rows of that
    grid, and ``profiles`` replaces only what it states (see ``_extended_profile``). Methods that the file's ``methods``
    leave out, or name otherwise, lose their settings in inherited profiles and sweeps. Raises ConfigError that names
    the file and the key.
    """
    raw, extended = _read_with_extended(name, folder)
    where = f"{place(folder / 'grid' / f'{name}.yaml')}: "
    profiles = raw.get("profiles")
    if isinstance(profiles, Mapping):
        raw["profiles"] = {
            key: _profile(profile, f"{where}profiles.{key}.") if isinstance(profile, Mapping) else profile
            for key, profile in profiles.items()
        }
    rows = {method.name: method for method in extended.methods} if extended else {}
    if extended and "methods" not in raw:
        raw["methods"] = list(rows)
    raw["methods"] = build_methods(raw.get("methods"), rows, f"{where}methods")
    for key, kind in (("datasets", Dataset), ("sweep", Swept)):
        raw[key] = build_all(kind, raw.get(key, [] if key == "sweep" else None), f"{where}{key}")
    return build(Grid, raw, where)


def _read_with_extended(name: str, folder: Path, above: tuple[str, ...] = ()) -> tuple[dict[str, Any], Grid | None]:
    """Return a grid's keys, without ``extends`` and without inherited methods, and the grid that it extends.

    ``above``: the grids that extend this one. Raises ConfigError for an unknown grid and for one that extends itself.
    """
    file = folder / "grid" / f"{name}.yaml"
    raw = read(file)
    base = raw.pop("extends", None)
    if base is None:
        return raw, None
    names = [other for other in grid_names(folder) if other not in (name, *above)]
    require(base in names, f"{place(file)}: extends: no '{base}' to extend{did_you_mean(str(base), names)}")
    before, _ = _read_with_extended(base, folder, (name, *above))
    extended = load_grid(base, folder)
    inherited = {key: value for key, value in before.items() if key != "methods"}
    if "methods" in raw:
        rows = {method.name: method for method in extended.methods}
        methods = build_methods(raw["methods"], rows, f"{place(file)}: methods")
        kept = {method.name for method in methods}
        inherited["sweep"] = _kept_items(inherited.get("sweep", []), kept)
        inherited["profiles"] = {key: _of_methods(profile, kept) for key, profile in inherited["profiles"].items()}
    profiles = raw.pop("profiles", None)
    if profiles is not None:
        where = f"{place(file)}: profiles"
        theirs = inherited["profiles"]
        raw["profiles"] = {
            **theirs,
            **{
                key: _extended_profile(mapping(profile, f"{where}.{key}"), theirs.get(key, {}), f"{where}.{key}")
                for key, profile in mapping(profiles, where).items()
            },
        }
    return {**inherited, **raw}, extended


def _of_methods(profile: Mapping[str, Any], kept: Collection[str]) -> dict[str, Any]:
    """Return the extended grid's profile without the settings of methods other than ``kept``."""
    out = {**profile, "datasets": [dict(dataset) for dataset in profile["datasets"]]}
    parts = ((dataset, {"tuned", "lengths", "also", "sweep"}) for dataset in out["datasets"])
    for part, keys in ((out, {"sweep"}), *parts):
        for key in part.keys() & keys:
            part[key] = _kept_items(part[key], kept)
    for dataset in out["datasets"]:
        if "without" in dataset:
            dataset["without"] = [name for name in dataset["without"] if name in kept]
    return out


def _kept_items(listed: Sequence[Mapping[str, Any]], kept: Collection[str]) -> list[Mapping[str, Any]]:
    """Leave methods other than ``kept`` out of items. Items that were of such methods alone are left out."""
    items = [
        {**item, "methods": [name for name in item["methods"] if name in kept]} if item.get("methods") else item
        for item in listed
    ]
    return [
        item for before, item in zip(listed, items, strict=True) if item.get("methods") or not before.get("methods")
    ]


def _extended_profile(profile: Mapping[str, Any], before: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Merge a profile with the same profile of the extended grid, ``before``.

    Only the ``datasets`` listed here remain. A data set that is listed in both inherits the keys that it does not state
    itself, and its ``tuned`` are appended to the inherited ones.
    """
    out = {**before, **profile}
    if "datasets" in profile:
        theirs = {item["name"]: item for item in before.get("datasets", [])}
        out["datasets"] = [
            {**old, **item, "tuned": [*old.get("tuned", []), *item.get("tuned", [])]}
            for item in items(profile["datasets"], f"{where}.datasets")
            for old in [theirs.get(item.get("name"), {})]
        ]
    return out


def _profile(raw: Mapping[str, Any], where: str) -> Profile:
    datasets = []
    for index, item in enumerate(items(raw.get("datasets"), f"{where}datasets")):
        place = f"{where}datasets[{index}]."
        kinds: dict[str, type[Any]] = {"tuned": Tuned, "lengths": Tuned, "also": AlsoSwept, "sweep": Swept}
        lists: dict[str, list[Any]] = {
            key: build_all(kind, item.get(key, []), f"{place}{key}") for key, kind in kinds.items()
        }
        item = {**item, **lists}
        datasets.append(build(ProfileDataset, item, place))
    sweep = build_all(Swept, raw.get("sweep", []), f"{where}sweep")
    return build(Profile, {**raw, "datasets": datasets, "sweep": sweep}, where)


# ---------------------------------------------------------------- expansion


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """A run of the grid: its place in the grid, and the overrides that ``python -m runner`` takes to run it."""

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
    """Compose and check every run of the profile, without running any; ``datasets`` restricts it to those.

    Raises ConfigError, which names the profile, data set and method, for settings that do not fit and for two methods
    with the same settings.
    """
    profile = grid.profile(profile_name)
    planned: list[PlannedRun] = []
    for dataset in profile.datasets:
        if datasets is not None and dataset.name not in datasets:
            continue
        methods = grid.methods_on(dataset)
        for method, point in ((m, p) for m in methods for p in grid.points_on(dataset, m.name, profile_name)):
            chosen = _chosen(grid, dataset, method, point)
            where = ", ".join(filter(None, [f"profile {profile_name}", dataset.name, method.name, point_text(point)]))
            try:
                config = compose_one_of_many(chosen)
            except ConfigError as error:
                raise ConfigError(f"{where}: {error}") from None
            for seed in profile.seeds_on(dataset):
                planned.append(
                    PlannedRun(
                        dataset=dataset.name,
                        method=method.name,
                        seed=seed,
                        overrides=(*chosen, f"seed={seed}", f"results_dir={quoted(str(results_dir))}"),
                        config=dataclasses.replace(config, seed=seed, results_dir=str(results_dir)),
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


def baseline_config(grid: Grid, profile_name: str, dataset: str) -> RunConfig:
    """Compose the baseline's run on one of a profile's data sets, of no particular seed, and of none of a sweep."""
    found = next(item for item in grid.profile(profile_name).datasets if item.name == dataset)
    method = next(method for method in grid.methods if method.name == grid.baseline)
    return compose_one_of_many(_chosen(grid, found, method, ()))


def _chosen(grid: Grid, dataset: ProfileDataset, method: Method, point: Point) -> tuple[str, ...]:
    """Return what ``python -m runner`` takes for a run, all but the seed."""
    shown = grid.dataset(dataset.name)
    return _last_words(
        f"dataset={shown.dataset or shown.name}",
        *grid.fixed,
        *shown.overrides,
        *method.overrides,
        *dataset.overrides_of(method.name),
        *_words(point),
    )


def _last_words(*words: str) -> tuple[str, ...]:
    """Return the words, of those with the same key the last one alone: it is the one that counts."""
    return tuple({word.partition("=")[0]: word for word in words}.values())


def _words(point: Point) -> list[str]:
    return [f"{key}={value}" for key, value in point]


def quoted(text: str) -> str:
    """Quote a value for Hydra's override grammar, whatever characters it contains."""
    escaped = text.replace("\\'", "\\\\'").replace("'", "\\'")
    return f"'{escaped}'"

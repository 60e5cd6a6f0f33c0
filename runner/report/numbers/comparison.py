"""Compare finished and unfinished runs of a data set: what differs between them, quality and costs.

Runs that differ in nothing but the seed are one row. A setting is shown where it tells rows apart: settings of
samplers and losses within a method, those of a model within the model, all others (epochs, learning rate...) within the
data set.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd

from runner.errors import ConfigError, RunnerError
from runner.methods.catalogue import known_methods
from runner.options.conversion import did_you_mean
from runner.options.settings import flat
from runner.report.numbers.group import Group, Origins
from runner.report.numbers.quantities import QUANTITIES
from runner.report.numbers.records import FINISHED, RunRecord
from runner.report.numbers.sweep import differing_keys, exact

_OF_A_METHOD = ("sampler.", "loss.", "batch_sampler.")
_COSTS = {
    "seconds": "train_seconds",
    "seconds an epoch": "seconds_per_epoch",
    "candidates a row": "candidates_per_row",
}
NO_RUNS_YET = "no runs yet; python -m runner makes one"
NO_SUCH_RUNS = "no run has these settings"
GROUPS = ("dataset", "model", "sampler", "loss", "optimizer", "batch_sampler")  # dataset=X stands for dataset.name=X


def chosen(records: Sequence[RunRecord], names: Sequence[str], where: Sequence[str]) -> list[RunRecord]:
    """Return the runs that are named and that have all the settings of ``where`` (KEY=VALUE).

    A run is named by its folder, its id or the end of its id; without names all are meant. Raises RunnerError for a
    name that no run or that several runs have, and ConfigError for a key that no run has.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    found = [named(records, name) for name in names] if names else list(records)
    settings = [(record, {**flat(record.config), "method": record.method_name}) for record in found if record.config]
    known = dict.fromkeys(key for _, setting in settings for key in setting)
    for word in where:
        key = word.partition("=")[0]
        key = f"{key}.name" if key in GROUPS else key
        if "=" not in word or (key not in known and settings):
            raise ConfigError(f"--where {word}: give KEY=VALUE with a setting of these runs{did_you_mean(key, known)}")
        try:
            value = OverridesParser.create().parse_override(word).value()  # as the runner reads what is typed
        except HydraException:
            raise ConfigError(f"--where {word}: the value cannot be read") from None
        settings = [(record, setting) for record, setting in settings if exact(setting.get(key)) == exact(value)]
    return [record for record, _ in settings]


def named(records: Sequence[RunRecord], name: str) -> RunRecord:
    """Return the run with this folder, id or end of its id. Raises RunnerError if there is not exactly one."""
    last = Path(name).name
    found = [record for record in records if last in (record.run_id, record.short_id)]
    if len(found) != 1:
        how_many = "no run" if not found else f"{len(found)} runs"
        raise RunnerError(f"{how_many} called '{name}'{did_you_mean(last, [record.run_id for record in records])}")
    return found[0]


def by_dataset(records: Sequence[RunRecord]) -> list[tuple[str, list[RunRecord]]]:
    """Return the runs of each data set with its name, in the order in which data sets first appear."""
    names = dict.fromkeys(record.config["dataset"]["name"] for record in records)
    return [(name, [record for record in records if record.config["dataset"]["name"] == name]) for name in names]


def comparison(records: Sequence[RunRecord]) -> pd.DataFrame:
    """Return a row for each setting of the runs of one data set, the best quality first, unfinished runs last.

    Columns: method, model, settings, quality (mean over seeds), deviation, seconds, seconds an epoch, candidates a row,
    seeds, status, runs. Quality is the headline on the test set, as it is printed. Means are over the finished runs; of
    how many of the seeds, ``seeds`` tells (``2 of 3``). Runs of other data, of another state of a plugin or of other
    numbers of the runner are a row of their own, and what tells them apart stands behind their settings.
    """
    settings = {record.run_id: flat(record.config) for record in records}
    telling, origins = _Telling(records), Origins(records)
    groups: dict[tuple[str, str, str], list[RunRecord]] = {}
    for record in records:
        setting = settings[record.run_id]
        shown = [f"{key}={exact(setting[key])}" for key in setting if telling(record, key)]
        text = " ".join(filter(None, [*shown, origins.text(record)]))
        groups.setdefault((record.method_name, _model(record), text), []).append(record)
    labels = {name: method.label for name, method in known_methods().items()}
    rows = []
    for (method, model, text), found in groups.items():
        group = Group(records=tuple(found))
        rows.append({
            "method": labels.get(method, method),
            "model": model,
            "settings": text,
            **_numbers(group),
            "seeds": group.seeds,
            "status": group.status,
            "runs": group.short_ids,
        })  # fmt: skip
    finished = next((record for record in records if record.finished), None)
    rising = finished is None or finished.yardstick.headline.higher_is_better
    return pd.DataFrame(rows).sort_values("quality", ascending=not rising, ignore_index=True, kind="stable")


class _Telling:
    """Know which settings tell runs apart: a sampler's or a loss's within a method, a model's within the model."""

    def __init__(self, records: Sequence[RunRecord]) -> None:
        self._of_any = set(differing_keys(records))
        self._of_method = _by(records, lambda record: record.method_name)
        self._of_model = _by(records, _model)

    def __call__(self, record: RunRecord, key: str) -> bool:
        """Return whether the setting tells the run apart from others."""
        if key.startswith(_OF_A_METHOD):
            return key in self._of_method[record.method_name]
        return key in (self._of_model[_model(record)] if key.startswith("model.") else self._of_any)


def _by(records: Sequence[RunRecord], name_of: Callable[[RunRecord], str]) -> dict[str, set[str]]:
    groups: dict[str, list[RunRecord]] = {}
    for record in records:
        groups.setdefault(name_of(record), []).append(record)
    return {name: set(differing_keys(group)) for name, group in groups.items()}


def _model(record: RunRecord) -> str:
    return str(record.config["model"]["name"])


def _numbers(group: Group) -> dict[str, float]:
    """Return the means over the seeds that finished; they are nan if none did."""
    quality = group.numbers(lambda record: record.quality)
    means = {"quality": quality.mean, "deviation": quality.deviation}
    for title, name in _COSTS.items():
        cost = QUANTITIES[name]
        is_known = group.made and not (cost.of_time and group.why_no_mean)
        means[title] = group.numbers(cost.of).mean if is_known else math.nan
    return means


def as_printed(frame: pd.DataFrame, records: Sequence[RunRecord]) -> pd.DataFrame:
    """Return the comparison as text, with the headline's name and unit over its column."""
    finished = next((record for record in records if record.finished), None)
    title, decimals = "quality", 2
    if finished is not None:
        title = finished.yardstick.label_with_unit(finished.yardstick.final)
        decimals = finished.yardstick.headline.decimals

    def number(value: float, digits: int) -> str:
        return "–" if pd.isna(value) else f"{value:,.{digits}f}"

    quality = [
        number(mean, decimals) + ("" if pd.isna(deviation) else f" ± {number(deviation, decimals)}")
        for mean, deviation in zip(frame["quality"].tolist(), frame["deviation"].tolist(), strict=True)
    ]
    out = {
        "method": frame["method"],
        "model": frame["model"],
        "settings": frame["settings"].replace("", "–"),
        title: quality,
        "seconds": [number(value, 1) for value in frame["seconds"]],
        "seconds an epoch": [number(value, 2) for value in frame["seconds an epoch"]],
        "candidates a row": [number(value, 0) for value in frame["candidates a row"]],
        "seeds": frame["seeds"].map(str),
        "status": frame["status"],
        "runs": frame["runs"],
    }
    if (frame["status"] == FINISHED).all():
        del out["status"]
    if frame["model"].nunique() == 1:
        del out["model"]
    return pd.DataFrame(out)

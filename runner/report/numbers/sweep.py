"""Tabulate a sweep: the settings that differ between runs, and each combination's quality and costs."""

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from runner.errors import ConfigError
from runner.options.conversion import did_you_mean
from runner.options.settings import flat
from runner.report.numbers.group import Group, Origins
from runner.report.numbers.quantities import QUANTITIES, Quantity, metric
from runner.report.numbers.records import RunRecord

ORIGIN = "origin"
_COSTS = ("seconds_per_epoch", "train_seconds", "candidates_per_row", "peak_rss_mb")


def families(records: Sequence[RunRecord]) -> dict[tuple[str, str], list[RunRecord]]:
    """Group runs by (data set, method), because settings are comparable only within a group."""
    out: dict[tuple[str, str], list[RunRecord]] = {}
    for record in records:
        if record.config:
            out.setdefault((record.config["dataset"]["name"], record.method_name), []).append(record)
    return out


def differing_keys(records: Sequence[RunRecord]) -> list[str]:
    """Return the keys whose values differ between runs, the seed aside.

    A setting that a run lacks is newer than the run. It differs only if another run has another value than the default.
    """
    settings = [flat(record.config) for record in records]
    set_by_some = {key for record in records for key in flat(record.identity)}
    values: dict[str, set[str]] = {}
    for key, value in (item for setting in settings for item in setting.items()):
        values.setdefault(key, set()).add(exact(value))
    lacking = {key for key in values if any(key not in setting for setting in settings)} & set_by_some
    return [key for key, found in values.items() if key != "seed" and (len(found) > 1 or key in lacking)]


def telling_keys(records: Sequence[RunRecord], keys: Sequence[str]) -> list[str]:
    """Return those of ``keys``, in order, that tell runs apart which the keys before them do not tell apart."""
    settings = [flat(record.config) for record in records]
    parts: list[tuple[str, ...]] = [()] * len(settings)
    telling = []
    for key in keys:
        finer = [(*part, exact(setting.get(key))) for part, setting in zip(parts, settings, strict=True)]
        if len(set(finer)) > len(set(parts)):
            parts = finer
            telling.append(key)
    return telling


def setting_text(record: RunRecord, keys: Sequence[str]) -> str:
    """Return settings of a run as text, such as ``K=9 L=50 loss=gbce``; those that it does not have are left out."""
    setting = flat(record.config)
    return " ".join(
        f"{key.removesuffix('.name').rpartition('.')[2]}={exact(setting[key])}" for key in keys if key in setting
    )


def sweep_table(records: Sequence[RunRecord], keys: Sequence[str]) -> pd.DataFrame:
    """Return one row per combination of the settings that differ, with means over seeds; ``keys`` come first.

    Means are over the finished runs; of how many of the seeds, the column ``seeds`` tells (``2 of 3``). Runs of other
    data, of another state of a plugin or of other numbers of the runner have rows of their own, which a column
    ``origin`` then tells apart. Raises ConfigError for a key that no run has.
    """
    known = dict.fromkeys(key for record in records for key in flat(record.config))
    for key in keys:
        if key not in known:
            raise ConfigError(f"--keys: no setting '{key}' in these runs{did_you_mean(key, known)}")
    columns = [*keys, *(key for key in differing_keys(records) if key not in keys)]
    shown = [*metrics_of(records), *(QUANTITIES[name] for name in _COSTS)]
    groups: dict[tuple[str, ...], list[RunRecord]] = {}
    values: dict[tuple[str, ...], dict[str, Any]] = {}
    origins = Origins(records)
    is_told = any(map(origins.text, records))
    for record in records:
        setting = flat(record.config)
        combination = {key: setting.get(key) for key in columns}
        combination |= {ORIGIN: origins.text(record)} if is_told else {}
        name = tuple(map(repr, combination.values()))
        groups.setdefault(name, []).append(record)
        values[name] = combination
    rows = []
    for name, group in groups.items():
        alike = Group(records=tuple(group))
        row = {**values[name], **_means(alike, shown)}
        rows.append({**row, "seeds": alike.seeds, "status": alike.status, "runs": alike.short_ids})
    columns += [ORIGIN] if is_told else []
    return pd.DataFrame(rows).sort_values(columns, key=_sortable, ignore_index=True) if columns else pd.DataFrame(rows)


def metrics_of(records: Sequence[RunRecord]) -> list[Quantity]:
    """Return every metric that a finished run has, the headline on the test set first."""
    finished = next((record for record in records if record.finished), None)
    if finished is None:
        return []
    names = dict.fromkeys([finished.yardstick.final, *finished.summary["metrics"]])
    return [metric(name, finished.yardstick) for name in names]


def _means(group: Group, shown: Sequence[Quantity]) -> dict[str, float]:
    """Return the means over finished runs by column title; they are nan if none finished."""
    means = {}
    for quantity in shown:
        is_known = group.made and not (quantity.of_time and group.why_no_mean)
        means[quantity.title()] = group.numbers(quantity.of).mean if is_known else math.nan
    return means


def _sortable(column: pd.Series) -> pd.Series:
    numbers = pd.to_numeric(column, errors="coerce")
    return column.map(str) if numbers.isna().any() else numbers


def pivots(table: pd.DataFrame, keys: Sequence[str], records: Sequence[RunRecord]) -> dict[str, pd.DataFrame]:
    """Return headline and seconds as grids of the first key by the second; {} unless exactly these two keys differ."""
    if ORIGIN in table or len(keys) != 2 or set(differing_keys(records)) - set(keys) or not metrics_of(records):
        return {}
    titles = [quantity.title() for quantity in (metrics_of(records)[0], QUANTITIES["seconds_per_epoch"])]
    return {title: table.pivot(index=keys[0], columns=keys[1], values=title) for title in titles}


def as_text(frame: pd.DataFrame, keys: Sequence[str] = ()) -> pd.DataFrame:
    """Format numbers as printed, and the settings in the columns ``keys`` exactly; a dash is a missing number."""

    def text(value: Any) -> str:
        if isinstance(value, float):
            return "–" if pd.isna(value) else f"{value:,.2f}"
        return str(value)

    return frame.apply(lambda column: column.map(exact if column.name in keys else text))


def exact(value: Any) -> str:
    """Return a setting as one would type it, with all its digits: 0.001, 1e-05, true, null."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if not isinstance(value, float):
        return str(value)
    short = f"{value:.12g}"
    return short if float(short) == value else repr(value)

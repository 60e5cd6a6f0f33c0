"""This module tabulates a sweep: the settings that differ between runs, and each combination's quality and costs."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from runner.errors import ConfigError
from runner.options.conversion import did_you_mean
from runner.options.settings import flat
from runner.report.numbers.records import FINISHED, MIXTURE, RunRecord

COSTS = ("seconds per epoch", "training seconds", "candidates per row", "peak memory (MB)")


def families(records: Sequence[RunRecord]) -> dict[tuple[str, str], list[RunRecord]]:
    """Group runs by (data set, method), because settings are comparable only within a group."""
    out: dict[tuple[str, str], list[RunRecord]] = {}
    for record in records:
        if record.config:
            out.setdefault((record.config["dataset"]["name"], record.method_name), []).append(record)
    return out


def differing_keys(records: Sequence[RunRecord]) -> list[str]:
    """Return the keys whose values differ between runs, the seed aside."""
    settings = [flat(record.config) for record in records]
    keys = dict.fromkeys(key for setting in settings for key in setting)
    return [key for key in keys if key != "seed" and len({repr(s.get(key)) for s in settings}) > 1]


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

    A combination with a run that did not finish has that run's status and no numbers. Raises ConfigError for a key that
    no run has.
    """
    known = dict.fromkeys(key for record in records for key in flat(record.config))
    for key in keys:
        if key not in known:
            raise ConfigError(f"--keys: no setting '{key}' in these runs{did_you_mean(key, known)}")
    columns = [*keys, *(key for key in differing_keys(records) if key not in keys)]
    metrics = metrics_of(records)
    groups: dict[tuple[str, ...], list[RunRecord]] = {}
    values: dict[tuple[str, ...], dict[str, Any]] = {}
    for record in records:
        setting = flat(record.config)
        combination = {key: setting.get(key) for key in columns}
        name = tuple(map(repr, combination.values()))
        groups.setdefault(name, []).append(record)
        values[name] = combination
    rows = []
    for name, group in groups.items():
        unfinished = [record.status for record in group if not record.finished]
        row = dict(values[name])
        row |= dict.fromkeys((*metrics.values(), *COSTS), float("nan")) if unfinished else _measured(group, metrics)
        row |= {
            "seeds": len(group),
            "status": unfinished[0] if unfinished else finished_status(group),
            "runs": " ".join(record.short_id for record in group),
        }
        rows.append(row)
    return pd.DataFrame(rows).sort_values(columns, key=_sortable, ignore_index=True) if columns else pd.DataFrame(rows)


def finished_status(group: Sequence[RunRecord]) -> str:
    """Return the status of finished runs, which says if seconds are of two machines, or of runs beside others."""
    if any(record.is_mixture for record in group):
        return f"{FINISHED}; {MIXTURE}"
    at_once = max(record.parallel_jobs for record in group)
    return FINISHED if at_once == 1 else f"{FINISHED}, {at_once} runs at once, whose seconds are longer"


def metrics_of(records: Sequence[RunRecord]) -> dict[str, str]:
    """Return the column title of every metric that a finished run has, the headline on the test set first."""
    finished = next((record for record in records if record.finished), None)
    if finished is None:
        return {}
    yardstick = finished.yardstick
    names = dict.fromkeys([yardstick.final, *finished.summary["metrics"]])
    return {name: yardstick.label(name) + _unit(yardstick.measure(name).unit) for name in names}


def _unit(unit: str) -> str:
    return f" ({unit})" if unit else ""


def _measured(group: Sequence[RunRecord], metrics: Mapping[str, str]) -> dict[str, float]:
    per_run = [
        (
            *(record.scaled(name) for name in metrics),
            math.nan if record.is_mixture else record.seconds_per_epoch,
            math.nan if record.is_mixture else record.summary["train_seconds"],
            record.summary["candidates_per_row"],
            record.summary["peak_rss_mb"],
        )
        for record in group
    ]
    means = (statistics.fmean(column) for column in zip(*per_run, strict=True))
    return dict(zip((*metrics.values(), *COSTS), means, strict=True))


def _sortable(column: pd.Series) -> pd.Series:
    numbers = pd.to_numeric(column, errors="coerce")
    return column.map(str) if numbers.isna().any() else numbers


def pivots(table: pd.DataFrame, keys: Sequence[str], records: Sequence[RunRecord]) -> dict[str, pd.DataFrame]:
    """Return headline and seconds as grids of the first key by the second; {} unless exactly these two keys differ."""
    if len(keys) != 2 or set(differing_keys(records)) - set(keys) or not metrics_of(records):
        return {}
    headline = next(iter(metrics_of(records).values()))
    return {
        title: table.pivot(index=keys[0], columns=keys[1], values=title) for title in (headline, "seconds per epoch")
    }


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

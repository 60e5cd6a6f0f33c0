"""Plot finished runs that a user chooses: any metric against settings, seconds, steps or epochs.

One setting gives lines, two give a heat map, and what training counts gives curves; a frontier compares a metric with
seconds. Runs that differ in nothing but the seed are one point, their mean. There is a panel for each data set.

Legend: P points of a line.
"""

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pandas as pd

from runner.errors import ConfigError, RunnerError
from runner.methods.catalogue import label_of
from runner.options.conversion import did_you_mean
from runner.options.settings import flat
from runner.report.figures.axis_words import words_of
from runner.report.figures.curves import COST_SCALES, OBSERVED, Alike, drawn, line_by_value, mean_curve, values_scale
from runner.report.figures.frontier import frontier, settings_of_records
from runner.report.figures.heat_map import HeatMap, heat_maps
from runner.report.figures.panels import Line, Panel, Scale, figure_of
from runner.report.figures.style import Look, file_name, look_of_value, looks_of, styled
from runner.report.numbers.comparison import GROUPS
from runner.report.numbers.group import Origins
from runner.report.numbers.quantities import QUANTITIES, Quantity, headline, observed, quantity
from runner.report.numbers.records import RunRecord
from runner.report.numbers.sweep import differing_keys, exact, families, setting_text, telling_keys
from runner.report.spec.tables import Axis

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TRAINING: tuple[Axis, ...] = get_args(Axis)
_LOG_FROM = 8.0  # a setting whose values span this factor has a logarithmic axis


@dataclass(frozen=True, kw_only=True)
class Plot:
    """A figure and its data, with a row for each run and point."""

    figure: "Figure"
    data: pd.DataFrame
    name: str


def explore(records: Sequence[RunRecord], against: Sequence[str], metric: str = "", smooth: int = 1) -> Plot:
    """Plot a metric of finished runs against one or two settings, or against seconds, step or epoch.

    The metric is the headline if none is named. Raises RunnerError or ConfigError, with the valid names, for runs,
    keys and metrics that do not fit.
    """
    finished = _finished(records)
    if len(against) == 1 and against[0] in TRAINING:
        axis = next(name for name in TRAINING if name == against[0])
        return _courses(_comparable(finished) if axis == "seconds" else finished, axis, metric, smooth)
    if len(against) > 2 or set(against) & set(TRAINING):
        raise ConfigError(f"--against: name one of {', '.join(TRAINING)}, or one setting, or two for a heat map")
    if smooth != 1:
        raise ConfigError(f"--smooth: only with --against {', '.join(TRAINING)}")
    keys = [_key(key, finished) for key in against]
    shown = quantity(metric or headline(finished), finished)
    if shown.of_time:
        finished = _comparable(finished)
    return (_lines if len(keys) == 1 else _map)(finished, keys, shown)


def explore_frontier(records: Sequence[RunRecord], metric: str = "", keys: Sequence[str] = ()) -> Plot:
    """Plot a metric against the seconds of training, with the settings that none beats in both; errors as above.

    ``keys``: the settings that are written beside the points; without any, all that differ.
    """
    finished = _comparable(_finished(records))
    shown = quantity(metric or headline(finished), finished)
    if shown.name not in finished[0].summary["metrics"]:
        raise ConfigError(f"--metric {shown.name}: a frontier compares a metric with seconds, so that it needs no cost")
    full = [_key(key, finished) for key in keys]
    panels = {dataset: settings_of_records(mine, full, shown.name) for dataset, mine in _by_dataset(finished)}
    methods = dict.fromkeys(setting.method for settings in panels.values() for setting in settings)
    figure = frontier(panels, {method: label_of(method) for method in methods})
    rows = [
        {**_about(record), "setting": setting.text, "train_seconds": QUANTITIES["train_seconds"].of(record),
         "metric": shown.name, "value": shown.of(record)}
        for settings in panels.values() for setting in settings for record in setting.records
    ]  # fmt: skip
    return Plot(figure=figure, data=pd.DataFrame(rows), name=f"{file_name(shown.name)}-frontier")


# ---------------------------------------------------------------- the runs and their names


def _finished(records: Sequence[RunRecord]) -> list[RunRecord]:
    finished = [record for record in records if record.finished]
    if not finished:
        raise RunnerError("none of these runs is finished, so there is nothing to plot; python -m runner.runs list")
    return finished


def _comparable(records: Sequence[RunRecord]) -> list[RunRecord]:
    """Leave out runs whose seconds are no number, and say so. Raises RunnerError if none is left."""
    for why, count in Counter(record.why_no_seconds for record in records if record.why_no_seconds).items():
        print(f"left out: {count} of {len(records)} runs: {why}", file=sys.stderr)
    kept = [record for record in records if not record.why_no_seconds]
    if not kept:
        raise RunnerError("the seconds of these runs are no numbers (see above); plot against epoch or step")
    return kept


def _key(key: str, records: Sequence[RunRecord]) -> str:
    """Return the full name of a setting that differs between the runs. Raises ConfigError with those that do."""
    full = f"{key}.name" if key in GROUPS else key
    settings = [flat(record.config) for record in records]
    values = {name: {exact(setting[name]) for setting in settings if name in setting} for name in _names(settings)}
    differing = [name for name, found in values.items() if len(found) > 1]
    if full not in values:
        raise ConfigError(f"no setting '{key}' in these runs{did_you_mean(key, [*differing, *TRAINING])}")
    if full not in differing:
        (value,) = values[full]
        listed = ", ".join(differing) or "nothing"
        raise ConfigError(f"{key} is {value} in all of these runs; they differ in: {listed}")
    return full


def _names(settings: Sequence[dict[str, Any]]) -> dict[str, None]:
    return dict.fromkeys(name for setting in settings for name in setting)


def _by_dataset(records: Sequence[RunRecord]) -> list[tuple[str, list[RunRecord]]]:
    names = sorted({str(record.config["dataset"]["name"]) for record in records})
    return [(name, [record for record in records if record.config["dataset"]["name"] == name]) for name in names]


def _about(record: RunRecord) -> dict[str, Any]:
    return {
        "dataset": record.config["dataset"]["name"],
        "method": record.method_name,
        "seed": record.config["seed"],
        "run_id": record.run_id,
    }


def _alike(records: Sequence[RunRecord], keys: Sequence[str]) -> list[Alike]:
    """Group the runs of one data set that differ in nothing but the seed and ``keys``; each group is a line.

    If a key is a group's name (``sampler.name``), the group's own settings do not tell lines apart.
    """
    free = [key.removesuffix("name") for key in keys if key.endswith(".name")]
    free += ["loss."] if "sampler." in free else []
    by_method = "sampler." not in free and "batch_sampler." not in free
    lines: list[tuple[str, str, list[RunRecord]]] = []
    groups = families(records).items() if by_method else [(("", ""), list(records))]
    origins = Origins(records)
    for (_, method), mine in groups:
        differing = [key for key in differing_keys(mine) if key not in keys and not key.startswith(tuple(free))]
        telling = telling_keys(mine, differing)
        found: dict[str, list[RunRecord]] = {}
        for record in mine:
            found.setdefault(f"{setting_text(record, telling)} {origins.text(record)}".strip(), []).append(record)
        lines += [(method, text, alike) for text, alike in found.items()]
    looks = _looks([method for method, _, _ in lines])
    return [
        Alike(
            label=" ".join(filter(None, [label_of(method) if method else "", text])) or "all", method=method,
            records=tuple(alike), look=look,
        )
        for (method, text, alike), look in zip(lines, looks, strict=True)
    ]  # fmt: skip


def _looks(methods: Sequence[str]) -> list[Look]:
    """Return a look for each line: that of its method, or shades if all lines are of one method or of none."""
    if len(set(methods)) == 1 and len(methods) > 1:
        return [look_of_value(place, len(methods)) for place in range(len(methods))]
    own = looks_of(dict.fromkeys(methods))
    spare = looks_of(f"{method} {place}" for place, method in enumerate(methods))  # of further lines of a method
    return [
        own[method] if method not in methods[:place] else spare[f"{method} {place}"]
        for place, method in enumerate(methods)
    ]


# ---------------------------------------------------------------- against what training counts


def _courses(records: Sequence[RunRecord], against: Axis, metric: str, smooth: int) -> Plot:
    if smooth < 1 or smooth % 2 == 0:
        raise ConfigError("--smooth must be an odd number, at least 1")
    metric = observed(metric, records)
    yardstick = records[0].yardstick
    row, rows = [], []
    for dataset, mine in _by_dataset(records):
        alike = _alike(mine, [])
        found = [curve for line in alike if len((curve := mean_curve(line, against, metric, smooth)).cost_E)]
        row.append(
            Panel(
                title=dataset,
                lines=drawn(found, "full"),
                x=COST_SCALES[against],
                y=values_scale(
                    yardstick.label_with_unit(metric),
                    [curve.mean_E for curve in found],
                    higher_is_better=yardstick.measure(metric).higher_is_better,
                    noisy=smooth > 1,
                ),
            )
        )
        rows += [
            {**_about(record), "label": line.label, **{key: seen[key] for key in OBSERVED.values()},
             "metric": metric, "value": yardstick.measure(metric).scale * float(seen[metric])}
            for line in alike for record in line.records for seen in record.of_kind("evaluation")
        ]  # fmt: skip
    return Plot(figure=_drawn([row]), data=pd.DataFrame(rows), name=f"{file_name(metric)}-by-{against}")


def _drawn(rows: Sequence[Sequence[Panel]]) -> "Figure":

    with styled():
        return figure_of(rows)


# ---------------------------------------------------------------- against settings


def _lines(records: Sequence[RunRecord], keys: Sequence[str], shown: Quantity) -> Plot:
    (key,) = keys
    row, rows = [], []
    for dataset, mine in _by_dataset(records):
        places = _places(mine, key)
        lines = []
        for alike in _alike(mine, keys):
            lines.append(_line(alike, key, places, shown))
            rows += _rows(alike, keys, shown)
        x, y = _scale(words_of(key, mine), places), Scale(label=shown.title(", {}"))
        row.append(Panel(title=dataset, lines=tuple(lines), x=x, y=y))
    return Plot(figure=_drawn([row]), data=pd.DataFrame(rows), name=f"{file_name(shown.name)}-by-{file_name(key)}")


def _rows(alike: Alike, keys: Sequence[str], shown: Quantity) -> list[dict[str, Any]]:
    return [
        {
            **_about(record), "label": alike.label, **{key: flat(record.config).get(key) for key in keys},
            "metric": shown.name, "value": shown.of(record),
        }
        for record in alike.records
    ]  # fmt: skip


def _places(records: Sequence[RunRecord], key: str) -> dict[str, float]:
    """Return the values of a setting as text with their places on an axis: numbers where they are, words in order."""
    values = {exact(value): value for record in records if (value := flat(record.config).get(key)) is not None}
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values.values()):
        return dict(sorted(((text, float(value)) for text, value in values.items()), key=lambda pair: pair[1]))
    return {text: float(place) for place, text in enumerate(sorted(values))}


def _scale(label: str, places: dict[str, float]) -> Scale:
    low, high = min(places.values()), max(places.values())
    is_number = all(_is_number(text) for text in places)
    return Scale(
        label=label,
        is_log=is_number and low > 0 and high / low >= _LOG_FROM,
        ticks=tuple(places.values()),
        tick_texts=() if is_number else tuple(places),
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _line(alike: Alike, key: str, places: dict[str, float], shown: Quantity) -> Line:
    """Return the means over seeds by the setting. Runs that do not have it are a level."""
    found: dict[str | None, dict[int, float]] = {}
    for record in alike.records:
        value = flat(record.config).get(key)
        text = None if value is None else exact(value)
        seeds = found.setdefault(text, {})
        seed = int(record.config["seed"])
        if seed in seeds:
            raise RunnerError(
                f"{key}={text}: several of these runs have seed {seed}, and differ in further settings; choose some by"
                " --where"
            )
        seeds[seed] = shown.of(record)
    ends = {None if text is None else places[text]: list(seeds.values()) for text, seeds in found.items()}
    return line_by_value(alike.label, alike.look, ends, is_reference=None in found, breaks=False)


def _map(records: Sequence[RunRecord], keys: Sequence[str], shown: Quantity) -> Plot:
    with_both = [record for record in records if all(flat(record.config).get(key) is not None for key in keys)]
    maps, rows = [], []
    for dataset, mine in _by_dataset(with_both):
        values = [list(_places(mine, key)) for key in keys]
        for alike in _alike(mine, keys):
            found: dict[tuple[str, str], list[float]] = {}
            for record in alike.records:
                setting = flat(record.config)
                found.setdefault((exact(setting[keys[0]]), exact(setting[keys[1]])), []).append(shown.of(record))
            cells = {place: float(np.mean(values)) for place, values in found.items()}
            maps.append(HeatMap(title=f"{dataset}: {alike.label}", rows=values[0], columns=values[1], cells=cells))
            rows += _rows(alike, keys, shown)
    if not maps:
        raise RunnerError(f"none of these runs has both {keys[0]} and {keys[1]}")
    figure = heat_maps(maps, [words_of(key, with_both) for key in keys], shown.title(", {}"))
    name = f"{file_name(shown.name)}-by-{file_name(keys[0])}-{file_name(keys[1])}"
    return Plot(figure=figure, data=pd.DataFrame(rows), name=name)

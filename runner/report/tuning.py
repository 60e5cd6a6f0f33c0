"""This module chooses, for each data set and method, the value of a swept setting that validates best.

A table with ``tuned`` shows only the runs with the chosen values, so that every method is shown at its own best value.
The choice goes by validation rows alone: test numbers of the other values are never read.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from runner.errors import require
from runner.report.columns import yardstick_of
from runner.report.grids import PlannedRun
from runner.report.records import FINISHED, NOT_RUN, UNFINISHED, record_of, status_of
from runner.report.tables import TableSpec

AT_EDGE = "the value lies at an edge of the sweep; one beyond it may be better"


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The value chosen for a method on a data set.

    ``remark`` says what a reader has to know of it; it is empty if the best value lies inside a sweep that was run.
    """

    value: int | float
    remark: str


Choices = Mapping[tuple[str, str], Choice]  # by data set and method


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """What remains of a table once values are chosen: a grid without the sweep, and the runs of the chosen values."""

    spec: TableSpec
    runs: tuple[PlannedRun, ...]
    choices: Choices


def tune(spec: TableSpec, runs: Sequence[PlannedRun]) -> Tuned:
    """Choose the values; a table without ``tuned`` stays as it is.

    A value counts if all its seeds' runs have finished; a run that diverged rules its value out. Of equally good values
    the first one is chosen. If no value counts, the first one is shown with its status. Raises ConfigError if the runs
    have no validation set.
    """
    if spec.tuned is None or not runs:
        return Tuned(spec=spec, runs=tuple(runs), choices={})
    setting = spec.tuned.setting
    yardstick = yardstick_of(runs)
    require(
        yardstick.watched == "valid",
        f"table {spec.name}: tuned: these runs have no validation set to choose {setting} by",
    )
    groups: dict[tuple[str, str], dict[int | float, list[PlannedRun]]] = {}
    for run in runs:
        values = groups.setdefault((run.dataset, run.method), {})
        values.setdefault(dict(run.point)[setting], []).append(run)
    choices = {key: _choose(values, f"valid/{yardstick.headline.key}") for key, values in groups.items()}
    shown = [run for run in runs if dict(run.point)[setting] == choices[run.dataset, run.method].value]
    grid = dataclasses.replace(spec.grid, sweep=())
    return Tuned(
        spec=dataclasses.replace(spec, grid=grid, tuned=None),
        runs=tuple(dataclasses.replace(run, point=()) for run in shown),
        choices=choices,
    )


def _choose(values: Mapping[int | float, Sequence[PlannedRun]], metric: str) -> Choice:
    scores: dict[int | float, float] = {}
    waiting = 0
    for value, runs in values.items():
        statuses = {status_of(run) for run in runs}
        if statuses == {FINISHED}:
            scores[value] = fmean(record_of(run).metric(metric) for run in runs)
        waiting += any(status in (NOT_RUN, UNFINISHED) for status in statuses)
    if not scores:
        return Choice(value=next(iter(values)), remark="")
    first = record_of(next(run for value in scores for run in values[value]))
    best = (max if first.yardstick.measure(metric).higher_is_better else min)(scores.values())
    value = next(value for value, score in scores.items() if score == best)
    remarks = []
    if value in (min(values), max(values)) and len(values) > 1:
        remarks.append(AT_EDGE)
    if waiting:
        remarks.append(f"{waiting} of {len(values)} values are not run yet, and one of them may be better")
    return Choice(value=value, remark="; ".join(remarks))

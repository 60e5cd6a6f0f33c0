"""This module chooses, for each data set and method, the values of the swept settings that validate best.

A table with ``tuned`` shows only the runs with the chosen values, so that every method is shown at its own best. The
choice goes by validation rows alone: test numbers of the other values are never read.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from runner.errors import require
from runner.report.columns import yardstick_of
from runner.report.grids import PlannedRun, Point, point_text
from runner.report.records import FINISHED, NOT_RUN, UNFINISHED, record_of, status_of
from runner.report.tables import TableSpec

AT_EDGE = "{key} lies at an edge of the sweep; a value beyond it may be better"


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What was chosen for a method on a data set.

    ``remark`` says what a reader has to know of it; it is empty if the best values lie inside a sweep that was run.
    """

    point: Point
    remark: str

    @property
    def text(self) -> str:
        """Return the values, such as ``lr=0.003 K=9``, followed by the remark."""
        return point_text(self.point) + (f" ({self.remark})" if self.remark else "")


def sentences(choices: "Choices", spec: TableSpec) -> list[str]:
    """Return one sentence for each data set that says which values were chosen."""
    labels = {method.name: method.label for method in spec.grid.methods}
    out = []
    for dataset in spec.grid.datasets:
        mine = {method: choice for (name, method), choice in choices.items() if name == dataset.name}
        listed = [f"{labels[method]} {choice.text}" for method, choice in mine.items() if choice.point]
        out += [f"Chosen values on {dataset.label}: {', '.join(listed)}."] if listed else []
    return out


Choices = Mapping[tuple[str, str], Choice]  # by data set and method


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """What remains of a table once values are chosen: a grid without the sweep, and the runs of the chosen values."""

    spec: TableSpec
    runs: tuple[PlannedRun, ...]
    choices: Choices


def tune(spec: TableSpec, runs: Sequence[PlannedRun]) -> Tuned:
    """Choose the values; a table without ``tuned`` stays as it is.

    A combination of values counts if all its seeds' runs have finished; a run that diverged rules it out. Of equally
    good ones the first is chosen. If none counts, the first is shown with its status. Raises ConfigError if the runs
    have no validation set.
    """
    if not spec.tuned or not runs:
        return Tuned(spec=spec, runs=tuple(runs), choices={})
    yardstick = yardstick_of(runs)
    require(
        yardstick.watched == "valid",
        f"table {spec.name}: tuned: these runs have no validation set to choose by",
    )
    groups: dict[tuple[str, str], dict[Point, list[PlannedRun]]] = {}
    for run in runs:
        groups.setdefault((run.dataset, run.method), {}).setdefault(run.point, []).append(run)
    choices = {key: _choose(values, f"valid/{yardstick.headline.key}") for key, values in groups.items()}
    shown = [run for run in runs if run.point == choices[run.dataset, run.method].point]
    grid = dataclasses.replace(spec.grid, sweep=())
    return Tuned(
        spec=dataclasses.replace(spec, grid=grid, tuned=False),
        runs=tuple(dataclasses.replace(run, point=()) for run in shown),
        choices=choices,
    )


def _choose(candidates: Mapping[Point, Sequence[PlannedRun]], metric: str) -> Choice:
    scores: dict[Point, float] = {}
    waiting = 0
    for point, runs in candidates.items():
        statuses = {status_of(run) for run in runs}
        if statuses == {FINISHED}:
            scores[point] = fmean(record_of(run).metric(metric) for run in runs)
        waiting += any(status in (NOT_RUN, UNFINISHED) for status in statuses)
    if not scores:
        return Choice(point=next(iter(candidates)), remark="")
    first = record_of(next(run for point in scores for run in candidates[point]))
    best = (max if first.yardstick.measure(metric).higher_is_better else min)(scores.values())
    chosen = next(point for point, score in scores.items() if score == best)
    remarks = [AT_EDGE.format(key=key.rpartition(".")[2]) for key in _at_edge(chosen, candidates)]
    if waiting:
        remarks.append(f"{waiting} of {len(candidates)} values are not run yet, and one of them may be better")
    return Choice(point=chosen, remark="; ".join(remarks))


def _at_edge(chosen: Point, candidates: Iterable[Point]) -> list[str]:
    """Return the keys whose chosen value is the smallest or largest of those that were tried."""
    tried: dict[str, set[int | float]] = {}
    for point in candidates:
        for key, value in point:
            tried.setdefault(key, set()).add(value)
    return [key for key, value in chosen if len(tried[key]) > 1 and value in (min(tried[key]), max(tried[key]))]

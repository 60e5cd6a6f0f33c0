"""Choose, for each data set and method, the values of the swept settings that validate best.

A table with ``tuned`` shows only the runs with the chosen values, so that every method is shown at its own best. A
table of learning rates shows all values, and names the chosen ones. The choice goes by validation rows alone: test
numbers of the other values are never read.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from runner.errors import require
from runner.report.numbers.columns import yardstick_of
from runner.report.numbers.group import Group
from runner.report.numbers.records import FINISHED, NOT_RUN, UNFINISHED, record_of, status_of
from runner.report.spec.grids import PlannedRun, Point, point_text
from runner.report.spec.methods import Method
from runner.report.spec.tables import TableSpec

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
    """A table once values are chosen, and its runs: those of the chosen values, or all if the table lists the rates."""

    spec: TableSpec
    runs: tuple[PlannedRun, ...]
    choices: Choices


def tune(spec: TableSpec, runs: Sequence[PlannedRun]) -> Tuned:
    """Choose the values; a table stays as it is unless it is ``tuned`` or lists learning rates.

    A combination of values counts if all its seeds' runs have finished; a run that diverged rules it out. Of equally
    good ones the first is chosen. If none counts, the first is shown with its status. Raises ConfigError if the runs
    of a ``tuned`` table have no validation set.
    """
    if spec.kind == "learning_rates" and runs:
        return _listed(spec, runs)
    if not spec.tuned or not runs:
        return Tuned(spec=spec, runs=tuple(runs), choices={})
    yardstick = yardstick_of(runs)
    require(
        yardstick.watched == "valid",
        f"table {spec.name}: tuned: these runs have no validation set to choose by",
    )
    choices = {
        key: _choose(candidates, f"valid/{yardstick.headline.key}") for key, candidates in _candidates(runs).items()
    }
    shown = [run for run in runs if run.point == choices[run.dataset, run.method].point]
    grid = dataclasses.replace(spec.grid, sweep=())
    return Tuned(
        spec=dataclasses.replace(spec, grid=grid, tuned=False),
        runs=tuple(dataclasses.replace(run, point=()) for run in shown),
        choices=choices,
    )


Candidates = Mapping[Point, Sequence[PlannedRun]]  # the runs of each combination of values, one run for each seed


def _candidates(runs: Sequence[PlannedRun]) -> dict[tuple[str, str], Candidates]:
    """Return the candidates of each data set and method."""
    groups: dict[tuple[str, str], dict[Point, list[PlannedRun]]] = {}
    for run in runs:
        groups.setdefault((run.dataset, run.method), {}).setdefault(run.point, []).append(run)
    return {**groups}


def _listed(spec: TableSpec, runs: Sequence[PlannedRun]) -> Tuned:
    """Give every combination of other settings than the rate a row of its own; notes name what validates best."""
    yardstick = yardstick_of(runs)
    if yardstick.watched == "valid":
        choices = {
            key: _choose(candidates, f"valid/{yardstick.headline.key}")
            for key, candidates in _candidates(runs).items()
            if any(status_of(run) == FINISHED for same in candidates.values() for run in same)
        }
        spec = dataclasses.replace(spec, notes=(*spec.notes, *sentences(choices, spec)))
    rows = [_row(run) for run in runs]
    methods: dict[str, Method] = {}
    for method in spec.grid.methods:
        methods[method.name] = method
        for run, (row, other) in zip(runs, rows, strict=True):
            if run.method == method.name:
                label = f"{method.label}, {other}" if other else method.label
                methods[row.method] = dataclasses.replace(method, name=row.method, label=label)
    grid = dataclasses.replace(spec.grid, methods=tuple(methods.values()))
    return Tuned(spec=dataclasses.replace(spec, grid=grid), runs=tuple(row for row, _ in rows), choices={})


def _row(run: PlannedRun) -> tuple[PlannedRun, str]:
    """Return the run as one of a row that shares its settings but the rate, and these settings as text."""
    rate, *others = run.point
    text = point_text(tuple(others))
    return dataclasses.replace(run, method=f"{run.method} {text}".rstrip(), point=(rate,)), text


def _choose(candidates: Candidates, metric: str) -> Choice:
    scores: dict[Point, float] = {}
    waiting = 0
    for point, runs in candidates.items():
        statuses = {status_of(run) for run in runs}
        if statuses == {FINISHED}:
            scores[point] = Group.of_plan(runs).numbers(lambda record: record.metric(metric)).mean
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
    """Return the keys whose chosen number is the smallest or largest of those tried with the same other settings."""
    edges = []
    for key, value in chosen:
        others = [pair for pair in chosen if pair[0] != key]
        tried = [
            dict(point)[key]
            for point in candidates
            if [name for name, _ in point] == [name for name, _ in chosen]
            and [pair for pair in point if pair[0] != key] == others
        ]
        numbers = [number for number in tried if not isinstance(number, str)]
        if len(numbers) > 1 and value in (min(numbers), max(numbers)):
            edges.append(key)
    return edges

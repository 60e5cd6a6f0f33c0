"""Draw what training reaches, and when: metrics against seconds, iterations or epochs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from runner.report.figures.panels import Line, Panel, Scale, figure_of
from runner.report.figures.style import Look, file_name, look_of_value, looks_of_rows
from runner.report.numbers.group import Group, Numbers
from runner.report.numbers.learning import marked
from runner.report.numbers.records import record_of
from runner.report.spec.grids import Dataset, Grid, PlannedRun, point_text
from runner.report.spec.tables import Axis, TableSpec

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_ROWS = 2  # data sets in a figure with several horizontal axes
OBSERVED: dict[Axis, str] = {"seconds": "train_seconds", "step": "step", "epoch": "epoch"}  # keys of observations
COST_SCALES: dict[Axis, Scale] = {
    "seconds": Scale(label="seconds of training", is_log=True),
    "step": Scale(label="iterations", low=0.0, is_whole=True),
    "epoch": Scale(label="epochs", low=0.0, is_whole=True),
}


@dataclass(frozen=True, kw_only=True)
class Alike(Group):
    """Runs of one method that differ in nothing but the seed: they make one line."""

    label: str
    method: str
    look: Look


@dataclass(frozen=True, kw_only=True)
class Curve:
    """The mean over a line's seeds, as printed: at ``cost_E`` it is ``mean_E``, and deviates by ``deviation_E``.

    Legend: E evaluations that all seeds have.
    """

    line: Alike
    cost_E: np.ndarray
    mean_E: np.ndarray
    deviation_E: np.ndarray | None

    @property
    def is_of_one_step(self) -> bool:
        """Whether the method takes all data in one step, as counting does, so that it has an end but no course."""
        return all([seen["step"] for seen in record.of_kind("evaluation")] == [1] for record in self.line.records)


def drawn(found: Sequence[Curve], baseline: str) -> tuple[Line, ...]:
    """Return the lines of a panel; that of the grid's baseline is in every facet.

    Beside methods that train, one that takes all data in one step is a level: its point, at a fraction of a second,
    would leave the courses of the others a corner of the panel.
    """
    some_train = not all(curve.is_of_one_step for curve in found)
    return tuple(
        Line(
            label=curve.line.label, look=curve.line.look, x_P=curve.cost_E, y_P=curve.mean_E,
            deviation_P=curve.deviation_E, is_level=some_train and curve.is_of_one_step,
            is_reference=curve.line.method == baseline,
        )
        for curve in found
    )  # fmt: skip


def curves(spec: TableSpec, datasets: Sequence[Dataset], runs: Sequence[PlannedRun]) -> dict[str, "Figure"]:
    """Draw a figure for each metric, and in it a panel or more for each data set and kind of horizontal axis.

    Where there are several such axes, the panels of a data set are in a row, and a figure has two data sets at most:
    more of them have one each, as it would be too tall for a screen. A panel against seconds is left out if no run of
    its data set has seconds that count. Returns the figures by what tells them apart, as parts of a file's name: the
    metric, the data set, both or (as "") neither.
    """
    runs_of = {dataset.name: _lines(spec.grid, dataset, runs) for dataset in datasets}
    yardstick = runs_of[datasets[0].name][0].records[0].yardstick
    several = len(spec.against) > 1
    parts = [[dataset] for dataset in datasets] if several and len(datasets) > _MOST_ROWS else [datasets]
    figures = {}
    for metric in spec.metrics or (yardstick.curve,):
        for part in parts:
            rows = [
                [_panel(spec, dataset, runs_of[dataset.name], against, metric) for against in spec.against]
                for dataset in part
            ]
            if several:
                rows = [[panel for panel in row if panel.lines] or row[:1] for row in rows]
            names = [file_name(metric)] * (len(spec.metrics) > 1) + [part[0].name] * (len(parts) > 1)
            figures["_".join(names)] = figure_of(rows if several else [[panel for (panel,) in rows]])
    return figures


def _panel(spec: TableSpec, dataset: Dataset, lines: Sequence[Alike], against: Axis, metric: str) -> Panel:
    found = [mean_curve(line, against, metric, spec.smooth) for line in lines]
    found = [curve for curve in found if len(curve.cost_E)]
    yardstick = lines[0].records[0].yardstick
    return Panel(
        title=dataset.label,
        lines=drawn(found, spec.grid.baseline),
        x=COST_SCALES[against],
        y=values_scale(
            yardstick.label_with_unit(metric),
            [curve.mean_E for curve in found],
            higher_is_better=yardstick.measure(metric).higher_is_better,
            noisy=spec.smooth > 1,
        ),
    )


def _lines(grid: Grid, dataset: Dataset, runs: Sequence[PlannedRun]) -> list[Alike]:
    """Return a line for each method; a swept method has a line for each setting, coloured from light to dark."""
    looks = looks_of_rows(grid.methods)
    lines = []
    for method in grid.methods:
        points = grid.points(method.name)
        for place, point in enumerate(points):
            mine = tuple(
                record_of(run)
                for run in runs
                if run.dataset == dataset.name and run.method == method.name and run.point == point
            )
            if not mine:
                continue
            label = f"{method.label}, {point_text(point)}" if point else method.label
            look = looks[method.name]
            if len(points) > 1:
                look = look_of_value(place, len(points))
            lines.append(Alike(label=marked(label, mine), method=method.name, records=mine, look=look))
    return lines


def mean_curve(line: Alike, against: Axis, metric: str, smooth: int) -> Curve:
    """Return the mean over seeds, each of them smoothed, at the evaluations that all of them have.

    Where the clock asks for evaluations, seeds are measured at different steps: then each is interpolated linearly at
    the costs of the first seed's evaluations that all of them span. There are none against seconds if a run's seconds
    are no number.
    """
    scale = line.records[0].yardstick.measure(metric).scale
    each = [
        {epoch: (at, scale * y) for epoch, at, y in record.points(OBSERVED[against], metric)} for record in line.records
    ]
    shared = [epoch for epoch in each[0] if all(epoch in one for one in each)]
    if against == "seconds" and any(record.why_no_seconds for record in line.records):
        values = np.empty((len(each), 0, 2))
    elif len(shared) == min(map(len, each)):
        values = np.array([[one[epoch] for epoch in shared] for one in each]).reshape(len(each), -1, 2)
    else:
        values = at_the_same_costs([np.array(list(one.values())) for one in each])
    for one in values:
        one[:, 1] = running_median(one[:, 1], smooth)
    mean = values.mean(axis=0)
    return Curve(
        line=line,
        cost_E=mean[:, 0],
        mean_E=mean[:, 1],
        deviation_E=values[:, :, 1].std(axis=0, ddof=1) if len(each) > 1 else None,
    )


def at_the_same_costs(each: Sequence[np.ndarray]) -> np.ndarray:
    """Return the seeds' curves, each (its evaluations, 2) of cost and value, at the same costs: (seeds, E, 2)."""
    low, high = max(one[0, 0] for one in each), min(one[-1, 0] for one in each)
    cost_E = each[0][:, 0]
    cost_E = cost_E[(cost_E >= low) & (cost_E <= high)]
    return np.stack([np.stack([cost_E, np.interp(cost_E, one[:, 0], one[:, 1])], axis=1) for one in each])


def running_median(values_E: np.ndarray, width: int) -> np.ndarray:
    """Return the median of each value and its neighbours, ``width`` (odd) in all; fewer near the ends.

    At the start the neighbours are as many on both sides, so that a fall there is not blurred; at the end they are
    those before, so that the last value does not stand alone.
    """
    out_E = np.empty(len(values_E))
    for place in range(len(values_E)):
        reach = min(width // 2, place)
        out_E[place] = np.median(values_E[max(0, place - width // 2) : place + reach + 1])
    return out_E


def values_scale(label: str, values: Sequence[np.ndarray], *, higher_is_better: bool, noisy: bool = False) -> Scale:
    """Return the vertical axis for lines with these values.

    If higher is better and the values span most of the way from 0, the axis starts at 0. If lower is better and all
    values are positive, the axis is logarithmic and ends a little above the last value of the worst line, because the
    first epochs are far off; of noisy lines, all but the highest twentieth is in view.
    """
    if not values:
        return Scale(label=label)
    low, high = min(float(line.min()) for line in values), max(float(line.max()) for line in values)
    if higher_is_better:
        return Scale(label=label, low=0.0 if 0 <= low < high / 2 else None)
    if low <= 0:
        return Scale(label=label)
    if noisy:
        usual = max(float(np.quantile(line, 0.95)) for line in values)
        return Scale(label=label, is_log=True, low=0.98 * low, high=max(1.15 * low, 1.04 * usual))
    end = max(float(line[-1]) for line in values)
    return Scale(label=label, is_log=True, low=0.95 * low, high=max(2.2 * low, 1.25 * end))


def line_by_value(
    label: str,
    look: Look,
    ends: Mapping[float | None, Sequence[float]],
    *,
    is_reference: bool = False,
    breaks: bool = True,
) -> Line:
    """Return the line of means over seeds by the value of a setting; those without the setting are a level.

    A value with fewer seeds than another breaks the line, unless ``breaks`` is false: then deviations are left out if
    a value has one seed.
    """
    if None in ends:
        level = np.array([np.mean(ends[None])])
        return Line(label=label, look=look, x_P=level, y_P=level, is_level=True, is_reference=is_reference)
    seeds = max(map(len, ends.values()))
    values = sorted(value for value in ends if value is not None)
    found = [Numbers(tuple(ends[value])) for value in values]
    is_whole = [len(each.each) == seeds or not breaks for each in found]
    has_deviation = seeds > 1 if breaks else all(len(each.each) > 1 for each in found)
    return Line(
        label=label, look=look, x_P=np.array(values, dtype=float), is_reference=is_reference,
        y_P=np.array([each.mean if whole else np.nan for each, whole in zip(found, is_whole, strict=True)]),
        deviation_P=np.array([each.deviation if whole else np.nan for each, whole in zip(found, is_whole, strict=True)])
        if has_deviation else None,
    )  # fmt: skip

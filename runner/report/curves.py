"""This module draws what training reaches, and when: metrics against seconds, iterations or epochs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from runner.report.direct_labels import End, name_lines
from runner.report.figure_style import Look, looks_of_rows, new_figure, plain_log_ticks
from runner.report.grids import Dataset, Grid, PlannedRun, point_text
from runner.report.records import RunRecord, record_of
from runner.report.tables import Axis, TableSpec

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COSTS: dict[Axis, str] = {"seconds": "train_seconds", "step": "step", "epoch": "epoch"}  # in observations
_COST_LABELS: dict[Axis, str] = {"seconds": "seconds of training", "step": "iterations", "epoch": "epochs"}


@dataclass(frozen=True, kw_only=True)
class _Line:
    """A line shows runs of one method that differ in nothing but the seed."""

    label: str
    records: tuple[RunRecord, ...]
    look: Look


@dataclass(frozen=True, kw_only=True)
class _Curve:
    """The mean over a line's seeds, as printed: at ``cost_E`` it is ``mean_E``, and deviates by ``deviation_E``.

    ``single_E``: what was measured, if there is one seed and the mean is smoothed.

    Legend: E evaluations that all seeds have.
    """

    line: _Line
    cost_E: np.ndarray
    mean_E: np.ndarray
    deviation_E: np.ndarray | None
    single_E: np.ndarray | None


def curves(spec: TableSpec, datasets: Sequence[Dataset], runs: Sequence[PlannedRun]) -> "Figure":
    """Draw a column for each data set, and a row for each kind of horizontal axis and each metric."""
    lines = {dataset.name: _lines(spec.grid, dataset, runs) for dataset in datasets}
    yardstick = lines[datasets[0].name][0].records[0].yardstick
    metrics = spec.metrics or (yardstick.curve,)
    panels = [(against, metric) for against in spec.against for metric in metrics]
    beside = spec.names == "beside"
    figure, axes = new_figure(len(panels), len(datasets), width=5.8 if beside else 5.2, height=3.5)
    drawn: list[tuple[Axes, list[_Curve]]] = []
    for row, (against, metric) in enumerate(panels):
        for place, dataset in enumerate(datasets):
            axis = axes[row, place]
            found = [_mean(line, against, metric, spec.smooth) for line in lines[dataset.name]]
            found = [curve for curve in found if len(curve.cost_E)]
            for curve in found:
                _draw(axis, curve)
            _scale_cost(axis, against)
            _limit(axis, found, higher_is_better=yardstick.measure(metric).higher_is_better, noisy=spec.smooth > 1)
            axis.set_xlabel(_COST_LABELS[against])
            if row == 0:
                axis.set_title(dataset.label)
            if place == 0:
                axis.set_ylabel(yardstick.label_with_unit(metric))
            drawn.append((axis, found))
    if beside:
        name_lines(figure, [(axis, [_end(curve) for curve in found]) for axis, found in drawn])
    else:
        legend_below(figure, axes, columns=len(datasets))
    return figure


def _lines(grid: Grid, dataset: Dataset, runs: Sequence[PlannedRun]) -> list[_Line]:
    """Return a line for each method; a swept method has a line for each setting, coloured from light to dark."""
    import matplotlib
    from matplotlib.colors import to_hex

    shades = matplotlib.colormaps["viridis_r"]
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
                shade = to_hex(shades(0.1 + 0.9 * place / (len(points) - 1)))
                look = Look(shade, ("o", "s", "^", "D", "v", "P")[place % 6], "-")
            lines.append(_Line(label=label, records=mine, look=look))
    return lines


def _mean(line: _Line, against: Axis, metric: str, smooth: int) -> _Curve:
    """Return the mean over seeds, each of them smoothed, at the evaluations that all of them have.

    There are none against seconds if a run's seconds are no number.
    """
    scale = line.records[0].yardstick.measure(metric).scale
    each = [
        {epoch: (at, scale * y) for epoch, at, y in record.points(_COSTS[against], metric)} for record in line.records
    ]
    shared = [epoch for epoch in each[0] if all(epoch in one for one in each)]
    if against == "seconds" and any(record.why_no_seconds for record in line.records):
        shared = []
    values = np.array([[one[epoch] for epoch in shared] for one in each]).reshape(len(each), -1, 2)
    single_E = values[0, :, 1].copy() if smooth > 1 and len(each) == 1 else None
    for one in values:
        one[:, 1] = running_median(one[:, 1], smooth)
    mean = values.mean(axis=0)
    return _Curve(
        line=line,
        cost_E=mean[:, 0],
        mean_E=mean[:, 1],
        deviation_E=values[:, :, 1].std(axis=0, ddof=1) if len(each) > 1 else None,
        single_E=single_E,
    )


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


def _draw(axis: "Axes", curve: _Curve) -> None:
    """Draw the mean and, if there are several seeds, a band of one standard deviation."""
    look = curve.line.look
    if curve.deviation_E is not None:
        low, high = curve.mean_E - curve.deviation_E, curve.mean_E + curve.deviation_E
        axis.fill_between(curve.cost_E, low, high, color=look.colour, alpha=0.15, linewidth=0)
    if curve.single_E is not None:
        axis.plot(curve.cost_E, curve.single_E, color=look.colour, alpha=0.25, linewidth=0.6)
    axis.plot(
        curve.cost_E, curve.mean_E, color=look.colour, label=curve.line.label, linewidth=1.6, linestyle=look.linestyle,
        marker=look.marker, markersize=4.5, markevery=max(1, len(curve.cost_E) // 12),
    )  # fmt: skip


def _end(curve: _Curve) -> End:
    return End(curve.line.label, curve.line.look.colour, float(curve.cost_E[-1]), float(curve.mean_E[-1]))


def _scale_cost(axis: "Axes", against: Axis) -> None:
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    if against == "seconds":
        axis.set_xscale("log")
        plain_log_ticks(axis.xaxis)
        return
    axis.set_xlim(left=0)
    axis.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axis.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def _limit(axis: "Axes", drawn: Sequence[_Curve], *, higher_is_better: bool, noisy: bool) -> None:
    """Set the limits of the vertical axis.

    If higher is better and the values span most of the way from 0, the axis starts at 0. If lower is better and all
    values are positive, the axis is logarithmic and ends a little above the last value of the worst line, because the
    first epochs are far off; of noisy lines, all but the highest twentieth is in view.
    """
    if not drawn:
        return
    low = min(float(curve.mean_E.min()) for curve in drawn)
    high = max(float(curve.mean_E.max()) for curve in drawn)
    if higher_is_better and 0 <= low < high / 2:
        axis.set_ylim(bottom=0)
    elif not higher_is_better and low > 0:
        end = max(float(curve.mean_E[-1]) for curve in drawn)
        axis.set_yscale("log")
        if noisy:
            usual = max(float(np.quantile(curve.mean_E, 0.95)) for curve in drawn)
            axis.set_ylim(0.98 * low, max(1.15 * low, 1.04 * usual))
        else:
            axis.set_ylim(0.95 * low, max(2.2 * low, 1.25 * end))
        plain_log_ticks(axis.yaxis)


def legend_below(figure: "Figure", axes: np.ndarray, *, columns: int) -> None:
    """Draw one legend for all panels, below them, in the order of the lines."""
    handles = {
        label: handle for axis in axes.flat for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        list(handles.values()), list(handles), loc="outside lower center", ncols=min(len(handles), 3 * columns)
    )

"""Draw which method is first at which level: the best quality so far against seconds, a line for each method.

Legend: E evaluations that all seeds have.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from runner.report.figures.curves import COST_SCALES, OBSERVED, at_the_same_costs
from runner.report.figures.direct_labels import End, name_lines
from runner.report.figures.style import Look, looks_of_rows, new_figure, plain_log_ticks, plain_ticks
from runner.report.numbers.levels import PERCENTS, Courses, level
from runner.report.spec.grids import Grid
from runner.report.spec.tables import Axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LOWEST = 65  # percent of full softmax's best that the figure begins at
_AXES: dict[str, Axis] = {"seconds": "seconds", "steps": "step"}
_ROOM = 0.5  # of the width of the lines, left of them, where the names of the first stand


@dataclass(frozen=True, kw_only=True)
class _Line:
    """The mean over seeds of the best value so far, as printed, at costs that all seeds span."""

    method: str
    cost_E: np.ndarray
    value_E: np.ndarray


@dataclass(frozen=True, kw_only=True)
class First:
    """The method that is first at a level, what it paid, and the level's value as printed, all as means over seeds."""

    percent: int
    method: str
    paid: float
    value: float


def firsts(courses: Courses) -> list[First]:
    """Return who is first at each level of full softmax; levels that no method reaches with every seed have none."""
    found = []
    for percent in PERCENTS:
        ranking = courses.ranking(percent)
        if ranking:
            method, paid = ranking[0]
            found.append(First(percent=percent, method=method, paid=paid.mean, value=value_of(courses, percent)))
    return found


def value_of(courses: Courses, percent: int) -> float:
    """Return the value of a level of full softmax as it is printed, the mean over seeds."""
    goals = courses.goals["full"].values()
    rising = courses.measure.higher_is_better
    return float(np.mean([level(best, percent, higher_is_better=rising) for best in goals])) * courses.measure.scale


def levels_figure(courses: Courses, grid: Grid, quality: str) -> "Figure | None":
    """Draw the lines of a data set, mark who is first at each level and name it; None without anything to draw.

    ``quality`` is the label of the vertical axis. Methods that are first somewhere, and full softmax, stand out.
    """
    lines = [line for method in courses.methods if (line := _line(courses, method)) is not None]
    if not lines or not courses.goals["full"]:
        return None
    first, axis_name = firsts(courses), _AXES[courses.clock]
    looks = looks_of_rows(grid.methods)
    labels = short_labels(grid, [line.method for line in lines])
    figure, axes = new_figure(1, 1, width=8.4, height=4.6)
    axis = axes[0, 0]
    scale = COST_SCALES[axis_name]
    axis.set_xscale("log")
    _limit(axis, courses, lines)
    for line in lines:
        _draw(axis, line, looks[line.method], stands_out=line.method in {courses.baseline, *(f.method for f in first)})
    _mark(axis, first, looks, labels, courses)
    axis.set_xlabel(scale.label if axis_name == "seconds" else f"{scale.label} (seconds were not measured)")
    axis.set_ylabel(quality[0].upper() + quality[1:])
    axis.set_title(f"{grid.dataset(courses.dataset).label}: who is first at a share of full softmax's best")
    plain_log_ticks(axis.xaxis)
    plain_ticks(axis.yaxis)
    ends = [
        End(labels[line.method], looks[line.method].colour, float(line.cost_E[-1]), float(line.value_E[-1]))
        for line in lines
        if _is_in_view(axis, line)
    ]
    name_lines(figure, [(axis, ends)])
    return figure


def _line(courses: Courses, method: str) -> _Line | None:
    """Return the method's line; None if a seed has no course, or none against what methods are compared by."""
    found = [courses.courses.get((method, seed)) for seed in courses.seeds(method)]
    each = [_so_far(course, courses) for course in found if course is not None]
    if len(each) < len(found) or any(np.isnan(one[:, 0]).any() for one in each):
        return None
    cost_E, value_E = at_the_same_costs(each).mean(axis=0).T
    return _Line(method=method, cost_E=cost_E, value_E=courses.measure.scale * value_E)


def _so_far(course: pd.DataFrame, courses: Courses) -> np.ndarray:
    """Return the costs and the best values so far of a run, (E, 2)."""
    best = course["value"].cummax() if courses.measure.higher_is_better else course["value"].cummin()
    return np.stack([course[OBSERVED[_AXES[courses.clock]]], best], axis=1).astype(float)


def _limit(axis: "Axes", courses: Courses, lines: Sequence[_Line]) -> None:
    """Show what lies between the lowest level of interest and a little more than the best that any method reaches."""
    rising = courses.measure.higher_is_better
    far, full = value_of(courses, _LOWEST), value_of(courses, 100)
    best = (max if rising else min)([full, *(float(line.value_E[-1]) for line in lines)])
    edge = best + 0.04 * (best - far)
    axis.set_ylim(min(far, edge), max(far, edge))
    inside = [cost for line in lines for cost in line.cost_E[(line.value_E >= far) == rising]]
    low, high = min(inside), max(line.cost_E[-1] for line in lines)
    axis.set_xlim(low / (high / low) ** _ROOM, high * 1.05)


def _is_in_view(axis: "Axes", line: _Line) -> bool:
    low, high = axis.get_ylim()
    return low <= line.value_E[-1] <= high


def _draw(axis: "Axes", line: _Line, look: Look, *, stands_out: bool) -> None:
    cost_E, value_E = line.cost_E, line.value_E
    if len(cost_E) == 1:  # a method that only counts is done after one pass
        axis.plot(cost_E, value_E, color=look.colour, marker=look.marker, markersize=6)
        axis.hlines(value_E, cost_E, axis.get_xlim()[1], color=look.colour, linewidth=1, linestyle=(0, (4, 3)))
        return
    axis.plot(
        cost_E, value_E, color=look.colour, linestyle=look.linestyle, linewidth=2.0 if stands_out else 1.0,
        alpha=1.0 if stands_out else 0.55, zorder=3 if stands_out else 2,
    )  # fmt: skip


def _mark(
    axis: "Axes", first: Iterable[First], looks: Mapping[str, Look], labels: Mapping[str, str], courses: Courses
) -> None:
    """Draw the levels as dotted lines, and on each of them who is first there, and when."""
    from matplotlib.patheffects import withStroke

    low, high = axis.get_ylim()
    left = axis.get_xlim()[0]
    reached = {found.percent: found for found in first}
    bordered = [withStroke(linewidth=2.5, foreground="white")]
    axis.plot(
        [found.paid for found in reached.values()], [found.value for found in reached.values()], color="#777777",
        linewidth=1.2, drawstyle="steps-post", zorder=4,
    )  # fmt: skip
    for percent in PERCENTS:
        value = value_of(courses, percent)
        axis.axhline(value, color="#999999", linewidth=0.8, linestyle=(0, (1, 2)), zorder=1)
        found = reached.get(percent)
        share = f"{percent} %" if courses.measure.higher_is_better else f"+{100 - percent} %"
        if found is None:
            axis.text(
                left, value, f" {share}: nobody with every seed", fontsize=8.5, color="#555555", va="bottom",
                path_effects=bordered,
            )  # fmt: skip
            continue
        axis.plot(
            found.paid, value, marker="o", markersize=8, color=looks[found.method].colour, markeredgecolor="white",
            markeredgewidth=1.2, zorder=5,
        )  # fmt: skip
        axis.text(
            left, value + 0.004 * (high - low), f" {share}: {labels[found.method]}, {_amount(found.paid, courses)}",
            fontsize=8.5, color=looks[found.method].colour, va="bottom", zorder=6,
            path_effects=bordered,
        )  # fmt: skip


def _amount(paid: float, courses: Courses) -> str:
    if courses.clock == "steps":
        return f"{paid:,.0f} steps"
    return f"{paid:,.{2 if paid < 1 else 1}f} s"


def short_labels(grid: Grid, shown: Collection[str]) -> dict[str, str]:
    """Return the label of each method, without what stands in brackets behind it unless that tells shown ones apart."""
    short = {method.name: method.label.partition(" (")[0] for method in grid.methods}
    names = [short[method] for method in short if method in shown]
    return {
        method.name: method.label if names.count(short[method.name]) > 1 else short[method.name]
        for method in grid.methods
    }

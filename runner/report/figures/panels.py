"""Lay lines out in panels: at most seven lines in each, named beside their ends, and few panels abreast.

A panel with more lines becomes several of the same axes, its facets. Each of them shows the reference lines (full
softmax, usually), so that lines of different facets compare.

Legend: P points of a line.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from runner.report.figures.direct_labels import End, name_lines
from runner.report.figures.style import Look, new_figure, plain_log_ticks, plain_number, plain_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

T = TypeVar("T")
MOST_LINES = 7
MOST_ABREAST = 2  # panels of a row; more go below
_LETTER = 0.07  # inches of width for a letter of a name
_MARKERS = 12  # of a line of many points


@dataclass(frozen=True, kw_only=True, eq=False)
class Line:
    """A line of a panel, ``y_P`` against ``x_P``, with a band of one deviation if there is one.

    A level has one point: it goes across the panel, dashed. ``is_reference``: the line is in every facet.
    """

    label: str
    look: Look
    x_P: np.ndarray
    y_P: np.ndarray
    deviation_P: np.ndarray | None = None
    is_level: bool = False
    is_reference: bool = False


@dataclass(frozen=True, kw_only=True)
class Scale:
    """An axis: its label, whether it is logarithmic, its limits, and its ticks if they are not found by themselves.

    ``tick_texts``: what is written at the ticks, if it is not their numbers.
    """

    label: str
    is_log: bool = False
    low: float | None = None
    high: float | None = None
    ticks: tuple[float, ...] = ()
    tick_texts: tuple[str, ...] = ()
    is_whole: bool = False


@dataclass(frozen=True, kw_only=True)
class Panel:
    """Lines over the same axes. ``has_key``: they are named by a key inside, because all of them end at one point."""

    title: str
    lines: tuple[Line, ...]
    x: Scale
    y: Scale
    has_key: bool = False


def facets(panel: Panel) -> list[Panel]:
    """Return panels of at most seven lines, all of the same axes; lines keep their order and are shared out evenly."""
    always = tuple(line for line in panel.lines if line.is_reference)
    others = [line for line in panel.lines if not line.is_reference]
    if len(panel.lines) <= MOST_LINES:
        return [panel]
    groups = shared_out(others, MOST_LINES - len(always))
    return [
        replace(panel, title=f"{panel.title} ({place} of {len(groups)})".lstrip(), lines=(*always, *group))
        for place, group in enumerate(groups, start=1)
    ]


def shared_out(items: Sequence[T], most: int) -> list[Sequence[T]]:
    """Return consecutive groups of at most ``most`` items, as few and as even as possible, the longer ones first."""
    count = -(-len(items) // most)
    ends = [-(-place * len(items) // count) for place in range(count + 1)]
    return [items[begin:end] for begin, end in itertools.pairwise(ends)]


def figure_of(
    rows: Sequence[Sequence[Panel]], *, width: float = 4.4, height: float = 3.3, most: int = MOST_ABREAST
) -> "Figure":
    """Draw rows of at most ``most`` panels; ``width`` and ``height`` are inches per panel, without names beside it."""
    grid: list[list[Panel]] = []
    shared: list[list[Panel]] = []
    for row in rows:
        split = [facets(panel) for panel in row]
        shared += split
        grid += abreast(split, most)
    columns = max(map(len, grid))
    beside = [line.label for row in rows for panel in row if not panel.has_key for line in panel.lines]
    width += _LETTER * max(map(len, beside), default=0)
    figure, axes = new_figure(len(grid), columns, width=width, height=height)
    placed: dict[int, Axes] = {}
    for place, panels in enumerate(grid):
        for column in range(columns):
            axis = axes[place, column]
            if column >= len(panels):
                axis.set_axis_off()
                continue
            draw_panel(axis, panels[column])
            is_told = column > 0 and panels[column].y.label == panels[column - 1].y.label
            axis.set_ylabel("" if is_told else panels[column].y.label)
            placed[id(panels[column])] = axis
    for parts in shared:
        _share_limits([placed[id(part)] for part in parts])
    drawn = [(placed[id(panel)], panel) for panels in grid for panel in panels]
    for axis, panel in drawn:
        set_ticks(axis, panel)
        if panel.has_key:
            _write_key(axis)
    ends = [(axis, [_end(axis, line) for line in panel.lines]) for axis, panel in drawn if not panel.has_key]
    if ends:
        name_lines(figure, ends)
    return figure


def abreast(split: Sequence[Sequence[Panel]], most: int) -> list[list[Panel]]:
    """Return the rows of a figure for panels that are split into facets.

    All are in one row if they fit. Otherwise the facets of a panel have rows of their own, and panels without facets
    are shared out evenly.
    """
    if sum(map(len, split)) <= most:
        return [[part for parts in split for part in parts]]
    if all(len(parts) == 1 for parts in split):
        return [list(group) for group in shared_out([parts[0] for parts in split], most)]
    return [list(group) for parts in split for group in shared_out(parts, most)]


def draw_panel(axis: "Axes", panel: Panel) -> None:
    """Draw the lines and set scales, limits, title and labels; ticks come when all limits are final."""
    for line in panel.lines:
        _draw(axis, line, x_is_log=panel.x.is_log)
    for scale, set_scale in ((panel.x, axis.set_xscale), (panel.y, axis.set_yscale)):
        if scale.is_log:
            set_scale("log")
    axis.set_xlim(left=panel.x.low, right=panel.x.high)
    axis.set_ylim(bottom=panel.y.low, top=panel.y.high)
    axis.set_title(panel.title)
    axis.set_xlabel(panel.x.label)
    axis.set_ylabel(panel.y.label)


def _draw(axis: "Axes", line: Line, *, x_is_log: bool) -> None:
    look = line.look
    if line.is_level:
        axis.axhline(float(line.y_P[0]), color=look.colour, linewidth=1.4, linestyle=(0, (4, 3)))
        return
    if line.deviation_P is not None:
        low, high = line.y_P - line.deviation_P, line.y_P + line.deviation_P
        axis.fill_between(line.x_P, low, high, color=look.colour, alpha=0.15, linewidth=0)
    axis.plot(
        line.x_P, line.y_P, color=look.colour, linewidth=1.6, linestyle=look.linestyle, marker=look.marker,
        markersize=4.5, markevery=_marked(line.x_P, is_log=x_is_log), label=line.label,
    )  # fmt: skip


def _marked(x_P: np.ndarray, *, is_log: bool) -> list[int]:
    """Return the points that have a marker: all of a few, otherwise the nearest to places that are evenly apart."""
    if len(x_P) <= 2 * _MARKERS:
        return list(range(len(x_P)))
    with np.errstate(divide="ignore"):  # what lies at 0 is nowhere on a logarithmic axis
        place_P = np.log(x_P) if is_log else x_P
    seen_P = place_P[np.isfinite(place_P)]
    wanted = np.linspace(seen_P[0], seen_P[-1], _MARKERS)
    return np.unique(np.abs(place_P[:, None] - wanted).argmin(axis=0)).tolist()


def _end(axis: "Axes", line: Line) -> End:
    if line.is_level:
        return End(line.label, line.look.colour, axis.get_xlim()[1], float(line.y_P[0]))
    finite = np.flatnonzero(np.isfinite(line.y_P))
    last = finite[-1] if len(finite) else -1
    return End(line.label, line.look.colour, float(line.x_P[last]), float(line.y_P[last]))


def _write_key(axis: "Axes") -> None:
    """Name the lines at the upper left, where lines that end at the upper right leave room, the highest one first."""
    named = [line for line in axis.get_lines() if not str(line.get_label()).startswith("_")]
    named.sort(key=lambda line: -float(np.nanmean(np.asarray(line.get_ydata(), dtype=float))))
    axis.legend(named, [str(line.get_label()) for line in named], loc="upper left", fontsize=8.5)


def _share_limits(axes: Sequence["Axes"]) -> None:
    lows, highs = zip(*(axis.get_ylim() for axis in axes), strict=True)
    lefts, rights = zip(*(axis.get_xlim() for axis in axes), strict=True)
    for axis in axes:
        axis.set_ylim(min(lows), max(highs))
        axis.set_xlim(min(lefts), max(rights))


def set_ticks(axis: "Axes", panel: Panel) -> None:
    """Set the ticks, once the limits are final."""
    from matplotlib.ticker import MaxNLocator, NullLocator

    scales: tuple[tuple[Scale, Any, Callable[..., Any]], ...] = (
        (panel.x, axis.xaxis, axis.set_xticks),
        (panel.y, axis.yaxis, axis.set_yticks),
    )
    for scale, ruler, place_ticks in scales:
        if scale.ticks:
            place_ticks(scale.ticks, scale.tick_texts or [plain_number(tick) for tick in scale.ticks])
            ruler.set_minor_locator(NullLocator())
        elif scale.is_log:
            plain_log_ticks(ruler)
        else:
            if scale.is_whole:
                ruler.set_major_locator(MaxNLocator(6, integer=True))
            plain_ticks(ruler)

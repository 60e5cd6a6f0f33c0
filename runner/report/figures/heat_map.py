"""Draw a number by two swept settings as a map of coloured cells, with the number in each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import TYPE_CHECKING

import numpy as np

from runner.report.figures.style import new_figure, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DARK = 0.55  # share of the way from the lowest to the highest number, above which cells are light
_ABREAST = 2


@dataclass(frozen=True, kw_only=True)
class HeatMap:
    """A map's title, the values of both keys in order, and its numbers by values of the first and the second key."""

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    cells: Mapping[tuple[str, str], float]


def heat_maps(maps: Sequence[HeatMap], counts: Sequence[str], label: str) -> "Figure":
    """Draw maps with the number in each cell; ``label`` names it, and ``counts`` what rows and columns count.

    Colours go from each map's lowest to its highest. They also differ in lightness, so that they compare in grey. A
    combination without a number is blank.
    """

    across = min(_ABREAST, len(maps))
    down = -(-len(maps) // across)
    columns, rows = max(len(each.columns) for each in maps), max(len(each.rows) for each in maps)
    with styled():
        figure, axes = new_figure(down, across, width=1.8 + 0.75 * columns, height=1.4 + 0.42 * rows)
        for axis in axes.flat[len(maps) :]:
            axis.set_axis_off()
        for axis, each in zip(axes.flat, maps, strict=False):
            _draw(axis, each)
            axis.set(xlabel=counts[1], ylabel=counts[0])
        figure.suptitle(label, fontsize=11)
    return figure


def _draw(axis: "Axes", each: HeatMap) -> None:
    grid = np.array([[each.cells.get((row, column), np.nan) for column in each.columns] for row in each.rows])
    low, high = np.nanmin(grid), np.nanmax(grid)
    axis.imshow(grid, cmap="viridis", aspect="auto")
    axis.grid(visible=False)
    axis.set_title(fill(each.title, 20 + 10 * len(each.columns)), fontsize=10)
    axis.set_xticks(range(len(each.columns)), each.columns)
    axis.set_yticks(range(len(each.rows)), each.rows)
    for (row, column), value in np.ndenumerate(grid):
        if np.isfinite(value):
            is_light = high > low and (value - low) / (high - low) > _DARK
            colour = "#000000" if is_light else "#FFFFFF"
            axis.text(column, row, _short(value), ha="center", va="center", fontsize=8.5, color=colour)


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"

"""This module names lines beside their ends, where a reader needs no legend to tell them apart.

Legend: N lines of a panel, 2 the horizontal and the vertical coordinate.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Annotation

_FONT, _HEIGHT = 8.5, 11.0  # points: size of a name, and the least distance of two names
_PLACE = 1.04  # of a name, in widths of the axes


class End(NamedTuple):
    """The end of a line in the units of its axes, with the line's name and colour."""

    name: str
    colour: str
    x: float
    y: float


def name_lines(figure: "Figure", ends: Sequence[tuple["Axes", Sequence[End]]]) -> None:
    """Write the names of each panel's lines right of it, and join each to its line's end by a thin line.

    A name is as high as its line ends, but so that no two overlap; names that are moved keep the order of the ends,
    except where the thin lines would cross. The layout of the figure is final after this.
    """
    named = [(axis, [_annotate(axis, end) for end in its]) for axis, its in ends]
    figure.draw_without_rendering()  # this makes room for the names, and where lines end is final only then
    figure.set_layout_engine("none")
    for axis, names in named:
        height, width = (float(side) * 72 / figure.dpi for side in (axis.bbox.height, axis.bbox.width))
        inverse = axis.transAxes.inverted()
        ends_N2 = np.array([inverse.transform(axis.transData.transform(name.xy)) for name in names]) * (width, height)
        places = apart(sorted(ends_N2[:, 1].tolist()), height)
        for name, place in zip(names, without_crossings(ends_N2, np.array(places), _PLACE * width), strict=True):
            name.set_position((_PLACE, place / height))


def _annotate(axis: "Axes", end: End) -> "Annotation":
    leader = {
        "arrowstyle": "-", "color": end.colour, "linewidth": 0.6, "alpha": 0.7, "shrinkA": 1, "shrinkB": 0,
        "relpos": (0, 0.5),
    }  # fmt: skip
    return axis.annotate(
        end.name, (end.x, end.y), xytext=(_PLACE, 0.5), textcoords="axes fraction", annotation_clip=False,
        ha="left", va="center", fontsize=_FONT, color=end.colour, arrowprops=leader,
    )  # fmt: skip


def apart(heights: Sequence[float], top: float) -> list[float]:
    """Return ascending heights, in points, moved so that they are apart and, if there is room, within 0 and ``top``."""
    placed = [max(0.0, height) for height in heights]
    for index in range(1, len(placed)):
        placed[index] = max(placed[index], placed[index - 1] + _HEIGHT)
    if placed and placed[-1] > top:
        placed[-1] = max(top, _HEIGHT * (len(placed) - 1))
        for index in range(len(placed) - 2, -1, -1):
            placed[index] = min(placed[index], placed[index + 1] - _HEIGHT)
    return placed


def without_crossings(ends_N2: np.ndarray, places_N: np.ndarray, x: float) -> np.ndarray:
    """Return each end's place of those at ``x``, in points, so that the lines to them are shortest in all.

    Two lines that crossed would be longer than those with their places exchanged, so none cross.
    """
    from scipy.optimize import linear_sum_assignment

    length_NN = np.hypot(x - ends_N2[:, :1], places_N[None, :] - ends_N2[:, 1:])
    _, chosen_N = linear_sum_assignment(length_NN)
    return places_N[chosen_N]

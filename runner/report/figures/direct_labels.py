"""Name lines beside their ends, where a reader needs no legend to tell them apart.

Legend: N lines of a panel.
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

    A name is as high as its line ends, but so that no two overlap. The layout of the figure is final after this.
    """
    named = [(axis, [_annotate(axis, end) for end in its]) for axis, its in ends]
    figure.draw_without_rendering()  # this makes room for the names, and where lines end is final only then
    figure.set_layout_engine("none")
    for axis, names in named:
        if not names:
            continue
        height = float(axis.bbox.height) * 72 / figure.dpi
        inverse = axis.transAxes.inverted()
        heights_N = np.array([height * inverse.transform(axis.transData.transform(name.xy))[1] for name in names])
        order_N = np.argsort(heights_N, kind="stable")
        for index, place in zip(order_N, apart(heights_N[order_N], height), strict=True):
            names[index].set_position((_PLACE, place / height))


def _annotate(axis: "Axes", end: End) -> "Annotation":
    leader = {
        "arrowstyle": "-", "color": end.colour, "linewidth": 0.6, "alpha": 0.7, "shrinkA": 1, "shrinkB": 0,
        "relpos": (0, 0.5),
    }  # fmt: skip
    return axis.annotate(
        end.name, (end.x, end.y), xytext=(_PLACE, 0.5), textcoords="axes fraction", annotation_clip=False,
        ha="left", va="center", fontsize=_FONT, color=end.colour, arrowprops=leader,
    )  # fmt: skip


def apart(heights_N: np.ndarray, top: float) -> np.ndarray:
    """Return ascending heights, in points, moved so that they are apart and, if there is room, within 0 and ``top``.

    They move as little as possible, by the sum of squares, so that names lie around the ends of their lines.
    """
    from scipy.optimize import isotonic_regression

    steps_N = _HEIGHT * np.arange(len(heights_N))
    lowest_N = isotonic_regression(heights_N - steps_N).x if len(heights_N) else steps_N
    return np.clip(lowest_N, 0, max(0, top - _HEIGHT * (len(heights_N) - 1))) + steps_N

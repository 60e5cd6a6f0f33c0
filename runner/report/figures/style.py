"""Say how figures look: style, sizes, axes, and each method's colour, marker and line."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from runner.methods.catalogue import Marker, known_methods
from runner.report.spec.methods import Method

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure


class Look(NamedTuple):
    """A method's appearance in figures: matplotlib's colour, marker and line style."""

    colour: str
    marker: Marker
    linestyle: Any = "-"


_MORE = (  # for methods that are not in the catalogue, by their order in the figure
    ("#332288", "<"), ("#2D7FA8", ">"), ("#117733", "H"), ("#7F7F20", "8"), ("#AA4499", "p"), ("#882255", "d"),
    ("#2F8F80", "v"), ("#A08A20", "^"), ("#661100", "X"), ("#4F77B0", "P"),
)  # fmt: skip
_OF_WINDOWS = ("backend", "backend_fallback", "date.epoch")  # matplotlib does not take these back
_OF_VALUES = ("o", "s", "^", "D", "v", "P", "X")
_STYLE: Any = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#E5E5E5",
    "grid.linewidth": 0.7,
    "axes.axisbelow": True,
    "axes.titlesize": 11,
    "legend.frameon": False,
    "legend.handlelength": 3.2,  # long enough to tell dashes from dots
    "svg.hashsalt": "runner",  # the same runs give the same file
}


@contextmanager
def styled() -> Iterator[None]:
    """Draw as all figures look: what a person's matplotlibrc says, such as text.usetex, does not count."""
    import matplotlib

    usual = {key: value for key, value in matplotlib.rcParamsDefault.items() if key not in _OF_WINDOWS}
    with matplotlib.rc_context({**usual, **_STYLE}):
        yield


def looks_of(names: Iterable[str]) -> dict[str, Look]:
    """Return the look of each method by its name in the catalogue; other methods get an unused look of their own."""
    known = known_methods()
    spare = (Look(colour, marker, style) for style in itertools.cycle(("-", "--", "-.")) for colour, marker in _MORE)
    return {
        name: Look(known[name].colour, known[name].marker, known[name].dashes) if name in known else next(spare)
        for name in names
    }


def looks_of_rows(methods: Sequence[Method]) -> dict[str, Look]:
    """Return the look of each row of a grid, by the row's name."""
    looks = looks_of(dict.fromkeys(method.look_name for method in methods))
    return {method.name: looks[method.look_name] for method in methods}


def look_of_value(place: int, count: int) -> Look:
    """Return the look of one of ``count`` values of a swept setting: the later its place, the darker."""
    import matplotlib
    from matplotlib.colors import to_hex

    shade = matplotlib.colormaps["viridis_r"](0.15 + 0.85 * place / max(1, count - 1))
    return Look(to_hex(shade), _OF_VALUES[place % len(_OF_VALUES)], ("-", "--", "-.")[place % 3])


def save(figure: "Figure", stem: Path, *, with_pdf: bool = False) -> Path:
    """Write STEM.svg and STEM.png, and STEM.pdf if asked for; return the path of the PNG."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    png = Path(f"{stem}.png")
    with styled():
        figure.savefig(f"{stem}.svg", bbox_inches="tight", metadata={"Date": None})
        figure.savefig(png, dpi=150, bbox_inches="tight")
        if with_pdf:
            figure.savefig(f"{stem}.pdf", bbox_inches="tight", metadata={"CreationDate": None})
    return png


def file_name(metric: str) -> str:
    """Return a metric's name as a part of a file's name: ``test_p_at_1``."""
    return metric.replace("/", "_").replace("@", "_at_")


def new_figure(rows: int, columns: int, *, width: float, height: float) -> tuple["Figure", "np.ndarray"]:
    """Return a figure and its (rows, columns) array of axes; ``width`` and ``height`` are inches per panel."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def plain_number(value: float) -> str:
    """Return a number as ticks show it: 1,000 and 1,000,000, 0.05 and 0.00001; below 1e-07 with an exponent."""
    if 1e-7 <= abs(value) < 1e-4:
        return f"{value:.10f}".rstrip("0")
    return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:,g}"


def plain_ticks(axis: "Axis") -> None:
    """Label a linear axis (``axes.xaxis`` or ``axes.yaxis``) with plain numbers."""
    from matplotlib.ticker import FuncFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: plain_number(value)))


def plain_log_ticks(axis: "Axis") -> None:
    """Label a logarithmic axis (``axes.xaxis`` or ``axes.yaxis``) with plain numbers: 1, 2, 5, 10, 20...

    A short axis gets more ticks, and one of small or of large numbers, whose labels are wide, gets fewer. An axis that
    ends at less than three times its beginning, has ticks at equal steps, as a linear one.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    low, high = axis.get_view_interval()
    ratio = high / low
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: plain_number(value)))
    if ratio < 3:
        axis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10]))
        return
    decades_alone = ratio >= (2000 if low >= 0.01 else 50)
    subs: tuple[float, ...] = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0)
    if decades_alone:
        subs = (1.0,)
    elif ratio > 8:
        subs = (1.0, 3.0) if high >= 1e5 else (1.0, 2.0, 5.0)
    axis.set_major_locator(LogLocator(base=10, subs=subs))

"""How every figure looks. One colour, marker and label per method everywhere (Okabe and Ito's palette)."""

import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

Marker = str | tuple[int, int, int]  # matplotlib's; (n, 1, a): a star of n points, turned by a degrees
COLOURS = {
    "full": "#000000",
    "lsh_embedding": "#D55E00",
    "lsh_label": "#E69F00",
    "topk": "#0072B2",
    "unigram": "#009E73",
    "log_uniform": "#56B4E9",
    "nce": "#CC79A7",
    "uniform": "#7F7F7F",
    "full_bf16": "#666666",
    "lsh_embedding_shared": "#8C2D04",
    "lsh_label_shared": "#B8A200",
    "exact": "#444444",
    "in_batch": "#DDCC77",
    "lsh": "#F0A07A",
    "lsh_topk": "#8B5A2B",
    "quadratic": "#7A68A6",
    "sphere": "#B8A9D9",
    "rff": "#117733",
    "bis": "#66A61E",
    "ns": "#A6761D",
    "is": "#1F9E89",
    "midx_pq": "#882255",
    "midx_rq": "#CC3366",
    "midx_exact": "#332288",
    "midx_learn_pq": "#E377C2",
    "midx_learn_rq": "#FF9DA7",
}
MARKERS: dict[str, Marker] = {
    "full": "s", "lsh_embedding": "o", "lsh_label": "D", "topk": "^", "unigram": "v", "log_uniform": "P",
    "nce": "X", "uniform": "*", "full_bf16": "p", "lsh_embedding_shared": "h", "lsh_label_shared": "d",
    "exact": "8", "lsh": "<", "lsh_topk": ">", "quadratic": "H", "sphere": (6, 1, 0), "rff": (3, 1, 0),
    "in_batch": (8, 1, 0), "bis": "+", "ns": "x", "is": "1",
    "midx_pq": (4, 1, 0), "midx_rq": (4, 1, 45), "midx_exact": (5, 1, 36), "midx_learn_pq": (3, 1, 60),
    "midx_learn_rq": (3, 1, 30),
}  # fmt: skip
OTHER = "#7F7F7F"
_MORE = (  # for methods without a look of their own, by their order in the figure
    ("#332288", "<"), ("#88CCEE", ">"), ("#117733", "H"), ("#999933", "8"), ("#AA4499", "p"), ("#882255", "d"),
    ("#44AA99", "v"), ("#DDCC77", "^"), ("#661100", "X"), ("#6699CC", "P"),
)  # fmt: skip
STYLE: Any = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#E5E5E5",
    "grid.linewidth": 0.7,
    "axes.axisbelow": True,
    "axes.titlesize": 11,
    "legend.frameon": False,
    "svg.hashsalt": "runner",  # the same runs give the same file
}


def looks_of(names: Iterable[str]) -> dict[str, tuple[str, Marker]]:
    """Colour and marker of each method; those without one of their own get one that no other has in this figure."""
    spare = itertools.cycle(_MORE)
    return {name: (COLOURS[name], MARKERS[name]) if name in COLOURS else next(spare) for name in names}


def save(figure: "Figure", stem: Path) -> Path:
    """Write STEM.svg and STEM.png; returns the latter."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    import matplotlib

    png = Path(f"{stem}.png")
    with matplotlib.rc_context(STYLE):
        figure.savefig(f"{stem}.svg", bbox_inches="tight", metadata={"Date": None})
        figure.savefig(png, dpi=150, bbox_inches="tight")
    return png


def new_figure(rows: int, columns: int, *, width: float, height: float) -> tuple["Figure", "np.ndarray"]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def plain_log_ticks(axis: "Axis") -> None:
    """1, 2, 5, 10, 20 ... on a logarithmic axis (``axes.xaxis`` or ``yaxis``), written out; more where it is short."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    low, high = axis.get_view_interval()
    ratio = high / low
    subs = (1.0,) if ratio >= 2000 else (1.0, 2.0, 5.0) if ratio > 8 else (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0)
    axis.set_major_locator(LogLocator(base=10, subs=subs))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))

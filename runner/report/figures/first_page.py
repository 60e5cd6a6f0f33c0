"""Draw the figure of the first page: quality against seconds of training, a panel for each family of data.

It is drawn from the CSVs of figures of curves, so that what was committed serves as well as what was just rendered.

Legend: E evaluations that all seeds have, S seeds.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from runner.report.figures.curves import COST_SCALES, at_the_same_costs, values_scale
from runner.report.figures.panels import Line, Panel, figure_of
from runner.report.figures.style import looks_of_rows, save, styled
from runner.report.spec.first_page import Family
from runner.report.spec.tables import load_table
from runner.report.spec.yaml_files import TABLES
from runner.training.files import write_atomically

NAME = "first_page"  # of the figure and of the CSV of its points


def draw_first_page(
    families: Iterable[Family], sources: Sequence[Path], folder: Path, tables: Path = TABLES
) -> list[Path]:
    """Write first_page.png, .svg and .csv into a folder; return the paths of picture and CSV, none without points.

    ``sources``: folders of rendered or committed figures; for each panel the first one that has its points is taken.
    Families of which nothing was measured have no panel. ``tables`` is the folder of conf/table.
    """
    found = [(family, *points) for family in families if (points := _points(family, sources, tables)) is not None]
    if not found:
        return []
    with styled():
        panels = [_panel(family, name, frame, tables) for family, name, frame in found]
        picture = save(figure_of([panels], width=2.5, height=3.0, most=len(panels)), folder / NAME)
    data = pd.concat([frame.assign(figure=name) for _, name, frame in found])
    write_atomically(folder / f"{NAME}.csv", data.to_csv(index=False, float_format="%.6g"))
    return [picture, folder / f"{NAME}.csv"]


def _points(family: Family, sources: Sequence[Path], tables: Path) -> tuple[str, pd.DataFrame] | None:
    """Return the name and the points of the first figure that has seconds of some of the family's methods."""
    for figure in family.figures:
        if not (tables / f"{figure.name}.yaml").is_file():
            continue
        for source in sources:
            path = source / f"{figure.name}.csv"
            if not path.is_file():
                continue
            frame = pd.read_csv(path, keep_default_na=True)
            frame = frame[frame["method"].isin(family.methods) & frame["train_seconds"].notna()]
            if figure.dataset or len(frame):
                frame = frame[frame["dataset"] == (figure.dataset or frame["dataset"].iloc[0])]
            if len(frame):
                return figure.name, frame
    return None


def _panel(family: Family, name: str, frame: pd.DataFrame, tables: Path) -> Panel:
    """Lay out the lines, each a mean over seeds; a method that was measured once, such as counting, is a level."""
    grid = load_table(name, tables).grid
    looks = looks_of_rows(grid.methods)
    lines = []
    for method in grid.methods:
        mine = frame[frame["method"] == method.name]
        if mine.empty:
            continue
        each = [seed[["train_seconds", "value"]].to_numpy(dtype=float) for _, seed in mine.groupby("seed")]
        values_SE2 = at_the_same_costs(each)
        x_E, y_E = values_SE2.mean(axis=0).T
        y_E = y_E * family.times
        lines.append(
            Line(
                label=_short(method.label, " ("), look=looks[method.name], x_P=x_E, y_P=y_E, is_level=len(x_E) == 1,
                deviation_P=family.times * values_SE2[:, :, 1].std(axis=0, ddof=1) if len(each) > 1 else None,
            )
        )  # fmt: skip
    scale = values_scale(
        family.label, [np.asarray(line.y_P) for line in lines], higher_is_better=family.higher_is_better
    )
    label = _short(grid.dataset(str(frame["dataset"].iloc[0])).label, ", ")
    return Panel(title=f"{family.family}:\n{label}", lines=tuple(lines), x=COST_SCALES["seconds"], y=scale)


def _short(label: str, until: str) -> str:
    """Return a label without its settings, which the full figure has, because three panels have to stand abreast."""
    return label.partition(until)[0]

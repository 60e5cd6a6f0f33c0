"""Say who is first at which level, for README.md in short and for docs/results.md in full.

Both are read from committed tables of levels (``pages.levels``), which ``conf/first_page.yaml`` names.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pandas as pd

from runner.report.figures.levels import short_labels
from runner.report.numbers.columns import within_a_sentence
from runner.report.numbers.levels import NEVER, PERCENTS, metric_name
from runner.report.spec.first_page import FirstOf
from runner.report.spec.tables import load_table

_IN_SHORT = (90, 98)


@cache
def _read(path: Path) -> pd.DataFrame:
    return pd.read_csv(path)


def seconds_to(shown: FirstOf, percent: int, tables: Path) -> pd.Series:
    """Return the seconds to a level by method, a mean over seeds; nan of methods that did not get there with each.

    ``tables``: the folder of committed tables.
    """
    frame = _read(tables / shown.profile / f"{shown.table}.csv")
    mine = frame[(frame["dataset"] == shown.dataset) & (frame["metric"] == metric_name("seconds", percent))]
    return mine.set_index("method")["ours"]


def first_at(shown: FirstOf, percent: int, tables: Path) -> str:
    """Return the method that is first at a level; empty if none got there with each seed."""
    seconds = seconds_to(shown, percent, tables).dropna()
    return "" if seconds.empty else str(seconds.idxmin())


def in_short(sets: Sequence[FirstOf], tables: Path) -> str:
    """Return a Markdown table with a row for each data set: full softmax and who is first, at two levels."""
    head = ["Data set", "Classes", *(f"s to {percent} %" for percent in _IN_SHORT)]
    head[2] = f"Full softmax: {head[2]}"
    head += [cell for percent in _IN_SHORT for cell in (f"First to {percent} %", "s")]
    rows = []
    for shown in sets:
        names = _names(shown)
        cells = [shown.label, f"{shown.classes:,}"]
        cells += [_seconds(seconds_to(shown, percent, tables).get("full")) for percent in _IN_SHORT]
        for percent in _IN_SHORT:
            first = first_at(shown, percent, tables)
            cells += [names.get(first, NEVER), _seconds(seconds_to(shown, percent, tables).get(first))]
        rows.append(cells)
    return _markdown(head, rows, numbers=(1, 2, 3, 5, 7))


def in_full(sets: Sequence[FirstOf], tables: Path) -> str:
    """Return a Markdown table with a row for each method shown of each data set, and all levels."""
    rows = []
    for shown in sets:
        names = _names(shown)
        frame = _read(tables / shown.profile / f"{shown.table}.csv")
        cells_of = frame[frame["dataset"] == shown.dataset].set_index(["method", "metric"])[["ours", "status"]]
        found = dict(zip(cells_of.index, cells_of.itertuples(index=False, name=None), strict=True))
        for method in shown.methods:
            cells = [f"{shown.label}: {names[method]}"]
            for percent in PERCENTS:
                paid, status = found[method, metric_name("seconds", percent)]
                text = str(status).partition(":")[0] if pd.isna(paid) else _seconds(paid)
                cells.append(f"**{text}**" if method == first_at(shown, percent, tables) else text)
            rows.append(cells)
    head = ["Data set and method", *(f"{percent} %" for percent in PERCENTS)]
    return _markdown(head, rows, numbers=range(1, 1 + len(PERCENTS)))


def _names(shown: FirstOf) -> dict[str, str]:
    labels = short_labels(load_table(shown.table).grid, shown.methods)
    return {method: within_a_sentence(label) for method, label in labels.items()}


def _seconds(seconds: float | None) -> str:
    if seconds is None or pd.isna(seconds):
        return "–"
    return f"{seconds:,.{2 if seconds < 1 else 1}f}"


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[int]) -> str:
    rule = "|".join("---:" if place in numbers else "---" for place in range(len(head)))
    return "\n".join([f"| {' | '.join(head)} |", f"|{rule}|", *(f"| {' | '.join(row)} |" for row in rows)])

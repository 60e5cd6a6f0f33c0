"""Make the tables that help to choose a sampler: quality, time and memory of each method on a data set."""

import dataclasses
import math
from collections.abc import Iterable, Sequence

import pandas as pd

from runner.methods.catalogue import known_methods
from runner.report.numbers.cells import cells
from runner.report.numbers.columns import Column, Panel, panels_of, yardstick_of
from runner.report.numbers.records import record_of
from runner.report.numbers.yardstick import Yardstick
from runner.report.pages import layout
from runner.report.pages.page import Choice
from runner.report.spec.grids import PlannedRun
from runner.report.spec.tables import ColumnSpec, TableSpec

_FAMILIES = ("rows", "text", "sequences", "pairs", "regression")  # of data sets, in the order of the page

_UNITS = (("s", 1.0), ("ms", 1e3), ("µs", 1e6))
_NUMBERS = ["ours", "deviation", "median", "lowest", "highest"]
_MOST_DECIMALS = 3


def guide(tables: Iterable[tuple[TableSpec, Sequence[PlannedRun]]]) -> tuple[Choice, ...]:
    """Return the choices of all tables with their runs, those of extreme classification first.

    A table that ``helps_to_choose_unless`` another one does is left out if a run of that one has finished.
    """
    made = {spec.name: (spec, _family(runs), choices(spec, runs)) for spec, runs in tables if runs}
    kept = [
        (family, found)
        for spec, family, found in made.values()
        if not (spec.helps_to_choose_unless in made and made[spec.helps_to_choose_unless][-1])
    ]
    return tuple(choice for _, found in sorted(kept, key=lambda item: item[0]) for choice in found)


def _family(runs: Sequence[PlannedRun]) -> int:
    """Return the place on the page of the kind of data that the runs are of."""
    family = runs[0].config.dataset.family
    return _FAMILIES.index(family) if family in _FAMILIES else len(_FAMILIES)


def choices(spec: TableSpec, runs: Sequence[PlannedRun]) -> list[Choice]:
    """Return a table for each data set of which some run has finished, if the table ``helps_to_choose``."""
    finished = [run for run in runs if record_of(run).finished]
    if not spec.helps_to_choose or not finished:
        return []
    final = yardstick_of(runs).final
    asked = (
        ColumnSpec(name="quality", metric=final),
        ColumnSpec(name="against_baseline", metric=final, show="percent_above_baseline"),
        ColumnSpec(name="seconds_to_90pct"),
        ColumnSpec(name="units_per_second"),
        ColumnSpec(name="seconds_per_step"),
        ColumnSpec(name="peak_rss_mb"),
    )
    short = dataclasses.replace(spec, columns=asked, published=None, with_costs=False, notes=())
    return [
        _choice(short, [run for run in runs if run.dataset == dataset])
        for dataset in dict.fromkeys(run.dataset for run in runs)
        if any(run.dataset == dataset for run in finished)
    ]


def _choice(spec: TableSpec, runs: Sequence[PlannedRun]) -> Choice:
    """Lay out what the methods of one data set reach and cost."""
    long = cells(spec, runs)
    columns = []
    for column in panels_of(spec, runs)[0].columns:
        if column.name == "seconds_per_step" and long[long["metric"] == column.name]["ours"].isna().all():
            continue  # a method that is no network has no steps, and older runs have not stored them
        label = {"seconds_to_90pct": "Time to 90 %", "seconds_per_step": "A step"}.get(column.name)
        if label is not None:
            long, column = _in_fitting_unit(long, dataclasses.replace(column, label=label))
        columns.append(column)
    block = layout.block(spec, Panel(title="", columns=tuple(columns)), long, runs)
    return Choice(
        title=f"{spec.helps_to_choose}: {block.title}",
        caption=block.caption,
        frame=_with_caveats(block.frame, spec),
        verdict=_verdict(long, columns, block.frame, yardstick_of(runs)),
    )


def _verdict(long: pd.DataFrame, columns: Sequence[Column], frame: pd.DataFrame, yardstick: Yardstick) -> str:
    """Name the method that ended best and the one that was soonest at 90 %, with their cells."""
    found = []
    for name, says, higher in (
        ("quality", "best", yardstick.headline.higher_is_better),
        ("seconds_to_90pct", "soonest", False),
    ):
        numbers = long[long["metric"] == name].set_index("method")["ours"].dropna()
        place = next((place for place, column in enumerate(columns, start=1) if column.name == name), None)
        if len(numbers) < 2 or place is None:  # one method is no comparison
            continue
        first = numbers.idxmax() if higher else numbers.idxmin()
        row = frame.iloc[[*dict.fromkeys(long["method"])].index(first)]
        heading = str(frame.columns[place])
        found.append(f"{says}: {row['Method']}, {heading} {str(row.iloc[place]).strip('*')}")
    return "; ".join(found)


def _in_fitting_unit(long: pd.DataFrame, column: Column) -> tuple[pd.DataFrame, Column]:
    """Return cells and column with seconds in the unit whose largest number is at least 1, and in enough decimals."""
    mine = long["metric"] == column.name
    positive = long[mine & (long["ours"] > 0)]["ours"]
    if positive.empty:
        return long, column
    unit, factor = next((unit for unit in _UNITS if unit[1] * positive.max() >= 1), _UNITS[-1])
    long = long.copy()
    long.loc[mine, _NUMBERS] *= factor
    decimals = -math.floor(math.log10(factor * positive.min()))
    return long, dataclasses.replace(column, unit=unit, decimals=min(max(1, decimals), _MOST_DECIMALS))


def _with_caveats(frame: pd.DataFrame, spec: TableSpec) -> pd.DataFrame:
    known = known_methods()
    caveats = {
        method.label: known[method.look_name].caveat for method in spec.grid.methods if method.look_name in known
    }
    frame = frame.drop(columns="Runs", errors="ignore")
    return frame.assign(**{"What to know": [caveats.get(method, "") or "–" for method in frame["Method"]]})

"""This module makes the tables that help to choose a sampler: quality, time and memory of each method on a data set."""

import dataclasses
from collections.abc import Sequence

import pandas as pd

from runner.report import layout
from runner.report.cells import cells
from runner.report.columns import yardstick_of
from runner.report.grids import PlannedRun
from runner.report.methods import known_methods
from runner.report.page import Choice
from runner.report.records import record_of
from runner.report.tables import ColumnSpec, TableSpec


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
        ColumnSpec(name="peak_rss_mb"),
    )
    short = dataclasses.replace(spec, columns=asked, published=None, with_costs=False, notes=())
    shown = {run.dataset for run in finished}
    mine = [run for run in runs if run.dataset in shown]
    doc = layout.document(short, cells(short, mine), mine, "")
    known = known_methods()
    caveats = {
        method.label: known[method.look_name].caveat for method in spec.grid.methods if method.look_name in known
    }
    return [
        Choice(
            title=f"{spec.helps_to_choose}: {block.title}",
            caption=block.caption,
            frame=_with_caveats(block.frame, caveats),
        )
        for block in doc.blocks
    ]


def _with_caveats(frame: pd.DataFrame, caveats: dict[str, str]) -> pd.DataFrame:
    frame = frame.drop(columns="Runs", errors="ignore")
    return frame.assign(**{"What to know": [caveats.get(method, "") or "–" for method in frame["Method"]]})

"""Make a table's numbers in long form, one row per data set, method and column.

A row holds our number, the published one, their difference and the run ids. The CSV holds this long form, and the
printed tables are laid out from it.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import pandas as pd

from runner.report.numbers.columns import Column, References, panels_of
from runner.report.numbers.group import Numbers, of_other_data, of_seeds
from runner.report.numbers.learning import why_not_learnt
from runner.report.numbers.records import FINISHED, NOT_RUN, record_of, status_of
from runner.report.numbers.tuning import Choices
from runner.report.spec.grids import Dataset, Grid, PlannedRun
from runner.report.spec.methods import Method
from runner.report.spec.tables import PUBLISHED, Published, TableSpec

NOT_TRIED = "–"  # the status of a rate that a method did not try with these settings

# ---------------------------------------------------------------- measuring


@dataclass(frozen=True)
class Ours:
    """A measured cell holds the numbers of the seeds, or a status that says why there are none."""

    status: str = ""
    numbers: Numbers | None = None


def references_of(grid: Grid, runs: Sequence[PlannedRun]) -> dict[int, References]:
    """Return, by seed, what runs of that seed are compared with; seeds whose baseline did not finish, or learn, are
    left out.

    ``runs`` are all planned runs of one data set.
    """
    other = of_other_data(map(record_of, runs))
    finished = [
        run
        for run in runs
        if record_of(run).finished and run.run_id not in other and not why_not_learnt(record_of(run))
    ]
    fulls = grid.full_methods or (grid.baseline,)
    return {
        run.seed: References(
            baseline=record_of(run),
            full=tuple(record_of(other) for other in finished if other.method in fulls and other.seed == run.seed),
        )
        for run in finished
        if run.method == grid.baseline
    }


def measure(
    column: Column,
    runs: Sequence[PlannedRun],
    references: Mapping[int, References],
    other: Mapping[str, str] = MappingProxyType({}),
) -> Ours:
    """Return the mean over the seeds' runs; if any run has no number, return a status, not the mean of the others.

    ``other``: the status of runs of other data than most of their data set (``of_other_data``).
    """
    statuses = [other.get(run.run_id) or status_of(run) for run in runs]
    if unfinished := of_seeds(["" if status == FINISHED else status for status in statuses]):
        return Ours(unfinished)
    if not column.is_fact and (unlearnt := of_seeds([why_not_learnt(record_of(run)) for run in runs])):
        return Ours(unlearnt)
    if column.needs_baseline and any(run.seed not in references for run in runs):
        return Ours("baseline not run")
    if column.of_time and (why := of_seeds([_why_no_seconds(run, column, references) for run in runs])):
        return Ours(why)
    values = []
    for run in runs:
        record = record_of(run)
        values.append(column.measure(record, references.get(run.seed, References(baseline=record, full=()))))
    if failed := of_seeds(["" if value is not None else column.failure for value in values]):
        return Ours(failed)
    numbers = tuple(value for value in values if value is not None)
    for run, value in zip(runs, numbers, strict=True):
        if not math.isfinite(value):
            raise ValueError(f"{run.run_id}: {column.name} is {value}")
    return Ours(numbers=Numbers(numbers[:1] if column.is_setting else numbers))


def _why_no_seconds(run: PlannedRun, column: Column, references: Mapping[int, References]) -> str:
    """Return why seconds of the run, or of what the column compares it with, are no number; empty if they are."""
    why = record_of(run).why_no_seconds
    return why or (references[run.seed].why_no_seconds if column.needs_baseline else "")


def published_numbers(source: Published) -> pd.DataFrame:
    """Read a published table: columns dataset, method, metric, value (NaN where a word is printed), note."""
    frame = pd.read_csv(PUBLISHED / source.csv, dtype={"dataset": str, "method": str, "note": str})
    return frame[frame["table"] == source.table].fillna({"note": "", "method": ""})


def cells(spec: TableSpec, runs: Sequence[PlannedRun], choices: Choices = MappingProxyType({})) -> pd.DataFrame:
    """Return the table in long form over the planned runs; a data set without runs has the status ``not run``.

    ``choices``: the values that were chosen for the table, whose remarks stand beside the columns of settings. A method
    that is left out on a data set has no rows there.
    """
    published = published_numbers(spec.published) if spec.published else None
    others = [dataset.name for dataset in spec.grid.datasets if dataset.published and published is not None]
    panels = panels_of(spec, runs)
    placed = [(index, panel, column) for index, panel in enumerate(panels) for column in panel.columns]
    rows = []
    for dataset in map(spec.grid.dataset, dict.fromkeys([*(run.dataset for run in runs), *others])):
        here = [run for run in runs if run.dataset == dataset.name]
        references, other = references_of(spec.grid, here), of_other_data(map(record_of, here))
        for method in spec.grid.methods:
            if here and all(run.method != method.name for run in here):
                continue
            choice = choices.get((dataset.name, method.name))
            for index, panel, column in placed:
                mine = [run for run in here if run.method == method.name and column.point in (None, run.point)]
                missing = Ours(NOT_TRIED if here else NOT_RUN)
                ours = measure(column, mine, references, other) if mine else missing
                printed, printed_word = None, ""
                if dataset.published and published is not None and panel.with_published:
                    printed, printed_word = _lookup(published, dataset, method, column)
                value = ours.numbers.mean if ours.numbers else None
                several = ours.numbers.each if ours.numbers and len(ours.numbers.each) > 1 else ()
                difference = value - printed if value is not None and printed is not None else None
                rows.append(
                    {
                        "table": spec.name,
                        "panel": index,
                        "dataset": dataset.name,
                        "stand_in": dataset.published is None,
                        "method": method.name,
                        "metric": column.name,
                        "unit": column.unit,
                        "ours": value,
                        "deviation": ours.numbers.deviation if ours.numbers else None,
                        "median": statistics.median(several) if several else None,
                        "lowest": min(several, default=None),
                        "highest": max(several, default=None),
                        "status": ours.status or FINISHED,
                        "published": printed,
                        "published_note": printed_word,
                        "difference": difference,
                        "seeds": len(mine),
                        **({"remark": choice.remark if choice and column.is_setting else ""} if choices else {}),
                        "run_ids": " ".join(run.run_id for run in mine if record_of(run).status != NOT_RUN),
                    }
                )
    numbers = ["ours", "deviation", "median", "lowest", "highest", "published", "difference"]
    return pd.DataFrame(rows).astype(dict.fromkeys(numbers, "float64"))


def _lookup(published: pd.DataFrame, dataset: Dataset, method: Method, column: Column) -> tuple[float | None, str]:
    found = published[
        (published["dataset"] == dataset.published)
        & published["method"].isin(["", method.published_name])  # without a method, it is a fact of the data set
        & (published["metric"] == column.name)
    ]
    if dataset.published_model is not None:
        found = found[found["model"] == dataset.published_model]
    if len(found) == 0:
        return None, ""
    value, note = float(found["value"].iloc[0]), str(found["note"].iloc[0])
    if note == "fraction":  # the paper prints a fraction, and our tables print percent
        value, note = 100 * value, ""
    return (None, note) if math.isnan(value) else (value, "")


def runs_table(grid: Grid, runs: Sequence[PlannedRun]) -> pd.DataFrame:
    """List every run of the tables with its commit, start and status, so that each number can be traced."""
    rows = []
    for run in runs:
        record = record_of(run)
        made = record.provenance
        commit = str(made.get("commit") or "")[:10]
        rows.append(
            {
                "run": record.short_id,
                "data set": grid.dataset(run.dataset).label,
                "method": grid.label(run),
                "seed": run.seed,
                "status": status_of(run)
                + (f": {record.error}" if record.error else "")
                + (f"; {record.why_no_seconds}" if record.why_no_seconds else ""),
                "ended": record.ending,
                "commit": commit + (" + changes" if record.has_changes else ""),
                "started": made.get("started", ""),
                "run id": record.run_id,
            }
        )
    return pd.DataFrame(rows)

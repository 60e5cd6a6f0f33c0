"""What the runs behind each table took: their number, minutes of training, memory and room on the disk.

The report ends with it, and the page ``docs/reproducing.md`` repeats that of the committed report.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from runner.errors import DataError
from runner.machine.disk import size
from runner.report.numbers.records import RunRecord, record_of
from runner.report.pages.layout import markdown_table
from runner.report.spec.grids import PlannedRun

ALL = "all tables together"
BEGIN = "<!-- What each table took: make publish copies it from results/REPRODUCTION.md; do not edit it. -->"
END = "<!-- What each table took: end -->"


def footprint(runs_by_table: Mapping[str, Sequence[PlannedRun]]) -> pd.DataFrame:
    """Return a row of text for each table with a finished run, and a last one that counts each run once.

    Tables may share runs. Minutes are those of training, without evaluation; ``at least`` stands before them if some
    run has no seconds that count. Memory is the peak of the hungriest process.
    """
    records = {name: _finished(runs) for name, runs in runs_by_table.items()}
    records = {name: found for name, found in records.items() if found}
    if len(records) > 1:
        records[ALL] = {run_id: record for found in records.values() for run_id, record in found.items()}
    rows = [{"Table or figure": name, **_took(found.values())} for name, found in records.items()]
    return pd.DataFrame(rows)


def _finished(runs: Iterable[PlannedRun]) -> dict[str, RunRecord]:
    records = map(record_of, runs)
    return {record.run_id: record for record in records if record.finished}


def _took(records: Iterable[RunRecord]) -> dict[str, str]:
    records = list(records)
    counted = [record.summary["train_seconds"] for record in records if not record.why_no_seconds]
    return {
        "Runs": f"{len(records):,}",
        "Minutes of training": _minutes_text(sum(counted) / 60, len(counted), len(records)),
        "Peak memory (MB)": f"{max(record.summary['peak_rss_mb'] for record in records):,.0f}",
        "Disk (MB)": f"{sum(size(record.path) for record in records) / 1e6:,.2f}",  # one unit, so that it sorts
    }


def _minutes_text(minutes: float, counted: int, runs: int) -> str:
    """Return the minutes of as many runs as have seconds that count; a dash if they tell nothing."""
    is_small = minutes < 0.05  # which would be printed as 0.0
    if counted == runs:
        return "< 0.1" if is_small else f"{minutes:,.1f}"
    return "–" if is_small else f"at least {minutes:,.1f}"


# ---------------------------------------------------------------- in the manual


def with_footprint_of(told: Mapping[str, Any], page: str) -> str:
    """Return a page of the manual whose part between ``BEGIN`` and ``END`` is what the report tells of itself.

    ``told``: see ``runner.report.pages.page.facts``. Raises DataError if the page has no such part, or the report does
    not tell what its tables took.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise DataError(f"docs/reproducing.md: the lines '{BEGIN}' and '{END}' are missing")
    days, machines = told.get("days"), told.get("machines")
    if not told.get("took") or not days or not machines:
        raise DataError("results/REPRODUCTION.json: tells of no runs; make publish writes it anew")
    when = days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}"
    text = f"Runs of {when} on {'; '.join(machines)}:\n\n{markdown_table(pd.DataFrame(told['took']))}"
    return f"{before}{BEGIN}\n\n{text}\n\n{END}{after}"

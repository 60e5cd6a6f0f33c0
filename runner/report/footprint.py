"""What the runs behind each table took: their number, minutes of training, memory and room on the disk."""

from collections.abc import Iterable, Mapping, Sequence

import pandas as pd

from runner.machine.disk import size, size_text
from runner.report.grids import PlannedRun
from runner.report.records import RunRecord, record_of

ALL = "all tables together"


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
    minutes = f"{sum(counted) / 60:,.1f}" if counted else "–"
    return {
        "Runs": f"{len(records):,}",
        "Minutes of training": f"at least {minutes}" if 0 < len(counted) < len(records) else minutes,
        "Peak memory (MB)": f"{max(record.summary['peak_rss_mb'] for record in records):,.0f}",
        "Disk": size_text(sum(size(record.path) for record in records)),
    }

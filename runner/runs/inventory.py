"""Every folder under RESULTS/runs, damaged ones included: what it is, and how much room it takes on the disk."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from runner.machine.disk import size, size_text
from runner.options.conversion import as_path
from runner.report.numbers.comparison import chosen, named
from runner.report.numbers.group import Group
from runner.report.numbers.records import DAMAGED, RunRecord


def folders(results_dir: Path, *, tells: bool = True) -> list[RunRecord]:
    """Return a record for each run folder, whatever it holds, in the order of run ids.

    ``tells``: damaged ones are named on standard error, because the caller leaves them out.
    """
    return [RunRecord(path, tells) for path in sorted((results_dir / "runs").glob("*")) if path.is_dir()]


def selected(records: Sequence[RunRecord], names: Sequence[str], where: Sequence[str]) -> list[RunRecord]:
    """Return the runs that are named (all without names) and have the settings of ``where`` (KEY=VALUE).

    Raises RunnerError for a name that not exactly one run has, ConfigError for a setting that no run has.
    """
    found = [named(records, name) for name in names] if names else list(records)
    return chosen([record for record in found if record.status != DAMAGED], [], where) if where else found


def folder_of(run: Path, results_dir: Path) -> Path:
    """Return the folder of a run that is named by its folder, wherever it lies, or as ``named`` takes it.

    Raises RunnerError for a name that not exactly one run of the results folder has. Whether a path is the folder of a
    run is for its reader to tell.
    """
    place = as_path(run, "RUN")
    if len(run.parts) != 1 or place.is_dir():
        return place
    return named(folders(as_path(results_dir, "--results-dir"), tells=False), run.name).path


def started(record: RunRecord) -> str:
    """Return when the last attempt at a readable run started, such as ``2026-01-31 12:05``; empty if it is unknown."""
    return str(record.provenance.get("started", ""))[:16].replace("T", " ")


def table(records: Sequence[RunRecord]) -> pd.DataFrame:
    """Return a row of text for each run, in the order in which they were started."""
    rows = []
    for record in records:
        known = record.status
        finished = known != DAMAGED and record.finished
        told = Group(records=(record,)).status if finished else ": ".join(filter(None, [known, record.damage]))
        rows.append(
            {
                "run": record.run_id,
                "started": started(record) if known != DAMAGED else "",
                "status": told,
                "headline": record.headline if finished else "",
                "seconds": f"{record.summary['train_seconds']:,.1f}" if finished else "",
                "size": size_text(size(record.path)),
            }
        )
    return pd.DataFrame(rows).sort_values("started", kind="stable", ignore_index=True)

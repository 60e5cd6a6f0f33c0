"""Diagnose the runs that tables and figures of the report need."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from runner import REPOSITORY
from runner.registry import TRUSTED
from runner.report.diagnoses.diagnosed import is_diagnosed
from runner.report.numbers.records import record_of
from runner.report.plan.plan import python_path
from runner.report.spec.grids import expand
from runner.report.spec.tables import TableSpec


def diagnose_runs(specs: Sequence[TableSpec], profile: str, results_dir: Path) -> list[tuple[str, str]]:
    """Diagnose every finished run that these tables need and that is not diagnosed yet, each in its own process.

    Returns (title, reason) of each failure.
    """
    failed = []
    for spec in specs:
        if not spec.is_diagnosed:
            continue
        for run in expand(spec.grid, profile, results_dir):
            record = record_of(run)
            if not record.finished or is_diagnosed(spec, run):
                continue
            print(f"diagnosing {spec.grid.label(run)} on {run.dataset}", file=sys.stderr, flush=True)
            name = [] if "--name" in spec.diagnose else ["--name", spec.name]
            child = subprocess.run(
                [sys.executable, "-m", "runner.diagnosis.measure", os.path.relpath(record.path, REPOSITORY),
                 *spec.diagnose, *name],
                cwd=REPOSITORY,
                env={**os.environ, "PYTHONPATH": python_path(), TRUSTED: ",".join(run.config.plugins)},
                stdout=subprocess.DEVNULL,
                check=False,
            )  # fmt: skip
            if child.returncode:
                failed.append((f"diagnosing {record.run_id}", f"ended with exit code {child.returncode}"))
    return failed

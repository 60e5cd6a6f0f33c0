"""Seconds that runs took on an idle machine with two cores, for plans where no run was made yet.

``conf/table/seconds.csv`` holds them. ``python scripts/reproduce.py --record-seconds FILE`` writes such a file. Make it
where nothing else runs and where kernels are compiled already.
"""

import csv
import functools
from collections.abc import Iterable
from pathlib import Path

from runner.errors import DataError
from runner.report.grids import PlannedRun, point_text
from runner.report.yaml_files import TABLES

FILE = TABLES / "seconds.csv"
_COLUMNS = ("dataset", "method", "settings", "epochs", "seconds")
_Key = tuple[str, str, str]


def _key(run: PlannedRun) -> _Key:
    return run.dataset, run.method, point_text(run.point)


@functools.cache
def _read(file: Path) -> dict[_Key, tuple[float, float]]:
    """Return (epochs, seconds) of each run. Raises DataError that names the file and the line."""
    found = {}
    with file.open(newline="", encoding="utf-8") as lines:
        rows = csv.DictReader(lines)
        for row in rows:
            try:
                found[row["dataset"], row["method"], row["settings"]] = float(row["epochs"]), float(row["seconds"])
            except (KeyError, TypeError, ValueError):
                raise DataError(f"{file}:{rows.line_num}: expected {', '.join(_COLUMNS)}") from None
    return found


def reference_seconds(run: PlannedRun, file: Path = FILE) -> float | None:
    """Return the seconds that the run took there, scaled to its number of epochs; None if it was not made there."""
    epochs, seconds = _read(file).get(_key(run), (1.0, None))
    return None if seconds is None else seconds * run.config.epochs / epochs


def write_seconds(measured: Iterable[tuple[PlannedRun, float]], file: Path) -> None:
    """Write a file that ``reference_seconds`` reads; a run is listed once."""
    rows = {_key(run): (*_key(run), f"{run.config.epochs:g}", f"{seconds:.1f}") for run, seconds in measured}
    with file.open("w", newline="", encoding="utf-8") as lines:
        writer = csv.writer(lines, lineterminator="\n")
        writer.writerow(_COLUMNS)
        writer.writerows(rows[key] for key in sorted(rows))

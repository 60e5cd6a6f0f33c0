"""Seconds of runs on an idle machine with two cores, for plans of runs that were never made on the user's machine.

``conf/table/seconds.csv`` holds them. ``python scripts/reproduce.py --record-seconds FILE`` writes such a file; it is
worth keeping only from a machine where nothing else ran and where no run had been made since ``make setup``, because
the seconds hold what runs compile themselves. They are divided by that machine's slowness (``runner.report.speed``).
"""

import csv
import functools
from collections.abc import Iterable
from pathlib import Path

from runner.errors import DataError
from runner.report.grids import PlannedRun, point_text
from runner.report.speed import measure as measure_speed
from runner.report.yaml_files import TABLES

FILE = TABLES / "seconds.csv"
_COLUMNS = ("dataset", "model", "method", "settings", "epochs", "seconds")
_Key = tuple[str, str, str, str]


def _key(run: PlannedRun) -> _Key:
    return run.dataset, run.config.model.name, run.method, point_text(run.point)


@functools.cache
def _read(file: Path) -> dict[_Key, tuple[float, float]]:
    """Return (epochs, seconds) of each run. Raises DataError that names the file and the line."""
    found = {}
    with file.open(newline="", encoding="utf-8") as lines:
        rows = csv.DictReader(lines)
        for row in rows:
            try:
                key = (row["dataset"], row["model"], row["method"], row["settings"])
                found[key] = float(row["epochs"]), float(row["seconds"])
            except (KeyError, TypeError, ValueError):
                raise DataError(f"{file}:{rows.line_num}: expected {', '.join(_COLUMNS)}") from None
    return found


def reference_seconds(run: PlannedRun, file: Path = FILE) -> float | None:
    """Return the seconds that the run took there, scaled to its number of epochs; None if it was not made there.

    They are seconds of a machine whose slowness is 1.
    """
    epochs, seconds = _read(file).get(_key(run), (1.0, None))
    return None if seconds is None else seconds * run.config.epochs / epochs


def write_seconds(measured: Iterable[tuple[PlannedRun, float]], file: Path) -> None:
    """Write a file that ``reference_seconds`` reads, from seconds measured here; of runs with the same key the last
    counts.
    """
    slowness = measure_speed().slowness
    rows = {_key(run): (*_key(run), f"{run.config.epochs:g}", f"{seconds / slowness:.2f}") for run, seconds in measured}
    with file.open("w", newline="", encoding="utf-8") as lines:
        writer = csv.writer(lines, lineterminator="\n")
        writer.writerow(_COLUMNS)
        writer.writerows(rows[key] for key in sorted(rows))

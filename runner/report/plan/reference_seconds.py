"""Seconds of runs on an idle machine with two cores, for plans of runs that were never made on the user's machine.

``conf/table/seconds.csv`` holds them. ``python scripts/reproduce.py --record-seconds FILE`` writes such a file; it is
worth keeping only from a machine where nothing else ran and where no run had been made since ``make setup``, because
the seconds hold what runs compile themselves. They are divided by that machine's slowness (``plan.speed``).
"""

import csv
import functools
import io
import math
from collections.abc import Iterable
from pathlib import Path

from runner.errors import DataError
from runner.options.settings import digest_of
from runner.report.plan.speed import slowness
from runner.report.spec.grids import PlannedRun, point_text
from runner.report.spec.yaml_files import TABLES
from runner.training.files import write_atomically

FILE = TABLES / "seconds.csv"
_COLUMNS = ("digest", "epochs", "seconds", "dataset", "method", "settings")  # the last three are for readers


def _digest(run: PlannedRun) -> str:
    """Return a digest of all settings that decide the seconds of an epoch."""
    return digest_of({key: value for key, value in run.config.identity.items() if key not in ("epochs", "seed")})


@functools.cache
def _read(file: Path) -> dict[str, tuple[float, float]]:
    """Return (epochs, seconds) of each digest. Raises DataError that names the file and the line."""
    found = {}
    with file.open(newline="", encoding="utf-8") as lines:
        rows = csv.DictReader(lines)
        try:
            for row in rows:
                epochs, seconds = float(row["epochs"]), float(row["seconds"])
                if not (0 < epochs < math.inf and 0 <= seconds < math.inf):
                    raise ValueError
                found[row["digest"]] = epochs, seconds
        except (KeyError, TypeError, ValueError, csv.Error):  # UnicodeDecodeError is a ValueError
            raise DataError(f"{file}:{rows.line_num}: expected {', '.join(_COLUMNS)}") from None
    return found


def reference_seconds(run: PlannedRun, file: Path = FILE) -> float | None:
    """Return the seconds that a run with the same settings took there, scaled to its number of epochs, or None.

    They are seconds of a machine whose slowness is 1.
    """
    epochs, seconds = _read(file).get(_digest(run), (1.0, None))
    return None if seconds is None else seconds * run.config.epochs / epochs


def write_seconds(measured: Iterable[tuple[PlannedRun, float]], file: Path) -> None:
    """Write a file that ``reference_seconds`` reads, from seconds measured here; rows of other runs in it are kept.

    Raises DataError if the file exists and is damaged.
    """
    factor = slowness()
    rows: dict[str, tuple[str, ...]] = {}
    if file.exists():
        _read.__wrapped__(file)
        with file.open(newline="", encoding="utf-8") as lines:
            rows = {row["digest"]: tuple(row[name] for name in _COLUMNS) for row in csv.DictReader(lines)}
    for run, seconds in measured:
        numbers = (f"{run.config.epochs:g}", f"{seconds / factor:.2f}")
        rows[_digest(run)] = (_digest(run), *numbers, run.dataset, run.method, point_text(run.point))
    in_order = sorted(rows.values(), key=lambda row: row[3:])
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([_COLUMNS, *in_order])
    write_atomically(file, text.getvalue())

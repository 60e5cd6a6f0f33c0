"""This module replaces committed tables and figures by rendered ones.

Rendering writes to ``results/out``, which is not committed. ``results/tables`` changes only here, so that a table of
few runs never takes the place of one of many by accident.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from runner.errors import RunnerError
from runner.report.columns import FAIL, NOT_REACHED
from runner.report.records import DIVERGED

_OUTCOMES = (DIVERGED, NOT_REACHED, FAIL)
SUFFIXES = (".md", ".tex", ".csv", ".png", ".svg")


def rendered_dir(results_dir: Path, profile: str) -> Path:
    """Return the folder that tables and figures of a profile are rendered to."""
    return results_dir / "out" / profile


def published_dir(results_dir: Path, profile: str) -> Path:
    """Return the folder of the committed tables and figures of a profile."""
    return results_dir / "tables" / profile


def publish(names: Sequence[str], known: Sequence[str], profile: str, results_dir: Path) -> list[Path]:
    """Copy rendered tables and figures to the committed ones; return the paths of the copies.

    ``known``: the names of all tables, which tell whose file is whose. Nothing is copied, and RunnerError says why, if
    one of them was not rendered, shows no finished run, or shows fewer than the committed one.
    """
    source, target = rendered_dir(results_dir, profile), published_dir(results_dir, profile)
    files: dict[str, list[Path]] = {name: [] for name in names}
    for path in sorted(source.glob("*")):
        if path.suffix in SUFFIXES and (owner := _owner(path.stem, known)) in files:
            files[owner].append(path)
    for name, found in files.items():
        data = source / f"{name}.csv"
        if data not in found:
            raise RunnerError(
                f"{source}: {name} is not rendered; make reproduce TABLE={name} PROFILE={profile} does so"
            )
        rows = outcomes(data)
        if not rows:
            raise RunnerError(f"{data}: shows no finished run, so there is nothing to publish")
        committed = target / data.name
        if committed.exists() and rows < (before := outcomes(committed)):
            raise RunnerError(
                f"{data}: shows {rows} outcomes of runs, but the committed {committed} has {before}; finish the runs"
                " that are missing, or delete the committed file if that is meant"
            )
    target.mkdir(parents=True, exist_ok=True)
    return [Path(shutil.copyfile(path, target / path.name)) for found in files.values() for path in found]


def outcomes(csv: Path) -> int:
    """Return the number of rows of a table's or a figure's CSV that runs to their end stand behind.

    Tables of numbers have a row for each cell, whose value is in the column ``ours``; that runs diverged, or never
    reached a goal, is an outcome too. In other files all rows are measured.
    """
    try:
        frame = pd.read_csv(csv)
    except pd.errors.EmptyDataError:
        return 0
    if "ours" not in frame:
        return len(frame)
    return int((frame["ours"].notna() | frame["status"].astype(str).str.startswith(_OUTCOMES)).sum())


def _owner(stem: str, known: Sequence[str]) -> str:
    """Return the table that a file belongs to: pictures of single runs are called NAME_DATASET and so on."""
    return max((name for name in known if stem == name or stem.startswith(f"{name}_")), key=len, default="")

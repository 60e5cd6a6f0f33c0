"""This module replaces committed tables, figures and the page of all of them by rendered ones.

Rendering writes to ``results/out``, which is not committed. ``results/tables`` and ``results/REPRODUCTION.md`` change
only here, so that a table of few runs never takes the place of one of many by accident. All files of a call are
replaced, or none: they are written beside the committed ones first and then renamed.
"""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from runner.errors import RunnerError
from runner.report.columns import FAIL, NOT_REACHED
from runner.report.page import TO_PUBLISH, outcomes_by_table, with_links_into
from runner.report.records import DIVERGED
from runner.training.files import sync

_OUTCOMES = (DIVERGED, NOT_REACHED, FAIL)
SUFFIXES = (".md", ".tex", ".csv", ".png", ".svg")
PAGE = "REPRODUCTION.md"
_FIRST_PROFILE = "small"  # its page is results/REPRODUCTION.md


def rendered_dir(results_dir: Path, profile: str) -> Path:
    """Return the folder that tables and figures of a profile are rendered to."""
    return results_dir / "out" / profile


def published_dir(results_dir: Path, profile: str) -> Path:
    """Return the folder of the committed tables and figures of a profile."""
    return results_dir / "tables" / profile


def published_page(results_dir: Path, profile: str) -> Path:
    """Return the committed page: REPRODUCTION.md for the profile small, REPRODUCTION-PROFILE.md for another."""
    page = results_dir / PAGE
    return page if profile == _FIRST_PROFILE else page.with_stem(f"{page.stem}-{profile}")


def publish(names: Sequence[str], known: Sequence[str], profile: str, results_dir: Path) -> list[Path]:
    """Replace committed files by rendered ones; return the paths of what was replaced, the page last.

    ``names``: the tables and figures; without any, all that the rendered page shows with an outcome, and the page
    itself. ``known``: the names of all tables, which tell whose file is whose. Nothing is replaced, and RunnerError
    says why, if one of them was not rendered, shows no finished run, or shows fewer than the committed one. OSError
    says that a file cannot be written; then, too, all committed files are as they were.
    """
    source, target = rendered_dir(results_dir, profile), published_dir(results_dir, profile)
    contents: dict[Path, bytes] = {}
    page = None
    if not names:
        page, names = _checked_page(source / PAGE, published_page(results_dir, profile), profile)
    files: dict[str, list[Path]] = {name: [] for name in names}
    for path in sorted(source.glob("*")):
        if path.suffix in SUFFIXES and (name := owner(path.stem, known)) in files:
            files[name].append(path)
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
        contents |= {target / path.name: path.read_bytes() for path in found}
    if page is not None:
        place = published_page(results_dir, profile)
        contents[place] = with_links_into(page, target.relative_to(results_dir).as_posix()).encode()
    replace_together(contents)
    return list(contents)


def _checked_page(rendered: Path, committed: Path, profile: str) -> tuple[str, list[str]]:
    """Return the rendered page and the tables that it shows with an outcome. Raises RunnerError as ``publish`` does."""
    if not rendered.is_file():
        raise RunnerError(f"{rendered}: is not rendered; make reproduce PROFILE={profile} does so")
    page = rendered.with_name(TO_PUBLISH).read_text(encoding="utf-8")
    shown = outcomes_by_table(page)
    names = [name for name, count in shown.items() if count]
    if not names:
        raise RunnerError(f"{rendered}: shows no finished run, so there is nothing to publish")
    before = outcomes_by_table(committed.read_text(encoding="utf-8")) if committed.exists() else {}
    for name, count in before.items():
        if shown.get(name, 0) < count:
            raise RunnerError(
                f"{rendered}: shows {shown.get(name, 0)} outcomes of runs for {name}, but the committed {committed} has"
                f" {count}; make reproduce PROFILE={profile} renders all tables; finish the runs that are missing, or"
                " delete the committed page if that is meant"
            )
    return page, names


def replace_together(contents: Mapping[Path, bytes]) -> None:
    """Replace all of the files or none of them, and make their folders.

    New files are written beside the old ones first, so that a full disk changes nothing. If a renaming fails, or is
    interrupted, the files that were already renamed get their old contents back.
    """
    written: dict[Path, Path] = {}
    kept: dict[Path, Path] = {}
    try:
        for path, content in contents.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            written[path] = path.with_name(f".{path.name}.new")
            with written[path].open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            if path.exists():
                kept[path] = path.with_name(f".{path.name}.old")
                shutil.copyfile(path, kept[path])
        replaced: list[Path] = []
        try:
            for path, new in written.items():
                replaced.append(path)
                new.replace(path)
        except BaseException:
            for path in replaced:
                if path in kept:
                    kept[path].replace(path)
                elif not written[path].exists():
                    path.unlink(missing_ok=True)
            raise
    finally:
        for rest in (*written.values(), *kept.values()):
            rest.unlink(missing_ok=True)
    for folder in {path.parent for path in contents}:
        sync(folder)


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


def owner(stem: str, known: Sequence[str]) -> str:
    """Return the table that a file belongs to, or "". Pictures of single runs are called NAME_DATASET and so on."""
    return max((name for name in known if stem == name or stem.startswith(f"{name}_")), key=len, default="")

"""Replace committed tables, figures and the page of all of them by rendered ones.

Rendering writes to ``results/out``, which is not committed. ``results/tables`` and ``results/REPRODUCTION.md`` change
only by what ``to_publish`` finds, so that a table of few runs never takes the place of one of many by accident. All
files of a call change, or none: new ones are written beside the committed ones first and then renamed.
"""

import json
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pandas as pd

from runner.errors import RunnerError
from runner.report.numbers.columns import NOT_REACHED
from runner.report.numbers.learning import NEVER_LEARNT
from runner.report.numbers.levels import NEVER
from runner.report.numbers.quantities import FAIL
from runner.report.numbers.records import DIVERGED
from runner.report.pages.page import TO_PUBLISH, with_links_into
from runner.training.files import sync

_OUTCOMES = (DIVERGED, NEVER_LEARNT, NEVER, NOT_REACHED, FAIL)
SUFFIXES = (".md", ".tex", ".csv", ".png", ".svg")
CURVES = "_curves"  # NAME_curves.csv has the points of NAME's figures if NAME.csv has numbers of another kind
PAGE = "REPRODUCTION.md"
_FIRST_PROFILE = "small"  # its page is results/REPRODUCTION.md


def rendered_dir(results_dir: Path, profile: str) -> Path:
    """Return the folder that tables and figures of a profile are rendered to."""
    return results_dir / "out" / profile


def published_dir(results_dir: Path, profile: str) -> Path:
    """Return the folder of the committed tables and figures of a profile."""
    return results_dir / "tables" / profile


def published_figure(results_dir: Path) -> Path:
    """Return the committed figure of the first page, which is of the runs of all profiles."""
    return results_dir / "tables" / "first_page.png"


def published_page(results_dir: Path, profile: str) -> Path:
    """Return the committed page: REPRODUCTION.md for the profile small, REPRODUCTION-PROFILE.md for another."""
    page = results_dir / PAGE
    return page if profile == _FIRST_PROFILE else page.with_stem(f"{page.stem}-{profile}")


def to_publish(names: Sequence[str], known: Sequence[str], profile: str, results_dir: Path) -> dict[Path, bytes | None]:
    """Return the new contents of committed files, the page last; None if a table no longer has the file.

    ``names``: the tables and figures; without any, all that the rendered page shows with an outcome, and the page
    itself. ``known``: the names of all tables (see ``files_of``). RunnerError says so if one of them was not rendered,
    shows no finished run, or shows fewer than the committed one.
    """
    source, target = rendered_dir(results_dir, profile), published_dir(results_dir, profile)
    contents: dict[Path, bytes | None] = {}
    page, facts = None, b""
    if not names:
        page, facts, names = _checked_page(source / PAGE, published_page(results_dir, profile), profile)
    before = files_of(names, known, target)
    for name, found in files_of(names, known, source).items():
        data = source / f"{name}.csv"
        if data not in found:
            raise RunnerError(
                f"{source}: {name} is not rendered; make reproduce TABLE={name} PROFILE={profile} does so"
            )
        rows = outcomes(data)
        if not rows:
            raise RunnerError(f"{data}: shows no finished run, so there is nothing to publish")
        committed = target / data.name
        if committed.exists() and rows < (had := outcomes(committed)):
            raise RunnerError(
                f"{data}: shows {rows} outcomes of runs, but the committed {committed} has {had}; finish the runs"
                " that are missing, or delete the committed file if that is meant"
            )
        contents |= dict.fromkeys(before[name]) | {target / path.name: path.read_bytes() for path in found}
    if page is not None:
        place = published_page(results_dir, profile)
        contents[place.with_suffix(".json")] = facts
        contents[place] = with_links_into(page, target.relative_to(results_dir).as_posix()).encode()
    return contents


def _checked_page(rendered: Path, committed: Path, profile: str) -> tuple[str, bytes, list[str]]:
    """Return the rendered page, the JSON beside it, and the tables that have an outcome; raise as ``to_publish``."""
    to_publish, beside = rendered.with_name(TO_PUBLISH), rendered.with_suffix(".json")
    if not to_publish.is_file() or not beside.is_file():
        raise RunnerError(f"{rendered}: is not rendered; make reproduce PROFILE={profile} does so")
    page = to_publish.read_text(encoding="utf-8")
    facts = beside.read_bytes()
    shown = _outcomes(beside)
    names = [name for name, count in shown.items() if count]
    if not names:
        raise RunnerError(f"{rendered}: shows no finished run, so there is nothing to publish")
    told = committed.with_suffix(".json")
    before = _outcomes(told) if committed.exists() and told.exists() else {}
    for name, count in before.items():
        if shown.get(name, 0) < count:
            raise RunnerError(
                f"{rendered}: shows {shown.get(name, 0)} outcomes of runs for {name}, but the committed {committed} has"
                f" {count}; make reproduce PROFILE={profile} renders all tables; finish the runs that are missing, or"
                " delete the committed page if that is meant"
            )
    return page, facts, names


def _outcomes(told: Path) -> dict[str, int]:
    """Return how many outcomes each table of a page has, as the JSON beside the page tells."""
    try:
        found: dict[str, int] = json.loads(told.read_bytes())["outcomes"]
    except (ValueError, KeyError, TypeError):
        raise RunnerError(
            f"{told} is damaged; make reproduce renders it again, and git restores a committed one"
        ) from None
    return found


def replace_together(contents: Mapping[Path, bytes | None]) -> None:
    """Replace all of the files or none of them, and make their folders; a file without new contents is removed.

    New files are written beside the old ones first, so that a full disk changes nothing. If a renaming fails, or is
    interrupted, the files that were already renamed or removed get their old contents back. Raises OSError.
    """
    written: dict[Path, Path] = {}
    kept: dict[Path, Path] = {}
    try:
        for path, content in contents.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            if content is not None:
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
            for path in contents:
                replaced.append(path)
                if path in written:
                    written[path].replace(path)
                else:
                    path.unlink()
        except BaseException:
            for path in replaced:
                if path in kept:
                    kept[path].replace(path)
                elif path in written and not written[path].exists():
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


def files_of(names: Sequence[str], known: Iterable[str], folder: Path) -> dict[str, list[Path]]:
    """Return the files in a folder of rendered or committed tables that belong to each table of ``names``.

    ``known``: the names of all tables, so that no file is taken for that of a table whose name begins alike. What has
    a CSV of its own in the folder is a table too, unless it has a table's ``CURVES``.
    """
    tables = {*known, *(path.stem for path in folder.glob("*.csv") if not path.stem.endswith(CURVES))}
    files: dict[str, list[Path]] = {name: [] for name in names}
    for path in sorted(folder.glob("*")):
        if path.suffix in SUFFIXES and (name := owner(path.stem, tables)) in files:
            files[name].append(path)
    return files


def owner(stem: str, known: Iterable[str]) -> str:
    """Return the table that a file belongs to, or "". Pictures of single runs are called NAME_DATASET and so on."""
    return max((name for name in known if stem == name or stem.startswith(f"{name}_")), key=len, default="")

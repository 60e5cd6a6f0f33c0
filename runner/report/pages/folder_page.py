"""Write the page of a folder of committed tables and figures: README.md, with each figure's notes."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from runner.errors import DataError
from runner.report.pages.publish import CURVES, owner
from runner.report.spec.tables import TableSpec

PAGE = "README.md"
_OPENING = """# Tables and figures, profile {profile}

`make publish PROFILE={profile}` writes this page from what lies in the folder; nobody edits it. `make reproduce
TABLE=NAME PROFILE={profile}` makes a table or figure from runs of your own, in `results/out/`. A table is here as
Markdown, LaTeX and CSV, a figure as PNG, SVG and CSV. The CSV names the runs behind the numbers."""


def folder_page(specs: Sequence[TableSpec], profile: str, folder: Path, changes: Mapping[Path, bytes | None]) -> str:
    """Return the page of a folder as Markdown: a list of the tables, then every figure with its notes.

    ``changes``: what is about to be replaced or removed (see ``publish``), shown as if it were done.
    Raises DataError for a figure without its CSV, and for a CSV that names no runs.
    """
    files = {*folder.glob("*"), *changes} - {path for path, content in changes.items() if content is None}
    names = [spec.name for spec in specs]
    pictures: dict[str, list[Path]] = {name: [] for name in names}
    for path in sorted(files):
        if path.suffix == ".png" and (name := owner(path.stem, names)):
            pictures[name].append(path)
    tables = [spec for spec in specs if folder / f"{spec.name}.md" in files]
    parts = [_OPENING.format(profile=profile)]
    if tables:
        rows = [f"| [{spec.name}]({spec.name}.md) | {spec.title} |" for spec in tables]
        parts.append("\n".join(["| Table | What it shows |", "|---|---|", *rows]))
    for spec in specs:
        if pictures[spec.name]:
            points = folder / f"{spec.name}{CURVES}.csv"
            data = points if points in files and points.stem not in names else folder / f"{spec.name}.csv"
            if data not in files:
                raise DataError(
                    f"{data}: missing; the figure beside it is worth nothing without its data: publish it again"
                )
            parts.extend(_figure(spec, pictures[spec.name], data, changes.get(data) or data.read_bytes()))
    return "\n\n".join(parts) + "\n"


def _figure(spec: TableSpec, pictures: Sequence[Path], data: Path, content: bytes) -> list[str]:
    shown = [f"![{spec.title}]({picture.name})" for picture in pictures]
    parts = [f"## {spec.title}", f"[{data.name}]({data.name}): {_count(data, content)} runs", *shown]
    if spec.notes:
        parts.append("\n".join(f"- {note}" for note in spec.notes))
    return parts


def _count(data: Path, content: bytes) -> int:
    """Count the runs that a figure's CSV names: by their ids, or by their methods if it describes samplers."""
    lines = io.StringIO(content.decode(), newline="")
    named = [row.get("run_id") or row.get("run") or row.get("run_ids") for row in csv.DictReader(lines)]
    if not named or None in named:
        raise DataError(f"{data}: expected a column run_id, run or run_ids in every line; publish it again")
    return len({name for names in named for name in str(names).split()})

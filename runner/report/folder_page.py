"""This module writes the page of a folder of committed tables and figures: README.md, with each figure's notes."""

import csv
from collections.abc import Sequence
from pathlib import Path

from runner.errors import DataError
from runner.report.publish import owner, published_dir
from runner.report.tables import TableSpec
from runner.training.files import write_atomically

PAGE = "README.md"
_OPENING = """# Tables and figures, profile {profile}

`make publish PROFILE={profile}` writes this page from what lies in the folder; nobody edits it. `make reproduce
TABLE=NAME PROFILE={profile}` makes a table or figure from runs of your own, in `results/out/`. A table is here as
Markdown, LaTeX and CSV, a figure as PNG, SVG and CSV. The CSV names the runs behind the numbers."""


def write_folder_page(specs: Sequence[TableSpec], profile: str, results_dir: Path) -> Path:
    """Write README.md of the committed tables and figures of a profile; return its path.

    Raises DataError for a figure without its CSV, and for a CSV that names no runs.
    """
    folder = published_dir(results_dir, profile)
    page = folder / PAGE
    write_atomically(page, folder_page(specs, profile, folder))
    return page


def folder_page(specs: Sequence[TableSpec], profile: str, folder: Path) -> str:
    """Return the page as Markdown: a list of the tables, then every figure with its notes."""
    names = [spec.name for spec in specs]
    pictures: dict[str, list[Path]] = {name: [] for name in names}
    for path in sorted(folder.glob("*.png")):
        if name := owner(path.stem, names):
            pictures[name].append(path)
    tables = [spec for spec in specs if (folder / f"{spec.name}.md").is_file()]
    parts = [_OPENING.format(profile=profile)]
    if tables:
        rows = [f"| [{spec.name}]({spec.name}.md) | {spec.title} |" for spec in tables]
        parts.append("\n".join(["| Table | What it shows |", "|---|---|", *rows]))
    for spec in specs:
        if pictures[spec.name]:
            parts.extend(_figure(spec, pictures[spec.name], folder / f"{spec.name}.csv"))
    return "\n\n".join(parts) + "\n"


def _figure(spec: TableSpec, pictures: Sequence[Path], data: Path) -> list[str]:
    shown = [f"![{spec.title}]({picture.name})" for picture in pictures]
    parts = [f"## {spec.title}", f"[{data.name}]({data.name}): {_count(data)} runs", *shown]
    if spec.notes:
        parts.append("\n".join(f"- {note}" for note in spec.notes))
    return parts


def _count(data: Path) -> int:
    """Count the runs that a figure's CSV names: by their ids, or by their methods if it describes samplers."""
    if not data.is_file():
        raise DataError(f"{data}: missing; the figure beside it is worth nothing without its data: publish it again")
    with data.open(newline="", encoding="utf-8") as lines:
        named = {row.get("run_id") or row.get("run") for row in csv.DictReader(lines)}
    if not named or None in named:
        raise DataError(f"{data}: expected a column run_id or run that names a run in every line; publish it again")
    return len(named)

"""Write a diagnosis to ``diagnostics/`` of a run folder as Markdown, CSV, JSON and figures, and read it back."""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any, TypeVar

from runner.errors import DamagedRun
from runner.report.diagnoses import figures
from runner.report.diagnoses.record import Diagnosis, Entry, ExampleEntry
from runner.report.diagnoses.tables import as_frame, to_markdown
from runner.training.files import read_json
from runner.training.stored_arrays import replacement

RecordedEntry = TypeVar("RecordedEntry", Entry, ExampleEntry)


def read(folder: Path) -> Diagnosis | None:
    """Read what ``write`` left in the folder; None if there is nothing, or nothing that can be read."""
    found = read_entries(folder, "samplers", Entry)
    return None if found is None else Diagnosis(made=found[0], entries=found[1])


def read_entries(
    folder: Path, key: str, kind: type[RecordedEntry]
) -> tuple[dict[str, Any], tuple[RecordedEntry, ...]] | None:
    """Return diagnostics.json of a folder without its entries, and its entries of this kind; None if it has none.

    A damaged file is named on standard error and counts as none, because it can be made again at any time.
    """
    path = folder / "diagnostics.json"
    try:
        made = read_json(path)
        if made is None or key not in made:
            return None
        known = {field.name for field in dataclasses.fields(kind)}  # earlier versions stored more
        entries = tuple(kind(**{name: entry[name] for name in entry if name in known}) for entry in made.pop(key))
        if not isinstance(made.get("asked"), dict):
            raise DamagedRun(path, "'asked' is missing")
    except (DamagedRun, TypeError) as error:
        why = error.why if isinstance(error, DamagedRun) else f"'{key}' is of a wrong kind"
        print(f"left out: {path} is damaged: {why}; python -m runner.diagnose makes it again", file=sys.stderr)
        return None
    return made, entries


def write(diagnosis: Diagnosis, folder: Path) -> None:
    """Replace the contents of ``folder`` by diagnostics.md, .csv, .json and the figures."""
    with replacement(folder) as partial:
        (partial / "diagnostics.md").write_text(to_markdown(diagnosis), encoding="utf-8")
        (partial / "diagnostics.csv").write_text(as_frame(diagnosis.entries).to_csv(index=False), encoding="utf-8")
        everything = {**diagnosis.made, "samplers": [vars(entry) for entry in diagnosis.entries]}
        (partial / "diagnostics.json").write_text(json.dumps(everything, indent=1, allow_nan=False) + "\n")
        figures.draw(diagnosis, partial)

"""Write a diagnosis to ``diagnostics/`` of a run folder as Markdown, CSV, JSON and figures, and read it back."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runner.diagnosis import figures
from runner.diagnosis.record import Diagnosis, Entry
from runner.diagnosis.tables import as_frame, to_markdown
from runner.training.files import read_json


def read(folder: Path) -> Diagnosis | None:
    """Read what ``write`` left in the folder; None if there is nothing."""
    found = read_json(folder / "diagnostics.json")
    if found is None or "samplers" not in found:
        return None
    entries = tuple(Entry(**entry) for entry in found.pop("samplers"))
    return Diagnosis(made=found, entries=entries)


def write(diagnosis: Diagnosis, folder: Path) -> None:
    """Replace the contents of ``folder`` by diagnostics.md, .csv, .json and the figures."""
    with replaced(folder) as partial:
        (partial / "diagnostics.md").write_text(to_markdown(diagnosis))
        (partial / "diagnostics.csv").write_text(as_frame(diagnosis.entries).to_csv(index=False))
        everything = {**diagnosis.made, "samplers": [vars(entry) for entry in diagnosis.entries]}
        (partial / "diagnostics.json").write_text(json.dumps(everything, indent=1, allow_nan=False) + "\n")
        figures.draw(diagnosis, partial)


@contextmanager
def replaced(folder: Path) -> Iterator[Path]:
    """Give an empty folder to fill, which then replaces ``folder``.

    A kill while the files are made leaves none of the new ones in ``folder``.
    """
    partial = folder.parent / f".{folder.name}-partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    try:
        yield partial
        shutil.rmtree(folder, ignore_errors=True)
        os.rename(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)

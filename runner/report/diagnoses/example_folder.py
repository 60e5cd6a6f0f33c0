"""Write a diagnosis of samplers of examples to a run folder as Markdown, CSV, JSON and a figure, and read it back."""

import json
from pathlib import Path

from runner.data.shared.cards import dataset_title
from runner.report.diagnoses.example_tables import as_frame, courses_of, to_markdown
from runner.report.diagnoses.folder import read_entries
from runner.report.diagnoses.record import ExampleDiagnosis, ExampleEntry
from runner.report.figures.style import save
from runner.training.stored_arrays import replacement

_ENTRIES = "example_samplers"


def read(folder: Path) -> ExampleDiagnosis | None:
    """Read what ``write`` left in the folder; None if there is nothing, or nothing that can be read."""
    found = read_entries(folder, _ENTRIES, ExampleEntry)
    return None if found is None else ExampleDiagnosis(made=found[0], entries=found[1])


def write(diagnosis: ExampleDiagnosis, folder: Path) -> None:
    """Replace the contents of ``folder`` by diagnostics.md, .csv, .json and the figure."""
    with replacement(folder) as partial:
        (partial / "diagnostics.md").write_text(to_markdown(diagnosis), encoding="utf-8")
        (partial / "diagnostics.csv").write_text(as_frame(diagnosis.entries).to_csv(index=False), encoding="utf-8")
        everything = {**diagnosis.made, _ENTRIES: [vars(entry) for entry in diagnosis.entries]}
        (partial / "diagnostics.json").write_text(json.dumps(everything, indent=1, allow_nan=False) + "\n")
        save(courses_of({dataset_title(diagnosis.made["dataset"]): diagnosis}), partial / "samples")

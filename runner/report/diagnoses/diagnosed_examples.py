"""Lay out what was measured of samplers of training examples on a grid's runs: a table and a figure."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from runner.report.diagnoses import example_tables
from runner.report.diagnoses.diagnosed import measured_examples
from runner.report.diagnoses.record import ExampleDiagnosis
from runner.report.figures.style import save
from runner.report.numbers.cells import runs_table
from runner.report.numbers.learning import why_not_learnt
from runner.report.numbers.records import NOT_RUN, RunRecord, record_of
from runner.report.pages.layout import Block, Document, how_made
from runner.report.spec.grids import PlannedRun
from runner.report.spec.tables import TableSpec


def document(spec: TableSpec, runs: Sequence[PlannedRun], command: str) -> Document:
    """Return the table with one block for each run; a run that is not diagnosed is a line instead."""
    found = _by_heading(spec, runs)
    missing = [
        f"{_heading(spec, run, runs)}: {_why_unlearnt(run) or f'{record_of(run).status}, not diagnosed'}"
        for run in runs
        if _shown(spec, run) is None
    ]
    blocks = tuple(
        Block(
            title=heading,
            caption=example_tables.made_line(diagnosis),
            frame=example_tables.table(diagnosis.entries),
        )
        for heading, diagnosis in found.items()
    )
    some = next(iter(found.values()), None)
    settings = (
        () if some is None else tuple(line.removeprefix("- ") for line in example_tables.settings(some).split("\n"))
    )
    with_folder = [run for run in runs if record_of(run).status != NOT_RUN]
    return Document(
        name=spec.name,
        title=spec.title,
        made=how_made([record_of(run) for run in with_folder], command),
        blocks=blocks,
        notes=(*missing, *spec.notes, *example_tables.NOTES, *settings),
        runs=runs_table(spec.grid, with_folder),
    )


def as_frame(spec: TableSpec, runs: Sequence[PlannedRun]) -> pd.DataFrame:
    """Return every measure, with a row for each run and sampler."""
    frames = [
        example_tables.as_frame(found.entries).assign(dataset=run.dataset, run=run.method, run_id=run.run_id)
        for run in runs
        if (found := _shown(spec, run)) is not None
    ]
    return pd.concat(frames) if frames else pd.DataFrame()


def draw(spec: TableSpec, runs: Sequence[PlannedRun], folder: Path) -> list[Path]:
    """Draw the course of the estimates, a column for each run; return the path of the PNG, none without any run."""
    found = _by_heading(spec, runs)
    return [save(example_tables.courses_of(found), folder / spec.name)] if found else []


def points(spec: TableSpec, run: PlannedRun, record: RunRecord) -> Iterator[dict[str, Any]]:
    """Yield the points of the figure that are of one run."""
    if (found := _shown(spec, run)) is not None:
        for entry in found.entries:
            course = entry.course
            for place, samples in enumerate(course["samples"]):
                values = {key: course[key][place] for key in ("gradient_norm", "similarity")}
                yield {"sampler": entry.name, "samples": samples, **values}


def _why_unlearnt(run: PlannedRun) -> str:
    record = record_of(run)
    return why_not_learnt(record) if record.finished else ""


def _shown(spec: TableSpec, run: PlannedRun) -> ExampleDiagnosis | None:
    """Return what was measured on a run, or None; what a model that never learnt makes of examples is no number."""
    return None if _why_unlearnt(run) else measured_examples(spec, run)


def _by_heading(spec: TableSpec, runs: Sequence[PlannedRun]) -> dict[str, ExampleDiagnosis]:
    return {_heading(spec, run, runs): found for run in runs if (found := _shown(spec, run)) is not None}


def _heading(spec: TableSpec, run: PlannedRun, runs: Sequence[PlannedRun]) -> str:
    """Return the data set's label, with the seed if there are several, and the method if there are several."""
    parts = [spec.grid.dataset(run.dataset).label]
    parts += [spec.grid.label(run)] if len(spec.grid.methods) > 1 else []
    parts += [f"seed {run.seed}"] if len({other.seed for other in runs}) > 1 else []
    return ", ".join(parts)

"""Make tables and figures of samplers that are measured on the final weights of a grid's runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup

from runner.report.diagnoses import example_folder, figures, tables
from runner.report.diagnoses.bias import bias_against_divergence
from runner.report.diagnoses.folder import read
from runner.report.diagnoses.record import Diagnosis, ExampleDiagnosis
from runner.report.figures.style import save, styled
from runner.report.numbers.records import record_of
from runner.report.pages.layout import folded, html, markdown_table, picture_markdown
from runner.report.pages.publish import CURVES
from runner.report.plan.speed import slowness
from runner.report.spec.grids import PlannedRun, expand
from runner.report.spec.tables import TableSpec
from runner.training.files import write_atomically
from runner.training.run_folder import RunFolder

# Seconds on two idle cores, of profile small: of a table or figure, of the diagnosis of a run's 19 samplers of classes,
# and of its samplers of training examples. Larger models take longer.
_RENDER_SECONDS, _DIAGNOSIS_SECONDS, _EXAMPLES_SECONDS = 2.2, 120.0, 20.0


def measured(spec: TableSpec, run: PlannedRun) -> Diagnosis | None:
    """Return the diagnosis of the run that was made with the settings of ``spec``, or None."""
    found = read(_folder(spec, run))
    return found if found is not None and _is_asked(spec, found.made) else None


def measured_examples(spec: TableSpec, run: PlannedRun) -> ExampleDiagnosis | None:
    """Return the diagnosis of samplers of examples that was made with the settings of ``spec``, or None."""
    found = example_folder.read(_folder(spec, run))
    return found if found is not None and _is_asked(spec, found.made) else None


def _folder(spec: TableSpec, run: PlannedRun) -> Path:
    return RunFolder(record_of(run).path).diagnostics_path(spec.request.name)


def _is_asked(spec: TableSpec, made: Mapping[str, Any]) -> bool:
    return bool(made["asked"] == spec.request.record())


def seconds_after(specs: Sequence[TableSpec], profile: str, results_dir: Path) -> float:
    """Estimate the seconds between the last run and the pages: diagnoses that are not made yet, and rendering."""
    seconds = {}  # tables and figures of one grid may share a diagnosis
    for spec in specs:
        if spec.is_diagnosed:
            cost = _EXAMPLES_SECONDS if spec.examples else _DIAGNOSIS_SECONDS
            for run in expand(spec.grid, profile, results_dir):
                if not is_diagnosed(spec, run):
                    seconds[spec.request.name, run.run_id] = cost
    return (sum(seconds.values()) + _RENDER_SECONDS * len(specs)) * slowness()


def is_diagnosed(spec: TableSpec, run: PlannedRun) -> bool:
    """Tell whether the run has the diagnosis that the table shows."""
    return (measured_examples if spec.examples else measured)(spec, run) is not None


def _place(spec: TableSpec, run: PlannedRun, many: bool) -> list[str]:
    return [spec.name, run.dataset, run.method, *([str(run.seed)] if many else [])]


@dataclass(frozen=True, kw_only=True)
class Rendered:
    """What was written, and the same as sections of a page in HTML and in Markdown."""

    files: tuple[Path, ...]
    html: Markup
    markdown: str


def render(spec: TableSpec, runs: Sequence[PlannedRun], folder: Path, command: str) -> Rendered:
    """Write NAME.md, NAME.csv, NAME.png, NAME.svg, a picture by rank of each run, and the points of all pictures.

    NAME_bias.png has the biases of gradients against divergences, if some are above their noise.
    """

    many = len({run.seed for run in runs}) > 1
    shown, missing = [], []
    for run in runs:
        heading = f"{spec.grid.dataset(run.dataset).label}, {spec.grid.label(run)}"
        heading += f", seed {run.seed}" if many else ""
        if (found := measured(spec, run)) is not None:
            shown.append((heading, run, found))
        else:
            missing.append(f"{heading}: {record_of(run).status}, not diagnosed")
    if not shown:
        why = "; ".join(missing)
        section = html("figure", name=spec.name, title=spec.title, made=(), pictures=(), missing=[why], notes=())
        return Rendered(files=(), html=section, markdown=f"### {spec.title}\n\n{why}")
    frames, curves = _frames(shown)
    with styled():
        together = figures.cumulative_of({title: found for title, _, found in shown})
        pictures = [save(together, folder / spec.name)]
        for heading, run, found in shown:
            if (by_rank := figures.by_rank(found, heading)) is not None:
                pictures.append(save(by_rank, folder / "_".join(_place(spec, run, many))))
        if (biases := bias_against_divergence(frames)) is not None:
            pictures.append(save(biases, folder / f"{spec.name}_bias"))
    parts = [f"# {spec.title}", f"Made by `{command}`", *missing]
    page = [f"### {spec.title}", f"Made by `{command}`", *missing]
    page += [picture_markdown(picture, spec.title) for picture in pictures]
    for heading, _, found in shown:
        parts += [f"## {heading}", tables.made_line(found)]
        page += [f"#### {heading}", tables.made_line(found)]
        for caption, frame in tables.tables(found).items():
            parts += [f"### {caption}", markdown_table(frame)]
            page += [f"##### {caption}", markdown_table(frame)]
        parts += ["### Settings", tables.settings(found)]
        page += [folded("Settings", tables.settings(found))]
    notes = [*spec.notes, *dict.fromkeys(note for _, _, found in shown for note in tables.notes(found))]
    parts += ["## Notes", "\n".join(f"- {note}" for note in notes)]
    page += ["\n".join(f"- {note}" for note in notes)]
    markdown, csv, points = (folder / f"{spec.name}{end}" for end in (".md", ".csv", f"{CURVES}.csv"))
    write_atomically(markdown, "\n\n".join(parts) + "\n")
    for path, rows in ((csv, frames), (points, curves)):
        write_atomically(path, rows.to_csv(index=False, float_format="%.6g"))
    diagnoses = {
        heading: (tables.made_line(found), tables.tables(found), tables.settings(found)) for heading, _, found in shown
    }
    section = html(
        "figure", name=spec.name, title=spec.title, made=[f"Made by `{command}`"], pictures=pictures, missing=missing,
        notes=notes, diagnoses=diagnoses,
    )  # fmt: skip
    return Rendered(files=(markdown, csv, points, *pictures), html=section, markdown="\n\n".join(page))


def _frames(shown: Sequence[tuple[str, PlannedRun, Diagnosis]]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the numbers of all samplers and the points of their curves, each with its run."""
    numbers, points = [], []
    for _, run, found in shown:
        about = {"dataset": run.dataset, "run": run.method, "run_id": run.run_id}
        numbers.append(tables.as_frame(found.entries).assign(**about))
        points.append(tables.curves_frame(figures.shown_in_figures(found)).assign(**about))
    return pd.concat(numbers), pd.concat(points)

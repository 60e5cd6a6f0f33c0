"""Render a profile's tables and figures from the run folders that exist, whatever has been run."""

from collections.abc import Sequence
from pathlib import Path

from runner.report import diagnosed, diagnosed_examples, layout, plots
from runner.report.cells import cells
from runner.report.grids import PROFILES, Grid, PlannedRun, expand
from runner.report.records import record_of
from runner.report.tables import TableSpec
from runner.report.tuning import sentences, tune
from runner.training.files import write_atomically

PAPER = PROFILES[-1]


def runs_shown(grid: Grid, profile: str, results_dir: Path) -> list[PlannedRun]:
    """Return the profile's runs and, for the paper's data sets that it leaves out, the runs of the paper's setting.

    So a table shows the status of every column that the paper prints.
    """
    runs = expand(grid, profile, results_dir)
    covered = {run.dataset for run in runs}
    others = [dataset.name for dataset in grid.datasets if dataset.published and dataset.name not in covered]
    if profile != PAPER and others:
        runs += expand(grid, PAPER, results_dir, datasets=others)
    return runs


def has_runs(grid: Grid, profile: str, results_dir: Path) -> bool:
    """Return True if any run of the profile has finished."""
    return any(record_of(run).finished for run in expand(grid, profile, results_dir))


def render(specs: Sequence[TableSpec], profile: str, results_dir: Path) -> list[Path]:
    """Write every table (Markdown, LaTeX, CSV), every figure (PNG, SVG) and report.html; return their paths."""
    folder = results_dir / "tables" / profile
    folder.mkdir(parents=True, exist_ok=True)
    shown: dict[Grid, list[PlannedRun]] = {}
    written: list[Path] = []
    sections: list[tuple[str, str]] = []
    for asked in specs:
        if asked.grid not in shown:
            shown[asked.grid] = runs_shown(asked.grid, profile, results_dir)
        tuned = tune(asked, shown[asked.grid])
        spec, runs = tuned.spec, tuned.runs
        command = f"make reproduce TABLE={spec.name} PROFILE={profile}"
        if spec.kind == "diagnosis":
            files, fragment = diagnosed.render(spec, runs, folder, command)
            written += files
            sections.append((spec.name, fragment))
            continue
        if spec.is_figure or spec.kind == "example_course":
            draw = plots.draw if spec.is_figure else diagnosed_examples.draw
            pictures = draw(spec, runs, folder)
            written += pictures
            notes = (*spec.notes, *sentences(tuned.choices, spec))
            sections.append((spec.name, _figure_fragment(spec, pictures, runs, command, notes)))
            continue
        if spec.kind == "example_diagnosis":
            frame = diagnosed_examples.as_frame(spec, runs)
            doc = diagnosed_examples.document(spec, runs, command)
        else:
            frame = cells(spec, runs, tuned.choices)
            doc = layout.document(spec, frame, runs, command)
            frame = frame.drop(columns="panel")
        texts = {
            "md": layout.to_markdown(doc),
            "tex": layout.to_latex(doc),
            "csv": frame.to_csv(index=False, float_format="%.6g"),
        }
        for suffix, text in texts.items():
            path = folder / f"{spec.name}.{suffix}"
            write_atomically(path, text)
            written.append(path)
        sections.append((spec.name, layout.to_html_fragment(doc)))
    report = folder / "report.html"
    write_atomically(report, layout.html_page(f"Results, profile {profile}", sections))
    return [*written, report]


def _figure_fragment(
    spec: TableSpec, pictures: Sequence[Path], runs: Sequence[PlannedRun], command: str, notes: Sequence[str]
) -> str:
    records = [record_of(run) for run in runs]
    made = layout.how_made([record for record in records if record.finished], command)
    parts = [f'<section id="{spec.name}"><h2>{layout.html_text(spec.title)}</h2>']
    parts.append(f'<p class="made">{"<br>".join(map(layout.html_text, made))}</p>')
    parts.extend(layout.picture_html(picture, spec.title) for picture in pictures)
    if not pictures:
        parts.append("<p>Not drawn: no finished run yet.</p>")
    parts.append("<ul>" + "".join(f"<li>{layout.html_text(note)}</li>" for note in notes) + "</ul></section>")
    return "\n".join(parts)

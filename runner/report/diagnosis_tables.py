"""Tables of conf/table of kind diagnosis: samplers measured on the final weights of a grid's runs."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from runner.report import diagnosis
from runner.report.figure_style import STYLE, save
from runner.report.layout import html_table, html_text, picture_html
from runner.report.plan import python_path
from runner.report.records import record_of
from runner.run_folder import write_atomically
from runner.tables import CONF, PlannedRun, TableSpec, expand

_REPOSITORY = CONF.parent


def measured(spec: TableSpec, run: PlannedRun) -> diagnosis.Diagnosis | None:
    """What was measured on the run as ``spec`` has it, or None."""
    found = diagnosis.read(record_of(run).path / "diagnostics")
    asked = " ".join(spec.diagnose)
    return found if found is not None and str(found.made["command"]).endswith(asked) else None


def diagnose_runs(specs: Sequence[TableSpec], profile: str, results_dir: Path) -> list[tuple[str, str]]:
    """Measure every finished run of the tables of this kind that is not yet; returns (title, why) of failures."""
    failed = []
    for spec in specs:
        if spec.kind != "diagnosis":
            continue
        for run in expand(spec.grid, profile, results_dir):
            record = record_of(run)
            if not record.finished or measured(spec, run):
                continue
            place = os.path.relpath(record.path, _REPOSITORY)
            print(f"diagnosing {spec.grid.label(run)} on {run.dataset}", file=sys.stderr, flush=True)
            child = subprocess.run(
                [sys.executable, "-m", "runner.diagnose", place, *spec.diagnose],
                cwd=_REPOSITORY,
                env={**os.environ, "PYTHONPATH": python_path()},
                stdout=subprocess.DEVNULL,
                check=False,
            )
            if child.returncode:
                failed.append((f"diagnosing {record.run_id}", f"ended with exit code {child.returncode}"))
    return failed


def render(spec: TableSpec, runs: Sequence[PlannedRun], folder: Path, command: str) -> tuple[list[Path], str]:
    """NAME.md, NAME.csv, NAME.png and .svg, and a picture by rank of each run; returns them and HTML."""
    import matplotlib

    done = [
        (f"{spec.grid.column(run.dataset).label}, {spec.grid.label(run)}", run, measured(spec, run)) for run in runs
    ]
    shown = [(title, run, found) for title, run, found in done if found is not None]
    missing = [f"{title}: {record_of(run).status}, not measured" for title, run, found in done if found is None]
    title = html_text(spec.title)
    if not shown:
        return [], f'<section id="{spec.name}"><h2>{title}</h2><p>Not measured: no finished run yet.</p></section>'
    with matplotlib.rc_context(STYLE):
        together = diagnosis.cumulative_of({title: found for title, _, found in shown})
        pictures = [save(together, folder / spec.name)]
        for _, run, found in shown:
            if (by_rank := diagnosis.by_rank(found)) is not None:
                pictures.append(save(by_rank, folder / f"{spec.name}_{run.dataset}_{run.method}"))
    parts = [f"# {spec.title}", f"Made by `{command}`", *missing]
    frames, html = [], []
    for heading, run, found in shown:
        tables = diagnosis.tables(found)
        parts += [f"## {heading}", diagnosis.made_line(found)]
        html += [f"<h3>{html_text(heading)}</h3><p>{html_text(diagnosis.made_line(found))}</p>"]
        for caption, frame in tables.items():
            parts += [f"### {caption}", diagnosis.markdown_table(frame)]
            html += [f"<h4>{html_text(caption)}</h4>{html_table(frame)}"]
        frames.append(diagnosis.as_frame(found.entries).assign(dataset=run.dataset, run=run.method, run_id=run.run_id))
    notes = [*spec.notes, *dict.fromkeys(note for _, _, found in shown for note in diagnosis.notes(found))]
    parts += ["\n".join(f"- {note}" for note in notes), "## Settings", diagnosis.settings(shown[-1][2])]
    markdown, csv = folder / f"{spec.name}.md", folder / f"{spec.name}.csv"
    write_atomically(markdown, "\n\n".join(parts) + "\n")
    write_atomically(csv, pd.concat(frames).to_csv(index=False, float_format="%.6g"))
    listed = "".join(f"<li>{html_text(note)}</li>" for note in notes)
    body = "\n".join([*(picture_html(picture, spec.title) for picture in pictures), *html])
    fragment = (
        f'<section id="{spec.name}"><h2>{title}</h2><p class="made">Made by <code>{html_text(command)}</code></p>'
    )
    return [markdown, csv, *pictures], f"{fragment}\n{body}\n<ul>{listed}</ul></section>"

"""Render a profile's tables and figures from the run folders that exist, whatever has been run."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd
from markupsafe import Markup

from runner.report.diagnoses import diagnosed, diagnosed_examples
from runner.report.figures import plots
from runner.report.figures.data import as_csv, figure_data
from runner.report.figures.first_page import draw_first_page
from runner.report.numbers.cells import cells
from runner.report.numbers.papers import CellsOfTable, Paper, Verdict, load_papers, verdicts
from runner.report.numbers.records import record_of
from runner.report.numbers.tuning import Tuned, sentences, tune
from runner.report.pages import layout, levels, page
from runner.report.pages.benches import bench_numbers, bench_sections, not_measured
from runner.report.pages.choose import guide
from runner.report.pages.evidence import evidence
from runner.report.pages.footprint import footprint
from runner.report.pages.latex import to_latex
from runner.report.pages.opening import Opening
from runner.report.pages.page import Report, Section, missing_lines
from runner.report.pages.publish import PAGE, files_of, outcomes, published_dir, published_figure, rendered_dir
from runner.report.spec.first_page import load_first_page
from runner.report.spec.grids import PROFILES, Grid, PlannedRun, expand
from runner.report.spec.tables import BenchSpec, TableSpec, table_names
from runner.training.files import write_atomically

PAPER = PROFILES[-1]
_NOT_DRAWN = "Not drawn: no finished run yet."


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


def own_runs_finished(grids: Iterable[Grid], others: Iterable[Grid], profile: str, results_dir: Path) -> set[Grid]:
    """Return those grids of which a run has finished that none of the ``others`` plans too."""
    shared = {run.run_id for other in others for run in expand(other, profile, results_dir)}

    def has_own(grid: Grid) -> bool:
        return any(record_of(run).finished for run in expand(grid, profile, results_dir) if run.run_id not in shared)

    return {grid for grid in grids if has_own(grid)}


def render(
    specs: Sequence[TableSpec],
    profile: str,
    results_dir: Path,
    benches: Sequence[BenchSpec] = (),
    *,
    small_benches: bool = False,
    not_planned: Sequence[TableSpec] = (),
    kept: dict[str, "Rendered"] | None = None,
    waiting: int = 0,
) -> list[Path]:
    """Write every table (Markdown, LaTeX, CSV), every figure (PNG, SVG, CSV), REPRODUCTION.md and report.html.

    The pages also show the reports of ``benches``, as far as they have been measured. What an earlier call wrote of a
    table and this one does not is removed, so that it is not published.

    Returns the paths, that of report.html last. They lie in a folder of their own: committed tables change only by
    ``runner.report.pages.publish``.

    With ``small_benches`` the pages show reports of laptop size in the place of those of full size. As they are not
    committed, what ``make publish`` copies is another page (``runner.report.pages.page.TO_PUBLISH``), without them.

    ``not_planned`` are tables that are run by name only: the pages say how to make those that are not rendered.

    ``kept`` has what earlier calls rendered, by name. Its tables are not rendered again, and those of this call are
    added. ``waiting``: how many more tables will come, which the pages say.
    """
    kept = {} if kept is None else kept
    folder = rendered_dir(results_dir, profile)
    folder.mkdir(parents=True, exist_ok=True)
    shown: dict[Grid, list[PlannedRun]] = {}
    behind: dict[str, list[PlannedRun]] = {}
    sections: list[Section] = []
    numbers: dict[str, CellsOfTable] = {}
    choosing: list[tuple[TableSpec, Sequence[PlannedRun]]] = []
    for asked in specs:
        if asked.grid not in shown:
            shown[asked.grid] = runs_shown(asked.grid, profile, results_dir)
        runs = shown[asked.grid]
        # Nothing is printed for what the profile leaves out.
        if asked.kind == "levels" or (asked.kind == "numbers" and asked.published is None):
            runs = [run for run in runs if run.dataset in {data.name for data in asked.grid.profile(profile).datasets}]
        behind[asked.name] = runs
        if asked.name not in kept:
            kept[asked.name] = _render_one(tune(asked, runs), folder, profile)
        done = kept[asked.name]
        sections.append(done.section)
        if done.tuned.spec.kind == "numbers" and done.numbers is not None:
            methods = {method.name: method.label for method in asked.grid.methods}
            datasets = {data.name: data.label for data in asked.grid.datasets}
            numbers[asked.name] = (done.numbers, methods, datasets, _classes(runs))
            choosing.append((done.tuned.spec, done.tuned.runs))
    _remove_old(sections, folder)
    papers = load_papers()
    labels = {data.name: data.label for grid in shown for data in grid.datasets}
    missing = missing_lines([run for runs in shown.values() for run in runs], labels)
    missing += [
        f"{spec.title}: run by name only, since it takes long; `{_command(spec, profile)}` does so"
        for spec in not_planned
        if spec.name not in behind
    ]
    opening, committed = _openings(folder, results_dir)
    days, machines = layout.days_and_machines(record_of(run) for runs in behind.values() for run in runs)
    report = Report(
        title=f"Results, profile {profile}",
        profile=profile,
        opening=opening,
        waiting=waiting,
        sections=tuple(sections),
        papers=papers,
        found=_judged(papers, numbers, bench_numbers(benches, results_dir)),
        larger=evidence(profile, published_dir(results_dir, profile).parent),
        choices=guide(choosing),
        missing=(*missing, *not_measured(benches, results_dir)),
        benches=bench_sections(benches, results_dir, folder),
        took=footprint(behind),
        days=days,
        machines=machines,
    )
    write_atomically(folder / page.TO_PUBLISH, page.markdown_page(replace(report, opening=committed)))
    if small_benches:
        report = replace(
            report,
            found=_judged(papers, numbers, bench_numbers(benches, results_dir, small=True)),
            missing=(*missing, *not_measured(benches, results_dir, small=True)),
            benches=bench_sections(benches, results_dir, folder, small=True),
        )
    pages = {
        (folder / PAGE).with_suffix(".json"): page.facts(report),
        folder / PAGE: page.markdown_page(report),
        folder / "report.html": page.html_page(report),
    }
    for path, text in pages.items():
        write_atomically(path, text)
    return [*(path for section in sections for path in section.files), *pages]


def _openings(folder: Path, results_dir: Path) -> tuple[Opening, Opening]:
    """Return what a page opens with: with the figure of the runs here, or the committed one if there is none, and with
    the committed one.
    """
    first = load_first_page()
    drawn = draw_first_page(first.families, [folder], folder)
    beside = published_figure(results_dir)
    committed = Opening(page=first, picture=beside if beside.is_file() else None, is_committed=True)
    return Opening(page=first, picture=drawn[0]) if drawn else committed, committed


def _judged(
    papers: Iterable[Paper], numbers: Mapping[str, CellsOfTable], measured: Mapping[str, CellsOfTable]
) -> dict[str, Sequence[Verdict]]:
    """Return the verdicts by paper, by the numbers of rendered tables and by those that the bench measured."""
    return {paper.name: verdicts(paper, {**numbers, **measured}) for paper in papers}


def _remove_old(sections: Iterable[Section], folder: Path) -> None:
    """Remove the files of the tables and figures that were not written now."""
    written = {section.name: {*section.files} for section in sections}
    for name, files in files_of([*written], {*table_names(), *written}, folder).items():
        for path in files:
            with_picture = path.suffix == ".svg" and path.with_suffix(".png") in written[name]
            if path not in written[name] and not with_picture:
                path.unlink()


def _classes(runs: Iterable[PlannedRun]) -> dict[str, int]:
    """Return the numbers of classes by data set, as far as finished runs tell them; regression has no classes."""
    described = ((run.dataset, record_of(run)) for run in runs)
    found = {name: record.summary["dataset"].get("num_classes") for name, record in described if record.finished}
    return {name: count for name, count in found.items() if count is not None}


def _command(spec: TableSpec, profile: str) -> str:
    return f"make reproduce TABLE={spec.name} PROFILE={profile}"


@dataclass(frozen=True, kw_only=True)
class Rendered:
    """A table or figure that was written: what it shows, its section, and its numbers in long form if it has some."""

    tuned: Tuned
    section: Section
    numbers: pd.DataFrame | None


def _render_one(tuned: Tuned, folder: Path, profile: str) -> Rendered:
    """Write the files of one table or figure."""
    spec, runs = tuned.spec, tuned.runs
    command = _command(spec, profile)
    frame = None
    if spec.is_diagnosed and not spec.examples:
        rendered = diagnosed.render(spec, runs, folder, command)
        files, html, markdown = [*rendered.files], rendered.html, rendered.markdown
    elif spec.kind == "levels":
        files, doc = levels.write(levels.levels_of_runs(spec, runs, profile, command), folder)
        html, markdown = layout.html("document", doc=doc), layout.to_markdown_fragment(doc)
    elif spec.is_figure or spec.examples == "course":
        draw, points = (plots.draw, None) if spec.is_figure else (diagnosed_examples.draw, diagnosed_examples.points)
        pictures = draw(spec, runs, folder)
        figure = _Figure(
            spec=spec, pictures=pictures, notes=[*spec.notes, *sentences(tuned.choices, spec)],
            made=layout.how_made([record_of(run) for run in runs if record_of(run).finished], command),
        )  # fmt: skip
        html, markdown = figure.html(), figure.markdown()
        data = folder / f"{spec.name}.csv"
        files = [*pictures, data] if pictures else []
        if pictures:
            write_atomically(data, as_csv(figure_data(spec, runs, points)))
    else:
        if spec.examples:
            frame = diagnosed_examples.as_frame(spec, runs)
            doc = diagnosed_examples.document(spec, runs, command)
        else:
            frame = cells(spec, runs, tuned.choices)
            here = {dataset.name for dataset in spec.grid.profile(profile).datasets}
            elsewhere = {data.name: _command(spec, PAPER) for data in spec.grid.datasets if data.name not in here}
            doc = layout.document(spec, frame, runs, command, elsewhere)
            frame = frame.drop(columns="panel")
        texts = {"md": layout.to_markdown(doc), "tex": to_latex(doc), "csv": as_csv(frame)}
        files = [folder / f"{spec.name}.{suffix}" for suffix in texts]
        for path, text in zip(files, texts.values(), strict=True):
            write_atomically(path, text)
        html, markdown = layout.html("document", doc=doc), layout.to_markdown_fragment(doc)
    section = Section(
        name=spec.name, title=spec.title, paper=spec.grid.paper or "", html=html, markdown=markdown, files=tuple(files),
        outcomes=sum(outcomes(path) for path in files if path.suffix == ".csv"),
    )  # fmt: skip
    return Rendered(tuned=tuned, section=section, numbers=frame)


@dataclass(frozen=True, kw_only=True)
class _Figure:
    """A figure as a section of a page: how it was made, its pictures and its notes."""

    spec: TableSpec
    pictures: Sequence[Path]
    notes: Sequence[str]
    made: Sequence[str]

    def html(self) -> Markup:
        return layout.html(
            "figure", name=self.spec.name, title=self.spec.title, made=self.made, pictures=self.pictures,
            missing=() if self.pictures else (_NOT_DRAWN,), notes=self.notes,
        )  # fmt: skip

    def markdown(self) -> str:
        parts = [f"### {self.spec.title}", "  \n".join(self.made)]
        parts.extend(layout.picture_markdown(picture, self.spec.title) for picture in self.pictures)
        name = self.spec.name
        parts.append(f"The data with run ids: [{name}.csv]({name}.csv)." if self.pictures else _NOT_DRAWN)
        if self.notes:
            parts.append("\n".join(f"- {note}" for note in self.notes))
        return "\n\n".join(parts)

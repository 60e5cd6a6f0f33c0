"""A plan readies one table soon after the other, and the pages say how many are still to come."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.report.figures.first_page import draw_first_page
from runner.report.pages.publish import published_figure
from runner.report.plan.order import Waiting
from runner.report.plan.plan import FINISHED, TO_RUN, Step
from runner.report.render import Rendered, render
from runner.report.spec.first_page import Family, FigureOfFamily
from runner.report.spec.grids import Grid, PlannedRun, expand
from runner.report.spec.tables import TableSpec, load_table

NUMBERS = "title: Toy\nkind: numbers\ncolumns: [{name: P@1, metric: test/p@1}]\ngrid: {}\n"
Write = Callable[..., Path]


@pytest.fixture
def grids(write_tables: Write, grid_text: str) -> list[Grid]:
    """Three grids: ``long``, ``short``, and ``toy``, which shares all runs of ``short`` and has one more method."""
    tables = {name: NUMBERS.replace("{}", name) for name in ("long", "short", "toy")}
    folder = write_tables(grid=grid_text, **tables)
    without_nce = "\n".join(line for line in grid_text.splitlines() if "name: nce" not in line)
    (folder / "grid" / "long.yaml").write_text(grid_text.replace("epochs=4", "epochs=9"))
    (folder / "grid" / "short.yaml").write_text(without_nce)
    return [load_table(name, folder).grid for name in ("long", "toy", "short")]


def steps_for(grids: list[Grid], results_dir: Path, *, done: str = "") -> list[Step]:
    """Return the grids' steps: nine seconds for nine epochs, else one, and an unknown time for NCE of four epochs."""
    found: dict[str, Step] = {}
    for grid in grids:
        for run in expand(grid, "small", results_dir):
            seconds = 9.0 if run.config.epochs == 9 else None if run.method == "nce" else 1.0
            status = FINISHED if run.method == done else TO_RUN
            step = Step(run=run, title="", status=status, seconds=seconds, measured=True)
            found.setdefault(run.run_id, step)
    return [*found.values()]


def test_the_grid_that_takes_least_comes_first_and_unknown_lengths_last(grids: list[Grid], results_dir: Path) -> None:
    steps = steps_for(grids, results_dir)
    order = Waiting(grids, steps, "small", results_dir).soonest_first()
    told = [(step.run.config.epochs, step.run.method) for step in order]
    assert told == [
        (4, "full"), (4, "lsh_label"), (9, "full"), (9, "lsh_label"), (9, "nce"), (4, "nce"),
    ]  # fmt: skip
    assert sorted(step.run.run_id for step in order) == sorted(step.run.run_id for step in steps), "each once"


def test_a_grid_is_ready_when_its_last_run_is_over(grids: list[Grid], results_dir: Path) -> None:
    long, toy, short = grids
    steps = steps_for(grids, results_dir)
    waiting = Waiting(grids, steps, "small", results_dir)
    seen = []
    for step in waiting.soonest_first():
        waiting.is_over_for(step)
        seen.append(waiting.ready)
    assert seen == [set(), {short}, {short}, {short}, {short, long}, {short, long, toy}]


def test_what_is_finished_is_ready_and_what_cannot_run_never_is(grids: list[Grid], results_dir: Path) -> None:
    steps = [dataclasses.replace(step, status=FINISHED) for step in steps_for(grids[2:], results_dir)]
    assert Waiting(grids[2:], steps, "small", results_dir).ready == {grids[2]}
    steps = [dataclasses.replace(step, status="skipped: data not prepared") for step in steps]
    assert Waiting(grids[2:], steps, "small", results_dir).ready == set()


def test_a_page_says_what_is_to_come_and_renders_no_table_twice(
    toy: dict[str, TableSpec], planned: Callable[..., list[PlannedRun]], write_run: Write, results_dir: Path
) -> None:
    for run in planned(toy["convergence"].grid, "small"):
        write_run(run, [0.2, 0.4])
    kept: dict[str, Rendered] = {}
    *_, markdown, page = render([toy["convergence"]], "small", results_dir, kept=kept, waiting=2)
    assert "1 of 3 tables and figures are ready." in page.read_text()
    assert "1 of 3 tables and figures are ready." in markdown.read_text()
    table = results_dir / "out" / "small" / "toy2.md"
    before = table.stat().st_mtime_ns
    *_, page = render([toy["convergence"], toy["curves"]], "small", results_dir, kept=kept)
    assert table.stat().st_mtime_ns == before
    assert "tables and figures are ready" not in page.read_text()
    assert {*kept} == {"toy2", "toyc"}


def test_the_page_opens_with_the_rule_and_the_committed_figure_before_any_table(
    toy: dict[str, TableSpec], results_dir: Path
) -> None:
    committed = published_figure(results_dir)
    committed.parent.mkdir(parents=True)
    committed.write_bytes(b"picture")
    page = render([toy["convergence"]], "small", results_dir)[-1].read_text()
    rule, figure, table = (page.index(part) for part in ("Few classes", "<img", "<table"))
    assert rule < figure < table
    assert "These are committed runs" in page
    assert "](tables/first_page.png)" not in (results_dir / "out" / "small" / "REPRODUCTION.md").read_text()
    assert "](../../tables/first_page.png)" in (results_dir / "out" / "small" / "REPRODUCTION.md").read_text()


def test_the_figure_takes_the_first_folder_and_figure_that_has_seconds(tmp_path: Path) -> None:
    head = "dataset,method,label,setting,seed,run_id,epoch,step,train_seconds,metric,value\n"
    row = "{},{},L,,{},id,1,1,{},valid/p@1,{}\n"
    first, second = tmp_path / "first", tmp_path / "second"
    for folder, seconds in ((first, ""), (second, "2")):
        folder.mkdir()
        rows = [row.format("delicious", "full", seed, seconds, 0.5) for seed in (0, 1)]
        rows += [row.format("delicious", "full", seed, seconds and "4", 0.7) for seed in (0, 1)]
        (folder / "lns_figure4.csv").write_text(head + "".join(rows))
    family = Family(
        family="F", label="P@1 (%)", times=100, higher_is_better=True, methods=("full",),
        figures=(FigureOfFamily(name="none"), FigureOfFamily(name="lns_figure4")),
    )  # fmt: skip
    assert draw_first_page([family], [first], tmp_path) == []
    picture, data = draw_first_page([family], [first, second], tmp_path)
    assert picture.is_file()
    assert len(data.read_text().splitlines()) == 5
    other = dataclasses.replace(family, figures=(FigureOfFamily(name="lns_figure4", dataset="wordnet_related"),))
    assert draw_first_page([other], [second], tmp_path) == []

"""Rendering leaves committed tables alone; they change by publishing, which never loses a finished run."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from runner.errors import RunnerError
from runner.report.figure_data import figure_data
from runner.report.grids import PlannedRun
from runner.report.publish import outcomes, publish
from runner.report.render import render
from runner.report.tables import TableSpec

Specs = dict[str, TableSpec]
KNOWN = ["toy2", "toyc", "toyc_more"]


@pytest.fixture
def runs(toy: Specs, planned: Callable[..., list[PlannedRun]]) -> list[PlannedRun]:
    return planned(toy["convergence"].grid, "medium")


def test_a_fresh_clone_renders_without_touching_what_is_committed(toy: Specs, results_dir: Path) -> None:
    committed = results_dir / "tables" / "medium" / "toy2.md"
    committed.parent.mkdir(parents=True)
    committed.write_text("numbers\n")
    written = render([toy["convergence"]], "medium", results_dir)
    assert committed.read_text() == "numbers\n"
    assert "not run" in (results_dir / "out" / "medium" / "toy2.md").read_text()
    assert all(results_dir / "out" in path.parents for path in written)
    with pytest.raises(RunnerError, match=r"out/medium/toy2\.csv: shows no finished run, so there is nothing to"):
        publish(["toy2"], KNOWN, "medium", results_dir)
    assert committed.read_text() == "numbers\n"


def test_publishing_copies_a_table_and_refuses_to_lose_runs(
    toy: Specs, runs: list[PlannedRun], write_run: Callable[..., Path], results_dir: Path
) -> None:
    spec = toy["convergence"]
    for run in runs:
        write_run(run, [0.2, 0.4])
    render([spec], "medium", results_dir)
    copies = publish(["toy2"], KNOWN, "medium", results_dir)
    assert {path.name for path in copies} == {"toy2.md", "toy2.tex", "toy2.csv"}
    table = results_dir / "tables" / "medium" / "toy2.md"
    assert table.read_text() == (results_dir / "out" / "medium" / "toy2.md").read_text()
    before = table.read_text()
    write_run(runs[0], [], status="interrupted")  # a method with a seed less shows no number
    render([spec], "medium", results_dir)
    with pytest.raises(
        RunnerError, match=r"toy2\.csv: shows \d+ outcomes of runs, but the committed .* has \d+; finish"
    ):
        publish(["toy2"], KNOWN, "medium", results_dir)
    assert table.read_text() == before
    table.with_suffix(".csv").unlink()
    publish(["toy2"], KNOWN, "medium", results_dir)
    assert table.read_text() != before, "deleting the committed file says that it is meant"


def test_publishing_what_was_not_rendered(results_dir: Path) -> None:
    with pytest.raises(RunnerError, match=r"toy2 is not rendered; make reproduce TABLE=toy2 PROFILE=small"):
        publish(["toy2"], KNOWN, "small", results_dir)
    assert not (results_dir / "tables").exists()


def test_a_figure_takes_its_pictures_along_and_no_others(
    toy: Specs, runs: list[PlannedRun], write_run: Callable[..., Path], results_dir: Path
) -> None:
    for run in runs:
        write_run(run, [0.2, 0.4])
    render([toy["curves"]], "medium", results_dir)
    folder = results_dir / "out" / "medium"
    (folder / "toyc_wordnet_hypernym.png").write_bytes(b"picture of a run")
    (folder / "toyc_more.png").write_bytes(b"another figure")
    names = {path.name for path in publish(["toyc"], KNOWN, "medium", results_dir)}
    assert names == {"toyc.csv", "toyc.png", "toyc.svg", "toyc_wordnet_hypernym.png"}


def test_the_data_of_a_figure_are_every_run_s_points(
    toy: Specs, runs: list[PlannedRun], write_run: Callable[..., Path], results_dir: Path
) -> None:
    for run in runs[:3]:
        write_run(run, [0.2, 0.4], seconds=10.0)
    spec = toy["curves"]
    render([spec], "medium", results_dir)
    file = results_dir / "out" / "medium" / "toyc.csv"
    shown = pd.read_csv(file)
    assert outcomes(file) == 6
    assert sorted(set(shown["run_id"])) == sorted(run.run_id for run in runs[:3])
    mine = shown[shown["run_id"] == runs[0].run_id]
    assert mine[["epoch", "step", "train_seconds", "value"]].to_numpy().tolist() == [[1, 10, 5, 0.2], [2, 20, 10, 0.4]]
    assert set(mine["metric"]) == {"test_subset/p@1"}
    one_metric = dataclasses.replace(spec, metrics=("test_subset/p@1",))
    assert len(figure_data(one_metric, runs)) == 6
    frequency = figure_data(toy["frequency"], runs)
    assert frequency[frequency["run_id"] == runs[0].run_id]["training_rows"].tolist() == [90, 30, 4, 0]
    proposals = figure_data(toy["distribution"], runs)
    assert proposals[proposals["step"] == 0]["proposal"].tolist() == 3 * [0.1, 0.0, 0.9]

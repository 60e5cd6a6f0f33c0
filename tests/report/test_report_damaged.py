"""A damaged run folder is a status in plans and tables, is named once, and hides no other run."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from runner.report.diagnoses import example_folder, folder
from runner.report.figures import plots
from runner.report.numbers.cells import cells
from runner.report.numbers.records import all_records, record_of, status_of
from runner.report.pages import layout
from runner.report.plan.plan import execute, plan, plan_table, plan_total
from runner.report.spec.grids import PlannedRun
from runner.report.spec.tables import TableSpec


@pytest.mark.parametrize("file", ["summary.json", "config.yaml", "provenance.json", "metrics.jsonl"])
def test_a_damaged_run_among_whole_ones(
    file: str, toy: Mapping[str, TableSpec], planned: Callable[..., list[PlannedRun]],
    pick: Callable[..., PlannedRun], write_run: Callable[..., Path], results_dir: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    spec = toy["convergence"]
    runs = planned(spec.grid, "small")
    for planned_run in runs:
        write_run(planned_run, [0.3, 0.6])
    damaged = pick(runs, "lsh_label")
    (damaged.config.run_dir / file).write_text("{")
    steps = plan([spec], "small", results_dir)
    assert [step.status for step in steps] == ["finished", "damaged", "finished"]
    assert "1 damaged" in plan_total(steps)
    assert "–" in set(plan_table(steps)["seconds"])
    (failure,) = execute(steps).failed
    assert failure[1].startswith(f"damaged: {file}: ")
    assert status_of(damaged) == "damaged"
    assert [record.run_id for record in all_records(results_dir)] == sorted(
        run.run_id for run in runs if run is not damaged
    )
    frame = cells(spec, runs)
    assert {"damaged", "finished"} <= set(frame["status"])
    assert f"damaged: {file}: " in layout.to_markdown(layout.document(spec, frame, runs, "make"))
    assert plots.draw(toy["curves"], runs, tmp_path)
    err = capsys.readouterr().err
    assert err.count("left out: ") == 1, "it is named once, not at every look"
    assert f"left out: {damaged.config.run_dir / file} is damaged: " in err


def test_a_run_that_is_mended_is_read_again(
    toy: Mapping[str, TableSpec], planned: Callable[..., list[PlannedRun]], write_run: Callable[..., Path]
) -> None:
    run = planned(toy["convergence"].grid, "small")[0]
    folder = write_run(run, [0.3, 0.6])
    whole = (folder / "summary.json").read_text()
    (folder / "summary.json").write_text(whole[:50])
    assert record_of(run).status == "damaged"
    (folder / "summary.json").write_text(whole)
    assert record_of(run).status == "finished"


@pytest.mark.parametrize(("text", "why"), [
    ("", "it is empty"),
    ('{"samplers": [', "it is not JSON"),
    ('{"samplers": []}', "'asked' is missing"),
    ('{"samplers": [{"name": "a"}], "asked": {}}', "'samplers' is of a wrong kind"),
    ('{"samplers": 3, "asked": {}}', "'samplers' is of a wrong kind"),
])  # fmt: skip
def test_a_damaged_diagnosis_counts_as_none(
    text: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "diagnostics.json").write_text(text)
    assert folder.read(tmp_path) is None
    says = capsys.readouterr().err
    assert says == (
        f"left out: {tmp_path / 'diagnostics.json'} is damaged: {why}; python -m runner.diagnose makes it again\n"
    )


def test_a_diagnosis_of_examples_is_none_of_classes(tmp_path: Path) -> None:
    made: dict[str, Any] = {"asked": {}, "example_samplers": []}
    (tmp_path / "diagnostics.json").write_text(json.dumps(made))
    assert folder.read(tmp_path) is None
    assert example_folder.read(tmp_path) is not None

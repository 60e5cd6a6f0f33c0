"""Runs of other data, other sources of a plugin or other numbers of the runner are not pooled with those of now."""

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runner import NUMBERS
from runner.config import Failure, compose
from runner.report.figures import plots
from runner.report.figures.data import figure_data
from runner.report.figures.explore import explore
from runner.report.figures.frontier import settings_of_records
from runner.report.numbers import records as records_module
from runner.report.numbers.cells import cells
from runner.report.numbers.comparison import as_printed, comparison
from runner.report.numbers.records import CHANGED, OTHER_DATA, RunRecord, all_records, record_of
from runner.report.numbers.sweep import pivots, sweep_table
from runner.report.plan.plan import plan_total, steps_of
from runner.report.spec.grids import PlannedRun
from runner.report.spec.tables import TableSpec
from runner.sweeps.outcome import report
from runner.training.run import _made_as
from runner.training.run_folder import RunFolder
from runner.training.same_run import DATA_CHANGED

Write = Callable[..., Path]
P1 = (0.9, 0.8, 0.2)


def came_from(folder: Path, **marks: object) -> None:
    made = json.loads((folder / "provenance.json").read_text())
    (folder / "provenance.json").write_text(json.dumps({**made, **marks}))


@pytest.fixture
def three(results_dir: Path, write_run: Write) -> list[PlannedRun]:
    """Plan and write three seeds of uniform draws, on the same data."""
    plan = [
        PlannedRun(dataset="d", method="m", seed=seed, overrides=(), config=compose([
            "sampler=uniform", f"seed={seed}", f"results_dir={results_dir}"
        ]))
        for seed in range(3)
    ]  # fmt: skip
    for run, p1 in zip(plan, P1, strict=True):
        came_from(write_run(run, [p1]), data_checksum="aaaaaaaaaa", plugins={"mine": "1111111111"})
    return plan


def rows_of(records: Sequence[RunRecord]) -> list[tuple[str, float, int | str]]:
    table = comparison(records)
    return list(zip(table["settings"], table["quality"].round(6), table["seeds"], strict=True))


OTHERS = {
    "data": ({"data_checksum": "bbbbbbbbbb"}, "data=aaaaaaaa", "data=bbbbbbbb"),
    "plugin": ({"plugins": {"mine": "2222222222"}}, "plugins.mine=11111111", "plugins.mine=22222222"),
    "numbers": ({"numbers": NUMBERS + 1}, f"numbers={NUMBERS}", f"numbers={NUMBERS + 1}"),
}


@pytest.mark.parametrize("what", OTHERS)
def test_what_came_from_elsewhere_is_a_row_of_its_own(
    what: str, three: list[PlannedRun], results_dir: Path, tmp_path: Path
) -> None:
    assert rows_of(all_records(results_dir)) == [("", pytest.approx(100 * 1.9 / 3), 3)]
    marks, usual, other = OTHERS[what]
    came_from(three[2].config.run_dir, **marks)
    found = all_records(results_dir)
    assert rows_of(found) == [(usual, pytest.approx(85), 2), (other, pytest.approx(20), 1)]
    table = sweep_table(found, [])
    assert table["origin"].tolist() == [usual, other]
    assert table["seeds"].tolist() == [2, 1]
    assert pivots(table, ["sampler.K", "sampler.L"], found) == {}
    assert {setting.text: len(setting.records) for setting in settings_of_records(found)} == {usual: 2, other: 1}
    labels = explore(found, ["epoch"]).data["label"]
    assert sorted(set(labels)) == [f"Uniform {usual}", f"Uniform {other}"]


def test_what_an_earlier_version_did_not_store_is_no_difference(three: list[PlannedRun], results_dir: Path) -> None:
    path = three[0].config.run_dir / "provenance.json"
    path.write_text(json.dumps({key: value for key, value in json.loads(path.read_text()).items() if key != "plugins"}))
    assert [row[2] for row in rows_of(all_records(results_dir))] == [3]
    came_from(three[1].config.run_dir, plugins={"mine": "2222222222"})
    texts = {row[0] for row in rows_of(all_records(results_dir))}
    assert texts == {"plugins.mine=unknown", "plugins.mine=22222222", "plugins.mine=11111111"}


def test_data_of_other_settings_are_told_by_their_settings(
    three: list[PlannedRun], results_dir: Path, write_run: Write
) -> None:
    config = compose(["sampler=uniform", "dataset.valid_share=0.2", f"results_dir={results_dir}"])
    run = PlannedRun(dataset="d", method="m", seed=0, overrides=(), config=config)
    came_from(write_run(run, [0.5]), data_checksum="cccccccccc")
    texts = {row[0] for row in rows_of(all_records(results_dir))}
    assert texts == {"dataset.valid_share=0.2", "dataset.valid_share=0"}


def test_an_unfinished_seed_does_not_blank_the_row(three: list[PlannedRun], write_run: Write) -> None:
    came_from(write_run(three[2], [0.1], status="interrupted"), data_checksum="aaaaaaaaaa")
    found = [record_of(run) for run in three]
    table = comparison(found)
    assert table["quality"].tolist() == pytest.approx([85])
    assert table["deviation"].tolist() == pytest.approx([100 * 0.1 / 2**0.5])
    assert table["status"].tolist() == ["unfinished (1 of 3 seeds)"]
    printed = as_printed(table, found).iloc[0]
    assert (printed["seeds"], printed["test P@1, %"]) == ("2 of 3", "85.00 ± 7.07")


def test_a_job_whose_data_changed_is_no_finished_seed(three: list[PlannedRun]) -> None:
    jobs: Any = [
        SimpleNamespace(number=number, step=SimpleNamespace(run=run), is_launched=True, text=f"seed={run.seed}")
        for number, run in enumerate(three, start=1)
    ]
    reason = f"{DATA_CHANGED} {three[2].config.run_dir} was made; force=true starts it again"
    text = report(jobs, {3: Failure(reason=reason, is_mistake=True)})
    (row,) = [line for line in text.splitlines() if line.startswith("| Uniform")]
    assert "85.00" in row
    assert "2 of 3" in row
    assert f"{OTHER_DATA} (1 of 3 seeds)" in row
    assert f"[3/3] seed=2: {reason}" in text
    locked = report(jobs, {3: Failure(reason="another process is running it", is_mistake=True)})
    assert "refused (1 of 3 seeds)" in locked


def test_a_table_has_a_status_in_place_of_a_mean_over_several_data(
    toy: dict[str, TableSpec], planned: Callable[..., list[PlannedRun]], pick: Callable[..., PlannedRun],
    write_run: Write, capsys: pytest.CaptureFixture[str], tmp_path: Path,
) -> None:  # fmt: skip
    spec = toy["convergence"]
    runs = planned(spec.grid, "medium")
    for run in runs:
        came_from(write_run(run, [0.3, 0.5]), data_checksum="aaaaaaaaaa")
    came_from(pick(runs, "nce", 1).config.run_dir, data_checksum="bbbbbbbbbb")
    long = cells(spec, runs)
    here = long[(long["metric"] == "P@1") & (long["dataset"] == "wordnet_hypernym")].set_index("method")
    assert here.loc["nce", "status"] == f"{OTHER_DATA} (1 of 2 seeds)"
    assert here.loc["lsh_label", "ours"] == pytest.approx(50)
    curves = toy["curves"]
    assert set(figure_data(curves, runs)["run_id"]) == {run.run_id for run in runs} - {pick(runs, "nce", 1).run_id}
    plots.draw(curves, runs, tmp_path)
    assert f"{pick(runs, 'nce', 1).run_id}: {OTHER_DATA}" in capsys.readouterr().err


def test_a_plan_tells_that_prepared_data_changed(three: list[PlannedRun], monkeypatch: pytest.MonkeyPatch) -> None:
    assert [record_of(run).status for run in three] == ["finished"] * 3, "without prepared data nobody knows"
    monkeypatch.setattr(records_module, "read_manifest", lambda folder: SimpleNamespace(checksum="bbbbbbbbbb"))
    assert [record_of(run).status for run in three] == [OTHER_DATA] * 3
    assert plan_total(steps_of([("", run) for run in three], [])).endswith(f"3 {OTHER_DATA}")
    assert record_of(three[0]).error.startswith(DATA_CHANGED)


def test_a_plan_tells_that_the_numbers_of_the_runner_changed(three: list[PlannedRun]) -> None:
    came_from(three[0].config.run_dir, numbers=NUMBERS + 1)
    record = record_of(three[0])
    assert record.status == CHANGED
    assert f"gave other numbers (version {NUMBERS + 1}, now {NUMBERS}); force=true" in record.error


def test_of_two_methods_with_the_same_settings_each_has_its_name(three: list[PlannedRun]) -> None:
    """The folder has the name of the one that made it; a plan, a sweep and the run's command say the other's."""
    config = dataclasses.replace(three[0].config, method="log_uniform")
    assert config.run_dir == three[0].config.run_dir
    assert record_of(dataclasses.replace(three[0], config=config)).method_name == "log_uniform"
    assert RunRecord(config.run_dir).method_name == "uniform"
    summary = json.loads((config.run_dir / "summary.json").read_text())
    summary["config"]["method"] = "log_uniform"
    (config.run_dir / "summary.json").write_text(json.dumps(summary))
    folder = RunFolder(config.run_dir)
    assert _made_as(three[0].config, folder) == ", made as method=log_uniform, which has the same settings"
    assert _made_as(config, folder) == ""

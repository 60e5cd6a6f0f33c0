"""Reports read measures from summaries, so they also work for tasks that they do not know."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from runner import tasks
from runner.config import check_model_reads_dataset, compose
from runner.contracts import Measure
from runner.errors import ConfigError
from runner.options.settings import RunConfig
from runner.parts import TASKS
from runner.report.figures import plots
from runner.report.figures.frontier import frontier, pareto, settings_of_records
from runner.report.numbers.cells import cells
from runner.report.numbers.columns import cost_of_reaching, panels_of
from runner.report.numbers.records import OLDER, RunRecord, record_of, status_of
from runner.report.numbers.sweep import sweep_table
from runner.report.pages import layout
from runner.report.plan.plan import execute, plan, plan_table, plan_total
from runner.report.spec.grids import PlannedRun, expand
from runner.report.spec.tables import TableSpec, load_table, table_names
from runner.tasks import Classification, LanguageModelling
from runner.training.run import run

Write = Callable[..., Path]
Plan = Callable[..., list[PlannedRun]]
Pick = Callable[..., PlannedRun]

NDCG = Measure(
    key="ndcg@10", label="NDCG@10", unit="", scale=1, decimals=4, higher_is_better=True, headline=True
)  # as recommendation is ranked
MSE = Measure(key="mse", label="MSE", unit="", scale=1, decimals=3, higher_is_better=False, headline=True)
R2 = Measure(key="r2", label="R²", unit="%", scale=100, decimals=1, higher_is_better=True, headline=False)
TABLE = """
title: Toy
kind: numbers
columns: [{name: epoch_to_90pct}, {name: METRIC, metric: test/METRIC}]
with_costs: true
grid: toy
"""
OURS = {"key", "label", "unit", "scale", "decimals", "higher_is_better", "headline"}


@pytest.fixture
def write_measured(write_run: Write) -> Write:
    """Write the folder of a finished run of a task with these measures; ``curve`` is the watched headline by epoch."""

    def write(
        planned: PlannedRun, curve: list[float], *, measures: list[Measure], watched: str, unit: str, **metrics: float
    ) -> Path:
        folder = write_run(planned, curve)
        summary = json.loads((folder / "summary.json").read_text())
        summary |= {"measures": [asdict(measure) for measure in measures], "watched": watched, "unit": unit}
        summary["metrics"] = {f"test/{name}": value for name, value in metrics.items()}
        headline = next(measure for measure in measures if measure.headline)
        best = curve.index((max if headline.higher_is_better else min)(curve)) + 1
        summary["selection"] = {"step": 10 * best, "epoch": float(best), "stopped_early": False, "lr": 0.1}
        (folder / "summary.json").write_text(json.dumps(summary))
        observed = (folder / "metrics.jsonl").read_text().replace("test_subset/p@1", f"{watched}/{headline.key}")
        (folder / "metrics.jsonl").write_text(observed)
        return folder

    return write


# ---------------------------------------------------------------- what tasks declare


def test_a_measure_has_the_fields_that_summaries_store() -> None:
    assert set(asdict(MSE)) == OURS


@pytest.mark.parametrize("task", TASKS.values())
def test_a_task_has_one_headline_and_every_key_once(task: type[tasks.Task]) -> None:
    keys = [measure.key for measure in task.measures]
    assert len(set(keys)) == len(keys)
    assert task.headline().headline
    assert {entry["key"] for entry in task.about_measures(compose(["dataset=synthetic_xc"]))["measures"]} == set(keys)


def test_better_is_higher_or_lower_and_never_equal_or_nan() -> None:
    assert NDCG.improves(0.2, 0.1)
    assert not NDCG.improves(0.1, 0.2)
    assert MSE.improves(0.1, 0.2)
    for measure in (NDCG, MSE):
        assert not measure.improves(0.1, 0.1)
        assert not measure.improves(float("nan"), 0.1)


def test_a_metric_is_told_in_its_unit() -> None:
    p_at_1 = Classification.headline()
    assert p_at_1.text(0.66412) == "66.41 %"
    assert LanguageModelling.headline().text(1234.567) == "1,234.57"


def test_a_summary_says_what_it_was_measured_by() -> None:
    about = LanguageModelling.about_measures(compose(["dataset=python_topics", "model=lstm"]))
    assert about["watched"] == "valid"
    assert about["unit"] == "token"
    assert about["measures"] == [
        {
            "key": "ppl", "label": "perplexity", "unit": "", "scale": 1, "decimals": 2, "higher_is_better": False,
            "headline": True,
        }
    ]  # fmt: skip


@pytest.mark.parametrize(("scores", "best"), [([0.2, 0.5, 0.3], 2), ([0.2, 0.3, 0.5], 3)])
def test_weights_are_kept_where_a_rising_validation_score_is_best(
    scores: list[float], best: int, results_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task holds a quarter of the rows out, has a headline that is better when high, and two epochs of patience."""

    class Validated(Classification):
        def evaluate_subset(self, network: Any) -> dict[str, Any]:
            return {"valid/p@1": next(values)}

    monkeypatch.setitem(TASKS, "rows", Validated)
    monkeypatch.setattr("runner.training.loop.warm_up", lambda config: None)
    values = iter(scores)
    config = compose([
        "dataset=synthetic_xc", "dataset.num_classes=60", "dataset.num_features=200", "dataset.num_train=96",
        "dataset.num_test=20", "dataset.valid_share=0.25", "sampler=uniform", "sampler.num_samples=10",
        "model.hidden=8", "batch_size=32", "epochs=3", "evaluation.every_epochs=1", "training.patience=2",
        "hardware.threads=1", f"results_dir={results_dir}",
    ])  # fmt: skip
    folder = run(config)
    summary = json.loads((folder / "summary.json").read_text())
    yardstick = RunRecord(folder).yardstick
    assert {yardstick.measure(metric) for metric in summary["metrics"]} <= set(Validated.measures)
    assert summary["selection"]["epoch"] == best
    assert summary["watched"] == "valid"
    assert summary["units_per_second"] * summary["train_seconds"] == pytest.approx(3 * 72)


# ---------------------------------------------------------------- reports of any task


def ranked(write: Write, planned: PlannedRun, curve: list[float], test: float) -> None:
    write(planned, curve, measures=[NDCG], watched="valid", unit="user", **{"ndcg@10": test})


def regressed(write: Write, planned: PlannedRun, curve: list[float], mse: float) -> None:
    write(planned, curve, measures=[MSE, R2], watched="test_subset", unit="row", mse=mse, r2=1 - mse)


def test_a_table_of_a_new_measure_needs_only_yaml(
    write_tables: Write, grid_text: str, planned: Plan, pick: Pick, write_measured: Write
) -> None:
    spec = load_table("toy", write_tables(grid=grid_text, toy=TABLE.replace("METRIC", "ndcg@10")))
    runs = planned(spec.grid, "small")
    ranked(write_measured, pick(runs, "full"), [0.3, 0.5, 0.6, 0.4], 0.51234)
    ranked(write_measured, pick(runs, "nce"), [0.4, 0.54, 0.2], 0.25)
    frame = cells(spec, runs)
    text = layout.to_markdown(layout.document(spec, frame, runs, "make"))
    assert "| Full softmax |           3.00 |  0.5123 |" in text
    assert "| NCE          |           2.00 |  0.2500 |" in text, "0.54 is 90 % of 0.6, of the weights kept"
    assert "Users a second" in text
    assert "Best epoch" in text


def test_where_lower_is_better_goals_curves_and_frontier_go_down(
    write_tables: Write, grid_text: str, planned: Plan, pick: Pick, write_measured: Write, tmp_path: Path
) -> None:
    spec = load_table("toy", write_tables(grid=grid_text, toy=TABLE.replace("METRIC", "mse")))
    runs = planned(spec.grid, "small")
    regressed(write_measured, pick(runs, "full"), [0.9, 0.6, 0.45], 0.5)
    regressed(write_measured, pick(runs, "nce"), [0.9, 0.5, 0.49], 0.4)
    regressed(write_measured, pick(runs, "lsh_label"), [0.9, 0.8, 0.51], 0.6)
    full, nce, lsh = (record_of(pick(runs, name)) for name in ("full", "nce", "lsh_label"))
    assert cost_of_reaching(90, "epoch", nce, full) == 3, "0.495 is a tenth above 0.45"
    assert cost_of_reaching(90, "epoch", lsh, full) is None
    assert "| Fail |" in layout.to_markdown(layout.document(spec, cells(spec, runs), runs, "make")).replace("  ", "")
    settings = settings_of_records([full, nce, lsh])
    assert [setting.middle[1] for setting in pareto(settings)] == [0.4]
    axis = frontier({"Toy": settings}, {setting.method: setting.method for setting in settings}).axes[0]
    assert axis.get_ylabel() == "test MSE"
    curves = load_table("toyc", write_tables(grid=grid_text, toyc="title: Toy\nkind: curves\ngrid: toy\n"))
    (picture,) = plots.draw(curves, runs, tmp_path)
    assert "test subset MSE" in picture.with_suffix(".svg").read_text()
    table = sweep_table([full, nce], ["sampler.name"])
    assert list(table.columns[table.columns.get_loc("test MSE") :][:2]) == ["test MSE", "test R² (%)"]
    assert sorted(table["test R² (%)"]) == [50, 60]


def test_the_best_learning_rate_is_the_lowest_error(
    write_tables: Write, grid_text: str, planned: Plan, write_measured: Write
) -> None:
    swept = grid_text.replace("datasets:", "sweep: [{key: optimizer.lr, values: [0.001, 0.01]}]\ndatasets:", 1)
    spec = load_table("toy", write_tables(grid=swept, toy="title: Toy\nkind: learning_rates\ngrid: toy\n"))
    runs = planned(spec.grid, "small")
    for planned_run, mse in zip(runs, (0.3, 0.2), strict=False):
        regressed(write_measured, planned_run, [0.9], mse)
    text = layout.to_markdown(layout.document(spec, cells(spec, runs), runs, "make"))
    assert "0.300 | **0.200** |" in text
    assert "MSE by learning rate" in text


@pytest.mark.parametrize(("column", "message"), [
    ("{name: x, metric: test/p@2}", r"table toy2: columns: no metric 'test/p@2' .*did you mean 'test/p@5'"),
    ("{name: x, metric: p@1}", r"columns: no metric 'p@1' .*valid: .*test/p@1"),
    ("{name: epoch_to_51pct}", r"columns: no column 'epoch_to_51pct'; did you mean 'epoch_to_50pct'"),
])  # fmt: skip
def test_an_unknown_column_is_one_line(column: str, message: str, write_tables: Write, planned: Plan) -> None:
    spec = load_table("toy2", write_tables(toy2=f"title: T\nkind: numbers\ngrid: toy\ncolumns: [{column}]\n"))
    with pytest.raises(ConfigError, match=message) as error:
        cells(spec, planned(spec.grid, "small"))
    assert "\n" not in str(error.value)


@pytest.mark.slow  # it composes every run of every table
@pytest.mark.plans
def test_every_tables_columns_are_measured_by_its_task(results_dir: Path) -> None:
    for name in table_names():
        spec = load_table(name)
        if spec.kind in ("numbers", "learning_rates"):
            assert panels_of(spec, expand(spec.grid, "small", results_dir))


# ---------------------------------------------------------------- runs of earlier versions


def test_a_summary_without_measures_is_a_status(
    toy: Mapping[str, TableSpec], planned: Plan, pick: Pick, write_run: Write, results_dir: Path, tmp_path: Path
) -> None:
    """Such a run is not read by guesswork, not run again and not called a failure."""
    spec = toy["convergence"]
    runs = planned(spec.grid, "small")
    for planned_run in runs:
        write_run(planned_run, [0.3, 0.6])
    old = pick(runs, "full")
    summary = json.loads((old.config.run_dir / "summary.json").read_text())
    del summary["measures"]
    (old.config.run_dir / "summary.json").write_text(json.dumps(summary))
    assert status_of(old) == OLDER
    frame = cells(spec, runs)
    assert set(frame[frame["method"] == "full"]["status"]) == {"not run", OLDER}, "Amazon-670K is not run"
    assert "earlier version" in layout.to_markdown(layout.document(spec, frame, runs, "make"))
    assert plots.draw(toy["curves"], runs, tmp_path), "the other methods are drawn"
    steps = plan([spec], "small", results_dir)
    assert [step.status for step in steps] == [OLDER, "finished", "finished"]
    assert "earlier version" in plan_total(steps)
    assert "–" in set(plan_table(steps)["seconds"])
    assert execute(steps).failed == []


def test_sections_of_other_tasks_are_no_part_of_a_configuration() -> None:
    """Windows belong to texts: they are not in the run ids of rows, and setting them there is an error."""
    rows, text = compose([]), compose(["preset=midx_lm"])
    assert "windows" not in rows.as_dict()
    assert "windows" in text.as_dict()
    check_model_reads_dataset(rows)
    changed: RunConfig = compose(["windows.length=7"])
    with pytest.raises(ConfigError, match="windows has no effect on training model=mlp on dataset=wordnet_hypernym"):
        check_model_reads_dataset(changed)

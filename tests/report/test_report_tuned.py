"""Methods are shown at the value of a sweep that validates best; seconds are compared with the baseline's own."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from runner.errors import ConfigError
from runner.lgd.task import LinearRegression
from runner.report.figures import plots
from runner.report.figures.curves import running_median
from runner.report.numbers import tuning
from runner.report.numbers.cells import cells
from runner.report.numbers.tuning import tune
from runner.report.pages import layout
from runner.report.pages.latex import to_latex
from runner.report.plan.plan import TO_RUN, plan
from runner.report.render import render
from runner.report.spec.grids import PlannedRun, expand, point_text
from runner.report.spec.tables import load_table

AT_EDGE = tuning.AT_EDGE.format(key="lr")
GRID = """
fixed: [model=regression, optimizer=sgd, batch_size=1, epochs=2, evaluation.every_epochs=1]
baseline: uniform
methods:
  - {name: uniform, label: Uniform, overrides: [batch_sampler=uniform]}
  - {name: lgd, label: LGD, overrides: [batch_sampler=lgd]}
  - {name: oracle, label: Oracle, overrides: [batch_sampler=norm_oracle]}
sweep: [{key: optimizer.lr, values: [0.01, 0.1, 1.0]}]
datasets: [{name: diabetes, label: Diabetes}, {name: synthetic_regression, label: Synthetic}]
profiles:
  small: {seeds: [0, 1], datasets: [{name: diabetes, without: [oracle]}]}
  medium: {seeds: [0], datasets: [{name: diabetes, without: [oracle]}, {name: synthetic_regression}]}
  paper: {seeds: [0], datasets: [{name: diabetes}]}
"""
TABLE = """
title: Toy
kind: numbers
grid: toy
tuned: true
columns:
  - {name: learning_rate}
  - {name: microseconds_per_iteration}
  - {name: build_milliseconds}
  - {name: MSE, metric: test/mse}
  - {name: milliseconds_to_baseline_end}
  - {name: sooner_than_baseline_end}
  - {name: sooner_than_baseline}
"""
FIGURE = """
title: Toy
kind: curves
grid: toy
tuned: true
metrics: [train/mse, test/mse]
against: [seconds, epoch]
smooth: 3
"""
Write = Callable[..., Path]


@pytest.fixture
def spec(write_tables: Write) -> Any:
    return load_table("toy", write_tables(grid=GRID, toy=TABLE))


@pytest.fixture
def write_regression(write_run: Write) -> Callable[..., Path]:
    """Write a finished run: ``valid`` is the validation MSE at seconds 1, 2, ...; ``test`` that of the best weights."""

    def write(run: PlannedRun, valid: list[float], *, test: float = 1.0, build: float = 0.0, **more: Any) -> Path:
        folder = write_run(run, [0.0] * len(valid), seconds=float(len(valid)), **more)
        summary = json.loads((folder / "summary.json").read_text())
        if summary["status"] == "finished":
            summary |= {
                "metrics": {"test/mse": test, "valid/mse": min(valid), "train/mse": 1.0},
                "stage_seconds": {"build": build} if build else {},
                "steps": 1000,
                **LinearRegression.about_measures(run.config),
            }
            (folder / "summary.json").write_text(json.dumps(summary))
        observed = [
            {
                "kind": "evaluation", "step": 10 * number, "epoch": float(number), "train_seconds": float(number),
                "train/mse": value + 1, "valid/mse": value, "test/mse": value + 2,
            }
            for number, value in enumerate(valid, start=1)
        ]  # fmt: skip
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in observed))
        return folder

    return write


def of(runs: list[PlannedRun], method: str, rate: float, seed: int = 0) -> PlannedRun:
    return next(r for r in runs if (r.method, dict(r.point)["optimizer.lr"], r.seed) == (method, rate, seed))


def shown(frame: pd.DataFrame, metric: str) -> dict[str, Any]:
    rows = frame[frame["metric"] == metric]
    return {row.method: row.status if pd.isna(row.ours) else row.ours for row in rows.itertuples()}


# ---------------------------------------------------------------- the choice


def test_the_rate_of_best_mean_validation_is_shown_whatever_the_test_says(
    spec: Any, write_regression: Write, results_dir: Path
) -> None:
    """Uniform: means of the best validation are 3, 2.5, 4, so 0.1, though 1.0 has the best test and the best run."""
    runs = expand(spec.grid, "small", results_dir)
    for rate, best, test in ((0.01, (3, 3), 0.5), (0.1, (2, 3), 0.9), (1.0, (1, 7), 0.1)):
        for seed in (0, 1):
            write_regression(of(runs, "uniform", rate, seed), [9.0, float(best[seed]), 8.0], test=test)
            write_regression(of(runs, "lgd", rate, seed), [9.0, 1 / rate], test=test)
    tuned = tune(spec, runs)
    assert tuned.choices["diabetes", "uniform"].point == (("optimizer.lr", 0.1),)
    assert tuned.choices["diabetes", "uniform"].remark == ""
    assert tuned.choices["diabetes", "lgd"] == tuning.Choice(point=(("optimizer.lr", 1.0),), remark=AT_EDGE)
    assert [(run.method, run.seed, run.config.optimizer.lr) for run in tuned.runs] == [
        ("uniform", 0, 0.1), ("uniform", 1, 0.1), ("lgd", 0, 1.0), ("lgd", 1, 1.0),
    ]  # fmt: skip
    frame = cells(tuned.spec, tuned.runs, tuned.choices)
    assert shown(frame, "MSE") == {"uniform": pytest.approx(0.9), "lgd": pytest.approx(0.1)}
    assert set(frame["method"]) == {"uniform", "lgd"}, "the oracle is left out on this data set"
    text = layout.to_markdown(layout.document(tuned.spec, frame, tuned.runs, "make"))
    assert "|           1 † |" in text
    assert f"*† LGD: {AT_EDGE}.*" in text
    assert r"1{\textsuperscript{$\dagger$}}" in to_latex(layout.document(tuned.spec, frame, tuned.runs, "make"))


def test_a_rate_that_diverged_for_one_seed_is_no_choice_and_missing_runs_are_told(
    spec: Any, write_regression: Write, results_dir: Path
) -> None:
    runs = expand(spec.grid, "small", results_dir)
    for seed in (0, 1):
        write_regression(of(runs, "uniform", 0.1, seed), [3.0])
        write_regression(of(runs, "uniform", 1.0, seed), [1.0], status="finished" if seed else "diverged")
        for rate in (0.01, 0.1, 1.0):
            write_regression(of(runs, "lgd", rate, seed), [1.0], status="diverged")
    tuned = tune(spec, runs)
    uniform = tuned.choices["diabetes", "uniform"]
    assert uniform.point == (("optimizer.lr", 0.1),)
    assert uniform.remark == "1 of 3 values are not run yet, and one of them may be better"
    assert shown(cells(tuned.spec, tuned.runs, tuned.choices), "MSE")["lgd"] == "diverged"


def test_what_diverged_in_a_sweep_is_an_answer_and_not_planned_again(
    spec: Any, write_tables: Write, write_regression: Write, results_dir: Path
) -> None:
    runs = expand(spec.grid, "medium", results_dir)
    write_regression(of(runs, "uniform", 1.0), [1.0], status="diverged")
    steps = {step.run.run_id: step for step in plan([spec], "medium", results_dir)}
    assert steps[of(runs, "uniform", 1.0).run_id].status == "diverged"
    assert not steps[of(runs, "uniform", 1.0).run_id].is_pending
    assert steps[of(runs, "uniform", 0.1).run_id].status == TO_RUN
    alone = GRID.replace("sweep: [{key: optimizer.lr, values: [0.01, 0.1, 1.0]}]\n", "").replace(
        "optimizer=sgd", "optimizer=sgd, optimizer.lr=1.0"
    )
    single = load_table("toy", write_tables(grid=alone, toy=TABLE.replace("tuned: true\n", "")))
    again = [step for step in plan([single], "medium", results_dir) if step.run.method == "uniform"]
    assert [step.is_pending for step in again] == [True, True], "without a sweep, a divergence is a failure"


def test_runs_of_other_tasks_beside_these_do_not_disturb_the_estimate(
    spec: Any, toy: Any, planned: Any, write_run: Write, write_regression: Write, results_dir: Path
) -> None:
    """An epoch of a run alike took 2 s; nothing is known of other methods."""
    write_run(planned(toy["convergence"].grid, "small")[0], [0.3])
    runs = expand(spec.grid, "small", results_dir)
    write_regression(of(runs, "uniform", 0.1), [1.0, 1.0])
    steps = {step.run.run_id: step for step in plan([spec], "small", results_dir)}
    alike, other = steps[of(runs, "uniform", 0.01).run_id], steps[of(runs, "lgd", 0.01).run_id]
    assert (alike.measured, other.measured) == (True, False)
    second = steps[of(runs, "uniform", 1.0).run_id].seconds  # the first run of a kind may also compile
    assert second is not None
    assert second > 2.0
    assert other.seconds is None
    assert plan([toy["convergence"]], "small", results_dir)


# ---------------------------------------------------------------- columns


def test_iterations_and_seconds_until_the_baselines_last_loss(
    spec: Any, write_regression: Write, results_dir: Path
) -> None:
    """Uniform ends at 4 after 6 s and was there after 3 s; LGD is at 4 after 2 s, 0.5 s of which built its tables."""
    runs = expand(spec.grid, "medium", results_dir)
    for rate in (0.01, 0.1, 1.0):
        better = 0.0 if rate == 0.1 else 0.5
        write_regression(of(runs, "uniform", rate), [9, 8, 4 + better, 3 + better, 5, 4 + better], test=rate)
        write_regression(of(runs, "lgd", rate), [7, 4 + better, 9, 2 + better], build=0.5)
        run = next(r for r in runs if (r.dataset, r.method) == ("synthetic_regression", "uniform"))
        write_regression(run, [5.0, 4.0])
        for other in runs:
            if (other.dataset, other.method) == ("synthetic_regression", "lgd"):
                write_regression(other, [6.0, 5.0])
    tuned = tune(spec, runs)
    frame = cells(tuned.spec, tuned.runs, tuned.choices)
    first = frame[frame["dataset"] == "diabetes"]
    assert shown(first, "learning_rate") == {"uniform": 0.1, "lgd": 0.1}
    assert shown(first, "microseconds_per_iteration") == {"uniform": pytest.approx(6000), "lgd": pytest.approx(3500)}
    assert shown(first, "build_milliseconds") == {"uniform": 0, "lgd": 500}
    assert shown(first, "milliseconds_to_baseline_end") == {"uniform": 3000, "lgd": 2000}
    assert shown(first, "sooner_than_baseline_end") == {"uniform": 2, "lgd": 3}
    assert shown(first, "sooner_than_baseline") == {"uniform": 1, "lgd": 1.5}
    second = frame[frame["dataset"] == "synthetic_regression"]
    for column in ("milliseconds_to_baseline_end", "sooner_than_baseline_end", "sooner_than_baseline"):
        assert shown(second, column)["lgd"] == "not reached"
        assert shown(second, column)["oracle"] == "not run"
    text = layout.to_markdown(layout.document(tuned.spec, frame, tuned.runs, "make"))
    assert "| Milliseconds to the last loss of Uniform |" in text


def test_learning_rates_are_judged_by_validation_where_there_is_one(
    write_tables: Write, write_regression: Write, results_dir: Path
) -> None:
    spec = load_table("toy", write_tables(grid=GRID, toy="title: Toy\nkind: learning_rates\ngrid: toy\n"))
    runs = expand(spec.grid, "medium", results_dir)
    for rate, valid, test in ((0.01, 3.0, 1.0), (0.1, 2.0, 2.0), (1.0, 4.0, 3.0)):
        write_regression(of(runs, "uniform", rate), [valid], test=test)
    text = layout.to_markdown(layout.document(spec, cells(spec, runs), runs, "make"))
    assert "validation MSE by learning rate" in text
    assert "|  3.0000 | **2.0000** |  4.0000 |" in text


# ---------------------------------------------------------------- figures


@pytest.mark.slow
def test_curves_of_several_metrics_name_the_lines_beside_them(
    write_tables: Write, write_regression: Write, results_dir: Path, tmp_path: Path
) -> None:
    spec = load_table("toy", write_tables(grid=GRID, toy=FIGURE))
    runs = expand(spec.grid, "small", results_dir)
    for run in runs:
        write_regression(run, [5.0, 3.0, 4.0, 2.0 + run.seed])
    tuned = tune(spec, runs)
    first, second = (plots.draw(tuned.spec, tuned.runs, tmp_path / name) for name in "ab")
    assert [path.name for path in first] == ["toy_train_mse.png", "toy_test_mse.png"], "a picture for each metric"
    for path, same, metric in zip(first, second, ("training MSE", "test MSE"), strict=True):
        svg = path.with_suffix(".svg").read_text()
        assert svg == same.with_suffix(".svg").read_text()
        for text, times in ((metric, 1), ("seconds of training", 1), ("epochs", 1), ("LGD", 2), ("Uniform", 2)):
            assert svg.count(f"<!-- {text} -->") == times, text
        assert "lr=" not in svg, "each method has one rate, the best"
    *pictures, data, _, _, page = render([spec], "small", results_dir)
    assert [path.name for path in pictures] == [path.name for path in first]
    assert data.suffix == ".csv"
    chosen = f"Chosen values on Diabetes: Uniform lr=0.01 ({AT_EDGE}), LGD lr=0.01 ({AT_EDGE})."
    assert chosen in page.read_text(), "of equal values the first"


@pytest.mark.slow
def test_more_than_two_data_sets_against_several_axes_have_a_picture_each(
    write_tables: Write, write_regression: Write, results_dir: Path, tmp_path: Path
) -> None:
    """One picture of all would be taller than a screen."""
    names = ("diabetes", "synthetic_regression", "slice")
    grid = GRID.replace("datasets: [{", "datasets: [{name: slice, label: Slice}, {", 1)
    every = ", ".join(f"{{name: {name}, without: [oracle]}}" for name in names)
    grid = re.sub(r"small: .*", f"small: {{seeds: [0], datasets: [{every}]}}", grid)
    spec = load_table("toy", write_tables(grid=grid, toy=FIGURE.replace("tuned: true\n", "")))
    for run in (runs := expand(spec.grid, "small", results_dir)):
        write_regression(run, [5.0, 3.0])
    pictures = {path.name for path in plots.draw(spec, runs, tmp_path / "all")}
    metrics = ("train_mse", "test_mse")
    assert pictures == {f"toy_{metric}_{name}.png" for metric in metrics for name in names}


def test_running_medians_keep_the_first_fall_and_the_last_value_has_neighbours() -> None:
    np.testing.assert_array_equal(running_median(np.array([9.0, 5, 1, 7, 3, 100]), 3), [9, 5, 5, 3, 7, 51.5])
    np.testing.assert_array_equal(running_median(np.array([4.0, 2, 6]), 1), [4, 2, 6])
    np.testing.assert_array_equal(running_median(np.array([9.0, 8, 7, 6, 5, 4, 3]), 5), [9, 8, 7, 6, 5, 4.5, 4])


# ---------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("wrong", "right", "hint"),
    [
        ("tuned: often", "tuned: true", "tuned: expected bool"),
        ("title: Toy\nsmooth: 3", "title: Toy", "metrics and smooth: only for kind: curves"),
        ("title: Toy\nagainst: [second]", "title: Toy", "against"),
    ],
)
def test_a_mistake_in_a_table_is_one_line(wrong: str, right: str, hint: str, write_tables: Write) -> None:
    with pytest.raises(ConfigError) as error:
        load_table("toy", write_tables(grid=GRID, toy=TABLE.replace(right, wrong, 1)))
    assert hint in str(error.value)
    assert "toy.yaml" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ("without: [orakle]", "without: unknown 'orakle'; did you mean 'oracle'"),
        ("without: [uniform]", "the others are compared with 'uniform'"),
    ],
)
def test_a_data_set_without_a_method_names_it_right(wrong: str, hint: str, write_tables: Write) -> None:
    with pytest.raises(ConfigError) as error:
        load_table("toy", write_tables(grid=GRID.replace("without: [oracle]", wrong, 1), toy=TABLE))
    assert hint in str(error.value)


def test_tuning_needs_a_sweep(write_tables: Write) -> None:
    alone = GRID.replace("sweep: [{key: optimizer.lr, values: [0.01, 0.1, 1.0]}]\n", "")
    with pytest.raises(ConfigError, match="tuned: needs a grid with a sweep"):
        load_table("toy", write_tables(grid=alone, toy=TABLE))


def test_a_method_is_tuned_over_all_its_settings(
    write_tables: Write, write_regression: Write, results_dir: Path
) -> None:
    """LGD has a setting of its own beside the rate; the best pair is shown, and an edge is named by its key."""
    rate = "{key: optimizer.lr, values: [0.01, 0.1, 1.0]}"
    grid = GRID.replace(rate, rate + ", {key: batch_sampler.K, values: [3, 5, 7], methods: [lgd]}")
    spec = load_table("toy", write_tables(grid=grid, toy=TABLE))
    runs = [run for run in expand(spec.grid, "small", results_dir) if run.seed == 0]
    for run in runs:
        point = dict(run.point)
        good = point["optimizer.lr"] == 0.1 and point.get("batch_sampler.K") in (None, 7)
        write_regression(run, [9.0, 1.0 if good else 2.0])
    choices = tune(spec, runs).choices
    assert choices["diabetes", "uniform"].text == "lr=0.1"
    assert choices["diabetes", "lgd"].text == f"lr=0.1 K=7 ({tuning.AT_EDGE.format(key='K')})"


LIST = "{methods: [lgd], overrides: [batch_sampler.K=3, training.decay=0.5], key: optimizer.lr, values: [0.1, 1.0]}"


def with_others(listed: str = LIST) -> str:
    return GRID.replace("without: [oracle]", f"without: [oracle], also: [{listed}]", 1)


def test_other_settings_are_tried_at_rates_of_their_own(
    write_tables: Write, write_regression: Write, results_dir: Path
) -> None:
    """They compete with the usual settings; an edge is one of the rates tried with the same settings."""
    spec = load_table("toy", write_tables(grid=with_others(), toy=TABLE))
    runs = [run for run in expand(spec.grid, "small", results_dir) if (run.method, run.seed) == ("lgd", 0)]
    usual = [f"lr={rate}" for rate in ("0.01", "0.1", "1")]
    assert [point_text(run.point) for run in runs] == [*usual, "lr=0.1 K=3 decay=0.5", "lr=1 K=3 decay=0.5"]
    assert [(run.config.batch_sampler.K, run.config.training.decay) for run in runs][2:] == [(5, None), *[(3, 0.5)] * 2]
    assert spec.grid.num_runs("small") == len(expand(spec.grid, "small", results_dir))
    for run, loss in zip(runs, (3.0, 2.0, 3.0, 1.0, 1.5), strict=True):
        write_regression(run, [9.0, loss])
    chosen = tune(spec, runs).choices["diabetes", "lgd"]
    assert chosen.text == f"lr=0.1 K=3 decay=0.5 ({AT_EDGE})"


def test_a_table_of_rates_lists_other_settings_and_what_was_chosen(
    write_tables: Write, write_regression: Write, results_dir: Path
) -> None:
    table = "title: Toy\nkind: learning_rates\ngrid: toy\n"
    spec = load_table("toy", write_tables(grid=with_others(), toy=table))
    runs = [run for run in expand(spec.grid, "small", results_dir) if run.seed == 0]
    nothing = tune(spec, runs)
    assert nothing.spec.notes == spec.notes, "nothing is chosen before anything has run"
    for run in runs:
        if (run.dataset, run.method) == ("diabetes", "lgd"):
            write_regression(run, [9.0, 1.0 if run.point == (("optimizer.lr", 0.1),) else 2.0])
    tuned = tune(spec, runs)
    text = layout.to_markdown(layout.document(tuned.spec, cells(tuned.spec, tuned.runs), tuned.runs, "make"))
    rows = [re.sub(" +", " ", line) for line in text.splitlines() if line.startswith("| LGD")]
    assert rows[0] == "| LGD | 2.0000 | **1.0000** | 2.0000 |"
    assert rows[1] == "| LGD, K=3 decay=0.5 | – | **2.0000** | **2.0000** |"
    assert "- Chosen values on Diabetes: LGD lr=0.1." in text


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ("{methods: [lgt], key: optimizer.lr, values: [0.1]}", "also.methods: unknown 'lgt'; did you mean 'lgd'"),
        ("{key: optimizer.lr, values: [0.1]}", "also[0].methods: name at least one"),
        ("{methods: [lgd], overrides: [K], key: optimizer.lr, values: [0.1]}", "'K' is not key=value"),
        ("{methods: [lgd], key: optimizer.lr, values: []}", "values: give at least one"),
    ],
)
def test_a_mistake_in_other_settings_is_one_line(wrong: str, hint: str, write_tables: Write) -> None:
    with pytest.raises(ConfigError) as error:
        load_table("toy", write_tables(grid=with_others(wrong), toy=TABLE))
    assert hint in str(error.value)
    assert "\n" not in str(error.value)


def test_a_method_that_is_not_swept_has_no_chosen_values(
    write_tables: Write, write_regression: Write, results_dir: Path
) -> None:
    rate = "{key: optimizer.lr, values: [0.01, 0.1, 1.0]}"
    own = GRID.replace(rate, "{key: batch_sampler.K, values: [3, 5, 7], methods: [lgd]}")
    spec = load_table("toy", write_tables(grid=own, toy=TABLE))
    runs = [run for run in expand(spec.grid, "small", results_dir) if run.seed == 0]
    for run in runs:
        write_regression(run, [9.0, 1.0 if dict(run.point).get("batch_sampler.K") == 5 else 2.0])
    assert tuning.sentences(tune(spec, runs).choices, spec) == ["Chosen values on Diabetes: LGD K=5."]


def test_without_validation_rows_nothing_is_tuned(write_tables: Write, grid_text: str, results_dir: Path) -> None:
    swept = grid_text.replace("datasets:", "sweep: [{key: optimizer.lr, values: [0.1, 1.0]}]\ndatasets:", 1)
    table = "title: T\nkind: numbers\ngrid: toy\ntuned: true\ncolumns: [{name: epochs}]\n"
    spec = load_table("toy", write_tables(grid=swept, toy=table))
    with pytest.raises(ConfigError, match=r"table toy: tuned: these runs have no validation set"):
        tune(spec, expand(spec.grid, "small", results_dir))

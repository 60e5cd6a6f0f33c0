"""Tests of time to accuracy, its learning rates, swept grids, and tables that are run by name only."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from runner.errors import ConfigError
from runner.report.figures import plots
from runner.report.numbers.cells import cells
from runner.report.pages import layout
from runner.report.pages.latex import to_latex
from runner.report.render import own_runs_finished
from runner.report.spec.grids import PROFILES, PlannedRun, expand, point_text
from runner.report.spec.tables import load_table

Plan = Callable[..., list[PlannedRun]]
Write = Callable[..., Path]
Pick = Callable[..., PlannedRun]

TABLE = "title: Toy\n{kind}\ngrid: toy\n"
NUMBERS = """kind: numbers
columns:
  - {name: seconds_to_50pct}
  - {name: seconds_to_90pct}
  - {name: sooner_than_full_at_90pct}
  - {name: P@1, metric: test/p@1}
  - {name: learning_rate}"""
SWEEP = "sweep: [{key: optimizer.lr, values: [0.001, 0.01]}]\ndatasets:"


def load(write_tables: Write, kind: str, grid: str) -> Any:
    return load_table(
        "toy", write_tables(grid=grid, toy=TABLE.format(kind=NUMBERS if kind == "numbers" else f"kind: {kind}"))
    )


def shown(frame: pd.DataFrame, metric: str) -> dict[str, Any]:
    """Return each method's number, or its status if there is none."""
    rows = frame[(frame["metric"] == metric) & (frame["dataset"] == "wordnet_hypernym")]
    return {row.method: row.status if pd.isna(row.ours) else row.ours for row in rows.itertuples()}


# ---------------------------------------------------------------- time to accuracy


@pytest.fixture
def two_full(grid_text: str) -> str:
    """Load the toy grid with a second full softmax."""
    second = "  - {name: full_bf16, label: Other, overrides: [sampler=full, optimizer.lr=0.002]}\n  - {name: lsh_label"
    return grid_text.replace("  - {name: lsh_label", second).replace(
        "baseline: full\n", "baseline: full\nfull_methods: [full, full_bf16]\n"
    )


def test_seconds_count_to_the_baseline_and_sooner_than_the_fastest_full(
    write_tables: Write, two_full: str, planned: Plan, pick: Pick, write_run: Write
) -> None:
    """The goal is full softmax's last .60 on the subset: 50 % is .30, 90 % is .54.

    Full softmax reaches 90 % after 60 s of 80, the other full softmax after 30 of 40, LSH Label after 4 of 4, and NCE
    never.
    """
    spec = load(write_tables, "numbers", two_full)
    runs = planned(spec.grid, "small")
    write_run(pick(runs, "full"), [0.30, 0.50, 0.54, 0.60], seconds=80)
    write_run(pick(runs, "full_bf16"), [0.30, 0.50, 0.55, 0.90], seconds=40)
    write_run(pick(runs, "lsh_label"), [0.10, 0.35, 0.53, 0.54], seconds=4)
    write_run(pick(runs, "nce"), [0.10, 0.31, 0.53, 0.539], seconds=2)
    frame = cells(spec, runs)
    assert shown(frame, "seconds_to_50pct") == {"full": 20, "full_bf16": 10, "lsh_label": 2, "nce": 1}
    assert shown(frame, "seconds_to_90pct") == {"full": 60, "full_bf16": 30, "lsh_label": 4, "nce": "Fail"}
    sooner = {"full": 0.5, "full_bf16": 1, "lsh_label": 7.5, "nce": "Fail"}
    assert shown(frame, "sooner_than_full_at_90pct") == sooner
    assert shown(frame, "learning_rate")["full_bf16"] == 0.002
    text = layout.to_markdown(layout.document(spec, frame, runs, "make"))
    assert "4 epochs, batch 256, adam lr 0.002 to 0.003, seed 0" in text
    assert "not a data set of the paper" not in text, "a table of our own has no paper"
    assert "| Other        |            10.0 |            30.0 |                  1.00x |" in text


def test_a_full_softmax_that_did_not_finish_or_reach_is_no_reference(
    write_tables: Write, two_full: str, planned: Plan, pick: Pick, write_run: Write
) -> None:
    spec = load(write_tables, "numbers", two_full)
    runs = planned(spec.grid, "small")
    write_run(pick(runs, "full"), [0.30, 0.50, 0.54, 0.60], seconds=80)
    write_run(pick(runs, "lsh_label"), [0.60], seconds=6)
    for status, curve in (("failed", [0.6]), ("finished", [0.1])):
        write_run(pick(runs, "full_bf16"), curve, status=status, seconds=1)
        assert shown(cells(spec, runs), "sooner_than_full_at_90pct")["lsh_label"] == 10


def test_each_seed_compares_with_full_of_its_own(
    write_tables: Write, grid_text: str, planned: Plan, pick: Pick, write_run: Write
) -> None:
    spec = load(write_tables, "numbers", grid_text)
    runs = planned(spec.grid, "medium")
    for seed, seconds in ((0, 80), (1, 160)):
        write_run(pick(runs, "full", seed), [0.3, 0.6], seconds=seconds)
        write_run(pick(runs, "lsh_label", seed), [0.3, 0.6], seconds=20)
    write_run(pick(runs, "nce", 0), [0.3, 0.6])
    frame = cells(spec, runs)
    assert shown(frame, "sooner_than_full_at_90pct")["lsh_label"] == 6, "mean of 4 and 8"
    assert shown(frame, "seconds_to_50pct")["nce"] == "not run (1 of 2 seeds)"
    rates = frame[(frame["metric"] == "learning_rate") & frame["ours"].notna()]
    assert len(rates) == 2
    assert rates["deviation"].isna().all(), "a setting has no deviation"


# ---------------------------------------------------------------- learning rates


def test_learning_rates_mark_the_best_of_each_method(
    write_tables: Write, grid_text: str, planned: Plan, write_run: Write, tmp_path: Path
) -> None:
    spec = load(write_tables, "learning_rates", grid_text.replace("datasets:", SWEEP, 1))
    runs = planned(spec.grid, "small")
    assert [point_text(run.point) for run in runs] == ["lr=0.001", "lr=0.01"] * 3
    assert [run.config.optimizer.lr for run in runs] == [0.001, 0.01] * 3
    for run, p1 in zip(runs, (0.2, 0.3, 0.4, 0.1), strict=False):
        write_run(run, [p1])
    write_run(runs[4], [0.05])
    write_run(runs[5], [0.9], status="diverged")
    document = layout.document(spec, cells(spec, runs), runs, "make")
    text = layout.to_markdown(document)
    assert "| Full softmax |        20.00 |   **30.00** |" in text
    assert "| LSH Label    |    **40.00** |       10.00 |" in text
    assert "| NCE          |         5.00 |    diverged |" in text, "the only one that ran is not the best of several"
    assert "Full softmax, lr=0.01" in text, "the runs behind the table say their rate"
    assert r"20.00 & \bfseries 30.00 \\" in to_latex(document)
    assert "<td><strong>30.00</strong></td>" in layout.html("document", doc=document)


@pytest.mark.slow
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("table", ["time_to_accuracy", "tuning", "time_to_perplexity", "tuning_lm"])
def test_full_softmax_trains_as_long_as_all_others(table: str, profile: str, tmp_path: Path) -> None:
    runs = expand(load_table(table).grid, profile, tmp_path)
    for run in runs:
        full = next(other for other in runs if other.dataset == run.dataset and other.method == "full")
        assert run.config.epochs == full.config.epochs, (run.dataset, run.method)
        assert run.config.max_steps == full.config.max_steps is None, (run.dataset, run.method)


# ---------------------------------------------------------------- sweeps and the frontier


def test_a_sweep_of_some_methods_leaves_the_others_one_run(
    write_tables: Write, grid_text: str, planned: Plan, write_run: Write, tmp_path: Path
) -> None:
    sweep = (
        "sweep:\n  - {key: sampler.K, values: [4, 6], methods: [lsh_label]}\n"
        "  - {key: sampler.L, values: [10, 20], methods: [lsh_label]}\ndatasets:"
    )
    spec = load(write_tables, "frontier", grid_text.replace("datasets:", sweep, 1))
    assert spec.is_figure
    assert spec.grid.num_runs("small") == 6
    runs = planned(spec.grid, "small")
    swept = ["K=4 L=10", "K=4 L=20", "K=6 L=10", "K=6 L=20"]
    assert [point_text(run.point) for run in runs] == ["", *swept, ""]
    assert plots.draw(spec, runs, tmp_path) == []
    for run, seconds in zip(runs, (100, 10, 20, 30, 40, 5), strict=True):
        write_run(run, [0.3], p1=0.2 + seconds / 500, seconds=seconds)
    (first,), (second,) = plots.draw(spec, runs, tmp_path / "a"), plots.draw(spec, runs, tmp_path / "b")
    svg = first.with_suffix(".svg").read_text()
    assert svg == second.with_suffix(".svg").read_text()
    assert "<!-- Pareto frontier: nothing is faster and better -->" in svg


@pytest.mark.parametrize(
    ("kind", "sweep", "hint"),
    [
        ("frontier", "", "needs a grid with a sweep"),
        ("learning_rates", "", "needs a grid that sweeps only optimizer.lr"),
        ("learning_rates", "sweep: [{key: sampler.K, values: [4]}]\n", "needs a grid that sweeps only optimizer.lr"),
        ("numbers", "sweep: [{key: optimizer.lr, values: [0.1]}]\n", "name a grid without a sweep"),
        ("frontier", "sweep: [{key: sampler.K, values: [4], methods: [lsh]}]\n", "sweep[0].methods: unknown 'lsh'"),
        ("frontier", "sweep: [{key: sampler.K, values: []}]\n", "at least one"),
        ("frontier", "sweep: [{key: sampler.K, values: [4, 4]}]\n", "repeated"),
        ("frontier", "full_methods: [ful]\n", "full_methods: unknown 'ful'"),
    ],
)
def test_a_mistake_in_a_sweep_is_one_line(
    kind: str, sweep: str, hint: str, write_tables: Write, grid_text: str
) -> None:
    with pytest.raises(ConfigError) as error:
        load(write_tables, kind, grid_text + sweep)
    message = str(error.value)
    assert hint in message
    assert "toy.yaml" in message
    assert "\n" not in message


# ---------------------------------------------------------------- by name only


def test_costly_tables_run_by_name_only() -> None:
    for name in (
        "time_to_accuracy",
        "time_to_accuracy_levels",
        "tuning",
        "time_to_perplexity",
        "tuning_lm",
        "frontier",
    ):
        assert load_table(name).grid.by_name, name
    assert not load_table("lns_table2").grid.by_name


def test_a_grid_has_runs_of_its_own_once_one_finished_that_no_other_grid_plans(
    write_tables: Write, grid_text: str, planned: Plan, write_run: Write, results_dir: Path
) -> None:
    """The costly grid plans the other one's runs too, and two more: those with seed 1."""
    other = load(write_tables, "numbers", grid_text).grid
    costly = load(write_tables, "numbers", grid_text.replace("small: {seeds: [0],", "small: {seeds: [0, 1],")).grid
    shared = {run.run_id for run in planned(other, "small")}
    runs = planned(costly, "small")
    own = [run for run in runs if run.run_id not in shared]
    assert own
    assert len(own) < len(runs)

    def found(*others: Any) -> set[Any]:
        return own_runs_finished([costly], others, "small", results_dir)

    for run in runs:
        if run.run_id in shared:
            write_run(run, [0.1])
    write_run(own[0], [0.1], status="failed")
    assert found(other) == set(), "the other grid has made what is finished"
    assert found() == {costly}
    write_run(own[1], [0.1])
    assert found(other) == {costly}

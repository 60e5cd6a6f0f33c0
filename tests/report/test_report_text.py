"""Tests of language models' tables and figures: perplexity, a model with the data set, swept settings."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from runner.errors import ConfigError
from runner.report.figures import plots
from runner.report.figures.frontier import pareto, settings_of_plan
from runner.report.numbers.cells import cells, runs_table
from runner.report.numbers.records import record_of
from runner.report.numbers.sweep import sweep_table
from runner.report.pages import layout
from runner.report.plan.estimate import estimate
from runner.report.plan.speed import slowness
from runner.report.spec.grids import PlannedRun, expand
from runner.report.spec.tables import TableSpec, load_table
from runner.tasks import LanguageModelling

GRID = """
paper: midx
fixed: [preset=midx_lm_full]
baseline: full
methods:
  - {name: full, label: Full softmax, overrides: [sampler=full]}
  - {name: midx_rq, label: MIDX-rq, overrides: [sampler=midx_rq]}
SWEEP
datasets:
  - {name: small, label: Small, dataset: ptb_small}
  - {name: recurrent, label: "PTB, LSTM", dataset: ptb, published: ptb, published_model: lstm}
  - name: attention
    label: PTB, Transformer
    dataset: ptb
    published: ptb
    published_model: transformer
    overrides: [model=transformer]
profiles:
  small: {seeds: [0], datasets: [{name: small, overrides: [epochs=4]}]}
  medium: {seeds: [0], datasets: [{name: recurrent}, {name: attention}]}
  paper: {seeds: [0], datasets: [{name: recurrent}, {name: attention}]}
"""
SWEEP = "sweep: [{key: sampler.codewords, values: [8, 16], methods: [midx_rq]}]"
TABLE = 'title: "Toy"\nKIND\ngrid: toy\n'
PERPLEXITIES = (
    "{name: test_ppl, metric: test/ppl}, {name: val_ppl, metric: valid/ppl}, {name: train_ppl, metric: train/ppl}"
)
KINDS = {
    "perplexity": f"kind: numbers\ncolumns: [{PERPLEXITIES}]\nwith_costs: true",
    "perplexity_loss": (
        "kind: numbers\ncolumns: [{name: delta_ppl_percent, metric: valid/ppl, show: percent_above_baseline}]"
    ),
    "codebooks": "kind: numbers\ncolumns: [{name: kl_loss}, {name: log_ppl, metric: test/ppl, show: log}]",
    "curves": "kind: curves",
    "effect": "kind: effect",
}
PUBLISHED = "published: {csv: midx.csv, table: table4}\n"

Write = Callable[..., Path]


@pytest.fixture
def load(write_tables: Write) -> Callable[..., TableSpec]:
    def of_kind(kind: str, *, swept: bool = False, published: bool = False) -> TableSpec:
        text = TABLE.replace("KIND", KINDS[kind]) + (PUBLISHED if published else "")
        folder = write_tables(grid=GRID.replace("SWEEP", SWEEP if swept else ""), toy=text)
        return load_table("toy", folder)

    return of_kind


@pytest.fixture
def write_text_run(write_run: Write) -> Write:
    """Write the folder of a language model's planned run; ``curve`` is validation perplexity, one value per epoch."""

    def write(
        run: PlannedRun, curve: list[float | str], *, test: float, train: float = 90.0, stopped: bool = False
    ) -> Path:
        folder = write_run(run, [0.0] * len(curve))
        summary = json.loads((folder / "summary.json").read_text())
        best = min(range(len(curve)), key=lambda epoch: float(curve[epoch]))
        summary["metrics"] = {"test/ppl": test, "valid/ppl": curve[best], "train/ppl": train}
        summary["selection"] = {"step": 10 * best + 10, "epoch": best + 1.0, "stopped_early": stopped, "lr": 0.1}
        summary["dataset"]["num_classes"] = 10_000  # types, as PTB has; a perplexity above them is of no model
        summary |= {
            **LanguageModelling.about_measures(run.config),
            "units_per_second": 5000.0,
            "diagnostics": {"kl": 1.25},
        }
        (folder / "summary.json").write_text(json.dumps(summary))
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        values = iter(curve)
        for line in lines:
            if line["kind"] == "evaluation":
                del line["test_subset/p@1"]
                line["valid/ppl"] = next(values)
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        return folder

    return write


def cell(frame: pd.DataFrame, dataset: str, method: str, metric: str) -> pd.Series:
    found = frame[(frame["dataset"] == dataset) & (frame["method"] == method) & (frame["metric"] == metric)]
    assert len(found) == 1
    return found.iloc[0]


def test_a_column_is_a_data_set_with_a_model(load: Callable[..., TableSpec], tmp_path: Path) -> None:
    runs = expand(load("perplexity").grid, "medium", tmp_path)
    assert [(run.dataset, run.config.dataset.name, run.config.model.name) for run in runs] == [
        ("recurrent", "ptb", "lstm"), ("recurrent", "ptb", "lstm"),
        ("attention", "ptb", "transformer"), ("attention", "ptb", "transformer"),
    ]  # fmt: skip


def test_published_numbers_are_those_of_the_model(
    load: Callable[..., TableSpec], tmp_path: Path, write_text_run: Write
) -> None:
    spec = load("perplexity", published=True)
    runs = expand(spec.grid, "medium", tmp_path)
    for run in runs:
        write_text_run(run, [300.0, 120.0], test=110.0)
    frame = cells(spec, runs)
    assert cell(frame, "recurrent", "full", "test_ppl")["published"] == pytest.approx(109.1965)
    assert cell(frame, "attention", "full", "test_ppl")["published"] == pytest.approx(143.8422)
    assert cell(frame, "attention", "midx_rq", "test_ppl")["difference"] == pytest.approx(110 - 147.3405)
    assert cell(frame, "recurrent", "full", "train_ppl")["ours"] == 90
    text = layout.to_markdown(layout.document(spec, frame, runs, "make"))
    assert "Test perplexity, published" in text
    assert "Validation perplexity, published" not in text, "where nothing is printed there is no column for it"


def test_what_ended_a_training_is_told(load: Callable[..., TableSpec], tmp_path: Path, write_text_run: Write) -> None:
    spec = load("perplexity")
    runs = expand(spec.grid, "small", tmp_path)
    write_text_run(runs[0], [300.0, 120.0, 130.0], test=110.0, stopped=True)
    write_text_run(runs[1], [300.0, 150.0], test=140.0)
    frame = cells(spec, runs)
    assert cell(frame, "small", "full", "best_epoch")["ours"] == 2
    assert list(runs_table(spec.grid, runs)["ended"]) == ["epoch 3: validation no better", "epoch 2, as planned"]


def test_loss_against_the_exact_softmax_and_divergence(
    load: Callable[..., TableSpec], tmp_path: Path, write_text_run: Write
) -> None:
    spec = load("perplexity_loss")
    runs = expand(spec.grid, "small", tmp_path)
    write_text_run(runs[0], [100.0], test=110.0)
    write_text_run(runs[1], [125.0], test=140.0)
    assert cell(cells(spec, runs), "small", "midx_rq", "delta_ppl_percent")["ours"] == pytest.approx(25)
    frame = cells(load("codebooks"), runs)
    assert cell(frame, "small", "midx_rq", "log_ppl")["ours"] == pytest.approx(math.log(140))
    assert cell(frame, "small", "midx_rq", "kl_loss")["ours"] == 1.25


def test_curves_and_effects_of_a_sweep(load: Callable[..., TableSpec], tmp_path: Path, write_text_run: Write) -> None:
    """Infinite perplexities are left out of the lines."""
    curves, effect = load("curves", swept=True), load("effect", swept=True)
    runs = expand(curves.grid, "small", tmp_path)
    for run, last in zip(runs, (100.0, 130.0, 120.0), strict=True):
        write_text_run(run, ["inf", 300.0, last], test=last)
        assert record_of(run).curve("epoch") == [(2.0, 300.0), (3.0, last)]
    for spec in (curves, effect):
        (picture,) = plots.draw(spec, runs, tmp_path / spec.kind)
        svg = picture.with_suffix(".svg").read_text()
        assert "perplexity" in svg
        assert "Full softmax" in svg
        assert ("MIDX-rq, codewords=16" in svg) == (spec.kind == "curves")
        assert ("<!-- codewords a codebook -->" in svg) == (spec.kind == "effect")


def test_an_effect_needs_one_swept_key(load: Callable[..., TableSpec]) -> None:
    with pytest.raises(ConfigError, match="kind: effect needs a grid that sweeps one key"):
        load("effect")
    with pytest.raises(ConfigError, match="name a grid without a sweep"):
        load("perplexity", swept=True)


def test_a_published_model_needs_its_data_set(write_tables: Write) -> None:
    grid = GRID.replace("SWEEP", "").replace("dataset: ptb_small}", "dataset: ptb_small, published_model: lstm}")
    with pytest.raises(ConfigError, match=r"datasets\[0\].*published_model"):
        load_table("toy", write_tables(grid=grid, toy=TABLE.replace("KIND", KINDS["perplexity"])))


def test_a_sweep_of_texts_tells_perplexities_and_the_frontier_goes_down(
    load: Callable[..., TableSpec], tmp_path: Path, write_text_run: Write
) -> None:
    runs = expand(load("curves", swept=True).grid, "small", tmp_path)[1:]
    for run, last in zip(runs, (130.0, 120.0), strict=True):
        write_text_run(run, [300.0, last], test=last)
    table = sweep_table([record_of(run) for run in runs], ["sampler.codewords"])
    assert list(table["test perplexity"]) == [130, 120]
    assert [setting.text for setting in pareto(settings_of_plan(runs))] == ["codewords=16"]


def test_the_machine_is_measured() -> None:
    assert slowness() == slowness() > 0.01, "once a process"


def test_an_estimate_before_and_after_a_run(
    load: Callable[..., TableSpec], tmp_path: Path, write_text_run: Write
) -> None:
    runs = expand(load("perplexity").grid, "medium", tmp_path)
    assert estimate(runs[0], []) == (None, False)
    write_text_run(runs[0], [120.0], test=110.0)
    seconds, measured = estimate(runs[0], [record_of(runs[0])])
    assert measured
    assert seconds == pytest.approx(40 * runs[0].config.epochs, rel=0.5), "40 s an epoch, and the start"

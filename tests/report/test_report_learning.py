"""A model that never learnt is a status, not a row; constant answers are methods of their own, and count."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest

from runner.contracts import Measure
from runner.report.figures.curves import curves
from runner.report.figures.data import figure_data
from runner.report.numbers.cells import cells
from runner.report.numbers.learning import why_not_learnt
from runner.report.numbers.records import record_of
from runner.report.numbers.yardstick import Yardstick
from runner.report.spec.grids import PlannedRun
from runner.report.spec.tables import TableSpec


@dataclass(frozen=True)
class Told:
    """What the rule reads of a record."""

    key: str
    metrics: dict[str, float]
    dataset: dict[str, float]

    @property
    def summary(self) -> dict[str, object]:
        return {"dataset": self.dataset}

    @property
    def yardstick(self) -> Yardstick:
        measure = Measure(
            key=self.key, label=self.key.upper(), unit="", scale=1, decimals=2, higher_is_better=True, headline=True
        )
        return Yardstick(measures=(measure,), watched="test", unit="row")

    def metric(self, name: str) -> float:
        return self.metrics.get(name, float("nan"))


RTE = {"num_classes": 2, "num_test": 277, "largest_class_of_test": 0.527}
XC = {"num_classes": 1000, "num_test": 10_000, "labels_per_row": 5.0}


@pytest.mark.parametrize(
    ("key", "value", "dataset", "why"),
    [
        ("ppl", 10_001.0, {"num_classes": 10_000}, "perplexity above the 10,000 types"),
        ("ppl", 9_999.0, {"num_classes": 10_000}, ""),
        ("ppl", 1e9, {}, ""),
        ("accuracy", 0.586, RTE, "ACCURACY at chance"),
        ("accuracy", 0.59, RTE, ""),
        ("accuracy", 0.3, {"num_test": 277}, ""),
        ("p@1", 0.0064, XC, "P@1 at chance"),
        ("p@1", 0.0065, XC, ""),
        ("ndcg@10", 0.0045, {"num_classes": 1000}, "NDCG@10 at chance"),
        ("ndcg@10", 0.0046, {"num_classes": 1000}, ""),
    ],
)
def test_the_headline_is_beside_what_needs_no_training(
    key: str, value: float, dataset: dict[str, float], why: str
) -> None:
    told = Told(key, {f"test/{key}": value}, dataset)
    assert why_not_learnt(told) == (f"never learnt: {why}" if why else "")  # type: ignore[arg-type]


@pytest.mark.parametrize(("r2", "learnt"), [(-5e10, False), (0.0, False), (0.01, True)])
def test_regression_is_beside_the_mean(r2: float, learnt: bool) -> None:
    told = Told("mse", {"test/mse": 1.0, "test/r2": r2}, {})
    assert (why_not_learnt(told) == "") == learnt  # type: ignore[arg-type]


@pytest.fixture
def one_at_chance(
    planned: Callable[..., list[PlannedRun]], pick: Callable[..., PlannedRun], write_run: Callable[..., Path]
) -> Callable[[TableSpec], list[PlannedRun]]:
    """Return a function that writes runs of full softmax, at the chance of 50 classes, and of LSH, above it."""

    def write(spec: TableSpec) -> list[PlannedRun]:
        runs = planned(spec.grid, "small")
        for method, p_at_1 in (("full", 0.03), ("lsh_label", 0.1)):
            path = write_run(pick(runs, method), [p_at_1] * 4) / "summary.json"
            path.write_text(
                path.read_text().replace('"num_train": 500', '"num_train": 500, "num_test": 99, "labels_per_row": 1')
            )
        return runs

    return write


def test_curves_say_which_line_never_learnt(
    toy: dict[str, TableSpec], one_at_chance: Callable[[TableSpec], list[PlannedRun]]
) -> None:
    spec = toy["curves"]
    runs = [run for run in one_at_chance(spec) if record_of(run).finished]
    labels = figure_data(spec, runs).groupby("method")["label"].first()
    assert labels["full"].endswith(" (never learnt)")
    assert "never learnt" not in labels["lsh_label"]
    (figure,) = curves(spec, [spec.grid.dataset(runs[0].dataset)], runs).values()
    shown = [text.get_text() for axis in figure.axes for text in axis.texts]
    shown += [text.get_text() for key in figure.legends for text in key.get_texts()]
    assert any("(never learnt)" in text for text in shown), shown


def test_tables_show_the_status_and_compare_nothing_with_it(
    toy: dict[str, TableSpec], pick: Callable[..., PlannedRun], one_at_chance: Callable[[TableSpec], list[PlannedRun]]
) -> None:
    spec = toy["speed"]
    runs = one_at_chance(spec)
    assert record_of(pick(runs, "full")).finished
    rows = cells(spec, runs)
    frame = rows[rows["dataset"] == pick(runs, "full").dataset].set_index(["method", "metric"])
    assert frame.loc[("full", "P@1"), "status"] == "never learnt: P@1 at chance"
    assert pd.isna(frame.loc[("full", "seconds_per_epoch"), "ours"])
    assert frame.loc[("lsh_label", "P@1"), "ours"] == pytest.approx(10)
    assert pd.isna(frame.loc[("lsh_label", "epoch_speedup_vs_full"), "ours"])

"""Rows held out of an XC set's training rows are never trained on, and test rows are not looked at before the end."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runner.config import check_model_reads_dataset, compose
from runner.contracts import ExampleDraw
from runner.data import LabelledRows
from runner.errors import ConfigError, DataError
from runner.options.settings import RunConfig
from runner.tasks import Classification, classification
from runner.training.run import run

ROWS = 400


def config_of(*overrides: str, share: float = 0.1) -> RunConfig:
    return compose([
        "dataset=synthetic_xc", "dataset.num_classes=60", "dataset.num_features=200", f"dataset.num_train={ROWS}",
        "dataset.num_test=50", f"dataset.valid_share={share}", "sampler=uniform", "sampler.num_samples=10",
        "model.hidden=8", "batch_size=32", *overrides,
    ])  # fmt: skip


@pytest.fixture
def task() -> Classification:
    config = config_of()
    return Classification(config, config.dataset.build())


def rows_of(data: LabelledRows, numbers: np.ndarray) -> list[list[int]]:
    return [data.labels[data.label_indptr[row] : data.label_indptr[row + 1]].tolist() for row in numbers]


def test_every_training_row_is_on_one_side(task: Classification) -> None:
    assert task.train_R is not None
    assert task.valid_R is not None
    assert (len(task.train_R), len(task.valid_R)) == (360, 40)
    assert sorted([*task.train_R, *task.valid_R]) == list(range(ROWS))
    assert task.examples.count == task.rows_per_epoch == task.training.num_rows == 360
    assert "360 training rows and 40 for validation" in task.description
    assert task.about_data()["num_valid"] == 40
    other = config_of("seed=7")
    assert np.array_equal(Classification(other, other.dataset.build()).valid_R, task.valid_R), "no seed moves the split"


def test_training_sees_no_held_out_row(task: Classification) -> None:
    batch = task.batch(ExampleDraw(rows_B=np.arange(task.examples.count)))
    trained = np.split(batch.targets, batch.target_indptr[1:-1])
    assert [part.tolist() for part in trained] == rows_of(task.data.train, task.train_R)
    assert np.array_equal(np.bincount(batch.targets, minlength=60), task.training.label_counts_N)
    probed = task.probe(1000, "train")
    assert sorted(probed.targets) == sorted(batch.targets), "diagnoses of training rows leave them out too"


def test_propensities_belong_to_the_measure(task: Classification) -> None:
    without = config_of(share=0.0)
    whole = Classification(without, without.dataset.build())
    assert np.array_equal(whole.inverse_propensity_N, task.inverse_propensity_N)
    assert whole.training.num_rows == ROWS
    assert "valid_share" not in without.identity["dataset"], "the ids of runs without validation stay"


def test_choices_are_made_on_held_out_rows_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[tuple[int, int]] = []
    evaluate = classification.evaluate

    def seen(network: Any, data: LabelledRows, rows: np.ndarray, *rest: Any, **more: Any) -> dict[str, float]:
        looked_at.append((data.num_rows, len(rows)))
        return evaluate(network, data, rows, *rest, **more)

    monkeypatch.setattr(classification, "evaluate", seen)
    monkeypatch.setattr("runner.training.loop.warm_up", lambda config: None)
    folder = run(config_of("epochs=2", "evaluation.every_epochs=1", "evaluation.rows=30", f"results_dir={tmp_path}"))
    assert looked_at == [(ROWS, 30), (ROWS, 30), (50, 50), (ROWS, 40)], "the 50 test rows come once, at the end"
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["watched"] == "valid"
    assert {"test/p@1", "valid/p@1"} <= summary["metrics"].keys()
    assert summary["selection"]["epoch"] in (1, 2)


def test_early_stopping_needs_held_out_rows() -> None:
    assert config_of("training.patience=2").training.patience == 2
    with pytest.raises(ConfigError, match=r"training\.patience needs a validation set"):
        check_model_reads_dataset(config_of("training.patience=2", share=0.0))


def test_too_few_rows() -> None:
    config = config_of("dataset.num_train=4", share=0.1)
    with pytest.raises(DataError, match=r"4 training rows cannot be split: dataset\.valid_share=0\.1 holds 0"):
        Classification(config, config.dataset.build())


@pytest.mark.parametrize("share", ["-0.1", "0.6", "nan"])
def test_shares_out_of_range(share: str) -> None:
    with pytest.raises(ConfigError, match=r"dataset\.valid_share must lie in \[0, 0\.5\]"):
        config_of(f"dataset.valid_share={share}")

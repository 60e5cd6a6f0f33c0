"""Naming the most frequent classes for every row, against counts in plain Python, and what it says of the data."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from runner.baselines.tasks import FittedClassification
from runner.config import check_model_reads_dataset, compose
from runner.data import LabelledRows
from runner.errors import ConfigError
from runner.options.settings import RunConfig
from runner.parts import task_of
from runner.report.numbers.cells import cells
from runner.report.spec.grids import PlannedRun
from runner.report.spec.tables import load_table
from runner.tasks import Classification
from runner.training.run import run

ROWS = 400
DATA = [
    "dataset=synthetic_xc", "dataset.num_classes=60", "dataset.num_features=200", f"dataset.num_train={ROWS}",
    "dataset.num_test=50",
]  # fmt: skip


def config_of(place: Path, *words: str) -> RunConfig:
    return compose([*DATA, "model=most_frequent", f"results_dir={place}", "hardware.threads=1", *words])


def labels_of(data: LabelledRows, rows: Any) -> list[set[int]]:
    return [set(data.labels[data.label_indptr[row] : data.label_indptr[row + 1]].tolist()) for row in rows]


@pytest.mark.parametrize("share", [0.0, 0.25])
def test_the_most_frequent_classes_of_the_training_rows(share: float, tmp_path: Path) -> None:
    config = config_of(tmp_path, f"dataset.valid_share={share}")
    task = task_of(config, config.dataset.build())
    assert isinstance(task, FittedClassification)
    data = task.data
    trained = labels_of(data.train, range(ROWS) if task.train_R is None else task.train_R)
    count = Counter(label for labels in trained for label in labels)
    top = sorted(range(60), key=lambda label: (-count[label], label))[:5]
    summary = json.loads((run(config) / "summary.json").read_text())
    for split, labels in (
        ("test", labels_of(data.test, range(50))),
        *([("valid", labels_of(data.train, task.valid_R))] if share else []),
    ):
        for k in (1, 3, 5):
            hits = sum(len(row & set(top[:k])) for row in labels)
            assert summary["metrics"][f"{split}/p@{k}"] == pytest.approx(hits / (k * len(labels)))
    assert summary["metrics"]["test/p@1"] > 0
    assert summary["steps"] == 1


def test_metrics_are_those_of_a_network_that_ranks_so(tmp_path: Path) -> None:
    """A class matrix whose biases alone tell classes apart ranks them by frequency."""
    config = compose([*DATA, "sampler=full", f"results_dir={tmp_path}", "hardware.threads=1"])
    data = config.dataset.build()
    network_task = Classification(config, data)
    from runner.network import Network

    network = Network.of(config, network_task.build_head(), num_features=200)
    table = network.head.tables[0]
    table.weights[:] = 0
    table.bias[:, 0] = network_task.training.label_counts_N
    expected = network_task.evaluate_final(network)
    del expected["test/loss"]  # what ranks by counts has no softmax
    summary = json.loads((run(config_of(tmp_path)) / "summary.json").read_text())
    assert summary["metrics"] == pytest.approx(expected)


def test_a_run_says_how_large_the_data_are(tmp_path: Path) -> None:
    config = config_of(tmp_path, "dataset.valid_share=0.25")
    about = json.loads((run(config) / "summary.json").read_text())["dataset"]
    train = config.dataset.build().train
    assert about["labels_per_row"] == sum(map(len, labels_of(train, range(ROWS)))) / ROWS
    assert about["features_per_row"] == len(train.indices) / ROWS
    spec = load_table("lns_table1")
    planned = PlannedRun(dataset="wordnet_related", method="most_frequent", seed=0, overrides=(), config=config)
    frame = cells(spec, [planned])
    shown = frame[frame["dataset"] == "wordnet_related"].set_index("metric")["ours"]
    assert (shown["train"], shown["test"], shown["labels"], shown["features"]) == (ROWS, 50, 60, 200)
    printed = frame[frame["dataset"] == "amazon670k"].set_index("metric")["published"]
    assert (printed["train"], printed["test"], printed["labels"]) == (490449, 153025, 670091)


def test_published_statistics_of_midx_have_their_columns(tmp_path: Path) -> None:
    spec = load_table("midx_table8")
    planned = PlannedRun(
        dataset="wordnet_hypernym", method="most_frequent", seed=0, overrides=(), config=config_of(tmp_path)
    )
    frame = cells(spec, [planned])
    printed = frame[frame["dataset"] == "amazoncat13k"].set_index("metric")["published"]
    assert (printed["classes"], printed["samples"], printed["features"]) == (13330, 1186239, 203882)


@pytest.mark.parametrize(("words", "says"), [
    (["epochs=2"], "counts the training rows once; leave epochs at 1"),
    (["training.clip=1.0"], "learns nothing by steps"),
    (["batch_sampler=uniform"], "counts all training rows"),
    (["dataset=synthetic_log"], "model=most_frequent reads rows"),
])  # fmt: skip
def test_settings_of_training_by_steps_are_refused(words: list[str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        check_model_reads_dataset(compose(["model=most_frequent", *words]))

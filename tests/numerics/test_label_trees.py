"""Label trees by omikuji: the same rows and the same metrics as networks have, and what is said where it is missing.

Most tests take a stand-in for the library, so that they need no extra: it ranks classes by their neighbours' rows.
"""

import importlib.util
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runner.baselines.forest import LIBRARY, NOTHING, write_rows
from runner.baselines.tasks import FittedClassification
from runner.baselines.trees import OmikujiConfig
from runner.config import check_model_reads_dataset, compose
from runner.data import LabelledRows
from runner.data.rows.batches import take
from runner.errors import ConfigError, NotInstalled
from runner.options.settings import RunConfig
from runner.parts import task_of
from runner.predict import main as predict_main
from runner.report.numbers.records import status_of
from runner.report.spec.grids import PlannedRun
from runner.training.run import load_trained, run
from runner.training.run_folder import RunFolder

ROWS = 400
DATA = [
    "dataset=synthetic_xc", "dataset.num_classes=60", "dataset.num_features=200", f"dataset.num_train={ROWS}",
    "dataset.num_test=50",
]  # fmt: skip
STAND_IN = """
import json
import os
from pathlib import Path
from types import SimpleNamespace

__version__ = "0 (stand-in)"


class Model:
    def __init__(self, rows):
        self.rows = rows

    @classmethod
    def default_hyper_param(cls):
        return SimpleNamespace(n_trees=0, cluster_k=0, cluster_balanced=None, max_depth=0)

    @classmethod
    def train_on_data(cls, path, settings, n_threads):
        assert (settings.n_trees, settings.cluster_k, settings.cluster_balanced, settings.max_depth) == (3, 2, True, 20)
        os.write(1, b"a log that nobody asked for\\n")
        lines = Path(path).read_text().splitlines()
        rows = []
        for line in lines[1:]:
            labels, *pairs = line.split(" ")
            features = {int(pair.split(":")[0]): float(pair.split(":")[1]) for pair in pairs}
            rows.append([[int(label) for label in labels.split(",") if label], list(features.items())])
        assert lines[0].split()[0] == str(len(rows))
        return cls(rows)

    def predict(self, pairs, beam_size, top_k):
        assert beam_size == 10
        asked, scores = dict(pairs), {}
        for labels, features in self.rows:
            alike = sum(value * asked.get(feature, 0) for feature, value in features)
            for label in labels:
                scores[label] = scores.get(label, 0) + alike
        ranked = sorted((-score, label) for label, score in scores.items() if score > 0)
        return [(label, -score) for score, label in ranked[:top_k]]

    def save(self, folder):
        Path(folder, "settings.json").write_text("{}")
        Path(folder, "tree0.cbor").write_text(json.dumps(self.rows))

    @classmethod
    def load(cls, folder):
        return cls(json.loads(Path(folder, "tree0.cbor").read_text()))

    def init_prediction_thread_pool(self, n_threads):
        pass

    def densify_weights(self, largest, n_threads):
        pass
"""
installed = pytest.mark.skipif(
    importlib.util.find_spec(LIBRARY) is None, reason="the extra baselines is not installed: no omikuji"
)


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    place = tmp_path / "library"
    place.mkdir()
    (place / "omikuji.py").write_text(STAND_IN)
    monkeypatch.delitem(sys.modules, LIBRARY, raising=False)
    monkeypatch.syspath_prepend(str(place))
    yield
    sys.modules.pop(LIBRARY, None)  # monkeypatch puts the real one back, if it was there


def config_of(place: Path, *words: str) -> RunConfig:
    return compose([*DATA, "model=omikuji", f"results_dir={place}", "hardware.threads=1", *words])


def summary_of(folder: Path) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return summary


def rows_of(data: LabelledRows, rows: Any) -> list[tuple[set[int], dict[int, float]]]:
    """Return the labels and the features of rows, features that occur twice added."""
    out = []
    for row in rows:
        features: dict[int, float] = {}
        for place in range(data.indptr[row], data.indptr[row + 1]):
            feature = int(data.indices[place])
            features[feature] = features.get(feature, 0.0) + float(data.values[place])
        out.append((set(data.labels[data.label_indptr[row] : data.label_indptr[row + 1]].tolist()), features))
    return out


# ---------------------------------------------------------------- runs with the stand-in


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize("share", [0.0, 0.25])
def test_precision_is_counted_on_the_rows_that_networks_have(share: float, tmp_path: Path) -> None:
    config = config_of(tmp_path / "results", f"dataset.valid_share={share}")
    task = task_of(config, config.dataset.build())
    assert isinstance(task, FittedClassification)
    data = task.data
    trained = rows_of(data.train, range(ROWS) if task.train_R is None else task.train_R)
    summary = summary_of(run(config))
    splits = {"test": rows_of(data.test, range(50))}
    if share:
        splits["valid"] = rows_of(data.train, task.valid_R)
        assert len(trained) == 300
    for split, rows in splits.items():
        ranked = []
        for _, asked in rows:
            scores: dict[int, float] = {}
            for labels, features in trained:
                alike = sum(value * asked.get(feature, 0.0) for feature, value in features.items())
                for label in labels:
                    scores[label] = scores.get(label, 0.0) + alike
            ranked.append(sorted((label for label in scores if scores[label] > 0), key=lambda x: (-scores[x], x)))
        for k in (1, 3, 5):
            hits = sum(len(labels & set(top[:k])) for (labels, _), top in zip(rows, ranked, strict=True))
            assert summary["metrics"][f"{split}/p@{k}"] == pytest.approx(hits / (k * len(rows)))
    assert summary["metrics"]["test/p@1"] > 0.1
    assert (summary["steps"], summary["library"]) == (1, "omikuji 0 (stand-in)")
    assert summary["train_seconds"] > 0


@pytest.mark.usefixtures("stand_in")
def test_the_last_line_of_output_is_ours_alone(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run(config_of(tmp_path / "results"))
    said = capfd.readouterr()
    assert "nobody asked" not in said.out + said.err
    assert "P@1" in said.err


@pytest.mark.usefixtures("stand_in")
def test_rows_with_fewer_classes_than_ranks(tmp_path: Path) -> None:
    config = config_of(tmp_path / "results")
    task = task_of(config, config.dataset.build())
    network = task.build_network()
    steps = task.compiled_steps(network, None)
    assert steps is not None
    assert steps.take(1, 1) == (0.0, 1, ROWS)
    batch = take(task.data.test, np.arange(3))
    batch = replace(batch, values=np.zeros_like(batch.values))  # no row is like another
    np.testing.assert_array_equal(network.top(batch, 5), np.full((3, 5), NOTHING))


@pytest.mark.usefixtures("stand_in")
def test_a_run_can_be_loaded_and_a_checkpoint_goes_on(tmp_path: Path) -> None:
    config = config_of(tmp_path / "results", "keep_weights=true")
    folder = RunFolder(run(config))
    network, task, step = load_trained(config, folder)
    assert step == 1
    batch = take(task.data.test, np.arange(20))
    again = OmikujiConfig().build(60)
    again.load_state_dict(network.state_dict())
    np.testing.assert_array_equal(network.top(batch, 5), again.top(batch, 5))
    assert task.evaluate_final(network) == summary_of(folder.path)["metrics"]
    with pytest.raises(ValueError, match="is no file of a forest"):
        again.load_state_dict({"forest...evil": np.zeros(1, dtype=np.uint8)})


@pytest.mark.usefixtures("stand_in")
def test_predict_says_why_it_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run(config_of(tmp_path / "results", "keep_weights=true"))
    rows = tmp_path / "rows.txt"
    rows.write_text("1 200 60\n0 1:1\n")
    monkeypatch.setattr("sys.argv", ["predict", str(folder), str(rows)])
    assert predict_main() == 2
    assert "model=omikuji has no class matrix" in capsys.readouterr().err


# ---------------------------------------------------------------- rows as text


def test_rows_are_written_as_the_library_reads_them(tmp_path: Path) -> None:
    """Repeated features are added; a row without features has no blank after its labels."""
    data = LabelledRows(
        indptr=np.array([0, 3, 3, 5]),
        indices=np.array([4, 1, 4, 0, 2], dtype=np.int32),
        values=np.array([0.5, 2, 0.25, 1, 1e-6], dtype=np.float32),
        label_indptr=np.array([0, 2, 3, 3]),
        labels=np.array([3, 7, 1], dtype=np.int32),
    )
    write_rows(tmp_path / "rows.txt", data, np.arange(3), num_features=5, num_classes=8)
    assert (tmp_path / "rows.txt").read_text() == "3 5 8\n3,7 4:0.75 1:2\n1\n 0:1 2:9.99999997e-07\n"


# ---------------------------------------------------------------- without the library


@pytest.fixture
def missing(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == LIBRARY else real(name, *more))


@pytest.mark.usefixtures("missing")
def test_without_the_library_a_run_says_how_to_install_it(tmp_path: Path) -> None:
    with pytest.raises(NotInstalled) as error:
        run(config_of(tmp_path / "results"))
    assert str(error.value) == "model=omikuji needs the library omikuji: pip install '.[baselines]'"
    assert not (tmp_path / "results").exists()


@pytest.mark.usefixtures("missing")
def test_without_the_library_a_row_is_a_status(tmp_path: Path) -> None:
    planned = PlannedRun(dataset="synthetic_xc", method="omikuji", seed=0, overrides=(), config=config_of(tmp_path))
    assert status_of(planned) == "skipped: omikuji is not installed (pip install '.[baselines]')"


# ---------------------------------------------------------------- settings


@pytest.mark.parametrize(("words", "says"), [
    (["epochs=2"], "model=omikuji reads the training rows once; leave epochs at 1"),
    (["training.clip=1.0"], "learns nothing by steps"),
    (["batch_sampler=uniform"], "reads all training rows"),
    (["dataset=synthetic_log"], "model=omikuji reads rows"),
    (["model.cluster_k=3"], "must be a power of two"),
    (["model.n_trees=0"], r"model.n_trees must lie in \[1, 1000\]"),
])  # fmt: skip
def test_mistakes_are_one_line(words: list[str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        check_model_reads_dataset(compose(["model=omikuji", *words]))


# ---------------------------------------------------------------- the library itself


@installed
def test_defaults_are_the_librarys() -> None:
    import omikuji

    theirs, ours = omikuji.Model.default_hyper_param(), OmikujiConfig()
    for name in ("n_trees", "cluster_k", "cluster_balanced", "max_depth"):
        assert getattr(ours, name) == getattr(theirs, name), name


@installed
@pytest.mark.parametrize("bonsai", [False, True])
def test_trees_are_better_than_naming_the_most_frequent_classes(
    bonsai: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["dataset.num_train=3000", "dataset.num_test=500"]
    shape = ["model.cluster_k=5", "model.cluster_balanced=false", "model.max_depth=3"] if bonsai else []
    config = config_of(tmp_path, "keep_weights=true", *words, *shape)
    folder = RunFolder(run(config))
    assert "INFO" not in "".join(capfd.readouterr())
    frequent = run(compose([*DATA, "model=most_frequent", f"results_dir={tmp_path}", "hardware.threads=1", *words]))
    found, floor = (summary_of(path)["metrics"]["test/p@1"] for path in (folder.path, frequent))
    assert found > floor + 0.1
    network, task, _ = load_trained(config, folder)
    assert task.evaluate_final(network) == summary_of(folder.path)["metrics"]

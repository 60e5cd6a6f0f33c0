"""Trackers show what metrics.jsonl has, once, whether a run is interrupted or not; and no tracker ends a training."""

import importlib.util
import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.config import compose
from runner.errors import ConfigError
from runner.machine.clock import StageClock
from runner.network import Network
from runner.options.settings import RunConfig
from runner.training import loop, trackers
from runner.training.run import run
from runner.training.trackers import Trackers, numbers_of

SMALL = [
    "sampler=uniform", "sampler.num_samples=15", "model.hidden=8", "batch_size=32", "optimizer.lr=0.02",
    "evaluation.rows=20", "evaluation.every_epochs=0.5", "hardware.threads=1", "max_steps=12",
]  # fmt: skip
# Both libraries warn of their own dependencies, which is no error of this project.
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]
needs_tensorboard = pytest.mark.skipif(
    importlib.util.find_spec("tensorboard") is None, reason="the extra trackers is not installed: no tensorboard"
)
needs_mlflow = pytest.mark.skipif(
    importlib.util.find_spec("mlflow") is None or importlib.util.find_spec("sqlalchemy") is None,
    reason="the extra trackers is not installed: no mlflow",
)
Configure = Callable[..., RunConfig]
Series = dict[str, list[tuple[int, float]]]


@pytest.fixture
def configure(toy_folder: Path, own_data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Configure:
    monkeypatch.setattr(loop, "warm_up", lambda config: None)
    data = ["dataset=xmc", f"dataset.path={toy_folder}", f"results_dir={tmp_path / 'results'}"]
    return lambda *more: compose([*data, *SMALL, *more])


def interrupt_at(step_of_it: int, config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    real_step = Network.train_step

    def interrupted(self: Network[Any], batch: Any, step: int, clock: StageClock) -> Any:
        if step == step_of_it:
            signal.raise_signal(signal.SIGINT)
        return real_step(self, batch, step, clock)

    with monkeypatch.context() as patch:
        patch.setattr(Network, "train_step", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(config)


def written(folder: Path) -> Series:
    """Return the series that metrics.jsonl has."""
    series: Series = {}
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        record = json.loads(line)
        for name, value in numbers_of(record).items():
            series.setdefault(name, []).append((record["step"], value))
    return series


def in_tensorboard(config: RunConfig) -> Series:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(config.run_dir.parents[1] / "tensorboard" / config.run_id)).Reload()
    return {tag: [(each.step, each.value) for each in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


def in_mlflow(config: RunConfig) -> tuple[list[Any], Series]:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(f"sqlite:///{config.run_dir.parents[1] / 'mlflow.db'}")
    (experiment,) = [each for each in client.search_experiments() if each.name == config.dataset.name]
    runs = client.search_runs([experiment.experiment_id])
    names = runs[0].data.metrics
    histories = {name: client.get_metric_history(runs[0].info.run_id, name) for name in names}
    return list(runs), {name: sorted((e.step, e.value) for e in each) for name, each in histories.items()}


@needs_tensorboard
def test_tensorboard_has_each_observation_once(configure: Configure, monkeypatch: pytest.MonkeyPatch) -> None:
    config = configure("tracker=tensorboard")
    interrupt_at(8, config, monkeypatch)
    before = in_tensorboard(config)
    folder = run(config)
    after, expected = in_tensorboard(config), written(folder)
    assert set(after) == set(expected)
    assert "test_subset/p@1" in after
    for name, series in after.items():
        assert [step for step, _ in series] == [step for step, _ in expected[name]], "no step twice, none missing"
        assert [value for _, value in series] == pytest.approx([value for _, value in expected[name]], rel=1e-5)
    assert len(before["loss"]) < len(after["loss"])


@needs_mlflow
def test_mlflow_continues_a_run_and_force_starts_another(configure: Configure, monkeypatch: pytest.MonkeyPatch) -> None:
    config = configure("tracker=mlflow")
    interrupt_at(8, config, monkeypatch)
    (first,), _ = in_mlflow(config)
    assert first.info.status == "KILLED"
    expected = written(run(config))
    (second,), series = in_mlflow(config)
    assert second.info.run_id == first.info.run_id, "the same run goes on"
    assert second.info.status == "FINISHED"
    assert second.data.params["sampler.num_samples"] == "15"
    assert {name: len(each) for name, each in series.items()} == {
        name.replace("@", "_at_"): len(each) for name, each in expected.items()
    }
    assert dict(series["loss"]) == pytest.approx(dict(expected["loss"]))
    run(configure("tracker=mlflow", "force=true"))
    (third,), _ = in_mlflow(config)
    assert third.info.run_id != first.info.run_id


def test_a_tracker_changes_neither_the_run_nor_its_id(configure: Configure) -> None:
    assert configure("tracker=both").run_id == configure().run_id


def test_a_missing_library_is_one_line_before_anything_is_made(
    configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    config = configure("tracker=mlflow")
    with pytest.raises(ConfigError, match=r"tracker=mlflow needs mlflow: pip install '\.\[trackers\]'"):
        run(config)
    assert not config.run_dir.exists()


def test_a_tracker_that_fails_does_not_end_the_training(
    configure: Configure, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Full(trackers.Tracker):
        def observe(self, step: int, numbers: Any) -> None:
            raise OSError("No space left on device")

        def close(self, status: str) -> None:
            raise AssertionError("it was left out")

    monkeypatch.setattr("runner.training.run.trackers_of", lambda config, seen: Trackers({"mlflow": Full()}))
    monkeypatch.setattr(trackers, "check_libraries", lambda config: None)
    monkeypatch.setattr("runner.training.run.check_libraries", lambda config: None)
    folder = run(configure("tracker=mlflow"))
    assert json.loads((folder / "summary.json").read_text())["status"] == "finished"
    err = capsys.readouterr().err
    assert err.count("tracker=mlflow is left out from here on, metrics.jsonl has all: No space left on device") == 1


def test_numbers_of_observations() -> None:
    record = {
        "kind": "evaluation", "step": 3, "epoch": 1.0, "stage_seconds": {"encode": 2}, "test/p@1": 0.5, "lr": "inf",
        "loss": float("nan"), "is": True,
    }  # fmt: skip
    assert numbers_of(record) == {"stage_seconds/encode": 2.0, "test/p@1": 0.5}
    assert numbers_of({"kind": "distribution", "step": 0, "truth": [1.0]}) == {}

"""Mirror a run's observations to TensorBoard and MLflow. metrics.jsonl stays what tables and plots read.

``tracker=tensorboard`` writes RESULTS/tensorboard/RUN_ID, ``tracker=mlflow`` RESULTS/mlflow.db (SQLite). A run that is
resumed continues its series: what a tracker already has is not written twice. Both libraries come with the extra
``trackers``, and only runs that ask for them import them.
"""

import importlib.util
import math
import shutil
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from runner.errors import ConfigError
from runner.options.settings import RunConfig, flat

_LIBRARIES = {"tensorboard": ("tensorboard",), "mlflow": ("mlflow", "sqlalchemy")}
_SHOWN = ("evaluation", "diagnostics")  # kinds of observations; a distribution is no number
_CLOCKS = ("kind", "step", "epoch")


def check_libraries(config: RunConfig) -> None:
    """Raise ConfigError if a library that the configuration asks for is not installed."""
    for name in _names(config):
        if any(importlib.util.find_spec(library) is None for library in _LIBRARIES[name]):
            raise ConfigError(f"tracker={config.tracker} needs {name}: pip install '.[trackers]', or leave tracker out")


def numbers_of(record: Mapping[str, Any]) -> dict[str, float]:
    """Return the finite numbers of an observation; those within a mapping are named ``mapping/key``."""
    if record.get("kind") not in _SHOWN:
        return {}
    prefix = "diagnostics/" if record["kind"] == "diagnostics" else ""
    flat = ((f"{prefix}{key}", value) for key, value in _flat(record) if key not in _CLOCKS)
    return {
        key: float(value)
        for key, value in flat
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    }


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}/")
        else:
            yield f"{prefix}{key}", value


class Tracker(ABC):
    """A tracker shows the observations of one run elsewhere."""

    @abstractmethod
    def observe(self, step: int, numbers: Mapping[str, float]) -> None:
        """Show numbers at a step; those that the run showed before it was interrupted are not shown again."""

    @abstractmethod
    def close(self, status: str) -> None:
        """End the series with the status of the run's summary."""


class TensorBoard(Tracker):
    """Event files in a folder of their own, which are written anew from metrics.jsonl when a run goes on."""

    def __init__(self, folder: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        shutil.rmtree(folder, ignore_errors=True)
        self._writer = SummaryWriter(str(folder))

    def observe(self, step: int, numbers: Mapping[str, float]) -> None:
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self, status: str) -> None:
        self._writer.close()


class MLflow(Tracker):
    """A run of the experiment that is called as the data set. It is found again by the tag ``run_id``."""

    def __init__(self, config: RunConfig, *, starts_anew: bool) -> None:
        from mlflow.tracking import MlflowClient

        results = config.run_dir.parents[1]
        self._client = MlflowClient(f"sqlite:///{results / 'mlflow.db'}")
        experiment = self._experiment(str(config.dataset.name), results / "mlflow")
        found = self._client.search_runs([experiment], f"tags.run_id = '{config.run_id}'")
        if starts_anew:
            for earlier in found:
                self._client.delete_run(earlier.info.run_id)
        if found and not starts_anew:
            self._id: str = found[0].info.run_id
            self._client.update_run(self._id, status="RUNNING")
        else:
            tags = {"run_id": config.run_id, "folder": str(config.run_dir)}
            self._id = self._client.create_run(experiment, tags=tags, run_name=config.run_id).info.run_id
            for key, value in flat(config.as_dict()).items():
                self._client.log_param(self._id, key, value)
        self._last: dict[str, int] = {}
        for key in self._client.get_run(self._id).data.metrics:
            self._last[key] = max(each.step for each in self._client.get_metric_history(self._id, key))

    def _experiment(self, name: str, artifacts: Path) -> str:
        found = self._client.get_experiment_by_name(name)
        if found is not None:
            return str(found.experiment_id)
        return str(self._client.create_experiment(name, artifact_location=artifacts.as_uri()))

    def observe(self, step: int, numbers: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        named = {name.replace("@", "_at_"): value for name, value in numbers.items()}  # MLflow refuses @
        new = [Metric(name, value, now, step) for name, value in named.items() if step > self._last.get(name, -1)]
        if new:
            self._client.log_batch(self._id, metrics=new)

    def close(self, status: str) -> None:
        statuses = {"finished": "FINISHED", "interrupted": "KILLED"}
        self._client.set_terminated(self._id, statuses.get(status, "FAILED"))


class Trackers:
    """The trackers of a run. One that fails is named once and left out, for it must not end the training."""

    def __init__(self, trackers: Mapping[str, Tracker]) -> None:
        self._trackers = dict(trackers)

    def observe(self, record: Mapping[str, Any]) -> None:
        """Show an observation."""
        numbers = numbers_of(record)
        if numbers:
            for name, tracker in list(self._trackers.items()):
                self._try(name, partial(tracker.observe, int(record["step"]), numbers))

    def close(self, status: Callable[[], str]) -> None:
        """End all series, with the run's status."""
        for name, tracker in list(self._trackers.items()):
            self._try(name, partial(tracker.close, status()))
        self._trackers = {}

    def _try(self, name: str, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            text = " ".join(str(error).split())
            print(f"tracker={name} is left out from here on, metrics.jsonl has all: {text}", file=sys.stderr)
            self._trackers.pop(name, None)


def trackers_of(config: RunConfig, observations: Sequence[Mapping[str, Any]]) -> Trackers:
    """Return the trackers that the configuration asks for, with the observations that the run has made already.

    Without any, the run begins anew, and so do the series. Raises ConfigError for a library that is not installed.
    """
    check_libraries(config)
    found: dict[str, Tracker] = {}
    for name in _names(config):
        if name == "tensorboard":
            found[name] = TensorBoard(config.run_dir.parents[1] / "tensorboard" / config.run_id)
        else:
            found[name] = MLflow(config, starts_anew=not observations)
    trackers = Trackers(found)
    for record in observations:
        trackers.observe(record)
    return trackers


def _names(config: RunConfig) -> tuple[str, ...]:
    return {"none": (), "both": tuple(_LIBRARIES)}.get(config.tracker, (config.tracker,))

"""Estimate how long runs take, from earlier runs here or from seconds of the same runs elsewhere."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from runner.baselines.trees import OmikujiConfig
from runner.options.settings import RunConfig
from runner.report.numbers.records import RunRecord
from runner.report.plan.reference_seconds import reference_seconds
from runner.report.plan.speed import slowness
from runner.report.spec.grids import PlannedRun

_START_SECONDS, COMPILE_SECONDS = 4.5, 30.0  # every process starts; the first one of a kind of settings also compiles
_SHARED_START_SECONDS = 0.5  # of a run in a process that other runs have started


def estimate(run: PlannedRun, similar: Sequence[RunRecord]) -> tuple[float | None, bool]:
    """Return the estimated seconds of a run (None if unknown), and True if they are based on similar runs.

    ``similar``: finished runs that are ``similar_to`` it, of which only training was timed. Without any, the seconds of
    the same run on another machine count, multiplied by this machine's slowness; these hold evaluation and compilation.
    All epochs count, though a validation set may end the training earlier.
    """
    if not similar:
        elsewhere = reference_seconds(run)
        return (None if elsewhere is None else elsewhere * slowness()), False
    start = _SHARED_START_SECONDS if is_short(run.config) else _START_SECONDS
    trained = statistics.median(record.seconds_per_epoch * _epochs(run.config, record) for record in similar)
    return start * slowness() + trained, True


def _epochs(config: RunConfig, record: RunRecord) -> float:
    """Return how long the run trains at most; the record tells how many steps an epoch has."""
    if config.max_steps is None:
        return config.epochs
    return min(config.epochs, config.max_steps * float(record.summary["epochs"]) / max(1, record.summary["steps"]))


def is_short(config: RunConfig) -> bool:
    """Tell whether the run shares a process with others: it scores no classes, so most such runs take a second."""
    return config.sampler is None and config.output.kind == "classes" and not isinstance(config.model, OmikujiConfig)


# The sampler's settings that change the speed of a step.
_OF_SPEED = ("shared", "products", "stored_logits", "D", "num_samples", "refresh_every_steps")


def similar_to(run: PlannedRun, records: Sequence[RunRecord]) -> list[RunRecord]:
    """Return the records that have the run's data set, model, method, batch size and threads.

    Learning rate, length, K and L may differ.
    """
    ours = run.config.as_dict()
    return [record for record in records if _is_alike(record.config, ours)]


def _is_alike(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> bool:
    alike = True
    for group in ("sampler", "loss", "batch_sampler"):
        mine, other = (config.get(group) or {} for config in (ours, theirs))
        alike &= mine.get("name") == other.get("name")
        alike &= all(mine.get(key) == other.get(key) for key in _OF_SPEED)
    alike &= all(theirs["optimizer"].get(key) == ours["optimizer"].get(key) for key in ("name", "rows"))
    alike &= all(_agree(theirs[key], ours[key]) for key in ("dataset", "model", "hardware"))
    return alike and theirs["batch_size"] == ours["batch_size"]


def _agree(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> bool:
    """Tell whether sections are the same, but for options that are newer than a run."""
    return all(theirs[key] == ours[key] for key in theirs.keys() & ours.keys())

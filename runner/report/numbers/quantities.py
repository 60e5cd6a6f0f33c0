"""This module finds by name what a plot shows of a run: a metric of its task, or a cost that every run records."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from runner.errors import ConfigError, RunnerError
from runner.options.conversion import did_you_mean
from runner.report.numbers.records import RunRecord


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """A number of a run: its printed name with the unit, the better direction, and the way to read it.

    ``of_time``: it is made of seconds, which some runs lack (``RunRecord.why_no_seconds``).
    """

    name: str
    label: str
    higher_is_better: bool
    value: Callable[[RunRecord], float]
    of_time: bool = False


def _cost(
    name: str, label: str, value: Callable[[RunRecord], float], *, of_time: bool = False, more: bool = False
) -> Quantity:
    return Quantity(name=name, label=label, higher_is_better=more, value=value, of_time=of_time)


COSTS = {
    cost.name: cost
    for cost in (
        _cost("train_seconds", "seconds of training", lambda r: float(r.summary["train_seconds"]), of_time=True),
        _cost("seconds_per_epoch", "seconds an epoch", lambda r: r.seconds_per_epoch, of_time=True),
        _cost(
            "units_per_second", "rows a second", lambda r: float(r.summary["units_per_second"]), of_time=True, more=True
        ),
        _cost("candidates_per_row", "candidates a row", lambda r: float(r.summary["candidates_per_row"])),
        _cost("peak_rss_mb", "peak memory, MB", lambda r: float(r.summary["peak_rss_mb"])),
    )
}


def headline(records: Sequence[RunRecord]) -> str:
    """Return the name of the headline on the test set, which all runs must share. Raises RunnerError otherwise."""
    names = list(dict.fromkeys(record.yardstick.final for record in records))
    if len(names) > 1:
        raise RunnerError(
            f"these runs have different headlines; choose runs by --where, or --metric of: {', '.join(names)}"
        )
    return names[0]


def quantity(name: str, records: Sequence[RunRecord]) -> Quantity:
    """Return a metric that all of these finished runs have, or a cost. Raises ConfigError that lists valid names."""
    if name in COSTS:
        return COSTS[name]
    shared = [metric for metric in _metrics(records[0]) if all(metric in _metrics(record) for record in records[1:])]
    if name not in shared:
        raise ConfigError(f"--metric: no '{name}' in all of these runs{did_you_mean(name, [*shared, *COSTS])}")
    yardstick = records[0].yardstick
    return Quantity(
        name=name,
        label=yardstick.label_with_unit(name),
        higher_is_better=yardstick.measure(name).higher_is_better,
        value=lambda record: record.scaled(name),
    )


def _metrics(record: RunRecord) -> list[str]:
    return [name for name in record.summary["metrics"] if record.yardstick.has(name)]


def observed(name: str, records: Sequence[RunRecord]) -> str:
    """Return the name of a metric that was measured during the training of all of these runs.

    Without a name it is the watched headline. Raises ConfigError that lists valid names.
    """
    found = [
        {key for line in record.of_kind("evaluation") for key in line if record.yardstick.has(key)}
        for record in records
    ]
    shared = sorted(set.intersection(*found))
    name = name or records[0].yardstick.curve
    if name not in shared:
        raise ConfigError(f"--metric: no '{name}' during training in all of these runs{did_you_mean(name, shared)}")
    return name

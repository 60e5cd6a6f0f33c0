"""The catalogue of what can be said of a run in a number, and the metrics of its task by name.

Tables, figures, sweeps and comparisons take numbers, labels and units from here.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from runner.errors import ConfigError, RunnerError
from runner.machine.clock import BUILD, STAGES
from runner.options.conversion import did_you_mean
from runner.report.numbers.records import RunRecord
from runner.report.numbers.yardstick import Yardstick

FAIL = "Fail"  # the LNS paper's word
NOT_MEASURED = "not measured"


@dataclass(frozen=True, kw_only=True)
class Printed:
    """How a number is printed.

    ``name`` is its name in CSV files, published ones included. ``failure`` is printed of a run that has no such number.
    ``is_setting`` marks a value that is chosen, not measured, and so has no deviation over seeds. ``is_fact`` marks one
    that is true of the data, whatever the model learnt. ``of_time`` marks what is made of seconds, which some runs lack
    (``RunRecord.why_no_seconds``). Of a large number only so many ``digits`` are printed, with zeros after them.
    """

    name: str
    label: str
    unit: str = ""
    decimals: int
    failure: str = FAIL
    is_setting: bool = False
    is_fact: bool = False
    of_time: bool = False
    digits: int | None = None

    @property
    def unit_in_label(self) -> bool:
        """Whether the label tells the unit."""
        return self.unit in ("", "x", "epochs", "classes") or self.label.startswith("Seconds")

    def title(self, form: str = " ({})") -> str:
        """Return the label as it stands within a line, with the unit in a form unless the label tells it."""
        label = self.label[0].lower() + self.label[1:]
        return label if self.unit_in_label else label + form.format(self.unit)


@dataclass(frozen=True, kw_only=True)
class Quantity(Printed):
    """A number of a run. ``value`` returns it as it is printed, or None if the run has none."""

    value: Callable[[RunRecord], float | None]

    def of(self, record: RunRecord) -> float:
        """Return the number of a run; nan if it has none."""
        value = self.value(record)
        return float("nan") if value is None else float(value)


def _seconds_per_iteration(record: RunRecord) -> float:
    """Return the training seconds of a step, without the building of tables before the first."""
    building = record.summary["stage_seconds"].get(BUILD, 0.0)
    return (float(record.summary["train_seconds"]) - building) / float(record.summary["steps"])


def _seconds_per_step(record: RunRecord) -> float | None:
    """Return the training seconds of a step, or None of a run that took none, or of one that did not store them."""
    return _seconds_per_iteration(record) if record.summary.get("steps") else None


def _seconds_to_build(record: RunRecord) -> float | None:
    """Return the seconds of the making of tables; older runs measured those of samplers of examples only."""
    without_classes = 0.0 if record.config.get("sampler") is None else None
    return record.summary["stage_seconds"].get(BUILD, without_classes)


def _milliseconds_to_build(record: RunRecord) -> float | None:
    seconds = _seconds_to_build(record)
    return None if seconds is None else 1e3 * seconds


def _stage(stage: str) -> Quantity:
    return Quantity(
        name=f"{stage}_seconds_per_epoch", label=stage, unit="s", decimals=2, of_time=True,
        value=lambda record: record.summary["stage_seconds"][stage] / record.summary["epochs"],
    )  # fmt: skip


def _of_summary(name: str, label: str, unit: str, decimals: int, **more: Any) -> Quantity:
    return Quantity(
        name=name, label=label, unit=unit, decimals=decimals, value=lambda record: record.summary[name], **more
    )


def _of_dataset(name: str, label: str, value: Callable[[dict[str, Any]], float], decimals: int = 0) -> Quantity:
    return Quantity(
        name=name, label=label, decimals=decimals, is_fact=True, value=lambda record: value(record.summary["dataset"])
    )


_LISTED = (
    _of_summary("train_seconds", "Seconds of training", "s", 1, of_time=True),
    Quantity(
        name="seconds_per_epoch", label="Seconds per epoch", unit="s", decimals=2, of_time=True,
        value=lambda record: record.seconds_per_epoch,
    ),
    *map(_stage, STAGES),
    Quantity(
        name="microseconds_per_iteration", label="Microseconds an iteration", decimals=2, of_time=True,
        value=lambda record: 1e6 * _seconds_per_iteration(record),
    ),
    Quantity(
        name="seconds_per_step", label="Seconds a step", unit="s", decimals=4, of_time=True,
        value=_seconds_per_step, failure=NOT_MEASURED,
    ),
    Quantity(
        name="build_seconds", label="Seconds to build", unit="s", decimals=3, of_time=True,
        value=_seconds_to_build, failure=NOT_MEASURED,
    ),
    Quantity(
        name="build_milliseconds", label="Milliseconds to build", decimals=2, of_time=True,
        value=_milliseconds_to_build, failure=NOT_MEASURED,
    ),
    _of_summary("units_per_second", "Rows a second", "", 0, of_time=True, digits=3),
    _of_summary("candidates_per_row", "Candidates per row", "classes", 0),
    _of_summary("peak_rss_mb", "Peak memory", "MB", 0),
    _of_summary("epochs", "Epochs trained", "epochs", 0),
    Quantity(
        name="best_epoch", label="Best epoch", unit="epochs", decimals=0,
        value=lambda record: record.summary["selection"]["epoch"],
    ),
    Quantity(
        name="kl_loss", label="KL(softmax to proposal)", decimals=4, value=lambda record: record.divergence,
    ),
    Quantity(
        name="recall", label="Recall of the nearest 10", decimals=3, failure=NOT_MEASURED,
        value=lambda record: record.recall,
    ),
    Quantity(
        name="learning_rate", label="Learning rate", decimals=6, is_setting=True,
        value=lambda record: float(record.config["optimizer"]["lr"]),
    ),
    _of_dataset("users", "Users", lambda data: data["users"]),
    _of_dataset("items", "Items", lambda data: data["num_classes"]),
    _of_dataset("interactions", "Interactions", lambda data: data["events"]),
    _of_dataset("train", "Training rows", lambda data: data["num_train"] + data.get("num_valid", 0)),
    _of_dataset("samples", "Training rows", lambda data: data["num_train"] + data.get("num_valid", 0)),
    _of_dataset("test", "Test rows", lambda data: data["num_test"]),
    _of_dataset("features", "Features", lambda data: data["num_features"]),
    *(_of_dataset(name, "Classes", lambda data: data["num_classes"]) for name in ("labels", "classes")),
    _of_dataset("labels_per_row", "Classes a row", lambda data: data["labels_per_row"], decimals=2),
    _of_dataset("features_per_row", "Features a row", lambda data: data["features_per_row"], decimals=2),
    _of_dataset("density", "Density", lambda data: data["events"] / (data["users"] * data["num_classes"]), decimals=4),
)  # fmt: skip
QUANTITIES = {quantity.name: quantity for quantity in _LISTED}
COSTS = ("train_seconds", "seconds_per_epoch", "units_per_second", "candidates_per_row", "peak_rss_mb")  # for plots


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
        return QUANTITIES[name]
    shared = [metric for metric in _metrics(records[0]) if all(metric in _metrics(record) for record in records[1:])]
    if name not in shared:
        raise ConfigError(f"--metric: no '{name}' in all of these runs{did_you_mean(name, [*shared, *COSTS])}")
    return metric(name, records[0].yardstick)


def metric(name: str, yardstick: Yardstick) -> Quantity:
    """Return a metric of the runs whose measures these are."""
    measure = yardstick.measure(name)
    return Quantity(
        name=name, label=yardstick.label(name), unit=measure.unit, decimals=measure.decimals, failure=NOT_MEASURED,
        value=lambda record: record.scaled(name) if name in record.summary["metrics"] else None,
    )  # fmt: skip


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

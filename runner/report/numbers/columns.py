"""Define the columns of printed tables: metrics of the task, and costs that every run records."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

from runner.errors import ConfigError
from runner.machine.clock import STAGES
from runner.options.conversion import did_you_mean
from runner.report.numbers.levels import first_reaching, level
from runner.report.numbers.quantities import QUANTITIES, Printed, Quantity
from runner.report.numbers.quantities import metric as metric_of
from runner.report.numbers.records import RunRecord, record_of
from runner.report.numbers.yardstick import Yardstick
from runner.report.spec.grids import PlannedRun, Point
from runner.report.spec.tables import ColumnSpec, TableSpec

NOT_MEASURED = "not measured"
NOT_REACHED = "not reached"


@dataclass(frozen=True, kw_only=True)
class References:
    """The runs that a run is compared with: those of its own seed that are the baseline or a finished full softmax."""

    baseline: RunRecord
    full: tuple[RunRecord, ...]

    @property
    def why_no_seconds(self) -> str:
        """Why the seconds of one of them are no number; empty if all are."""
        return next((why for record in (self.baseline, *self.full) if (why := record.why_no_seconds)), "")


@dataclass(frozen=True, kw_only=True)
class Column(Printed):
    """A column of numbers of runs, some of them compared with others.

    ``measure(run, references)`` returns the number as printed, or None if the run ended without reaching it. In
    ``label``, ``{baseline}`` stands for the grid's baseline. ``point`` restricts the column to runs with that
    combination of swept settings. ``signed`` prints + before numbers that say how much more something is than something
    else.
    """

    measure: Callable[[RunRecord, References], float | None]
    needs_baseline: bool = False
    point: Point | None = None
    signed: bool = False


@dataclass(frozen=True, kw_only=True)
class Panel:
    """Columns that are printed together. ``best`` picks the best number of a row, which is printed bold."""

    title: str
    columns: tuple[Column, ...]
    with_published: bool = True
    best: Callable[[Sequence[float]], float] | None = None


def yardstick_of(runs: Sequence[PlannedRun]) -> Yardstick:
    """Return the measures of a grid's runs: those a finished run states, and those that the task has besides."""
    finished = next((record_of(run) for run in runs if record_of(run).finished), None)
    planned = Yardstick.planned(runs[0].config)
    return finished.yardstick.with_more(planned.measures) if finished else planned


def panels_of(spec: TableSpec, runs: Sequence[PlannedRun]) -> tuple[Panel, ...]:
    """Return the panels of a table; in a table of learning rates, the columns are the rates of its grid.

    Raises ConfigError (one line) for a metric that the runs' task does not measure and for an unknown column.
    """
    yardstick = yardstick_of(runs)
    if spec.kind == "learning_rates":
        points = sorted({run.point[:1] for run in runs}, key=lambda point: float(point[0][1]))
        headline = yardstick.headline
        of_validation = "validation " if yardstick.watched == "valid" else ""
        return (
            Panel(
                title=f"{of_validation}{headline.label} by learning rate",
                columns=tuple(_headline_at_rate(yardstick, point) for point in points),
                best=max if headline.higher_is_better else min,
            ),
        )
    try:
        columns = tuple(_column(column, spec, yardstick) for column in spec.columns)
    except ConfigError as error:
        raise ConfigError(f"table {spec.name}: columns: {error}") from None
    return (Panel(title="", columns=columns), *([_costs(yardstick)] if spec.with_costs else []))


# ---------------------------------------------------------------- what the task measures


def _column(column: ColumnSpec, spec: TableSpec, yardstick: Yardstick) -> Column:
    if not column.metric:
        if column.name not in OF_EVERY_RUN:
            raise ConfigError(f"no column '{column.name}'{did_you_mean(column.name, OF_EVERY_RUN)}")
        found = OF_EVERY_RUN[column.name]
        return replace(found, label=found.label.format(baseline=_baseline_label(spec)))
    metric, measure = column.metric, yardstick.measure(column.metric)
    # The label omits the split if all metrics of the table are measured on the test set.
    on_test = all(other.metric.startswith("test/") for other in spec.columns if other.metric)
    label = measure.label if on_test else yardstick.label(metric)
    label = label[0].upper() + label[1:]
    if column.show == "log":
        return Column(
            name=column.name, label=f"Log of {yardstick.label(metric)}", unit="", decimals=4,
            measure=lambda record, _: math.log(record.metric(metric)),
        )  # fmt: skip
    if column.show == "percent_above_baseline":
        return Column(
            name=column.name, label=f"{label} relative to {within_a_sentence(_baseline_label(spec))}", unit="%",
            decimals=1, needs_baseline=True, signed=True,
            measure=lambda record, to: 100 * (record.metric(metric) / to.baseline.metric(metric) - 1),
        )  # fmt: skip
    found = _of_a_run(metric_of(metric, yardstick))

    def measured(record: RunRecord, to: References) -> float | None:
        """Return None for a run that is older than the measure."""
        return found.measure(record, to) if metric in record.summary["metrics"] else None

    return replace(found, name=column.name, label=label, measure=measured, failure=NOT_MEASURED)


def _baseline_label(spec: TableSpec) -> str:
    return next(method.label for method in spec.grid.methods if method.name == spec.grid.baseline)


def within_a_sentence(label: str) -> str:
    """Return a label with a small first letter, unless it begins with an abbreviation."""
    return label[0].lower() + label[1:] if label[1:2].islower() else label


def _headline_at_rate(yardstick: Yardstick, point: Point) -> Column:
    """Rates are chosen by the headline, which therefore is that of validation rows where the task has some."""
    ((_, rate),) = point
    headline = yardstick.headline
    metric = f"valid/{headline.key}" if yardstick.watched == "valid" else yardstick.final
    return Column(
        name=f"{headline.label}_at_lr_{rate:g}", label=f"lr {rate:g}", unit=headline.unit, decimals=headline.decimals,
        point=point, measure=lambda record, _: record.scaled(metric),
    )  # fmt: skip


# ---------------------------------------------------------------- what every run has


def cost_of_reaching(percent: float, cost: str, record: RunRecord, baseline: RunRecord) -> float | None:
    """Return the cost (``epoch`` or ``train_seconds``) at the first evaluation that reaches a level, or None.

    The level is a share of what the baseline ended with: the watched headline of the weights that were kept, which are
    the best ones if rows are held out for validation (``numbers.levels``).
    """
    rising = record.yardstick.headline.higher_is_better
    return _first_to_reach(record, cost, level(baseline.kept_headline, percent, higher_is_better=rising))


def _first_to_reach(record: RunRecord, cost: str, goal: float) -> float | None:
    return first_reaching(record.curve(cost), goal, higher_is_better=record.yardstick.headline.higher_is_better)


def _to_share(name: str, label: str, unit: str, decimals: int, percent: int, cost: str) -> Column:
    return Column(
        name=name, label=label, unit=unit, decimals=decimals, needs_baseline=True, of_time=cost == "train_seconds",
        measure=lambda record, to: cost_of_reaching(percent, cost, record, to.baseline),
    )  # fmt: skip


def _sooner(percent: int) -> Column:
    def measure(record: RunRecord, to: References) -> float | None:
        mine, *fulls = (cost_of_reaching(percent, "train_seconds", other, to.baseline) for other in (record, *to.full))
        reached = [seconds for seconds in fulls if seconds is not None]
        return min(reached) / mine if mine is not None and reached else None

    return Column(
        name=f"sooner_than_full_at_{percent}pct", label=f"Sooner than full, {percent} %", unit="x", decimals=2,
        measure=measure, needs_baseline=True, of_time=True,
    )  # fmt: skip


def _milliseconds(measure: Callable[[RunRecord, References], float | None]) -> Callable[..., float | None]:
    """Return a measure of milliseconds, for runs so short that seconds would all be 0.00."""

    def measured(record: RunRecord, to: References) -> float | None:
        seconds = measure(record, to)
        return seconds if seconds is None else 1e3 * seconds

    return measured


def _seconds_to_end(record: RunRecord, to: References) -> float | None:
    """Return the seconds until the run first reached the headline of the baseline's last evaluation."""
    return _first_to_reach(record, "train_seconds", to.baseline.curve("train_seconds")[-1][1])


def _sooner_than_end(record: RunRecord, to: References) -> float | None:
    mine = _seconds_to_end(record, to)
    return to.baseline.curve("train_seconds")[-1][0] / mine if mine else None


def _sooner_than_baseline(record: RunRecord, to: References) -> float | None:
    mine, its = _seconds_to_end(record, to), _seconds_to_end(to.baseline, to)
    return its / mine if mine and its else None


def _of_a_run(quantity: Quantity) -> Column:
    how = {field.name: getattr(quantity, field.name) for field in fields(Printed)}
    return Column(**how, measure=lambda record, _: quantity.value(record))


_LISTED = (
    *(_to_share(f"epoch_to_{p}pct", f"Epochs to {p} %", "epochs", 2, p, "epoch") for p in (50, 90)),
    *(_to_share(f"seconds_to_{p}pct", f"Seconds to {p} %", "s", 1, p, "train_seconds") for p in (50, 90, 98)),
    _sooner(90),
    _sooner(98),
    Column(
        name="epoch_speedup_vs_full", label="Speed-up", unit="x", decimals=2, needs_baseline=True, of_time=True,
        measure=lambda record, to: to.baseline.seconds_per_epoch / record.seconds_per_epoch,
    ),
    Column(
        name="milliseconds_to_baseline_end", label="Milliseconds to the last loss of {baseline}", unit="", decimals=2,
        measure=_milliseconds(_seconds_to_end), needs_baseline=True, failure=NOT_REACHED, of_time=True,
    ),
    Column(
        name="sooner_than_baseline_end", label="Sooner than its end", unit="x", decimals=3,
        measure=_sooner_than_end, needs_baseline=True, failure=NOT_REACHED, of_time=True,
    ),
    Column(
        name="sooner_than_baseline", label="Sooner than it reached that loss", unit="x", decimals=3,
        measure=_sooner_than_baseline, needs_baseline=True, failure=NOT_REACHED, of_time=True,
    ),
    *map(_of_a_run, QUANTITIES.values()),
)  # fmt: skip
OF_EVERY_RUN = {column.name: column for column in _LISTED}


def _costs(yardstick: Yardstick) -> Panel:
    """Return the panel of training costs; with a validation set, it also says which epoch was best."""
    speed = replace(OF_EVERY_RUN["units_per_second"], label=f"{yardstick.unit.capitalize()}s a second")
    return Panel(
        title=f"Cost: seconds per epoch, in all and by stage; seconds to build tables, once and also part of all;"
        f" {yardstick.unit}s a second; candidates; memory",
        columns=(
            OF_EVERY_RUN["epochs"],
            *([OF_EVERY_RUN["best_epoch"]] if yardstick.watched == "valid" else []),
            OF_EVERY_RUN["seconds_per_epoch"],
            *(OF_EVERY_RUN[f"{stage}_seconds_per_epoch"] for stage in STAGES),
            replace(OF_EVERY_RUN["build_seconds"], label="build, once", decimals=2),
            speed,
            OF_EVERY_RUN["candidates_per_row"],
            OF_EVERY_RUN["peak_rss_mb"],
        ),
        with_published=False,
    )

"""The numbers of a table, one row per data set, method and metric: ours, published, difference, run ids.

This long form is what the CSV holds and what the printed tables are laid out from. Fractions become
percent here.
"""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from runner.machine.clock import STAGES
from runner.report.records import FINISHED, NOT_RUN, RunRecord, record_of, status_of
from runner.report.tables import PUBLISHED, Column, Grid, Method, PlannedRun, Point, Published, TableSpec

FAIL = "Fail"


@dataclass(frozen=True, kw_only=True)
class References:
    """What a run compares with, of its own seed: the grid's baseline and every full softmax that finished."""

    baseline: RunRecord
    full: tuple[RunRecord, ...]


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A column. ``name`` is also its name in published CSVs. ``measure`` (run, what it compares with) gives the
    number, or None where the run ended without reaching it (``Fail``). ``point``: only runs of that combination
    of swept settings. ``is_setting``: chosen rather than measured, so it has no deviation."""

    name: str
    label: str
    unit: str
    decimals: int
    measure: Callable[[RunRecord, References], float | None]
    needs_baseline: bool = False
    point: Point | None = None
    is_setting: bool = False


@dataclass(frozen=True, kw_only=True)
class Panel:
    """Columns that are printed together. ``mark_best``: the largest number of each row is printed bold."""

    title: str
    metrics: tuple[Metric, ...]
    with_published: bool = True
    mark_best: bool = False


def _perplexity(split: str, label: str) -> Metric:
    published = {"valid": "val"}.get(split, split)
    return Metric(
        name=f"{published}_ppl", label=f"{label} perplexity", unit="", decimals=2,
        measure=lambda record, _: record.metric(f"{split}/ppl"),
    )  # fmt: skip


def cost_of_reaching(share: float, cost: str, record: RunRecord, baseline: RunRecord) -> float | None:
    """Cost (``epoch`` or ``train_seconds``) at the first evaluation whose subset P@1 is at least ``share`` of the
    baseline's last; None where no evaluation is."""
    goal = share * baseline.curve(cost)[-1][1]
    return next((spent for spent, p1 in record.curve(cost) if p1 >= goal), None)


def _precision(k: int) -> Metric:
    return Metric(
        name=f"P@{k}", label=f"P@{k}", unit="%", decimals=2,
        measure=lambda record, _: 100 * record.metric(f"test/p@{k}"),
    )  # fmt: skip


def _stage(stage: str) -> Metric:
    return Metric(
        name=f"{stage}_seconds_per_epoch", label=stage, unit="s", decimals=2,
        measure=lambda record, _: record.summary["stage_seconds"][stage] / record.summary["epochs"],
    )  # fmt: skip


def _epochs_to(percent: int) -> Metric:
    return Metric(
        name=f"epoch_to_{percent}pct", label=f"Epochs to {percent} %", unit="epochs", decimals=2,
        measure=lambda record, to: cost_of_reaching(percent / 100, "epoch", record, to.baseline), needs_baseline=True,
    )  # fmt: skip


def _seconds_to(percent: int) -> Metric:
    return Metric(
        name=f"seconds_to_{percent}pct", label=f"Seconds to {percent} %", unit="s", decimals=1, needs_baseline=True,
        measure=lambda record, to: cost_of_reaching(percent / 100, "train_seconds", record, to.baseline),
    )  # fmt: skip


def _sooner(percent: int) -> Metric:
    def measure(record: RunRecord, to: References) -> float | None:
        mine, *fulls = (
            cost_of_reaching(percent / 100, "train_seconds", other, to.baseline) for other in (record, *to.full)
        )
        reached = [seconds for seconds in fulls if seconds is not None]
        return min(reached) / mine if mine is not None and reached else None

    return Metric(
        name=f"sooner_than_full_at_{percent}pct", label=f"Sooner than full, {percent} %", unit="x", decimals=2,
        measure=measure, needs_baseline=True,
    )  # fmt: skip


def _precision_at_rate(point: Point) -> Metric:
    ((_, rate),) = point
    return Metric(
        name=f"P@1_at_lr_{rate:g}", label=f"lr {rate:g}", unit="%", decimals=2, point=point,
        measure=lambda record, _: 100 * record.metric("test/p@1"),
    )  # fmt: skip


SPEED_UP = Metric(
    name="epoch_speedup_vs_full", label="Speed-up", unit="x", decimals=2, needs_baseline=True,
    measure=lambda record, to: to.baseline.seconds_per_epoch / record.seconds_per_epoch,
)  # fmt: skip
SECONDS = Metric(
    name="seconds_per_epoch", label="Seconds per epoch", unit="s", decimals=2,
    measure=lambda record, _: record.seconds_per_epoch,
)  # fmt: skip
CANDIDATES = Metric(
    name="candidates_per_row", label="Candidates per row", unit="classes", decimals=0,
    measure=lambda record, _: record.summary["candidates_per_row"],
)  # fmt: skip
MEMORY = Metric(
    name="peak_rss_mb",
    label="Peak memory",
    unit="MB",
    decimals=0,
    measure=lambda record, _: record.summary["peak_rss_mb"],
)
DELTA = Metric(
    name="delta_ppl_percent", label="Above exact softmax's", unit="%", decimals=1, needs_baseline=True,
    measure=lambda record, to: 100 * (record.metric("valid/ppl") / to.baseline.metric("valid/ppl") - 1),
)  # fmt: skip
LOG_PERPLEXITY = Metric(
    name="log_ppl", label="Log of test perplexity", unit="", decimals=4,
    measure=lambda record, _: math.log(record.metric("test/ppl")),
)  # fmt: skip
DIVERGENCE = Metric(
    name="kl_loss", label="KL(softmax to proposal)", unit="", decimals=4,
    measure=lambda record, _: record.divergence,
)  # fmt: skip
EPOCHS = Metric(
    name="epochs", label="Epochs trained", unit="epochs", decimals=0, measure=lambda record, _: record.summary["epochs"]
)
BEST_EPOCH = Metric(
    name="best_epoch", label="Best epoch", unit="epochs", decimals=0,
    measure=lambda record, _: record.summary["selection"]["epoch"],
)  # fmt: skip
TOKEN_SPEED = Metric(
    name="tokens_per_second", label="Tokens a second", unit="", decimals=0,
    measure=lambda record, _: record.summary["tokens_per_second"],
)  # fmt: skip
LEARNING_RATE = Metric(
    name="learning_rate", label="Learning rate", unit="", decimals=6, is_setting=True,
    measure=lambda record, _: float(record.config["optimizer"]["lr"]),
)  # fmt: skip
COST = Panel(
    title="Cost: seconds per epoch, in all and by stage; candidates; memory",
    metrics=(SECONDS, *map(_stage, STAGES), CANDIDATES, MEMORY),
    with_published=False,
)
COST_OF_TEXT = Panel(
    title="Cost: seconds per epoch, in all and by stage; tokens a second; candidates; memory",
    metrics=(EPOCHS, BEST_EPOCH, SECONDS, *map(_stage, STAGES), TOKEN_SPEED, CANDIDATES, MEMORY),
    with_published=False,
)
PANELS: dict[str, tuple[Panel, ...]] = {
    "convergence": (Panel(title="", metrics=(_epochs_to(50), _epochs_to(90), _precision(1))),),
    "speed": (
        Panel(title="", metrics=(SPEED_UP, _precision(1), _precision(5))),
        COST,
    ),
    "precision": (
        Panel(title="", metrics=(_precision(1), _precision(3), _precision(5))),
        COST,
    ),
    "perplexity": (
        Panel(
            title="",
            metrics=(_perplexity("test", "Test"), _perplexity("valid", "Validation"), _perplexity("train", "Train")),
        ),
        COST_OF_TEXT,
    ),
    "perplexity_loss": (Panel(title="", metrics=(DELTA,)),),
    "codebooks": (
        Panel(title="", metrics=(DIVERGENCE, LOG_PERPLEXITY)),
        COST_OF_TEXT,
    ),
    "time_to_accuracy": (
        Panel(title="", metrics=(_seconds_to(50), _seconds_to(90), _sooner(90), _precision(1), SECONDS, LEARNING_RATE)),
    ),
}


def panels_of(spec: TableSpec) -> tuple[Panel, ...]:
    """The columns of a table; those of learning rates are the rates of its grid."""
    if spec.kind == "learning_rates":
        points = spec.grid.points(spec.grid.baseline)
        return (Panel(title="P@1 by learning rate", metrics=tuple(map(_precision_at_rate, points)), mark_best=True),)
    return PANELS[spec.kind]


# ---------------------------------------------------------------- measuring


@dataclass(frozen=True)
class Ours:
    """A measured cell: a number with the deviation over seeds (None for one seed), or a status."""

    value: float | None
    deviation: float | None
    status: str


def references_of(grid: Grid, runs: Sequence[PlannedRun]) -> dict[int, References]:
    """Seed -> what runs of that seed compare with, where the baseline finished. ``runs``: of one data set."""
    finished = [run for run in runs if record_of(run).finished]
    fulls = grid.full_methods or (grid.baseline,)
    return {
        run.seed: References(
            baseline=record_of(run),
            full=tuple(record_of(other) for other in finished if other.method in fulls and other.seed == run.seed),
        )
        for run in finished
        if run.method == grid.baseline
    }


def measure(metric: Metric, runs: Sequence[PlannedRun], references: Mapping[int, References]) -> Ours:
    """Mean over the seeds' runs. Any run without a number makes the cell a status, not a mean of the rest."""
    statuses = [status_of(run) for run in runs]
    unfinished = [status for status in statuses if status != FINISHED]
    if unfinished:
        return Ours(None, None, _some_of(len(unfinished), len(runs), unfinished[0]))
    if metric.needs_baseline and any(run.seed not in references for run in runs):
        return Ours(None, None, "baseline not run")
    values: list[float] = []
    failed = 0
    for run in runs:
        record = record_of(run)
        value = metric.measure(record, references.get(run.seed, References(baseline=record, full=())))
        if value is None:
            failed += 1
        else:
            if not math.isfinite(value):
                raise ValueError(f"{run.run_id}: {metric.name} is {value}")
            values.append(value)
    if failed:
        return Ours(None, None, _some_of(failed, len(runs), FAIL))
    if metric.is_setting:
        return Ours(values[0], None, "")
    return Ours(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None, "")


def _some_of(count: int, total: int, status: str) -> str:
    return status if count == total else f"{status} ({count} of {total} seeds)"


def published_numbers(source: Published) -> pd.DataFrame:
    """The printed table: columns dataset, method, metric, value (NaN where a word is printed), note."""
    frame = pd.read_csv(PUBLISHED / source.csv, dtype={"dataset": str, "method": str, "note": str})
    return frame[frame["table"] == source.table].fillna({"note": "", "method": ""})


def cells(spec: TableSpec, runs: Sequence[PlannedRun]) -> pd.DataFrame:
    """The table in long form, over the planned runs; a data set without any has status ``not run``."""
    published = published_numbers(spec.published) if spec.published else None
    others = [column.name for column in spec.grid.datasets if column.published is not None]
    rows = []
    for column in map(spec.grid.column, dict.fromkeys([*(run.dataset for run in runs), *others])):
        here = [run for run in runs if run.dataset == column.name]
        references = references_of(spec.grid, here)
        for method in spec.grid.methods:
            for panel_index, panel in enumerate(panels_of(spec)):
                for metric in panel.metrics:
                    mine = [run for run in here if run.method == method.name and metric.point in (None, run.point)]
                    ours = measure(metric, mine, references) if mine else Ours(None, None, NOT_RUN)
                    printed, printed_word = None, ""
                    if column.published and published is not None and panel.with_published:
                        printed, printed_word = _lookup(published, column, method, metric)
                    difference = ours.value - printed if ours.value is not None and printed is not None else None
                    rows.append(
                        {
                            "table": spec.name,
                            "panel": panel_index,
                            "dataset": column.name,
                            "stand_in": column.published is None,
                            "method": method.name,
                            "metric": metric.name,
                            "unit": metric.unit,
                            "ours": ours.value,
                            "deviation": ours.deviation,
                            "status": ours.status or FINISHED,
                            "published": printed,
                            "published_note": printed_word,
                            "difference": difference,
                            "seeds": len(mine),
                            "run_ids": " ".join(run.run_id for run in mine if record_of(run).status != NOT_RUN),
                        }
                    )
    numbers = ["ours", "deviation", "published", "difference"]
    return pd.DataFrame(rows).astype(dict.fromkeys(numbers, "float64"))


def _lookup(published: pd.DataFrame, column: Column, method: Method, metric: Metric) -> tuple[float | None, str]:
    found = published[
        (published["dataset"] == column.published)
        & (published["method"] == method.name)
        & (published["metric"] == metric.name)
    ]
    if column.published_model is not None:
        found = found[found["model"] == column.published_model]
    if len(found) == 0:
        return None, ""
    value, note = float(found["value"].iloc[0]), str(found["note"].iloc[0])
    if note == "fraction":  # as printed; ours are percent
        value, note = 100 * value, ""
    return (None, note) if math.isnan(value) else (value, "")


def runs_table(grid: Grid, runs: Sequence[PlannedRun]) -> pd.DataFrame:
    """Every run of the tables with what made it, so that each number can be traced."""
    rows = []
    for run in runs:
        record = record_of(run)
        made = record.provenance
        commit = str(made.get("commit") or "")[:10]
        rows.append(
            {
                "run": record.short_id,
                "data set": grid.column(run.dataset).label,
                "method": grid.label(run),
                "seed": run.seed,
                "status": status_of(run) + (f": {record.error}" if record.error else ""),
                "ended": record.ending,
                "commit": commit + (" + changes" if made.get("patch") else ""),
                "started": made.get("started", ""),
                "run id": record.run_id,
            }
        )
    return pd.DataFrame(rows)

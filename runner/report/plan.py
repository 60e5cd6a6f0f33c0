"""The runs that tables need: what is there, what is left, how long it may take; then running each."""

import math
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import pandas as pd

from runner import REPOSITORY
from runner.data import CardConfig, SyntheticXcConfig
from runner.data.card import Expected, ExpectedText, RowsCard, TextCard, load_card
from runner.data.synthetic_xc import Shape
from runner.errors import RunLocked
from runner.models.language import LstmConfig, TransformerConfig
from runner.report.grids import PlannedRun, expand, point_text
from runner.report.records import (
    FINISHED,
    NO_DATA,
    NOT_RUN,
    OLDER,
    UNFINISHED,
    RunRecord,
    all_records,
    record_of,
    why_skipped,
)
from runner.report.tables import TableSpec
from runner.training.run_folder import RunFolder

TO_RUN, RESUME, AGAIN = "to run", "resume", "failed, run again"


@dataclass(frozen=True, kw_only=True)
class Step:
    """One run of the plan. ``seconds``: estimated, None if unknown; ``measured``: from earlier runs."""

    run: PlannedRun
    title: str
    status: str
    seconds: float | None
    measured: bool

    @property
    def is_pending(self) -> bool:
        return self.status in (TO_RUN, RESUME, AGAIN)


def plan(specs: Sequence[TableSpec], profile: str, results_dir: Path) -> list[Step]:
    """Every run that any of the tables needs, once."""
    grids = dict.fromkeys(spec.grid for spec in specs)
    earlier = [record for record in all_records(results_dir) if record.finished]
    steps: dict[str, Step] = {}
    for grid in grids:
        for run in expand(grid, profile, results_dir):
            seconds, measured = estimate(run, earlier)
            title = f"{grid.label(run)} on {grid.dataset(run.dataset).label}, seed {run.seed}"
            step = Step(run=run, title=title, status=_status(run), seconds=seconds, measured=measured)
            steps.setdefault(run.run_id, step)
    return list(steps.values())


def _status(run: PlannedRun) -> str:
    status = record_of(run).status
    if status in (FINISHED, OLDER):
        return status
    return why_skipped(run) or {NOT_RUN: TO_RUN, UNFINISHED: RESUME}.get(status, AGAIN)


def plan_table(steps: Sequence[Step]) -> pd.DataFrame:
    """The plan as text: run id, data set, method, seed, status, estimate."""
    return pd.DataFrame(
        [
            {
                "run id": step.run.run_id,
                "data set": step.run.dataset,
                "method": " ".join(filter(None, [step.run.method, point_text(step.run.point)])),
                "seed": str(step.run.seed),
                "status": step.status,
                "seconds": "–" if step.status in (FINISHED, OLDER) else _seconds_text(step),
            }
            for step in steps
        ]
    )


def _seconds_text(step: Step) -> str:
    if step.seconds is None:
        return "?"
    return f"{'' if step.measured else '~'}{step.seconds:,.0f}"


def plan_total(steps: Sequence[Step]) -> str:
    """One or two lines: how many runs are left, and for how long."""
    pending = [step for step in steps if step.is_pending]
    without_data = [step for step in steps if step.status.startswith(NO_DATA)]
    skipped = sum(step.status.startswith("skipped") for step in steps) - len(without_data)
    finished = sum(step.status == FINISHED for step in steps)
    older = sum(step.status == OLDER for step in steps)
    parts = [f"{len(steps)} runs: {finished} finished, {len(pending)} to run, {len(without_data)} without data"]
    if older:
        parts.append(f"{older} {OLDER}")
    if skipped:
        parts.append(f"{skipped} that this processor can not make")
    if pending:
        parts.append(f"estimated time: {_length(pending)}")
        if not all(step.measured for step in pending):
            parts.append("~ is a rough guess from the size of the data, other times are from earlier runs here")
    if without_data:
        parts.append(f"those without data would take about {_length(without_data)}")
    return "; ".join(parts)


def _length(steps: Sequence[Step]) -> str:
    """The steps' time together, and how many of them nobody knows it of."""
    known = [step.seconds for step in steps if step.seconds is not None]
    unknown = len(steps) - len(known)
    return duration(sum(known)) + (f" and {unknown} runs of unknown length" if unknown else "")


def duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"


# ---------------------------------------------------------------- estimates

# Measured on two cores. Dense products: all classes for a block of rows; gathered: candidates row by row.
_DENSE_FLOPS, _GATHERED_FLOPS, _SECONDS_PER_ROW, _START_SECONDS = 1e11, 1.2e10, 1e-5, 8.0
_TREE_FLOPS = 1e10  # of a draw by a tree of sums: its levels' features


@dataclass(frozen=True, kw_only=True)
class _Work:
    """Rows (tokens, of text) that an epoch trains on, a step trains on, are evaluated in an epoch, and at the end."""

    classes: int
    trained: int
    step: int
    evaluated: int
    evaluated_last: int
    encode_seconds: float  # of a trained row


def estimate(run: PlannedRun, earlier: Sequence[RunRecord]) -> tuple[float | None, bool]:
    """(wall seconds, whether from earlier runs of the same data set, method and batch size).

    All the epochs are counted, though a validation set may end the training before.
    """
    config = run.config
    work = _work(run)
    if work is None:
        return None, False
    epochs = float(config.epochs)
    if config.max_steps is not None:
        epochs = min(epochs, config.max_steps / max(1, work.trained // work.step))
    dense_row = 2.0 * work.classes * config.model.dim / _DENSE_FLOPS
    evaluated_row = dense_row + work.encode_seconds / 3
    fixed = _START_SECONDS + (epochs * work.evaluated + work.evaluated_last) * evaluated_row
    alike = [record.seconds_per_epoch for record in earlier if _is_alike(record, run)]
    if alike:
        return fixed + epochs * statistics.median(alike), True
    return fixed + epochs * work.trained * (work.encode_seconds + _layer_seconds(run, work.classes, dense_row)), False


def _layer_seconds(run: PlannedRun, num_classes: int, dense_row: float) -> float:
    """Training seconds of the output layer for one row, from how many classes the sampler touches."""
    sampler, dim = run.config.sampler, run.config.model.dim
    candidates = min(getattr(sampler, "num_samples", 1000), num_classes)
    gathered = 6.0 * dim * candidates / _GATHERED_FLOPS
    if sampler.name == "full":
        return 3 * dense_row
    if sampler.name == "rff":
        return gathered + 4.0 * sampler.D * candidates * math.log2(num_classes) / _TREE_FLOPS
    if sampler.name in ("topk", "exact", "quadratic", "midx_exact"):
        return 1.5 * dense_row + gathered
    if sampler.name.startswith("lsh"):
        return gathered * (1 + sampler.L / 400)
    return gathered / 10 if getattr(sampler, "shared", False) else gathered


def _work(run: PlannedRun) -> _Work | None:
    """None where nothing tells the sizes before the data are read."""
    config, dataset = run.config, run.config.dataset
    shape: Expected | ExpectedText | Shape | None = None
    if isinstance(dataset, CardConfig):
        card = load_card(dataset.name)
        assert isinstance(card, RowsCard | TextCard)
        shape = card.expected
    elif isinstance(dataset, SyntheticXcConfig):
        shape = dataset.shape
    if shape is None:
        return None
    if isinstance(shape, ExpectedText):
        if shape.train_tokens is None or shape.valid_tokens is None or shape.test_tokens is None:
            return None
        return _Work(
            classes=shape.num_classes,
            trained=shape.train_tokens,
            step=config.batch_size * config.windows.length,
            evaluated=config.evaluation.per_epoch * shape.valid_tokens,
            evaluated_last=2 * shape.test_tokens + shape.valid_tokens,
            encode_seconds=_SECONDS_PER_ROW + 6.0 * _weights_between(config.model) / _DENSE_FLOPS,
        )
    return _Work(
        classes=shape.num_classes,
        trained=shape.num_train,
        step=config.batch_size,
        evaluated=config.evaluation.per_epoch * min(config.evaluation.rows, shape.num_test),
        evaluated_last=shape.num_test,
        encode_seconds=_SECONDS_PER_ROW,
    )


def _weights_between(model: Any) -> int:
    """Weights between words and classes that every token meets."""
    if isinstance(model, LstmConfig):
        return model.layers * 4 * model.hidden * (model.embedding + model.hidden)
    assert isinstance(model, TransformerConfig)
    return model.layers * model.embedding * (4 * model.embedding + 2 * model.feed_forward)


_OF_SPEED = ("shared", "products", "D", "num_samples", "refresh_every_steps")  # settings of samplers


def _is_alike(record: RunRecord, run: PlannedRun) -> bool:
    """Same data set, model, method, batch size and threads asked for; learning rate, length, K and L may differ."""
    theirs, ours = record.config, run.config.as_dict()
    alike = all(theirs[group]["name"] == ours[group]["name"] for group in ("sampler", "loss"))
    alike &= all(theirs["sampler"].get(key) == ours["sampler"].get(key) for key in _OF_SPEED)
    alike &= theirs["optimizer"].get("rows") == ours["optimizer"].get("rows")
    return alike and all(theirs[key] == ours[key] for key in ("dataset", "model", "batch_size", "hardware"))


# ---------------------------------------------------------------- running


@dataclass
class Outcome:
    """What became of the pending runs: (title, why) of each that failed, and whether the user stopped."""

    failed: list[tuple[str, str]] = field(default_factory=list)
    stopped: bool = False


class _Stopper:
    """Ctrl-C and SIGTERM, kept for the loop and passed on to the process that is running."""

    def __init__(self) -> None:
        self.stopped = False
        self.child: subprocess.Popen[bytes] | None = None

    def note(self, number: int, frame: FrameType | None) -> None:
        self.stopped = True
        if self.child is not None and self.child.poll() is None:
            self.child.send_signal(signal.SIGINT)

    @contextmanager
    def listening(self) -> Iterator[None]:
        old = {number: signal.signal(number, self.note) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in old.items():
                signal.signal(number, handler)


def execute(steps: Sequence[Step]) -> Outcome:
    """Run the pending steps one after the other, each in a process of its own: its peak memory is its own
    and so is its crash. A failure is recorded in its run folder and the rest go on; Ctrl-C stops after
    the running one has left its checkpoint."""
    pending = [step for step in steps if step.is_pending]
    outcome, stopper = Outcome(), _Stopper()
    with stopper.listening():
        for index, step in enumerate(pending):
            left = sum(other.seconds or 0.0 for other in pending[index:])
            _say(f"[{index + 1}/{len(pending)}] {step.title}; about {duration(left)} left")
            begin = time.monotonic()
            code = _run_process(step, stopper)
            record = record_of(step.run)
            if stopper.stopped:
                outcome.stopped = True
                _say("stopped: finished runs stay, the same command continues")
                break
            if code == 0 and record.finished:
                _say(f"    {FINISHED} in {duration(time.monotonic() - begin)}: {record.headline}")
                continue
            why = _record_failure(step.run, code)
            outcome.failed.append((step.title, why))
            _say(f"    {why}")
    return outcome


def _run_process(step: Step, stopper: _Stopper) -> int:
    # A group of its own keeps the terminal's Ctrl-C from the child: it gets exactly the one passed on.
    child = subprocess.Popen(
        [sys.executable, "-m", "runner", *step.run.overrides],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": python_path()},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        process_group=0,
    )
    stopper.child = child
    if stopper.stopped:  # between the last run and this one
        child.send_signal(signal.SIGINT)
    return child.wait()


def python_path() -> str:
    """The repository first, so that the runs are this checkout's whatever is installed."""
    return os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")]))


def _record_failure(run: PlannedRun, code: int) -> str:
    """Have the run folder tell the failure, also when the process could not; returns it as one line."""
    folder = RunFolder(run.config.run_dir)
    try:
        with folder.locked():
            record = record_of(run)
            if record.status in (NOT_RUN, UNFINISHED, FINISHED):
                ended = f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
                error = f"the process was {ended}" if code < 0 else f"the process {ended}"
                base = {"run_id": run.run_id, "config": run.config.as_dict(), **record.summary}
                folder.write_summary({**base, "status": "failed", "error": error})
    except RunLocked as error:
        return f"not run: {error}"
    record = record_of(run)
    return f"{record.status}: {record.error}"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)

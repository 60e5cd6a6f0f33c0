"""This module plans the runs that tables need, estimates how long the missing ones take, and runs them."""

import json
import math
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Self

import pandas as pd

from runner import REPOSITORY
from runner.data import CardConfig, SyntheticXcConfig
from runner.data.card import Expected, ExpectedText, RowsCard, TextCard, load_card
from runner.data.python_topics import PythonTopicsConfig
from runner.data.synthetic_xc import Shape
from runner.errors import RunLocked
from runner.machine.compilation import marker_of
from runner.models.language import LstmConfig, TransformerConfig
from runner.models.trees import OmikujiConfig
from runner.report.grids import PlannedRun, expand, point_text
from runner.report.planned_memory import expected_memory
from runner.report.records import (
    DAMAGED,
    DIVERGED,
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
from runner.report.reference_seconds import reference_seconds
from runner.report.speed import Speed
from runner.report.speed import measure as measure_speed
from runner.report.tables import TableSpec
from runner.samplers.full import FullConfig
from runner.settings import RunConfig
from runner.training.run_folder import RunFolder

CHANGED = ", by code with uncommitted changes"
_ENDED = (FINISHED, OLDER, DIVERGED, DAMAGED)
TO_RUN, RESUME, AGAIN = "to run", "resume", "failed, run again"


@dataclass(frozen=True, kw_only=True)
class Step:
    """A step is one run of the plan.

    ``seconds`` is its estimated time, None if unknown; ``measured`` tells that the estimate is from earlier runs.
    ``memory`` is its expected peak memory as text, ``?`` if unknown.
    """

    run: PlannedRun
    title: str
    status: str
    seconds: float | None
    measured: bool
    memory: str = "?"

    @property
    def is_pending(self) -> bool:
        return self.status in (TO_RUN, RESUME, AGAIN)


def plan(specs: Sequence[TableSpec], profile: str, results_dir: Path) -> list[Step]:
    """List every run that any of the tables needs, each once, with its status and estimated time."""
    titled: dict[str, tuple[str, PlannedRun]] = {}
    for grid in dict.fromkeys(spec.grid for spec in specs):
        for run in expand(grid, profile, results_dir):
            title = f"{grid.label(run)} on {grid.dataset(run.dataset).label}, seed {run.seed}"
            titled.setdefault(run.run_id, (title, run))
    return steps_of(titled.values(), all_records(results_dir))


def steps_of(titled: Iterable[tuple[str, PlannedRun]], records: Sequence[RunRecord]) -> list[Step]:
    """Return a step for each (title, run) in this order; times are estimated from the records that finished."""
    earlier = [record for record in records if record.finished]
    steps = []
    speed, compiled = measure_speed(), set[Path]()
    for title, run in titled:
        seconds, measured = estimate(run, earlier, speed)
        if seconds is not None and (kind := marker_of(run.config)) not in compiled and not kind.exists():
            seconds += _COMPILE_SECONDS * speed.slowness
            compiled.add(kind)
        memory = expected_memory(run, [record for record in earlier if _is_alike(record, run)])
        steps.append(Step(run=run, title=title, status=_status(run), seconds=seconds, measured=measured, memory=memory))
    return steps


def _status(run: PlannedRun) -> str:
    status = record_of(run).status
    if run.config.force:
        return why_skipped(run) or TO_RUN
    if status in (FINISHED, OLDER, DAMAGED) or _is_answer(run, status):
        return status
    return why_skipped(run) or {NOT_RUN: TO_RUN, UNFINISHED: RESUME}.get(status, AGAIN)


def _is_answer(run: PlannedRun, status: str) -> bool:
    """Tell whether the status is what a sweep asked for: the same seed would diverge at the same value again."""
    return status == DIVERGED and bool(run.point)


def plan_table(steps: Sequence[Step]) -> pd.DataFrame:
    """Return the plan as a table of text: run id, data set, method, seed, status, estimated seconds and memory."""
    return pd.DataFrame(
        [
            {
                "run id": step.run.run_id,
                "data set": step.run.dataset,
                "method": " ".join(filter(None, [step.run.method, point_text(step.run.point)])),
                "seed": str(step.run.seed),
                "status": step.status + (CHANGED if record_of(step.run).has_changes else ""),
                "seconds": "–" if step.status in _ENDED else _seconds_text(step),
                "memory": "–" if step.status in _ENDED else step.memory,
            }
            for step in steps
        ]
    )


def _seconds_text(step: Step) -> str:
    if step.seconds is None:
        return "?"
    return f"{'' if step.measured else '~'}{step.seconds:,.0f}"


def plan_total(steps: Sequence[Step], at_once: int = 1) -> str:
    """Return one line that counts the runs by status and estimates the time of those left, some made ``at_once``."""
    pending = [step for step in steps if step.is_pending]
    without_data = [step for step in steps if step.status.startswith(NO_DATA)]
    skipped = sum(step.status.startswith("skipped") for step in steps) - len(without_data)
    finished = sum(step.status == FINISHED for step in steps)
    older = sum(step.status == OLDER for step in steps)
    parts = [f"{len(steps)} runs: {finished} finished, {len(pending)} to run, {len(without_data)} without data"]
    if diverged := sum(step.status == DIVERGED for step in steps):
        parts.append(f"{diverged} {DIVERGED}")
    if changed := sum(record_of(step.run).has_changes for step in steps):
        parts.append(f"{changed} made{CHANGED.removeprefix(',')}, which force=true makes again")
    if damaged := sum(step.status == DAMAGED for step in steps):
        parts.append(f"{damaged} {DAMAGED}")
    if older:
        parts.append(f"{older} {OLDER}")
    if skipped:
        parts.append(f"{skipped} that need another processor or a library that is not installed")
    if pending:
        parts.append(f"estimated time: {_length(pending, at_once)}")
        if not all(step.measured for step in pending):
            parts.append(
                "~ marks a rough guess from the size of the data and this machine's speed just now; "
                "other times and sizes are from earlier runs on it"
            )
    if without_data:
        parts.append(f"the runs without data would take about {_length(without_data, at_once)}")
    return "; ".join(parts)


def _length(steps: Sequence[Step], at_once: int) -> str:
    """Return the steps' total time, and the number of steps whose time is unknown."""
    known = [step.seconds for step in steps if step.seconds is not None]
    unknown = len(steps) - len(known)
    if not known:
        return "unknown"
    return duration(sum(known) / at_once) + (f" and {unknown} runs of unknown length" if unknown else "")


def duration(seconds: float) -> str:
    """Write a time in the largest unit that suits it: ``45 s``, ``12 min``, ``3.5 h``, ``2.1 days``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"


# ---------------------------------------------------------------- estimates

# These constants give the cost of runs in units of what ``speed`` measures. They come from the runs of grids lns and
# midx_lm on two idle cores of a Zen 4 processor. Products: our own tiles are faster than torch's product, whose logits
# go to memory, and ranking is slower. Reads: a candidate is read to score it and, with its moments, to update it.
_FULL_RATE, _RANKING_RATE, _TREE_RATE = 1.3, 0.65, 1 / 15  # of ``Speed.products``
_BF16_SHARE, _STORED_SHARE = 0.57, 0.8  # of full softmax's seconds
_READS, _READS_BY_BUCKET, _READS_SHARED = 1.5, 2.6, 0.15  # of a candidate's class vector
_ENCODES = 4.0  # of ``Speed.encoded_row``
_GROWS, _PREDICTS = 18.0, 130.0  # of ``Speed.encoded_row``: a row of one label tree, and a row's ranking by all trees
_HEAD_SHARE = 0.25  # of full softmax's seconds: adaptive softmax with its usual bands
_START_SECONDS, _COMPILE_SECONDS = 8.0, 30.0  # every process starts; the first one of a kind of settings also compiles
_SHARED_START_SECONDS = 0.5  # of a run in a process that other runs have started
_TOPICS = ExpectedText(num_classes=3316, train_tokens=89_820, valid_tokens=7_632, test_tokens=8_653)  # Python 3.11's


@dataclass(frozen=True, kw_only=True)
class _Work:
    """The sizes that an estimate needs. Rows are tokens if the data set is text."""

    classes: int
    trained: int  # rows of an epoch
    step: int  # rows of a batch
    evaluated: int  # rows evaluated in an epoch
    evaluated_last: int  # rows evaluated after the last epoch
    encode_seconds: float  # per trained row


def estimate(run: PlannedRun, earlier: Sequence[RunRecord], speed: Speed) -> tuple[float | None, bool]:
    """Return the estimated wall seconds of a run (None if unknown), and True if they are based on earlier runs.

    Earlier runs count if they have the same data set, model, method, batch size and threads. Without any, seconds of
    the same run on another machine count, multiplied by this machine's slowness. All epochs count, though a validation
    set may end the training earlier. Compilation is left out.
    """
    config = run.config
    alike = [record.seconds_per_epoch for record in earlier if _is_alike(record, run)]
    if not alike and (elsewhere := reference_seconds(run)) is not None:
        return elsewhere * speed.slowness, False
    start = _START_SECONDS * speed.slowness
    if config.sampler is None and config.dataset.family == "pairs":  # an encoder of sentences: seconds a batch
        return (start + config.epochs * statistics.median(alike), True) if alike else (None, False)
    if _is_short(config):  # such runs share a process, and their steps are cheap
        return _SHARED_START_SECONDS * speed.slowness + config.epochs * (
            statistics.median(alike) if alike else 0.0
        ), bool(alike)
    work = _work(run, speed)
    if work is None:
        return (start + config.epochs * statistics.median(alike), True) if alike else (None, False)
    epochs = float(config.epochs)
    if config.max_steps is not None:
        epochs = min(epochs, config.max_steps / max(1, work.trained // work.step))
    ranked_row = 2.0 * work.classes * config.model.dim / (_RANKING_RATE * speed.products)
    evaluated_row = ranked_row + work.encode_seconds / 3
    if isinstance(config.model, OmikujiConfig):
        evaluated_row = _PREDICTS * speed.encoded_row
    if alike:
        trained = epochs * statistics.median(alike)
    else:
        layer_seconds = _layer_seconds(run, work.classes, ranked_row, speed)
        trained = epochs * work.trained * (work.encode_seconds + layer_seconds)
    watched = work.evaluated * (epochs + config.evaluation.turn(trained) / config.evaluation.per_epoch)
    return start + trained + (watched + work.evaluated_last) * evaluated_row, bool(alike)


def _is_short(config: RunConfig) -> bool:
    """Tell whether starting a process would take longer than the run: there are no classes to score."""
    return config.sampler is None and config.output.kind == "classes" and not isinstance(config.model, OmikujiConfig)


def _layer_seconds(run: PlannedRun, num_classes: int, ranked_row: float, speed: Speed) -> float:
    """Estimate the output layer's training seconds for one row from the number of classes that the sampler touches."""
    sampler, dim, output = run.config.sampler, run.config.model.dim, run.config.output
    if isinstance(run.config.model, OmikujiConfig):
        return run.config.model.n_trees * _GROWS * speed.encoded_row
    if output.kind == "adaptive":  # most rows need the head alone, and later bands have short vectors
        return _HEAD_SHARE * 8.0 * num_classes * dim / (_FULL_RATE * speed.products)
    if isinstance(sampler, FullConfig):
        seconds = 8.0 * num_classes * dim / (_FULL_RATE * speed.products)
        seconds *= _BF16_SHARE if sampler.takes_bf16 else 1.0
        return seconds * (_STORED_SHARE if sampler.stored_logits != "none" else 1.0)
    candidates = min(getattr(sampler, "num_samples", 1000), num_classes)
    read_once = 4.0 * dim * candidates / speed.gathered
    if sampler.name == "rff":
        tree_flops = 4.0 * sampler.D * candidates * math.log2(num_classes)
        return _READS * read_once + tree_flops / (_TREE_RATE * speed.products)
    if sampler.name == "quadratic_tree":  # nodes are matrices, and a leaf is as many classes as coordinates
        nodes = math.log2(max(2.0, num_classes / dim)) + 1
        return _READS * read_once + 2.0 * nodes * dim**2 * candidates / (_TREE_RATE * speed.products)
    if sampler.name in ("topk", "exact", "quadratic", "midx_exact"):
        return 2.0 * ranked_row + _READS * read_once
    if getattr(sampler, "shared", False):
        return _READS_SHARED * read_once
    if sampler.name.startswith("lsh"):
        return _READS_BY_BUCKET * read_once * (1 + sampler.L / 400)
    return _READS * read_once


def _work(run: PlannedRun, speed: Speed) -> _Work | None:
    """Return the sizes of a run, or None if they are unknown until the data are read."""
    config, dataset = run.config, run.config.dataset
    shape: Expected | ExpectedText | Shape | None = None
    if isinstance(dataset, CardConfig):
        card = load_card(dataset.name)
        shape = card.expected if isinstance(card, RowsCard | TextCard) else None
    elif isinstance(dataset, SyntheticXcConfig):
        shape = dataset.shape
    elif isinstance(dataset, PythonTopicsConfig):
        shape = _TOPICS
    if shape is None:
        return None
    encode_seconds = _ENCODES * speed.encoded_row
    if isinstance(shape, ExpectedText):
        if shape.train_tokens is None or shape.valid_tokens is None or shape.test_tokens is None:
            return None
        return _Work(
            classes=shape.num_classes,
            trained=shape.train_tokens,
            step=config.batch_size * config.windows.length,
            evaluated=config.evaluation.per_epoch * shape.valid_tokens,
            evaluated_last=2 * shape.test_tokens + shape.valid_tokens,
            encode_seconds=encode_seconds + 6.0 * _weights_between(config.model) / (_RANKING_RATE * speed.products),
        )
    held = round(dataset.valid_share * shape.num_train)
    return _Work(
        classes=shape.num_classes,
        trained=shape.num_train - held,
        step=config.batch_size,
        evaluated=config.evaluation.per_epoch * min(config.evaluation.rows, held or shape.num_test),
        evaluated_last=shape.num_test + held,
        encode_seconds=encode_seconds,
    )


def _weights_between(model: Any) -> int:
    """Count the encoder's weights that every token is multiplied with."""
    if isinstance(model, LstmConfig):
        return model.layers * 4 * model.hidden * (model.embedding + model.hidden)
    assert isinstance(model, TransformerConfig)
    return model.layers * model.embedding * (4 * model.embedding + 2 * model.feed_forward)


# The sampler's settings that change the speed of a step.
_OF_SPEED = ("shared", "products", "stored_logits", "D", "num_samples", "refresh_every_steps")


def _is_alike(record: RunRecord, run: PlannedRun) -> bool:
    """Tell whether a record has the run's data set, model, method, batch size and threads.

    Learning rate, length, K and L may differ.
    """
    theirs, ours = record.config, run.config.as_dict()
    alike = True
    for group in ("sampler", "loss", "batch_sampler"):
        mine, other = (config.get(group) or {} for config in (ours, theirs))
        alike &= mine.get("name") == other.get("name")
        alike &= all(mine.get(key) == other.get(key) for key in _OF_SPEED)
    alike &= all(theirs["optimizer"].get(key) == ours["optimizer"].get(key) for key in ("name", "rows"))
    return alike and all(theirs[key] == ours[key] for key in ("dataset", "model", "batch_size", "hardware"))


# ---------------------------------------------------------------- running


@dataclass
class Outcome:
    """The outcome of the pending runs.

    ``failed``: (title, reason) of each failure. ``seconds``: wall seconds of each run that finished, without compiling.
    ``stopped``: whether the user stopped them.
    """

    failed: list[tuple[str, str]] = field(default_factory=list)
    seconds: list[tuple[PlannedRun, float]] = field(default_factory=list)
    stopped: bool = False


class _Stopper:
    """Remember Ctrl-C and SIGTERM for the loop, and pass them on to the process that is running."""

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
    """Run the pending steps one after the other, each in its own process; networks without classes share one.

    A crash ends no other run. Peak memory is a run's own where its process is; in the shared one it holds what earlier
    runs left. A failure is recorded in its run folder, and
    the next step starts. Ctrl-C stops as soon as the current run has written its checkpoint.
    """
    pending = [step for step in steps if step.is_pending]
    outcome, stopper = Outcome(), _Stopper()
    outcome.failed += [
        (step.title, f"{DAMAGED}: {record_of(step.run).error}") for step in steps if step.status == DAMAGED
    ]
    with stopper.listening(), _Shared(stopper) as shared:
        for index, step in enumerate(pending):
            left = sum(other.seconds or 0.0 for other in pending[index:])
            _say(f"[{index + 1}/{len(pending)}] {step.title}; about {duration(left)} left")
            begin = time.monotonic()
            code = shared.run(step) if _is_short(step.run.config) else _run_process(step, stopper)
            record = record_of(step.run)
            if stopper.stopped:
                outcome.stopped = True
                _say("stopped: finished runs are kept; the same command continues")
                break
            if code == 0 and record.finished:
                seconds = time.monotonic() - begin
                outcome.seconds.append((step.run, seconds - record.warm_up_seconds))
                _say(f"    {FINISHED} in {duration(seconds)}: {record.headline}")
                continue
            if _is_answer(step.run, record.status):
                _say(f"    {record.status}: {record.error}")
                continue
            why = _record_failure(step.run, code)
            outcome.failed.append((step.title, why))
            _say(f"    {why}")
    return outcome


class _Shared:
    """Keep one process for many short runs (``runner.report.one_process``); after a crash the next run starts one."""

    def __init__(self, stopper: _Stopper) -> None:
        self.stopper = stopper
        self.child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.child is not None:
            assert self.child.stdin is not None
            with suppress(BrokenPipeError):  # it may have ended
                self.child.stdin.close()
            self.child.wait()

    def run(self, step: Step) -> int:
        """Make one run; return its exit code, or that of the process if it ended; 130 if the user stopped before it."""
        if self.stopper.stopped:
            return 130
        if self.child is None or self.child.poll() is not None:
            self.child = _start(["-m", "runner.report.one_process"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        child = self.stopper.child = self.child
        assert child.stdin is not None
        assert child.stdout is not None
        overrides = [*step.run.overrides, *_plugins_of(step.run)]
        with suppress(BrokenPipeError):
            child.stdin.write(json.dumps(overrides).encode() + b"\n")
            child.stdin.flush()
        answer = child.stdout.readline()
        return int(answer) if answer.strip() else child.wait()


def _run_process(step: Step, stopper: _Stopper) -> int:
    overrides = [*step.run.overrides, *_plugins_of(step.run)]
    child = _start(["-m", "runner", *overrides], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    stopper.child = child
    if stopper.stopped:  # between the last run and this one
        child.send_signal(signal.SIGINT)
    return child.wait()


def _start(arguments: list[str], *, stdin: int, stdout: int) -> "subprocess.Popen[bytes]":
    # The child has its own process group, so the terminal's Ctrl-C does not reach it: it gets only the one passed on.
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": python_path()},
        stdin=stdin,
        stdout=stdout,
        process_group=0,
    )


def _plugins_of(run: PlannedRun) -> list[str]:
    """Name the run's plugins as this process found them, since its own process starts in another folder."""
    plugins = run.config.plugins
    return [f"plugins=[{','.join(plugins)}]"] if plugins else []


def python_path() -> str:
    """Return where the runs' processes look for modules: the repository first, so that they are this checkout's.

    Plugins beside the user are found too: what this process looks through follows.
    """
    return os.pathsep.join([str(REPOSITORY), *(str(Path(place).absolute()) for place in sys.path)])


def _record_failure(run: PlannedRun, code: int) -> str:
    """Record the failure in the run folder if the process could not do so; return it as one line."""
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

"""Plan the runs that tables need, and make those that are missing."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Self

import pandas as pd

from runner import REPOSITORY
from runner.errors import RunLocked
from runner.report.numbers.records import (
    CHANGED,
    DAMAGED,
    DIVERGED,
    FINISHED,
    NO_DATA,
    NOT_RUN,
    OLDER,
    OTHER_DATA,
    UNFINISHED,
    RunRecord,
    all_records,
    record_of,
    why_skipped,
)
from runner.report.plan.estimate import COMPILE_SECONDS, estimate, is_short, similar_to
from runner.report.plan.planned_memory import expected_memory
from runner.report.plan.speed import slowness
from runner.report.spec.grids import PlannedRun, expand, point_text
from runner.report.spec.tables import TableSpec
from runner.training.compilation import marker_of
from runner.training.run_folder import RunFolder, description

UNCOMMITTED = ", by code with uncommitted changes"
_FORKS = sys.platform == "linux"  # elsewhere libraries may not work in a copy of a process that has imported them
_ENDED = (FINISHED, OLDER, DIVERGED, DAMAGED, CHANGED, OTHER_DATA)
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

    @property
    def is_made(self) -> bool:
        """Whether an earlier run stands for the step, in whatever state."""
        return self.status in _ENDED


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
    compiled = set[Path]()
    for title, run in titled:
        similar = similar_to(run, earlier)
        seconds, measured = estimate(run, similar)
        if seconds is not None and (kind := marker_of(run.config)) not in compiled and not kind.exists():
            if measured:  # seconds from elsewhere hold what had to be compiled
                seconds += COMPILE_SECONDS * slowness()
            compiled.add(kind)
        memory = expected_memory(run, similar)
        steps.append(Step(run=run, title=title, status=_status(run), seconds=seconds, measured=measured, memory=memory))
    return steps


def _status(run: PlannedRun) -> str:
    status = record_of(run).status
    if run.config.force:
        return why_skipped(run) or TO_RUN
    if status in (FINISHED, OLDER, DAMAGED, CHANGED, OTHER_DATA) or _is_answer(run, status):
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
                "status": step.status + (UNCOMMITTED if record_of(step.run).has_changes else ""),
                "seconds": "–" if step.is_made else _seconds_text(step),
                "memory": "–" if step.is_made else step.memory,
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
    parts = [f"{len(steps)} runs: {finished} finished, {len(pending)} to run, {len(without_data)} without data"]
    if diverged := sum(step.status == DIVERGED for step in steps):
        parts.append(f"{diverged} {DIVERGED}")
    if changed := sum(record_of(step.run).has_changes for step in steps):
        parts.append(f"{changed} made{UNCOMMITTED.removeprefix(',')}, which force=true makes again")
    for status in (DAMAGED, OLDER, CHANGED, OTHER_DATA):
        if count := sum(step.status == status for step in steps):
            parts.append(f"{count} {status}")
    if skipped:
        parts.append(f"{skipped} that need{'s' * (skipped == 1)} another processor or a library that is not installed")
    if pending:
        parts.append(f"estimated time: {_length(pending, at_once)}")
        if not all(step.measured for step in pending):
            parts.append(
                "~ marks a rough guess from seconds on another machine, or of memory from the size of the data; other "
                "times and sizes are from earlier runs on this machine, ? is unknown until a run of its kind was made"
            )
    if without_data:
        parts.append(f"time of the runs without data: {_length(without_data, at_once)}")
    return "; ".join(parts)


def whole_time(steps: Sequence[Step], after: float) -> str:
    """Return one line that adds up the plan: its runs, one after the other, and ``after``, the seconds that follow."""
    pending = [step for step in steps if step.is_pending]
    unknown = sum(step.seconds is None for step in pending)
    seconds = sum(step.seconds for step in pending if step.seconds is not None) + after
    more = f", and {_runs(unknown)} of unknown length" if unknown else ""
    return f"in all, runs, tables and figures take about {duration(seconds)}{more}"


def _length(steps: Sequence[Step], at_once: int) -> str:
    """Return the steps' total time, and the number of steps whose time is unknown."""
    known = [step.seconds for step in steps if step.seconds is not None]
    unknown = len(steps) - len(known)
    if not known:
        return f"unknown for {_runs(unknown)}"
    return duration(sum(known) / at_once) + (f" and {_runs(unknown)} of unknown length" if unknown else "")


def _runs(count: int) -> str:
    return f"{count:,} run{'' if count == 1 else 's'}"


def duration(seconds: float) -> str:
    """Write a time in the largest unit that suits it: ``45 s``, ``12 min``, ``3.5 h``, ``2.1 days``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"


# ---------------------------------------------------------------- running


@dataclass
class Outcome:
    """The outcome of the pending runs.

    ``failed``: (title, reason) of each failure. ``seconds``: wall seconds of each run that was made from start to end.
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


def execute(steps: Sequence[Step], after: Callable[[Step], None] = lambda step: None) -> Outcome:
    """Run the pending steps one after the other, each in its own process; short ones (``is_short``) share one.

    On Linux a run's own process is a copy of one that has imported the libraries, which saves seconds. On other systems
    it starts anew.

    A crash ends no other run. Peak memory is a run's own where its process is; in the shared one it holds what earlier
    runs left. A failure is recorded in its run folder, and the next step starts. Ctrl-C stops when the current run has
    written its checkpoint. ``after`` is called after every step, whatever came out of it.
    """
    pending = [step for step in steps if step.is_pending]
    outcome, stopper = Outcome(), _Stopper()
    outcome.failed += [
        (step.title, f"{step.status}: {record_of(step.run).error}")
        for step in steps
        if step.status in (DAMAGED, CHANGED, OTHER_DATA)
    ]
    with stopper.listening(), _Worker(stopper) as shared, _Worker(stopper, "--fork") as forking:
        for index, step in enumerate(pending):
            _say(f"[{index + 1}/{len(pending)}] {step.title}; time left: {_length(pending[index:], 1)}")
            begin = time.monotonic()
            worker = shared if is_short(step.run.config) else forking if _FORKS else None
            code = worker.run(step) if worker else _run_process(step, stopper)
            if not stopper.stopped:
                _note(step, code, time.monotonic() - begin, outcome)
                after(step)
            if stopper.stopped:
                outcome.stopped = True
                _say("stopped: finished runs are kept; the same command continues")
                break
    return outcome


def _note(step: Step, code: int, seconds: float, outcome: Outcome) -> None:
    """Say what came of a step, and add it to the outcome."""
    record = record_of(step.run)
    if code == 0 and record.finished:
        if step.status == TO_RUN:  # a continued run has only a part of its seconds here
            outcome.seconds.append((step.run, seconds))
        _say(f"    {FINISHED} in {duration(seconds)}: {record.headline}")
    elif _is_answer(step.run, record.status):
        _say(f"    {record.status}: {record.error}")
    else:
        why = _record_failure(step.run, code)
        outcome.failed.append((step.title, why))
        _say(f"    {why}")


class _Worker:
    """Keep one process that makes runs (``runner.report.plan.worker``).

    After a crash, and after a change of the sources, which it has read already, the next run starts another.
    """

    def __init__(self, stopper: _Stopper, *options: str) -> None:
        self.stopper = stopper
        self.options = options
        self.sources: frozenset[tuple[str, int]] = frozenset()
        self.child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Let the process end, if there is one."""
        if self.child is not None:
            self.child.communicate()
            self.child = None

    def run(self, step: Step) -> int:
        """Make one run; return its exit code, or that of the worker if it ended; 130 if the user stopped before it."""
        if self.stopper.stopped:
            return 130
        sources = _sources()
        if self.child is None or self.child.poll() is not None or sources != self.sources:
            self.end()
            self.sources = sources
            command = ["-m", "runner.report.plan.worker", *self.options]
            self.child = _start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        child = self.stopper.child = self.child
        if self.stopper.stopped:  # while it started
            child.send_signal(signal.SIGINT)
        assert child.stdin is not None
        assert child.stdout is not None
        overrides = [*step.run.overrides, *_plugins_of(step.run)]
        with suppress(BrokenPipeError):
            child.stdin.write(json.dumps(overrides).encode() + b"\n")
            child.stdin.flush()
        answer = child.stdout.readline()
        return int(answer) if answer.strip() else child.wait()


def _sources() -> frozenset[tuple[str, int]]:
    """Return the files of the runner with the times of their last changes, which tell whether one has changed."""
    found = set()
    for path in (REPOSITORY / "runner").rglob("*.py"):
        with suppress(OSError):  # an editor may be replacing it
            found.add((str(path), path.stat().st_mtime_ns))
    return frozenset(found)


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
                base = {**description(run.config), **record.summary}
                folder.write_summary({**base, "status": "failed", "error": error})
    except RunLocked as error:
        return f"not run: {error}"
    record = record_of(run)
    return f"{record.status}: {record.error}"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)

"""Kill runs at random moments until they finish, and compare what they end with to a run that nobody disturbed.

    python scripts/soak.py [--runs 200] [--kills 4] [--seed 0] [--kinds text,rows] [--keep DIR]

Every run starts from nothing, data included. It is killed once or several times: half of the times after some random
seconds, half of the times before some random operation of the disk (a flush, a rename, a deletion). Most kills are
SIGKILL; some are SIGTERM or SIGINT, after which the run saves a checkpoint and stops. Then the same command ends it,
and metrics, observations and weights must be those of the undisturbed run, to the bit.

The undisturbed run is a process of its own, ``python -m runner``. All others are forked from one process that has
loaded the kernels, because loading takes longer than these runs do. Exit code: 0 if all are the same, 1 otherwise.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ["NUMBA_NUM_THREADS"] = "1"
os.environ["NUMBA_THREADING_LAYER"] = "workqueue"  # OpenMP's threads would not survive the fork
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

COMMON = ["hardware.threads=1", "checkpoint_every_seconds=0.005", "evaluation.every_epochs=0.5", "epochs=4"]
KINDS = {
    "text": [
        "dataset=text", "dataset.path={text}", "model=lstm", "model.hidden=16", "model.embedding=16", "batch_size=4",
        "windows.length=8", "sampler=uniform", "sampler.num_samples=10",
    ],
    "rows": [
        "dataset=synthetic_xc", "dataset.num_classes=300", "dataset.num_features=400", "dataset.num_train=2000",
        "dataset.num_test=100", "model.hidden=24", "batch_size=32", "sampler=lsh_label", "sampler.K=4", "sampler.L=6",
    ],
    "sequences": [
        "dataset=synthetic_log", "dataset.num_users=200", "dataset.num_items=150", "dataset.mean_length=12",
        "model=gru4rec", "model.embedding=16", "model.hidden=16", "batch_size=24", "sampler=midx_pq",
        "sampler.codewords=8",
    ],
    "regression": [
        "dataset=synthetic_regression", "dataset.num_rows=4000", "model=regression", "batch_sampler=lgd",
        "optimizer.lr=0.001",
    ],
}  # fmt: skip
SIGNALS = (*[signal.SIGKILL] * 8, signal.SIGTERM, signal.SIGINT)
PATIENCE = 120.0  # seconds until an attempt that does not end counts as wrong


@dataclass
class Count:
    """Count what happened to the runs."""

    runs: Counter[str] = field(default_factory=Counter)  # by kind
    signals: Counter[str] = field(default_factory=Counter)
    missed: int = 0  # attempts that had finished before they were to be stopped
    faults: list[str] = field(default_factory=list)

    def in_words(self) -> str:
        """Return one line for the documents."""
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.runs.items()))
        signals = ", ".join(f"{count} {name}" for name, count in sorted(self.signals.items()))
        return (
            f"{self.runs.total()} runs ({kinds}), stopped {self.signals.total()} times ({signals});"
            f" {self.missed} ended before; {len(self.faults)} runs failed or differ from the undisturbed one"
        )


def main() -> int:
    """Make the runs; print every fault and a last line with the counts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=200, help="runs that are killed (default: 200)")
    parser.add_argument("--kills", type=int, default=4, help="most kills of one run (default: 4)")
    parser.add_argument("--seed", type=int, default=0, help="of the moments of the kills (default: 0)")
    parser.add_argument("--kinds", default=",".join(KINDS), help=f"kinds of runs (default: {','.join(KINDS)})")
    parser.add_argument("--keep", type=Path, help="keep what differs in this folder")
    arguments = parser.parse_args()
    kinds = arguments.kinds.split(",")
    if arguments.runs < 1 or arguments.kills < 1 or not set(kinds) <= KINDS.keys():
        parser.error(f"--runs and --kills must be 1 or more, and --kinds some of {','.join(KINDS)}")
    place = Path(tempfile.mkdtemp(prefix="soak-"))
    begin = time.perf_counter()
    try:
        count = soak(place, kinds, arguments.runs, arguments.kills, arguments.seed, arguments.keep)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    print(f"{count.in_words()}; {time.perf_counter() - begin:.0f} s")
    return 1 if count.faults else 0


def soak(place: Path, kinds: list[str], runs: int, kills: int, seed: int, keep: Path | None) -> Count:
    """Make an undisturbed run of each kind, then the runs that are killed."""
    from runner.runs.outcome import outcome

    write_text(place / "text")
    wanted, seconds = {}, {}
    for kind in kinds:
        folder = undisturbed(kind, place)
        wanted[kind] = outcome(folder)
        load_kernels(kind, place)
        begin = time.perf_counter()
        attempt(kind, place, place / "timed", None)
        seconds[kind] = time.perf_counter() - begin
        shutil.rmtree(place / "timed")
        print(f"{kind}: the undisturbed run is made; a forked one takes {seconds[kind]:.1f} s", flush=True)
    count = Count()
    for number in range(runs):
        kind, draw = kinds[number % len(kinds)], random.Random(f"{seed} {number}")
        own = place / f"run-{number}"
        fault = disturb(kind, place, own, draw, draw.randint(1, kills), seconds[kind], count)
        if fault is None and (found := outcome(folder_of(kind, place, own))) != wanted[kind]:
            fault = "differs in " + ", ".join(key for key in found if found[key] != wanted[kind][key])
        count.runs[kind] += 1
        if fault is not None:
            count.faults.append(fault)
            print(f"run {number} ({kind}): {fault}", flush=True)
            if keep is not None:
                shutil.copytree(own, keep / own.name, dirs_exist_ok=True)
        shutil.rmtree(own)
        if (number + 1) % 20 == 0:
            print(f"{number + 1} of {runs} runs, {count.signals.total()} stops", flush=True)
    return count


def disturb(
    kind: str, place: Path, own: Path, draw: random.Random, kills: int, seconds: float, count: Count
) -> str | None:
    """Stop a run so many times, and let it finish; return what went wrong, or None."""
    for _ in range(kills):
        stop = Stop(
            signal=draw.choice(SIGNALS),
            seconds=draw.uniform(0, seconds) if draw.random() < 0.5 else None,
            operation=draw.randrange(200),
        )
        code = attempt(kind, place, own, stop)
        if code in ((-stop.signal,) if stop.signal == signal.SIGKILL else (130, -stop.signal)):
            count.signals[stop.signal.name] += 1
        elif code == 0:
            count.missed += 1
            break
        else:
            return f"an attempt to be stopped ended with exit code {code}: {last_line(own)}"
    code = attempt(kind, place, own, None)
    return None if code == 0 else f"the last attempt ended with exit code {code}: {last_line(own)}"


# ---------------------------------------------------------------- one attempt


@dataclass(frozen=True)
class Stop:
    """Say when an attempt is stopped: after ``seconds`` or, if they are None, before an operation of the disk."""

    signal: signal.Signals
    seconds: float | None
    operation: int


def attempt(kind: str, place: Path, own: Path, stop: Stop | None) -> int:
    """Make the run in a forked process, which may be stopped; return its exit code, or minus the signal that did it."""
    own.mkdir(exist_ok=True)
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        train(kind, place, own, stop)
    if stop is not None and stop.seconds is not None:
        time.sleep(stop.seconds)
        os.kill(child, stop.signal)  # until it is waited for, its number is not given to another process
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return 124


def train(kind: str, place: Path, own: Path, stop: Stop | None) -> None:
    """Be the forked process: do what the command does, and end."""
    from runner.training.run import run

    code = 1
    try:
        log = os.open(own / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for stream in (1, 2):
            os.dup2(log, stream)
        if stop is not None and stop.seconds is None:
            stop_before(stop.operation, stop.signal)
        run(configuration(kind, place, own))
        code = 0
    except KeyboardInterrupt:
        code = 130
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
    finally:
        sys.stderr.flush()
        os._exit(code)


def stop_before(operation: int, number: signal.Signals) -> None:
    """Send this process a signal before its n-th operation of the disk from here on."""
    left = [operation]

    def counted(real: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            if left[0] == 0:
                os.kill(os.getpid(), number)
            left[0] -= 1
            return real(*arguments, **options)

        return call

    for name in ("fsync", "rename", "replace", "mkdir", "unlink", "rmdir", "truncate"):
        setattr(os, name, counted(getattr(os, name)))


def last_line(own: Path) -> str:
    """Return the last line that an attempt printed."""
    return ((own / "log").read_text(errors="replace").strip().splitlines() or ["nothing was printed"])[-1]


# ---------------------------------------------------------------- what is run


def words_of(kind: str, place: Path) -> list[str]:
    """Return the settings of a kind of run."""
    return [word.replace("{text}", str(place / "text")) for word in (*KINDS[kind], *COMMON)]


def configuration(kind: str, place: Path, own: Path) -> Any:
    """Return the configuration of a run with its data and results in a folder of its own."""
    from runner.config import compose

    os.environ["DATASETS_DIR"] = str(own / "data")
    return compose([*words_of(kind, place), f"results_dir={own / 'results'}"])


def folder_of(kind: str, place: Path, own: Path) -> Path:
    """Return the run folder."""
    return Path(configuration(kind, place, own).run_dir)


def undisturbed(kind: str, place: Path) -> Path:
    """Make a run by its command, which compiles what kernels are missing; return its folder."""
    own = place / f"undisturbed-{kind}"
    own.mkdir()
    subprocess.run(
        [sys.executable, "-m", "runner", *words_of(kind, place), f"results_dir={own / 'results'}"],
        cwd=Path(__file__).resolve().parents[1],
        env={**os.environ, "DATASETS_DIR": str(own / "data")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=True,
    )
    return folder_of(kind, place, own)


def load_kernels(kind: str, place: Path) -> None:
    """Load the kernels of a kind of run into this process; forked ones do not have to."""
    from runner.machine.threads import set_threads
    from runner.training import loop

    set_threads(1)
    loop.warm_up(configuration(kind, place, place))
    loop.warm_up = lambda config: None


def write_text(folder: Path) -> None:
    """Write train.txt, valid.txt and test.txt, in which one of two words follows a word."""
    folder.mkdir()
    draw = random.Random(0)
    for split, lines in {"train": 200, "valid": 20, "test": 20}.items():
        sentences = []
        for _ in range(lines):
            word, words = draw.randrange(60), []
            for _ in range(8):
                words.append(f"w{word}")
                word = (7 * word + 3 + draw.randrange(2)) % 60
            sentences.append(" ".join(words))
        (folder / f"{split}.txt").write_text("\n".join(sentences) + "\n")


if __name__ == "__main__":
    sys.exit(main())

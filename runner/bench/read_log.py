"""Time the preparation of a user's own log of events, and take its peak memory."""

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from runner import REPOSITORY
from runner.bench.measure import say
from runner.bench.settings import ReadLog
from runner.errors import require

NOTES = (
    "A CSV file with the columns user, item and time, rows in random order, on average ten events for a user and a "
    "hundred for an item, is prepared once (`dataset=interactions dataset.path=FILE`) by a process of its own with one "
    "thread. Seconds hold the process's start and the imports; a later run opens what was prepared.",
    "Peak memory is the most that the process held at once, libraries included.",
)
_ROWS_AT_ONCE = 1_000_000
_PREPARE = (
    "import sys; from runner.data import InteractionsConfig; "
    "d = InteractionsConfig(path=sys.argv[1]).build(); print(len(d.items_E), d.num_users, d.num_classes)"
)


def one_size(num_events: int, asked: ReadLog) -> dict[str, Any]:
    """Write a log of ``num_events`` events to a temporary folder and prepare it; return its part of the report."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.csv"
        say(f"{num_events:,} events: writing")
        write_log(path, num_events)
        say(f"{num_events:,} events: preparing")
        one_thread = dict.fromkeys(("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        environment = {**os.environ, **one_thread, "DATASETS_DIR": folder, "PYTHONPATH": str(REPOSITORY)}
        begin = time.perf_counter()
        child = subprocess.Popen([sys.executable, "-c", _PREPARE, path], stdout=subprocess.PIPE, env=environment)
        assert child.stdout is not None
        with child.stdout as answer:
            counted = answer.read().split()
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.perf_counter() - begin
        require(child.returncode == 0, f"preparing {num_events:,} events ended with exit code {child.returncode}")
        events, users, items = map(int, counted)
        return {
            "events": num_events,
            "kept": events,
            "users": users,
            "items": items,
            "file_mb": path.stat().st_size / 1e6,
            "seconds": seconds,
            "cpu_seconds": used.ru_utime + used.ru_stime,
            "peak_mb": peak_mb(used),
        }


def peak_mb(used: resource.struct_rusage) -> float:
    """Return the most memory that a process held, in MB; macOS counts bytes, Linux KiB."""
    return used.ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6


def write_log(path: Path, num_events: int) -> None:
    """Write a CSV of events in random order, of about a tenth as many users and a hundredth as many items."""
    generator = np.random.default_rng(0)
    users, items = max(num_events // 10, 1), max(num_events // 100, 1)
    with path.open("w") as file:
        file.write("user,item,time\n")
        for begin in range(0, num_events, _ROWS_AT_ONCE):
            count = min(_ROWS_AT_ONCE, num_events - begin)
            user_E, item_E = generator.integers(0, users, count), generator.integers(0, items, count)
            time_E = generator.integers(1_000_000_000, 1_500_000_000, count)
            file.writelines(
                f"user{user},item{item},{when}\n"
                for user, item, when in zip(user_E.tolist(), item_E.tolist(), time_E.tolist(), strict=True)
            )

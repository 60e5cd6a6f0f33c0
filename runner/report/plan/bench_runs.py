"""Measure what no runs make (``conf/table/bench``) at laptop size, after the runs of a plan."""

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from runner import REPOSITORY
from runner.report.plan.plan import FINISHED, TO_RUN, duration
from runner.report.plan.speed import slowness
from runner.report.spec.tables import BenchSpec, words_of


def bench_table(specs: Sequence[BenchSpec], results_dir: Path) -> pd.DataFrame:
    """Return the tables to be measured as a table of text: name, arguments, status and estimated seconds."""
    rows = []
    for spec in specs:
        ended = spec.is_measured(results_dir)
        rows.append(
            {
                "measured": spec.name,
                "settings of scripts/bench.py": " ".join([spec.kind, *words_of(spec.small_settings)]),
                "status": FINISHED if ended else TO_RUN,
                "seconds": "–" if ended else f"~{spec.seconds * slowness():,.0f}",
            }
        )
    return pd.DataFrame(rows)


def bench_seconds(specs: Sequence[BenchSpec], results_dir: Path) -> float:
    """Estimate the seconds of those that are not measured yet."""
    return sum(spec.seconds for spec in specs if not spec.is_measured(results_dir)) * slowness()


def measure_benches(specs: Sequence[BenchSpec], results_dir: Path) -> list[tuple[str, str]]:
    """Measure one after the other what is not measured yet, each in its own process, with the bench's progress.

    Returns (title, reason) of each failure, of which the bench itself says more. A failure ends no other.
    """
    failed = []
    pending = [spec for spec in specs if not spec.is_measured(results_dir)]
    for index, spec in enumerate(pending):
        left = duration(bench_seconds(pending[index:], results_dir))
        print(f"[{index + 1}/{len(pending)}] measuring {spec.title}; time left: {left}", file=sys.stderr, flush=True)
        command = spec.small_command(results_dir)
        code = subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.DEVNULL, check=False).returncode
        if code:
            ended = f"ended with exit code {code}" if code > 0 else f"was killed by {signal.Signals(-code).name}"
            failed.append((spec.title, f"not measured: the bench {ended}"))
    return failed

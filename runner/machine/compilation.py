"""Kernels are compiled by a process that trains nothing, so that every run executes what the cache holds.

A process that has just compiled a kernel runs another machine code than one that loads it: functions it calls are
taken from where they were compiled first, not from the copies that were optimised again within the caller, and sums
come out with other last bits. So the first run of a configuration would differ from its repetition.
"""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner import REPOSITORY
from runner.config import to_run_config
from runner.kernels.target import target
from runner.registry import digest_of
from runner.settings import PLACE_ONLY, RunConfig


def _kind(value: Any) -> Any:
    """What of a setting may decide which kernels are compiled: numbers only by being there and not zero."""
    if isinstance(value, Mapping):
        return {key: _kind(part) for key, part in sorted(value.items())}
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return "number" if value else "zero"


def marker_of(config: RunConfig) -> Path:
    """The file that says that kernels for settings of this kind are compiled."""
    settings = {key: value for key, value in config.as_dict().items() if key not in (*PLACE_ONLY, "dataset")}
    if config.plugins:  # kernels of their own
        settings["plugins"] = digest_of(config.plugins)
    made_for = [_kind(settings), target().description]  # NUMBA_CPU_NAME may name another processor each time
    digest = hashlib.sha256(json.dumps(made_for).encode()).hexdigest()[:16]
    return Path(os.environ["NUMBA_CACHE_DIR"]) / f"compiled-{digest}"


def compile_first(config: RunConfig) -> None:
    """Have another process compile what the run will need, unless one has; the run then loads it.

    Where it can not, the run meets the same obstacle, and tells it.
    """
    marker = marker_of(config)
    if marker.exists():
        return
    print("compiling kernels, once for settings of this kind", file=sys.stderr, flush=True)
    child = subprocess.run(
        [sys.executable, "-m", "runner.machine.compilation"],
        input=json.dumps(config.as_dict()),
        text=True,
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(str(Path(place).absolute()) for place in sys.path)},
        stdout=subprocess.DEVNULL,
        check=False,
    )
    if child.returncode == 0:
        marker.parent.mkdir(parents=True, exist_ok=True)
        marker.touch()


def main() -> int:
    """Compile for the configuration on standard input."""
    from runner.machine.threads import set_threads
    from runner.training.warm_up import warm_up

    config = to_run_config({**json.load(sys.stdin), "hardware": {"name": "cpu"}})  # kernels are the CPU's
    set_threads(config.hardware.threads)
    warm_up(config)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception:  # the run meets it again, and tells it in one line
        sys.exit(1)

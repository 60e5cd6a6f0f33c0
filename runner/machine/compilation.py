"""Compile kernels in a process that then trains nothing, so that every run executes the code in the cache.

A process that has just compiled a kernel runs other machine code than a process that loads it from the cache. In the
first, the kernel calls functions as they were compiled before; in the second, it calls copies that were optimised again
within the kernel. The last bits of sums differ, so the first run of a configuration would differ from its repetition.
"""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from numba.core.event import install_recorder

from runner import REPOSITORY
from runner.config import to_run_config
from runner.kernels.target import target
from runner.machine.kernel_files import state_of_all
from runner.registry import digest_of
from runner.settings import PLACE_ONLY, RunConfig

# Settings whose value decides no kernel, not even by being zero or missing.
_DECIDE_NOTHING = (*PLACE_ONLY, "dataset", "seed", "epochs", "max_steps", "evaluation")


def _kind(value: Any) -> Any:
    """Return the part of a setting that may decide which kernels are compiled; of a number, only whether it is zero."""
    if isinstance(value, Mapping):
        return {key: _kind(part) for key, part in sorted(value.items())}
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return "number" if value else "zero"


def marker_of(config: RunConfig) -> Path:
    """Return the file whose existence says that kernels for settings of this kind are compiled."""
    settings = {key: value for key, value in config.as_dict().items() if key not in _DECIDE_NOTHING}
    if config.plugins:  # plugins may have kernels of their own
        settings["plugins"] = digest_of(config.plugins)
    # NUMBA_CPU_NAME may name another processor each time.
    made_for = [_kind(settings), target().description, state_of_all()]
    digest = hashlib.sha256(json.dumps(made_for).encode()).hexdigest()[:16]
    return Path(os.environ["NUMBA_CACHE_DIR"]) / f"compiled-{digest}"


def compile_first(config: RunConfig) -> None:
    """Let another process compile the kernels that the run needs, unless that was done before; the run loads them.

    An error of that process is ignored here, because the run meets the same error and reports it.
    """
    if _is_missing(config):
        compile_apart(config)


def compile_here(config: RunConfig) -> bool:
    """Compile in this process what kernels the run lacks; return whether there were any.

    If so, the run must be made in another process.
    """
    if not _is_missing(config):
        return False
    with install_recorder("numba:compile") as recorder:  # loading a kernel is no such event
        _warm_up(config)
    _mark(config)
    return bool(recorder.buffer)


def _is_missing(config: RunConfig) -> bool:
    """Return whether kernels have to be compiled, and tell the user so."""
    missing = not marker_of(config).exists()
    if missing:
        print("compiling kernels, once for settings of this kind", file=sys.stderr, flush=True)
    return missing


def _mark(config: RunConfig) -> None:
    marker = marker_of(config)
    with suppress(OSError):  # a folder that cannot be written to: the next run looks again
        marker.parent.mkdir(parents=True, exist_ok=True)
        marker.touch()


def compile_apart(config: RunConfig) -> bool:
    """Let another process compile the kernels that a run needs and that are missing; return whether it could."""
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
        _mark(config)
    return child.returncode == 0


def _warm_up(config: RunConfig) -> None:
    from runner.machine.threads import set_threads
    from runner.training.warm_up import warm_up

    on_cpu = to_run_config({**config.as_dict(), "hardware": {"name": "cpu"}})  # kernels run only on the CPU
    set_threads(on_cpu.hardware.threads)
    warm_up(on_cpu)


def main() -> int:
    """Compile kernels for the configuration on standard input, as JSON."""
    _warm_up(to_run_config(json.load(sys.stdin)))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception:  # the run meets the same error and reports it in one line
        sys.exit(1)

"""Compile kernels in a process that then trains nothing, so that every run executes the code in the cache.

A process that has just compiled a kernel runs other machine code than a process that loads it from the cache. In the
first, the kernel calls functions as they were compiled before; in the second, it calls copies that were optimised again
within the kernel. The last bits of sums differ, so the first run of a configuration would differ from its repetition.
"""

import hashlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from numba.core.event import Listener, install_listener
from tqdm import tqdm

from runner import REPOSITORY
from runner.config import to_run_config
from runner.kernels.target import target
from runner.machine.kernel_files import state_of_all
from runner.options.settings import RunConfig, flat
from runner.registry import sources_of

# Settings whose value decides no kernel, not even by being zero or missing.
_DECIDE_NOTHING = ("hardware", "dataset", "seed", "epochs", "max_steps", "evaluation")


def _kind(value: Any) -> Any:
    """Return the part of a setting that may decide which kernels are compiled; of a number, only whether it is zero."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return "number" if value else "zero"


def marker_of(config: RunConfig) -> Path:
    """Return the file whose existence says that kernels for settings of this kind are compiled."""
    settings = flat(config.as_dict()).items()
    kinds = {key: _kind(value) for key, value in sorted(settings) if key.partition(".")[0] not in _DECIDE_NOTHING}
    if config.plugins:  # plugins may have kernels of their own
        kinds["plugins"] = sources_of(config)
    # NUMBA_CPU_NAME may name another processor each time.
    made_for = [kinds, target().description, state_of_all()]
    digest = hashlib.sha256(json.dumps(made_for).encode()).hexdigest()[:16]
    return Path(os.environ["NUMBA_CACHE_DIR"]) / f"compiled-{digest}"


def compile_first(config: RunConfig) -> None:
    """Let another process compile the kernels that the run needs, unless that was done before; the run loads them.

    An error of that process is ignored here, because the run meets the same error and reports it.
    """
    if not marker_of(config).exists():
        with _announced() as bar:
            compile_apart(config, bar)


def compile_here(config: RunConfig) -> bool:
    """Compile in this process what kernels the run lacks; return whether there were any.

    If so, the run must be made in another process.
    """
    if marker_of(config).exists():
        return False
    with _announced() as bar, install_listener("numba:compile", _Compiled(bar.update)) as compiled:
        _warm_up(config)
    _mark(config)
    return compiled.count > 0


class _Compiled(Listener):
    """Tell of each kernel that has been compiled, and count them; loading one from the cache is no such event."""

    def __init__(self, tell: Callable[[], object]) -> None:
        self._tell, self.count = tell, 0

    def on_start(self, event: Any) -> None:
        pass

    def on_end(self, event: Any) -> None:
        self.count += 1
        self._tell()


def kernel_count(text: str) -> "tqdm[Any]":
    """Return a line on standard error that counts kernels and seconds after ``text``; without a terminal, nothing."""
    form = "{desc}: {n_fmt} compiled, {elapsed_s:.0f} s"
    return tqdm(desc=text, bar_format=form, disable=not sys.stderr.isatty())


@contextmanager
def _announced() -> Iterator["tqdm[Any]"]:
    """Tell the user that kernels are compiled, by a line that counts them or, without a terminal, by a line before and
    one after."""
    text, began = "compiling kernels, once for settings of this kind", time.perf_counter()
    is_plain = not sys.stderr.isatty()
    if is_plain:
        print(text, file=sys.stderr, flush=True)
    with kernel_count(text) as bar:
        yield bar
    if is_plain:
        print(f"compiling kernels took {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)


def _mark(config: RunConfig) -> None:
    marker = marker_of(config)
    with suppress(OSError):  # a folder that cannot be written to: the next run looks again
        marker.parent.mkdir(parents=True, exist_ok=True)
        marker.touch()


def compile_apart(config: RunConfig, bar: "tqdm[Any]") -> bool:
    """Let another process compile the kernels that a run needs and that are missing; return whether it could.

    ``bar`` counts the kernels meanwhile.
    """
    compiled = _child(json.dumps(config.as_dict()), bar) == 0
    if compiled:
        _mark(config)
    return compiled


def _child(config: str, bar: "tqdm[Any]") -> int:
    """Let a process do ``main`` for a configuration as JSON; return its exit status."""
    child = subprocess.Popen(
        [sys.executable, "-m", "runner.training.compilation"],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(str(Path(place).absolute()) for place in sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    with child:
        try:
            with suppress(BrokenPipeError):  # its exit status tells that it could not even read
                child.stdin.write(config.encode())
                child.stdin.close()
            while True:
                if select.select([child.stdout], [], [], 1)[0]:
                    kernels = os.read(child.stdout.fileno(), 4096)  # a byte for each
                    if not kernels:
                        break
                    bar.update(len(kernels))
                bar.refresh()  # the seconds go on while a long kernel is compiled
        except BaseException:
            child.kill()
            raise
    return child.returncode


def _warm_up(config: RunConfig) -> None:
    from runner.machine.threads import set_threads
    from runner.training.warm_up import warm_up

    on_cpu = to_run_config({**config.as_dict(), "hardware": {"name": "cpu"}})  # kernels run only on the CPU
    set_threads(on_cpu.hardware.threads)
    warm_up(on_cpu)


def main(tell: Callable[[], object]) -> int:
    """Compile kernels for the configuration on standard input, as JSON, and tell of each."""
    with install_listener("numba:compile", _Compiled(tell)):
        _warm_up(to_run_config(json.load(sys.stdin)))
    return 0


if __name__ == "__main__":
    try:
        answers = os.dup(1)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # whatever else is printed is not counted
        sys.exit(main(lambda: os.write(answers, b".")))
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception:  # the run meets the same error and reports it in one line
        sys.exit(1)

"""Make the runs of a plan, so that not each of them waits for Python to start and to import its libraries.

The command lines come on standard input, one JSON list of overrides a line. A line on standard output follows each run,
with its exit code: 0, 1 or 2 as of ``python -m runner``, 130 after Ctrl-C, or less than 0 for the signal that ended it.
Whatever else is printed goes to standard error.

Without ``--fork`` all runs are made in this process, which is meant for runs of a second. With it, each run has a
process of its own: a copy of this one, which has imported what all runs need and nothing more, so that a run's memory
is as usual. This process computes nothing itself, so that libraries start their threads in the copy. If kernels have to
be compiled, one copy does so and another makes the run (see ``runner.training.compilation``).
"""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterable
from typing import TextIO

from runner.config import check_model_reads_dataset, compose, exit_code, forget_failures, register_failure
from runner.machine.device import settled
from runner.options.settings import RunConfig
from runner.training.compilation import compile_here
from runner.training.run import run

INTERRUPTED = 130  # the exit code that shells use after Ctrl-C
_COMPILED = 75  # an exit code that no run has


def main(lines: Iterable[str], answers: TextIO, *, fork: bool = False) -> int:
    """Make the runs; return 0, or 130 after Ctrl-C, which saves a checkpoint of the present run."""
    if fork:
        compose([])  # this imports Hydra and reads its plugins
    for line in lines:
        overrides = json.loads(line)
        if fork:
            code = in_copy(make_unless_compiling, overrides, answers)
            if code == _COMPILED:
                code = in_copy(make, overrides, answers)
        else:
            code = make(overrides)
            if code == INTERRUPTED:
                return code
        print(code, file=answers, flush=True)
    return 0


def make(overrides: list[str]) -> int:
    """Make one run in this process; return its exit code."""
    return _make(overrides, may_compile=False)


def make_unless_compiling(overrides: list[str]) -> int:
    """Make one run in this process, unless kernels had to be compiled for it first; return its exit code."""
    return _make(overrides, may_compile=True)


def _make(overrides: list[str], *, may_compile: bool) -> int:
    forget_failures()
    try:
        config = compose(overrides)
        if may_compile and _has_compiled(config):
            return _COMPILED
        run(config, compiles_apart=True)
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        register_failure(error)
    return exit_code()


def _has_compiled(config: RunConfig) -> bool:
    """Compile what kernels the run lacks; return whether another process must make the run."""
    try:
        check_model_reads_dataset(config)
        return compile_here(settled(config))
    except Exception:  # some kernels may be compiled by now; the run meets the error too, and records it
        return True


def in_copy(work: Callable[[list[str]], int], overrides: list[str], answers: TextIO) -> int:
    """Let a copy of this process do the work; return its exit code, or less than 0 for the signal that ended it.

    Ctrl-C is passed on to the copy. ``answers`` are this process's to write.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    interrupt = {signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, interrupt)  # it comes when there is a copy to pass it on to
    child = os.fork()
    if child == 0:
        answers.close()
        nothing = os.open(os.devnull, os.O_RDONLY)  # the lines are not the run's to read
        os.dup2(nothing, 0)
        os.close(nothing)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, interrupt)
        sys.exit(work(overrides))
    handler = signal.signal(signal.SIGINT, lambda *_: os.kill(child, signal.SIGINT))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, interrupt)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    signal.pthread_sigmask(signal.SIG_BLOCK, interrupt)  # once it is reaped, its number may be another process's
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    signal.signal(signal.SIGINT, handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, interrupt)
    return code


if __name__ == "__main__":
    try:
        with os.fdopen(os.dup(1), "w") as answers:
            os.dup2(2, 1)
            sys.exit(main(sys.stdin, answers, fork="--fork" in sys.argv[1:]))
    except KeyboardInterrupt:  # between two runs
        sys.exit(INTERRUPTED)

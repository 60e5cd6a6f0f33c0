"""Set the number of threads that compute."""

import functools
import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from runner.errors import ConfigError, require
from runner.machine.group import Place


def set_threads(threads: int, parallel_jobs: int = 1) -> int:
    """Set the same number of threads for Numba and torch (whose BLAS computes all products), and return it.

    ``threads``: 0 means all cores of this process, divided by the number of ``parallel_jobs``; but a job that a sweep
    submitted to Slurm has its cores to itself. NUMBA_NUM_THREADS, which clusters export, is an upper bound. Raises
    ConfigError if there are fewer cores, or if the environment keeps Numba from computing.
    """
    require(threads >= 0, f"hardware.threads must be 0 (all cores) or more, got {threads}")
    import numba
    import torch

    require(not numba.config.DISABLE_JIT, "NUMBA_DISABLE_JIT is set, but kernels have to be compiled; unset it")

    if os.environ.get("SUBMITIT_EXECUTOR") == "slurm":
        parallel_jobs = 1
    most: int = numba.config.NUMBA_NUM_THREADS
    jobs = parallel_jobs * Place.of_environment().here
    count = threads or min(most, max(1, _cores() // jobs))
    bound = "threads that NUMBA_NUM_THREADS allows" if os.environ.get("NUMBA_NUM_THREADS") else "cores of this process"
    require(
        count <= most,
        f"hardware.threads={count} is more than the {most} {bound}; give a smaller number, or 0 for as many",
    )
    try:
        numba.set_num_threads(count)
    except ValueError as error:  # Numba looks for its threads only now
        layer = numba.config.THREADING_LAYER
        raise ConfigError(
            f"NUMBA_THREADING_LAYER={layer} cannot be had here ({str(error).partition(chr(10))[0].rstrip('.')});"
            " unset it, or try workqueue"
        ) from None
    torch.set_num_threads(count)
    return count


def _cores() -> int:
    """Return how many cores this process may use: on Slurm, which need not bind processes, what it gave to the job."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    given = os.environ.get("SLURM_CPUS_ON_NODE", "")
    return min(allowed, int(given)) if given.isdecimal() and int(given) else allowed


class EncoderThreads:
    """Find out during the first steps whether torch computes an encoder faster with one thread or with all.

    Threads meet after each operation, so an encoder of many small operations, such as a recurrent network of some
    hundred units, is slower with two threads than with one. The steps have the same bits either way.
    """

    def __init__(self) -> None:
        import torch

        self._all = torch.get_num_threads()
        self._least = dict.fromkeys((1, self._all), math.inf)  # seconds of a step
        self._turns = [*self._least] * _TRIES if self._all > 1 and _products_ignore_threads(self._all) else []
        self._chosen, self._seconds = self._all, 0.0

    @contextmanager
    def part(self, *, is_last: bool) -> Iterator[None]:
        """Compute a part of a step with the threads whose turn it is; the step's last part ends the turn."""
        import torch

        threads = self._turns[-1] if self._turns else self._chosen
        if threads == self._all and not self._turns:
            yield
            return
        begin = time.perf_counter()
        torch.set_num_threads(threads)
        try:
            yield
        finally:
            torch.set_num_threads(self._all)
        self._seconds += time.perf_counter() - begin
        if is_last and self._turns:
            self._least[threads] = min(self._least[threads], self._seconds)
            self._turns.pop()
            self._chosen = min(self._least, key=lambda count: self._least[count])
        self._seconds *= not is_last


_TRIES = 5  # steps with each number of threads


@functools.cache
def _products_ignore_threads(count: int) -> bool:
    """Tell whether a product has the same bits with one thread and with ``count``; not every BLAS keeps them."""
    import torch

    shared = torch.linspace(-1, 1, 2560 * 64).reshape(2560, 64)
    before = torch.get_num_threads()
    products = []
    try:
        for threads in (1, count):
            torch.set_num_threads(threads)
            products.append(shared.t() @ shared.cos())
    finally:
        torch.set_num_threads(before)
    return torch.equal(*products)

"""Threads of the pools that compute."""

import os

from runner.errors import require


def set_threads(threads: int) -> int:
    """Give the pools of Numba and of torch (whose BLAS does all products) one size and return it; 0: all cores."""
    import numba
    import torch

    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    count = threads or allowed
    require(
        count <= numba.config.NUMBA_NUM_THREADS,
        f"hardware.threads={count} is more than the {numba.config.NUMBA_NUM_THREADS} cores of this process",
    )
    numba.set_num_threads(count)
    torch.set_num_threads(count)
    return count

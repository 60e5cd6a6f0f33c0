"""Set the number of threads that compute."""

import os

from runner.errors import require


def set_threads(threads: int, parallel_jobs: int = 1) -> int:
    """Set the same number of threads for Numba and torch (whose BLAS computes all products), and return it.

    ``threads``: 0 means all cores of this process, divided by the number of ``parallel_jobs``. Raises ConfigError if
    there are fewer cores.
    """
    require(threads >= 0, f"hardware.threads (--threads) must be 0 (all cores) or more, got {threads}")
    import numba
    import torch

    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    count = threads or max(1, allowed // parallel_jobs)
    if parallel_jobs > 1 and not threads:  # a launcher may have given Numba fewer
        count = min(count, numba.config.NUMBA_NUM_THREADS)
    require(
        count <= numba.config.NUMBA_NUM_THREADS,
        f"hardware.threads={count} is more than the {numba.config.NUMBA_NUM_THREADS} cores of this process;"
        " give a smaller number, or 0 for all cores",
    )
    numba.set_num_threads(count)
    torch.set_num_threads(count)
    return count

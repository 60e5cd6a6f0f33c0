"""Run experiments with networks that have huge output layers."""

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from runner.home import REPOSITORY, written

__all__ = ["NUMBERS", "REPOSITORY", "__version__", "load_run"]
__version__ = "0.2.0"

# Raise this whenever the same settings give other numbers than before, beyond rounding (tests/golden then change). Runs
# of different numbers are neither resumed nor pooled. Runs that stored none are of 1.
NUMBERS = 3  # 3: the order of rows within buckets of hashes follows from the seed alone


def load_run(run: str | Path, results_dir: str | Path = "results") -> Any:
    """Load a run to predict with, in a notebook or a program: ``load_run(RUN).predict(texts, k=3)``.

    ``run``: its folder, its id, the end of its id, or a folder that ``runner.export`` wrote. Returns a
    ``runner.ranking.LoadedRun``, whose module says in ten lines what it takes.
    """
    return import_module("runner.ranking").load_run(run, results_dir)


# torch and Numba each keep a pool of OpenMP threads. By default an idle pool spins for milliseconds, so on a busy
# machine the two pools starve each other. A short spin is a compromise: threads that sleep at once (PASSIVE) slow down
# the cheapest steps (docs/log.md has the figures). The pools read the variable when they start, so it must be set
# before either library is imported.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")


# Products have the same bits with any number of threads if MKL, torch's BLAS, is asked for that before it starts.
os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")


# Numba ends with a traceback, or prints one, where this is no number of threads.
if not (os.environ.get("NUMBA_NUM_THREADS", "1").isdecimal() and int(os.environ.get("NUMBA_NUM_THREADS", "1"))):
    _given = os.environ.pop("NUMBA_NUM_THREADS")
    print(f"NUMBA_NUM_THREADS={_given} is ignored, because it is no number of threads", file=sys.stderr)


# NUMBA_CPU_NAME emulates another processor. Numba would add the host's features to those of the named processor, so an
# AVX2 processor emulated on an AVX-512 machine would be neither. An empty list of features prevents that.
if os.environ.get("NUMBA_CPU_NAME", "host") != "host":
    os.environ.setdefault("NUMBA_CPU_FEATURES", "")


# Where Numba keeps compiled kernels, and which state of their sources they belong to (runner.machine.kernel_files).
os.environ.setdefault("NUMBA_CACHE_DIR", str(written(".numba_cache")))
os.environ["NUMBA_CACHE_LOCATOR_CLASSES"] = "runner.machine.kernel_files.BySources"
if "numba" in sys.modules:  # Numba was imported earlier and has already read the environment
    sys.modules["numba"].config.CACHE_DIR = os.environ["NUMBA_CACHE_DIR"]
    sys.modules["numba"].config.CACHE_LOCATOR_CLASSES = os.environ["NUMBA_CACHE_LOCATOR_CLASSES"]
    sys.modules["numba"].config.CPU_FEATURES = os.environ.get("NUMBA_CPU_FEATURES")

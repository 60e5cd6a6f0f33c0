"""Run experiments with networks that have huge output layers."""

import hashlib
import os
import sys
from pathlib import Path

from runner.home import REPOSITORY, written

__all__ = ["REPOSITORY", "__version__"]
__version__ = "0.1.0"

# torch and Numba each keep a pool of OpenMP threads. By default an idle pool spins for milliseconds, so on a busy
# machine the two pools starve each other. A short spin is a compromise: threads that sleep at once (PASSIVE) slow down
# the cheapest steps (docs/log.md has the figures). The pools read the variable when they start, so it must be set
# before either library is imported.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")


# NUMBA_CPU_NAME emulates another processor. Numba would add the host's features to those of the named processor, so an
# AVX2 processor emulated on an AVX-512 machine would be neither. An empty list of features prevents that.
if os.environ.get("NUMBA_CPU_NAME", "host") != "host":
    os.environ.setdefault("NUMBA_CPU_FEATURES", "")


def _compile_cache() -> Path:
    """Return the folder of kernels compiled from the current sources.

    Numba compiles a cached kernel again when its own file changes, but not when a function inlined from another file
    changes. One folder for each state of all kernel sources makes a stale kernel impossible.
    """
    here = Path(__file__).parent
    digest = hashlib.sha256()
    for file in sorted(here.rglob("*.py")):
        source = file.read_bytes()
        if b"njit" in source:
            digest.update(source)
    return written(".numba_cache") / digest.hexdigest()[:16]


os.environ.setdefault("NUMBA_CACHE_DIR", str(_compile_cache()))
if "numba" in sys.modules:  # Numba was imported earlier and has already read the environment
    sys.modules["numba"].config.CACHE_DIR = os.environ["NUMBA_CACHE_DIR"]
    sys.modules["numba"].config.CPU_FEATURES = os.environ.get("NUMBA_CPU_FEATURES")

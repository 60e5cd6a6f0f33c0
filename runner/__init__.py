"""Experiment runner for networks with huge output layers."""

import hashlib
import os
import sys
from pathlib import Path

__version__ = "0.1.0"
REPOSITORY = Path(__file__).resolve().parents[1]

# torch and Numba each keep a pool of OpenMP threads, and by default an idle pool spins for milliseconds: on a busy
# machine the two starve each other (a step of LSH Embedding twice as slow beside one other process). This short spin
# costs a tenth on an idle machine and nothing beside others; sleeping at once (PASSIVE) doubles the cheapest steps.
# Read when the pools start, so it is set before either library is imported.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")


# A processor named for Numba comes with its own features; Numba alone would add those of the host, so that an AVX2
# machine emulated on an AVX-512 one would be neither.
if os.environ.get("NUMBA_CPU_NAME", "host") != "host":
    os.environ.setdefault("NUMBA_CPU_FEATURES", "")


def _compile_cache() -> Path:
    """Folder of compiled kernels for exactly these sources of kernels.

    Numba renews a cached kernel when its own file changes, not when a function inlined from another file does;
    a folder per state of all of them makes a stale kernel impossible.
    """
    here = Path(__file__).parent
    digest = hashlib.sha256()
    for file in sorted(here.rglob("*.py")):
        source = file.read_bytes()
        if b"njit" in source:
            digest.update(source)
    return here.parent / ".numba_cache" / digest.hexdigest()[:16]


os.environ.setdefault("NUMBA_CACHE_DIR", str(_compile_cache()))
if "numba" in sys.modules:  # imported before us: it has read the environment already
    sys.modules["numba"].config.CACHE_DIR = os.environ["NUMBA_CACHE_DIR"]
    sys.modules["numba"].config.CPU_FEATURES = os.environ.get("NUMBA_CPU_FEATURES")

"""Measure free memory and the peak memory of one run, even if one process makes several runs (a sweep)."""

import contextlib
import re
import resource
import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")


def available_bytes() -> float:
    """Return the memory that is available without swapping, in bytes; infinity if the system does not tell."""
    with contextlib.suppress(OSError):
        if found := re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text()):
            return int(found[1]) * 1024
    return float("inf")


def reset_peak() -> None:
    """Reset the process's peak memory if the system allows it (Linux)."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _status_mb(name: str) -> float | None:
    with contextlib.suppress(OSError):
        if found := re.search(rf"{name}:\s+(\d+) kB", _STATUS.read_text()):
            return int(found[1]) / 1024
    return None


def resident_mb() -> float | None:
    """Return the present resident size in MiB; None if the system does not tell."""
    return _status_mb("VmRSS")


def peak_mb() -> float:
    """Return the largest resident size since ``reset_peak`` in MiB; without Linux, since the process began."""
    if (peak := _status_mb("VmHWM")) is not None:
        return peak
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return largest / 2**20 if sys.platform == "darwin" else largest / 1024

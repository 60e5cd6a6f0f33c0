"""Memory that is free, and the peak of one run, also when one process does several (a sweep)."""

import contextlib
import re
import resource
import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")


def available_bytes() -> float:
    """Memory that can be had without swapping; infinite where the system does not say."""
    with contextlib.suppress(OSError):
        if found := re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text()):
            return int(found[1]) * 1024
    return float("inf")


def reset_peak() -> None:
    """Forget the process's high-water mark, where the system lets one (Linux)."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _status_mb(name: str) -> float | None:
    with contextlib.suppress(OSError):
        if found := re.search(rf"{name}:\s+(\d+) kB", _STATUS.read_text()):
            return int(found[1]) / 1024
    return None


def resident_mb() -> float | None:
    """Resident size now, in MiB; None where the system does not say."""
    return _status_mb("VmRSS")


def peak_mb() -> float:
    """Largest resident size since ``reset_peak``, in MiB; since the process began where that is not to be had."""
    if (peak := _status_mb("VmHWM")) is not None:
        return peak
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return largest / 2**20 if sys.platform == "darwin" else largest / 1024

"""Peak memory of one run, also when one process does several (a sweep)."""

import contextlib
import re
import resource
import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")


def reset_peak() -> None:
    """Forget the process's high-water mark, where the system lets one (Linux)."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_mb() -> float:
    """Largest resident size since ``reset_peak``, in MiB; since the process began where that is not to be had."""
    with contextlib.suppress(OSError):
        found = re.search(r"VmHWM:\s+(\d+) kB", _STATUS.read_text())
        if found:
            return int(found[1]) / 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 1024

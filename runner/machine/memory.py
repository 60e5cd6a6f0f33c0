"""Measure free memory and the peak memory of one run, even if one process makes several runs (a sweep)."""

import contextlib
import re
import resource
import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")


def available_bytes() -> float:
    """Return the memory that this process may still take without swapping, in bytes; infinity if nothing tells.

    It is the least that the machine, the control groups of the process and its limit of address space leave.
    """
    return max(0.0, min(_of_machine(), _of_control_groups(Path("/sys/fs/cgroup")), _of_address_space()))


def _of_machine() -> float:
    with contextlib.suppress(OSError):
        if found := re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text()):
            return int(found[1]) * 1024
    return float("inf")


def _of_address_space() -> float:
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return float("inf")
    taken = _status_mb("VmSize")
    return float(limit) if taken is None else limit - taken * 2**20


def _of_control_groups(root: Path, membership: Path = Path("/proc/self/cgroup")) -> float:
    """Return what the process's control groups leave (cgroup v2 below ``root``, v1 below ``root``/memory)."""
    free = float("inf")
    with contextlib.suppress(OSError, ValueError):
        for line in membership.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers == "":
                top, names = root, ("memory.max", "memory.current", "inactive_file")
            elif "memory" in controllers.split(","):
                top = root / "memory"
                names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            else:
                continue
            group = top / path.lstrip("/")
            for folder in (group, *group.parents):
                if folder.is_relative_to(top):
                    free = min(free, _left(folder, *names))
    return free


def _left(group: Path, limit: str, usage: str, inactive: str) -> float:
    """Return the limit of a control group less what it uses; files in memory that nobody reads can be dropped."""
    try:
        most = int((group / limit).read_text())
        used = int((group / usage).read_text())
        found = re.search(rf"^{inactive} (\d+)$", (group / "memory.stat").read_text(), re.MULTILINE)
    except (OSError, ValueError):  # there is no such group, or its limit is "max"
        return float("inf")
    return most - used + (int(found[1]) if found else 0)


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


def gpu_bytes() -> int:
    """Return the memory of the GPU that is free."""
    import torch

    return int(torch.cuda.mem_get_info()[0])

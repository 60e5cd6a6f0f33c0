"""Measure the machine's limits and state, in the same run whose timings are compared with them."""

import contextlib
import ctypes
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit, prange

from runner.machine import memory
from runner.machine.memory import available_bytes, gpu_bytes
from runner.options.settings import CPU, HardwareConfig

_CACHE_SIZE = Path("/sys/devices/system/cpu/cpu0/cache/index3/size")
_CLEAR_PEAK = Path("/proc/self/clear_refs")
_SMALLEST_ARRAY = 2**26  # bytes, where the system does not tell the cache's size
_BEST_OF = 5
_SQUARE = 1536  # rows and columns of the matrices whose product is timed


@njit(cache=True, parallel=True)
def _triad(a, b, c, scale):
    for i in prange(a.shape[0]):
        a[i] = b[i] + scale * c[i]


def _last_level_cache() -> int:
    """Return the bytes of the last-level cache, or 0 where the system does not say."""
    try:
        found = re.fullmatch(r"(\d+)([KM])", _CACHE_SIZE.read_text().strip())
    except OSError:
        return 0
    return int(found[1]) * {"K": 2**10, "M": 2**20}[found[2]] if found else 0


def stream_bandwidth() -> float:
    """Measure the bytes per second of a[i] = b[i] + s c[i] with the threads now set: the best of several passes.

    Each element counts 12 bytes, and each array is four last-level caches long. The processor also reads each line of
    ``a`` before it writes it. By custom this read is not counted, so kernels that only read can exceed this figure.
    """
    length = max(_SMALLEST_ARRAY, 4 * _last_level_cache()) // 4
    a, b, c = (np.full(length, value, dtype=np.float32) for value in (0, 1, 2))
    _triad(a[:1024], b[:1024], c[:1024], np.float32(3))
    best = min(_seconds(_triad, a, b, c, np.float32(3)) for _ in range(_BEST_OF))
    return 12 * length / best


@njit(cache=True, parallel=True)
def _visit_rows(a, b, c, rows):
    for i in prange(rows.shape[0]):
        row = rows[i]
        for k in range(a.shape[1]):
            b[row, k] += c[row, k]
            c[row, k] -= b[row, k]
            a[row, k] += b[row, k]


def row_bandwidth() -> float:
    """Measure the bytes per second of reading and writing a random half of the rows of three matrices, in order.

    The matrices have 128 columns. This is the best that an update of scattered rows could reach. It is less than the
    bandwidth of a stream, which prefetchers follow.
    """
    columns = 128
    length = max(_SMALLEST_ARRAY, 4 * _last_level_cache()) // (4 * columns)
    matrices = [np.full((length, columns), value, dtype=np.float32) for value in (0, 1, 2)]
    rows = np.sort(np.random.default_rng(0).permutation(length)[: length // 2]).astype(np.int32)
    _visit_rows(*matrices, rows[:16])
    best = min(_seconds(_visit_rows, *matrices, rows) for _ in range(_BEST_OF))
    return 6 * 4 * columns * len(rows) / best


def product_rate() -> float:
    """Measure the floating-point operations per second of torch's square float32 matrix product, best of several."""
    import torch

    left, right = torch.rand(_SQUARE, _SQUARE), torch.rand(_SQUARE, _SQUARE)
    torch.mm(left, right)
    best = min(_seconds(torch.mm, left, right) for _ in range(_BEST_OF))
    return 2 * _SQUARE**3 / best


def _seconds(call, *arguments):
    begin = time.perf_counter()
    call(*arguments)
    return time.perf_counter() - begin


def growth_bytes(work: Callable[[], Any], hardware: HardwareConfig) -> float | None:
    """Run ``work`` and return the peak growth of the memory of its device in bytes.

    On a CPU that is the resident set's; None where its peak cannot be reset.
    """
    if hardware.name != CPU:
        import torch

        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated()
        work()
        torch.cuda.synchronize()
        return float(torch.cuda.max_memory_allocated() - held)
    with contextlib.suppress(OSError, AttributeError):
        # Freed memory that the allocator keeps would hide what ``work`` takes, so it goes back to the system first.
        ctypes.CDLL(None).malloc_trim(0)
    memory.reset_peak()
    before = memory.peak_mb()
    work()
    return (memory.peak_mb() - before) * 2**20 if _CLEAR_PEAK.exists() else None


def shortage(needed_bytes: float, promised_bytes: float = 0.0, hardware: HardwareConfig | None = None) -> str | None:
    """Return a status such as ``skipped: needs 8.1 GB, 3.0 GB free`` when memory is short, else None.

    Free memory must hold ``needed_bytes``, a twentieth more and half a gigabyte. ``promised_bytes`` are still free, but
    others will take them.
    """
    on_gpu = hardware is not None and hardware.name != CPU
    free = (gpu_bytes() if on_gpu else available_bytes()) - promised_bytes
    if needed_bytes * 1.05 + 5e8 <= free:
        return None
    return f"skipped: needs {needed_bytes / 1e9:.1f} GB, {free / 1e9:.1f} GB free"


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Hold the best rates of this machine with the threads in use."""

    bytes_per_second: float
    row_bytes_per_second: float
    flops_per_second: float

    @classmethod
    def measure(cls, hardware: HardwareConfig) -> "Limits":
        """Measure all three rates of a device, one after the other."""
        if hardware.name != CPU:
            stream, rows, products = gpu_rates()
            return cls(bytes_per_second=stream, row_bytes_per_second=rows, flops_per_second=products)
        return cls(
            bytes_per_second=stream_bandwidth(),
            row_bytes_per_second=row_bandwidth(),
            flops_per_second=product_rate(),
        )


def gpu_rates() -> tuple[float, float, float]:
    """Measure a GPU's bytes per second in a stream and in scattered rows, and its float32 operations per second.

    The same work as on a CPU: a triad, a random half of the rows of three matrices, and a square product.
    """
    import torch

    device, elements, columns, square = torch.device("cuda"), 2**28, 128, 8192

    def seconds(work: Callable[[], Any]) -> float:
        found = []
        for _ in range(_BEST_OF + 1):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            work()
            end.record()
            end.synchronize()
            found.append(begin.elapsed_time(end) / 1000)
        return min(found[1:])

    a, b, c = (torch.full((elements,), value, dtype=torch.float32, device=device) for value in (0, 1, 2))
    stream = 12 * elements / seconds(lambda: torch.add(b, c, alpha=3, out=a))
    matrices = [part.view(-1, columns) for part in (a, b, c)]
    rows = torch.randperm(len(matrices[0]), device=device)[: len(matrices[0]) // 2].sort().values

    def visit() -> None:
        for matrix in matrices:
            matrix[rows] = matrix[rows].mul_(0.5)

    # Each row is read, written to a copy, read from it and written back: six times in all, with the multiplication.
    scattered = 6 * 3 * 4 * columns * len(rows) / seconds(visit)
    left, right = (part[: square**2].view(square, square) for part in (a, b))
    return stream, scattered, 2 * square**3 / seconds(lambda: torch.mm(left, right))

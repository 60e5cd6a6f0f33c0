"""Measure how much of the machine other processes take, beside whose work no timing is valid."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_STAT = Path("/proc/stat")
_TICK = 1 / os.sysconf("SC_CLK_TCK")  # seconds


@dataclass(frozen=True, kw_only=True)
class Taken:
    """Hold processor time in seconds, summed over all cores.

    ``machine``: what passed, busy or not. ``others``: what other processes took, ``stolen`` included, which the host of
    a virtual machine gave to others.
    """

    machine: float = 0.0
    others: float = 0.0
    stolen: float = 0.0


@dataclass(frozen=True, kw_only=True)
class _Moment:
    """What the counters show: all times in seconds."""

    wall: float
    cores: int
    busy: float
    stolen: float
    own: float


class Company:
    """Count what other processes took since this object was made, or since ``taken`` was last asked.

    A timing taken while others use the cores is not valid.
    """

    def __init__(self, together: Callable[[float], float] = lambda own: own) -> None:
        self._together = together  # sums the time of the processes here that belong to one run
        self._begin = self._now()

    def _now(self) -> _Moment | None:
        try:
            lines = _STAT.read_text().splitlines()
        except OSError:
            return None
        # user, nice, system, (idle, iowait,) irq, softirq, steal: the time that a virtual machine's host takes counts.
        ticks = [int(field) for field in lines[0].split()[1:]]
        children = os.times()  # those that ended, such as compilers
        return _Moment(
            wall=time.perf_counter(),
            cores=sum(line.startswith("cpu") for line in lines) - 1,
            busy=(sum(ticks[:3]) + sum(ticks[5:8])) * _TICK,
            stolen=ticks[7] * _TICK,
            own=self._together(time.process_time() + children.children_user + children.children_system),
        )

    def cores(self) -> float | None:
        """Return the mean number of cores busy with other processes (0 or more); None where the system does not say."""
        end = self._now()
        if self._begin is None or end is None:
            return None
        others = (end.busy - self._begin.busy) - (end.own - self._begin.own)
        return max(0.0, others) / max(end.wall - self._begin.wall, 1e-9)

    def taken(self) -> Taken:
        """Return what was taken, and count from now on; zeros where the system does not say.

        The system counts in ticks, so that others are said to take less by what its rounding may be.
        """
        begin, self._begin = self._begin, self._now()
        if begin is None or self._begin is None:
            return Taken()
        others = (self._begin.busy - begin.busy) - (self._begin.own - begin.own)
        rounding = _TICK * self._begin.cores
        return Taken(
            machine=(self._begin.wall - begin.wall) * self._begin.cores,
            others=max(0.0, others - rounding),
            stolen=max(0.0, self._begin.stolen - begin.stolen),
        )

"""Join the processes that torchrun started for one run, and let them end together with one line.

Each process, a *rank*, is told by the environment who it is (``RANK``, ``WORLD_SIZE``, ``MASTER_ADDR``...). Ranks meet
at a store of torch.distributed before anything is read: who is missing, or is of another version, is named there. When
one rank ends, the others learn it from their next collective operation, and the first to notice says who it was.
"""

import hashlib
import io
import json
import os
import platform
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from importlib.metadata import version
from typing import Any

from runner import NUMBERS, __version__
from runner.errors import ConfigError, RunnerError
from runner.home import REPOSITORY

_LOOK_SECONDS = 3.0  # how long a rank waits for signs of life before it says who is missing


@dataclass(frozen=True, kw_only=True)
class Place:
    """Name one process of a run: ``rank`` of ``size``; ``here`` of them share its machine, where it is ``local``."""

    rank: int = 0
    size: int = 1
    here: int = 1
    local: int = 0

    @classmethod
    def of_environment(cls) -> "Place":
        """Return the place that torchrun gave to this process; without it, the only one. Raises ConfigError."""
        rank, size = _number("RANK"), _number("WORLD_SIZE")
        if rank is None or size is None or size == 1:
            return cls()
        if not 0 <= rank < size:
            raise ConfigError(f"RANK={rank} is not a place among WORLD_SIZE={size} processes; start them by torchrun")
        return cls(rank=rank, size=size, here=_number("LOCAL_WORLD_SIZE") or 1, local=_number("LOCAL_RANK") or 0)

    @property
    def leads(self) -> bool:
        """Tell whether this process writes the run folder and prints."""
        return self.rank == 0


def _number(name: str) -> int | None:
    value = os.environ.get(name, "")
    return int(value) if value.isdecimal() else None


class Group:
    """Be the ranks of a run, which meet at a store. Only ``runner.output.ranks`` passes numbers between them."""

    def __init__(self, place: Place, store: Any, timeout: float) -> None:
        self.place, self.store, self.timeout = place, store, timeout
        self._ended = False

    def require_same(self, what: str, mine: Mapping[str, Any]) -> None:
        """Raise RunnerError unless all ranks bring the same values under the same names; the line names a difference.

        It is the meeting of all ranks: each waits for all others, at most the time limit.
        """
        key, rank, size = f"same/{what}", self.place.rank, self.place.size
        self.store.set(f"{key}/{rank}", json.dumps(dict(mine), sort_keys=True))
        keys = [f"{key}/{other}" for other in range(size)]
        self._wait_for(keys, what)
        first = json.loads(self.store.get(keys[0]))
        for other in range(1, size):
            theirs = json.loads(self.store.get(keys[other]))
            for name in first:
                if theirs.get(name) != first[name]:
                    raise RunnerError(
                        f"rank {other} has {name} {theirs.get(name)}, but rank 0 has {first[name]}; all ranks must have"
                        " the same"
                    )

    def _wait_for(self, keys: list[str], what: str) -> None:
        try:
            self.store.wait(keys, timedelta(seconds=self.timeout))
        except RuntimeError:
            missing = [rank for rank, key in enumerate(keys) if not self._has(key)]
            if said := self._said():
                raise RanksLost(said) from None
            raise RanksLost(
                f"{_ranks(missing)} of {self.place.size} did not come to {what} within"
                f" {self.timeout:g} s (hardware.timeout)"
            ) from None

    def wait_for_leader(self, what: str, seconds: float) -> None:
        """Wait until rank 0 has called ``leader_did``: what it does for all may take longer than the time limit."""
        until = time.monotonic() + seconds
        while not self._has(f"did/{what}"):
            if said := self._said():
                raise RanksLost(said)
            if time.monotonic() > until:
                raise RanksLost(f"rank 0 did not end {what} within {seconds:g} s")
            time.sleep(0.1)

    def leader_did(self, what: str) -> None:
        """Tell the other ranks that rank 0 ended some work."""
        self.store.set(f"did/{what}", "1")

    def lost(self, error: Exception) -> "RanksLost":
        """Return in one line who is missing after a collective operation failed, and why if it said so."""
        rank, size = self.place.rank, self.place.size
        with suppress(RuntimeError):
            self.store.set(f"alive/{rank}", "1")
            until = time.monotonic() + _LOOK_SECONDS
            while time.monotonic() < until:
                if said := self._said():
                    return RanksLost(said)
                if all(self._has(f"alive/{other}") for other in range(size)):
                    break
                time.sleep(0.05)
            gone = [other for other in range(size) if not self._has(f"alive/{other}")]
            if gone:
                slow = "imed out" in str(error)
                how = f"did not answer for {self.timeout:g} s (hardware.timeout)" if slow else "ended"
                return RanksLost(f"{_ranks(gone)} of {size} {how}; {_AGAIN}")
        return RanksLost(f"the ranks lost each other ({' '.join(str(error).split())[:120]}); {_AGAIN}")

    def _has(self, key: str) -> bool:
        return bool(self.store.check([key]))

    def _said(self) -> str:
        """Return the error that another rank ended with, if one said so."""
        with suppress(RuntimeError):
            if self._has("said"):
                return str(self.store.get("said").decode())
        return ""

    def first_to_end(self, why: str) -> bool:
        """Tell whether this rank is the first that ends with an error; the others then end without a word."""
        if self._ended:
            return False
        self._ended = True
        with suppress(RuntimeError):
            first = self.store.add("ends", 1) == 1
            if first:
                who = "" if self.place.leads else f"rank {self.place.rank}: "
                self.store.set("said", f"{who}{why}")
            return first
        return self.place.leads  # the store is gone, and with it what would tell


_AGAIN = "the same command goes on from the last checkpoint"


class RanksLost(RunnerError):
    """Another rank ended, or did not answer."""


def _ranks(ranks: list[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


_GROUP: Group | None = None
_STDERR = sys.stderr


def meet(timeout: float) -> Group | None:
    """Join the ranks of this run, once; return None if this process is the only one.

    Ranks other than 0 print nothing from here on but the error that ends the run. Raises RunnerError, in one line, if
    a rank is missing or has other code, and ConfigError.
    """
    global _GROUP
    place = Place.of_environment()
    if place.size == 1 or _GROUP is not None:
        return _GROUP
    import torch.distributed as dist

    host, port = os.environ.get("MASTER_ADDR", ""), _number("MASTER_PORT")
    if not host or port is None:
        raise ConfigError("MASTER_ADDR and MASTER_PORT say where the ranks meet; start them by torchrun")
    hosts = place.leads and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    try:
        store = dist.TCPStore(
            host, port, place.size, is_master=hosts, timeout=timedelta(seconds=timeout), wait_for_workers=False
        )
    except RuntimeError as error:
        why = "is in use" if "in use" in str(error) else "cannot be reached"
        raise RunnerError(f"the ranks cannot meet: {host}:{port} (MASTER_ADDR, MASTER_PORT) {why}") from None
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    _GROUP = Group(place, dist.PrefixStore(f"runner/{attempt}", store), timeout)
    if not place.leads:
        sys.stdout = sys.stderr = _Nowhere()
    _GROUP.require_same("the start", _program())
    return _GROUP


class _Nowhere(io.TextIOBase):
    """Be where the words of all ranks but the first go."""

    def write(self, text: str) -> int:
        return len(text)


def _program() -> dict[str, Any]:
    """Return what decides the bits of a step and may differ from machine to machine."""
    digest = hashlib.sha256()
    package = REPOSITORY / "runner"
    for path in sorted(package.rglob("*.py")):
        digest.update(str(path.relative_to(package)).encode())
        digest.update(path.read_bytes())
    libraries = {name: version(name) for name in ("torch", "numpy", "numba")}
    return {
        "runner": __version__, "numbers": NUMBERS, "code": digest.hexdigest()[:12],
        "Python": platform.python_version(), **libraries,
    }  # fmt: skip


@contextmanager
def speaking(why: str) -> Iterator[str]:
    """Let only the first rank that ends with an error print it; give the words that name it, empty for rank 0."""
    before = sys.stderr
    try:
        if _GROUP is not None:
            sys.stderr = _STDERR if _GROUP.first_to_end(why) else _Nowhere()
        elif not Place.of_environment().leads:
            sys.stderr = _Nowhere()
        rank = 0 if _GROUP is None else _GROUP.place.rank
        yield f"rank {rank}: " if rank and not why.startswith("rank") else ""
    finally:
        sys.stderr = before


def leave(status: int) -> None:
    """End a rank at once: threads that wait for other ranks would turn an orderly end into a crash."""
    if _GROUP is not None and status:
        for stream in (sys.stdout, _STDERR):
            stream.flush()
        os._exit(status)

"""Join the processes that torchrun started for one run, and let them end together with one line.

Each process, a *rank*, is told by the environment who it is (``RANK``, ``WORLD_SIZE``, ``MASTER_ADDR``...). Ranks meet
at a store of torch.distributed before anything is read: who is missing, or is of another version, is named there. When
one rank ends, the others learn it from their next collective operation, and the first to notice says who it was. A
rank that lives may wait for one that has noticed and left: so each rank shows that it lives by a thread, its *pulse*.
"""

import atexit
import hashlib
import io
import json
import os
import platform
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from importlib.metadata import version
from typing import Any

from runner import NUMBERS, __version__
from runner.errors import ConfigError, Diverged, RunnerError
from runner.home import REPOSITORY

_BEAT_SECONDS = 0.25  # from one sign of life to the next
_LOOK_SECONDS = 4.0  # how long a rank waits for signs of life before it says who is missing
_SPEAK_SECONDS = 5.0  # how long a rank that says nothing waits for the one that speaks


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
        self._ended, self._speaks = False, place.leads

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
            if ended := self._ended_with():
                raise ended from None
            raise RanksLost(
                f"{_ranks(missing)} of {self.place.size} did not come to {what} within"
                f" {self.timeout:g} s (hardware.timeout)"
            ) from None

    def wait_for_leader(self, what: str, seconds: float) -> None:
        """Wait until rank 0 has called ``leader_did``: what it does for all may take longer than the time limit."""
        until = time.monotonic() + seconds
        while not self._has(f"did/{what}"):
            if ended := self._ended_with():
                raise ended
            if time.monotonic() > until:
                raise RanksLost(f"rank 0 did not end {what} within {seconds:g} s")
            time.sleep(0.1)

    def leader_did(self, what: str) -> None:
        """Tell the other ranks that rank 0 ended some work."""
        self.store.set(f"did/{what}", "1")

    def lost(self, error: Exception) -> RunnerError:
        """Return in one line who is missing after a collective operation failed, and why if it said so.

        It is Diverged if that was why.
        """
        rank, size = self.place.rank, self.place.size
        with suppress(RuntimeError):
            self.store.set(f"noticed/{rank}", "1")
            before = [self._beats(other) for other in range(size)]
            slow = "imed out" in str(error)
            until = time.monotonic() + _LOOK_SECONDS
            while True:
                if ended := self._ended_with():
                    return ended
                waiting = [other for other in range(size) if not self._has(f"noticed/{other}")]
                # One beat may have been on its way while its rank ended.
                silent = [other for other in waiting if self._beats(other) < before[other] + 2]
                if not (waiting if slow else silent) or time.monotonic() > until:
                    break
                time.sleep(0.05)
            if silent or (slow and waiting):
                how = f"did not answer for {self.timeout:g} s (hardware.timeout)" if slow else "ended"
                return RanksLost(f"{_ranks(silent or waiting)} of {size} {how}; {_AGAIN}")
        return RanksLost(f"the ranks lost each other ({' '.join(str(error).split())[:120]}); {_AGAIN}")

    def beat(self) -> None:
        """Show that this rank lives."""
        self.store.add(f"beats/{self.place.rank}", 1)

    def _beats(self, rank: int) -> int:
        return int(self.store.add(f"beats/{rank}", 0))

    def _has(self, key: str) -> bool:
        return bool(self.store.check([key]))

    def _ended_with(self) -> RunnerError | None:
        """Return the error that another rank ended with, if one said so."""
        with suppress(RuntimeError):
            for kind in (Diverged, RanksLost):
                if self._has(kind.__name__):
                    return kind(self.store.get(kind.__name__).decode())
        return None

    def first_to_end(self, why: str, *, diverged: bool = False) -> bool:
        """Tell whether this rank is the first that ends with an error; the others then end without a word.

        ``diverged``: the error is that training diverged, which ends the others' training in the same way.
        """
        if self._ended:
            return False
        self._ended = True
        with suppress(RuntimeError):  # if the store is gone, and with it what would tell, rank 0 speaks
            self._speaks = self.store.add("ends", 1) == 1
            if self._speaks:
                who = "" if self.place.leads else f"rank {self.place.rank}: "
                self.store.set((Diverged if diverged else RanksLost).__name__, f"{who}{why}")
        return self._speaks

    def let_speak(self) -> None:
        """Return when the rank that speaks for all has spoken and written; call it when this one has nothing to add."""
        with suppress(RuntimeError):
            if self._speaks:
                self.store.set("spoken", "1")
            until = time.monotonic() + _SPEAK_SECONDS
            while not self._has("spoken") and time.monotonic() < until:
                time.sleep(0.02)


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
    limit = timedelta(seconds=timeout)
    if not host or port is None:
        raise ConfigError("MASTER_ADDR and MASTER_PORT say where the ranks meet; start them by torchrun")
    hosts = place.leads and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    try:
        store = dist.TCPStore(host, port, place.size, is_master=hosts, timeout=limit, wait_for_workers=False)
        # The pulse has a connection of its own, because who waits for a key keeps the other one busy.
        own = dist.TCPStore(host, port, place.size, is_master=False, timeout=limit, wait_for_workers=False)
    except RuntimeError as error:
        why = "is in use" if "in use" in str(error) else "cannot be reached"
        raise RunnerError(f"the ranks cannot meet: {host}:{port} (MASTER_ADDR, MASTER_PORT) {why}") from None
    prefix = f"runner/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
    _GROUP = Group(place, dist.PrefixStore(prefix, store), timeout)
    _beat_always(Group(place, dist.PrefixStore(prefix, own), timeout))
    if not place.leads:
        sys.stdout = sys.stderr = _Nowhere()
    _GROUP.require_same("the start", _program())
    return _GROUP


def _beat_always(group: Group) -> None:
    """Beat in a thread until the process ends or the store is gone."""
    ends = threading.Event()

    def beat() -> None:
        with suppress(RuntimeError):
            while not ends.wait(_BEAT_SECONDS):
                group.beat()

    pulse = threading.Thread(target=beat, name="pulse", daemon=True)
    pulse.start()

    def end() -> None:  # a thread that is in the store while Python ends would crash
        ends.set()
        pulse.join(1.0)

    atexit.register(end)


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
def speaking(why: str, *, diverged: bool = False) -> Iterator[str]:
    """Let only the first rank that ends with an error print it; give the words that name it, empty for rank 0."""
    before = sys.stderr
    try:
        if _GROUP is not None:
            sys.stderr = _STDERR if _GROUP.first_to_end(why, diverged=diverged) else _Nowhere()
        elif not Place.of_environment().leads:
            sys.stderr = _Nowhere()
        rank = 0 if _GROUP is None else _GROUP.place.rank
        yield f"rank {rank}: " if rank and not why.startswith("rank") else ""
    finally:
        sys.stderr = before


def leave(status: int) -> None:
    """End a rank that failed at once: threads that wait for other ranks would turn an orderly end into a crash.

    torchrun ends all ranks when one ends, so those that say nothing let the one that speaks go first.
    """
    if _GROUP is not None and status:
        for stream in (sys.stdout, _STDERR):
            stream.flush()
        _GROUP.let_speak()
        os._exit(status)
    if status and _number("RANK") and (_number("WORLD_SIZE") or 1) > 1:  # not met yet: rank 0 finds the mistake too
        time.sleep(_SPEAK_SECONDS)

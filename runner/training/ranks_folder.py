"""Let several processes use one run folder: rank 0 writes it, and the others read what it holds."""

import os
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from runner.errors import require
from runner.output.across import Across
from runner.training.run_folder import LOCK, RunFolder

_SEEN_SECONDS = 10.0  # within which a file that rank 0 wrote is seen on other machines


class RanksFolder(RunFolder):
    """Be the run folder of a rank; every rank calls the same methods in the same order."""

    def __init__(self, path: Path, across: Across) -> None:
        super().__init__(path)
        self.across = across

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Let rank 0 lock the folder for all. Raises ConfigError on all ranks unless all of them see that folder."""
        if not self.across.leads:
            self.across.wait()
            self._require_shared()
            yield
            return
        with super().locked():
            self.across.wait()
            self._require_shared()
            yield

    def _require_shared(self) -> None:
        """Compare a random word that rank 0 writes into the lock's file with what each rank reads there."""
        word = str(self.across.leaders(np.array([secrets.randbits(62)], dtype=np.int64))[0])
        if self._lock is not None:
            self._lock.write(word)
            self._lock.flush()
            os.fsync(self._lock.fileno())
        until, sees = time.monotonic() + _SEEN_SECONDS, False
        while not sees and time.monotonic() < until:
            with suppress(OSError):
                sees = (self.path / LOCK).read_text() == word
            time.sleep(0 if sees else 0.02)
        blind = np.flatnonzero(~self.across.gather(np.array([sees]))[:, 0])
        require(
            not len(blind),
            f"results_dir: rank {', '.join(map(str, blind))} does not see the folder that rank 0 writes, {self.path};"
            " choose a folder that all machines share",
        )

    def start(self, config: Any) -> None:
        if self.across.leads:
            super().start(config)

    def clear(self) -> None:
        if self.across.leads:
            super().clear()
        self.across.wait()

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        if self.across.leads:
            super().write_summary(summary)

    def write_provenance(self, provenance: Mapping[str, Any], *, resumed: bool) -> None:
        if self.across.leads:
            super().write_provenance(provenance, resumed=resumed)

    def observe(self, record: Mapping[str, Any]) -> None:
        if self.across.leads:
            super().observe(record)

    def save_checkpoint(self, step: int, arrays: Mapping[str, Any], progress: Mapping[str, Any]) -> None:
        super().save_checkpoint(step, arrays, progress)
        self.across.wait()

    def drop_what_resumes(self) -> None:
        if self.across.leads:
            super().drop_what_resumes()

    def _forget_after(self, size: int, damaged: list[Any]) -> None:
        self.across.wait()  # until all have read what is deleted now
        if self.across.leads:
            super()._forget_after(size, damaged)
        self.across.wait()

    def _drop_older(self, place: Path, target: Path) -> None:
        self.across.wait()
        if self.across.leads:
            super()._drop_older(place, target)

"""Let several processes use one run folder: rank 0 writes it, and the others read what it holds."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from runner.output.across import Across
from runner.training.run_folder import RunFolder


class RanksFolder(RunFolder):
    """Be the run folder of a rank; every rank calls the same methods in the same order."""

    def __init__(self, path: Path, across: Across) -> None:
        super().__init__(path)
        self.across = across

    @contextmanager
    def locked(self) -> Iterator[None]:
        if not self.across.leads:
            self.across.wait()
            yield
            return
        with super().locked():
            self.across.wait()
            yield

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

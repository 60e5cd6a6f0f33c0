"""Runs that differ in nothing but the seed: their status, and the mean and deviation of a number of each."""

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from runner.report.numbers.records import BUSY, FINISHED, MIXTURE, RunRecord, record_of
from runner.report.spec.grids import PlannedRun


@dataclass(frozen=True)
class Numbers:
    """A number of each run of a group."""

    each: tuple[float, ...]

    @property
    def mean(self) -> float:
        return statistics.fmean(self.each) if self.each else float("nan")

    @property
    def deviation(self) -> float:
        """The standard deviation over the seeds; nan of one seed."""
        return statistics.stdev(self.each) if len(self.each) > 1 else float("nan")


@dataclass(frozen=True, kw_only=True)
class Group:
    """Runs that differ in nothing but the seed, in the order of seeds as they were planned or found."""

    records: tuple[RunRecord, ...]

    @classmethod
    def of_plan(cls, runs: Iterable[PlannedRun]) -> Self:
        return cls(records=tuple(map(record_of, runs)))

    @property
    def finished(self) -> bool:
        """Whether all runs are."""
        return all(record.finished for record in self.records)

    @property
    def status(self) -> str:
        """The first status of a run that is not finished; if all are, what is wrong with their seconds is added."""
        unfinished = [record.status for record in self.records if not record.finished]
        if unfinished:
            return unfinished[0]
        if self.why_no_mean:
            return f"{FINISHED}; {self.why_no_mean}"
        at_once = max(record.parallel_jobs for record in self.records)
        return FINISHED if at_once == 1 else f"{FINISHED}, {at_once} runs at once, whose seconds are longer"

    @property
    def why_no_mean(self) -> str:
        """Why there is no mean of the runs' seconds: they are of several machines, or of one that others used."""
        found = [record.why_no_seconds for record in self.records]
        return next((why for why in found if why in (MIXTURE, BUSY)), "")

    @property
    def short_ids(self) -> str:
        """The ends of the run ids, with spaces between."""
        return " ".join(record.short_id for record in self.records)

    def numbers(self, of: Callable[[RunRecord], float]) -> Numbers:
        """Return a number of each run."""
        return Numbers(tuple(of(record) for record in self.records))


def of_seeds(reasons: Sequence[str]) -> str:
    """Return the first of the reasons why runs of a group have no number, one for each run, and how many have one.

    An empty text is none. Without any, the text is empty.
    """
    found = [reason for reason in reasons if reason]
    if len(found) in (0, len(reasons)):
        return found[0] if found else ""
    return f"{found[0]} ({len(found)} of {len(reasons)} seeds)"

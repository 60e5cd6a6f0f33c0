"""Runs that differ in nothing but the seed: their status, and the mean and deviation of a number of each.

Settings do not tell all: the data may have changed between two seeds, or the sources of a plugin, or what the runner
makes of the same settings. Such runs are not pooled (``Origins``).
"""

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from runner.report.numbers.records import BUSY, DATA, FINISHED, MIXTURE, OTHER_DATA, RunRecord, record_of
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
    def made(self) -> tuple[RunRecord, ...]:
        """The runs that are finished, whose numbers count."""
        return tuple(record for record in self.records if record.finished)

    @property
    def status(self) -> str:
        """The first status of a run that is not finished, and of how many seeds; if all are, what is wrong with their
        seconds is added."""
        if unfinished := of_seeds(["" if record.finished else record.status for record in self.records]):
            return unfinished
        if self.why_no_mean:
            return f"{FINISHED}; {self.why_no_mean}"
        at_once = max(record.parallel_jobs for record in self.records)
        return FINISHED if at_once == 1 else f"{FINISHED}, {at_once} runs at once, whose seconds are longer"

    @property
    def seeds(self) -> int | str:
        """How many runs there are, or of which part of them the numbers are: ``2 of 3``."""
        made, all_of_them = len(self.made), len(self.records)
        return all_of_them if made in (0, all_of_them) else f"{made} of {all_of_them}"

    @property
    def why_no_mean(self) -> str:
        """Why there is no mean of the finished runs' seconds: they are of several machines, or of one others used."""
        found = [record.why_no_seconds for record in self.made]
        return next((why for why in found if why in (MIXTURE, BUSY)), "")

    @property
    def short_ids(self) -> str:
        """The ends of the run ids, with spaces between."""
        return " ".join(record.short_id for record in self.records)

    def numbers(self, of: Callable[[RunRecord], float]) -> Numbers:
        """Return a number of each finished run."""
        return Numbers(tuple(of(record) for record in self.made))


class Origins:
    """Know what tells runs apart besides settings: their data, the sources of plugins, and the runner's numbers.

    Data tell runs apart only if the same settings of the data set stand for several. What a run of an earlier version
    did not store is unknown, which tells it apart only from runs that differ among each other.
    """

    def __init__(self, records: Sequence[RunRecord]) -> None:
        origins = [record.origin for record in records]
        found: dict[str, set[str]] = {}
        for origin in origins:
            for key, value in origin.items():
                found.setdefault(key, set()).add(value)
        data: dict[str, set[str]] = {}
        for record in records:
            if checksum := record.origin.get(DATA):
                data.setdefault(repr(record.config.get("dataset")), set()).add(checksum)
        found[DATA] = max(data.values(), key=len, default=set())
        self._telling = [key for key, values in found.items() if len(values) > 1]

    def text(self, record: RunRecord) -> str:
        """Return what tells a run apart, as settings are written: ``data=1b2c3d4e``; empty if nothing does."""
        return " ".join(f"{key}={record.origin.get(key, 'unknown')}" for key in self._telling)


def of_other_data(records: Iterable[RunRecord]) -> dict[str, str]:
    """Return, by run id, the status of finished runs that were made on other data than most of the same data set."""
    made = [record for record in records if record.finished and DATA in record.origin]
    counts: dict[str, Counter[str]] = {}
    for record in made:
        counts.setdefault(repr(record.config.get("dataset")), Counter())[record.origin[DATA]] += 1
    usual = {dataset: found.most_common(1)[0][0] for dataset, found in counts.items()}
    return {
        record.run_id: OTHER_DATA for record in made if record.origin[DATA] != usual[repr(record.config.get("dataset"))]
    }


def of_seeds(reasons: Sequence[str]) -> str:
    """Return the first of the reasons why runs of a group have no number, one for each run, and how many have one.

    An empty text is none. Without any, the text is empty.
    """
    found = [reason for reason in reasons if reason]
    if len(found) in (0, len(reasons)):
        return found[0] if found else ""
    return f"{found[0]} ({len(found)} of {len(reasons)} seeds)"

"""When each method first reaches a level: a share of the quality that full softmax, or the best of all, ends with.

This is the one place that says what a level is and when it is reached. Columns of numbers, tables of levels, their
figures, and the tables of README.md and docs/results.md all ask it. It computes from the points of a figure of curves
(``figures.data.figure_data``), so that a committed CSV serves as well as the run folders behind it.

Legend: E evaluations of a run.
"""

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import pandas as pd

from runner.contracts import Measure
from runner.report.numbers.records import FINISHED

PERCENTS = (80, 90, 95, 98, 100)
NEVER = "never"
NO_BASELINE = "baseline not run"
NO_SECONDS = "no seconds"

Cost = Literal["seconds", "steps", "examples"]
Goal = Literal["full", "all"]
COSTS: tuple[Cost, ...] = ("seconds", "steps", "examples")
GOALS: tuple[Goal, ...] = ("full", "all")


def level(best: float, percent: float, *, higher_is_better: bool) -> float:
    """Return the level that is a share of the best.

    What is better the lower it is exceeds the best by what the share lacks: 90 % of perplexity 100 is 110.
    """
    return best * (percent if higher_is_better else 200 - percent) / 100


def first_reaching(curve: Iterable[tuple[float, float]], goal: float, *, higher_is_better: bool) -> float | None:
    """Return the cost at the first evaluation, (cost, value), that is as good as the goal; None if none is."""
    return next((cost for cost, value in curve if (value >= goal if higher_is_better else value <= goal)), None)


def metric_name(cost: Cost, percent: int, goal: Goal = "full") -> str:
    """Return the name of a level's column in CSV files, such as ``seconds_to_90pct`` or ``steps_to_98pct_of_all``."""
    return f"{cost}_to_{percent}pct" + ("_of_all" if goal == "all" else "")


class Reached(NamedTuple):
    """What a method paid until it reached a level, one number for each seed, or why there is no number.

    ``reached``: how many of its ``seeds`` got there.
    """

    each: tuple[float, ...]
    status: str
    reached: int
    seeds: int

    @property
    def mean(self) -> float:
        """The mean over seeds; nan if there is no number."""
        return statistics.fmean(self.each) if self.each else math.nan

    @property
    def deviation(self) -> float:
        """The standard deviation over seeds; nan of one seed."""
        return statistics.stdev(self.each) if len(self.each) > 1 else math.nan


@dataclass(frozen=True, kw_only=True)
class Courses:
    """How the runs of one data set went.

    ``points`` has a row for each evaluation, in the order of training, with the columns method, seed, run_id, epoch,
    step, train_seconds (nan where seconds do not count) and value, as stored. ``statuses`` has all planned runs, by
    method and seed: FINISHED, or why there is no course. ``measure`` and ``metric`` say what the values are.
    ``examples_per_step`` and ``unit`` are those of the baseline's steps.
    """

    dataset: str
    baseline: str
    metric: str
    measure: Measure
    points: pd.DataFrame
    statuses: Mapping[tuple[str, int], str]
    examples_per_step: int
    unit: str

    @property
    def methods(self) -> list[str]:
        """The methods that are planned here, in the order of the grid."""
        return list(dict.fromkeys(method for method, _ in self.statuses))

    def seeds(self, method: str) -> list[int]:
        """Return the seeds that are planned of a method."""
        return [seed for name, seed in self.statuses if name == method]

    @cached_property
    def courses(self) -> dict[tuple[str, int], pd.DataFrame]:
        """The evaluations of each finished run."""
        keys = [
            (str(method), int(seed)) for method, seed in zip(self.points["method"], self.points["seed"], strict=True)
        ]
        rows: dict[tuple[str, int], list[int]] = {}
        for row, key in zip(self.points.index, keys, strict=True):
            rows.setdefault(key, []).append(int(row))
        return {key: self.points.loc[mine] for key, mine in rows.items()}

    def run_ids(self, method: str) -> list[str]:
        """Return the ids of a method's finished runs, in the order of seeds."""
        found = (self.courses.get((method, seed)) for seed in self.seeds(method))
        return [str(course["run_id"].iloc[0]) for course in found if course is not None]

    # ------------------------------------------------------------ levels

    @cached_property
    def bests(self) -> dict[tuple[str, int], float]:
        """The best value of each run, of evaluations at the end of an epoch and the last one.

        These are the evaluations that weights are kept by. Those at moments of the clock differ from run to run.
        """
        pick = max if self.measure.higher_is_better else min
        found = {}
        for key, course in self.courses.items():
            whole_E = course["epoch"] == course["epoch"].round()
            whole_E.iloc[-1] = True
            found[key] = float(pick(course["value"][whole_E]))
        return found

    @cached_property
    def best_method(self) -> str:
        """The method whose best values have the best mean over seeds, of those that finished with every seed."""
        pick = max if self.measure.higher_is_better else min
        means = {
            method: statistics.fmean(self.bests[method, seed] for seed in self.seeds(method))
            for method in self.methods
            if all((method, seed) in self.bests for seed in self.seeds(method))
        }
        return pick(means, key=means.__getitem__) if means else self.baseline

    @cached_property
    def goals(self) -> dict[Goal, dict[int, float]]:
        """By seed, the best value of the baseline and that of the best method."""
        names: dict[Goal, str] = {"full": self.baseline, "all": self.best_method}
        return {
            goal: {seed: best for (method, seed), best in self.bests.items() if method == name}
            for goal, name in names.items()
        }

    @cached_property
    def examples_per_epoch(self) -> float:
        """The examples of an epoch, by the baseline's steps; nan without its runs."""
        found = [course for (method, _), course in self.courses.items() if method == self.baseline]
        if not found:
            return math.nan
        last = found[0].iloc[-1]
        return float(last["step"] / last["epoch"]) * self.examples_per_step

    def reached(self, method: str, cost: Cost, percent: int, goal: Goal = "full") -> Reached:
        """Return what the method's runs paid until they reached a level."""
        seeds = self.seeds(method)
        if unfinished := [why for seed in seeds if (why := self.statuses[method, seed]) != FINISHED]:
            return Reached((), _of_seeds(unfinished, len(seeds)), 0, len(seeds))
        if any(seed not in self.goals[goal] for seed in seeds):
            return Reached((), NO_BASELINE, 0, len(seeds))
        found = [first for seed in seeds if (first := self._first(method, seed, percent, goal)) is not None]
        if len(found) < len(seeds):
            return Reached((), f"{NEVER} ({len(found)} of {len(seeds)})", len(found), len(seeds))
        paid = tuple(self._paid(first, cost) for first in found)
        if any(math.isnan(number) for number in paid):
            return Reached((), NO_SECONDS, len(found), len(seeds))
        return Reached(paid, FINISHED, len(found), len(seeds))

    def _first(self, method: str, seed: int, percent: int, goal: Goal) -> int | None:
        """Return the row of the first evaluation of a run that reaches a level; None if none does."""
        rising = self.measure.higher_is_better
        aim = level(self.goals[goal][seed], percent, higher_is_better=rising)
        value_E = self.courses[method, seed]["value"]
        found = first_reaching(zip(value_E.index, value_E, strict=True), aim, higher_is_better=rising)
        return None if found is None else int(found)

    def _paid(self, row: int, cost: Cost) -> float:
        column = {"seconds": "train_seconds", "steps": "step", "examples": "epoch"}[cost]
        seen = float(self.points[column].loc[row])
        return seen * self.examples_per_epoch if cost == "examples" else seen

    @cached_property
    def clock(self) -> Cost:
        """What methods are compared by: seconds, or steps if no run has seconds that count."""
        return "seconds" if self.points["train_seconds"].notna().any() else "steps"

    def ranking(self, percent: int, goal: Goal = "full", cost: Cost | None = None) -> list[tuple[str, Reached]]:
        """Return the methods that reached a level with every seed, and what they paid, which is least of the first.

        Without a cost it is that of ``clock``.
        """
        found = [(method, self.reached(method, cost or self.clock, percent, goal)) for method in self.methods]
        return sorted(((method, paid) for method, paid in found if paid.each), key=lambda item: item[1].mean)


def _of_seeds(reasons: Sequence[str], seeds: int) -> str:
    return reasons[0] if len(reasons) == seeds else f"{reasons[0]} ({len(reasons)} of {seeds} seeds)"


def as_frame(table: str, found: Iterable[Courses]) -> pd.DataFrame:
    """Return every level of every method, a row each, with the names of columns that tables of numbers have."""
    return pd.DataFrame(row for courses in found for row in _rows(table, courses))


def _rows(table: str, courses: Courses) -> Iterator[dict[str, object]]:
    for method in courses.methods:
        for goal in GOALS:
            for cost in COSTS:
                for percent in PERCENTS:
                    paid = courses.reached(method, cost, percent, goal)
                    yield {
                        "table": table,
                        "dataset": courses.dataset,
                        "method": method,
                        "metric": metric_name(cost, percent, goal),
                        "unit": {"seconds": "s", "steps": "", "examples": courses.unit}[cost],
                        "ours": paid.mean,
                        "deviation": paid.deviation,
                        "status": paid.status,
                        "reached": paid.reached,
                        "seeds": paid.seeds,
                        "run_ids": " ".join(courses.run_ids(method)),
                    }

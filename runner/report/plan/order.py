"""Order the runs of a plan so that tables are ready as soon as may be, and tell which are."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from runner.report.plan.plan import Step
from runner.report.spec.grids import Grid, expand


class Waiting:
    """The runs that each grid still waits for.

    A grid of which nothing was run and nothing can be, because its data are missing, is never ready.
    """

    def __init__(self, grids: Iterable[Grid], steps: Sequence[Step], profile: str, results_dir: Path) -> None:
        self._steps = {step.run.run_id: step for step in steps}
        self._runs: dict[Grid, set[str]] = {}
        self._shown: set[Grid] = set()
        for grid in dict.fromkeys(grids):
            mine = [self._steps[run.run_id] for run in expand(grid, profile, results_dir)]
            self._runs[grid] = {step.run.run_id for step in mine if step.is_pending}
            if any(step.is_pending or step.is_made for step in mine):
                self._shown.add(grid)

    def is_over_for(self, step: Step) -> None:
        """Note that nobody waits for the step any more, whatever came out of it."""
        for runs in self._runs.values():
            runs.discard(step.run.run_id)

    @property
    def ready(self) -> set[Grid]:
        """The grids that wait for nothing."""
        return {grid for grid in self._shown if not self._runs[grid]}

    def soonest_first(self) -> list[Step]:
        """Return the steps in an order that readies one grid after the other, each time the one that takes least.

        Runs that a grid shares with earlier ones take it no time. Those of unknown length come last.
        """
        left = {grid: set(runs) for grid, runs in self._runs.items()}
        order: dict[str, Step] = {}
        while left:
            grid = min(left, key=lambda grid: sum(self._seconds(run) for run in left[grid] - order.keys()))
            wanted = left.pop(grid)
            order |= {run_id: step for run_id, step in self._steps.items() if run_id in wanted}
        return [*order.values(), *(step for run_id, step in self._steps.items() if run_id not in order)]

    def _seconds(self, run_id: str) -> float:
        seconds = self._steps[run_id].seconds
        return math.inf if seconds is None else seconds

"""Curves of runs that the clock evaluated: seeds are measured at different steps, and the mean spans them all."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from runner.report.figures.curves import Alike, mean_curve
from runner.report.figures.style import look_of_value
from runner.report.numbers.records import record_of
from runner.report.spec.grids import PlannedRun
from runner.report.spec.tables import TableSpec

Write = Callable[..., Path]


@pytest.fixture
def measured(
    toy: dict[str, TableSpec], planned: Callable[..., list[PlannedRun]], write_run: Write
) -> Callable[..., Alike]:
    """Write two seeds' runs, each with P@1 at (epoch, seconds)."""

    def write(*seeds: list[tuple[float, float, float]]) -> Alike:
        runs = [run for run in planned(toy["curves"].grid, "medium") if run.method == "full"]
        for run, points in zip(runs, seeds, strict=True):
            folder = write_run(run, [0.5])
            lines = [
                {
                    "kind": "evaluation", "step": int(100 * epoch), "epoch": epoch, "train_seconds": seconds,
                    "test_subset/p@1": value,
                }
                for epoch, seconds, value in points
            ]  # fmt: skip
            (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        return Alike(label="Full", method="full", records=tuple(map(record_of, runs)), look=look_of_value(0, 2))

    return write


def test_seeds_are_interpolated_where_the_clock_chose_the_moments(measured: Callable[..., Alike]) -> None:
    line = measured(
        [(0.1, 1.0, 0.0), (0.2, 2.0, 0.2), (0.4, 4.0, 0.4), (1.0, 10.0, 0.4)],
        [(0.2, 1.5, 0.1), (0.3, 3.0, 0.4), (0.5, 5.0, 0.6), (1.0, 9.0, 0.6)],
    )
    curve = mean_curve(line, "seconds", "test_subset/p@1", 1)
    assert curve.cost_E.tolist() == [2, 4], "those of the first seed that both seeds span"
    np.testing.assert_allclose(curve.mean_E, [(20 + 20) / 2, (40 + 50) / 2])
    assert curve.deviation_E is not None
    np.testing.assert_allclose(curve.deviation_E, [0, np.std([40, 50], ddof=1)], atol=1e-9)


def test_planned_evaluations_are_averaged_as_before(measured: Callable[..., Alike]) -> None:
    """A seed that stopped early shortens the mean; seconds at the same epoch are averaged, not interpolated."""
    line = measured([(1.0, 1.0, 0.2), (2.0, 2.0, 0.4), (3.0, 3.0, 0.5)], [(1.0, 3.0, 0.4), (2.0, 6.0, 0.6)])
    curve = mean_curve(line, "seconds", "test_subset/p@1", 1)
    assert curve.cost_E.tolist() == [2, 4]
    np.testing.assert_allclose(curve.mean_E, [30, 50])

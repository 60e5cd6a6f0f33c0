"""Tests of the estimated seconds of recommendation runs against seconds that were measured."""

from pathlib import Path

import pytest

from runner.report.plan.estimate import estimate
from runner.report.plan.speed import USUAL_RECURRENT_STEP, Speed
from runner.report.spec.grids import expand
from runner.report.spec.tables import load_table

SPEED = Speed(
    products=1.5e11, gathered=1.2e10, encoded_row=2.5e-6, recurrent_step=USUAL_RECURRENT_STEP
)  # two idle cores of a Zen 4 processor
# Wall seconds of table midx_table7_time there: 16 epochs of SASRec on Amazon CDs, with their evaluations.
MEASURED = {
    "full": 582, "uniform": 228, "unigram": 273, "lsh": 278, "sphere": 700, "rff": 372, "midx_pq": 281, "midx_rq": 284,
    "gsasrec": 326, "sce": 441,
}  # fmt: skip


@pytest.mark.parametrize("method", MEASURED)
def test_estimates_are_near_measured_seconds(method: str, tmp_path: Path) -> None:
    grid = load_table("midx_table7_time").grid
    (run,) = [run for run in expand(grid, "medium", tmp_path) if (run.method, run.seed) == (method, 0)][:1]
    seconds, from_runs = estimate(run, [], SPEED)
    assert not from_runs
    assert seconds is not None
    assert MEASURED[method] / 2 < seconds < MEASURED[method] * 2


@pytest.mark.slow
def test_only_runs_on_a_user_s_own_log_have_no_estimate(tmp_path: Path) -> None:
    grid = load_table("midx_table7").grid
    for profile in ("small", "medium"):
        for run in expand(grid, profile, tmp_path):
            assert estimate(run, [], SPEED)[0] is not None, run.run_id

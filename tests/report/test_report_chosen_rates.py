"""Grids whose learning rates a committed table chose by held-out rows train with the best of them."""

import pandas as pd
import pytest

from runner import REPOSITORY
from runner.report.grids import expand
from runner.report.tables import load_table

TABLES = REPOSITORY / "results" / "tables"
TIED = 1e-4  # two rates of MIDX-pq on Amazon CDs differ by less, relative to their NDCG


@pytest.mark.slow
@pytest.mark.parametrize("table", ["midx_table7", "midx_table9", "rf_softmax_table3"])
def test_each_method_has_the_rate_that_validated_best(table: str) -> None:
    measured = pd.read_csv(TABLES / "medium" / f"{table}_rates.csv").dropna(subset="ours")
    measured["rate"] = measured["metric"].str.rpartition("_")[2].astype(float)
    trained = {
        (run.dataset, run.method): run.config.optimizer.lr
        for run in expand(load_table(table).grid, "medium", REPOSITORY / "results")
    }
    places = measured.groupby(["dataset", "method"])
    assert len(places) > 10, "the table has rates"
    for place, tried in places:
        best = tried["ours"].max()
        chosen = tried.loc[tried["ours"] >= best * (1 - TIED), "rate"]
        assert trained[place] in set(chosen), place

"""Grids whose learning rates a committed table chose by held-out rows train with the best of them."""

import pandas as pd
import pytest

from runner import REPOSITORY
from runner.report.spec.grids import PlannedRun, expand
from runner.report.spec.tables import load_table

TABLES = REPOSITORY / "results" / "tables"


def runs_of(table: str) -> list[PlannedRun]:
    """Return the runs of the first seed that a table's grid plans for profile medium."""
    return [run for run in expand(load_table(table).grid, "medium", REPOSITORY / "results") if run.seed == 0]


def measured(table: str) -> pd.DataFrame:
    """Return the cells with a number of a committed table of rates of profile medium, and their rates."""
    return rated(f"medium/{table}_rates.csv")


def rated(path: str) -> pd.DataFrame:
    """Return the cells with a number of a committed table whose columns are learning rates, and their rates."""
    cells = pd.read_csv(TABLES / path).dropna(subset="ours")
    return cells.assign(rate=cells["metric"].str.rpartition("_")[2].astype(float))


@pytest.mark.slow
@pytest.mark.plans
@pytest.mark.parametrize("table", ["midx_table9", "rf_softmax_table3"])
def test_the_run_that_validated_best_is_that_of_the_table(table: str) -> None:
    """The same run is in both, so not only its rate is the same."""
    cells = measured(table)
    best = cells.loc[cells.groupby(["dataset", "method"])["ours"].idxmax()].set_index(["dataset", "method"])
    assert {(run.dataset, run.method): run.run_id for run in runs_of(table)} == best["run_ids"].to_dict()


@pytest.mark.slow
@pytest.mark.plans
def test_recommenders_have_the_rate_that_validated_best() -> None:
    """Trainings are longer than those of the table of rates. Two rates of MIDX-pq on Amazon CDs are all but equal."""
    trained = {(run.dataset, run.method): run.config.optimizer.lr for run in runs_of("midx_table7")}
    places = measured("midx_table7").groupby(["dataset", "method"])
    assert len(places) == 22
    for place, cells in places:
        assert trained[place] in set(cells.loc[cells["ours"] >= cells["ours"].max() * (1 - 1e-4), "rate"]), place


@pytest.mark.slow
@pytest.mark.plans
def test_frozen_linear_models_have_the_rate_at_which_uniform_examples_validate_best() -> None:
    """Samplers of examples were once compared on a model that had diverged."""
    cells = rated("medium/lgd_learning_rates.csv")
    cells = cells[cells["method"] == "uniform"]
    best = cells.loc[cells.groupby("dataset")["ours"].idxmin()].set_index("dataset")["rate"].to_dict()
    assert {run.dataset: run.config.optimizer.lr for run in runs_of("lgd_variance")} == best


@pytest.mark.slow
@pytest.mark.plans
@pytest.mark.parametrize(("path", "methods", "places", "not_the_best"), [
    ("medium/lns_rates.csv", [], 15, {}),
    ("small/tuning.csv", ["full", "topk", "lsh_label", "lsh_embedding"], 12, {
        ("wordnet_hypernym", "full"): 0.2, ("wordnet_related", "full"): 0.2,
    }),
])  # fmt: skip
def test_rates_of_lns_tables_validate_best_but_for_those_that_the_page_names(
    path: str, methods: list[str], places: int, not_the_best: dict[tuple[str, str], float]
) -> None:
    """docs/results.md names those whose rate is not the best. Numbers are bounds of what they lack, P@1 in percent."""
    trained = {(run.dataset, run.method): run.config.optimizer.lr for run in runs_of("lns_table2")}
    cells = rated(path)
    if methods:  # table tuning has other draws for the others
        cells = cells[cells["method"].isin(methods)]
    compared = cells.groupby(["dataset", "method"])
    assert len(compared) == places
    lacking = {
        place: tried["ours"].max() - tried.loc[tried["rate"] == trained[place], "ours"].item()
        for place, tried in compared
    }
    assert {place for place, lack in lacking.items() if lack > 0} == set(not_the_best)
    assert all(lacking[place] < bound for place, bound in not_the_best.items())

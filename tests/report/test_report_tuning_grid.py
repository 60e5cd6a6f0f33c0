"""Grids that tune give every method the same budget, and those that measure time train with what they chose."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from runner.report.spec.grids import PROFILES, Grid, PlannedRun, ProfileDataset, expand, point_text
from runner.report.spec.tables import PUBLISHED, load_table

STATIC = ("uniform", "log_uniform", "unigram", "nce")
SHARED = ("lsh_label_shared", "lsh_embedding_shared")
HIGHER = "full_higher_rate"

pytestmark = [pytest.mark.slow, pytest.mark.plans]  # each profile composes hundreds of runs


def tried(profile: str, place: Path) -> list[PlannedRun]:
    return expand(load_table("tuning").grid, profile, place)


def alike(run: PlannedRun) -> dict[str, Any]:
    """Return the settings that tuning and time_to_accuracy share: all but the seed and the moments of evaluation.

    linux_calls trains longer in time_to_accuracy.
    """
    shared = {**run.config.as_dict(), "seed": None, "evaluation": None}
    return {**shared, "epochs": None} if run.dataset == "linux_calls" else shared


def of_dataset(
    grid: Grid, profile: str, runs: Sequence[PlannedRun]
) -> Iterator[tuple[ProfileDataset, list[PlannedRun]]]:
    for dataset in grid.profile(profile).datasets:
        yield dataset, [run for run in runs if run.dataset == dataset.name]


@pytest.mark.parametrize("table", ["tuning", "tuning_lm"])
@pytest.mark.parametrize("profile", PROFILES)
def test_the_budget_is_the_same_for_all_methods(table: str, profile: str, tmp_path: Path) -> None:
    grid = load_table(table).grid
    for dataset, here in of_dataset(grid, profile, expand(grid, profile, tmp_path)):
        budget = Counter(run.method for run in here)
        assert set(budget) == {method.name for method in grid.methods} - {*dataset.without}
        assert len(set(budget.values())) == 1, f"{profile}, {dataset.name}: {budget}"
        assert len({(run.config.epochs, run.config.batch_size) for run in here}) == 1, "the same length for all"
        for method in budget:
            rates = {run.config.optimizer.lr for run in here if run.method == method}
            fewest = 5 if table == "tuning" and dataset.name != "linux_calls" else 3
            assert len(rates) >= fewest, f"{profile}, {dataset.name}, {method}"


@pytest.mark.parametrize("profile", PROFILES)
def test_draws_are_set_alike_or_tried_alike(profile: str, tmp_path: Path) -> None:
    """Static samplers draw as many as shared LSH samplers add; where these numbers are tried, all methods try some."""
    grid = load_table("tuning").grid
    for dataset, here in of_dataset(grid, profile, tried(profile, tmp_path)):
        draws = {method: {run.config.sampler.num_samples for run in here if run.method == method} for method in STATIC}
        of_shared = [run.config.sampler for run in here if run.method in SHARED]
        tails, retrieved = {found.num_tail for found in of_shared}, {found.max_retrieved for found in of_shared}
        assert len({frozenset(found) for found in draws.values()}) == 1, f"{dataset.name}: {draws}"
        found = draws["unigram"]
        if dataset.name in ("linux_calls",):
            assert len(found) == 3
            assert tails < found
            assert len(tails) == len(retrieved) == 2
        else:
            assert found == tails, "the number of negatives is set, not chosen, and the same for all"
            assert len(found) == len(retrieved) == 1


@pytest.mark.parametrize("profile", PROFILES)
def test_choices_are_made_on_held_out_rows(profile: str, tmp_path: Path) -> None:
    runs = tried(profile, tmp_path)
    assert {run.config.dataset.valid_share for run in runs} == {0.1}
    runs += expand(load_table("tuning_lm").grid, profile, tmp_path)  # texts have validation tokens of their own
    assert {run.config.evaluation.every_epochs for run in runs} == {1.0}, "no evaluation that nothing needs"
    assert {run.config.evaluation.seconds_factor for run in runs} == {None}


def test_the_profiles_data_sets(tmp_path: Path) -> None:
    named = {profile: {run.dataset for run in tried(profile, tmp_path)} for profile in PROFILES}
    assert named["small"] == {"wordnet_hypernym", "wordnet_related", "delicious"}
    assert named["medium"] == {"synthetic_xc", "linux_calls"}
    for profile in PROFILES:
        runs = expand(load_table("time_to_accuracy").grid, profile, tmp_path)
        assert {run.dataset for run in runs} == named[profile]
        for dataset in named[profile]:
            seeds = {run.seed for run in runs if run.dataset == dataset}
            assert seeds == ({0} if dataset == "synthetic_xc" else {0, 1, 2})  # 50 idle minutes a seed
        assert all(run.config.evaluation.seconds_factor for run in runs)
        assert not any(run.point for run in runs)


def best_of(profile: str) -> dict[tuple[str, str], tuple[str, float]]:
    """Return the settings and the rate that validated best in the committed table, by data set and method."""
    best: dict[tuple[str, str], tuple[str, float]] = {}
    for row in measured(profile).sort_values("ours", ascending=False, kind="stable").itertuples():
        best.setdefault((row.dataset, row.name), (row.method, row.rate))
    return best


def measured(profile: str) -> pd.DataFrame:
    """Return the measured rows of the committed table; none if there is no such table yet."""
    path = PUBLISHED.parent / "tables" / profile / "tuning.csv"
    if not path.exists():
        return pd.DataFrame(columns=["dataset", "method", "name", "rate", "ours"])
    found = pd.read_csv(path).dropna(subset="ours")
    rates = found["metric"].str.rpartition("_")[2].astype(float)
    return found.assign(name=found["method"].str.partition(" ")[0], rate=rates)


@pytest.mark.parametrize(("table", "chosen_by"), [("time_to_accuracy", "tuning"), ("time_to_perplexity", "tuning_lm")])
@pytest.mark.parametrize("profile", PROFILES)
def test_it_trains_with_settings_that_were_tried(table: str, chosen_by: str, profile: str, tmp_path: Path) -> None:
    """Where the table is committed they are those that validated best; full softmax's second row is looked at below.

    The whole of PTB takes what the tables of MIDX have, until it is tuned in profile paper.
    """
    candidates = expand(load_table(chosen_by).grid, profile, tmp_path)
    best = best_of(profile) if chosen_by == "tuning" else {}
    for run in expand(load_table(table).grid, profile, tmp_path):
        where = f"{profile}, {run.dataset}, {run.method}"
        mine = [other for other in candidates if other.dataset == run.dataset]
        if not mine and run.dataset == "ptb_lstm":
            continue
        method = "full" if run.method == HIGHER else run.method
        found = [other for other in mine if other.method == method and alike(other) == alike(run)]
        assert len(found) == 1, f"{where}: these settings were not tried"
        (rate, *others) = found[0].point
        settings = (f"{method} {point_text(tuple(others))}".rstrip(), rate[1])
        if run.method != HIGHER and (run.dataset, run.method) in best:
            assert best[run.dataset, run.method] == settings, where


@pytest.mark.parametrize("profile", PROFILES)
def test_full_softmax_also_has_the_highest_rate_that_is_within_two_percent(profile: str, tmp_path: Path) -> None:
    """A data set whose rates are not measured yet has no such row."""
    grid = load_table("time_to_accuracy").grid
    rates = measured(profile)
    rates = rates[rates["name"] == "full"]
    runs = expand(grid, profile, tmp_path)
    for dataset, here in of_dataset(grid, profile, runs):
        planned = {run.config.optimizer.lr for run in here if run.method == HIGHER}
        found = rates[rates["dataset"] == dataset.name]
        near = found[found["ours"] >= 0.98 * found["ours"].max()]
        assert planned == ({near["rate"].max()} if len(found) else set()), f"{profile}, {dataset.name}"

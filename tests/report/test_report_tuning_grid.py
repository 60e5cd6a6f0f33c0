"""Grid tuning gives every method the same budget, and grid time_to_accuracy trains with what it chose."""

from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from runner.report.spec.grids import PROFILES, PlannedRun, expand, point_text
from runner.report.spec.tables import PUBLISHED, load_table

pytestmark = [pytest.mark.slow, pytest.mark.plans]  # each profile composes hundreds of runs


def tried(profile: str, place: Path) -> list[PlannedRun]:
    return expand(load_table("tuning").grid, profile, place)


def alike(run: PlannedRun) -> dict[str, Any]:
    """Return the settings that tuning and time_to_accuracy share: all but the seed and the moments of evaluation."""
    return {**run.config.as_dict(), "seed": None, "evaluation": None}


@pytest.mark.parametrize("profile", PROFILES)
def test_the_budget_is_the_same_for_all_methods(profile: str, tmp_path: Path) -> None:
    runs = tried(profile, tmp_path)
    for dataset in {run.dataset for run in runs}:
        here = [run for run in runs if run.dataset == dataset]
        budget = Counter(run.method for run in here)
        assert len(budget) == (9 if dataset == "synthetic_xc" else 10), "there, TopK is left out"
        assert len(set(budget.values())) == 1, f"{profile}, {dataset}: {budget}"
        assert len({(run.config.epochs, run.config.batch_size) for run in here}) == 1, "the same length for all"
        for method in budget:
            rates = {run.config.optimizer.lr for run in here if run.method == method}
            assert len(rates) >= 5, f"{profile}, {dataset}, {method}"
        draws = {r.config.sampler.num_samples for r in here if r.method in ("uniform", "log_uniform", "unigram", "nce")}
        tails = {r.config.sampler.num_tail for r in here if r.method in ("lsh_label_shared", "lsh_embedding_shared")}
        assert draws == tails, "the number of negatives is set, not chosen, and the same for all"
        assert len(draws) == 1


@pytest.mark.parametrize("profile", PROFILES)
def test_choices_are_made_on_held_out_rows(profile: str, tmp_path: Path) -> None:
    runs = tried(profile, tmp_path)
    assert {run.config.dataset.valid_share for run in runs} == {0.1}
    assert {run.config.evaluation.every_epochs for run in runs} == {1.0}, "no evaluation that nothing needs"
    assert {run.config.evaluation.seconds_factor for run in runs} == {None}


def test_the_profiles_data_sets(tmp_path: Path) -> None:
    named = {profile: {run.dataset for run in tried(profile, tmp_path)} for profile in PROFILES}
    assert named["small"] == {"wordnet_hypernym", "wordnet_related", "delicious"}
    assert named["medium"] == {"synthetic_xc"}
    for profile in PROFILES:
        runs = expand(load_table("time_to_accuracy").grid, profile, tmp_path)
        assert {run.dataset for run in runs} == named[profile]
        assert {run.seed for run in runs} == ({0} if profile == "medium" else {0, 1, 2})  # 50 idle minutes a seed
        assert all(run.config.evaluation.seconds_factor for run in runs)
        assert not any(run.point for run in runs)


@pytest.mark.parametrize("profile", PROFILES)
def test_time_to_accuracy_trains_with_the_chosen_settings(profile: str, tmp_path: Path) -> None:
    """Every run has settings that were tried and, where the table is committed, those that validated best."""
    candidates = tried(profile, tmp_path)
    path = PUBLISHED.parent / "tables" / profile / "tuning.csv"
    best = {}
    if path.exists():
        measured = pd.read_csv(path).dropna(subset="ours")
        measured["name"] = measured["method"].str.partition(" ")[0]
        for row in measured.sort_values("ours", ascending=False, kind="stable").itertuples():
            best.setdefault((row.dataset, row.name), (row.method, float(row.metric.rpartition("_")[2])))
    for run in expand(load_table("time_to_accuracy").grid, profile, tmp_path):
        where = f"{profile}, {run.dataset}, {run.method}"
        found = [
            other
            for other in candidates
            if (other.dataset, other.method) == (run.dataset, run.method) and alike(other) == alike(run)
        ]
        assert len(found) == 1, f"{where}: these settings were not tried"
        (rate, *others) = found[0].point
        settings = (f"{run.method} {point_text(tuple(others))}".rstrip(), rate[1])
        if path.exists():
            assert best[run.dataset, run.method] == settings, where

"""Tables of sweeps find the settings that differ, and put numbers and statuses in the right cells."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from runner.config import CONF, compose
from runner.errors import ConfigError
from runner.report.figures.frontier import frontier, pareto, settings_of_records
from runner.report.figures.style import save
from runner.report.numbers.records import all_records
from runner.report.numbers.sweep import differing_keys, families, pivots, sweep_table
from runner.report.spec.grids import PlannedRun

KEYS = ["sampler.K", "sampler.L"]
P1 = {(4, 10): 0.40, (4, 20): 0.50, (10, 10): 0.55, (10, 20): 0.60}  # as conftest.py writes them


def test_swept_settings_are_found_and_measured(swept: Path) -> None:
    found = families(all_records(swept))
    assert set(found) == {("wordnet_hypernym", "lsh_label"), ("wordnet_hypernym", "nce")}
    records = found["wordnet_hypernym", "lsh_label"]
    assert differing_keys(records) == KEYS, "neither the seed nor where a run happened"
    table = sweep_table(records, KEYS)
    assert list(zip(table["sampler.K"], table["sampler.L"], strict=True)) == sorted(P1), (
        "ordered as numbers: 4 before 10"
    )
    for row in table.itertuples():
        assert row[3] == pytest.approx(100 * (P1[row[1], row[2]] + 0.005))
    assert set(table["seeds"]) == {2}
    grids = pivots(table, KEYS, records)
    assert grids["test P@1 (%)"].loc[10, 20] == pytest.approx(60.5)
    assert grids["seconds per epoch"].loc[4, 10] == pytest.approx(40)


def test_the_numbers_of_a_combination_are_those_of_its_finished_runs(
    swept: Path, write_run: Callable[..., Path]
) -> None:
    config = compose(["sampler.K=4", "sampler.L=10", "seed=2", f"results_dir={swept}"])
    write_run(PlannedRun(dataset="d", method="m", seed=2, overrides=(), config=config), [0.1], status="diverged")
    table = sweep_table(families(all_records(swept))["wordnet_hypernym", "lsh_label"], KEYS)
    row = table.iloc[0]
    assert (row["sampler.K"], row["sampler.L"]) == (4, 10)
    assert (row["status"], row["seeds"]) == ("diverged (1 of 3 seeds)", "2 of 3")
    assert row["test P@1 (%)"] == pytest.approx(40.5)
    assert table["test P@1 (%)"].notna().all()


def test_a_further_setting_that_differs_gets_its_own_column(swept: Path, write_run: Callable[..., Path]) -> None:
    """Runs that also differ in the learning rate are not averaged with the others."""
    config = compose(["sampler.K=4", "sampler.L=10", "optimizer.lr=0.1", f"results_dir={swept}"])
    write_run(PlannedRun(dataset="d", method="m", seed=0, overrides=(), config=config), [0.9])
    records = families(all_records(swept))["wordnet_hypernym", "lsh_label"]
    table = sweep_table(records, KEYS)
    assert list(table.columns[:3]) == [*KEYS, "optimizer.lr"]
    assert len(table) == 5
    assert pivots(table, KEYS, records) == {}


def test_unknown_key_lists_the_valid_ones(swept: Path) -> None:
    with pytest.raises(ConfigError, match=r"no setting 'sampler.k' .*valid: .*sampler.K, sampler.L"):
        sweep_table(families(all_records(swept))["wordnet_hypernym", "lsh_label"], ["sampler.k"])


@pytest.mark.slow
def test_the_script_writes_the_table(swept: Path) -> None:
    command = [sys.executable, str(CONF.parent / "scripts" / "render_tables.py"), "--sweep", str(swept)]
    done = subprocess.run([*command, "--keys", *KEYS], capture_output=True, text=True, check=True)
    assert "## test P@1 (%)" in done.stdout
    assert "| sampler.K \\ sampler.L |" in done.stdout
    written = pd.read_csv(swept / "out" / "sweep" / "wordnet_hypernym-lsh_label.csv")
    assert written["test P@1 (%)"].tolist() == pytest.approx([40.5, 50.5, 55.5, 60.5])
    wrong = subprocess.run([*command, "--keys", "sampler.bits"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 2
    assert wrong.stderr.count("\n") == 1
    assert "they differ in: sampler.K, sampler.L" in wrong.stderr


def test_frontier_draws_every_finished_run(swept: Path) -> None:
    """Each of five settings has a point, and four have faint points for two seeds; texts show settings that differ."""
    settings = settings_of_records(all_records(swept))
    assert sorted(s.text for s in settings) == ["", "K=10 L=10", "K=10 L=20", "K=4 L=10", "K=4 L=20"]
    figure = frontier({"toy": settings}, {"nce": "NCE", "lsh_label": "LSH Label"})
    axis = figure.axes[0]
    points = [line for line in axis.lines if line.get_linestyle() == "None"]
    assert sorted(len(line.get_xdata()) for line in points) == [1] * 5 + [2] * 4
    written = {text.get_text() for text in axis.texts}
    assert written >= {"NCE", "LSH Label", *(s.text for s in settings if s.text)}
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "Pareto frontier: nothing is faster and better"
    ]
    assert save(figure, swept / "frontier").read_bytes().startswith(b"\x89PNG")


def test_frontier_is_what_nothing_beats_in_both_ways(swept: Path) -> None:
    """K=4 costs 40 s per epoch, K=10 costs 100 s, and NCE 40 s at P@1 50; L=20 beats L=10 with the same K."""
    best = pareto(settings_of_records(all_records(swept)))
    assert [(setting.method, setting.text) for setting in best] == [
        ("lsh_label", "K=4 L=20"),
        ("lsh_label", "K=10 L=20"),
    ]


def test_texts_of_chosen_keys_keep_the_settings_apart(swept: Path) -> None:
    settings = settings_of_records(all_records(swept), ["sampler.K"])
    assert sorted(setting.text for setting in settings) == ["", "K=10", "K=10", "K=4", "K=4"]

"""Tests of the estimate of what comes after the last run: diagnoses, each once, and rendering."""

from pathlib import Path

import pytest

from runner.report.diagnoses import diagnosed
from runner.report.spec.grids import PlannedRun, expand
from runner.report.spec.tables import TableSpec, load_table


def seconds_after(names: list[str], results_dir: Path) -> float:
    return diagnosed.seconds_after([load_table(name) for name in names], "small", results_dir)


@pytest.fixture(autouse=True)
def a_usual_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosed, "slowness", lambda: 1.0)


def test_a_diagnosis_that_tables_share_counts_once(tmp_path: Path) -> None:
    runs = len(expand(load_table("lgd_variance").grid, "small", tmp_path))
    alone = seconds_after(["lgd_variance"], tmp_path)
    both = seconds_after(["lgd_variance", "lgd_figure2"], tmp_path)
    rendered = seconds_after(["lns_table2"], tmp_path)
    assert alone == pytest.approx(rendered + 20 * runs)
    assert both == pytest.approx(alone + rendered)
    assert seconds_after(["diagnosis"], tmp_path) >= rendered + 100, "a run's 19 samplers take minutes"


def test_what_is_diagnosed_already_takes_no_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = seconds_after(["lgd_variance"], tmp_path)
    first = expand(load_table("lgd_variance").grid, "small", tmp_path)[0]

    def only_first(spec: TableSpec, run: PlannedRun) -> object:
        return object() if run.run_id == first.run_id else None

    monkeypatch.setattr(diagnosed, "measured_examples", only_first)
    assert seconds_after(["lgd_variance"], tmp_path) == pytest.approx(before - 20)

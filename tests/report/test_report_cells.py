"""Cells hold a number or a status, and are compared with the right baseline and published number."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from runner.report.figures.frontier import settings_of_plan
from runner.report.figures.plots import draw
from runner.report.numbers.cells import cells, runs_table
from runner.report.numbers.comparison import comparison
from runner.report.numbers.records import BUSY, record_of
from runner.report.pages.layout import document, to_markdown
from runner.report.plan.plan import plan, plan_table, plan_total
from runner.report.render import runs_shown
from runner.report.spec.grids import PlannedRun
from runner.report.spec.tables import TableSpec

Specs = dict[str, TableSpec]
Plan = Callable[..., list[PlannedRun]]


def cell(frame: pd.DataFrame, method: str, metric: str, dataset: str = "wordnet_hypernym") -> pd.Series:
    found = frame[(frame["dataset"] == dataset) & (frame["method"] == method) & (frame["metric"] == metric)]
    assert len(found) == 1
    return found.iloc[0]


def test_epochs_are_counted_against_full_softmax_on_the_subset(
    toy: Specs, planned: Plan, pick: Callable[..., PlannedRun], write_run: Callable[..., Path]
) -> None:
    """Full softmax ends at .60 on the subset, so 50 % is .30 and 90 % is .54; its P@1 on all rows does not matter."""
    runs = planned(toy["convergence"].grid, "small")
    write_run(pick(runs, "full"), [0.30, 0.50, 0.54, 0.60], p1=0.9)
    write_run(pick(runs, "lsh_label"), [0.10, 0.35, 0.53, 0.54])
    write_run(pick(runs, "nce"), [0.10, 0.31, 0.53, 0.539])
    frame = cells(toy["convergence"], runs)
    assert [cell(frame, m, "epoch_to_50pct")["ours"] for m in ("full", "lsh_label", "nce")] == [1, 2, 2]
    assert [cell(frame, m, "epoch_to_90pct")["ours"] for m in ("full", "lsh_label")] == [3, 4]
    failed = cell(frame, "nce", "epoch_to_90pct")
    assert (pd.isna(failed["ours"]), failed["status"]) == (True, "Fail")
    assert cell(frame, "full", "P@1")["ours"] == pytest.approx(90), "fractions become percent"


def test_speed_up_stage_seconds_and_memory(
    toy: Specs, planned: Plan, pick: Callable[..., PlannedRun], write_run: Callable[..., Path]
) -> None:
    runs = planned(toy["speed"].grid, "small")
    write_run(pick(runs, "full"), [0.1] * 4, seconds=80)
    write_run(pick(runs, "lsh_label"), [0.1] * 4, seconds=16)
    frame = cells(toy["speed"], runs)
    assert cell(frame, "full", "epoch_speedup_vs_full")["ours"] == pytest.approx(1)
    assert cell(frame, "lsh_label", "epoch_speedup_vs_full")["ours"] == pytest.approx(5)
    assert cell(frame, "lsh_label", "seconds_per_epoch")["ours"] == pytest.approx(4)
    assert cell(frame, "lsh_label", "refresh_seconds_per_epoch")["ours"] == pytest.approx(0.5)
    assert cell(frame, "lsh_label", "peak_rss_mb")["ours"] == pytest.approx(512.4)


def test_several_seeds_give_mean_deviation_and_all_run_ids(
    toy: Specs, planned: Plan, pick: Callable[..., PlannedRun], write_run: Callable[..., Path]
) -> None:
    runs = planned(toy["convergence"].grid, "medium")
    for seed, p1 in ((0, 0.60), (1, 0.64)):
        write_run(pick(runs, "full", seed), [0.4, p1])
        write_run(pick(runs, "lsh_label", seed), [0.3, 0.6 if seed else 0.5])
    frame = cells(toy["convergence"], runs)
    full = cell(frame, "full", "P@1")
    assert (full["ours"], full["seeds"]) == (pytest.approx(62), 2)
    assert full["deviation"] == pytest.approx(2 * 2**0.5)
    assert full["run_ids"].split() == [pick(runs, "full", seed).run_id for seed in (0, 1)]
    # Seed 0 ends at .50 of .60 (below 90 %), seed 1 at .60 of .64 (above): no mean over seed 1.
    assert cell(frame, "lsh_label", "epoch_to_90pct")["status"] == "Fail (1 of 2 seeds)"


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("failed", "failed"),
        ("diverged", "diverged"),
        ("running", "unfinished"),
        ("interrupted", "unfinished"),
    ],
)
def test_a_run_that_did_not_finish_is_a_status(
    written: str,
    shown: str,
    toy: Specs,
    planned: Plan,
    pick: Callable[..., PlannedRun],
    write_run: Callable[..., Path],
) -> None:
    runs = planned(toy["speed"].grid, "small")
    write_run(pick(runs, "full"), [0.5])
    write_run(pick(runs, "lsh_label"), [0.5], status=written, error="why")
    frame = cells(toy["speed"], runs)
    mine = frame[(frame["method"] == "lsh_label") & (frame["dataset"] == "wordnet_hypernym")]
    assert set(mine["status"]) == {shown}
    assert mine["ours"].isna().all()
    assert set(cells(toy["speed"], runs).query("method == 'nce' and not stand_in")["status"]) == {"not run"}
    if shown != "unfinished":
        assert f"{shown}: why" in set(runs_table(toy["speed"].grid, runs)["status"])


def test_without_the_baseline_what_needs_it_is_a_status(
    toy: Specs, planned: Plan, pick: Callable[..., PlannedRun], write_run: Callable[..., Path]
) -> None:
    runs = planned(toy["convergence"].grid, "small")
    write_run(pick(runs, "nce"), [0.5])
    frame = cells(toy["convergence"], runs)
    assert cell(frame, "nce", "epoch_to_50pct")["status"] == "baseline not run"
    assert cell(frame, "nce", "P@1")["ours"] == pytest.approx(50)


def test_a_non_finite_number_is_refused(
    toy: Specs, planned: Plan, pick: Callable[..., PlannedRun], write_run: Callable[..., Path]
) -> None:
    runs = planned(toy["convergence"].grid, "small")
    write_run(pick(runs, "full"), [0.5], p1=float("nan"))
    with pytest.raises(ValueError, match=r"P@1 is nan"):
        cells(toy["convergence"], runs)


def test_a_run_that_is_older_than_a_measure_has_a_status(
    toy: Specs, planned: Plan, pick: Callable[..., PlannedRun], write_run: Callable[..., Path]
) -> None:
    runs = planned(toy["convergence"].grid, "small")
    file = write_run(pick(runs, "full"), [0.5]) / "summary.json"
    file.write_text(file.read_text().replace('"test/p@1"', '"test/other"'))
    assert cell(cells(toy["convergence"], runs), "full", "P@1")["status"] == "not measured"


def test_only_the_papers_data_sets_have_published_numbers(
    toy: Specs, results_dir: Path, pick: Callable[..., PlannedRun], write_run: Callable[..., Path]
) -> None:
    """A small profile shows the status of the paper's data sets; a stand-in has no published number."""
    runs = runs_shown(toy["convergence"].grid, "small", results_dir)
    assert [run.dataset for run in runs] == ["wordnet_hypernym"] * 3 + ["amazon670k"] * 3
    write_run(pick(runs, "full"), [0.375])
    frame = cells(toy["convergence"], runs)
    stand_in = frame[frame["dataset"] == "wordnet_hypernym"]
    assert stand_in["published"].isna().all()
    assert stand_in["difference"].isna().all()
    assert set(stand_in["published_note"]) == {""}
    paper = cell(frame, "full", "P@1", "amazon670k")
    assert paper["published"] == 37.5
    assert pd.isna(paper["ours"])
    assert pd.isna(paper["difference"])
    assert paper["status"] == "skipped: data not prepared (python scripts/prepare_dataset.py amazon670k)"
    assert cell(frame, "nce", "epoch_to_90pct", "amazon670k")["published_note"] == "Fail"


def test_difference_is_ours_minus_published(
    toy: Specs, planned: Plan, pick: Callable[..., PlannedRun], write_run: Callable[..., Path]
) -> None:
    runs = planned(toy["convergence"].grid, "paper")
    write_run(pick(runs, "full"), [0.2, 0.4], p1=0.365)
    frame = cells(toy["convergence"], runs)
    assert cell(frame, "full", "P@1", "amazon670k")["difference"] == pytest.approx(-1.0)
    assert cell(frame, "full", "epoch_to_50pct", "amazon670k")["difference"] == pytest.approx(-1)


def test_a_skipped_run_counts_as_not_run_once_data_are_there(
    toy: Specs, planned: Plan, pick: Callable[..., PlannedRun], write_run: Callable[..., Path]
) -> None:
    """The embedded set can always be prepared, whatever an earlier run's folder says."""
    runs = planned(toy["convergence"].grid, "small")
    write_run(pick(runs, "full"), [0.5], status="skipped: data not prepared")
    assert cell(cells(toy["convergence"], runs), "full", "P@1")["status"] == "not run"


def attempted(folder: Path, *earlier: dict[str, Any]) -> None:
    """Give a run's provenance earlier attempts, which differ from the last one as told."""
    path = folder / "provenance.json"
    last = json.loads(path.read_text())
    path.write_text(json.dumps({**last, "earlier_attempts": [{**last, **change} for change in earlier]}))


@pytest.mark.parametrize("change", [{"cpu": "Another CPU"}, {"threads": 1}, {"gpu": "Some GPU"}], ids=str)
def test_seconds_of_a_mixture_are_a_status(
    change: dict[str, Any], toy: Specs, planned: Plan, pick: Callable[..., PlannedRun], write_run: Callable[..., Path],
    tmp_path: Path,
) -> None:  # fmt: skip
    spec = toy["speed"]
    runs = planned(spec.grid, "small")
    attempted(write_run(pick(runs, "full"), [0.1] * 4, seconds=80), {})
    attempted(write_run(pick(runs, "lsh_label"), [0.1] * 4, seconds=16), {}, change)
    frame = cells(spec, runs)
    for column in ("epoch_speedup_vs_full", "seconds_per_epoch", "refresh_seconds_per_epoch", "build_seconds",
                   "units_per_second"):  # fmt: skip
        mixed = cell(frame, "lsh_label", column)
        assert (pd.isna(mixed["ours"]), mixed["status"].partition(":")[0]) == (True, "mixture"), column
    assert cell(frame, "full", "seconds_per_epoch")["ours"] == pytest.approx(20)
    assert cell(frame, "lsh_label", "P@1")["ours"] == pytest.approx(10)
    assert cell(frame, "lsh_label", "peak_rss_mb")["ours"] == pytest.approx(512.4)
    (setting,) = settings_of_plan(runs)
    assert setting.method == "full"
    attempted(pick(runs, "full").config.run_dir, change)
    assert cell(cells(spec, runs), "full", "epoch_speedup_vs_full")["status"].startswith("mixture")
    assert draw(toy["curves"], runs, tmp_path), "curves by epochs are left"


def test_seconds_of_runs_beside_others_are_marked(
    toy: Specs, planned: Plan, pick: Callable[..., PlannedRun], write_run: Callable[..., Path]
) -> None:
    spec = toy["speed"]
    runs = planned(spec.grid, "small")
    write_run(pick(runs, "full"), [0.1] * 4)
    attempted(write_run(pick(runs, "lsh_label"), [0.1] * 4), {"parallel_jobs": 4})
    frame = cells(spec, runs)
    assert cell(frame, "lsh_label", "seconds_per_epoch")["status"].startswith("parallel: made beside other runs")
    assert cell(frame, "lsh_label", "P@1")["ours"] == pytest.approx(10)
    assert comparison([record_of(pick(runs, "lsh_label"))])["status"].tolist() == [
        "finished, 4 runs at once, whose seconds are longer"
    ]


def test_seconds_of_a_busy_machine_are_marked(
    toy: Specs, planned: Plan, pick: Callable[..., PlannedRun], write_run: Callable[..., Path]
) -> None:
    """A small share of the machine is nothing; runs of earlier versions counted none."""
    spec = toy["speed"]
    runs = planned(spec.grid, "small")
    write_run(pick(runs, "full"), [0.1] * 4, seconds=80, others_share=0.09)
    write_run(pick(runs, "lsh_label"), [0.1] * 4, seconds=16, others_share=0.11)
    frame = cells(spec, runs)
    for column in ("epoch_speedup_vs_full", "seconds_per_epoch", "build_seconds"):
        busy = cell(frame, "lsh_label", column)
        assert pd.isna(busy["ours"])
        assert busy["status"].startswith("busy: others took over 10% of the machine"), column
    assert cell(frame, "lsh_label", "P@1")["ours"] == pytest.approx(10)
    assert cell(frame, "full", "seconds_per_epoch")["ours"] == pytest.approx(20)
    together = comparison([record_of(pick(runs, "lsh_label"))])
    assert together["status"].tolist() == [f"finished; {BUSY}"]
    assert together["seconds"].isna().all()
    listed = runs_table(spec.grid, runs)
    assert listed["status"].str.endswith(BUSY).tolist() == [run.method == "lsh_label" for run in runs]


def test_runs_of_changed_code_are_marked(
    toy: Specs, planned: Plan, pick: Callable[..., PlannedRun], write_run: Callable[..., Path], results_dir: Path
) -> None:
    spec = toy["speed"]
    runs = planned(spec.grid, "small")
    write_run(pick(runs, "full"), [0.1] * 4)
    attempted(write_run(pick(runs, "lsh_label"), [0.1] * 4), {"patch": "0123"})
    text = to_markdown(document(spec, cells(spec, runs), runs, "make"))
    short = {method: pick(runs, method).run_id.rpartition("-")[2] for method in ("full", "lsh_label")}
    assert f"{short['lsh_label']}‡" in text
    assert f"{short['full']}‡" not in text
    assert "‡ made by code with changes that were not committed" in text
    steps = plan([spec], "small", results_dir)
    statuses = dict(zip([step.run.method for step in steps], plan_table(steps)["status"], strict=True))
    assert statuses["full"] == "finished"
    assert statuses["lsh_label"] == "finished, by code with uncommitted changes"
    assert "1 made by code with uncommitted changes" in plan_total(steps)

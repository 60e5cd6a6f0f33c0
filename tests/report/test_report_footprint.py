"""What each table took adds up over its runs, and a run that tables share counts once in all."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from runner import REPOSITORY
from runner.errors import DataError
from runner.machine.disk import size
from runner.report.pages.footprint import ALL, BEGIN, END, footprint, with_footprint_of
from runner.report.pages.page import Report, facts
from runner.report.spec.grids import PlannedRun
from runner.report.spec.tables import TableSpec

Plan = Callable[..., list[PlannedRun]]


def test_runs_add_up_and_shared_ones_count_once(
    toy: dict[str, TableSpec], planned: Plan, write_run: Callable[..., Path]
) -> None:
    full, lsh_label, nce = planned(toy["convergence"].grid, "small")
    folders = [write_run(full, [0.4], seconds=90.0), write_run(lsh_label, [0.4], seconds=30.0)]
    write_run(nce, [0.1], seconds=1000.0, status="failed")
    took = footprint({"first": [full, lsh_label, nce], "second": [lsh_label], "not_run": [nce]})
    assert took["Table or figure"].tolist() == ["first", "second", ALL]
    assert took["Runs"].tolist() == ["2", "1", "2"]
    assert took["Minutes of training"].tolist() == ["2.0", "0.5", "2.0"]
    assert took["Peak memory (MB)"].tolist() == ["512", "512", "512"]
    assert took["Disk (MB)"].tolist()[0] == f"{sum(map(size, folders)) / 1e6:,.2f}"


def test_a_run_whose_seconds_do_not_count_is_told(
    toy: dict[str, TableSpec], planned: Plan, write_run: Callable[..., Path]
) -> None:
    full, lsh_label, _ = planned(toy["convergence"].grid, "small")
    write_run(full, [0.4], seconds=90.0)
    folder = write_run(lsh_label, [0.4], seconds=30.0)
    file = folder / "provenance.json"
    file.write_text(file.read_text().replace('"threads"', '"parallel_jobs": 2, "threads"'))
    assert footprint({"toy": [full, lsh_label]})["Minutes of training"].tolist() == ["at least 1.5"]
    assert footprint({"toy": [lsh_label]})["Minutes of training"].tolist() == ["–"]


def test_minutes_are_never_printed_as_none(
    toy: dict[str, TableSpec], planned: Plan, write_run: Callable[..., Path]
) -> None:
    full, lsh_label, _ = planned(toy["convergence"].grid, "small")
    write_run(full, [0.4], seconds=2.0)
    assert footprint({"toy": [full]})["Minutes of training"].tolist() == ["< 0.1"]
    file = write_run(lsh_label, [0.4], seconds=30.0) / "provenance.json"
    file.write_text(file.read_text().replace('"threads"', '"parallel_jobs": 2, "threads"'))
    assert footprint({"toy": [full, lsh_label]})["Minutes of training"].tolist() == ["–"], "at least 0.0 tells nothing"


def test_without_a_finished_run_there_is_nothing_to_tell(toy: dict[str, TableSpec], planned: Plan) -> None:
    assert footprint({"toy": planned(toy["convergence"].grid, "small")}).empty


# ---------------------------------------------------------------- in the manual

MANUAL = f"Before\n{BEGIN}\nold\n{END}\nAfter\n"


def test_the_manual_repeats_the_committed_report() -> None:
    page = (REPOSITORY / "docs" / "reproducing.md").read_text()
    told = json.loads((REPOSITORY / "results" / "REPRODUCTION.json").read_text())
    assert page == with_footprint_of(told, page), "make publish writes it"
    assert f"| {ALL} " in page.partition(BEGIN)[2].partition(END)[0]


def test_the_manual_takes_days_machines_and_the_table_of_a_report(
    toy: dict[str, TableSpec], planned: Plan, write_run: Callable[..., Path]
) -> None:
    full, lsh_label, _ = planned(toy["convergence"].grid, "small")
    write_run(full, [0.4], seconds=90.0)
    report = Report(
        title="T", found={}, took=footprint({"toy": [full, lsh_label]}), days=["2026-01-02", "2026-01-05"],
        machines=["Other CPU, 1 of 4 cores", "Toy CPU, 2 of 2 cores"],
    )  # fmt: skip
    written = with_footprint_of(json.loads(facts(report)), MANUAL)
    assert written.startswith(
        f"Before\n{BEGIN}\n\nRuns of 2026-01-02 to 2026-01-05 on Other CPU, 1 of 4 cores; Toy CPU,"
    )
    assert "| toy             |    1 |                 1.5 |" in written
    assert "old" not in written
    assert written.endswith(f"|\n\n{END}\nAfter\n")


def test_a_manual_without_the_place_and_a_report_without_the_table_are_told() -> None:
    with pytest.raises(DataError, match=r"docs/reproducing\.md: the lines '<!-- What each table took"):
        with_footprint_of({}, "no place")
    with pytest.raises(DataError, match=r"results/REPRODUCTION\.json: tells of no runs"):
        with_footprint_of({"took": []}, MANUAL)

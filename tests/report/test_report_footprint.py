"""What each table took adds up over its runs, and a run that tables share counts once in all."""

from collections.abc import Callable
from pathlib import Path

from runner.machine.disk import size
from runner.report.footprint import ALL, footprint
from runner.report.grids import PlannedRun
from runner.report.tables import TableSpec

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
    kilobytes = sum(map(size, folders)) / 1e3
    assert took["Disk"].tolist()[0] == f"{kilobytes:,.0f} kB"


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


def test_without_a_finished_run_there_is_nothing_to_tell(toy: dict[str, TableSpec], planned: Plan) -> None:
    assert footprint({"toy": planned(toy["convergence"].grid, "small")}).empty

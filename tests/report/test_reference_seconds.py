"""Plans use seconds from another machine for runs that were never made here."""

from pathlib import Path

import pytest

import runner.report.estimate as estimate_module
from runner.errors import DataError
from runner.report.estimate import estimate
from runner.report.grids import PlannedRun, expand
from runner.report.reference_seconds import FILE, reference_seconds, write_seconds
from runner.report.speed import Speed, measure
from runner.report.tables import load_table

SPEED = Speed(products=1.5e11, gathered=1.2e10, encoded_row=2.5e-6)  # of a machine whose slowness is 1


def runs(tmp_path: Path) -> list[PlannedRun]:
    return expand(load_table("midx_table4").grid, "small", tmp_path)


def test_seconds_are_read_as_written_and_scaled_to_epochs_and_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, *_ = runs(tmp_path)
    file = tmp_path / "seconds.csv"
    write_seconds([(first, 12.0 * measure().slowness)], file)
    assert reference_seconds(first, file) == pytest.approx(12.0)
    assert reference_seconds(second, file) is None
    line = file.read_text().splitlines()[1].split(",")
    line[4] = f"{first.config.epochs / 2:g}"
    half = tmp_path / "half.csv"
    half.write_text(f"{file.read_text().splitlines()[0]}\n{','.join(line)}\n")
    assert reference_seconds(first, half) == pytest.approx(24.0), "twice the epochs of the run that was measured"

    monkeypatch.setattr(estimate_module, "reference_seconds", lambda run: reference_seconds(run, file))
    slow = Speed(products=SPEED.products, gathered=SPEED.gathered, encoded_row=2 * SPEED.encoded_row)
    assert estimate(first, [], SPEED) == (pytest.approx(12.0), False)
    assert estimate(first, [], slow) == (pytest.approx(24.0), False)


def test_a_bad_line_is_named(tmp_path: Path) -> None:
    run = runs(tmp_path)[0]
    file = tmp_path / "seconds.csv"
    file.write_text("dataset,model,method,settings,epochs,seconds\nptb,lstm,full,,1,soon\n")
    with pytest.raises(DataError, match=r"seconds\.csv:2: expected dataset, model"):
        reference_seconds(run, file)


def test_every_line_that_is_kept_is_a_run_of_some_seconds() -> None:
    lines = FILE.read_text().splitlines()[1:]
    assert lines
    assert all(0 <= float(line.rpartition(",")[2]) < 600 for line in lines)

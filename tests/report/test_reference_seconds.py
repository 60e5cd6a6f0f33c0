"""Plans use seconds from another machine for runs that were never made here."""

from dataclasses import replace
from pathlib import Path

import pytest

import runner.report.plan.estimate as estimate_module
from runner.config import compose
from runner.errors import DataError
from runner.report.plan.estimate import estimate
from runner.report.plan.reference_seconds import reference_seconds, write_seconds
from runner.report.plan.speed import slowness
from runner.report.spec.grids import PlannedRun, expand
from runner.report.spec.tables import load_table


def runs(tmp_path: Path) -> list[PlannedRun]:
    return expand(load_table("midx_table4").grid, "small", tmp_path)


def test_seconds_are_read_as_written_and_scaled_to_epochs_and_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, *_ = runs(tmp_path)
    file = tmp_path / "seconds.csv"
    write_seconds([(first, 12.0 * slowness())], file)
    assert reference_seconds(first, file) == pytest.approx(12.0)
    assert reference_seconds(second, file) is None
    line = file.read_text().splitlines()[1].split(",")
    line[1] = f"{first.config.epochs / 2:g}"
    half = tmp_path / "half.csv"
    half.write_text(f"{file.read_text().splitlines()[0]}\n{','.join(line)}\n")
    assert reference_seconds(first, half) == pytest.approx(24.0), "twice the epochs of the run that was measured"

    monkeypatch.setattr(estimate_module, "reference_seconds", lambda run: reference_seconds(run, file))
    for factor in (1.0, 2.0):
        monkeypatch.setattr(estimate_module, "slowness", lambda factor=factor: factor)
        assert estimate(first, []) == (pytest.approx(12.0 * factor), False)
    assert estimate(second, []) == (None, False)


@pytest.mark.parametrize(
    "line", [b"0123456789,1,soon,ptb,full,", b"0123456789,0,1,ptb,full,", b"0123456789,1,nan,,,", b"\xff"]
)
def test_a_bad_line_is_named(line: bytes, tmp_path: Path) -> None:
    run = runs(tmp_path)[0]
    file = tmp_path / "seconds.csv"
    file.write_bytes(b"digest,epochs,seconds,dataset,method,settings\n" + line + b"\n")
    for use in (lambda: reference_seconds(run, file), lambda: write_seconds([(run, 1.0)], file)):
        with pytest.raises(DataError, match=r"seconds\.csv:\d: expected digest, epochs"):
            use()


def test_rows_of_other_runs_are_kept(tmp_path: Path) -> None:
    first, second, *_ = runs(tmp_path)
    file = tmp_path / "seconds.csv"
    write_seconds([(first, 12.0 * slowness())], file)
    write_seconds([(second, 7.0 * slowness())], file)
    fresh = tmp_path / "fresh.csv"  # a file is read once a process
    fresh.write_text(file.read_text())
    assert reference_seconds(first, fresh) == pytest.approx(12.0)
    assert reference_seconds(second, fresh) == pytest.approx(7.0)


def test_other_settings_have_other_seconds(tmp_path: Path) -> None:
    small, large = (
        compose(["sampler=lsh_label", "dataset=wordnet_hypernym", f"sampler.L={tables}"]) for tables in (10, 400)
    )
    planned = [
        PlannedRun(dataset="d", method="m", seed=0, overrides=(), config=config)
        for config in (small, replace(small, seed=1, epochs=2 * small.epochs), replace(small, max_steps=10), large)
    ]
    file = tmp_path / "seconds.csv"
    write_seconds([(planned[0], 12.0 * slowness())], file)
    assert [reference_seconds(run, file) for run in planned] == [pytest.approx(12.0), pytest.approx(24.0), None, None]


def test_what_is_kept_is_the_seconds_of_profile_small() -> None:
    """After a change of grids or of settings, record them anew."""
    runs = expand(load_table("midx_table4").grid, "small", Path("results"))
    found = [reference_seconds(run) for run in runs]
    assert all(seconds is not None and 2 < seconds < 100 for seconds in found)

"""``python -m runner.runs`` lists runs, shows one, and deletes only what it announced and may delete."""

import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from runner import diagnose, generate, predict
from runner.config import compose
from runner.report.spec.grids import PlannedRun
from runner.runs.__main__ import main
from runner.training.run_folder import RunFolder

Write = Callable[..., Path]
Command = Callable[..., str]


@pytest.fixture
def runs(results_dir: Path, write_run: Write) -> dict[str, Path]:
    """Write a finished run with weights, a diverged, an unfinished and a damaged one, and an empty folder."""

    def made(status: str, *overrides: str) -> Path:
        config = compose([*overrides, f"results_dir={results_dir}"])
        folder = write_run(
            PlannedRun(dataset="d", method="m", seed=0, overrides=(), config=config), [0.4], status=status
        )
        (folder / "weights").mkdir()
        (folder / "weights" / "layer.npy").write_bytes(b"0" * 2_000_000)
        return folder

    found = {
        "finished": made("finished", "sampler=uniform", "sampler.num_samples=77", "seed=3"),
        "diverged": made("diverged", "seed=1"),
        "unfinished": made("interrupted", "seed=2"),
        "damaged": made("finished", "seed=4"),
        "not run": results_dir / "runs" / "killed-at-once",
    }
    found["not run"].mkdir()
    (found["damaged"] / "summary.json").write_text('{"status": "fini')
    return found


@pytest.fixture
def command(results_dir: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """Call ``python -m runner.runs WORDS`` in this process; return what it prints, errors included."""

    def call(*words: str, code: int = 0) -> str:
        assert main([*words, "--results-dir", str(results_dir)]) == code
        printed = capsys.readouterr()
        return printed.out + printed.err

    return call


def left(runs: dict[str, Path]) -> set[str]:
    return {name for name, path in runs.items() if path.exists()}


def test_every_folder_is_listed(runs: dict[str, Path], command: Command) -> None:
    lines = command("list").splitlines()
    cells = {line.split("|")[1].strip(): [cell.strip() for cell in line.split("|")[2:7]] for line in lines[2:-1]}
    found = {name: cells[path.name][1] for name, path in runs.items()}
    assert found == {name: name for name in runs} | {"damaged": "damaged: summary.json: it is not JSON"}
    assert cells[runs["finished"].name] == ["2026-01-02 03:04", "finished", "test P@1 40.00 %", "40.0", "2.0 MB"]
    assert lines[-1] == "5 runs, 8.0 MB", "the damaged run is named in the list alone"
    only = command("list", "--where", "sampler=uniform")
    assert runs["finished"].name in only
    assert "1 runs" in only
    assert only.count(f"left out: {runs['damaged'] / 'summary.json'} is damaged: it is not JSON") == 1


def test_a_list_of_nothing_says_how_a_run_is_made(runs: dict[str, Path], command: Command) -> None:
    assert "runs: no run has these settings" in command("list", "--where", "seed=9", code=2)
    for folder in runs.values():
        shutil.rmtree(folder)
    assert "runs: no runs yet; python -m runner makes one" in command("list", code=2)


def test_a_run_is_shown_with_what_differs_from_the_defaults(runs: dict[str, Path], command: Command) -> None:
    shown = command("show", runs["finished"].name)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in shown.splitlines() if line.startswith("| ")]
    assert ["sampler.num_samples", "77", "1000"] in rows
    assert ["seed", "3", "0"] in rows
    assert not [row for row in rows if row[0].startswith(("epochs", "loss.", "optimizer."))], "these are defaults"
    assert ["test P@1", "40.00 %"] in rows
    assert ["update", "5.00", "14%"] in rows
    assert "\ncommit                  0123456789abcdef\n" in shown
    assert "is damaged: summary.json: it is not JSON; python -m runner.runs prune" in command(
        "show", runs["damaged"].name, code=2
    )
    assert "no run called 'nothing'" in command("show", "nothing", code=2)


@pytest.mark.parametrize(
    ("module", "more"), [(predict, [__file__]), (generate, []), (diagnose, [])], ids=["predict", "generate", "diagnose"]
)
def test_commands_that_read_weights_take_a_run_by_every_name(
    module: ModuleType, more: list[str], runs: dict[str, Path], results_dir: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    def said(name: str) -> str:
        monkeypatch.setattr("sys.argv", ["command", name, *more, "--results-dir", str(results_dir)])
        assert module.main() == 2
        return capsys.readouterr().err

    folder = runs["diverged"]
    for name in (str(folder), folder.name, folder.name.rpartition("-")[2]):
        assert said(name).startswith(f"error: {folder}: the run is 'diverged' and left no checkpoint")
    elsewhere = folder.rename(results_dir / "moved")
    assert said(str(elsewhere)).startswith(f"error: {elsewhere}: the run is 'diverged'")
    assert said("nothing").startswith("error: no run called 'nothing'; valid: ")


def test_nothing_is_deleted_before_yes_and_finished_runs_never(runs: dict[str, Path], command: Command) -> None:
    said = command("prune")
    assert said.count("would delete: ") == 4
    assert str(runs["finished"]) not in said
    assert said.endswith("6.0 MB in all; nothing is deleted without --yes\n")
    assert left(runs) == set(runs)
    command("prune", "--status", "diverged", "--yes")
    assert left(runs) == set(runs) - {"diverged"}
    assert command("prune", "--yes").count("deleted: ") == 3
    assert left(runs) == {"finished"}
    assert command("prune", "--yes") == "nothing to delete\n"


def test_a_finished_run_is_deleted_by_its_name(runs: dict[str, Path], command: Command) -> None:
    command("prune", runs["finished"].name, "--yes")
    assert left(runs) == set(runs) - {"finished"}


def test_a_path_elsewhere_does_not_delete_the_run_of_the_same_name(
    runs: dict[str, Path], command: Command, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "other" / "runs" / runs["finished"].name
    assert "give --results-dir" in command("prune", str(elsewhere), "--yes", code=2)
    assert left(runs) == set(runs)


def test_weights_are_deleted_and_results_kept(runs: dict[str, Path], command: Command) -> None:
    said = command("prune", "--weights", "--where", "sampler=uniform", "--yes")
    assert [line for line in said.splitlines() if not line.startswith("left out: ")][-1] == "2.0 MB freed"
    assert (runs["finished"] / "summary.json").exists()
    assert not (runs["finished"] / "weights").exists()
    assert (runs["diverged"] / "weights").exists()


def test_a_run_in_progress_is_left(runs: dict[str, Path], command: Command) -> None:
    with RunFolder(runs["unfinished"]).locked():
        said = command("prune", "--yes")
    assert f"left: {runs['unfinished']} (unfinished, " in said
    assert left(runs) == {"finished", "unfinished"}

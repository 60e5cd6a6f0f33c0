"""What happens around a run while it is in progress: its folder disappears, or the clock is set back."""

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from steady_runs import bits, make_steady, steady_run

from runner.errors import RunnerError
from runner.options.settings import RunConfig
from runner.tasks import LanguageModelling
from runner.training import run_folder
from runner.training.run import run
from runner.training.run_folder import RunFolder


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write_text: Any) -> RunConfig:
    make_steady(monkeypatch, tmp_path / "data")
    write_text(tmp_path, lines={"train": 40, "valid": 8, "test": 8})
    return steady_run(tmp_path, tmp_path / "results")


def deleted(folder: Path) -> None:
    shutil.rmtree(folder.parents[1])


def moved(folder: Path) -> None:
    folder.parents[1].rename(folder.parents[1].with_name("elsewhere"))


def replaced(folder: Path) -> None:
    """Somebody deletes it and starts the run again."""
    shutil.rmtree(folder)
    with RunFolder(folder).locked():
        (folder / "metrics.jsonl").write_text("of another process\n")


@pytest.mark.slow
@pytest.mark.parametrize("happens", [deleted, moved, replaced])
@pytest.mark.parametrize("evaluation", [1, 3])
def test_the_results_folder_disappears(
    happens: Callable[[Path], None], evaluation: int, config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run ends in one line, and neither makes the folder again nor writes into that of another process."""
    real, calls = LanguageModelling.evaluate_subset, [0]

    def evaluate(*arguments: Any) -> dict[str, float]:
        calls[0] += 1
        if calls[0] == evaluation:
            happens(config.run_dir)
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(LanguageModelling, "evaluate_subset", evaluate)
        with pytest.raises(
            RunnerError, match=r"was deleted or moved during the run; the same command starts"
        ) as caught:
            run(config)
    assert str(config.run_dir) in str(caught.value)
    if happens is replaced:
        assert (config.run_dir / "metrics.jsonl").read_text() == "of another process\n"
        assert {path.name for path in config.run_dir.iterdir()} == {".lock", "metrics.jsonl"}
        shutil.rmtree(config.run_dir)
    assert not config.run_dir.exists()
    again = bits(run(config))
    shutil.rmtree(config.run_dir)
    assert again == bits(run(config))


@pytest.mark.slow
def test_the_clock_is_set_back(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Times of day are written down and decide nothing; seconds are those of a clock that cannot be set."""
    whole = bits(run(config))
    shutil.rmtree(config.run_dir)
    days = iter(["2026-01-02T00:00:00+0000", "1970-01-01T00:00:00+0000"])
    monkeypatch.setattr(run_folder.time, "strftime", lambda form: next(days))
    real = LanguageModelling.evaluate_subset

    def stopped(*arguments: Any) -> dict[str, float]:
        monkeypatch.setattr(LanguageModelling, "evaluate_subset", real)
        raise KeyboardInterrupt

    real_save = RunFolder.save_checkpoint

    def save(self: RunFolder, *arguments: Any) -> None:
        real_save(self, *arguments)
        monkeypatch.setattr(LanguageModelling, "evaluate_subset", stopped)

    monkeypatch.setattr(RunFolder, "save_checkpoint", save)
    with pytest.raises(KeyboardInterrupt):
        run(config)
    monkeypatch.setattr(RunFolder, "save_checkpoint", real_save)
    future = time.time() + 10**7
    for path in config.run_dir.rglob("*"):
        os.utime(path, (future, future))
    assert bits(run(config)) == whole
    made = json.loads((config.run_dir / "provenance.json").read_text())
    assert made["started"].startswith("1970")
    assert [attempt["started"][:4] for attempt in made["earlier_attempts"]] == ["2026"]

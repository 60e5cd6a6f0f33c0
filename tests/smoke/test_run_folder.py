"""Tests of a run folder after a kill that follows a checkpoint, without waiting for a real kill."""

import os
import subprocess
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest

from runner.config import compose
from runner.options.settings import digest_of
from runner.training import run_folder, stored_arrays
from runner.training.run_folder import RunFolder


def test_observations_after_the_checkpoint_are_dropped(tmp_path: Path) -> None:
    """Such observations are made again, and must not be there twice."""
    folder = RunFolder(tmp_path)
    folder.observe({"kind": "note", "step": 1})
    folder.save_checkpoint(1, {"a": np.arange(3)}, {"step": 1})
    folder.observe({"kind": "note", "step": 2})
    with folder.metrics_path.open("a") as file:
        file.write('{"step": 3, "lo')  # killed in the middle of a line
    found = folder.load_checkpoint()
    assert found is not None
    arrays, state = found
    assert arrays["a"].tolist() == [0, 1, 2]
    assert state["step"] == 1
    assert folder.observations() == [{"kind": "note", "step": 1}]


def test_observations_are_on_the_disk_before_a_checkpoint_counts_on_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder(tmp_path)
    folder.observe({"kind": "note", "step": 1})
    happened: list[int | str] = []
    sync, rename = os.fsync, os.rename

    def noted_sync(handle: int) -> None:
        happened.append(os.fstat(handle).st_ino)
        sync(handle)

    def noted_rename(old: Path, new: Path) -> None:
        happened.append(Path(new).name)
        rename(old, new)

    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(os, "rename", noted_rename)
    folder.save_checkpoint(1, {"a": np.arange(3)}, {"step": 1})
    assert folder.metrics_path.stat().st_ino in happened[: happened.index("step-000000001")]


def test_a_kill_while_saving_leaves_the_older_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RunFolder(tmp_path)
    folder.save_checkpoint(1, {"a": np.zeros(2)}, {"step": 1})

    def killed(file: BinaryIO, array: np.ndarray) -> None:
        file.write(b"\x93NUMPY")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(stored_arrays, "_write_array", killed)
        with pytest.raises(KeyboardInterrupt):
            folder.save_checkpoint(2, {"a": np.ones(2)}, {"step": 2})
    found = folder.load_checkpoint()
    assert found is not None
    assert found[1]["step"] == 1
    folder.save_checkpoint(3, {"a": np.full(2, 3.0)}, {"step": 3})
    found = folder.load_checkpoint()
    assert found is not None
    assert found[0]["a"].tolist() == [3, 3]
    assert [path.name for path in (tmp_path / "checkpoint").iterdir()] == ["step-000000003"]


def test_a_kill_before_the_older_checkpoint_is_dropped_leaves_the_newer_in_charge(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.save_checkpoint(9, {"a": np.zeros(1)}, {"step": 9})
    (tmp_path / "checkpoint" / "step-000000009").rename(tmp_path / "older")
    folder.save_checkpoint(10, {"a": np.ones(1)}, {"step": 10})
    (tmp_path / "older").rename(tmp_path / "checkpoint" / "step-000000009")
    found = folder.load_checkpoint()
    assert found is not None
    assert found[1]["step"] == 10


def test_summary_is_replaced_whole(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert folder.summary() is None
    assert not folder.is_finished()
    settings: dict[str, Any] = {"seed": 1}
    for status in ("running", "interrupted"):
        summary = {"status": status, "run_id": f"toy-{digest_of(settings)}", "identity": settings, "config": settings}
        folder.write_summary(summary)
        assert folder.summary() == summary
    assert not folder.is_finished()
    assert [path.name for path in tmp_path.iterdir()] == ["summary.json"], "no temporary file is left"


def test_code_that_is_not_committed_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results and what tables ask for decide no number, so that changing these does not mark the runs after it."""

    def git(*words: str) -> None:
        subprocess.run(["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b", *words], check=True)

    def patch() -> str | None:
        found: str | None = run_folder.provenance(config, 1, "")["patch"]
        return found

    for name in ("runner", "conf", "conf/table", "conf/table/grid", "conf/table/bench", "results"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("old")
    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "first")
    monkeypatch.setattr(run_folder, "REPOSITORY", tmp_path)
    config = compose(["sampler=uniform"])
    assert patch() is None
    (tmp_path / "results" / "file").write_text("new")
    (tmp_path / "results" / "another").write_text("new")
    (tmp_path / "conf" / "table" / "file").write_text("new")
    (tmp_path / "conf" / "table" / "grid" / "file").write_text("new")
    (tmp_path / "conf" / "table" / "grid" / "another").write_text("new")
    assert patch() is None
    (tmp_path / "conf" / "table" / "bench" / "file").write_text("new")
    assert patch() is not None, "the bench's sizes are there"
    (tmp_path / "conf" / "table" / "bench" / "file").write_text("old")
    (tmp_path / "runner" / "another").write_text("new")
    untracked = patch()
    (tmp_path / "conf" / "file").write_text("new")
    assert None not in (untracked, patch())
    assert untracked != patch()

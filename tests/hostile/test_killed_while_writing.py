"""What a kill leaves of files that were being written or deleted is cleaned away by the next start."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hostile_runs import RATE, Call, Runs, content, settings

from runner.data.shared.store import fill_folder
from runner.training import run_folder
from runner.training.files import write_atomically
from runner.training.run import run
from runner.training.run_folder import RunFolder


class Killed(BaseException):
    """The process ends here; nothing after it is done."""


@contextmanager
def killed_at(operation: int) -> Iterator[None]:
    """Kill before the n-th operation (from 0) that changes a folder."""
    left = [operation]

    def counted(real: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            if left[0] == 0:
                raise Killed
            left[0] -= 1
            return real(*arguments, **options)

        return call

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "touch", counted(Path.touch))
        patch.setattr(Path, "unlink", counted(Path.unlink))
        patch.setattr(os, "rename", counted(os.rename))
        patch.setattr(shutil, "rmtree", counted(shutil.rmtree))
        yield


@pytest.mark.parametrize("operation", range(24))
@pytest.mark.slow
def test_a_kill_while_clearing(operation: int, runs: Runs, tmp_path: Path) -> None:
    """Either nothing of the earlier run is gone, or the next start finishes the clearing: nothing of it goes on."""
    path = shutil.copytree(runs.stopped, tmp_path / runs.stopped.name)
    shutil.copytree(runs.finished / "weights", path / "weights")
    (path / "diagnostics-a").mkdir()
    folder, before = RunFolder(path), content(path)
    killed = False
    with killed_at(operation), folder.locked():
        try:
            folder.clear()
        except Killed:
            killed = True
    with folder.locked():
        assert content(path) == (before if operation == 0 else {})
    assert killed or operation > 17, "the test reaches the end of the clearing"


@pytest.mark.slow
def test_a_forced_start_killed_while_clearing_never_goes_on(
    runs: Runs, tmp_path: Path, commands: dict[str, Call], monkeypatch: pytest.MonkeyPatch
) -> None:
    results = shutil.copytree(runs.stopped.parents[1], tmp_path / "results")
    with monkeypatch.context() as patch:
        patch.setattr(run_folder, "discard", lambda folder: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            run(settings(runs.data, results, RATE, "force=true"))
    folder = results / "runs" / runs.stopped.name
    assert list((folder / "checkpoint").glob("step-*")), "the checkpoint of the earlier run is still there"
    code, err = commands["same"](folder)
    assert code == 0
    assert "resuming" not in err
    assert content(folder / "weights") == content(runs.finished / "weights")
    assert {path.name for path in folder.iterdir()} == {
        ".lock", "config.yaml", "metrics.jsonl", "prediction", "provenance.json", "summary.json", "weights",
    }  # fmt: skip


LITTER = [
    ".summary.json.ab12_x", ".config.yaml.ab12_x", ".provenance.json.ab12_x", ".checkpoint-deleted", ".best-deleted",
    ".weights-partial", ".weights-deleted", ".diagnostics-partial", "checkpoint/.step-000000002-partial",
    "checkpoint/.step-000000001-deleted", "best/.step-000000002-partial",
]  # fmt: skip


def test_temporary_files_are_deleted(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.save_checkpoint(3, {"a": np.zeros(2)}, {})
    folder.save_best(3, {"a": np.zeros(2)})
    before = content(tmp_path)
    for name in LITTER:
        if name.endswith("_x"):
            (tmp_path / name).write_text("{")
        else:
            (tmp_path / name).mkdir()
            (tmp_path / name / "a.npy").write_bytes(b"")
    with folder.locked():
        assert content(tmp_path) == before


def test_a_checkpoint_replaced_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``generate`` may look at a run that is in progress."""
    folder = RunFolder(tmp_path)
    folder.save_checkpoint(1, {"a": np.zeros(2)}, {})
    real = run_folder.load_arrays

    def replaced(place: Path, **options: Any) -> Any:
        folder.save_checkpoint(2, {"a": np.ones(2)}, {})
        return real(place, **options)

    monkeypatch.setattr(run_folder, "load_arrays", replaced)
    kept = folder.load_weights()
    assert kept is not None
    assert kept.step == 2
    assert kept.arrays["a"].tolist() == [1, 1]


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_atomically(tmp_path / "summary.json", "old")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(tmp_path / "summary.json", "new")
    assert content(tmp_path) == {"summary.json": b"old"}


@pytest.mark.slow
def test_what_a_killed_preparation_left_goes_although_the_data_are_prepared(
    runs: Runs, prepared_root: Path, own_data_dir: Path
) -> None:
    manifest = next(prepared_root.rglob("manifest.json"))
    litter = [manifest.parent.parent / f".{manifest.parent.name}.{name}.tmp" for name in ("old", "123")]
    for folder in litter:
        folder.mkdir()
    fill_folder(manifest.parent, lambda folder: pytest.fail("the data are prepared"))
    assert not any(folder.exists() for folder in litter)


def test_a_kill_between_the_two_renames_of_a_replacement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A validation that is repeated after a resume writes its weights again; the checkpoint needs some to be there."""
    folder, real = RunFolder(tmp_path), os.rename
    folder.save_best(3, {"a": np.zeros(2)})

    def killed(source: Path, target: Path) -> None:
        if source.name.endswith("-partial"):
            raise Killed
        real(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", killed)
        patch.setattr(shutil, "rmtree", lambda *arguments, **options: None)  # the process is gone
        with pytest.raises(Killed):
            folder.save_best(3, {"a": np.ones(2)})
    # What an error mends in the process, a kill leaves as it is.
    if (tmp_path / "best" / "step-000000003").exists():
        real(tmp_path / "best" / "step-000000003", tmp_path / "best" / ".step-000000003-deleted")
    with folder.locked():
        assert folder.load_best(3)["a"].tolist() == [1, 1]
    assert [path.name for path in (tmp_path / "best").iterdir()] == ["step-000000003"]

"""Every creation, write, flush and rename of a run fails once, from the preparation of its data to its last file.

Each time one line names a file, what is left is not taken for more than it is, and the same command afterwards ends
with the bits of a run that was never disturbed.
"""

import errno
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from failing_disk import DELETING, TAKING_SPACE, FailingDisk
from steady_runs import bits, make_steady, steady_run

from runner.config import explain
from runner.data.shared.store import read_manifest
from runner.machine.disk import writing
from runner.training.run import run
from runner.training.run_records import check_run

pytestmark = pytest.mark.slow  # each failure takes two runs

PARTS = 4  # so that processes can share the operations


@dataclass(frozen=True)
class Way:
    """How the disk fails. ``everywhere``: at every operation; else at the first one of each kind of file."""

    code: int
    stays: bool
    kinds: tuple[str, ...]
    everywhere: bool


WAYS = {
    "full": Way(errno.ENOSPC, stays=True, kinds=TAKING_SPACE, everywhere=True),
    "failing once": Way(errno.EIO, stays=False, kinds=(*TAKING_SPACE, *DELETING), everywhere=False),
    "read-only": Way(errno.EROFS, stays=True, kinds=(*TAKING_SPACE, *DELETING), everywhere=False),
}


@dataclass(frozen=True)
class Undisturbed:
    sentences: Path
    bits: dict[str, Any]
    operations: dict[str, list[tuple[str, str]]]  # of each way


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where everything is written: the prepared data and the results."""
    make_steady(monkeypatch, tmp_path / "place" / "data")
    (tmp_path / "place").mkdir()
    return tmp_path / "place"


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, write_text: Any) -> Undisturbed:
    sentences = tmp_path_factory.mktemp("sentences")
    write_text(sentences, lines={"train": 40, "valid": 8, "test": 8})
    seen, found = {}, {}
    for name, way in WAYS.items():
        place = tmp_path_factory.mktemp("undisturbed")
        with pytest.MonkeyPatch.context() as patch:
            make_steady(patch, place / "data")
            with FailingDisk(place=place, kinds=way.kinds) as disk:
                found = bits(run(steady_run(sentences, place / "results")))
        seen[name] = disk.seen
    return Undisturbed(sentences=sentences, bits=found, operations=seen)


def chosen(way: Way, operations: list[tuple[str, str]]) -> list[int]:
    """Return the numbers of the operations that fail, one after another."""
    if way.everywhere:
        return list(range(len(operations)))
    first: dict[tuple[str, str], int] = {}
    for number, (kind, path) in enumerate(operations):
        first.setdefault((kind, re.sub(r"\.json\.\w+|\d+", "", path)), number)
    return list(first.values())


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("name", WAYS)
def test_a_disk_that_fails_at_any_operation(name: str, part: int, undisturbed: Undisturbed, place: Path) -> None:
    way, operations = WAYS[name], undisturbed.operations[name]
    numbers = chosen(way, operations)
    assert len(numbers) > 40, "the operations were seen"
    wrong = []
    for number in numbers[part::PARTS]:
        for left in place.iterdir():
            shutil.rmtree(left)
        disk = FailingDisk(place=place, at=number, code=way.code, stays=way.stays, kinds=way.kinds)
        faults = list(faults_of(disk, undisturbed, place))
        wrong += [f"operation {number} ({' '.join(operations[number])}): {fault}" for fault in faults]
    assert not wrong, "\n".join(wrong)


def faults_of(disk: FailingDisk, undisturbed: Undisturbed, place: Path) -> Iterator[str]:
    config = steady_run(undisturbed.sentences, place / "results")
    folder = config.run_dir
    error = None
    try:
        with disk:
            run(config)
    except Exception as caught:
        error = caught
    if not disk.has_failed:
        yield "the run did not come to it"
    if error is not None:
        line = explain(error)
        if not isinstance(error, OSError) or "\n" in line:
            yield f"no line: {type(error).__name__}: {error}"
        elif str(place) not in line or os.strerror(disk.code) not in line:
            yield f"the line names no file or no reason: {line}"
    if folder.exists():
        check_run(folder)
    for manifest in (place / "data").rglob("manifest.json"):
        if not manifest.parent.name.startswith("."):
            read_manifest(manifest.parent)
    could_delete = disk.code != errno.EROFS and disk.seen[disk.at or 0][0] not in DELETING
    if could_delete and (litter := [path for path in place.rglob(".*") if not path.name.endswith("lock")]):
        yield f"left: {litter}"  # what cannot be deleted goes at the next start
    try:
        if bits(run(config)) != undisturbed.bits:
            yield "the same command ends with other bits"
    except Exception as caught:
        yield f"the same command fails: {type(caught).__name__}: {caught}"


@contextmanager
def small_disk(place: Path, size: str) -> Iterator[None]:
    """Mount a file system of this size. Skips the test where that is not allowed."""
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)], capture_output=True)
    if done.returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.decode().strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)  # the data are still mapped into memory


@pytest.mark.parametrize("size", ["16k", "48k", "96k", "128k"])
@pytest.mark.skipif(not shutil.which("mount") or os.geteuid() != 0, reason="only root mounts file systems")
def test_a_small_disk(size: str, undisturbed: Undisturbed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system itself says that the disk is full; after it was enlarged, the same command goes on."""
    place = tmp_path / "small"
    make_steady(monkeypatch, place / "data")
    config = steady_run(undisturbed.sentences, place / "results")
    with small_disk(place, size):
        with pytest.raises(OSError, match="No space left") as caught:
            run(config)
        assert explain(caught.value).startswith(str(place))
        subprocess.run(["mount", "-o", "remount,size=8m", str(place)], check=True)
        assert bits(run(config)) == undisturbed.bits


def test_names_of_files_that_are_read_stay(tmp_path: Path) -> None:
    """What is written names itself; a file that is read meanwhile keeps its name, and the innermost block decides."""
    with pytest.raises(OSError) as caught, writing(tmp_path / "whole", keeps_names=True):  # noqa: PT011
        (tmp_path / "missing").read_text()
    assert caught.value.filename == str(tmp_path / "missing")
    with pytest.raises(OSError) as caught, writing(tmp_path / "outer"), writing(tmp_path / "inner"):  # noqa: PT011
        raise OSError(errno.ENOSPC, "No space left on device")
    assert explain(caught.value) == (
        f"{tmp_path / 'inner'}: No space left on device; free some space, and the same command goes on"
    )

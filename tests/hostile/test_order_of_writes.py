"""A power cut loses what was not flushed: files are flushed before they get their name, and its folder after.

The operations of a whole run are recorded, from the preparation of its data on, and replayed against these rules.
"""

from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from failing_disk import DELETING, TAKING_SPACE, FailingDisk
from hostile_runs import content
from steady_runs import make_steady, steady_run

from runner.training.files import write_atomically
from runner.training.run import run
from runner.training.stored_arrays import save_arrays

Operations = list[tuple[str, str]]
LOST_WITHOUT_HARM = (".lock", "verified.json")  # a lock's file is empty, and what verified.json says is computed again


def broken_rules(operations: Operations) -> Iterator[str]:
    """Say which operation broke which rule.

    1. Nothing gets its name, by a rename, while a part of it is not flushed.
    2. Nothing of an earlier state is moved away while something new is not flushed: what replaced it, above all.
    3. At the end, all is flushed.
    """
    files: set[str] = set()  # with content that is not flushed
    folders: set[str] = set()  # with entries that are not flushed
    for number, (kind, path) in enumerate(operations):
        here, parent = PurePosixPath(path), str(PurePosixPath(path).parent)
        if here.name.endswith(LOST_WITHOUT_HARM) or f"{LOST_WITHOUT_HARM[1]}." in path:
            continue
        if kind in ("create", "write"):
            files.add(path)
            folders.add(parent)
        elif kind == "mkdir":
            folders.add(parent)
        elif kind == "fsync":
            files.discard(path)
            folders.discard(path)
        elif kind == "rename":
            what = f"operation {number}, rename of {path}"
            of_it = path if here.name.startswith(".") else parent  # new things have temporary names before
            if loose := sorted(file for file in files if below(file, of_it)):
                yield f"{what}: {loose} are not flushed"
            if loose := sorted(folder for folder in folders if below(folder, of_it)):
                yield f"{what}: entries of {loose} are not flushed"
            folders.discard(path)
            if here.name.startswith("."):
                folders.add(parent)
        elif kind in DELETING:
            files.discard(path)
            folders.discard(path)
    if files:
        yield f"at the end, {sorted(files)} are not flushed"
    named = sorted(folder for folder in folders if PurePosixPath(folder).parts[1:2] != ("data",) or "." in folder)
    if named := [folder for folder in named if len(PurePosixPath(folder).parts) > 3]:
        yield f"at the end, entries of {named} are not flushed"


def below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


@pytest.mark.slow
def test_a_whole_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write_text: Any) -> None:
    place = tmp_path / "place"
    place.mkdir()
    make_steady(monkeypatch, place / "data")
    write_text(tmp_path, lines={"train": 40, "valid": 8, "test": 8})
    with FailingDisk(place=place, kinds=(*TAKING_SPACE, *DELETING)) as disk:
        run(steady_run(tmp_path, place / "results"))
    assert len(disk.seen) > 150
    renamed = {PurePosixPath(path).name.strip(".").partition("-")[0] for kind, path in disk.seen if kind == "rename"}
    assert {"step", "weights", "checkpoint", "best"} <= renamed
    assert list(broken_rules(disk.seen)) == []


def writes_a_file(place: Path) -> None:
    write_atomically(place / "summary.json", "{}")


def writes_a_folder(place: Path) -> None:
    save_arrays(place / "weights", run_id="a", step=1, arrays={}, state={})


@pytest.mark.parametrize("write", [writes_a_file, writes_a_folder])
@pytest.mark.parametrize("again", [False, True])
def test_every_flush_counts(write: Callable[[Path], None], again: bool, tmp_path: Path) -> None:
    """Without any one of the flushes, a rule is broken."""
    if again:
        write(tmp_path)
    with FailingDisk(place=tmp_path.parent, kinds=(*TAKING_SPACE, *DELETING)) as disk:
        write(tmp_path)
    assert list(broken_rules(within(disk.seen))) == []
    flushes = [number for number, (kind, _) in enumerate(disk.seen) if kind == "fsync"]
    assert len(flushes) >= 2
    for number in flushes:
        assert list(broken_rules(within(disk.seen[:number] + disk.seen[number + 1 :])))
    assert set(content(tmp_path)) <= {"summary.json", "weights", "weights/state.json"}


def within(operations: Operations) -> Operations:
    """Place the operations as deep as those of a run."""
    return [(kind, f"/results/runs{path}") for kind, path in operations]

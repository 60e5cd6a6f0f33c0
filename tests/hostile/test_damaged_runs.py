"""A damaged file of a run folder is named in one line by every command; nothing else changes, and force=true helps."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hostile_runs import RATE, Call, Runs, content, settings

from runner.training.run import run

pytestmark = pytest.mark.slow  # the runs that they damage take half a minute to make

Damage = Callable[[Path, Path], None]  # the file, and the same file of another run


def becomes(text: bytes) -> Damage:
    def damage(file: Path, other: Path) -> None:
        file.write_bytes(text)

    return damage


def cut(share: float) -> Damage:
    """Only this share of the file is left."""

    def damage(file: Path, other: Path) -> None:
        before = file.read_bytes()
        file.write_bytes(before[: int(share * len(before))])

    return damage


def of_other(file: Path, other: Path) -> None:
    file.write_bytes(other.read_bytes())


def missing(file: Path, other: Path) -> None:
    file.unlink()


def a_folder(file: Path, other: Path) -> None:
    file.unlink()
    file.mkdir()


def changed(key: str, value: Any) -> Damage:
    """The value of a key is another one, or the key is gone if the value is ``...``."""

    def damage(file: Path, other: Path) -> None:
        read, write = (yaml.safe_load, yaml.safe_dump) if file.suffix == ".yaml" else (json.loads, json.dumps)
        values = read(file.read_text())
        if value is ...:
            del values[key]
        else:
            values[key] = value
        file.write_text(write(values))

    return damage


def line(number: int, text: bytes) -> Damage:
    """One line is another one."""

    def damage(file: Path, other: Path) -> None:
        lines = file.read_bytes().splitlines(keepends=True)
        lines[number] = text
        file.write_bytes(b"".join(lines))

    return damage


FILES = ("summary.json", "config.yaml", "provenance.json", "metrics.jsonl")
ANY: dict[str, Damage] = {
    "empty": becomes(b""),
    "half": cut(0.5),
    "all but a little": cut(0.995),
    "zeros": becomes(bytes(4096)),
    "no UTF-8": becomes(b'{"status": "\xff\xfe"}\n'),
    "a list": becomes(b"[1, 2]\n"),
    "a number": becomes(b"7\n"),
    "a string": becomes(b'"finished"\n'),
    "empty object": becomes(b"{}\n"),
    "nested too deep": becomes(b"[" * 100_000),
    "a number of 5,000 digits": becomes(b'{"status": ' + b"9" * 5000 + b"}\n"),
    "missing": missing,
    "a folder": a_folder,
}
SUMMARY: dict[str, Damage] = {
    "another run's": of_other,
    "unknown status": changed("status", "finishfd"),
    "epochs 0": changed("epochs", 0),
    "a metric is text": changed("metrics", {"test/ppl": "12"}),
    "a measure lacks keys": changed("measures", [{"key": "ppl"}]),
    "no headline": changed("measures", []),
    "other settings": changed("config", {"seed": 3}),
    "other id": changed("run_id", "text-lstm-uniform-0123456789"),
    **{
        f"{key} {'gone' if value is ... else value}": changed(key, value)
        for key in ("status", "run_id", "config", "metrics", "epochs", "train_seconds", "stage_seconds", "watched")
        for value in (..., None, 7 if key not in ("epochs", "train_seconds") else "7")
    },
}
CONFIG: dict[str, Damage] = {
    "another run's": of_other,
    "another seed": changed("seed", 5),
    "a setting gone": changed("epochs", ...),
    "another place": changed("results_dir", "/tmp"),
    "a place gone": changed("keep_weights", ...),
    "a setting more": changed("epoch", 2),
    "a date": changed("seed", "2026-01-01"),
    "no YAML": becomes(b"a: [1\nb: }"),
    "a tag": becomes(b"!!python/object/apply:os.system ['true']"),
}
PROVENANCE: dict[str, Damage] = {
    "another run's": of_other,
    "no machine": changed("cpu", ...),
    "threads are text": changed("threads", "2"),
    "started is a list": changed("started", []),
    "an attempt is a number": changed("earlier_attempts", [3]),
}
METRICS: dict[str, Damage] = {
    "an empty line": line(1, b"\n"),
    "no object": line(1, b"3\n"),
    "half a line": line(-1, b'{"kind": "evaluation", "st'),
    "no kind": line(1, b'{"step": 1}\n'),
    "no step": line(1, b'{"kind": "evaluation"}\n'),
    "seconds are text": line(1, b'{"kind": "evaluation", "step": 1, "epoch": 1.0, "train_seconds": "1"}\n'),
}
RECORDS = [
    *[(file, name, damage) for file in FILES for name, damage in ANY.items()],
    *[("summary.json", name, damage) for name, damage in SUMMARY.items()],
    *[("config.yaml", name, damage) for name, damage in CONFIG.items()],
    *[("provenance.json", name, damage) for name, damage in PROVENANCE.items()],
    *[("metrics.jsonl", name, damage) for name, damage in METRICS.items()],
]
FEW = ("half", "missing", "another run's")  # every damage under one command, and these under every command


def cases(*commands: str, whole: str = "", some: bool = False) -> list[Any]:
    """Return every damage under every command; all are slow but a few, and those of the command ``whole``.

    ``some``: only those few, for a command that reads runs by the same function as another one.
    """
    return [
        pytest.param(
            command, file, damage, id=f"{command}-{file}-{name}",
            marks=[] if command == whole or name in FEW else pytest.mark.slow,
        )
        for command in commands
        for file, name, damage in RECORDS
        if not some or name in FEW
    ]  # fmt: skip


@pytest.fixture
def results(runs: Runs, tmp_path: Path) -> Path:
    """A copy of the results folder with three finished runs."""
    return Path(shutil.copytree(runs.finished.parents[1], tmp_path / "results"))


@pytest.mark.parametrize(("command", "file", "damage"), cases("same", "generate", "diagnose", whole="same"))
def test_a_damaged_record_is_named(
    command: str, file: str, damage: Damage, runs: Runs, results: Path, commands: dict[str, Call]
) -> None:
    folder = results / "runs" / runs.finished.name
    damage(folder / file, runs.other / file)
    before = content(results)
    code, err = commands[command](folder)
    assert code == 2
    assert err.count("\n") == 1, err
    if not (folder / "summary.json").exists() and command != "same":
        assert f"{folder} is not a run folder: it has no summary.json" in err
    else:
        # Settings swapped between two files tell only that they differ, so either may be named.
        assert f"{folder}/" in err
        assert "is damaged: " in err
        assert "force=true starts it again" in err
    assert content(results) == before


@pytest.mark.parametrize(("command", "file", "damage"), cases("sweep") + cases("frontier", some=True))
def test_reports_leave_a_damaged_run_out(
    command: str, file: str, damage: Damage, runs: Runs, results: Path, commands: dict[str, Call]
) -> None:
    folder = results / "runs" / runs.finished.name
    damage(folder / file, runs.other / file)
    before = content(results / "runs")
    code, err = commands[command](folder)
    assert code == 0, err
    named = [line for line in err.splitlines() if line.startswith("left out: ")]
    assert len(named) == 1, err
    assert named[0].startswith(f"left out: {folder}/")
    assert "Traceback" not in err
    assert content(results / "runs") == before


def test_force_starts_a_damaged_run_again(runs: Runs, results: Path, commands: dict[str, Call]) -> None:
    folder = results / "runs" / runs.finished.name
    for file in FILES:
        (folder / file).write_bytes(b"\xff")
    assert run(settings(runs.data, results, RATE, "force=true")) == folder
    assert commands["same"](folder)[0] == 0
    before, after = (json.loads((place / "summary.json").read_text()) for place in (runs.finished, folder))
    assert after["metrics"] == before["metrics"]

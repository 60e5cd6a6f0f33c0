"""Runs that are killed at random moments end with the bits of an undisturbed one; a difference is found and told."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from runner import REPOSITORY

SOAK = REPOSITORY / "scripts" / "soak.py"


def soak(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(SOAK), *arguments], capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_small_soak() -> None:
    done = soak("--runs", "5", "--kinds", "text,regression")
    assert done.returncode == 0, done.stdout + done.stderr
    last = done.stdout.splitlines()[-1]
    assert re.search(r"^5 runs \(2 regression, 3 text\), stopped [1-9]\d* times \(.*SIGKILL", last)
    assert "; 0 runs failed or differ from the undisturbed one" in last


@pytest.mark.slow
def test_a_difference_is_found(tmp_path: Path) -> None:
    """If a resumed run kept the observations that were made after its checkpoint, they would be there twice."""
    code = SOAK.read_text().replace(
        "\ndef train(", "\nos.truncate = lambda path, length: None\n\n\ndef train("
    ).replace("Path(__file__).resolve().parents[1]", f"Path({str(REPOSITORY)!r})")  # fmt: skip
    (tmp_path / "soak.py").write_text(code)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "soak.py"), "--runs", "6", "--kinds", "text", "--keep", str(tmp_path / "kept")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    assert "(text): differs in observations" in done.stdout
    assert list((tmp_path / "kept").glob("run-*/results/runs/*/summary.json"))


@pytest.mark.parametrize("arguments", [["--runs", "0"], ["--kinds", "cats"]])
def test_wrong_arguments(arguments: list[str]) -> None:
    done = soak(*arguments)
    assert done.returncode == 2
    assert "--runs and --kills must be 1 or more, and --kinds some of text,rows" in done.stderr

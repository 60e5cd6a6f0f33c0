"""The README's commands run: each is parsed out of its code blocks and checked against the real thing."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from runner.config import compose
from runner.training.run_folder import read_json

ROOT = Path(__file__).resolve().parents[2]


def commands() -> list[list[str]]:
    """Lines of the README's ```sh blocks, comments dropped."""
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.S)
    lines = [line for block in blocks for line in block.splitlines()]
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def test_there_are_commands() -> None:
    assert len(commands()) >= 8


@pytest.mark.parametrize("words", [words for words in commands() if words[0] == "make"], ids=" ".join)
def test_make_targets_exist(words: list[str]) -> None:
    target = next(word for word in words[1:] if "=" not in word)
    done = subprocess.run(["make", "--dry-run", *words[1:]], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), flags=re.M)


RUNS = [words for words in commands() if words[1:3] == ["-m", "runner"] and "--help" not in words]


@pytest.mark.parametrize("words", RUNS, ids=" ".join)
def test_runs_compose(words: list[str]) -> None:
    overrides = [word for word in words[3:] if word != "-m"]
    for which in (0, -1):  # of every swept list the first and the last value
        chosen = [f"{key}={value.split(',')[which]}" for key, value in (word.split("=", 1) for word in overrides)]
        compose(chosen)


SCRIPTS = [words for words in commands() if len(words) > 1 and words[1].startswith("scripts/")]


@pytest.mark.parametrize("words", SCRIPTS, ids=" ".join)
def test_scripts_know_their_options(words: list[str]) -> None:
    helped = subprocess.run([sys.executable, words[1], "--help"], cwd=ROOT, capture_output=True, text=True, check=True)
    for option in (word for word in words[2:] if word.startswith("--")):
        assert option in helped.stdout


def test_the_first_command_really_runs(tmp_path: Path) -> None:
    """``python -m runner`` as the README has it, made small by the smoke preset."""
    command = [sys.executable, "-m", "runner", "preset=smoke", f"results_dir={tmp_path}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    summary = read_json(Path(done.stdout.splitlines()[-1]) / "summary.json")
    assert summary is not None
    assert summary["status"] == "finished"


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "docs/extending.md"])
def test_links_and_pictures_are_there(page: str) -> None:
    targets = re.findall(r"\]\(([^)#]+)", (ROOT / page).read_text())
    for target in targets:
        if "://" not in target:
            assert (ROOT / target).exists(), target

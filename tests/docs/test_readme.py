"""The README's first command runs as it stands; pages' links lead somewhere; the list of contract checks is true."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from runner.training.run_folder import read_json

ROOT = Path(__file__).resolve().parents[2]


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

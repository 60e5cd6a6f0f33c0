"""The README's first command runs, the pages' links lead to files, and the list of contract checks is complete."""

import re
import subprocess
import sys
from pathlib import Path

from command_lines import PAGES, ROOT

from runner.training.files import read_json


def test_the_first_command_really_runs(tmp_path: Path) -> None:
    """``python -m runner`` runs as the README has it, made small by the smoke preset."""
    command = [sys.executable, "-m", "runner", "preset=smoke", f"results_dir={tmp_path}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    folder = Path(done.stdout.splitlines()[-1])
    assert folder.is_absolute(), "the last line of standard output is the run's folder"
    summary = read_json(folder / "summary.json")
    assert summary is not None
    assert summary["status"] == "finished"
    assert "Traceback" not in done.stderr
    assert "Warning" not in done.stderr


def test_links_and_pictures_are_there() -> None:
    found = []
    for page in PAGES:
        targets = re.findall(r"\]\(([^)#]+)", page.read_text())
        found += [(page, target) for target in targets if "://" not in target]
    assert len(found) >= 5
    assert [target for page, target in found if not (page.parent / target).exists()] == []


def test_the_list_of_contract_checks_is_the_checks_there_are() -> None:
    from runner.check.checks import CHECKS, STATISTICS

    page = (ROOT / "docs" / "contract.md").read_text()
    listed = set(re.findall(r"`(\w+)`", page))
    assert {*CHECKS, *STATISTICS} <= listed, "what is checked stands in the list"
    tests = {name for name in listed if name.startswith("test_")}
    source = "".join(path.read_text() for path in sorted((ROOT / "tests" / "contract").glob("test_*.py")))
    assert tests <= set(re.findall(r"^def (test_\w+)", source, flags=re.M))


def test_the_keys_that_change_no_id_are_listed() -> None:
    from runner.config import registries
    from runner.options.fields import PLACE_ONLY

    registries()
    page = (ROOT / "docs" / "running.md").read_text()
    section = page.partition("## What changes a run's id\n")[2].partition("\n## ")[0]
    assert PLACE_ONLY - {"unused"} <= set(re.findall(r"`([\w.]+)`", section))

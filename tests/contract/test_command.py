"""``python -m runner.check`` prints a line for each check, the number of failed ones, and one-line errors."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from runner import REPOSITORY
from runner.check.__main__ import main, names_of
from runner.check.checks import CHECKS, STATISTICS
from runner.samplers import SAMPLERS

WRONG = '''
"""A sampler whose counts are one class off, and which has no sample at all for odd steps."""

from dataclasses import dataclass

import numpy as np

from runner.registry import register_sampler
from runner.samplers.static import Static, StaticConfig, UnigramConfig


@dataclass(frozen=True, kw_only=True)
class ShiftedConfig(UnigramConfig):
    contract_cases = {"only": {"num_samples": 40, "shared": False, "unique": False}}

    def build(self, *, layer, training, seed):
        return Shifted(self, self.distribution(training.label_counts_N), seed)


class Shifted(Static):
    def log_expected_count(self, query, ids_M, step):
        return super().log_expected_count(query, (ids_M + 1) % len(self.log_count_N), step)

    def state_dict(self):
        raise ValueError("nobody\\nthought of this")


register_sampler("shifted", ShiftedConfig)
'''


def command(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    return subprocess.run(
        [sys.executable, "-m", "runner.check", *words], capture_output=True, text=True, cwd=cwd, env=environment
    )


def test_a_sampler_that_keeps_its_contract(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["uniform", "in_batch"]) == 0
    lines = capsys.readouterr().out.splitlines()
    checks = len(CHECKS) + len(STATISTICS)
    cases = len(SAMPLERS["uniform"].contract_cases)
    assert lines[-1] == f"{cases * checks + len(CHECKS)} passed, 0 failed"
    assert len(lines) == (cases + 1) * checks + 1
    assert lines[0] == "uniform shared proposals are well formed: ok"
    left_out = [line for line in lines if line.endswith(": not checked: the batch is the draw")]
    assert len(left_out) == len(STATISTICS)
    assert all(line.startswith("in_batch ") for line in left_out)


def test_a_wrong_sampler_from_outside(tmp_path: Path) -> None:
    (tmp_path / "shifted.py").write_text(WRONG)
    done = command("shifted", "plugins=[shifted]", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    failed = [line for line in lines if ": failed: " in line]
    assert lines[-1] == f"{len(lines) - 1 - len(failed)} passed, {len(failed)} failed"
    text = "\n".join(failed)
    assert "shifted only counts of any id agree with the proposal: failed: step 1, row 0: " in text
    assert "shifted only frequencies match the stated counts: failed: a class was drawn " in text
    assert "state round trip: failed: ValueError at shifted.py:" in text
    assert "nobody thought of this" in text, "one line"


def test_names_and_plugins_may_stand_anywhere() -> None:
    assert names_of(["topk", "plugins=[]", "topk", "full"], everyone=False) == ["topk", "full"]
    assert set(names_of([], everyone=True)) == set(SAMPLERS)


@pytest.mark.parametrize(("words", "says"), [
    (["unifrom"], "error: unknown sampler 'unifrom'; did you mean 'uniform'? valid: exact, "),
    ([], "error: name samplers to check, or --all for every one"),
    (["uniform", "--draws", "0"], "error: --draws must be at least 1"),
    (["uniform", "plugins=[no_such_module]"], "error: plugin 'no_such_module' cannot be imported: No module named "),
    (["uniform", "plugins=no_list"], "error: plugins must be a list of modules or files: write "),
])  # fmt: skip
def test_a_mistake_is_one_line(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(says)
    assert err.count("\n") == 1


def test_the_page_of_checks_lists_them_all() -> None:
    page = (REPOSITORY / "docs" / "contract.md").read_text()
    first_cells = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    assert set(re.findall(r"`(\w+)`", " ".join(first_cells))) == {*CHECKS, *STATISTICS}

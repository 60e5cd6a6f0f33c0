"""Short runs share a process, which answers each with an exit code and nothing else."""

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from runner import REPOSITORY
from runner.config import forget_failures
from runner.machine import compilation
from runner.report import one_process

SHORT = ["model=regression", "epochs=1", "hardware.threads=1"]


def lines(folder: Path) -> list[str]:
    """Return a run, a mistake, a run that diverges, and another run."""
    words = [
        ["seed=1"],
        ["batch_sampler.K=3"],
        ["optimizer=sgd", "optimizer.lr=1e9", "batch_size=1"],
        ["seed=2", "batch_sampler=lgd_strata"],
    ]
    return [json.dumps([*SHORT, *more, f"results_dir={folder}"]) + "\n" for more in words]


def test_each_run_has_its_own_answer(tmp_path: Path, own_data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilation, "compile_first", lambda config: None)
    answers = io.StringIO()
    assert one_process.main(lines(tmp_path), answers) == 0
    forget_failures()
    assert answers.getvalue().split() == ["0", "2", "2", "0"]
    found = sorted(json.loads(path.read_text())["status"] for path in tmp_path.rglob("summary.json"))
    assert found == ["diverged", "finished", "finished"]


@pytest.mark.slow
def test_what_a_run_prints_is_no_answer(tmp_path: Path, own_data_dir: Path) -> None:
    """A plugin prints to standard output when it is imported."""
    plugin = tmp_path / "plugin_that_prints.py"
    plugin.write_text("print(7)\n")
    line = json.dumps([*SHORT, f"plugins=[{plugin}]", f"results_dir={tmp_path}"]) + "\n"
    command = [sys.executable, "-m", "runner.report.one_process"]
    done = subprocess.run(command, input=line, capture_output=True, text=True, cwd=REPOSITORY, check=False)
    assert done.returncode == 0
    assert done.stdout == "0\n"
    assert "\n7\n" in f"\n{done.stderr}"

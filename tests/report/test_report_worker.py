"""A worker makes a plan's runs, in its own process or in copies of it, and answers each with its exit code alone."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from runner import REPOSITORY
from runner.config import forget_failures
from runner.report.plan import worker
from runner.training import compilation

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
    assert worker.main(lines(tmp_path), answers) == 0
    forget_failures()
    assert answers.getvalue().split() == ["0", "2", "2", "0"]
    found = sorted(json.loads(path.read_text())["status"] for path in tmp_path.rglob("summary.json"))
    assert found == ["diverged", "finished", "finished"]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="plans fork on Linux only")
def test_copies_answer_like_the_process_itself_and_a_crash_ends_one_run(tmp_path: Path, own_data_dir: Path) -> None:
    crash = tmp_path / "plugin_that_crashes.py"
    crash.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    first, *others = lines(tmp_path)
    killed = json.dumps([*SHORT, f"plugins=[{crash}]", f"results_dir={tmp_path}"]) + "\n"
    command = [sys.executable, "-m", "runner.report.plan.worker", "--fork"]
    words = "".join([first, killed, *others])
    done = subprocess.run(command, input=words, capture_output=True, text=True, cwd=REPOSITORY, check=False)
    assert done.stdout.split() == ["0", "-9", "2", "2", "0"]
    assert done.returncode == 0
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="plans fork on Linux only")
def test_a_copy_has_the_bits_of_a_process_of_its_own(tmp_path: Path, own_data_dir: Path) -> None:
    words = [*SHORT, "max_steps=20"]  # of the kernels that take least to compile
    losses = []
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}  # so that one copy compiles
    for command in (["runner.report.plan.worker", "--fork"], ["runner", *words, f"results_dir={tmp_path / 'own'}"]):
        line = json.dumps([*words, f"results_dir={tmp_path / 'copy'}"]) + "\n"
        done = subprocess.run(
            [sys.executable, "-m", *command],
            input=line,
            capture_output=True,
            text=True,
            cwd=REPOSITORY,
            env=environment,
            check=True,
        )
        assert ("compiling kernels" in done.stderr) == ("--fork" in command)
    for place in ("own", "copy"):
        (path,) = (tmp_path / place).rglob("metrics.jsonl")
        lines_of_run = [json.loads(line) for line in path.read_text().splitlines()]
        losses.append([{key: value for key, value in line.items() if "second" not in key} for line in lines_of_run])
    assert losses[0] == losses[1]
    assert losses[0]


@pytest.mark.slow
def test_what_a_run_prints_is_no_answer(tmp_path: Path, own_data_dir: Path) -> None:
    """A plugin prints to standard output when it is imported."""
    plugin = tmp_path / "plugin_that_prints.py"
    plugin.write_text("print(7)\n")
    line = json.dumps([*SHORT, f"plugins=[{plugin}]", f"results_dir={tmp_path}"]) + "\n"
    command = [sys.executable, "-m", "runner.report.plan.worker"]
    done = subprocess.run(command, input=line, capture_output=True, text=True, cwd=REPOSITORY, check=False)
    assert done.returncode == 0
    assert done.stdout == "0\n"
    assert "\n7\n" in f"\n{done.stderr}"

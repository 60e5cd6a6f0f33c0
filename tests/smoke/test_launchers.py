"""Launchers run four jobs side by side, one of which fails; the others finish, and their seconds are marked."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from runner import REPOSITORY
from runner.report.records import RunRecord, all_records

SMALL = ["batch_size=32", "epochs=1", "max_steps=3", "evaluation.every_epochs=1", "evaluation.rows=20"]
LAUNCHERS = {
    "hydra_joblib_launcher": (["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"], 2),
    "hydra_submitit_launcher": (["hydra/launcher=submitit_local"], 4),
    "hydra_ray_launcher": (["hydra/launcher=ray", "+hydra.launcher.ray.init.num_cpus=2"], 2),
}


def installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(f"hydra_plugins.{module}") is not None
    except ModuleNotFoundError:
        return False


@pytest.mark.slow  # each starts processes that import everything
@pytest.mark.parametrize("module", LAUNCHERS)
def test_four_jobs_of_which_one_fails(module: str, toy_folder: Path, own_data_dir: Path, tmp_path: Path) -> None:
    if not installed(module):
        pytest.skip(f"{module} is not installed; docs/sweeps.md says which extra it comes with")
    words, at_once = LAUNCHERS[module]
    done = subprocess.run(
        [sys.executable, "-m", "runner", "-m", *words, "dataset=xmc", f"dataset.path={toy_folder}", *SMALL,
         f"results_dir={tmp_path}", "sampler=uniform", "optimizer.lr=0.01,1e30,0.02,0.03"],
        cwd=REPOSITORY, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    lines = done.stderr.splitlines()
    assert f"; {at_once} at once, whose seconds are longer and marked" in lines[4]
    end = lines.index("1 of 4 jobs did not finish:")  # Ray may print what the jobs print after it
    assert lines[end + 1].startswith("[2/4] optimizer.lr=1e+30: the loss became nan at step ")
    records = all_records(tmp_path)
    assert sorted(record.status for record in records) == ["diverged", "finished", "finished", "finished"]
    for record in records:
        check_place(record, at_once)


def check_place(record: RunRecord, at_once: int) -> None:
    """The run says what it shared the machine with, and had its share of the cores."""
    assert record.parallel_jobs == at_once
    assert record.provenance["threads"] == max(1, len(os.sched_getaffinity(0)) // at_once)

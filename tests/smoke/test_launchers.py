"""Launchers run four jobs side by side, one of which fails; the others finish, and their seconds are marked."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from runner import REPOSITORY
from runner.report.numbers.records import all_records

SMALL = ["batch_size=32", "epochs=1", "max_steps=3", "evaluation.every_epochs=1", "evaluation.rows=20"]
LAUNCHERS = {
    "hydra_joblib_launcher": (["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"], 2),
    "hydra_submitit_launcher": (["hydra/launcher=submitit_local"], 4),
    "hydra_ray_launcher": (["hydra/launcher=ray", "+hydra.launcher.ray.init.num_cpus=2"], 2),
}
CORES = len(os.sched_getaffinity(0))
# These stand in for Slurm's commands. sbatch runs every job of the array in the background on this machine. As since
# Slurm 22.05, srun gives a process one core unless its own variable asks for more.
SLURM = {
    "sbatch": """
cp "$1" "$states/7"
value() { sed -n "s/^#SBATCH --$1=//p" "$states/7"; }
last="$(value array)"; last="${last#0-}"; last="${last%\\%*}"
for index in $(seq 0 "$last"); do
  (
    export SLURM_ARRAY_JOB_ID=7 SLURM_ARRAY_TASK_ID="$index" SLURM_JOB_ID="$((7 + index))" SLURM_NTASKS=1
    export SLURM_CPUS_PER_TASK="$(value cpus-per-task)"
    echo RUNNING > "$states/7_$index"
    if bash "$states/7"; then echo COMPLETED > "$states/7_$index"; else echo FAILED > "$states/7_$index"; fi
  ) < /dev/null > "$states/7_$index.out" 2>&1 &
done
echo "Submitted batch job 7"
""",
    "srun": """
place() { local path="${1//%A/$SLURM_ARRAY_JOB_ID}"; path="${path//%a/$SLURM_ARRAY_TASK_ID}"; echo "${path//%t/0}"; }
while [ "${1#--}" != "$1" ]; do
  case "$1" in
    --output) out="$(place "$2")"; shift ;;
    --error) err="$(place "$2")"; shift ;;
  esac
  shift
done
mkdir -p "$(dirname "$out")"
export SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_CPUS_ON_NODE="${SRUN_CPUS_PER_TASK:-1}"
exec "$@" > "$out" 2> "$err"
""",
    "sacct": """
echo "JobID|State|NodeList"
for file in "$states"/7_?; do echo "$(basename "$file")|$(cat "$file")|here"; done
""",
}


def installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(f"hydra_plugins.{module}") is not None
    except ModuleNotFoundError:
        return False


@pytest.mark.slow  # each starts processes that import everything
@pytest.mark.parametrize("module", LAUNCHERS)
def test_four_jobs_of_which_one_fails(module: str, toy_folder: Path, own_data_dir: Path, tmp_path: Path) -> None:
    words, at_once = LAUNCHERS[module]
    check_four_jobs(module, words, toy_folder, tmp_path, at_once, threads=max(1, CORES // at_once))


@pytest.mark.slow
def test_four_jobs_of_slurm_of_which_one_fails(toy_folder: Path, own_data_dir: Path, tmp_path: Path) -> None:
    """Jobs have the cores that they ask Slurm for, undivided."""
    commands = tmp_path / "commands"
    commands.mkdir()
    for name, script in SLURM.items():
        (commands / name).write_text(f"#!/bin/bash\nstates={commands}\n{script}")
        (commands / name).chmod(0o755)
    words = ["hydra/launcher=submitit_slurm", "hydra.launcher.partition=cpu", "hydra.launcher.cpus_per_task=2"]
    check_four_jobs(
        "hydra_submitit_launcher", words, toy_folder, tmp_path / "results", 4, threads=min(2, CORES), commands=commands
    )
    asked = (commands / "7").read_text().splitlines()
    assert {"#SBATCH --array=0-3%4", "#SBATCH --partition=cpu", "#SBATCH --cpus-per-task=2"} <= set(asked)


def check_four_jobs(
    module: str, words: list[str], toy: Path, results: Path, at_once: int, *, threads: int, commands: Path | None = None
) -> None:
    """Three jobs finish, the other is named, and all say how many shared the machine and how many threads they had.

    ``commands`` is a folder of commands that come before others.
    """
    if not installed(module):
        pytest.skip(f"{module} is not installed; docs/sweeps.md says which extra it comes with")
    path = os.environ["PATH"] if commands is None else os.pathsep.join([str(commands), os.environ["PATH"]])
    done = subprocess.run(
        [sys.executable, "-m", "runner", "-m", *words, "dataset=xmc", f"dataset.path={toy}", *SMALL,
         f"results_dir={results}", "sampler=uniform", "optimizer.lr=0.01,1e30,0.02,0.03"],
        cwd=REPOSITORY, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PATH": path},
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    lines = done.stderr.splitlines()
    assert f"; {at_once} at once, whose seconds are longer and marked" in lines[4]
    end = lines.index("1 of 4 jobs did not finish:")  # Ray may print what the jobs print after it
    assert lines[end + 1].startswith("[2/4] optimizer.lr=1e+30: the loss became nan at step ")
    records = all_records(results)
    assert sorted(record.status for record in records) == ["diverged", "finished", "finished", "finished"]
    for record in records:
        assert record.parallel_jobs == at_once
        assert record.provenance["threads"] == threads
    rows = [line for line in lines if line.startswith("| Uniform ")]
    assert sum(f"finished, {at_once} runs at once, whose seconds are longer" in row for row in rows) == 3
    assert sum("diverged" in row for row in rows) == 1

"""One command, split over processes by torchrun: its numbers, its end when a rank ends, and its going on."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runner.home import REPOSITORY
from runner.training.run_folder import RunFolder

pytestmark = pytest.mark.slow
PAGE = REPOSITORY / "docs" / "scale.md"
WORDS = (
    "dataset=synthetic_xc", "dataset.num_classes=300", "dataset.num_train=4000", "dataset.num_test=200",
    "dataset.num_features=200", "sampler=log_uniform", "sampler.num_samples=20", "model.hidden=16", "epochs=2",
    "hardware.classes=split", "hardware.timeout=60", "evaluation.every_epochs=0.5", "optimizer.lr=0.003",
)  # fmt: skip


def start(ranks: int, results: Path, *words: str, restarts: int = 0) -> "subprocess.Popen[str]":
    """Start the command, over several processes if there are to be several."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    torchrun += ["--max-restarts", str(restarts)]
    command = [sys.executable, *(torchrun if ranks > 1 else []), "-m", "runner", *WORDS, *words]
    return subprocess.Popen(
        [*command, f"results_dir={results}"],
        env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


# These stand in for Slurm's commands, for a job of two nodes that are this machine. srun fails if one of both does.
SLURM = {
    "scontrol": "echo localhost; echo localhost",
    "srun": """
while [ "${1#--}" != "$1" ]; do shift; done
"$@" & first=$!
"$@" & second=$!
wait "$first"; status=$?
wait "$second" && exit "$status"
""",
}


def start_by_slurm(results: Path, commands: Path, *words: str) -> "subprocess.Popen[str]":
    """Start the command by the script of docs/scale.md, with a torchrun on each of two nodes."""
    (script,) = re.findall(r"^```bash\n(#!/bin/bash\n#SBATCH.*?)^```", PAGE.read_text(), flags=re.S | re.M)
    with socket.socket() as free:
        free.bind(("localhost", 0))
        script = script.replace(":29500", f":{free.getsockname()[1]}")
    script = re.sub(r"-m runner .*", " ".join(["-m", "runner", *WORDS, *words, f"results_dir={results}"]), script)
    commands.mkdir()
    for name, text in {**SLURM, "python": f'exec {sys.executable} "$@"'}.items():
        (commands / name).write_text(f"#!/bin/bash\n{text}\n")
        (commands / name).chmod(0o755)
    given = {"SLURM_JOB_NODELIST": "here", "SLURM_NNODES": "2", "SLURM_JOB_ID": "7", "SLURM_CPUS_PER_TASK": "1"}
    path = os.pathsep.join([str(commands), os.environ["PATH"]])
    return subprocess.Popen(
        ["bash", "-c", script], env={**os.environ, **given, "OMP_NUM_THREADS": "1", "PATH": path},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def ended(process: "subprocess.Popen[str]", *, within: float = 300) -> tuple[int, list[str]]:
    """Return the exit status, and what the program (not torchrun) says of its end."""
    out, err = process.communicate(timeout=within)
    return process.returncode, [
        line for line in (out + err).splitlines() if "error: " in line and "errors." not in line
    ]


def run_of(results: Path) -> RunFolder:
    return RunFolder(next((results / "runs").iterdir()))


def outcome(results: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    folder = run_of(results)
    weights = folder.load_weights()
    summary = folder.summary()
    assert weights is not None
    assert summary is not None
    return summary, weights.arrays


def assert_equal(results: Path, expected: Path) -> None:
    (summary, arrays), (of_one, whole) = outcome(results), outcome(expected)
    for name, value in of_one["metrics"].items():
        assert summary["metrics"][name] == pytest.approx(value, abs=2e-3), name
    for name, array in whole.items():
        np.testing.assert_allclose(arrays[name], array, rtol=1e-3, atol=2e-4, err_msg=name)


@pytest.fixture(scope="module")
def of_one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    results = tmp_path_factory.mktemp("one")
    status, errors = ended(start(1, results))
    assert (status, errors) == (0, [])
    return results


@pytest.mark.parametrize(("ranks", "engine"), [(3, "numba"), (2, "torch")])
def test_a_split_run_gives_the_numbers_of_one_process(ranks: int, engine: str, of_one: Path, tmp_path: Path) -> None:
    """Two ranks have a torchrun each, as on two machines, and three have one."""
    words = (f"hardware.engine={engine}",)
    process = start_by_slurm(tmp_path, tmp_path / "commands", *words) if ranks == 2 else start(3, tmp_path, *words)
    assert ended(process) == (0, [])
    assert_equal(tmp_path, of_one)
    assert outcome(tmp_path)[0]["ranks"] == ranks


def wait_for(results: Path, pattern: str, process: "subprocess.Popen[str]") -> Path:
    until = time.monotonic() + 120
    while time.monotonic() < until:
        if found := [*results.glob(pattern)]:
            return found[0]
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    raise AssertionError(f"no {pattern} came")


def ranks_of(process: "subprocess.Popen[str]") -> dict[int, int]:
    """Return the process id of each rank."""
    found = {}
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    for child in children:
        environment = dict(
            entry.split("=", 1) for entry in Path(f"/proc/{child}/environ").read_text().split("\0") if "=" in entry
        )
        if "RANK" in environment:
            found[int(environment["RANK"])] = int(child)
    return found


LONG = ("epochs=40", "max_steps=400", "checkpoint_every_seconds=0.1")


def test_a_killed_rank_ends_all_and_others_go_on(tmp_path: Path) -> None:
    parts = (*LONG, "hardware.batch=split")
    process = start(3, tmp_path, *parts)
    wait_for(tmp_path, "runs/*/checkpoint/step-*", process)
    os.kill(ranks_of(process)[1], signal.SIGKILL)
    begin = time.monotonic()
    status, errors = ended(process, within=120)
    assert status != 0
    assert time.monotonic() - begin < 45, "well before the time limit of 60 s"
    assert len(errors) == 1
    assert "rank 1 of 3 ended" in errors[0]
    step = int(next(run_of(tmp_path).path.glob("checkpoint/step-*")).name.removeprefix("step-"))
    process = start(2, tmp_path, *parts)  # one process fewer reads what three wrote
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert f"resuming at step {step:,}" in err
    alone = tmp_path / "alone"
    assert ended(start(1, alone, *LONG))[0] == 0
    (summary, arrays), (expected, whole) = outcome(tmp_path), outcome(alone)
    assert summary["steps"] == expected["steps"]
    np.testing.assert_allclose(arrays["layer.weights"], whole["layer.weights"], rtol=0.02, atol=0.02)


def test_torchrun_starts_again_by_itself(tmp_path: Path) -> None:
    process = start(2, tmp_path, *LONG, restarts=1)
    wait_for(tmp_path, "runs/*/checkpoint/step-*", process)
    os.kill(ranks_of(process)[1], signal.SIGKILL)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert "resuming at step" in err
    assert outcome(tmp_path)[0]["steps"] == 400


def test_a_rank_that_hangs_is_named(tmp_path: Path) -> None:
    process = start(2, tmp_path, *LONG, "epochs=4000", "max_steps=100000", "hardware.timeout=15")
    wait_for(tmp_path, "runs/*/checkpoint/step-*", process)
    ranks = ranks_of(process)
    os.kill(ranks[1], signal.SIGSTOP)
    until = time.monotonic() + 90
    while Path(f"/proc/{ranks[0]}").exists() and time.monotonic() < until:
        time.sleep(0.2)
    os.kill(ranks[1], signal.SIGCONT)
    status, errors = ended(process, within=120)
    assert status != 0
    assert len(errors) == 1, errors
    assert "rank 1 of 2 did not answer for 15 s" in errors[0]


def test_mistakes_are_one_line(tmp_path: Path) -> None:
    status, errors = ended(start(2, tmp_path, "hardware.classes=whole"))
    assert status != 0
    assert len(errors) == 1
    assert "2 processes were started, but hardware.classes=whole trains in one" in errors[0]
    status, errors = ended(
        start(3, tmp_path, "dataset.num_classes=4", "dataset.labels_per_row=1", "sampler.num_samples=2")
    )
    assert len(errors) == 1
    assert "leave none for the last of 3 processes; start at most 2" in errors[0]
    assert not any((tmp_path / "runs").glob("*/summary.json"))


def test_an_interrupted_run_goes_on(tmp_path: Path) -> None:
    process = start(2, tmp_path, *LONG)
    wait_for(tmp_path, "runs/*/checkpoint/step-*", process)
    for pid in ranks_of(process).values():
        os.kill(pid, signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert "interrupted: a checkpoint is saved" in err
    summary = run_of(tmp_path).summary()
    assert summary is not None
    assert summary["status"] == "interrupted"
    assert json.loads((run_of(tmp_path).path / "summary.json").read_text())["ranks"] == 2

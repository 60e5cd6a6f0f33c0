"""Ranks that hold the classes together draw the same candidates as one process, and take the same steps within 1e-5.

``program.py`` trains split over the ranks, and whole in one of them. Here it takes a sample of the samplers' cases with
losses, in which every sampler and every loss occur; by hand it takes every case with every loss, in parts:

    torchrun --nproc-per-node 3 tests/distributed/program.py OUT.json --steps 200 --part 1/8
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from findings import is_equal

from runner.bench.scale_model import FULL, LOG_UNIFORM, LSH, Split
from runner.check.cases import cases_of
from runner.kernels.products import COLUMNS
from runner.output.losses import LOSSES
from runner.samplers import SAMPLERS
from runner.structures.refresh_schedule import RefreshSchedule

pytestmark = pytest.mark.slow
PROGRAM = Path(__file__).with_name("program.py")
N, D, B = 121, 16, 12
# Three ranks have the code of two, and classes between the first and the last.
STEPS = {("numba", 2): 80, ("numba", 3): 20, ("torch", 2): 12}
SCALE = {("numba", 3): 4.0}  # of normalised vectors


@pytest.mark.parametrize(("engine", "ranks"), STEPS)
def test_steps_measures_and_bytes(engine: str, ranks: int, tmp_path: Path) -> None:
    steps, scale = STEPS[engine, ranks], SCALE.get((engine, ranks))
    cases = found(ranks, engine, steps, scale, tmp_path / "found.json")
    assert {name.split("-")[0] for name in cases} == {*SAMPLERS}
    assert {name.split("-")[2].removesuffix("_of_targets") for name in cases} == {*LOSSES}
    # Rounding may turn a draw into its neighbour: oftenest where a last bit becomes a whole unit, as in rff's features.
    other = {name: case["other_draws"] for name, case in cases.items() if case["other_draws"] is not None}
    assert len(other) <= 3, other
    assert all(number == 1 for number, _ in other.values()), other
    wrong = {name: case for name, case in cases.items() if not is_equal(case)}
    assert not wrong, json.dumps(wrong, indent=1)
    if scale is not None:  # then no mean is taken before classes are hashed
        return

    sent = {name: case["of_steps"] for name, case in cases.items()}
    for name in ("uniform-shared-sampled_softmax", "log_uniform-shared-sampled_softmax"):
        assert sent[name] == modelled(LOG_UNIFORM, ranks, steps, numbers_compared=4)
    assert sent["lsh_embedding-simhash-active_set"] == modelled(LSH, ranks, steps, numbers_compared=4)
    full = FULL if engine == "numba" else LOG_UNIFORM  # torch pads no batch, and sends no number twice
    assert sent["full-defaults-full"] == modelled(full, ranks, steps, numbers_compared=2)


def modelled(method: str, ranks: int, steps: int, numbers_compared: int) -> dict[str, int]:
    """Return the bytes that the model of the bench predicts for all steps, with what ranks compare of their draws.

    A step sends its hidden gradient and three numbers a row, whatever the numbers of classes and of candidates. A
    refresh of hash tables sends all codes here, as nearly all classes move; so does their building.
    """
    config: Any = next(iter(cases_of("lsh_embedding").values())).config
    split = Split(
        method=method, classes=N, ranks=ranks, rows=B, dim=D, moved=N, tables=config.L, hashes=config.K, tile=COLUMNS
    )  # fmt: skip
    sent = {kind: steps * size for kind, size in split.traffic().items()}
    looks = sum(step <= 16 or step % 128 == 0 for step in range(1, steps + 1))  # int64 numbers
    sent["gather"] = looks * numbers_compared * 8
    for refresh in split.refresh_collectives():
        times = 1 + RefreshSchedule(config.refresh_every_steps, config.refresh_growth).times_within(steps)
        sent[refresh.kind] += times * int(refresh.bytes)
    return sent


def found(ranks: int, engine: str, steps: int, scale: float | None, out: Path) -> dict[str, Any]:
    """Return what the program found, by case."""
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    words += [str(PROGRAM), str(out), "--steps", str(steps), "--engine", engine]
    words += ["--turn", str(list(STEPS).index((engine, ranks)))]
    words += [] if scale is None else ["--scale", str(scale)]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    cases: dict[str, Any] = json.loads(out.read_text())
    return cases

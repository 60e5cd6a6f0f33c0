"""Ranks that hold the classes together draw the same candidates as one process, and take the same steps within 1e-5.

``program.py`` trains with every sampler and every loss, split over the ranks and whole in one of them. Here it takes
the first settings of each sampler; by hand it takes all of them:

    torchrun --nproc-per-node 3 tests/distributed/program.py OUT.json all 200 numba
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow
PROGRAM = Path(__file__).with_name("program.py")
B, D = 12, 16
# Three ranks have the code of two, and classes between the first and the last.
STEPS = {("numba", 2): 200, ("numba", 3): 20, ("torch", 2): 12}
# Their tables turn a last bit into a whole unit: bytes of features, and codewords that Adam moves by signs.
AMPLIFY = ("rff", "midx_learn")


@pytest.mark.parametrize(("engine", "ranks"), STEPS)
def test_steps_measures_and_bytes(engine: str, ranks: int, tmp_path: Path) -> None:
    steps = STEPS[engine, ranks]
    cases = found(ranks, engine, steps, tmp_path / "found.json")
    assert len(cases) > 30
    other = {name: case["other_draws_from"] for name, case in cases.items() if case["other_draws_from"] is not None}
    assert all(name.startswith(AMPLIFY) and step > 10 for name, step in other.items()), other
    assert len(other) <= 3, other
    wrong = {
        name: case
        for name, case in cases.items()
        if name not in other and (max(case["far"].values()) > 1e-5 or not case["same_top"])
    }
    assert not wrong, json.dumps(wrong, indent=1)

    # A step sends its hidden gradient and three numbers a row, whatever the numbers of classes and of candidates.
    of_one_step = 4 * B * D + (4 + 4 + 4) * B
    for name in ("uniform-shared-sampled_softmax", "unigram-shared-sampled_softmax"):
        sent = cases[name]["of_steps"]
        assert sent["sum"] + sent["max"] == steps * of_one_step


def found(ranks: int, engine: str, steps: int, out: Path) -> dict[str, Any]:
    """Return what the program found, by case."""
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    words += [str(PROGRAM), str(out), "first", str(steps), engine]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    cases: dict[str, Any] = json.loads(out.read_text())
    return cases

"""Ranks that hold the classes together draw the same candidates as one process, and take the same steps within 1e-5.

``program.py`` trains with every sampler and every loss, split and whole, in each rank.
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
B, D, STEPS = 12, 16, 200
# Their tables turn a last bit into a whole unit: bytes of features, and codewords that Adam moves by signs.
AMPLIFY = ("rff", "midx_learn")


@pytest.fixture(scope="module", params=[2, 3])
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, dict[str, Any]]:
    out = tmp_path_factory.mktemp("ranks") / "found.json"
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(request.param)]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*words, str(PROGRAM), str(out)], env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    return request.param, json.loads(out.read_text())


def test_steps_and_measures(found: tuple[int, dict[str, Any]]) -> None:
    _, cases = found
    assert len(cases) > 60
    other = {name: case["other_draws_from"] for name, case in cases.items() if case["other_draws_from"] is not None}
    assert all(name.startswith(AMPLIFY) and step > 10 for name, step in other.items()), other
    assert len(other) < len(cases) // 10, other
    wrong = {
        name: case
        for name, case in cases.items()
        if name not in other and (max(case["far"].values()) > 1e-5 or not case["same_top"])
    }
    assert not wrong, json.dumps(wrong, indent=1)


def test_bytes_of_a_step(found: tuple[int, dict[str, Any]]) -> None:
    """A step sends its hidden gradient and three numbers a row, whatever the numbers of classes and of candidates."""
    _, cases = found
    of_one_step = 4 * B * D + (4 + 4 + 4) * B
    for name in ("uniform-shared-sampled_softmax", "log_uniform-per_row-sampled_softmax"):
        traffic = cases[name]["of_steps"]
        assert traffic["sum"] + traffic["max"] == STEPS * of_one_step

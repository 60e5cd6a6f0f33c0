"""Ranks that encode parts of a batch take the steps of one process that encodes all, within 1e-5, for every model.

``parts.py`` trains with both, and makes its networks anew from their state on the way.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
PROGRAM = Path(__file__).with_name("parts.py")


def test_steps_states_and_bytes(tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*words, str(PROGRAM), str(out)], env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    cases = json.loads(out.read_text())
    assert len(cases) == 8
    wrong = {name: case["far"] for name, case in cases.items() if max(case["far"].values()) > 1e-5}
    assert not wrong, json.dumps(wrong, indent=1)
    assert "encoder.carried" in cases["lstm"]["far"]
    assert cases["mlp"]["gathered"] == cases["mlp"]["expected"]

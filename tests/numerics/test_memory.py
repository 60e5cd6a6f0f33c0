"""What a step and a sampler hold beside the class matrix and its moments."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from runner.contracts import TrainingFacts
from runner.output.numba.layer import NumbaLayer
from runner.samplers import SAMPLERS
from runner.samplers.full import stored_bytes

# A process of its own: a page that an earlier test freed would be taken again without the peak rising.
STEP = """
import sys
import numba, numpy as np
from runner.output.losses import FullLoss
from runner.machine.memory import peak_mb, reset_peak
from runner.optimizers import AdamConfig
from runner.output.numba.row_table import RowTable
from runner.output.numba.layer import NumbaLayer
from runner.contracts import Everything, Query

numba.set_num_threads(2)

def layer_of(n, dim):
    table = RowTable(AdamConfig(), np.random.default_rng(0).standard_normal((n, dim)), bias=True)
    for array in table.state_dict().values():
        array += 0  # memory that was only promised must be there before the step
    return NumbaLayer(table)

def step(layer, rows):
    hidden = np.random.default_rng(1).standard_normal((rows, layer.dim)).astype(np.float32)
    targets = np.arange(rows, dtype=np.int32) % layer.num_classes
    query = Query(hidden_BD=hidden, target_indptr_B1=np.arange(rows + 1, dtype=np.int64), targets_P=targets)
    scores = layer.score(query, Everything(layer.num_classes, sys.argv[1], sys.argv[2] == "stored"), 1)
    scores.loss(FullLoss(name="full"))
    scores.update()

step(layer_of(100, 32), 3)  # compile
layer = layer_of(20_000, 32)
reset_peak()
before = peak_mb()
step(layer, 256)
print(peak_mb() - before)
reset_peak()
before = peak_mb()
np.ones((20_000, 256), dtype=np.float32)
print(peak_mb() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the system can not reset a process's peak")
@pytest.mark.parametrize(("products", "logits"), [
    ("float32", "made twice"),
    pytest.param("float32", "stored", marks=pytest.mark.slow),
    pytest.param("bf16", "made twice", marks=pytest.mark.slow),
    pytest.param("bf16", "stored", marks=pytest.mark.slow),
])  # fmt: skip
def test_full_softmax_holds_what_it_says(products: str, logits: str) -> None:
    """20,000 classes of 32 elements: weights and moments are 7.3 MB, a matrix of logits for 256 rows 19.5 MB.

    Stored as bfloat16 it is half of that, and the highest logits of each block a sixteenth of the half.
    """
    from runner.kernels.products import HAS_BF16

    if products == "bf16" and not HAS_BF16:
        pytest.skip("needs AVX512_BF16")
    root = Path(__file__).resolve().parents[2]
    # Freed blocks go back to the system at once, so that none can be taken again unseen.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    command = [sys.executable, "-c", STEP, products, logits]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    step_mb, matrix_mb = map(float, done.stdout.split())
    weights_and_moments_mb = 3 * 20_000 * 32 * 4 / 2**20
    assert matrix_mb > 19, "or the measurement does not see what it should"
    stored_mb = stored_bytes(256, 20_000) / 2**20 if logits == "stored" else 0.0
    assert stored_mb <= step_mb < 0.3 * weights_and_moments_mb + 4 + stored_mb * 17 / 16
    print(f"{products}, logits {logits}: {step_mb:.1f} MB")


def test_tables_are_small_beside_the_class_matrix(make_layer: Callable[..., NumbaLayer]) -> None:
    layer = make_layer(20_000, 128)
    config = SAMPLERS["lsh_label"](name="lsh_label", K=9, L=50)  # type: ignore[call-arg]
    sampler = config.build(layer=layer, training=TrainingFacts.one_label_a_row(np.ones(20_000, dtype=np.int64)), seed=0)  # type: ignore[arg-type]
    tables = sampler.tables  # type: ignore[attr-defined]
    assert tables.nbytes == tables.codes.nbytes + tables.start.nbytes + tables.members.nbytes
    table = layer.table
    assert tables.nbytes < 0.4 * (table.weights.nbytes + table.first.nbytes + table.second.nbytes)

"""Full softmax's loss of rows with labels, against torch.

Legend: B rows, D hidden size, N classes.
"""

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from runner.data.rows.batches import RowBatch
from runner.heads.classes import ClassesHead
from runner.output.numba.layer import NumbaLayer
from runner.tasks.classification import row_losses

B, D, N = 4, 12, 300
LABELS = [[7], [0, 299], [3, 5, 11, 200, 201], [299]]


def batch() -> RowBatch:
    indptr = np.cumsum([0, *map(len, LABELS)], dtype=np.int64)
    nothing = np.zeros(0, dtype=np.int32)
    return RowBatch(
        indptr=np.zeros(B + 1, dtype=np.int64), indices=nothing, values=nothing.astype(np.float32),
        target_indptr=indptr, targets=np.concatenate(LABELS).astype(np.int32),
    )  # fmt: skip


@pytest.mark.parametrize("by_magnitude", [False, True])
@pytest.mark.parametrize("scale", [None, 5.0])
def test_the_loss_of_a_row_is_the_mean_over_its_labels(
    scale: float | None, by_magnitude: bool, make_layer: Callable[..., NumbaLayer]
) -> None:
    layer = NumbaLayer(make_layer(N, D).table, scale)
    hidden_BD = np.random.default_rng(0).normal(size=(B, D)).astype(np.float32)
    logits_BN = torch.empty(B, N)
    layer.block_logits(hidden_BD, 0, N, logits_BN.numpy())
    log_p_BN = torch.log_softmax((logits_BN.abs() if by_magnitude else logits_BN).double(), dim=1)
    expected_B = [-log_p_BN[row, labels].mean().item() for row, labels in enumerate(LABELS)]

    head = SimpleNamespace(layer=layer, loss=SimpleNamespace(by_magnitude=by_magnitude))
    head.logits_of = lambda *given: ClassesHead.logits_of(head, *given)
    np.testing.assert_allclose(row_losses(SimpleNamespace(head=head), hidden_BD, batch()), expected_B, rtol=1e-5)

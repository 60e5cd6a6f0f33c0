"""Numbers at the ends of float32's range, and settings at the ends of theirs."""

import numpy as np
import pytest

from runner.kernels.groups import group_by_id
from runner.optimizers import AdamConfig
from runner.output.across import Alone
from runner.output.numba.losses import NumbaRowLogits
from runner.output.numba.row_table import RowTable


def test_a_masked_candidate_gets_exactly_no_gradient() -> None:
    """Not 1e-38: a moment that is not zero keeps its row drifting and costs denormal arithmetic."""
    targets, candidates = np.zeros(1, np.float32), np.array([0, -np.inf], dtype=np.float32)
    begin, end = np.array([0], dtype=np.int64), np.array([2], dtype=np.int64)
    NumbaRowLogits(
        target_indptr_B1=np.array([0, 1]), target_P=targets, begin_B=begin, end_B=end, candidate_N=candidates,
        num_targets_B=np.ones(1, np.int64), weight_B=np.ones(1, np.float32), num_classes=9, across=Alone(),
    ).softmax()  # fmt: skip
    assert candidates.tolist() == [0.5, 0.0]


@pytest.mark.parametrize("beta1", [0.0, 0.9])
@pytest.mark.parametrize("grad", [1e-38, 1e-25, 1e-20])
def test_gradients_whose_square_vanishes_do_no_harm(beta1: float, grad: float) -> None:
    """The second moment underflows to zero while the first does not; gradients of unlikely classes are so
    small."""
    table = RowTable(AdamConfig(beta1=beta1, lr=0.01), np.ones((2, 3), dtype=np.float32), bias=True)
    row = np.array([0], dtype=np.int32)
    for step in (1, 5, 9):
        table.read(row, step)
        source, nobody = np.full((1, 3), grad, np.float32), np.zeros((0, 3), np.float32)
        one = np.ones(1, np.float32)
        table.update_groups(group_by_id(row, 2), source, np.zeros(1, np.int32), one, nobody, step,
                            np.full(1, grad, np.float32))  # fmt: skip
    table.read(None, 12)
    np.testing.assert_allclose(table.weights, 1, atol=1e-6)
    assert table.bias is not None
    np.testing.assert_allclose(table.bias, 0, atol=1e-6)

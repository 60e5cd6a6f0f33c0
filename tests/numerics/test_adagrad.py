"""AdaGrad against ``torch.optim.Adagrad``: rows that a step touches, their biases, and small dense parameters.

Legend: R rows, D columns, U rows of a step.
"""

from typing import Any

import numpy as np
import pytest
import torch

from runner.optimizers import AdaGradConfig, dense_step
from runner.output.numba.row_table import RowTable

ROWS, DIM, STEPS, LR = 12, 7, 30, 0.3


@pytest.mark.parametrize("factor", [1.0, 0.25])
@pytest.mark.parametrize("bias", [True, False])
def test_rows_are_torchs(bias: bool, factor: float) -> None:
    """A row without a gradient has one of zero in torch's eyes, so it does not move there either."""
    generator = np.random.default_rng(0)
    start_RD = generator.standard_normal((ROWS, DIM)).astype(np.float32)
    table = RowTable(AdaGradConfig(lr=LR), start_RD.copy(), bias=bias)
    weights, biases = torch.from_numpy(start_RD).double(), torch.zeros(ROWS).double()
    theirs = torch.optim.Adagrad([weights.requires_grad_(), biases.requires_grad_()], lr=LR)
    for step in range(1, STEPS + 1):
        rows_U = np.sort(generator.choice(ROWS - 1, 4, replace=False)).astype(np.int32)  # the last row never
        grad_UD = generator.standard_normal((4, DIM)).astype(np.float32)
        bias_grad_U = generator.standard_normal(4).astype(np.float32)
        table.read(rows_U, step)
        table.apply(rows_U, grad_UD, bias_grad_U, step, factor)
        weights.grad, biases.grad = torch.zeros_like(weights), torch.zeros_like(biases)
        weights.grad[rows_U] = torch.from_numpy(factor * grad_UD).double()
        biases.grad[rows_U] = torch.from_numpy(factor * bias_grad_U).double()
        theirs.step()
    np.testing.assert_allclose(table.weights, weights.detach().numpy(), atol=1e-5)
    assert np.array_equal(table.weights[-1], start_RD[-1])
    np.testing.assert_allclose(table.second, theirs.state[weights]["sum"].numpy(), rtol=1e-5)
    if bias:
        np.testing.assert_allclose(table.biases(), biases.detach().numpy(), atol=1e-5)
    else:
        assert table.bias.size == table.bias_second.size == 0


def test_dense_parameters_are_torchs() -> None:
    generator = np.random.default_rng(1)
    parameter = generator.standard_normal((3, 4)).astype(np.float32)
    mirror = torch.from_numpy(parameter.copy()).double().requires_grad_()
    theirs, state = torch.optim.Adagrad([mirror], lr=LR), dict[str, Any]()
    for step in range(1, STEPS + 1):
        grad = generator.standard_normal((3, 4)).astype(np.float32)
        dense_step(AdaGradConfig(lr=0.9), state, parameter, grad, step, LR)
        mirror.grad = torch.from_numpy(grad).double()
        theirs.step()
    np.testing.assert_allclose(parameter, mirror.detach().numpy(), atol=1e-5)
    assert parameter.dtype == state["second"].dtype == np.float32


def test_first_step_has_the_size_of_the_rate_and_no_gradient_means_no_step() -> None:
    table = RowTable(AdaGradConfig(lr=0.5), np.zeros((1, 3), dtype=np.float32), bias=True)
    row_U, grad_UD = np.zeros(1, dtype=np.int32), np.array([[3e-5, -7e4, 0]], dtype=np.float32)
    table.apply(row_U, grad_UD, np.array([-2], dtype=np.float32), 1)
    np.testing.assert_allclose(table.weights, [[-0.5, 0.5, 0]], rtol=1e-5)
    np.testing.assert_allclose(table.biases(), [0.5], rtol=1e-5)


def test_state_round_trip() -> None:
    """A table that gets another's state takes its next step."""
    generator = np.random.default_rng(2)
    one, other = (RowTable(AdaGradConfig(), np.zeros((4, 3), dtype=np.float32), bias=True) for _ in range(2))
    rows_U = np.array([0, 2], dtype=np.int32)
    for step in (1, 2, 3):
        if step == 3:
            other.load_state_dict({name: array.copy() for name, array in one.state_dict().items()})
        grad_UD, bias_grad_U = generator.standard_normal((2, 3)).astype(np.float32), np.ones(2, dtype=np.float32)
        one.apply(rows_U, grad_UD, bias_grad_U, step)
    other.apply(rows_U, grad_UD, bias_grad_U, 3)
    assert np.array_equal(one.weights, other.weights)
    assert np.array_equal(one.bias, other.bias)
    assert set(one.state_dict()) == {"weights", "second", "last_step", "bias", "bias_second"}

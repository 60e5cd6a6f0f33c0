"""Weights of a batch's rows against autograd: every kind of proposal, every loss kernel.

Legend: B rows, D hidden size, N classes.
"""

from typing import Any

import numpy as np
import pytest
import torch

from runner.contracts import Everything, ExampleDraw, Proposal, Query
from runner.optimizers import SgdConfig
from runner.output.losses import LOSSES, LossConfig
from runner.output.numba.layer import NumbaLayer
from runner.output.numba.row_table import RowTable

B, D, N = 12, 9, 80
WEIGHTS = np.array([0.5, 0.0, 0.01, 2.0] * 3, dtype=np.float32) / np.float32(B)
LOGIT_LOSSES = ["sampled_softmax", "partition_estimate", "nce", "negative_sampling", "blackout"]


def layer_of(scale: float | None = None) -> NumbaLayer:
    weights = np.random.default_rng(0).standard_normal((N, D)).astype(np.float32)
    return NumbaLayer(RowTable(SgdConfig(lr=1.0), weights, bias=True), scale)


def query_of() -> Query:
    generator = np.random.default_rng(1)
    return Query(
        hidden_BD=generator.standard_normal((B, D)).astype(np.float32),
        target_indptr_B1=np.arange(B + 1, dtype=np.int64),
        targets_P=generator.integers(0, N, B).astype(np.int32),
    )


def proposal_of(kind: str) -> Proposal | Everything:
    generator = np.random.default_rng(2)
    if kind == "everything":
        return Everything(N)
    if kind == "shared":
        ids = np.sort(generator.choice(N, 20, replace=False)).astype(np.int32)
        return Proposal(ids_N=ids, log_expected_count_N=np.full(20, np.log(20 / N), np.float32))
    ids = generator.integers(0, N, 15 * B).astype(np.int32)
    indptr = np.arange(B + 1, dtype=np.int64) * 15
    return Proposal(ids_N=ids, log_expected_count_N=np.full(15 * B, np.log(15 / N), np.float32), indptr_B1=indptr)


def step(kind: str, loss: LossConfig, weight_B: np.ndarray | None, scale: float | None = None) -> tuple[Any, ...]:
    """Losses and the gradients of classes (as an SGD step of rate 1 shows it), of biases and of hidden states."""
    layer, query = layer_of(scale), query_of()
    before = layer.table.weights.copy()
    scores = layer.score(query, proposal_of(kind), 1)
    log_count_P = np.zeros(B, np.float32) if loss.corrects_targets else None
    losses = scores.loss(loss, log_count_P, weight_B).copy()
    grad_hidden_BD = scores.update()
    return losses, before - layer.table.weights, -layer.table.biases().copy(), grad_hidden_BD


@pytest.mark.parametrize("scale", [None, 4.0], ids=["plain", "normalised"])
@pytest.mark.parametrize(
    ("kind", "name"), [("everything", "full"), *((k, name) for k in ("shared", "pairs") for name in LOGIT_LOSSES)]
)
def test_a_weighted_step_is_the_weighted_sum_of_single_rows(kind: str, name: str, scale: float | None) -> None:
    """Row b alone, with weight 1, against all rows at once: gradients are linear in the weights."""
    loss = LOSSES[name](name=name)
    losses, grad_classes, grad_bias, grad_hidden = step(kind, loss, WEIGHTS, scale)
    unweighted, *_ = step(kind, loss, None, scale)
    np.testing.assert_allclose(losses, unweighted, rtol=1e-5, err_msg="losses come without their weights")
    sum_classes, sum_bias = np.zeros_like(grad_classes), np.zeros_like(grad_bias)
    for row in range(B):
        alone = np.zeros(B, dtype=np.float32)
        alone[row] = 1
        _, classes, bias, hidden = step(kind, loss, alone, scale)
        sum_classes += WEIGHTS[row] * classes
        sum_bias += WEIGHTS[row] * bias
        np.testing.assert_allclose(grad_hidden[row], WEIGHTS[row] * hidden[row], rtol=2e-3, atol=2e-6)
        assert not np.delete(hidden, row, axis=0).any(), "rows of weight 0 learn nothing"
    np.testing.assert_allclose(grad_classes, sum_classes, rtol=2e-3, atol=3e-6)
    np.testing.assert_allclose(grad_bias, sum_bias, rtol=2e-3, atol=3e-6)
    assert np.abs(grad_classes).max() > 1e-3


@pytest.mark.parametrize("kind", ["everything", "shared", "pairs"])
def test_equal_weights_are_no_weights(kind: str) -> None:
    loss = LOSSES["full" if kind == "everything" else "sampled_softmax"]
    config = loss(name="full" if kind == "everything" else "sampled_softmax")
    equal = np.full(B, np.float32(1.0 / B), dtype=np.float32)
    for ours, plain in zip(step(kind, config, equal), step(kind, config, None), strict=True):
        np.testing.assert_allclose(ours, plain, rtol=1e-4, atol=1e-7)


def test_full_softmax_with_weights_is_torchs() -> None:
    query, layer = query_of(), layer_of()
    weights = torch.from_numpy(layer.table.weights.copy()).double().requires_grad_()
    hidden = torch.from_numpy(query.hidden_BD).double().requires_grad_()
    each = torch.nn.functional.cross_entropy(
        hidden @ weights.T, torch.from_numpy(query.targets_P).long(), reduction="none"
    )
    (each * torch.from_numpy(WEIGHTS).double()).sum().backward()
    losses, grad_classes, _, grad_hidden = step("everything", LOSSES["full"](name="full"), WEIGHTS)
    assert weights.grad is not None
    assert hidden.grad is not None
    np.testing.assert_allclose(losses, each.detach().numpy(), rtol=1e-5)
    np.testing.assert_allclose(grad_classes, weights.grad.numpy(), rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(grad_hidden, hidden.grad.numpy(), rtol=1e-3, atol=1e-6)


def test_a_draw_weighs_its_examples_by_their_counts() -> None:
    assert ExampleDraw(rows_B=np.arange(3)).weight_B(10) is None
    log_count = np.log(np.array([0.5, 2.0]))
    weight_B = ExampleDraw(rows_B=np.arange(2), log_expected_count_B=log_count).weight_B(10)
    assert weight_B is not None
    assert weight_B.dtype == np.float32
    np.testing.assert_allclose(weight_B, [0.2, 0.05], rtol=1e-6)

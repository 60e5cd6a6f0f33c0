"""Gradients that are kept before they are applied: the same step as in one pass; clipping and SGD against torch.

Legend: N classes, D hidden size, B rows of a batch.
"""

import numpy as np
import pytest
import torch

from runner.contracts import Everything, Proposal, Query
from runner.errors import ConfigError
from runner.kernels.products import HAS_BF16
from runner.optimizers import AdamConfig, OptimizerConfig, SgdConfig
from runner.output.gradients import clipping_factor
from runner.output.losses import FullLoss, SampledSoftmaxLoss
from runner.output.numba.layer import NumbaLayer
from runner.output.numba.row_table import RowTable, RowTableGradient

N, D, B, STEPS = 150, 19, 24, 7
SAMPLED = SampledSoftmaxLoss(name="sampled_softmax")
SCALES = [pytest.param(None, id="plain"), pytest.param(4.0, id="normalised", marks=pytest.mark.slow)]
KINDS = ["everything", "shared", "pairs"]


def proposal_of(kind: str, generator: np.random.Generator) -> Proposal | Everything:
    if kind == "everything":
        return Everything(N)
    if kind == "shared":
        ids = np.sort(generator.choice(N, 30, replace=False)).astype(np.int32)
        return Proposal(ids_N=ids, log_expected_count_N=np.full(30, np.log(30 / N), dtype=np.float32))
    ids = generator.integers(0, N, 12 * B).astype(np.int32)
    indptr = np.arange(B + 1, dtype=np.int64) * 12
    return Proposal(ids_N=ids, log_expected_count_N=np.full(12 * B, np.log(12 / N), np.float32), indptr_B1=indptr)


def layer_of(optimizer: OptimizerConfig, scale: float | None) -> NumbaLayer:
    weights = np.random.default_rng(0).standard_normal((N, D)).astype(np.float32)
    return NumbaLayer(RowTable(optimizer, weights, bias=True), scale)


def query_of(generator: np.random.Generator) -> Query:
    return Query(
        hidden_BD=generator.standard_normal((B, D)).astype(np.float32),
        target_indptr_B1=np.arange(B + 1, dtype=np.int64),
        targets_P=generator.integers(0, N, B).astype(np.int32),
    )


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("rows", ["dense", "touched", "catch_up"])
@pytest.mark.parametrize("kind", KINDS)
def test_keeping_and_applying_is_the_same_step(kind: str, rows: str, scale: float | None) -> None:
    """Over several steps, so that rows lag and moments catch up. Sums are rounded alike, Adam's last bit is not."""
    config = AdamConfig(lr=0.01, rows=rows)  # type: ignore[arg-type]
    fused, kept = layer_of(config, scale), layer_of(config, scale)
    loss = FullLoss(name="full") if kind == "everything" else SAMPLED
    generator = np.random.default_rng(1)
    for step in range(1, STEPS + 1):
        query, proposal = query_of(generator), proposal_of(kind, generator)
        scores = fused.score(query, proposal, step)
        first = scores.loss(loss)
        grad_hidden = scores.update()
        scores = kept.score(query, proposal, step)
        np.testing.assert_allclose(scores.loss(loss), first, rtol=1e-4, atol=1e-4)
        gradient, other_grad_hidden = scores.gradients()
        np.testing.assert_array_equal(gradient.rows_U, scores.touched_U)
        gradient.apply(step)
        np.testing.assert_allclose(other_grad_hidden, grad_hidden, rtol=1e-3, atol=1e-5)
    fused.table.read(None, STEPS + 1)
    kept.table.read(None, STEPS + 1)
    start = layer_of(config, scale).table.weights
    moved = np.abs(fused.table.weights - start).mean()
    assert moved > 1e-3
    theirs = fused.table.state_dict()
    for name, ours in kept.table.state_dict().items():
        np.testing.assert_allclose(ours, theirs[name], rtol=1e-3, atol=1e-3 * moved, err_msg=name)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("kind", KINDS)
def test_sgd_is_torchs(kind: str, scale: float | None) -> None:
    """One step of the whole layer against autograd and torch.optim.SGD."""
    lr = 0.7
    layer = layer_of(SgdConfig(lr=lr), scale)
    assert layer.table.first.size == layer.table.bias_second.size == 0, "SGD keeps no moments"
    generator = np.random.default_rng(2)
    layer.table.bias[:, 0] = generator.standard_normal(N)
    query, proposal = query_of(generator), proposal_of(kind, generator)
    w, b, h = (
        torch.from_numpy(x.copy()).double().requires_grad_()
        for x in (layer.table.weights, layer.table.biases(), query.hidden_BD)
    )
    scores = layer.score(query, proposal, 1)
    losses = scores.loss(FullLoss(name="full") if kind == "everything" else SAMPLED)
    grad_hidden = scores.update()

    if scale is None:
        logits = h @ w.T + b
    else:
        logits = scale * torch.nn.functional.normalize(h) @ torch.nn.functional.normalize(w).T + b.detach()
    targets = torch.from_numpy(query.targets_P.astype(np.int64))
    if isinstance(proposal, Everything):
        exact = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
    else:
        rows = []
        for row in range(B):
            here = slice(None)
            if proposal.indptr_B1 is not None:
                here = slice(proposal.indptr_B1[row], proposal.indptr_B1[row + 1])
            ids = torch.from_numpy(proposal.ids_N[here].astype(np.int64))
            corrected = logits[row, ids] - torch.from_numpy(proposal.log_expected_count_N[here])
            corrected = corrected[ids != targets[row]]
            own = logits[row, targets[row]]
            rows.append(torch.logsumexp(torch.cat([own[None], corrected]), 0) - own)
        exact = torch.stack(rows)
    np.testing.assert_allclose(losses, exact.detach().numpy(), rtol=1e-4, atol=1e-5)
    exact.mean().backward()
    torch.optim.SGD([w, b] if scale is None else [w], lr=lr).step()
    np.testing.assert_allclose(layer.table.weights, w.detach().numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(layer.table.biases(), b.detach().numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(grad_hidden, h.grad.numpy(), rtol=1e-3, atol=1e-6)  # type: ignore[union-attr]


@pytest.mark.slow
@pytest.mark.skipif(not HAS_BF16, reason="needs AVX512_BF16")
def test_full_softmax_in_bf16_keeps_gradients_too() -> None:
    layer = layer_of(SgdConfig(lr=1.0), None)
    query = query_of(np.random.default_rng(3))
    gradients = []
    for products in ("float32", "bf16"):
        scores = layer.score(query, Everything(N, products), 1)  # type: ignore[arg-type]
        scores.loss(FullLoss(name="full"))
        gradients.append(scores.gradients()[0])
    exact, rounded = (gradient.grad_UD for gradient in gradients)
    assert np.abs(exact).max() > 1e-3
    assert np.abs(exact - rounded).max() < 0.02 * np.abs(exact).max()
    np.testing.assert_allclose(gradients[1].bias_grad_U, gradients[0].bias_grad_U, atol=1e-3)


def gradient_of(table: RowTable, rows: list[int], seed: int) -> RowTableGradient:
    generator = np.random.default_rng(seed)
    return RowTableGradient(
        table=table,
        rows_U=np.array(rows, dtype=np.int32),
        grad_UD=generator.standard_normal((len(rows), D)).astype(np.float32),
        bias_grad_U=generator.standard_normal(len(rows)).astype(np.float32),
    )


@pytest.mark.parametrize("largest", [0.25, 3.0, 1e6])
def test_clipping_is_torchs(largest: float) -> None:
    with_bias = RowTable(SgdConfig(), np.zeros((50, D), np.float32), bias=True)
    without = RowTable(SgdConfig(), np.zeros((50, D), np.float32), bias=False)
    ours = [gradient_of(with_bias, [3, 8, 41], 0), gradient_of(without, list(range(50)), 1)]
    arrays = [ours[0].grad_UD, ours[0].bias_grad_U, ours[1].grad_UD]
    theirs = [torch.nn.Parameter(torch.zeros(array.shape)) for array in arrays]
    for parameter, array in zip(theirs, arrays, strict=True):
        parameter.grad = torch.from_numpy(array.copy())
    torch.nn.utils.clip_grad_norm_(theirs, largest)
    factor = clipping_factor(ours, largest)
    for parameter, array in zip(theirs, arrays, strict=True):
        assert parameter.grad is not None
        np.testing.assert_allclose(factor * array, parameter.grad.numpy(), rtol=1e-5)
    ours[0].apply(1, factor)
    np.testing.assert_allclose(with_bias.weights[[3, 8, 41]], -factor * arrays[0], rtol=1e-5)
    np.testing.assert_allclose(with_bias.biases()[[3, 8, 41]], -factor * arrays[1], rtol=1e-5)
    assert np.isnan(clipping_factor([gradient_of(with_bias, [1], 0), *ours[:0], _lost(with_bias)], 1.0))


def _lost(table: RowTable) -> RowTableGradient:
    lost = gradient_of(table, [2], 0)
    lost.grad_UD[0, 0] = np.inf
    return lost


def test_sums_of_gradients_keep_every_row() -> None:
    table = RowTable(SgdConfig(), np.zeros((50, D), np.float32), bias=True)
    one, other = gradient_of(table, [3, 8, 41], 0), gradient_of(table, [0, 8, 49], 1)
    both = one.plus(other)
    assert both.rows_U.tolist() == [0, 3, 8, 41, 49]
    np.testing.assert_array_equal(both.grad_UD[2], one.grad_UD[1] + other.grad_UD[1])
    np.testing.assert_array_equal(both.grad_UD[4], other.grad_UD[2])
    assert both.bias_grad_U[1] == one.bias_grad_U[0]


@pytest.mark.parametrize("rows", ["dense", "catch_up"])
def test_a_changed_learning_rate_is_that_of_the_steps_after_it(rows: str) -> None:
    """Adam against torch's, whose rate changes after step 5; a row that is seldom touched moves by its momentum."""
    config = AdamConfig(lr=0.05, rows=rows)  # type: ignore[arg-type]
    start = np.random.default_rng(0).standard_normal((4, D)).astype(np.float32)
    table = RowTable(config, start.copy(), bias=False)
    parameter = torch.nn.Parameter(torch.from_numpy(start.copy()))
    adam = torch.optim.Adam([parameter], lr=0.05)
    for step in range(1, 12):
        touched = [0, 1] if step % 2 else [0, 2]
        if step > 7:
            touched = [0]
        gradient = gradient_of(table, touched, step)
        table.before_step(step)
        table.read(gradient.rows_U, step)
        gradient.apply(step)
        parameter.grad = torch.zeros_like(parameter)
        parameter.grad[touched] = torch.from_numpy(gradient.grad_UD)
        adam.step()
        if step == 5:
            table.read(None, step + 1)
            table.set_lr(0.01)
            adam.param_groups[0]["lr"] = 0.01
    table.read(None, 12)
    np.testing.assert_allclose(table.weights, parameter.detach().numpy(), atol=2e-4)
    assert table.lr == 0.01
    assert config.lr == 0.05


def test_sgd_checks_its_range() -> None:
    with pytest.raises(ConfigError, match=r"optimizer\.lr must be above 0"):
        SgdConfig(lr=0)

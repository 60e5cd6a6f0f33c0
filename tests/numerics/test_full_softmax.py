"""Training steps of full softmax against a plain torch model in double precision.

Legend: B rows, F features, D hidden size, N classes.
"""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from runner.config import compose
from runner.contracts import Everything, Proposal, Query, TrainingFacts
from runner.data.rows.batches import RowBatch
from runner.heads.classes import ClassesHead
from runner.machine.clock import StageClock
from runner.network import ClassNetwork, Network
from runner.output.numba.layer import NumbaLayer

F, D, B = 30, 12, 8


def random_batch(generator: np.random.Generator, num_classes: int) -> RowBatch:
    """Rows with 0 to 6 features (repeats allowed, they add up) and 1 to 3 classes."""
    sizes = generator.integers(0, 7, B)
    sizes[0] = 0
    target_sizes = generator.integers(1, 4, B)
    targets = [np.sort(generator.choice(num_classes, size, replace=False)) for size in target_sizes]
    return RowBatch(
        indptr=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        indices=generator.integers(0, F - 5, sizes.sum()).astype(np.int32),  # five features never occur
        values=generator.uniform(0.2, 1.0, sizes.sum()).astype(np.float32),
        target_indptr=np.concatenate([[0], np.cumsum(target_sizes)]).astype(np.int64),
        targets=np.concatenate(targets).astype(np.int32),
    )


def dense(batch: RowBatch, num_classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Features (B, F) and target distribution (B, N) in double precision."""
    x = np.zeros((B, F))
    np.add.at(x, (np.repeat(np.arange(B), np.diff(batch.indptr)), batch.indices), batch.values)
    sizes = np.diff(batch.target_indptr)
    y = np.zeros((B, num_classes))
    y[np.repeat(np.arange(B), sizes), batch.targets] = np.repeat(1 / sizes, sizes)
    return torch.from_numpy(x), torch.from_numpy(y)


class PlainModel(torch.nn.Module):
    def __init__(self, network: ClassNetwork) -> None:
        super().__init__()
        assert network.head.layer.table.bias is not None
        start = {
            "input": network.encoder.table.weights,
            "input_bias": network.encoder.bias,
            "output": network.head.layer.table.weights,
            "output_bias": network.head.layer.table.bias[:, 0],
        }
        self.scale = network.head.layer.scale
        for name, value in start.items():
            self.register_parameter(name, torch.nn.Parameter(torch.from_numpy(value.copy()).double()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(x @ self.input + self.input_bias)
        if self.scale is None:
            return hidden @ self.output.T + self.output_bias
        normalize = torch.nn.functional.normalize
        return self.scale * normalize(hidden, dim=1) @ normalize(self.output, dim=1).T


def make_network(num_classes: int, *overrides: str) -> ClassNetwork:
    config = compose(["sampler=full", f"model.hidden={D}", "optimizer.lr=0.02", *overrides])
    facts = TrainingFacts.one_label_a_row(np.ones(num_classes, dtype=np.int64))
    return Network.of(config, ClassesHead.of(config, facts), num_features=F)


@pytest.mark.parametrize("rows", ["dense", "catch_up"])
@pytest.mark.parametrize("num_classes", [40, 2000])
@pytest.mark.parametrize("normalize", ["false", "true"])
def test_ten_steps_like_torch(rows: str, num_classes: int, normalize: str) -> None:
    """2,000 classes are 125 for each of the 16 parts: a whole block of 64 and a part of one."""
    network = make_network(num_classes, f"optimizer.rows={rows}", f"output.normalize={normalize}")
    model = PlainModel(network)
    start = {name: value.detach().clone() for name, value in model.named_parameters()}
    config = network.head.layer.table.config
    adam = torch.optim.Adam(model.parameters(), lr=config.lr, betas=(config.beta1, config.beta2), eps=config.epsilon)
    generator = np.random.default_rng(5)
    for step in range(1, 11):
        batch = random_batch(generator, num_classes)
        scores = network.train_step(batch, step, StageClock())
        loss, candidates = scores.loss, scores.candidates_per_row
        x, y = dense(batch, num_classes)
        expected = torch.nn.functional.cross_entropy(model(x), y)
        adam.zero_grad()
        expected.backward()
        adam.step()
        assert loss == pytest.approx(expected.item(), rel=1e-5)
        assert candidates == num_classes
    network.read_all(11)
    assert network.head.layer.table.bias is not None
    ours = {
        "input": network.encoder.table.weights,
        "input_bias": network.encoder.bias,
        "output": network.head.layer.table.weights,
        "output_bias": network.head.layer.table.bias[:, 0],
    }
    if normalize == "true":
        assert not ours.pop("output_bias").any()
    for name, value in model.named_parameters():
        if name not in ours:
            continue
        travelled = (value.detach() - start[name]).abs().max().item()
        assert travelled > 0.05, f"{name} must have moved for this comparison to say anything"
        np.testing.assert_allclose(ours[name], value.detach().numpy(), atol=2e-3 * travelled, err_msg=name)
    np.testing.assert_array_equal(ours["input"][F - 5 :], start["input"].numpy()[F - 5 :])


def one_full_step(layer: NumbaLayer, query: Query) -> tuple[np.ndarray, np.ndarray]:
    from runner.output.losses import FullLoss

    scores = layer.score(query, Everything(layer.num_classes), 1)
    losses = scores.loss(FullLoss(name="full"))
    return losses, scores.update()


def gradient(layer: NumbaLayer) -> tuple[np.ndarray, np.ndarray]:
    """After a first Adam step the first moment is (1 - beta1) times the gradient."""
    assert layer.table.bias_first is not None
    share = 1 - layer.table.config.beta1
    return layer.table.first / share, layer.table.bias_first[:, 0] / share


def test_gradients_like_autograd(make_layer: Callable[..., NumbaLayer], make_query: Callable[..., Query]) -> None:
    layer, query = make_layer(50, D, norm=3.0), make_query(B, D, 50)
    assert layer.table.bias is not None
    weights = torch.from_numpy(layer.table.weights.copy()).double().requires_grad_()
    bias = torch.from_numpy(layer.table.bias[:, 0].copy()).double().requires_grad_()
    hidden = torch.from_numpy(query.hidden_BD.copy()).double().requires_grad_()
    sizes = np.diff(query.target_indptr_B1)
    y = np.zeros((B, 50))
    y[np.repeat(np.arange(B), sizes), query.targets_P] = np.repeat(1 / sizes, sizes)
    expected_B = torch.nn.functional.cross_entropy(hidden @ weights.T + bias, torch.from_numpy(y), reduction="none")
    expected_B.mean().backward()
    losses, grad_hidden = one_full_step(layer, query)
    grad_weights, grad_bias = gradient(layer)
    assert hidden.grad is not None
    assert weights.grad is not None
    assert bias.grad is not None
    np.testing.assert_allclose(losses, expected_B.detach().numpy(), rtol=1e-5)
    np.testing.assert_allclose(grad_hidden, hidden.grad.numpy(), rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(grad_weights, weights.grad.numpy(), rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(grad_bias, bias.grad.numpy(), rtol=1e-4, atol=1e-7)


def test_listing_every_class_as_a_candidate_is_full_softmax(
    make_layer: Callable[..., NumbaLayer], make_query: Callable[..., Query]
) -> None:
    from runner.output.losses import ActiveSetLoss

    query = make_query(B, D, 50)
    full, listed = make_layer(50, D), make_layer(50, D)
    losses, grad_hidden = one_full_step(full, query)
    every = np.arange(50, dtype=np.int32)
    scores = listed.score(query, Proposal(ids_N=every, log_expected_count_N=np.zeros(50, np.float32)), 1)
    np.testing.assert_allclose(scores.loss(ActiveSetLoss(name="active_set")), losses, rtol=1e-5)
    np.testing.assert_allclose(scores.update(), grad_hidden, rtol=1e-4, atol=1e-7)
    for a, b in zip(gradient(full), gradient(listed), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-7)

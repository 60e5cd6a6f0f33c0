"""The head of one output under a network without classes, against torch."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from runner.data.rows.batches import RowBatch
from runner.lgd.head import ScalarHead, ScalarLoss, logistic_loss
from runner.machine.clock import StageClock
from runner.models import MlpConfig
from runner.network import Network
from runner.optimizers import AdaGradConfig, AdamConfig, OptimizerConfig, SgdConfig

ROWS, FEATURES, HIDDEN = 20, 15, 6
NOBODY = np.zeros(0, dtype=np.int32)


@dataclass(frozen=True, kw_only=True)
class ResponseRows(RowBatch):
    """Rows of features with a number each."""

    response_B: np.ndarray


def batch_of(loss: ScalarLoss, weight_B: np.ndarray | None) -> tuple[ResponseRows, torch.Tensor]:
    generator = np.random.default_rng(0)
    x = generator.standard_normal((ROWS, FEATURES)).astype(np.float32)
    y = (x[:, 0] - 0.5 * x[:, 1] + 0.3).astype(np.float32)
    batch = ResponseRows(
        indptr=np.arange(ROWS + 1, dtype=np.int64) * FEATURES,
        indices=np.tile(np.arange(FEATURES, dtype=np.int32), ROWS),
        values=x.reshape(-1),
        target_indptr=np.zeros(ROWS + 1, dtype=np.int64),
        targets=NOBODY,
        weight_B=weight_B,
        response_B=(y > 0).astype(np.float32) if loss == "logistic" else y,
    )
    return batch, torch.from_numpy(x).double()


def network_of(loss: ScalarLoss, optimizer: OptimizerConfig, clip: float | None) -> Network[ScalarHead]:
    head = ScalarHead(dim=HIDDEN, loss=loss, optimizer=optimizer)
    head.table.weights[:] = np.random.default_rng(3).standard_normal((1, HIDDEN))
    encoder = MlpConfig(hidden=HIDDEN).build(
        num_features=FEATURES, classes=head.table, optimizer=optimizer, seed=1
    )  # fmt: skip
    return Network(encoder, head, clip=clip)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("clip", [None, 0.1])
@pytest.mark.parametrize(
    "optimizer",
    [SgdConfig(lr=0.1), AdamConfig(lr=0.02, rows="dense"), AdaGradConfig(lr=0.05)],
    ids=["sgd", "adam", "adagrad"],
)
@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_training_is_torchs(loss: ScalarLoss, optimizer: OptimizerConfig, clip: float | None, weighted: bool) -> None:
    weight_B = np.random.default_rng(5).random(ROWS).astype(np.float32) / ROWS if weighted else None
    batch, x = batch_of(loss, weight_B)
    network = network_of(loss, optimizer, clip)
    encoder = network.encoder
    first, bias, last, intercept = (
        torch.from_numpy(array.copy()).double().requires_grad_()
        for array in (encoder.table.weights, encoder.bias, network.head.table.weights[0], network.head.table.bias[0])
    )
    parameters = [first, bias, last, intercept]
    theirs: torch.optim.Optimizer = torch.optim.SGD(parameters, lr=optimizer.lr)
    if isinstance(optimizer, AdamConfig):
        theirs = torch.optim.Adam(parameters, lr=optimizer.lr)
    elif isinstance(optimizer, AdaGradConfig):
        theirs = torch.optim.Adagrad(parameters, lr=optimizer.lr)
    y = torch.from_numpy(batch.response_B).double()
    weight = torch.full((ROWS,), 1 / ROWS).double() if weight_B is None else torch.from_numpy(weight_B).double()
    for step in range(1, 9):
        prediction = torch.relu(x @ first + bias) @ last + intercept
        each = (prediction - y) ** 2
        if loss == "logistic":
            each = torch.nn.functional.binary_cross_entropy_with_logits(prediction, y, reduction="none")
        expected = (each * weight).sum()
        theirs.zero_grad()
        expected.backward()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(parameters, clip)
        theirs.step()
        scores = network.train_step(batch, step, StageClock())
        assert scores.loss == pytest.approx(expected.item(), rel=1e-4)
        assert scores.candidates_per_row == 0
    network.read_all(9)
    np.testing.assert_allclose(network.head.table.weights[0], last.detach().numpy(), atol=1e-4)
    np.testing.assert_allclose(network.head.table.bias[0], intercept.detach().numpy(), atol=1e-4)
    np.testing.assert_allclose(encoder.table.weights, first.detach().numpy(), atol=2e-4)
    assert network.is_sound(batch)


def test_state_round_trip_and_a_blow_up() -> None:
    batch, _ = batch_of("squared", None)
    one, other = (network_of("squared", AdamConfig(lr=0.02), None) for _ in range(2))
    one.train_step(batch, 1, StageClock())
    other.load_state_dict({name: array.copy() for name, array in one.state_dict().items()})
    assert one.train_step(batch, 2, StageClock()).loss == other.train_step(batch, 2, StageClock()).loss
    one.head.table.weights[0, 0] = np.nan
    assert not one.is_sound(batch)


def test_logistic_loss_far_from_zero() -> None:
    prediction = np.array([-1e4, 1e4, 0.0, 800.0], dtype=np.float32)
    losses, slopes = logistic_loss(prediction, np.array([0.0, 1.0, 1.0, 0.0], dtype=np.float32))
    np.testing.assert_allclose(losses, [0, 0, np.log(2), 800], atol=1e-12)
    np.testing.assert_allclose(slopes, [0, 0, -0.5, 1], atol=1e-12)

"""Build the head of a network with one output: linear regression by squared loss, or two classes by logistic loss.

There is no class matrix, and no class is sampled: prediction = h . w + b, with one row of weights.

Legend: B rows of a batch, D hidden size, U distinct rows of weights (here 1).
"""

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

import numpy as np

from runner.contracts import LARGEST_OUTPUT
from runner.heads.base import Head
from runner.machine.clock import StageClock
from runner.optimizers import OptimizerConfig, of_parameters
from runner.output.layer import RowGradient, Rows
from runner.output.numba.row_table import RowTable, RowTableGradient

ScalarLoss = Literal["squared", "logistic"]
_THE_ROW = np.zeros(1, dtype=np.int32)


def _overflow_shows_in_the_loss() -> np.errstate:
    """Keep NumPy from warning of an overflow, after which the loss is not finite and training stops."""
    return np.errstate(over="ignore", invalid="ignore")


class ResponseBatch(Protocol):
    """Describe a batch whose rows have one number each to predict."""

    @property
    def response_B(self) -> np.ndarray:
        """Return the numbers to predict, (B,) float32: any number for squared loss, 0 or 1 for logistic loss."""

    @property
    def weight_B(self) -> np.ndarray | None:
        """Return the factors of the rows' losses, (B,) float32; None: 1 / B each."""


def squared_loss(prediction_B: np.ndarray, response_B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (prediction - response)^2 of each row and its derivative by the prediction, both (B,) float64."""
    residual_B = prediction_B.astype(np.float64) - response_B
    return residual_B**2, 2 * residual_B


def logistic_loss(prediction_B: np.ndarray, response_B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return -log of the response's probability and its derivative by the prediction, both (B,) float64.

    sigmoid(prediction) is the probability of the response 1.
    """
    x_B = prediction_B.astype(np.float64)
    small_B = np.exp(-np.abs(x_B))
    sigmoid_B = np.where(x_B >= 0, 1, small_B) / (1 + small_B)
    return np.maximum(x_B, 0) - x_B * response_B + np.log1p(small_B), sigmoid_B - response_B


LOSSES = {"squared": squared_loss, "logistic": logistic_loss}


class ScalarScores:
    """Hold a batch that the head of one output has scored."""

    candidates_per_row = 0.0
    touched_U = _THE_ROW

    def __init__(self, head: "ScalarHead", hidden_BD: np.ndarray, batch: ResponseBatch, step: int) -> None:
        self.head, self.hidden_BD, self.step = head, hidden_BD, step
        weight_B = batch.weight_B
        if weight_B is None:
            weight_B = np.full(len(hidden_BD), 1 / len(hidden_BD), dtype=np.float64)
        with _overflow_shows_in_the_loss():
            self.loss_B, slope_B = LOSSES[head.loss](head.predict(hidden_BD), batch.response_B)
            self.loss = float(np.dot(weight_B, self.loss_B))
            self._grad_B = (weight_B * slope_B).astype(np.float32)

    def gradients(self) -> tuple[RowGradient, np.ndarray]:
        """Return the gradient of the row of weights, without applying it, and that of the hidden states (B, D)."""
        table, grad_B = self.head.table, self._grad_B
        with _overflow_shows_in_the_loss():
            gradient = RowTableGradient(
                table=table,
                rows_U=_THE_ROW,
                grad_UD=np.einsum("b,bd->d", grad_B, self.hidden_BD)[None],
                bias_grad_U=np.array([grad_B.sum()], dtype=np.float32),
            )
            return gradient, grad_B[:, None] * table.rows()[0]

    def update(self) -> np.ndarray:
        """Apply the gradient; return that of the hidden states (B, D), taken at the weights before the step."""
        gradient, grad_hidden_BD = self.gradients()
        gradient.apply(self.step)
        return grad_hidden_BD


class ScalarHead(Head):
    """Predict one number from the hidden states; the prediction starts at 0. ``bias``: false means b = 0."""

    def __init__(self, *, dim: int, loss: ScalarLoss, optimizer: OptimizerConfig, bias: bool = True) -> None:
        self.loss = loss
        self.table = RowTable(of_parameters(optimizer), np.zeros((1, dim), dtype=np.float32), bias=bias)

    @property
    def tables(self) -> Sequence[Rows]:
        """Return the row of weights, as the only table."""
        return (self.table,)

    def predict(self, hidden_BD: np.ndarray) -> np.ndarray:
        """Return the outputs, (B,) float32; under logistic loss they are log odds."""
        # einsum sums in one fixed order, whatever number of threads NumPy's BLAS has.
        return np.einsum("bd,d->b", hidden_BD, self.table.rows()[0]) + self.table.biases().sum()

    def score(self, hidden_BD: np.ndarray, batch: ResponseBatch, step: int, clock: StageClock) -> ScalarScores:
        """Predict the batch and take the loss."""
        self.table.before_step(step)
        with clock.stage("loss"):
            return ScalarScores(self, hidden_BD, batch, step)

    def is_sound(self, hidden_BD: np.ndarray) -> bool:
        """Tell whether all outputs for these hidden states are below ``LARGEST_OUTPUT``."""
        return bool((np.abs(self.predict(hidden_BD)) < LARGEST_OUTPUT).all())

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return the row of weights with its optimizer state, under ``output.``."""
        return {f"output.{name}": array for name, array in self.table.state_dict().items()}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore what ``state_dict`` returned."""
        prefix = "output."
        self.table.load_state_dict({n.removeprefix(prefix): v for n, v in state.items() if n.startswith(prefix)})

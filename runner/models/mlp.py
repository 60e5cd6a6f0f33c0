"""Encode a sparse bag of words by one hidden layer.

``mlp`` has a ReLU; it is the encoder of the LNS paper (section 3.3: one layer of 128 units). ``linear`` has none, as in
the extreme-classification tables of RF-softmax and MIDX (a v x 128 matrix).

The input matrix is a ``RowTable`` like the class matrix. Only the rows of features that occur in a batch are read and
updated, and the sparse input is never made dense.

Legend: B rows of a batch, F features, D hidden size.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numba import njit, prange

from runner import rng
from runner.data.rows.batches import RowBatch
from runner.kernels.groups import PRANGE, group_by_id
from runner.kernels.rows import FAST
from runner.models.base import Encoder, ModelConfig
from runner.optimizers import OptimizerConfig, dense_step
from runner.options.fields import option
from runner.output.across import Across
from runner.output.gradients import Gradient
from runner.output.layer import Rows
from runner.output.numba.row_table import RowTable


@njit(cache=True, parallel=PRANGE, fastmath=FAST)
def _bag_forward(indptr, indices, values, weights_FD, bias_D, least, hidden_BD):
    """Compute hidden = max(least, bias + sum over the row's features of value * weights[feature])."""
    for row in prange(hidden_BD.shape[0]):
        for k in range(hidden_BD.shape[1]):
            hidden_BD[row, k] = bias_D[k]
        for i in range(indptr[row], indptr[row + 1]):
            for k in range(hidden_BD.shape[1]):
                hidden_BD[row, k] += values[i] * weights_FD[indices[i], k]
        for k in range(hidden_BD.shape[1]):
            hidden_BD[row, k] = max(hidden_BD[row, k], least)


@dataclass(frozen=True, kw_only=True)
class MlpConfig(ModelConfig):
    """Encode a row by a hidden layer with a ReLU."""

    reads: ClassVar[str] = "rows"
    divides_batches: ClassVar[bool] = True

    name: str = "mlp"
    hidden: int = option(128, "units of the hidden layer, and size of the class vectors", low=1, high=4096)

    @property
    def least_activation(self) -> float:
        """Return the smallest value of a hidden unit; smaller ones are set to it."""
        return 0.0

    @property
    def dim(self) -> int:
        return self.hidden

    def feature_vectors(self, num_features: int, seed: int) -> np.ndarray:
        """Draw the vectors that the features start from, (F, D) float32.

        If rows are L2-normalised, as in tf-idf sets, hidden states then have unit scale after the ReLU.
        """
        generator = rng.generator(seed, rng.FEATURE_INIT)
        weights = generator.standard_normal((num_features, self.hidden), dtype=np.float32)
        return weights * np.float32(np.sqrt(2 / self.hidden))

    def build(self, *, num_features: int, classes: Rows, optimizer: OptimizerConfig, seed: int) -> Encoder:
        features = classes.another(self.feature_vectors(num_features, seed))
        if isinstance(features, RowTable):
            return Mlp(features, optimizer, self.least_activation)
        from runner.models.mlp_torch import TorchMlp

        return TorchMlp(features, self.least_activation)


@dataclass(frozen=True, kw_only=True)
class LinearConfig(MlpConfig):
    """Encode as ``mlp`` does, but without the ReLU: hidden units have any sign."""

    name: str = "linear"

    @property
    def least_activation(self) -> float:
        return -np.inf


class Mlp:
    """Encode sparse rows. ``forward`` and ``backward`` run once per step; both are part of the ENCODE stage."""

    def __init__(self, features: RowTable, optimizer: OptimizerConfig, least: float) -> None:
        self.optimizer = optimizer
        self.table = features
        self.dim = features.shape[1]
        self.least = np.float32(least)
        self.bias = np.zeros(self.dim, dtype=np.float32)
        self.bias_state = {"first": np.zeros_like(self.bias), "second": np.zeros_like(self.bias)}
        self.tables = (self.table,)
        self.dense = (self.bias,)

    def encode(self, batch: RowBatch) -> np.ndarray:
        """Return hidden states (B, D) float32; nothing is remembered. Rows of the input matrix must be current."""
        hidden = np.empty((batch.num_rows, self.dim), dtype=np.float32)
        _bag_forward(batch.indptr, batch.indices, batch.values, self.table.rows(), self.bias, self.least, hidden)
        return hidden

    def forward(self, batch: RowBatch, step: int) -> np.ndarray:
        self.table.before_step(step)
        self._batch = batch
        self._groups = group_by_id(batch.indices, self.table.shape[0])
        self.table.read_for_update(self._groups[1], step)
        self._hidden = self.encode(batch)
        return self._hidden

    def backward(self, grad_hidden_BD: np.ndarray, step: int) -> None:
        """Update the input rows of the batch's features and the bias."""
        pairs, grad_D = self._back(grad_hidden_BD)
        self.table.update_groups(*pairs, step)
        self._update_bias(grad_D, step)

    def gradients(self, grad_hidden_BD: np.ndarray, step: int) -> list[Gradient]:
        """Return the gradients of the input rows and of the bias instead of applying them."""
        pairs, grad_D = self._back(grad_hidden_BD)
        return [self.table.gradients_of_groups(*pairs, step), _BiasGradient(self, grad_D)]

    def _back(self, grad_hidden_BD: np.ndarray) -> tuple[tuple[Any, Any, Any, Any, Any], np.ndarray]:
        """Return the arguments from which the table computes its rows' gradients, and the gradient of the bias."""
        batch = self._batch
        grad_BD = np.where(self._hidden > self.least, grad_hidden_BD, np.float32(0))
        rows = np.repeat(np.arange(batch.num_rows, dtype=np.int32), np.diff(batch.indptr))
        nobody = np.zeros((0, self.dim), dtype=np.float32)
        return (self._groups, grad_BD, rows, batch.values, nobody), grad_BD.sum(0)

    def _update_bias(self, grad_D: np.ndarray, step: int) -> None:
        dense_step(self.optimizer, self.bias_state, self.bias, grad_D, step, self.table.lr)

    def state_dict(self) -> dict[str, np.ndarray]:
        table = {f"table.{name}": value for name, value in self.table.state_dict().items()}
        return {**table, **self._of_bias}

    @property
    def _of_bias(self) -> dict[str, np.ndarray]:
        return {
            "bias": self.bias,
            "bias.first": self.bias_state["first"],
            "bias.second": self.bias_state["second"],
        }

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        prefix = "table."
        self.table.load_state_dict({n.removeprefix(prefix): v for n, v in state.items() if n.startswith(prefix)})
        for name, target in self._of_bias.items():
            target[...] = state[name]


class _BiasGradient:
    def __init__(self, owner: Mlp, grad_D: np.ndarray) -> None:
        self.owner, self.grad_D = owner, grad_D

    def squared_norm(self) -> float:
        return float(np.square(self.grad_D, dtype=np.float64).sum())

    def summed(self, across: Across, step: int) -> "_BiasGradient":
        return _BiasGradient(self.owner, across.sum(self.grad_D))

    def apply(self, step: int, factor: float = 1.0) -> None:
        self.owner._update_bias(np.float32(factor) * self.grad_D, step)

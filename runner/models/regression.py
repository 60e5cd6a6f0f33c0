"""Predict by a linear function of the features: linear regression, and logistic regression of two classes.

There is no hidden layer: the features are the hidden states, and the head's row of weights is the whole model.

Legend: B rows of a batch, F features.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from runner.data.dense_batches import DenseBatch
from runner.heads.scalar import ScalarLoss
from runner.models.base import ModelConfig
from runner.optimizers import Gradient, OptimizerConfig, RowTable


@dataclass(frozen=True, kw_only=True)
class RegressionConfig(ModelConfig):
    """Choose linear regression with squared loss."""

    reads: ClassVar[str] = "regression"
    loss: ClassVar[ScalarLoss] = "squared"

    name: str = "regression"

    @property
    def dim(self) -> int:
        """Return 0: the data decide how many features there are."""
        return 0

    def build(self, *, num_features: int, classes: RowTable, optimizer: OptimizerConfig, seed: int) -> "Features":
        return Features()


@dataclass(frozen=True, kw_only=True)
class LogisticConfig(RegressionConfig):
    """Choose logistic regression: the response is one of two classes."""

    task: ClassVar[str | None] = "logistic"
    loss: ClassVar[ScalarLoss] = "logistic"

    name: str = "logistic"


class Features:
    """Take the features as hidden states; there is nothing to learn."""

    tables: Sequence[RowTable] = ()
    dense: Sequence[np.ndarray] = ()

    def encode(self, batch: DenseBatch) -> np.ndarray:
        """Return the features (B, F)."""
        return batch.features_BF

    def forward(self, batch: DenseBatch, step: int) -> np.ndarray:
        return batch.features_BF

    def backward(self, grad_hidden_BD: np.ndarray, step: int) -> None:
        pass

    def gradients(self, grad_hidden_BD: np.ndarray, step: int) -> list[Gradient]:
        return []

    def state_dict(self) -> dict[str, np.ndarray]:
        return {}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        assert not state

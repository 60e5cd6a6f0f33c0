"""Predict by a linear function of the features: linear regression, and logistic regression of two classes.

There is no hidden layer: the features are the hidden states, and the head's row of weights is the whole model.

Legend: B rows of a batch, F features.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from runner.data.regression.batches import DenseBatch
from runner.heads.scalar import ScalarLoss
from runner.models.base import FixedEncoder, ModelConfig
from runner.optimizers import OptimizerConfig, RowTable


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


class Features(FixedEncoder):
    """Take the features as hidden states."""

    def encode(self, batch: DenseBatch) -> np.ndarray:
        """Return the features (B, F)."""
        return batch.features_BF

"""Predict by a linear function of the features: linear regression, and logistic regression of two classes.

There is no hidden layer: the features are the hidden states, and the head's row of weights is the whole model.

Legend: B rows of a batch, F features.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from runner.data.regression.batches import DenseBatch
from runner.lgd.head import ScalarLoss
from runner.models.base import FixedEncoder, ModelConfig
from runner.optimizers import OptimizerConfig
from runner.output.layer import Rows


@dataclass(frozen=True, kw_only=True)
class RegressionConfig(ModelConfig):
    """Fit a line by least squares; there are no classes, so neither a sampler of classes nor a loss over them."""

    selects: ClassVar[Mapping[str, Any]] = {
        "dataset": "diabetes",
        "sampler": None,
        "loss": None,
        "epochs": 20,
        "batch_size": 16,
    }
    reads: ClassVar[str] = "regression"
    loss: ClassVar[ScalarLoss] = "squared"

    name: str = "regression"

    @property
    def dim(self) -> int:
        """Return 0: the data decide how many features there are."""
        return 0

    def build(self, *, num_features: int, classes: Rows, optimizer: OptimizerConfig, seed: int) -> "Features":
        return Features()


@dataclass(frozen=True, kw_only=True)
class LogisticConfig(RegressionConfig):
    """Fit logistic regression of a response that is 0 or 1 (``dataset.threshold`` makes one of any number)."""

    selects: ClassVar[Mapping[str, Any]] = {**RegressionConfig.selects, "dataset": "breast_cancer"}
    task: ClassVar[str | None] = "logistic"
    loss: ClassVar[ScalarLoss] = "logistic"

    name: str = "logistic"


class Features(FixedEncoder):
    """Take the features as hidden states."""

    def encode(self, batch: DenseBatch) -> np.ndarray:
        """Return the features (B, F)."""
        return batch.features_BF

"""What every model's configuration and encoder have in common.

Legend: B rows of a batch, D hidden size, N classes.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np

from runner import rng
from runner.optimizers import Gradient, OptimizerConfig, RowTable


class Encoder(Protocol):
    """A batch in, hidden states out, gradients back: ``forward``, then ``backward`` or ``gradients``, once a step."""

    @property
    def tables(self) -> Sequence[RowTable]:
        """Rows that are its own."""

    @property
    def dense(self) -> Sequence[np.ndarray]:
        """Weights that are in no table."""

    def encode(self, batch: Any) -> np.ndarray:
        """Hidden states (B, D) float32 as at test time, nothing remembered; rows must be current."""

    def forward(self, batch: Any, step: int) -> np.ndarray:
        """Hidden states (B, D) float32 of a training step (1-based)."""

    def backward(self, grad_hidden_BD: np.ndarray, step: int) -> None:
        """Update all weights by the gradient of the hidden states that ``forward`` gave."""

    def gradients(self, grad_hidden_BD: np.ndarray, step: int) -> list[Gradient]:
        """As ``backward``, but gradients are returned, to be applied at this very step."""

    def state_dict(self) -> dict[str, np.ndarray]:
        """Weights and what further training needs; the names of the latter end as in ``STATE_OF_TRAINING``."""

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore what ``state_dict`` gave."""


class ModelConfig(ABC):
    """Base of model configs.

    ``reads``: family of data, as a data set's configuration names it. ``runs_on_gpu``: whether the encoder has a part
    that ``hardware=gpu`` can move.
    """

    reads: ClassVar[str]
    runs_on_gpu: ClassVar[bool] = False
    tied: bool = False
    """Whether the class vectors are the input embedding too."""

    @property
    @abstractmethod
    def dim(self) -> int:
        """Size of hidden states and class vectors."""

    def class_vectors(self, num_classes: int, seed: int) -> np.ndarray:
        """(N, D) float32 to start from: normal, of norm 1 on average."""
        weights = rng.generator(seed, rng.CLASS_INIT).standard_normal((num_classes, self.dim), dtype=np.float32)
        weights *= np.float32(1 / math.sqrt(self.dim))
        return weights

    @abstractmethod
    def build(self, *, num_features: int, classes: RowTable, optimizer: OptimizerConfig, seed: int) -> Encoder:
        """Make the encoder. ``num_features``: of the input (words, for text); ``classes``: rows that it may share."""

"""Define what the configurations and encoders of all models have in common.

Legend: B rows of a batch (of a text, its tokens), D hidden size, N classes.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np

from runner import rng
from runner.contracts import Passed
from runner.errors import require
from runner.optimizers import OptimizerConfig
from runner.options.fields import Options
from runner.output.gradients import Gradient
from runner.output.initial import Initial, Normal
from runner.output.layer import Rows


class Encoder(Protocol):
    """Turn batches into hidden states and learn from their gradients.

    Each training step calls ``forward`` once, then ``backward`` or ``gradients`` once.
    """

    @property
    def tables(self) -> Sequence[Rows]:
        """Return the row tables that belong to the encoder alone."""

    @property
    def dense(self) -> Sequence[np.ndarray]:
        """Return the weights that are in no table."""

    def encode(self, batch: Any) -> np.ndarray:
        """Return hidden states (B, D) float32 as at test time; nothing is remembered. Rows must be current."""

    def forward(self, batch: Any, step: int) -> Passed:
        """Return hidden states (B, D) float32 of a training step (1-based), and remember what the gradients need."""

    def backward(self, grad_hidden_BD: Passed, step: int) -> None:
        """Update all weights by the gradient (B, D) of the hidden states that ``forward`` returned."""

    def gradients(self, grad_hidden_BD: Passed, step: int) -> list[Gradient]:
        """Return the gradients of all weights instead of applying them; they must be applied in the same step."""

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return the weights and what further training needs; names of the latter end as in ``STATE_OF_TRAINING``."""

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore what ``state_dict`` returned."""


def check_heads(heads: int, embedding: int) -> None:
    """Raise ConfigError unless attention heads can divide the embedding among them."""
    require(1 <= heads <= embedding, "model.heads must lie in [1, model.embedding]")
    require(embedding % heads == 0, f"model.embedding ({embedding}) must be a multiple of model.heads ({heads})")


class ModelChoice(Options, ABC):
    """Serve as the base of all that ``model=NAME`` chooses: networks, and baselines that are fitted once.

    ``reads``: the family of data that the model reads, as a data set's configuration names it. ``task``: the name of
    the task that trains it, if that is not the family's (see ``runner.parts``).
    """

    section: ClassVar[str] = "model"
    reads: ClassVar[str]
    task: ClassVar[str | None] = None
    tied: bool = False
    """True if the class vectors are the input embedding too."""

    def rehearsal(self) -> "ModelChoice":
        """Return the model to compile kernels with: this one, or a small one of its kind if this takes long to load."""
        return self

    def check_installed(self) -> None:
        """Raise NotInstalled if the model needs a library of an optional extra, and this is not installed."""
        return

    @abstractmethod
    def build(self, *given: Any, **named: Any) -> Any:
        """Make the encoder of a network, or a model that can be fitted."""


class ModelConfig(ModelChoice):
    """Configure a network's encoder; this is the base class of the configs of networks.

    ``divides_batches``: parts of a batch may be encoded by several processes (``models.split_batch``): each of its
    gradients is a ``SummableGradient``, and its batches are ``Divisible``.
    """

    divides_batches: ClassVar[bool] = False

    @property
    @abstractmethod
    def dim(self) -> int:
        """Return the size of hidden states and class vectors, D."""

    @property
    def initial_classes(self) -> Initial:
        """Return the distribution of the class vectors to start from; by default their norm is 1 on average."""
        return Normal(1 / math.sqrt(self.dim))

    def class_vectors(self, lo: int, hi: int, seed: int) -> np.ndarray:
        """Draw the vectors that the classes lo to hi - 1 start from, (hi - lo, D) float32."""
        return self.initial_classes.rows(lo, hi, self.dim, seed=seed, purpose=rng.CLASS_INIT)

    @abstractmethod
    def build(self, *, num_features: int, classes: Rows, optimizer: OptimizerConfig, seed: int) -> Encoder:
        """Make the encoder.

        ``num_features``: columns of the input (for text, words). ``classes``: the class vectors, which it may share.
        """


class FixedEncoder(ABC):
    """Encode without weights: there is nothing to learn, and hidden states are the same in training."""

    tables: Sequence[Rows] = ()
    dense: Sequence[np.ndarray] = ()

    @abstractmethod
    def encode(self, batch: Any) -> np.ndarray:
        """Return hidden states (B, D) float32."""

    def forward(self, batch: Any, step: int) -> np.ndarray:
        return self.encode(batch)

    def backward(self, grad_hidden_BD: np.ndarray, step: int) -> None:
        return None

    def gradients(self, grad_hidden_BD: np.ndarray, step: int) -> list[Gradient]:
        return []

    def state_dict(self) -> dict[str, np.ndarray]:
        return {}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        assert not state

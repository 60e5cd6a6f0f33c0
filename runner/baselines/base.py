"""Define baselines that are fitted once: they rank, and have no layers, no steps and no learning rate.

Training fits such a model in the only step of its only epoch, and measures it as it measures networks.

Legend: N classes.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from runner.models.base import ModelChoice


class Fitted(ABC):
    """Rank after one fit to all training data.

    Training asks a network for the same, except for steps. What rows are ranked by is ``top(batch, k)``, and sequences
    by ``scores(batch)``.
    """

    has_classes = False
    build_seconds = 0.0
    chosen: ClassVar[Mapping[str, str]] = {}

    def prepare(self, task: Any) -> None:  # noqa: B027
        """Do what comes before the seconds of training; by default nothing."""

    @abstractmethod
    def fit(self, task: Any) -> None:
        """Fit to the training data of a task."""

    def is_sound(self, batch: Any) -> bool:
        """Tell whether all that was fitted is finite."""
        return True

    @abstractmethod
    def about(self) -> dict[str, Any]:
        """Return what a run's summary tells of the model."""

    # ------------------------------------------------------------ state

    @abstractmethod
    def state_dict(self) -> dict[str, np.ndarray]:
        """Return all that was fitted, by name."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore what ``state_dict`` returned."""

    def final_weights(self) -> dict[str, np.ndarray]:
        """Return all of the state, as there is nothing to go on with."""
        return self.state_dict()

    def load_final_weights(self, weights: Mapping[str, np.ndarray]) -> None:
        """Restore what ``final_weights`` returned."""
        self.load_state_dict(weights)

    # ------------------------------------------------------------ what moves by steps: nothing

    def set_lr(self, lr: float) -> None:  # noqa: B027
        """Do nothing."""

    def read_all(self, step: int) -> None:  # noqa: B027
        """Do nothing."""

    def caught_up(self, step: int) -> AbstractContextManager[None]:
        """Do nothing."""
        return nullcontext()


@dataclass(frozen=True, kw_only=True)
class FittedConfig(ModelChoice):
    """Configure a model that is fitted once.

    ``does``: what it does with the training data, in errors. Its ``task`` is one of ``runner.baselines.tasks``.
    """

    selects: ClassVar[Mapping[str, Any]] = {"sampler": None, "loss": None, "epochs": 1, "evaluation.every_epochs": 1}
    does: ClassVar[str] = "counts"

    name: str

    @abstractmethod
    def build(self, num_classes: int) -> Fitted:
        """Make the model, which is not fitted yet."""

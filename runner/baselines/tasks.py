"""Fit baselines to rows or sequences in one pass over the training data, and measure them as networks are."""

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from runner.baselines.base import Fitted
from runner.data.rows.batches import RowBatch
from runner.data.sequences.batches import SequenceBatch
from runner.door.models import build_fitted
from runner.errors import require
from runner.options.settings import EVERY_EXAMPLE_ONCE, RunConfig, TrainingConfig
from runner.tasks.base import Task
from runner.tasks.classification import Classification
from runner.tasks.recommendation import Recommendation


class FitsOnce(Task):
    """Fit a model to all training data in one step; there are no classes to sample and no loss.

    ``fits_to``: what the training data are, in errors.
    """

    fits_to: ClassVar[str]

    @classmethod
    def check_config(cls, config: RunConfig) -> None:
        """Raise ConfigError for settings of training by steps, which have no effect here."""
        name, does = config.model.name, config.model.does
        require(config.epochs == 1, f"model={name} {does} the {cls.fits_to} once; leave epochs at 1")
        require(
            config.batch_sampler.name == EVERY_EXAMPLE_ONCE["name"],
            f"model={name} {does} all {cls.fits_to}; batch_sampler={config.batch_sampler.name} has no effect on it",
        )
        require(
            config.training == TrainingConfig(),
            f"model={name} learns nothing by steps; leave training at its defaults",
        )

    def __init__(self, config: RunConfig, data: Any) -> None:
        super().__init__(config, data)
        self.training = replace(self.training, steps_per_epoch=1)
        self.rows_per_step = self.rows_per_epoch

    def build_network(self) -> Fitted:
        """Return the model, which is not fitted yet."""
        model: Fitted = build_fitted(self.config.model, self.data.num_classes)
        return model

    def compiled_steps(self, network: Any, sampler: Any) -> "Fitting":
        """Return what fits the model as one step."""
        return Fitting(network, self)


class Fitting:
    """Fit a model as the only step; the loss is 0, because nothing is minimised by steps."""

    def __init__(self, model: Fitted, task: FitsOnce) -> None:
        self.model, self.task = model, task
        model.prepare(task)

    def take(self, first_step: int, steps: int, loss_sum: float = 0.0) -> tuple[float, int, int]:
        self.model.fit(self.task)
        return loss_sum, 1, self.task.rows_per_epoch


class FittedRecommendation(FitsOnce, Recommendation):
    """Rank items by a model that is fitted to a log of events."""

    fits_to = "training events"
    sections = frozenset({"ranking"})

    def logits(self, network: Any, batch: SequenceBatch) -> np.ndarray:
        """Return the score of every item in every row, (B, N) float64."""
        scores_BN: np.ndarray = network.scores(batch)
        return scores_BN


class FittedClassification(FitsOnce, Classification):
    """Rank classes by a model that is fitted to rows with labels."""

    fits_to = "training rows"
    sections = frozenset()

    def top(self, network: Any, batch: RowBatch, k: int) -> np.ndarray:
        """Return the k best classes of each row, (B, k) int32, best first."""
        top_BK: np.ndarray = network.top(batch, k)
        return top_BK

    def losses(self, network: Any) -> dict[str, float]:
        """Return nothing: what ranks classes without logits has no softmax."""
        return {}

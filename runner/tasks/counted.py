"""Define recommendation and classification by counts: one pass over the training data, measured as networks are."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from runner.batch_samplers import ExampleSampler
from runner.contracts import TrainingFacts
from runner.data.rows.batches import take
from runner.data.rows.dataset import XmcDataset
from runner.data.sequences.batches import SequenceBatch
from runner.data.sequences.dataset import SequencesDataset
from runner.errors import require
from runner.heads.counts import CountsHead
from runner.metrics import RANKS, ranking_metrics
from runner.options.settings import EVERY_EXAMPLE_ONCE, RunConfig, TrainingConfig
from runner.tasks.classification import Classification
from runner.tasks.recommendation import Recommendation

if TYPE_CHECKING:
    from runner.network import Network


def check_one_pass(config: RunConfig, what: str, *, does: str = "counts") -> None:
    """Raise ConfigError for settings of training by steps, for a model that takes all its data at once."""
    name = config.model.name
    require(config.epochs == 1, f"model={name} {does} the {what} once; leave epochs at 1")
    require(
        config.batch_sampler.name == EVERY_EXAMPLE_ONCE["name"],
        f"model={name} {does} all {what}; batch_sampler={config.batch_sampler.name} has no effect on it",
    )
    require(
        config.training == TrainingConfig(),
        f"model={name} learns nothing by steps; leave training at its defaults",
    )


class CountedRecommendation(Recommendation):
    """Count the training events once; there are no steps, no classes to sample and no loss."""

    sections = frozenset({"ranking"})

    @classmethod
    def check_config(cls, config: RunConfig) -> None:
        """Raise ConfigError for settings of training by steps, which have no effect on counting."""
        check_one_pass(config, "training events")

    def __init__(self, config: RunConfig, data: SequencesDataset) -> None:
        super().__init__(config, data)
        self.training = TrainingFacts.one_label_a_row(self.training.label_counts_N)
        self.rows_per_step = self.rows_per_epoch

    def build_head(self) -> CountsHead:
        """Return the head, before anything is counted."""
        return CountsHead(self.data.num_classes, self.config.optimizer)

    def compiled_steps(self, network: "Network[Any]", sampler: ExampleSampler) -> "Counting":
        """Return what counts everything as one step."""
        return Counting(self, network.head)

    def logits(self, network: "Network[Any]", batch: SequenceBatch) -> np.ndarray:
        """Return the score of every item in every row, (B, N) float64."""
        head: CountsHead = network.head
        return head.scores(batch)


class Counting:
    """Count the training events; the loss is 0, because nothing is minimised."""

    def __init__(self, task: CountedRecommendation, head: CountsHead) -> None:
        self.task, self.head = task, head

    def take(self, first_step: int, steps: int, loss_sum: float = 0.0) -> tuple[float, int, int]:
        windows, num_items = self.task.windows, self.task.data.num_classes
        counts_N = np.bincount(windows.items_E[windows.event_places], minlength=num_items)
        self.head.set(counts_N, self.task.config.model.similarity(windows, num_items))
        return loss_sum, 1, self.task.rows_per_epoch


class CountedClassification(Classification):
    """Count the training rows of each class once; there are no steps, no classes to sample and no loss."""

    sections = frozenset()

    @classmethod
    def check_config(cls, config: RunConfig) -> None:
        """Raise ConfigError for settings of training by steps, which have no effect on counting."""
        check_one_pass(config, "training rows")

    def __init__(self, config: RunConfig, data: XmcDataset) -> None:
        super().__init__(config, data)
        self.training = replace(self.training, steps_per_epoch=1)
        self.rows_per_step = self.rows_per_epoch

    def build_head(self) -> CountsHead:
        """Return the head, before anything is counted."""
        return CountsHead(self.data.num_classes, self.config.optimizer)

    def compiled_steps(self, network: "Network[Any]", sampler: ExampleSampler) -> "CountingClasses":
        """Return what counts everything as one step."""
        return CountingClasses(self, network.head)

    def _metrics(self, network: "Network[Any]", rows: np.ndarray, split: str, label: str) -> dict[str, float]:
        batch = take(self.data.train if split == "valid" else self.data.test, rows)
        top_K = network.head.most_counted(min(max(RANKS), self.data.num_classes))
        top_RK = np.broadcast_to(top_K, (len(rows), len(top_K)))
        metrics = ranking_metrics(top_RK, batch.target_indptr, batch.targets, self.inverse_propensity_N)
        return {f"{split}/{name}": value for name, value in metrics.items()}


class CountingClasses:
    """Count the rows of each class; the loss is 0, because nothing is minimised."""

    def __init__(self, task: CountedClassification, head: CountsHead) -> None:
        self.task, self.head = task, head

    def take(self, first_step: int, steps: int, loss_sum: float = 0.0) -> tuple[float, int, int]:
        self.head.set(self.task.training.label_counts_N, self.head.similarity)
        return loss_sum, 1, self.task.rows_per_epoch

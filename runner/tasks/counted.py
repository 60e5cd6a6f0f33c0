"""Define recommendation by counts: one pass over the training events, measured as networks are."""

from typing import TYPE_CHECKING, Any

import numpy as np

from runner.batch_samplers import ExampleSampler
from runner.contracts import TrainingFacts
from runner.data.sequence_batches import SequenceBatch
from runner.data.sequences import SequencesDataset
from runner.errors import require
from runner.heads.counts import CountsHead
from runner.settings import EVERY_EXAMPLE_ONCE, RunConfig, TrainingConfig
from runner.tasks.recommendation import Recommendation

if TYPE_CHECKING:
    from runner.network import Network


class CountedRecommendation(Recommendation):
    """Count the training events once; there are no steps, no classes to sample and no loss."""

    sections = frozenset({"ranking"})

    @classmethod
    def check_config(cls, config: RunConfig) -> None:
        """Raise ConfigError for settings of training by steps, which have no effect on counting."""
        name = config.model.name
        require(config.epochs == 1, f"model={name} counts the training events once; leave epochs at 1")
        require(
            config.batch_sampler.name == EVERY_EXAMPLE_ONCE["name"],
            f"model={name} counts all training events; batch_sampler={config.batch_sampler.name} has no effect on it",
        )
        require(
            config.training == TrainingConfig(),
            f"model={name} learns nothing by steps; leave training at its defaults",
        )

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

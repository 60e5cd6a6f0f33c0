"""Define what differs between kinds of data: batches, heads, probes, metrics and texts of reports.

Legend: B rows of a batch, N classes.
"""

import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self

import numpy as np

from runner.contracts import ExampleDraw, Examples, Measure, TrainingFacts, View
from runner.heads.classes import ClassesHead
from runner.network import Network
from runner.options.settings import RunConfig
from runner.output.across import ALONE, Across
from runner.output.losses import LogisticLoss

if TYPE_CHECKING:
    from runner.network import ClassNetwork

PROGRESS_BAR: dict[str, Any] = {"dynamic_ncols": True, "mininterval": 0.1 if sys.stderr.isatty() else 10}

OF_CLASSES = frozenset({"sampler", "loss", "output", "diagnostics"})
"""The sections that tasks use whose networks end in a class matrix."""


class CompiledSteps(Protocol):
    """Take many training steps in one call, where a step is too short for Python."""

    def take(self, first_step: int, steps: int, loss_sum: float = 0.0) -> tuple[float, int, int]:
        """Take at most ``steps`` steps, the first of which is ``first_step``.

        Returns ``loss_sum`` plus their losses, added one by one, how many were taken (at least 1), and their rows. The
        last one taken may be one with a loss that is not finite, or one after which the sampler of examples must be
        refreshed.
        """


class Task(ABC):
    """Train and measure on a data set; subclasses do so for one family of data."""

    unit: ClassVar[str]
    """The name of a row in reports."""
    measures: ClassVar[tuple[Measure, ...]]
    """The metrics of the task; exactly one of them is the headline."""
    shows_examples: ClassVar[bool] = False
    """True if ``view`` shows the training examples as vectors, and the weights as a query."""
    moves_vectors: ClassVar[bool] = False
    """True if training moves the vectors that ``view`` shows."""
    sections: ClassVar[frozenset[str]] = OF_CLASSES
    """The sections of the configuration that this task uses and other tasks may not use."""

    examples: Examples
    """The training examples that a sampler of examples draws from."""
    training: TrainingFacts
    """What samplers of classes may know of the training data."""
    num_features: int
    """The number of columns of the input; for text, the number of words."""
    rows_per_step: int
    """The number of rows of a batch; an epoch's last batch may be smaller."""
    rows_per_epoch: int
    """The number of rows that an epoch trains on."""

    @abstractmethod
    def __init__(self, config: RunConfig, data: Any) -> None:
        self.config, self.data = config, data

    across: Across = ALONE
    """The processes that hold the classes of its network together."""
    ranks_only = False
    """True if there are no examples: such a task builds a network that ranks, and does nothing else."""
    can_rank_without_data: ClassVar[bool] = True
    """False if the head that ranks needs more of the training data than their sizes."""

    @classmethod
    def without_examples(
        cls, config: RunConfig, data: Any, *, num_features: int, num_classes: int, steps_per_epoch: int
    ) -> Self:
        """Return a task that ranks by the weights of a run, without its examples."""
        task = cls.__new__(cls)
        task.config, task.data, task.num_features, task.ranks_only = config, data, num_features, True
        task.training = TrainingFacts(
            label_counts_N=np.zeros(num_classes, np.int64), num_rows=0, steps_per_epoch=steps_per_epoch
        )
        return task

    @classmethod  # noqa: B027
    def check_config(cls, config: RunConfig) -> None:
        """Raise ConfigError for settings that this task refuses whatever the data are; by default it takes all."""

    @classmethod
    @abstractmethod
    def rehearsal(cls, config: RunConfig) -> Self:
        """Return the task on a little throw-away data, for compiling kernels."""

    # ------------------------------------------------------------ batches

    @abstractmethod
    def batch(self, draw: ExampleDraw) -> Any:
        """Return the batch of the drawn training examples."""

    def view(self, network: Network[Any]) -> View | None:
        """Return what a sampler of examples may look at, or None if the task offers nothing."""
        return None

    def compiled_steps(self, network: Network[Any], sampler: Any) -> "CompiledSteps | None":
        """Return what takes many steps at a time, or None if each step is taken by ``network.train_step``.

        ``sampler``: the sampler of examples (``runner.lgd``), which these steps draw from.
        """
        return None

    def build_head(self) -> Any:
        """Return the head of the network: by default the class matrix with the sampler and the loss."""
        return ClassesHead.of(self.config, self.training, ranks_only=self.ranks_only, across=self.across)

    def build_network(self) -> Any:
        """Return what is trained: an untrained network, or a model that is fitted once (``baselines.base.Fitted``)."""
        return Network.of(self.config, self.build_head(), num_features=self.num_features, across=self.across)

    def notices(self) -> list[str]:
        """Return what is to be announced before training starts; ConfigError where there is too little memory."""
        config = self.config
        if config.sampler is None:
            return []
        memory = config.sampler.check_memory(self.rows_per_step, len(self.training.label_counts_N))
        notices = [memory] if memory else []
        if isinstance(config.loss, LogisticLoss) and not (config.output.bias or config.output.normalize):
            notices.append(
                f"loss={config.loss.name} takes each candidate as a problem of its own; without biases it often learns"
                " little: try output.bias=true"
            )
        return notices

    @abstractmethod
    def probe(self, rows: int, split: Literal["train", "test"] = "test") -> Any:
        """Return a batch of about ``rows`` rows of a split, the same for every run and every seed."""

    @abstractmethod
    def glance(self) -> Any:
        """Return a batch of some 32 test rows, on which proposal and softmax are compared several times in a run."""

    # ------------------------------------------------------------ measures

    @abstractmethod
    def evaluate_subset(self, network: "ClassNetwork") -> dict[str, Any]:
        """Measure during training; names are those of metrics.jsonl: ``<watched split>/<key of a measure>``.

        The rows of all tables must be current.
        """

    @abstractmethod
    def evaluate_final(self, network: "ClassNetwork") -> dict[str, Any]:
        """Measure at the end; names are those of the summary: ``test/<key of a measure>``; other splits likewise.

        The rows of all tables must be current.
        """

    @classmethod
    def headline(cls) -> Measure:
        """Return the measure that progress bars show and by which runs are compared."""
        (headline,) = (measure for measure in cls.measures if measure.headline)
        return headline

    @classmethod
    def validates(cls, config: RunConfig) -> bool:
        """Return True if there is a validation set, by which training may stop early and the best weights are kept."""
        return True

    @classmethod
    def watched(cls, config: RunConfig) -> str:
        """Return the split that is measured during training: ``valid``, or ``test_subset`` without a validation set."""
        return "valid" if cls.validates(config) else "test_subset"

    def headline_of(self, subset: Mapping[str, Any]) -> float:
        """Return the value of the headline among the metrics of ``evaluate_subset``."""
        return float(subset[f"{self.watched(self.config)}/{self.headline().key}"])

    def validation_score(self, subset: Mapping[str, Any]) -> float | None:
        """Return the score that decides which weights are kept; None without a validation set.

        ``headline().improves`` compares two scores.
        """
        return self.headline_of(subset) if self.validates(self.config) else None

    @classmethod
    def about_measures(cls, config: RunConfig) -> dict[str, Any]:
        """Return what the summary says of its metrics: the measures, the watched split and the name of a row."""
        measures = [asdict(measure) for measure in cls.measures]
        return {"measures": measures, "watched": cls.watched(config), "unit": cls.unit}

    # ------------------------------------------------------------ words

    @property
    @abstractmethod
    def description(self) -> str:
        """Return the sizes of the data in words."""

    def closing(self, metrics: Mapping[str, Any]) -> str:
        """Return the headline of ``evaluate_final`` in words, e.g. ``P@1 66.41 %``; several splits are all listed."""
        headline = self.headline()
        values = {
            name.rpartition("/")[0]: value for name, value in metrics.items() if name.endswith(f"/{headline.key}")
        }
        if len(values) == 1:
            return f"{headline.label} {headline.text(*values.values())}"
        return f"{headline.label} " + ", ".join(f"{split} {headline.text(value)}" for split, value in values.items())

    @abstractmethod
    def about_data(self) -> dict[str, Any]:
        """Return what the summary says of the data set."""

    def about_speed(self, seconds: float, rows: int) -> dict[str, Any]:
        """Return what the summary says of the speed, besides the seconds that training on ``rows`` rows took."""
        return {"units_per_second": rows / max(seconds, 1e-9)}


def label_frequency(label_counts_N: np.ndarray, points: int = 200) -> dict[str, list[int]]:
    """Return log-spaced ranks of the classes by frequency, most frequent first, and the counts at these ranks."""
    ordered = np.sort(label_counts_N)[::-1]
    ranks = np.unique(np.geomspace(1, len(ordered), points).astype(np.int64))
    return {"rank": ranks.tolist(), "count": ordered[ranks - 1].tolist()}

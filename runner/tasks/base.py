"""What differs between kinds of data: batches, heads, probes, metrics, words for people.

Legend: B rows of a batch, P targets.
"""

import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np

from runner.batch_samplers import View
from runner.contracts import ExampleDraw, Examples, Measure, TrainingFacts
from runner.heads.classes import ClassesHead
from runner.settings import RunConfig

if TYPE_CHECKING:
    from runner.network import ClassNetwork, Network

PROGRESS_BAR: dict[str, Any] = {"dynamic_ncols": True, "mininterval": 0.1 if sys.stderr.isatty() else 10}


class Task(ABC):
    """A data set to train on and to be measured on."""

    unit: ClassVar[str]
    """Name of a row."""
    measures: ClassVar[tuple[Measure, ...]]
    """What the task measures, one of them the headline."""
    has_validation: ClassVar[bool]
    """Whether training is watched on a validation set, by which it may be stopped early and its best weights kept."""
    sections: ClassVar[frozenset[str]] = frozenset()
    """Sections of the configuration that this task uses and others may not."""

    examples: Examples
    training: TrainingFacts
    num_features: int
    """Columns of the input; words, for text."""
    rows_per_step: int
    """Rows of a batch; an epoch's last batch may be smaller."""
    rows_per_epoch: int
    """Rows that an epoch trains on."""

    @abstractmethod
    def __init__(self, config: RunConfig, data: Any) -> None:
        self.config, self.data = config, data

    @classmethod
    @abstractmethod
    def rehearsal(cls, config: RunConfig) -> Self:
        """The task on a little throw-away data, to compile kernels with."""

    # ------------------------------------------------------------ batches

    @abstractmethod
    def batch(self, draw: ExampleDraw) -> Any:
        """Return the batch of drawn training examples."""

    def view(self, network: "Network[Any]") -> View | None:
        """Return what a sampler of examples may look at, None where the task offers nothing."""
        return None

    def build_head(self) -> Any:
        """Return the head that this task puts on an encoder: by default the class matrix under sampler and loss."""
        return ClassesHead.of(self.config, self.training)

    def check_memory(self) -> list[str]:
        """Return what is to be announced of the memory that training takes; ConfigError where there is too little."""
        notice = self.config.sampler.check_memory(self.rows_per_step, len(self.training.label_counts_N))
        return [notice] if notice else []

    @abstractmethod
    def probe(self, rows: int, split: Literal["train", "test"] = "test") -> Any:
        """A batch of about ``rows`` rows of a split: the same for every run, whatever its seed."""

    @abstractmethod
    def glance(self) -> Any:
        """A batch of some 32 test rows, to compare proposal and softmax on again and again."""

    # ------------------------------------------------------------ measures

    @abstractmethod
    def evaluate_subset(self, network: "ClassNetwork") -> dict[str, Any]:
        """Metrics during training, named as in metrics.jsonl: ``<watched split>/<key of a measure>``.

        Rows of all tables must be current.
        """

    @abstractmethod
    def evaluate_final(self, network: "ClassNetwork") -> dict[str, Any]:
        """Metrics at the end, named as in the summary: ``test/<key of a measure>`` and those of further splits.

        Rows of all tables must be current.
        """

    @classmethod
    def headline(cls) -> Measure:
        """The one measure that progress bars show and comparisons go by."""
        (headline,) = (measure for measure in cls.measures if measure.headline)
        return headline

    @classmethod
    def watched(cls) -> str:
        """The split measured during training: ``valid``, or ``test_subset`` where there is no validation set."""
        return "valid" if cls.has_validation else "test_subset"

    def headline_of(self, subset: Mapping[str, Any]) -> float:
        """The headline's stored value among the metrics of ``evaluate_subset``."""
        return float(subset[f"{self.watched()}/{self.headline().key}"])

    def validation_score(self, subset: Mapping[str, Any]) -> float | None:
        """What decides which weights are kept, by ``headline().improves``; None where there is no validation set."""
        return self.headline_of(subset) if self.has_validation else None

    @classmethod
    def about_measures(cls) -> dict[str, Any]:
        """What the summary tells of its metrics, for reports: measures, the watched split and the name of a row."""
        return {"measures": [asdict(measure) for measure in cls.measures], "watched": cls.watched(), "unit": cls.unit}

    # ------------------------------------------------------------ words

    @property
    @abstractmethod
    def description(self) -> str:
        """Sizes of the data, for people."""

    def closing(self, metrics: Mapping[str, Any]) -> str:
        """The headline in the metrics of ``evaluate_final``: ``P@1 66.41 %``, or of each split that was measured."""
        headline = self.headline()
        values = {
            name.rpartition("/")[0]: value for name, value in metrics.items() if name.endswith(f"/{headline.key}")
        }
        if len(values) == 1:
            return f"{headline.label} {headline.text(*values.values())}"
        return f"{headline.label} " + ", ".join(f"{split} {headline.text(value)}" for split, value in values.items())

    @abstractmethod
    def about_data(self) -> dict[str, Any]:
        """What the summary tells of the data set."""

    def about_speed(self, seconds: float, rows: int) -> dict[str, Any]:
        """What the summary tells of the speed beyond seconds, which training on so many rows took."""
        return {"units_per_second": rows / max(seconds, 1e-9)}


def label_frequency(label_counts_N: np.ndarray, points: int = 200) -> dict[str, list[int]]:
    """Training positives of the classes at log-spaced ranks, most frequent first."""
    ordered = np.sort(label_counts_N)[::-1]
    ranks = np.unique(np.geomspace(1, len(ordered), points).astype(np.int64))
    return {"rank": ranks.tolist(), "count": ordered[ranks - 1].tolist()}

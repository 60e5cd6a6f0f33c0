"""A yardstick holds what a run's summary states about its metrics: measures, watched split and unit of work."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from runner.contracts import Measure
from runner.errors import ConfigError
from runner.options.conversion import did_you_mean
from runner.options.settings import RunConfig
from runner.parts import task_class

_SPLITS = {"test": "test", "test_subset": "test subset", "valid": "validation", "train": "training"}


@dataclass(frozen=True, kw_only=True)
class Yardstick:
    """The measures of a task, the split watched during training, and the name of a row (``row`` or ``token``).

    Metrics are named ``<split>/<key of a measure>``, in summaries, in observations and in files of conf/table.
    """

    measures: tuple[Measure, ...]
    watched: str
    unit: str

    @classmethod
    def read(cls, summary: Mapping[str, Any]) -> Self | None:
        """Read what ``Task.about_measures`` wrote into a summary; None if an earlier version made the summary."""
        if "measures" not in summary:
            return None
        measures = tuple(Measure(**measure) for measure in summary["measures"])
        return cls(measures=measures, watched=summary["watched"], unit=summary["unit"])

    @classmethod
    def planned(cls, config: RunConfig) -> Self:
        """Take the task's own measures, for a table with no finished run."""
        found = cls.read(task_class(config).about_measures(config))
        assert found is not None
        return found

    def with_more(self, measures: Iterable[Measure]) -> Self:
        """Return a yardstick that also has those of ``measures`` whose keys it lacks; they are no headline."""
        known = {measure.key for measure in self.measures}
        more = [replace(measure, headline=False) for measure in measures if measure.key not in known]
        return replace(self, measures=(*self.measures, *more))

    @property
    def headline(self) -> Measure:
        """The measure that learning curves and comparisons go by."""
        return next(measure for measure in self.measures if measure.headline)

    @property
    def curve(self) -> str:
        """The name of the metric that learning curves show: the headline on the watched split."""
        return f"{self.watched}/{self.headline.key}"

    @property
    def final(self) -> str:
        """The name of the metric that judges a finished run: the headline on the test set."""
        return f"test/{self.headline.key}"

    def measure(self, metric: str) -> Measure:
        """Return the measure of a metric such as ``test/p@1``; otherwise raise ConfigError that lists valid names."""
        split, _, key = metric.partition("/")
        for measure in self.measures:
            if measure.key == key and split in _SPLITS:
                return measure
        names = [f"test/{measure.key}" for measure in self.measures]
        raise ConfigError(f"no metric '{metric}' in these runs{did_you_mean(metric, names)}")

    def has(self, metric: str) -> bool:
        """Tell whether a name is that of a metric."""
        split, _, key = metric.partition("/")
        return split in _SPLITS and any(measure.key == key for measure in self.measures)

    def label(self, metric: str) -> str:
        """Return a metric's printed name, such as ``test P@1`` or ``validation perplexity``."""
        return f"{_SPLITS[metric.partition('/')[0]]} {self.measure(metric).label}"

    def label_with_unit(self, metric: str, separator: str = ", ") -> str:
        """Return the label followed by the unit, if it has one: ``test P@1, %``."""
        unit = self.measure(metric).unit
        return self.label(metric) + (f"{separator}{unit}" if unit else "")

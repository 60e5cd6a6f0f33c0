"""Define what the configurations of all data sets for regression have in common."""

import math
from dataclasses import dataclass
from typing import ClassVar

from runner.data.shared.base import DatasetConfig, seed_of, share_for_test, share_for_validation
from runner.errors import require
from runner.options.fields import option

VALID_SHARE = 0.1


@dataclass(frozen=True, kw_only=True)
class RegressionConfig(DatasetConfig):
    """Hold the options that the task applies, not the preparation of the data."""

    family: ClassVar[str] = "regression"

    valid_share: float = share_for_validation(VALID_SHARE)
    threshold: float | None = option(None, "for logistic regression: responses above it become 1, all others 0")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_threshold(self.threshold)


@dataclass(frozen=True, kw_only=True)
class SplitConfig(RegressionConfig):
    """Add how rows are split into training and test rows (`runner/data/shared/splits.py`)."""

    test_share: float = share_for_test()
    split_seed: int = seed_of("the draw of the test rows")


def check_threshold(threshold: float | None) -> None:
    """Raise ConfigError unless the threshold is None or a finite number."""
    require(threshold is None or math.isfinite(threshold), f"dataset.threshold must be null or finite, got {threshold}")

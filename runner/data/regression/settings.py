"""Define what the configurations of all data sets for regression have in common."""

import math
from dataclasses import dataclass
from typing import ClassVar

from runner.errors import require

VALID_SHARE = 0.1


@dataclass(frozen=True, kw_only=True)
class RegressionConfig:
    """Hold the settings that the task applies, not the preparation of the data.

    `valid_share`: share of the training rows that is held out for validation, in (0, 0.5].
    `threshold`: None, or the number above which a response becomes 1; all others become 0 (for logistic regression).
    """

    family: ClassVar[str] = "regression"

    valid_share: float = VALID_SHARE
    threshold: float | None = None

    def __post_init__(self) -> None:
        require(0 < self.valid_share <= 0.5, f"dataset.valid_share must lie in (0, 0.5], got {self.valid_share}")
        check_threshold(self.threshold)


@dataclass(frozen=True, kw_only=True)
class SplitConfig(RegressionConfig):
    """Add how rows are split into training and test rows (`runner/data/shared/splits.py`).

    `test_share`: share of the rows that is held out for the test, in (0, 0.9].
    `split_seed`: seed of the draw of the test rows.
    """

    test_share: float = 0.1
    split_seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 < self.test_share <= 0.9, f"dataset.test_share must lie in (0, 0.9], got {self.test_share}")
        require(0 <= self.split_seed < 2**31, "dataset.split_seed must lie in [0, 2147483647]")


def check_threshold(threshold: float | None) -> None:
    """Raise ConfigError unless the threshold is None or a finite number."""
    require(threshold is None or math.isfinite(threshold), f"dataset.threshold must be null or finite, got {threshold}")

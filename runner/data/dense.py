"""Define prepared data for regression: dense rows of numbers with one response each.

Legend: R rows of a split, F features.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, kw_only=True)
class DenseRows:
    """Hold dense feature rows with their responses, memory-mapped and read-only, in the order of the file.

    Every number is finite and has the unit that it has in the file. float64 keeps columns such as a latitude of
    4,864,900 m with a range of 270 m apart; whoever trains on them standardises first.
    """

    features_RF: np.ndarray  # float64 (R, F), C order
    response_R: np.ndarray  # float64 (R,)

    @property
    def num_rows(self) -> int:
        """Return the number of rows, R."""
        return len(self.response_R)


@dataclass(frozen=True, kw_only=True)
class RegressionDataset:
    """Hold a prepared data set whose response is to be predicted from the features."""

    name: str
    train: DenseRows
    test: DenseRows
    num_features: int
    checksum: str  # sha256 of the prepared arrays and their dimensions
    variant: str  # the published (or private) version and split of the data

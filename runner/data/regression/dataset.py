"""Define prepared data for regression: dense rows of numbers with one response each.

Legend: R rows of a split, F features.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from runner.data.shared.card import Size
from runner.data.shared.manifests import Dataset, Manifest, combine
from runner.data.shared.verify import map_numbers


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
class RegressionDataset(Dataset):
    """Hold a prepared data set whose response is to be predicted from the features."""

    train: DenseRows
    test: DenseRows
    num_features: int


@dataclass(frozen=True, kw_only=True)
class RegressionManifest(Manifest):
    """Describe prepared tables of numbers with one response for each row."""

    family: str = "regression"
    num_features: int
    train_rows: int
    test_rows: int

    @property
    def size(self) -> Size:
        return Size(unit="rows", train=self.train_rows, test=self.test_rows, features=self.num_features)

    def in_words(self) -> str:
        return f"{self.train_rows:,} / {self.test_rows:,} rows, {self.num_features:,} features"

    def checksum_of(self, digests: Mapping[str, str]) -> str:
        splits = (
            combine(*(digests[f"{split}.{array}.npy"] for array in ("features", "response")))
            for split in ("train", "test")
        )
        return combine(self.num_features, self.train_rows, self.test_rows, *splits)

    def open(self, folder: Path) -> RegressionDataset:
        def rows(split: str, count: int) -> DenseRows:
            return DenseRows(
                features_RF=map_numbers(folder / f"{split}.features.npy", "<f8", count, self.num_features),
                response_R=map_numbers(folder / f"{split}.response.npy", "<f8", count),
            )

        return RegressionDataset(
            name=self.name,
            train=rows("train", self.train_rows),
            test=rows("test", self.test_rows),
            num_features=self.num_features,
            checksum=self.checksum,
            variant=self.variant,
        )

"""Write features and responses to a prepared folder, piece by piece.

Legend: r rows of a piece, F features.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Self

import numpy as np

from runner.data.regression.dataset import RegressionManifest
from runner.data.shared.manifests import Origin, combine
from runner.data.shared.store import ColumnWriter
from runner.errors import DataError


class DenseWriter:
    """Write dense rows and their responses piece by piece; as a context it closes the files."""

    def __init__(self, folder: Path, split: str, num_features: int) -> None:
        self.features = ColumnWriter(folder / f"{split}.features.npy", "<f8", num_features)
        self.response = ColumnWriter(folder / f"{split}.response.npy", "<f8")

    def append(self, features_rF: np.ndarray, response_r: np.ndarray) -> None:
        """Write r rows after those written before. Raises DataError for a number that is not finite."""
        if not (np.isfinite(features_rF).all() and np.isfinite(response_r).all()):
            raise DataError(f"{self.features.path.name}: NaN or infinite numbers cannot be stored")
        self.features.append(features_rF)
        self.response.append(response_r)

    @property
    def rows(self) -> int:
        """Return the number of rows written so far."""
        return self.response.length

    def finish(self) -> str:
        """Complete the files and return the sha256 of the digests of both arrays."""
        return combine(self.features.finish(), self.response.finish())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.features.file.close()
        self.response.file.close()


def write_dense(
    folder: Path,
    splits: Mapping[str, Iterable[tuple[np.ndarray, np.ndarray]]],
    *,
    num_features: int,
    origin: Origin,
) -> RegressionManifest:
    """Write the splits `train` and `test`, each given as pieces: features (r, F) and response (r).

    Raises DataError for a number that is not finite.
    """
    digests, rows = [], []
    for split in ("train", "test"):
        with DenseWriter(folder, split, num_features) as writer:
            for features_rF, response_r in splits[split]:
                writer.append(features_rF, response_r)
            digests.append(writer.finish())
            rows.append(writer.rows)
    return RegressionManifest(
        **vars(origin),
        num_features=num_features,
        train_rows=rows[0],
        test_rows=rows[1],
        checksum=combine(num_features, *rows, *digests),
        notes=[],
    )

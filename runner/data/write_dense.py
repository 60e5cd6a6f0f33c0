"""Write features and responses to a prepared folder, piece by piece.

Legend: r rows of a piece, F features.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from runner.data.manifests import RegressionManifest
from runner.data.store import DenseWriter, combine


def write_dense(
    folder: Path,
    splits: Mapping[str, Iterable[tuple[np.ndarray, np.ndarray]]],
    *,
    num_features: int,
    name: str,
    variant: str,
    sources: dict[str, str],
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
        name=name,
        variant=variant,
        num_features=num_features,
        train_rows=rows[0],
        test_rows=rows[1],
        checksum=combine(num_features, *rows, *digests),
        sources=sources,
        notes=[],
    )

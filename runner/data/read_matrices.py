"""Read rows of extreme classification from two sparse matrices, features and labels, as SciPy's save_npz writes them.

Legend: R rows of the matrices.
"""

import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from runner.data.readers import Block, FileCounts
from runner.errors import DataError

_BLOCK_ROWS = 1 << 16


def read_matrices(features_path: Path, labels_path: Path, sink: Callable[[Block], None]) -> FileCounts:
    """Pass the rows to `sink`, block by block; those without a label are dropped and counted, as in text files.

    A stored label of value 0 is none; values of features that are stored twice are added. Both matrices are held in
    memory. Raises DataError, naming the file, for damaged files, matrices of different numbers of rows, indices out of
    range and values that are not finite.
    """
    features, labels = _load(features_path), _load(labels_path)
    if features.shape[0] != labels.shape[0]:
        raise DataError(f"{labels_path}: {labels.shape[0]:,} rows, but {features_path} has {features.shape[0]:,}")
    features.sum_duplicates()
    labels.sum_duplicates()
    labels.eliminate_zeros()
    sizes_R, label_sizes_R = np.diff(features.indptr), np.diff(labels.indptr)
    is_kept_R = label_sizes_R > 0
    for rows in _blocks(np.flatnonzero(is_kept_R)):
        some, their_labels = features[rows], labels[rows]
        sink(
            Block(
                row_sizes=np.diff(some.indptr).astype(np.int64),
                indices=some.indices.astype(np.int32),
                values=some.data.astype(np.float32),
                label_sizes=np.diff(their_labels.indptr).astype(np.int64),
                labels=their_labels.indices.astype(np.int32),
            )
        )
    return FileCounts(
        rows_read=len(is_kept_R),
        rows_without_labels=int(np.count_nonzero(~is_kept_R)),
        rows_without_features=int(np.count_nonzero(sizes_R[is_kept_R] == 0)),
        num_features=features.shape[1],
        num_classes=labels.shape[1],
    )


def _load(path: Path) -> Any:
    """Return the matrix of a file in CSR form, checked."""
    from scipy.sparse import load_npz

    try:
        matrix = load_npz(path).tocsr()
        matrix.check_format(full_check=True)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, NotImplementedError) as error:
        raise DataError(f"{path}: no sparse matrix of SciPy's save_npz ({' '.join(str(error).split())})") from None
    if not np.isfinite(matrix.data).all():
        raise DataError(f"{path}: a value is not finite")
    return matrix


def _blocks(rows: np.ndarray) -> Iterator[np.ndarray]:
    for begin in range(0, len(rows), _BLOCK_ROWS):
        yield rows[begin : begin + _BLOCK_ROWS]

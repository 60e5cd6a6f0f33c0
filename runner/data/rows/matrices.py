"""Read rows of extreme classification from two sparse matrices, features and labels, as SciPy's save_npz writes them.

Legend: R rows of the matrices.
"""

import lzma
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from runner.data.rows.texts import Block, FileCounts
from runner.errors import DataError, brief

_BLOCK_ROWS = 1 << 16
_MOST_COLUMNS = 2**31 - 1
# What SciPy raises on a damaged file; RuntimeError is one of a zip that says it is encrypted, or of an unknown method.
_DAMAGED = (
    OSError, ValueError, LookupError, EOFError, TypeError, AttributeError, ArithmeticError, RuntimeError,
    zlib.error, lzma.LZMAError, zipfile.BadZipFile,
)  # fmt: skip


def read_matrices(features_path: Path, labels_path: Path | None, sink: Callable[[Block], None]) -> FileCounts:
    """Pass the rows to `sink`, block by block; those without a label are dropped and counted, as in text files.

    Without a matrix of labels, every row is kept and has none. A stored label of value 0 is none; values of features
    that are stored twice are added. Both matrices are held in memory. Raises DataError, naming the file, for damaged
    files, matrices of different numbers of rows, indices out of range and values that are not finite.
    """
    features = _load(features_path)
    features.sum_duplicates()
    _check_values(features_path, features)
    sizes_R = np.diff(features.indptr)
    if labels_path is None:
        from scipy.sparse import csr_array

        labels = csr_array((len(sizes_R), 0), dtype=np.float32)
        is_kept_R = np.ones(len(sizes_R), dtype=bool)
    else:
        labels = _load(labels_path)
        if features.shape[0] != labels.shape[0]:
            raise DataError(f"{labels_path}: {labels.shape[0]:,} rows, but {features_path} has {features.shape[0]:,}")
        labels.sum_duplicates()
        _check_values(labels_path, labels)
        labels.eliminate_zeros()
        is_kept_R = np.diff(labels.indptr) > 0
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
    """Return the matrix of a file in CSR form, with indices in range and values in float32 or wider.

    The conversion adds values that are stored twice: in a narrow type, 200 and 100 could become 44.
    """
    from scipy.sparse import load_npz

    try:
        with path.open("rb") as file:  # NumPy would not close the file of a damaged archive
            matrix = load_npz(file)
        if hasattr(matrix, "check_format"):  # before the conversion, which trusts what it converts
            matrix.check_format(full_check=True)
        is_real = matrix.ndim == 2 and matrix.dtype.kind in "biuf"
        if is_real:
            matrix = matrix.astype(np.result_type(matrix.dtype, np.float32), copy=False).tocsr()
            matrix.check_format(full_check=True)
    except _DAMAGED as error:
        raise DataError(
            f"{path}: no sparse matrix of SciPy's save_npz ({brief(error)}); write one by scipy.sparse.save_npz"
        ) from None
    if not is_real:
        raise DataError(f"{path}: must be a matrix of real numbers, found {matrix.ndim}-D {matrix.dtype}")
    if matrix.shape[1] > _MOST_COLUMNS:
        raise DataError(f"{path}: {matrix.shape[1]:,} columns; at most {_MOST_COLUMNS:,} are supported")
    return matrix


def _check_values(path: Path, matrix: Any) -> None:
    """Raise DataError, naming row and column from 0 as SciPy does, for a value that is not finite in float32."""
    with np.errstate(over="ignore"):
        wrong = np.flatnonzero(~np.isfinite(matrix.data.astype(np.float32)))
    if len(wrong):
        row = int(np.searchsorted(matrix.indptr, wrong[0], side="right")) - 1
        raise DataError(
            f"{path}: row {row}, column {matrix.indices[wrong[0]]} (from 0): a value is not finite in float32:"
            f" {matrix.data[wrong[0]]}; replace it, or leave it out of the matrix"
        )


def _blocks(rows: np.ndarray) -> Iterator[np.ndarray]:
    for begin in range(0, len(rows), _BLOCK_ROWS):
        yield rows[begin : begin + _BLOCK_ROWS]

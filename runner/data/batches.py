"""Batches of rows: which rows a step trains on, gathered from memory-mapped CSR arrays.

Legend: B rows, N features of all rows, P targets of all rows.
"""

from dataclasses import dataclass

import numpy as np
from numba import njit, prange

from runner.data import LabelledRows


@njit(cache=True, parallel=True)
def _gather(indptr, values, rows, out_indptr, out):
    for i in prange(rows.shape[0]):
        begin = indptr[rows[i]]
        for j in range(out_indptr[i + 1] - out_indptr[i]):
            out[out_indptr[i] + j] = values[begin + j]


@dataclass(frozen=True, kw_only=True)
class RowBatch:
    """CSR slices: features (``indptr`` B+1, ``indices`` N, ``values`` N) and targets (``target_indptr``, P)."""

    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray
    target_indptr: np.ndarray
    targets: np.ndarray
    weight_B: np.ndarray | None = None

    @property
    def num_rows(self) -> int:
        """B."""
        return len(self.indptr) - 1


def take(data: LabelledRows, rows_B: np.ndarray, weight_B: np.ndarray | None = None) -> RowBatch:
    """The given rows, in the given order, with ``weight_B`` (B,) float32 as factors of their losses; None: 1 / B."""

    def gather(indptr: np.ndarray, values: list[np.ndarray]) -> tuple[np.ndarray, list[np.ndarray]]:
        lengths = indptr[rows_B + 1] - indptr[rows_B]
        out_indptr = np.zeros(len(rows_B) + 1, dtype=np.int64)
        np.cumsum(lengths, out=out_indptr[1:])
        outs = []
        for array in values:
            out = np.empty(out_indptr[-1], dtype=array.dtype)
            _gather(indptr, array, rows_B, out_indptr, out)
            outs.append(out)
        return out_indptr, outs

    indptr, (indices, values) = gather(data.indptr, [data.indices, data.values])
    target_indptr, (targets,) = gather(data.label_indptr, [data.labels])
    return RowBatch(
        indptr=indptr,
        indices=indices,
        values=values,
        target_indptr=target_indptr,
        targets=targets,
        weight_B=weight_B,
    )

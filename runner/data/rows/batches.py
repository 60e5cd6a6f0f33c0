"""Gather batches of rows from memory-mapped CSR arrays.

Legend: B rows of a batch, nnz stored feature values and P targets of all rows of the batch together.
"""

from dataclasses import dataclass

import numpy as np
from numba import njit, prange

from runner.data.rows.dataset import LabelledRows
from runner.kernels.groups import PRANGE


@njit(cache=True, parallel=PRANGE)
def _gather(indptr, values, rows, out_indptr, out):
    for i in prange(rows.shape[0]):
        begin = indptr[rows[i]]
        for j in range(out_indptr[i + 1] - out_indptr[i]):
            out[out_indptr[i] + j] = values[begin + j]


@dataclass(frozen=True, kw_only=True)
class RowBatch:
    """Hold the rows of a batch in CSR form.

    Features: ``indptr`` (B+1,) int64, ``indices`` (nnz,) int32, ``values`` (nnz,) float32. Targets: ``target_indptr``
    (B+1,) int64, ``targets`` (P,) int32. ``weight_B``: factors of the rows' losses, float32; None: 1 / B each.
    """

    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray
    target_indptr: np.ndarray
    targets: np.ndarray
    weight_B: np.ndarray | None = None

    @property
    def num_rows(self) -> int:
        """Return the number of rows, B."""
        return len(self.indptr) - 1

    @property
    def num_examples(self) -> int:
        """Return the same: every row is an example."""
        return self.num_rows

    @property
    def first_row_E1(self) -> np.ndarray:
        """Return where the rows of each example begin, and where the last ones end, (B + 1,) int64."""
        return np.arange(self.num_rows + 1, dtype=np.int64)

    def part(self, lo: int, hi: int) -> "RowBatch":
        """Return the batch of the examples lo to hi - 1."""

        def cut(indptr: np.ndarray, values: np.ndarray) -> np.ndarray:
            return values[indptr[lo] : indptr[hi]]

        return RowBatch(
            indptr=self.indptr[lo : hi + 1] - self.indptr[lo],
            indices=cut(self.indptr, self.indices),
            values=cut(self.indptr, self.values),
            target_indptr=self.target_indptr[lo : hi + 1] - self.target_indptr[lo],
            targets=cut(self.target_indptr, self.targets),
            weight_B=None if self.weight_B is None else self.weight_B[lo:hi],
        )


def take(data: LabelledRows, rows_B: np.ndarray, weight_B: np.ndarray | None = None) -> RowBatch:
    """Return a batch of the rows numbered ``rows_B``, in that order.

    ``weight_B``: factors of the rows' losses, (B,) float32; None: 1 / B each.
    """

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

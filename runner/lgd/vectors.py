"""Present a matrix in memory as vectors that an index follows (``contracts.Vectors``).

Legend: R rows of the matrix, D columns, U distinct rows.
"""

import numpy as np

from runner.contracts import OfRows
from runner.kernels.dense import double_column_sums


class InMemory:
    """Read rows of ``matrix``, (R, D) float32; a subclass says which of them move."""

    matrix: np.ndarray

    @property
    def shape(self) -> tuple[int, int]:
        """Return the numbers of rows and columns."""
        rows, columns = self.matrix.shape
        return rows, columns

    def rows(self, rows_U: np.ndarray | None = None) -> np.ndarray:
        """Return these rows, (U, D) a copy; None: the matrix."""
        return self.matrix if rows_U is None else self.matrix[rows_U]

    def of_rows(self, rows_U: np.ndarray | None, make: OfRows, axis: int = 0) -> np.ndarray:
        """Return what ``make`` makes of these rows (None: all); they are read where they lie."""
        return make(self.matrix, np.arange(len(self.matrix), dtype=np.int32) if rows_U is None else rows_U)

    def column_sums(self) -> np.ndarray:
        """Return the sum of all rows, (D,) float64."""
        sums_D = np.empty(self.matrix.shape[1], dtype=np.float64)
        double_column_sums(self.matrix, sums_D)
        return sums_D

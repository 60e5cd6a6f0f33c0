"""Present a matrix in memory as vectors that an index follows (``contracts.Vectors``).

Legend: R rows of the matrix, D columns, U distinct rows.
"""

import numpy as np


class InMemory:
    """Read rows of ``matrix``, (R, D) float32; a subclass says which of them move."""

    matrix: np.ndarray

    def rows(self, rows_U: np.ndarray | None = None) -> np.ndarray:
        """Return these rows, (U, D) a copy; None: the matrix."""
        return self.matrix if rows_U is None else self.matrix[rows_U]

    def rows_at(self, rows_U: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the matrix and ``rows_U``, for kernels that read rows where they lie."""
        return self.matrix, rows_U

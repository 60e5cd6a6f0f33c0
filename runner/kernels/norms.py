"""Compute the norms of the rows of a matrix.

Legend: X rows, D columns.
"""

import numpy as np
from numba import njit, prange

from runner.kernels.groups import CHUNKS, PRANGE


@njit(cache=True, parallel=PRANGE, fastmath={"reassoc", "contract", "arcp", "nsz"})
def _row_norms(matrix, columns, norms):
    for part in prange(CHUNKS):
        for i in range(part * len(norms) // CHUNKS, (part + 1) * len(norms) // CHUNKS):
            total = 0.0
            for k in range(columns):
                total += np.float64(matrix[i, k]) * np.float64(matrix[i, k])
            norms[i] = np.sqrt(total)


def row_norms(matrix_XD: np.ndarray, columns: int | None = None) -> np.ndarray:
    """Return the norms (X,) float64 of the first ``columns`` coordinates (None: of all) of each row."""
    norms_X = np.empty(len(matrix_XD))
    _row_norms(matrix_XD, matrix_XD.shape[1] if columns is None else columns, norms_X)
    return norms_X

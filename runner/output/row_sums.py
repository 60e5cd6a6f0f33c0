"""Add up the gradients that processes have of rows of a table that each of them holds whole.

Legend: D columns, U distinct rows, N rows of all processes one after another, H processes.
"""

import numpy as np

from runner.contracts import Passed
from runner.kernels.groups import group_by_id
from runner.output.across import Across
from runner.output.layer import RowGradient, Rows


def sizes_of(rows_U: np.ndarray, across: Across) -> np.ndarray:
    """Return the number of rows that each process has, (H,) int64."""
    sizes_H: np.ndarray = across.gather(np.array([len(rows_U)], dtype=np.int64))[:, 0]
    return sizes_H


def sum_of_rows(
    table: Rows, rows_U: np.ndarray, grad_UD: Passed, sizes_H: np.ndarray, across: Across, step: int
) -> RowGradient:
    """Return the sum of all processes' gradients, over the rows of all.

    ``rows_U``: those of this process, which it has read for an update at this step; those of others are read here.
    Every process adds the same numbers in the same order, so that all have the same bits. Each sends 4 (D + 1) bytes
    for a row, padded to the largest number of rows.
    """
    rows_N, grad_ND = across.concatenate(rows_U, sizes_H), across.concatenate(grad_UD, sizes_H)
    groups = group_by_id(rows_N, table.shape[0])
    table.read_for_update(np.setdiff1d(groups[1], rows_U, assume_unique=True), step)
    place_N = np.arange(len(rows_N), dtype=np.int32)
    once_N = np.ones(len(rows_N), dtype=np.float32)
    nobody = np.zeros((0, table.shape[1]), dtype=np.float32)
    return table.gradients_of_groups(groups, grad_ND, place_N, once_N, nobody, step)

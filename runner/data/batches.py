"""Batches of rows: which rows a step trains on, gathered from memory-mapped CSR arrays.

Legend: B rows, N features of all rows, P targets of all rows.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numba import njit, prange

from runner import rng
from runner.data import LabelledRows


@njit(cache=True, parallel=True)
def _gather(indptr, values, rows, out_indptr, out):
    for i in prange(rows.shape[0]):
        begin = indptr[rows[i]]
        for j in range(out_indptr[i + 1] - out_indptr[i]):
            out[out_indptr[i] + j] = values[begin + j]


@dataclass(frozen=True, kw_only=True)
class Batch:
    """CSR slices: features (``indptr`` B+1, ``indices`` N, ``values`` N) and targets (``target_indptr``, P)."""

    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray
    target_indptr: np.ndarray
    targets: np.ndarray

    @property
    def num_rows(self) -> int:
        return len(self.indptr) - 1


def take(data: LabelledRows, rows_B: np.ndarray) -> Batch:
    """The given rows, in the given order."""

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
    return Batch(indptr=indptr, indices=indices, values=values, target_indptr=target_indptr, targets=targets)


def steps_per_epoch(num_rows: int, batch_size: int) -> int:
    return -(-num_rows // batch_size)


def epoch_batches(data: LabelledRows, batch_size: int, seed: int, epoch: int, first: int = 0) -> Iterator[Batch]:
    """Batches of one epoch (0-based) from the ``first`` on; the order is a function of (seed, epoch) alone."""
    order = rng.generator(seed, rng.SHUFFLE, epoch).permutation(data.num_rows)
    for begin in range(first * batch_size, data.num_rows, batch_size):
        yield take(data, order[begin : begin + batch_size])

"""Keep L hash tables over the same ids as CSR arrays, built in bulk by counting sort.

Legend: L tables, R hashed rows, V buckets of a table (2 ** code_bits).
"""

import numpy as np
from numba import njit, prange

from runner import rng
from runner.kernels.groups import PRANGE


@njit(cache=True, parallel=PRANGE)
def _build(codes, visit, start, members):
    """Set members[t, start[t, c] : start[t, c + 1]] to the rows with code c in table t, in the order of ``visit``."""
    tables, rows = codes.shape
    for table in prange(tables):
        for bucket in range(start.shape[1]):
            start[table, bucket] = 0
        for row in range(rows):
            start[table, codes[table, row] + 1] += 1
        for bucket in range(start.shape[1] - 1):
            start[table, bucket + 1] += start[table, bucket]
        cursor = np.empty(start.shape[1] - 1, dtype=np.int32)
        for bucket in range(cursor.shape[0]):
            cursor[bucket] = start[table, bucket]
        for i in range(rows):
            row = visit[i]
            code = codes[table, row]
            members[table, cursor[code]] = row
            cursor[code] += 1


class BucketTables:
    """Hold the codes of all rows and, per table, the rows of every bucket.

    ``codes`` (L, R) uint16 or uint32; ``start`` (L, V + 1) int32; ``members`` (L, R) int32. Within a bucket the rows
    have a random order, new at every build, so that reading only a few of them (a bucket cap) favours no row by its id.
    """

    def __init__(self, *, L: int, num_rows: int, code_bits: int) -> None:
        self.codes = np.zeros((L, num_rows), dtype=np.uint16 if code_bits <= 16 else np.uint32)
        self.start = np.zeros((L, (1 << code_bits) + 1), dtype=np.int32)
        self.members = np.zeros((L, num_rows), dtype=np.int32)

    def build(self, seed: int, step: int) -> None:
        """Sort all rows into buckets by their current codes."""
        visit = rng.generator(seed, rng.BUCKET, step).permutation(self.codes.shape[1]).astype(np.int32)
        _build(self.codes, visit, self.start, self.members)

    @property
    def nbytes(self) -> int:
        """Return the bytes that codes and buckets take."""
        return self.codes.nbytes + self.start.nbytes + self.members.nbytes

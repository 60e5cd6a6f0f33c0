"""Keep L hash tables over the same ids as CSR arrays, built in bulk by counting sort, and changed by moving a few rows.

Legend: L tables, R hashed rows, U moved rows, V buckets of a table (2 ** code_bits).
"""

import numpy as np
from numba import njit, prange

from runner import rng
from runner.kernels.groups import CHUNKS, PRANGE

_AT_ONCE = 16  # tables that are sorted together: their codes of a row fill half a cache line, or a whole one
_TILE = 256  # rows


# A code of a random row lies in a cache line of its own, whose other codes are of rows that come much later. So the
# codes of a row in a few tables are first put side by side, where they are one line, and then in the order of visits.


@njit(cache=True, parallel=PRANGE)
def _by_visit(codes, visit, first, side_by_side, ordered):
    """Set ordered[t, i] to codes[first + t, visit[i]]; ``side_by_side`` (R, tables) is room for this."""
    tables, rows = ordered.shape
    for part in prange(CHUNKS):
        last = (part + 1) * rows // CHUNKS
        for lo in range(part * rows // CHUNKS, last, _TILE):
            for t in range(tables):
                for row in range(lo, min(lo + _TILE, last)):
                    side_by_side[row, t] = codes[first + t, row]
    for part in prange(CHUNKS):
        last = (part + 1) * rows // CHUNKS
        tile = np.empty((_TILE, side_by_side.shape[1]), dtype=side_by_side.dtype)
        for lo in range(part * rows // CHUNKS, last, _TILE):
            size = min(_TILE, last - lo)
            for i in range(size):
                row = visit[lo + i]
                for t in range(tile.shape[1]):
                    tile[i, t] = side_by_side[row, t]
            for t in range(tables):
                for i in range(size):
                    ordered[t, lo + i] = tile[i, t]


@njit(cache=True, parallel=PRANGE)
def _sort(ordered, visit, first, start, members):
    """Set members[first + t, start[first + t, c] : start[first + t, c + 1]] to the rows with code c, as visited.

    ``ordered``: the codes of a few tables, from ``first`` on, in the order of ``visit``.
    """
    tables, rows = ordered.shape
    for t in prange(tables):
        table = first + t
        for bucket in range(start.shape[1]):
            start[table, bucket] = 0
        for i in range(rows):
            start[table, ordered[t, i] + 1] += 1
        for bucket in range(start.shape[1] - 1):
            start[table, bucket + 1] += start[table, bucket]
        cursor = np.empty(start.shape[1] - 1, dtype=np.int32)
        for bucket in range(cursor.shape[0]):
            cursor[bucket] = start[table, bucket]
        for i in range(rows):
            code = ordered[t, i]
            members[table, cursor[code]] = visit[i]
            cursor[code] += 1


@njit(cache=True, parallel=PRANGE)
def _move(codes, visit, rank, rows_U, codes_LU, start, members):
    """Give rows their new codes, and take those whose code changed to their new buckets, in the order of ``visit``.

    Only the part of a table between the first and the last bucket that changed is written.
    """
    tables, rows = codes.shape
    for table in prange(tables):
        arrivals = np.empty(rows_U.shape[0], dtype=np.int64)  # new bucket * rows + place in the order
        count, low, high = 0, start.shape[1], -1
        for i in range(rows_U.shape[0]):
            row, code = rows_U[i], np.int64(codes_LU[table, i])
            before = np.int64(codes[table, row])
            if code != before:
                arrivals[count] = code * rows + rank[row]
                count += 1
                low, high = min(low, code, before), max(high, code, before)
        if count == 0:
            continue
        leaves = np.zeros(high - low + 1, dtype=np.bool_)
        for i in range(rows_U.shape[0]):
            row, code = rows_U[i], np.int64(codes_LU[table, i])
            before = np.int64(codes[table, row])
            if code != before:
                leaves[before - low] = True
                codes[table, row] = code
        arrivals = np.sort(arrivals[:count])
        begin = np.int64(start[table, low])
        old = members[table, begin : start[table, high + 1]].copy()
        place, read, arrived = begin, np.int64(0), 0
        for bucket in range(low, high + 1):
            end = np.int64(start[table, bucket + 1]) - begin
            start[table, bucket] = place
            after = (bucket + 1) * rows
            if not leaves[bucket - low] and (arrived == count or arrivals[arrived] >= after):
                if place != begin + read:
                    members[table, place : place + end - read] = old[read:end]
                place += end - read
            else:
                for i in range(read, end):
                    row = old[i]
                    if codes[table, row] != bucket:
                        continue
                    while arrived < count and arrivals[arrived] < after:
                        if arrivals[arrived] > bucket * rows + rank[row]:
                            break
                        members[table, place] = visit[arrivals[arrived] - bucket * rows]
                        place += 1
                        arrived += 1
                    members[table, place] = row
                    place += 1
                while arrived < count and arrivals[arrived] < after:
                    members[table, place] = visit[arrivals[arrived] - bucket * rows]
                    place += 1
                    arrived += 1
            read = end


class BucketTables:
    """Hold the codes of all rows and, per table, the rows of every bucket.

    ``codes`` (L, R) uint16 or uint32; ``start`` (L, V + 1) int32; ``members`` (L, R) int32. Within a bucket the rows
    have a random order, new at every build and kept by moves, so that reading only a few of them (a bucket cap) favours
    no row by its id.
    """

    def __init__(self, *, L: int, num_rows: int, code_bits: int) -> None:
        self.codes = np.zeros((L, num_rows), dtype=np.uint16 if code_bits <= 16 else np.uint32)
        self.start = np.zeros((L, (1 << code_bits) + 1), dtype=np.int32)
        self.members = np.zeros((L, num_rows), dtype=np.int32)
        self._visit_R = np.arange(num_rows, dtype=np.int32)
        self._rank_R = self._visit_R.copy()

    def build(self, seed: int, step: int) -> None:
        """Sort all rows into buckets by their current codes."""
        tables, rows = self.codes.shape
        self._visit_R = rng.generator(seed, rng.BUCKET, step).permutation(rows).astype(np.int32)
        self._rank_R[self._visit_R] = np.arange(rows, dtype=np.int32)
        at_once = min(_AT_ONCE, tables)
        side_by_side = np.empty((rows, at_once), dtype=self.codes.dtype)
        ordered = np.empty((at_once, rows), dtype=self.codes.dtype)
        for first in range(0, tables, at_once):
            here = min(at_once, tables - first)
            _by_visit(self.codes, self._visit_R, first, side_by_side, ordered[:here])
            _sort(ordered[:here], self._visit_R, first, self.start, self.members)

    def move(self, rows_U: np.ndarray, codes_LU: np.ndarray) -> None:
        """Give these rows, each named once, new codes; the tables are those that the last build would make of them."""
        _move(self.codes, self._visit_R, self._rank_R, rows_U, codes_LU, self.start, self.members)

    @property
    def num_buckets(self) -> int:
        """Return the number of buckets of a table."""
        return self.start.shape[1] - 1

    @property
    def nbytes(self) -> int:
        """Return the bytes that codes and buckets take."""
        return self.codes.nbytes + self.start.nbytes + self.members.nbytes

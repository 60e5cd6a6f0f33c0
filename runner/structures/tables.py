"""Keep L hash tables over the same ids as CSR arrays, built in bulk by counting sort, and changed by moving rows.

Legend: L tables, R hashed rows, U moved rows, V buckets of a table (2 ** code_bits).
"""

import numpy as np
from numba import njit, prange

from runner import rng
from runner.kernels.groups import CHUNKS, PRANGE

_AT_ONCE = 16  # tables that are sorted together: their codes of a row fill half a cache line, or a whole one
_TILE = 256  # rows
_MANY = 16  # sorting all rows is faster once more than this part of them has new codes
_HALF = np.uint64(32)  # bits
_ONE = np.uint64(1)  # indices without a sign need no look whether they are negative


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
def _words(key, rows_U):
    """Return a random word of each row, by which rows are ordered."""
    word_U = np.empty(rows_U.shape[0], dtype=np.uint64)
    for i in prange(rows_U.shape[0]):
        word_U[i] = rng.word(key, rows_U[i])
    return word_U


@njit(cache=True, inline="always")
def _share_of(word, count):
    """Return how many of ``count`` uniform words are expected below ``word``."""
    return ((word >> _HALF) * count) >> _HALF


@njit(cache=True, inline="always")
def _place_of(word, members_R, low, high, size, key):
    """Return where in members_R[low:high], which ascend by their words, one with this word belongs.

    They are the first of ``size`` members with uniform words, so each look tells how far away the place is.
    """
    place = low + _share_of(word, size)
    while low < high:
        place = min(max(place, low), high - _ONE)
        found = rng.word(key, members_R[place])
        if found < word:
            low = place + _ONE
            place = low + _share_of(word - found, size)
        else:
            high = place
            place -= min(place, _ONE + _share_of(found - word, size))
    return low


# Members are read and written in sequence, and no order of a row is looked up in memory: at millions of rows a random
# read costs more than a word.


@njit(cache=True, parallel=PRANGE)
def _move(codes, key, rows_U, ordered_U, codes_LU, start, members):
    """Give rows their new codes, and take those whose code changed to the places of their words in their new buckets.

    ``ordered_U``: the places in ``rows_U`` of the rows by their words. In a table first those that leave are taken out,
    from the first bucket on, then those that come are put in, from the last bucket on.
    """
    tables, rows = codes.shape
    buckets = start.shape[1] - 1
    for table in prange(tables):
        before_U = np.empty(rows_U.shape[0], dtype=codes.dtype)
        left_until, came_until = np.zeros(buckets, dtype=np.int32), np.zeros(buckets, dtype=np.int32)
        count = 0
        for i in range(rows_U.shape[0]):
            before, code = np.int64(codes[table, rows_U[i]]), np.int64(codes_LU[table, i])
            before_U[i] = before
            if code != before:
                codes[table, rows_U[i]] = code
                left_until[before] += 1
                came_until[code] += 1
                count += 1
        if count == 0:
            continue
        leaving, coming = np.int32(0), np.int32(0)
        for bucket in range(buckets):
            leaving += left_until[bucket]
            coming += came_until[bucket]
            left_until[bucket] = leaving - left_until[bucket]
            came_until[bucket] = coming - came_until[bucket]
        leave, come = np.empty(count, dtype=np.int32), np.empty(count, dtype=np.int32)
        for k in range(ordered_U.shape[0]):
            i = ordered_U[k]
            before, code = np.int64(before_U[i]), np.int64(codes_LU[table, i])
            if code != before:
                leave[left_until[before]] = rows_U[i]
                left_until[before] += 1
                come[came_until[code]] = rows_U[i]
                came_until[code] += 1

        members_R, begin_V1 = members[table], start[table]
        read, place, k = np.uint64(0), np.uint64(0), 0
        for bucket in range(buckets):
            end = np.uint64(begin_V1[bucket + 1])
            begin_V1[bucket] = place
            while k < left_until[bucket]:
                while members_R[read] != leave[k]:
                    members_R[place] = members_R[read]
                    place += _ONE
                    read += _ONE
                read += _ONE
                k += 1
            if place == read:
                place = read = end
            while read < end:
                members_R[place] = members_R[read]
                place += _ONE
                read += _ONE

        read, place, k = place, np.uint64(rows), count - 1
        for bucket in range(buckets - 1, -1, -1):
            if k < 0:
                break
            begin = np.uint64(begin_V1[bucket])
            begin_V1[bucket + 1] = place
            first = came_until[bucket - 1] if bucket > 0 else np.int32(0)
            size = read - begin
            while k >= first:
                after = _place_of(rng.word(key, come[k]), members_R, begin, read, size, key)
                while read > after:
                    read -= _ONE
                    place -= _ONE
                    members_R[place] = members_R[read]
                place -= _ONE
                members_R[place] = come[k]
                k -= 1
            while read > begin:
                read -= _ONE
                place -= _ONE
                members_R[place] = members_R[read]


def visiting_order(num_rows: int, seed: int) -> np.ndarray:
    """Return all rows in the random order in which buckets hold them, (num_rows,) int32."""
    return np.argsort(_words(_key(seed), np.arange(num_rows, dtype=np.int32))).astype(np.int32)


def _key(seed: int) -> np.uint64:
    return np.uint64(rng.stream(seed, rng.BUCKET, 0, 0))


class BucketTables:
    """Hold the codes of all rows and, per table, the rows of every bucket.

    ``codes`` (L, R) uint16 or uint32; ``start`` (L, V + 1) int32; ``members`` (L, R) int32. Within a bucket the rows
    have a random order, which is the seed's, so that reading only a few of them (a bucket cap) favours no row by its
    id. So the buckets follow from the codes alone.
    """

    def __init__(self, *, L: int, num_rows: int, code_bits: int, seed: int) -> None:
        self.codes = np.zeros((L, num_rows), dtype=np.uint16 if code_bits <= 16 else np.uint32)
        self.start = np.zeros((L, (1 << code_bits) + 1), dtype=np.int32)
        self.members = np.zeros((L, num_rows), dtype=np.int32)
        self._key = _key(seed)
        self._visit_R = visiting_order(num_rows, seed)

    def build(self) -> None:
        """Sort all rows into buckets by their current codes."""
        tables, rows = self.codes.shape
        at_once = min(_AT_ONCE, tables)
        side_by_side = np.empty((rows, at_once), dtype=self.codes.dtype)
        ordered = np.empty((at_once, rows), dtype=self.codes.dtype)
        for first in range(0, tables, at_once):
            here = min(at_once, tables - first)
            _by_visit(self.codes, self._visit_R, first, side_by_side, ordered[:here])
            _sort(ordered[:here], self._visit_R, first, self.start, self.members)

    def change(self, rows_U: np.ndarray, codes_LU: np.ndarray) -> None:
        """Give these rows, each named once, new codes (L, U), and bring the buckets up to them."""
        if _MANY * len(rows_U) > self.codes.shape[1]:
            self.codes[:, rows_U] = codes_LU
            self.build()
            return
        ordered_U = np.argsort(_words(self._key, rows_U)).astype(np.int32)
        _move(self.codes, self._key, rows_U, ordered_U, codes_LU, self.start, self.members)

    @property
    def nbytes(self) -> int:
        """Return the bytes that codes and buckets take."""
        return self.codes.nbytes + self.start.nbytes + self.members.nbytes

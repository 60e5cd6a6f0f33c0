"""Group (row, id) pairs by id.

With grouped pairs, sparse updates have no races and do not depend on the number of threads.
Legend: N pairs, U distinct ids.
"""

import numpy as np
from numba import njit, prange
from numba.core.cpu_options import ParallelOptions

CHUNKS = 16  # fixed, so that the split of the work, and thus the order of every sum, never depends on the thread count
PARTITIONS = 64
# Only loops over prange are parallel. Numba would also make a parallel function of every np.zeros and slice, which take
# a third of a second each to compile, and it would try to fuse them.
PRANGE = ParallelOptions(
    dict.fromkeys(("comprehension", "reduction", "inplace_binop", "setitem", "numpy", "stencil", "fusion"), False)
)
_SPARSE = 64  # above this number of ids per pair, sorting the pairs is faster than counting over all ids


@njit(cache=True)
def place_of(value, ascending, begin, end):
    """Return the first place from ``begin`` on whose number is at least ``value``; ``end`` if there is none before it.

    It compiles in a small part of the time of ``np.searchsorted``.
    """
    while begin < end:
        middle = (begin + end) // 2
        if ascending[middle] < value:
            begin = middle + 1
        else:
            end = middle
    return begin


@njit(cache=True, parallel=PRANGE)
def _partition(ids, shift):
    """Split pair positions into id ranges of 2**shift, keeping their order within each range."""
    num_pairs = ids.shape[0]
    counts = np.zeros((CHUNKS, PARTITIONS), dtype=np.int64)
    for chunk in prange(CHUNKS):
        for i in range(chunk * num_pairs // CHUNKS, (chunk + 1) * num_pairs // CHUNKS):
            counts[chunk, ids[i] >> shift] += 1
    begin = np.zeros(PARTITIONS + 1, dtype=np.int64)
    total = 0
    for part in range(PARTITIONS):
        begin[part] = total
        for chunk in range(CHUNKS):
            here = counts[chunk, part]
            counts[chunk, part] = total
            total += here
    begin[PARTITIONS] = total
    positions = np.empty(num_pairs, dtype=np.int32)
    for chunk in prange(CHUNKS):
        for i in range(chunk * num_pairs // CHUNKS, (chunk + 1) * num_pairs // CHUNKS):
            part = ids[i] >> shift
            positions[counts[chunk, part]] = i
            counts[chunk, part] += 1
    return positions, begin


@njit(cache=True, parallel=PRANGE)
def _sort_partitions(ids, positions, begin, shift):
    """Sort inside each id range by counting; return the sorted positions and each range's number of distinct ids."""
    order = np.empty(positions.shape[0], dtype=np.int32)
    distinct = np.zeros(PARTITIONS + 1, dtype=np.int64)
    for part in prange(PARTITIONS):
        lo, hi = begin[part], begin[part + 1]
        if lo == hi:
            continue
        base = part << shift
        offsets = np.zeros((1 << shift) + 1, dtype=np.int32)
        for i in range(lo, hi):
            offsets[ids[positions[i]] - base + 1] += 1
        seen = 0
        for local in range(1, offsets.shape[0]):
            seen += 1 if offsets[local] > 0 else 0
            offsets[local] += offsets[local - 1]
        distinct[part + 1] = seen
        for i in range(lo, hi):
            local = ids[positions[i]] - base
            order[lo + offsets[local]] = positions[i]
            offsets[local] += 1
    return order, distinct


@njit(cache=True, parallel=PRANGE)
def _boundaries(ids, order, begin, first_group):
    """Return the distinct ids, (U,), and where each one's run of pairs begins, (U+1,)."""
    num_groups = first_group[PARTITIONS]
    unique = np.empty(num_groups, dtype=np.int32)
    start = np.empty(num_groups + 1, dtype=np.int64)
    start[num_groups] = order.shape[0]
    for part in prange(PARTITIONS):
        group = first_group[part]
        previous = -1
        for i in range(begin[part], begin[part + 1]):
            current = ids[order[i]]
            if current != previous:
                unique[group] = current
                start[group] = i
                group += 1
                previous = current
    return unique, start


def group_by_id(ids: np.ndarray, num_ids: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Group pairs by id; pairs of equal ids keep their order.

    ``ids`` is (N,) int32 in [0, num_ids). Returns ``order`` (N,) int32, the positions sorted by id; ``unique`` (U,)
    int32, the distinct ids in ascending order; and ``start`` (U+1,) int64: group u is
    ``order[start[u]:start[u+1]]``. The time is O(N + num_ids / cache line), or O(N log N) where that is less. Nothing
    is hashed, and the result is the same for any number of threads.
    """
    if len(ids) * _SPARSE < num_ids:
        order = np.argsort(ids, kind="stable").astype(np.int32)
        unique, start = np.unique(ids[order], return_index=True)
        return order, unique, np.append(start, len(ids)).astype(np.int64)
    shift = max(0, int(num_ids - 1).bit_length() - (PARTITIONS - 1).bit_length())
    positions, begin = _partition(ids, shift)
    order, distinct = _sort_partitions(ids, positions, begin, shift)
    unique, start = _boundaries(ids, order, begin, np.cumsum(distinct))
    return order, unique, start

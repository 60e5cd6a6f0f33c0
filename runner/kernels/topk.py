"""Find the largest logits of each row over all classes, block by block.

Legend: B rows, C classes of a block, K kept classes of a row, W slots of a row's buffer (at least K + 1), S sets of
logits.
"""

import numpy as np
from numba import njit, prange

from runner.kernels.groups import PRANGE

_STRIP = 64  # logits that are compared with the bar at once


@njit(cache=True)
def _larger(part_S, top_S, out_S):
    """Write the larger of two vectors' elements; NaN in ``part_S`` is ignored. Only a third array lets it vectorise."""
    for i in range(out_S.shape[0]):
        out_S[i] = part_S[i] if part_S[i] > top_S[i] else top_S[i]


# Libraries' selection and sorting would take longer to compile than all else in this file.


@njit(cache=True)
def kth_largest(values, k):
    """Return the k-th largest value, k >= 1; ``values`` are put in another order (Hoare's selection).

    A NaN ends every scan that reaches it: which value is returned is then open, but it is one of them.
    """
    place = values.shape[0] - k
    low, high = 0, values.shape[0] - 1
    while low < high:
        pivot, i, j = values[place], low, high
        while i <= j:
            while values[i] < pivot:
                i += 1
            while pivot < values[j]:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if j < place:
            low = i
        if place < i:
            high = j
    return values[place]


@njit(cache=True, inline="always")
def _comes_before(value, own, other, other_id):
    """Tell whether a value with its id ranks before another: larger first, then lower ids, and NaN last."""
    if value == other or (value != value and other != other):
        return own < other_id
    return value > other or other != other


@njit(cache=True)
def _rank(values_K, ids_K):
    """Sort by Shell's method, in place: descending values, of equal ones the lower id first, and NaN last."""
    gap = 1
    while 3 * gap + 1 < values_K.shape[0]:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, values_K.shape[0]):
            value, own, j = values_K[i], ids_K[i], i
            while j >= gap and _comes_before(value, own, values_K[j - gap], ids_K[j - gap]):
                values_K[j], ids_K[j] = values_K[j - gap], ids_K[j - gap]
                j -= gap
            values_K[j], ids_K[j] = value, own
        gap //= 3


@njit(cache=True)
def _first_bar(logits_C, keep):
    """Return a number below the ``keep`` largest logits but above most others, or -inf if there are few logits.

    Split the logits into 2 ``keep`` sets. At least ``keep`` logits are as large as the ``keep``-th largest maximum of a
    set.
    """
    sets = 2 * keep
    if logits_C.shape[0] < 4 * sets:
        return np.float32(-np.inf)
    top_S, other_S = np.full(sets, -np.inf, dtype=np.float32), np.empty(sets, dtype=np.float32)
    for begin in range(0, logits_C.shape[0] - 2 * sets + 1, 2 * sets):
        _larger(logits_C[begin : begin + sets], top_S, other_S)
        _larger(logits_C[begin + sets : begin + 2 * sets], other_S, top_S)
    return np.nextafter(kth_largest(top_S, keep), np.float32(-np.inf))


@njit(cache=True)
def _any_above(logits_C, bar):
    above = 0
    for i in range(logits_C.shape[0]):
        above += logits_C[i] > bar
    return above > 0


@njit(cache=True)
def _shrink(values_W, ids_W, count, keep):
    """Keep the ``keep`` largest of the first ``count`` entries and return the smallest kept value.

    Of equal values the lower id is kept.
    """
    sorted_W = np.empty(count, dtype=np.float32)
    for i in range(count):
        sorted_W[i] = values_W[i] if values_W[i] == values_W[i] else np.float32(np.inf)  # NaN counts as largest
    least = kth_largest(sorted_W, keep)
    above = 0
    for i in range(count):
        above += 1 if values_W[i] > least else 0
    ties = keep - above
    kept = 0
    for i in range(count):  # entries are in ascending id order, so the first ties have the lower ids
        if values_W[i] > least or (values_W[i] == least and ties > 0):
            ties -= 1 if values_W[i] == least else 0
            values_W[kept] = values_W[i]
            ids_W[kept] = ids_W[i]
            kept += 1
    return least


@njit(cache=True, parallel=PRANGE)
def fold_block(logits_BC, first_class, keep, values_BW, ids_BW, count_B, bar_B):
    """Add the logits of a block, (B, C) float32, to the rows' buffers.

    Start with ``count_B`` 0 and ``bar_B`` -inf. Blocks must come in ascending order of classes.
    """
    width, columns = values_BW.shape[1], logits_BC.shape[1]
    no_bar = np.float32(-np.inf)
    for row in prange(logits_BC.shape[0]):
        count, bar = count_B[row], bar_B[row]
        if count == 0:
            bar = _first_bar(logits_BC[row], keep)
        for begin in range(0, columns, _STRIP):
            end = min(begin + _STRIP, columns)
            takes_all = bar == no_bar and count < keep
            if not takes_all and not _any_above(logits_BC[row, begin:end], bar):
                continue
            for i in range(begin, end):
                value = logits_BC[row, i]
                if value > bar or (bar == no_bar and count < keep):
                    if count == width:
                        bar = _shrink(values_BW[row], ids_BW[row], count, keep)
                        count = keep
                        if value <= bar:
                            continue
                    values_BW[row, count] = value
                    ids_BW[row, count] = first_class + i
                    count += 1
        count_B[row], bar_B[row] = count, bar


@njit(cache=True, parallel=PRANGE)
def finish(values_BW, ids_BW, count_B, keep, ranked, out_BK):
    """Write the ids of the ``keep`` largest logits of each row to ``out_BK``.

    Of equal values the lower id comes first. The order is best first if ``ranked``, otherwise by ascending id.
    """
    for row in prange(values_BW.shape[0]):
        if count_B[row] > keep:
            _shrink(values_BW[row], ids_BW[row], count_B[row], keep)
        if ranked:
            _rank(values_BW[row, :keep], ids_BW[row, :keep])
        for i in range(keep):
            out_BK[row, i] = ids_BW[row, i]

"""This module finds the largest logits of each row over all classes, block by block.

Legend: B rows, C classes of a block, K kept classes of a row, W slots of a row's buffer (at least K + 1).
"""

import numpy as np
from numba import njit, prange


@njit(cache=True)
def _shrink(values_W, ids_W, count, keep):
    """Keep the ``keep`` largest of the first ``count`` entries and return the smallest kept value.

    Of equal values the lower id is kept.
    """
    least = np.partition(values_W[:count], count - keep)[count - keep]
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


@njit(cache=True, parallel=True)
def fold_block(logits_BC, first_class, keep, values_BW, ids_BW, count_B, bar_B):
    """Add the logits of a block, (B, C) float32, to the rows' buffers.

    Start with ``count_B`` 0 and ``bar_B`` -inf. Blocks must come in ascending order of classes.
    """
    width = values_BW.shape[1]
    for row in prange(logits_BC.shape[0]):
        count, bar = count_B[row], bar_B[row]
        for i in range(logits_BC.shape[1]):
            value = logits_BC[row, i]
            if value > bar or count < keep:
                if count == width:
                    bar = _shrink(values_BW[row], ids_BW[row], count, keep)
                    count = keep
                    if value <= bar:
                        continue
                values_BW[row, count] = value
                ids_BW[row, count] = first_class + i
                count += 1
        count_B[row], bar_B[row] = count, bar


@njit(cache=True, parallel=True)
def finish(values_BW, ids_BW, count_B, keep, ranked, out_BK):
    """Write the ids of the ``keep`` largest logits of each row to ``out_BK``.

    Of equal values the lower id comes first. The order is best first if ``ranked``, otherwise by ascending id.
    """
    for row in prange(values_BW.shape[0]):
        if count_B[row] > keep:
            _shrink(values_BW[row], ids_BW[row], count_B[row], keep)
        if not ranked:
            out_BK[row, :] = ids_BW[row, :keep]
            continue
        best_first = np.argsort(-values_BW[row, :keep], kind="mergesort")
        for i in range(keep):
            out_BK[row, i] = ids_BW[row, best_first[i]]

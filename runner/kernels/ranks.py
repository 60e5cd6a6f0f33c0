"""Find the rank of each row's target among the logits of all classes.

Legend: B rows, N classes, E events of all users.
"""

import numpy as np
from numba import njit, prange

from runner.kernels.groups import PRANGE


@njit(cache=True, parallel=PRANGE)
def hide_seen(logits_BN, items_E, begin_B, end_B):
    """Set the logits of the items ``items_E[begin_B[b] : end_B[b]]`` to -inf in each row b."""
    for b in prange(logits_BN.shape[0]):
        for place in range(begin_B[b], end_B[b]):
            logits_BN[b, items_E[place]] = -np.inf


@njit(cache=True, parallel=PRANGE)
def target_ranks(logits_BN, target_B, rank_B):
    """Write the rank (1: best) of each row's target to ``rank_B``, int64.

    Of equal logits the lower id is better. A target with logit -inf is not ranked at all, which is written as 0, and a
    target whose row has a logit that is not a number as -1.
    """
    for b in prange(logits_BN.shape[0]):
        row = logits_BN[b]
        target = target_B[b]
        own = row[target]
        better, broken = 0, 0
        for i in range(target):
            better += row[i] >= own
            broken += row[i] != row[i]
        for i in range(target + 1, len(row)):
            better += row[i] > own
            broken += row[i] != row[i]
        rank_B[b] = better + 1
        if own == -np.inf:
            rank_B[b] = 0
        if broken or own != own:
            rank_B[b] = -1

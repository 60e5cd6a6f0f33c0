"""Draw from a fixed distribution in O(1) by an alias table (Walker 1977; Vose 1991).

Legend: N things to draw.
"""

import numpy as np
from numba import njit


@njit(cache=True)
def alias_table(q):
    """Return Vose's alias table, ``accept`` (N,) float32 and ``alias`` (N,) int32, of the distribution q (N,) float64.

    To draw, take a uniform slot; keep it with probability ``accept[slot]``, else take ``alias[slot]``.
    """
    n = q.shape[0]
    accept = np.ones(n, dtype=np.float32)
    alias = np.arange(n).astype(np.int32)
    scaled = q * n
    small = np.empty(n, dtype=np.int32)
    large = np.empty(n, dtype=np.int32)
    num_small, num_large = 0, 0
    for i in range(n):
        if scaled[i] < 1.0:
            small[num_small] = i
            num_small += 1
        else:
            large[num_large] = i
            num_large += 1
    while num_small > 0 and num_large > 0:
        num_small -= 1
        lesser = small[num_small]
        greater = large[num_large - 1]
        accept[lesser] = scaled[lesser]
        alias[lesser] = greater
        scaled[greater] -= 1.0 - scaled[lesser]
        if scaled[greater] < 1.0:
            num_large -= 1
            small[num_small] = greater
            num_small += 1
    return accept, alias

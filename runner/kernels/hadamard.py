"""Walsh-Hadamard transforms of several vectors at a time, one to a lane, so that every butterfly is one instruction.

A group of ``LANES`` vectors of W coordinates (W a power of two) is one flat array (W * LANES,), coordinate by
coordinate. Loops run over contiguous slices: indexed as lane + LANES k they would not be compiled to vector
instructions.
"""

from numba import njit

LANES = 16
_FAST = {"reassoc", "contract", "arcp", "nsz"}


@njit(cache=True, inline="always", fastmath=_FAST)
def hadamard(x):
    """In-place transform (unnormalised) along W of a flattened (W, lanes) array."""
    half = LANES
    while half < x.shape[0]:
        for base in range(0, x.shape[0], 2 * half):
            low, high = x[base : base + half], x[base + half : base + 2 * half]
            for i in range(half):
                a, b = low[i], high[i]
                low[i] = a + b
                high[i] = a - b
        half *= 2


@njit(cache=True, inline="always", fastmath=_FAST)
def multiply(x, factors):
    """x *= factors, elementwise."""
    for i in range(x.shape[0]):
        x[i] *= factors[i]


def width_for(dim: int) -> int:
    """Coordinates W of a transform that holds vectors of ``dim``: a power of two, at least 8."""
    return 1 << max(3, (dim - 1).bit_length())

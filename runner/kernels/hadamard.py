"""Compute Walsh-Hadamard transforms of several vectors at a time.

Each vector has its own lane, so that every butterfly is one instruction. A group of ``LANES`` vectors of W coordinates
(W a power of two) is one flat array (W * LANES,), coordinate by coordinate. Loops run over contiguous slices, because
loops indexed by lane + LANES * k would not be compiled to vector instructions.
"""

from numba import njit

LANES = 16
_FAST = {"reassoc", "contract", "arcp", "nsz"}


@njit(cache=True, inline="always", fastmath=_FAST)
def hadamard(x):
    """Transform a flattened (W, LANES) array along W, in place and without normalisation."""
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
    """Multiply ``x`` by ``factors`` elementwise, in place."""
    for i in range(x.shape[0]):
        x[i] *= factors[i]


def width_for(dim: int) -> int:
    """Return the number W of coordinates for vectors of size ``dim``: a power of two, at least 8."""
    return 1 << max(3, (dim - 1).bit_length())

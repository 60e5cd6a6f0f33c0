"""Keep first moments in half their memory, as bfloat16 numbers that are rounded without bias.

Rounding to the nearest would keep a moment that moves by less than half a unit in the last of its 8 bits where it is,
step after step. Here a number is rounded up with the chance of its distance to the number below, so that it is right on
average. The random bits are a function of the run's seed, the step, the row and the column (``runner.rng``).

Where a kernel takes ``rounding``, None means that first moments are float32, a number that they are bits of bfloat16 in
uint16: the key of a step's random words (``RowPolicy.rounding``). None and a number are two types, so each case is
compiled separately, and float32 has no extra cost.
"""

import numpy as np
from numba import njit

from runner import rng
from runner.kernels.memory import prefetch_row
from runner.kernels.products import from_bf16

_SHIFT_48 = np.uint64(48)


@njit(cache=True)
def key_of_row(rounding, row):
    """Return the key of a row's random words; None where nothing is rounded."""
    if rounding is None:
        return None
    return rng.word(rounding, row)


@njit(cache=True)
def held(value, key, column):
    """Return what is stored of a first moment: itself, or the bits of a bfloat16 next to it, at random."""
    if key is None:
        return value
    bits = np.float32(value).view(np.uint32)
    random = np.uint32(rng.word(key, column) >> _SHIFT_48)
    return np.uint16(np.uint32(bits + random) >> np.uint32(16))


@njit(cache=True)
def value_of(stored, key):
    """Return a first moment, float32, from what is stored of it."""
    if key is None:
        return stored
    return from_bf16(stored)


@njit(cache=True)
def prefetch_moments(first_RD, second_RD, row):
    """Ask for the moments of a row; a single second moment a row, (R,), is not asked for."""
    prefetch_row(first_RD, row)
    if second_RD.ndim == 2:
        prefetch_row(second_RD, row)

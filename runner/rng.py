"""Draw random numbers by counters: every draw is a pure function of (seed, purpose, step, row, counter).

No state is kept between draws, so a resumed run needs no generator state, and the bits do not depend on the number of
threads. The mixer is SplitMix64's finaliser (Steele, Lea, Flood 2014).
"""

import numpy as np
from numba import njit

# Different purposes give different streams even where step and row are the same.
SHUFFLE, CLASS_INIT, FEATURE_INIT, HASH, SAMPLE, BUCKET, EVALUATE, GUMBEL, QUANTIZE, MODULE_INIT, DROPOUT = range(1, 12)
EXAMPLES, ROUND = 12, 13

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_SHIFT_30, _SHIFT_27, _SHIFT_31, _SHIFT_32, _SHIFT_11 = (np.uint64(s) for s in (30, 27, 31, 32, 11))
_LOW_32 = np.uint64(0xFFFFFFFF)
_MANY = 2**20


@njit(cache=True, inline="always")
def mix(state: np.uint64) -> np.uint64:
    """Apply SplitMix64's finaliser, a bijection of 64-bit words whose results look random."""
    z = state + _GOLDEN
    z = (z ^ (z >> _SHIFT_30)) * _MIX_1
    z = (z ^ (z >> _SHIFT_27)) * _MIX_2
    return z ^ (z >> _SHIFT_31)


@njit(cache=True)
def stream(seed: int, purpose: int, step: int, row: int) -> np.uint64:
    """Return the key of the stream of random words that belongs to one row of one step."""
    key = mix(np.uint64(seed))
    key = mix(key ^ np.uint64(purpose))
    key = mix(key ^ np.uint64(step))
    return mix(key ^ np.uint64(row))


@njit(cache=True, inline="always")
def word(key: np.uint64, counter: int) -> np.uint64:
    """Return the ``counter``-th 64-bit word of a stream."""
    return mix(key + np.uint64(counter) * _GOLDEN)


def advanced(key: np.uint64, by: int) -> np.uint64:
    """Return the key whose ``word`` n is the word ``by`` + n of ``key``."""
    return np.uint64((int(key) + by * int(_GOLDEN)) % 2**64)


@njit(cache=True, inline="always")
def below(bits: np.uint64, bound: int) -> int:
    """Map a 64-bit word to 0..bound-1 (bound < 2^31) by multiply-shift.

    Below bound 2^20 only the word's upper half is used, with a bias under bound / 2^32, which is less than 2^-12. From
    there on the whole word is used, with a bias under bound / 2^64.
    """
    product = (bits >> _SHIFT_32) * np.uint64(bound)
    if bound >= _MANY:
        product += ((bits & _LOW_32) * np.uint64(bound)) >> _SHIFT_32
    return np.int64(product >> _SHIFT_32)  # type: ignore[return-value]


@njit(cache=True, inline="always")
def unit(bits: np.uint64) -> float:
    """Map a 64-bit word to a double in [0, 1)."""
    return np.float64(bits >> _SHIFT_11) * (1.0 / 9007199254740992.0)


def generator(seed: int, purpose: int, step: int = 0) -> np.random.Generator:
    """Return a NumPy generator for one purpose and step, for bulk work outside the training step."""
    return np.random.Generator(np.random.Philox(key=[seed, (purpose << 40) + step]))

"""Provide elementary functions that the compiler can vectorise."""

import numpy as np
from numba import njit

_LOG2_E = np.float32(1.4426950408889634)
_LN2_HIGH, _LN2_LOW = (
    np.float32(0.693359375),
    np.float32(-2.12194440e-4),
)  # ln 2 split so that n * high is exact
_P0, _P1, _P2, _P3, _P4, _P5 = (
    np.float32(c)
    for c in (
        1.9875691500e-4,
        1.3981999507e-3,
        8.3334519073e-3,
        4.1665795894e-2,
        1.6666665459e-1,
        5.0000001201e-1,
    )
)
_LOWEST = np.float32(-87.0)  # exp(-87) is close to the smallest normal float32; smaller arguments give 0


@njit(inline="always", fastmath={"reassoc", "contract", "arcp", "nsz"})
def fast_exp(x):
    """Return exp(x) of a float32 x <= 88 with an error of at most 2 ulp (the polynomial of Cephes' expf).

    Unlike libm's exp, a loop of it is compiled to vector instructions. Arguments below -87, including -inf, give
    exactly 0, so that masked logits get no gradient.
    """
    nonzero = x >= _LOWEST
    x = max(x, _LOWEST)
    n = np.floor(x * _LOG2_E + np.float32(0.5))
    f = x - n * _LN2_HIGH
    f = f - n * _LN2_LOW
    p = _P0 * f + _P1
    p = p * f + _P2
    p = p * f + _P3
    p = p * f + _P4
    p = p * f + _P5
    power = np.int32((np.int32(n) + np.int32(127)) << np.int32(23))
    value = (p * f * f + f + np.float32(1.0)) * power.view(np.float32)
    return value if nonzero else np.float32(0.0)


_L3, _L5, _L7, _L9, _L11, _L13 = (np.float32(1 / odd) for odd in (3, 5, 7, 9, 11, 13))


@njit(inline="always", fastmath={"reassoc", "contract", "arcp", "nsz"})
def fast_log1p(x):
    """Return log(1 + x) of a float32 x in [-1/2, 1], with an error of at most 2 ulp.

    It is 2 artanh(z) for z = x / (2 + x), whose series ends here where it no longer changes a float32 (|z| <= 1/3). The
    compiler can vectorise it.
    """
    z = x / (np.float32(2.0) + x)
    w = z * z
    p = _L13 * w + _L11
    p = p * w + _L9
    p = p * w + _L7
    p = p * w + _L5
    p = p * w + _L3
    return np.float32(2.0) * (p * w * z + z)


SINE = tuple(
    np.float32(c) for c in (6.283185307, -41.34170224, 81.60524928, -76.70585975, 42.05869394, -15.09464258)
)  # odd coefficients of the series of sin(2 pi y), y in [-1/4, 1/4]
_S1, _S3, _S5, _S7, _S9, _S11 = SINE


@njit(cache=True)
def cos_of_turns(t):
    """Return cos(2 pi t) of a float32 t, in turns, with an error of at most 1e-6.

    The compiler can vectorise it. The sine is cos_of_turns(t - 1/4). An angle in turns is reduced to one period without
    error, but a large t is itself only precise to its last bit, 2^-24 |t| turns.
    """
    y = np.float32(0.25) - abs(t - np.floor(t + np.float32(0.5)))
    z = y * y
    p = _S11 * z + _S9
    p = p * z + _S7
    p = p * z + _S5
    p = p * z + _S3
    p = p * z + _S1
    return p * y

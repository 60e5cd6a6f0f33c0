"""Elementary functions that the compiler can vectorise are as exact as float32 allows."""

import numpy as np
from numba import njit

from runner.kernels.math import fast_exp, fast_log1p


@njit
def exp_of_all(x: np.ndarray, out: np.ndarray) -> None:
    for i in range(x.shape[0]):
        out[i] = fast_exp(x[i])


def test_fast_exp() -> None:
    x = np.concatenate([np.linspace(-87, 88, 200_001), np.linspace(-1e-3, 1e-3, 1001), [0.0]]).astype(np.float32)
    out = np.empty_like(x)
    exp_of_all(x, out)
    np.testing.assert_allclose(out, np.exp(x.astype(np.float64)), rtol=2.4e-7)
    assert out[-1] == 1
    low = np.array([-87.5, -1000, -3e38, -np.inf], dtype=np.float32)
    out = np.empty_like(low)
    exp_of_all(low, out)
    assert (out >= 0).all()
    assert (out < 2e-38).all()


@njit
def log1p_of_all(x: np.ndarray, out: np.ndarray) -> None:
    for i in range(x.shape[0]):
        out[i] = fast_log1p(x[i])


def test_fast_log1p() -> None:
    """Both ends of its range, and arguments whose logarithm is the argument itself."""
    x = np.concatenate([np.linspace(-0.5, 1, 200_001), np.logspace(-38, 0, 1001), [0.0]]).astype(np.float32)
    out = np.empty_like(x)
    log1p_of_all(x, out)
    np.testing.assert_allclose(out, np.log1p(x.astype(np.float64)), rtol=2.4e-7)
    assert out[-1] == 0

"""Initial vectors are functions of (seed, id): any part of a matrix is what the whole has there."""

import numpy as np
import pytest

from runner import rng
from runner.output import initial
from runner.output.initial import Initial, Normal, Uniform


@pytest.mark.parametrize("distribution", [Normal(0.25), Uniform(0.1)], ids=str)
@pytest.mark.parametrize(("lo", "hi"), [(0, 70), (0, 7), (7, 31), (29, 70), (30, 60), (61, 62), (5, 5)])
def test_a_part_is_that_of_the_whole(distribution: Initial, lo: int, hi: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(initial, "STREAM", 30)
    monkeypatch.setattr(initial, "_AT_ONCE", 8)
    whole = distribution.rows(0, 70, 5, seed=3, purpose=rng.CLASS_INIT)
    part = distribution.rows(lo, hi, 5, seed=3, purpose=rng.CLASS_INIT)
    np.testing.assert_array_equal(part, whole[lo:hi])
    assert len(np.unique(whole)) > 300, "streams differ"


def test_elements_are_those_of_one_stream() -> None:
    """They are what earlier versions drew at once, so that their runs can be repeated."""
    rows, columns = 70_000, 3
    normal = rng.generator(5, rng.CLASS_INIT).standard_normal((rows, columns), dtype=np.float32) * np.float32(0.25)
    unit = rng.generator(5, rng.CLASS_INIT).random((rows, columns), dtype=np.float32)
    np.testing.assert_array_equal(Normal(0.25).rows(0, rows, columns, seed=5, purpose=rng.CLASS_INIT), normal)
    uniform = np.float32(0.1) * (2 * unit - 1)
    np.testing.assert_array_equal(Uniform(0.1).rows(0, rows, columns, seed=5, purpose=rng.CLASS_INIT), uniform)

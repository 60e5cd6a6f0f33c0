"""Draw the vectors to start from. Each is a function of (seed, purpose, id), so any part of a matrix can be made alone.

Legend: R rows that are drawn, D columns.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from runner import rng

STREAM = 2**20
"""Ids whose vectors come from one stream of random numbers: to draw its last ones takes drawing all of it."""
_AT_ONCE = 2**16


@dataclass(frozen=True)
class Initial(ABC):
    """Name a distribution of elements."""

    @abstractmethod
    def draw(self, generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        """Return the stream's next elements, float32."""

    def rows(self, lo: int, hi: int, columns: int, *, seed: int, purpose: int) -> np.ndarray:
        """Return the vectors of the ids lo to hi - 1, (R, D) float32.

        ``purpose``: what the numbers are for, one of the constants of ``runner.rng``.
        """
        out_RD = np.empty((hi - lo, columns), dtype=np.float32)
        for stream in range(lo // STREAM, -(-hi // STREAM)):
            generator = rng.generator(seed, purpose, stream)
            for first, last in _pieces(stream * STREAM, min((stream + 1) * STREAM, hi), lo):
                drawn = self.draw(generator, (last - first, columns))
                if last > lo:
                    out_RD[first - lo : last - lo] = drawn
        return out_RD


def _pieces(first: int, last: int, lo: int) -> Iterator[tuple[int, int]]:
    """Split the ids first to last - 1 into pieces that are drawn at once; one of them begins with ``lo``."""
    while first < last:
        end = min(first + _AT_ONCE, last)
        end = min(end, lo) if first < lo else end
        yield first, end
        first = end


@dataclass(frozen=True)
class Normal(Initial):
    """Draw from a normal distribution with mean 0."""

    deviation: float

    def draw(self, generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        return generator.standard_normal(shape, dtype=np.float32) * np.float32(self.deviation)


@dataclass(frozen=True)
class Uniform(Initial):
    """Draw uniformly from [-bound, bound)."""

    bound: float

    def draw(self, generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        return np.float32(self.bound) * (2 * generator.random(shape, dtype=np.float32) - 1)

"""Draw examples uniformly with replacement, as the textbooks' stochastic gradient does.

Legend: B examples of a step, S steps.
"""

from dataclasses import dataclass

import numpy as np
from numba import njit

from runner import rng
from runner.contracts import Examples
from runner.lgd.base import BulkSampler, Draws, ExampleSamplerConfig


@njit(cache=True)
def _draw(seed, first_step, num_examples, rows):
    """Set rows[s, j] to the j-th example of step first_step + s."""
    for s in range(rows.shape[0]):
        key = rng.stream(seed, rng.EXAMPLES, first_step + s, 0)
        for j in range(rows.shape[1]):
            rows[s, j] = rng.below(rng.word(key, j), num_examples)


@dataclass(frozen=True, kw_only=True)
class UniformExamplesConfig(ExampleSamplerConfig):
    """Draw each example with the same probability at every step, with replacement."""

    name: str = "uniform"

    def build(self, *, examples: Examples, batch_size: int, seed: int) -> "UniformExamples":
        """Make the sampler."""
        return UniformExamples(examples, batch_size, seed)


class UniformExamples(BulkSampler):
    """Draw B times from all examples; each is expected B / count times."""

    def __init__(self, examples: Examples, batch_size: int, seed: int) -> None:
        self.examples, self.batch_size, self.seed = examples, batch_size, seed

    def chances(self) -> np.ndarray:
        """Return the same chance for every example."""
        return np.full(self.examples.count, 1 / self.examples.count)

    def draws(self, first_step: int, steps: int, view: object = None) -> Draws:
        """Return the draws of several steps."""
        rows_SB = np.empty((steps, self.batch_size), dtype=np.int64)
        _draw(self.seed, first_step, self.examples.count, rows_SB)
        return Draws(
            rows_M=rows_SB.reshape(-1),
            begin_S1=np.arange(steps + 1) * self.batch_size,
            count_M=np.full(rows_SB.size, self.batch_size / self.examples.count),
        )

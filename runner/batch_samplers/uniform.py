"""Draw examples uniformly with replacement, as the textbooks' stochastic gradient does.

Legend: B examples of a step.
"""

from dataclasses import dataclass

import numpy as np

from runner import rng
from runner.batch_samplers.base import ExampleSampler, ExampleSamplerConfig
from runner.contracts import ExampleDraw, Examples


@dataclass(frozen=True, kw_only=True)
class UniformExamplesConfig(ExampleSamplerConfig):
    """Draw every example with the same probability, whatever was drawn before."""

    name: str = "uniform"

    def build(self, *, examples: Examples, batch_size: int, seed: int) -> "UniformExamples":
        """Make the sampler."""
        return UniformExamples(examples, batch_size, seed)


class UniformExamples(ExampleSampler):
    """Draw B times from all examples; each is expected B / count times."""

    def __init__(self, examples: Examples, batch_size: int, seed: int) -> None:
        self.examples, self.batch_size, self.seed = examples, batch_size, seed
        self._log_count_B = np.full(batch_size, np.log(batch_size / examples.count))

    def draw(self, step: int, view: object = None) -> ExampleDraw:
        """Return the step's draws, in the order of drawing."""
        rows_B = rng.generator(self.seed, rng.EXAMPLES, step).integers(0, self.examples.count, self.batch_size)
        return ExampleDraw(rows_B=rows_B, log_expected_count_B=self._log_count_B)

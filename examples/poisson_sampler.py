"""Toss a coin for each class to decide whether it is a candidate (Poisson sampling); frequent classes are likelier.

Legend: B rows, N classes (in a ``Proposal``: candidates), M candidates or ids that a caller asks for.
"""

from dataclasses import dataclass

import numpy as np

from runner import rng
from runner.contracts import Proposal, Query, TrainingFacts
from runner.options.fields import option
from runner.output.layer import Layer
from runner.registry import register_sampler
from runner.samplers import Sampler, SamplerConfig


@dataclass(frozen=True, kw_only=True)
class PoissonConfig(SamplerConfig):
    """Toss a coin for each class."""

    size: int = option(1000, "upper bound on the mean number of candidates of a step", low=1)

    def build(self, *, layer: Layer, training: TrainingFacts, seed: int) -> Sampler:
        frequency_N = np.maximum(training.label_counts_N, 1)
        return Poisson(np.minimum(1, self.size * frequency_N / frequency_N.sum()), seed)


class Poisson(Sampler):
    """Make class i a candidate with probability ``chance_N[i]``, once for the whole batch."""

    def __init__(self, chance_N: np.ndarray, seed: int) -> None:
        self.chance_N, self.seed = chance_N, seed
        self.log_count_N = np.log(chance_N).astype(np.float32)

    def sample(self, query: Query, step: int) -> Proposal:
        coin_N = rng.generator(self.seed, rng.SAMPLE, step).random(len(self.chance_N))
        ids_M = np.flatnonzero(coin_N < self.chance_N).astype(np.int32)
        return Proposal(ids_N=ids_M, log_expected_count_N=self.log_count_N[ids_M])

    def log_expected_count(self, query: Query, ids_M: np.ndarray, step: int) -> np.ndarray:
        return np.broadcast_to(self.log_count_N[ids_M], (query.num_rows, len(ids_M)))


register_sampler("poisson", PoissonConfig)

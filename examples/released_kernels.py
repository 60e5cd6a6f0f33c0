"""Draw as the code that was released with the MIDX paper draws for its rows Sphere and RFF, mistakes included.

These samplers are here to show what the mistakes do to a comparison; for training take ``sampler=quadratic`` and
``sampler=rff``, whose targets can be corrected. What the released code does:

- It corrects a candidate's logit by log(m k / sum of all weights), for m draws and a weight k, which is right. The
  target's logit is corrected by 0.
- For RFF it draws the random frequencies of classes and of queries apart, so that their features have nothing to do
  with each other and the weights are nearly the same for all classes. Frequencies have the variance 1 / nu.

The released code keeps the frequencies of classes for an epoch; here they are drawn anew at each step, so that no class
is favoured for a whole epoch. Draws that hit the target are left out here and stay there. What these two differences do
was not measured.

Legend: B rows, D hidden size, N classes, M draws of a row or ids that a caller asks for, F random frequencies.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from runner import rng
from runner.contracts import Proposal, Query, TrainingFacts
from runner.errors import require
from runner.options.fields import option
from runner.output.layer import Layer
from runner.registry import register_sampler
from runner.samplers import Sampler, SamplerConfig

_LEAST_WEIGHT = 1e-12


@dataclass(frozen=True, kw_only=True)
class ReleasedConfig(SamplerConfig):
    """Draw by weights of all classes."""

    losses: ClassVar[tuple[str, ...]] = ("sampled_softmax",)
    num_samples: int = option(100, "draws of a row, with replacement", low=1)

    def check_loss(self, loss: Any) -> None:
        super().check_loss(loss)
        require(not loss.corrects_targets, f"sampler={self.name} has no counts of targets: leave out correct_target")

    @abstractmethod
    def weights(self, hidden_BD: np.ndarray, class_ND: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """Return the weight of every class for every row, (B, N)."""

    def build(self, *, layer: Layer, training: TrainingFacts, seed: int) -> Sampler:
        return Released(self, layer, seed)


@dataclass(frozen=True, kw_only=True)
class ReleasedSphereConfig(ReleasedConfig):
    """Weigh classes by alpha o^2 + 1."""

    alpha: float = option(100.0, "weight of the squared logit")

    def weights(self, hidden_BD: np.ndarray, class_ND: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        return self.alpha * (hidden_BD @ class_ND.T) ** 2 + 1


@dataclass(frozen=True, kw_only=True)
class ReleasedRffConfig(ReleasedConfig):
    """Weigh classes by products of unrelated random features."""

    D: int = option(32, "cosines, and sines, among the features", low=1)
    nu: float = option(4.0, "sharpness of the kernel", above=0)

    def weights(self, hidden_BD: np.ndarray, class_ND: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        queries_BF, classes_NF = (self._features(vectors, generator) for vectors in (hidden_BD, class_ND))
        return np.maximum(queries_BF @ classes_NF.T, _LEAST_WEIGHT)

    def _features(self, vectors: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), _LEAST_WEIGHT)
        frequencies = generator.normal(0, self.nu**-0.5, (self.D, vectors.shape[1])).astype(np.float32)
        phase = unit @ frequencies.T
        return np.concatenate([np.cos(phase), np.sin(phase)], axis=1) / self.D**0.5


class Released(Sampler):
    """Draw from the weights; the log expected count of a class with weight k is log(m k) - log(sum of all weights)."""

    def __init__(self, config: ReleasedConfig, layer: Layer, seed: int) -> None:
        self.config, self.layer, self.seed = config, layer, seed

    def _weights(self, query: Query, step: int) -> tuple[np.ndarray, np.random.Generator]:
        generator = rng.generator(self.seed, rng.SAMPLE, step)
        self.layer.read(None, step)
        return self.config.weights(query.hidden_BD, self.layer.class_vectors(), generator), generator

    def sample(self, query: Query, step: int) -> Proposal:
        weights_BN, generator = self._weights(query, step)
        rows, draws = query.num_rows, self.config.num_samples
        upto_BN = np.cumsum(weights_BN, axis=1, dtype=np.float64)
        goals_BM = generator.random((rows, draws)) * upto_BN[:, -1:]
        ids_BM = np.stack([np.searchsorted(upto, goals) for upto, goals in zip(upto_BN, goals_BM, strict=True)])
        ids_BM = np.minimum(ids_BM, weights_BN.shape[1] - 1)
        log_count_BM = self._log_count(np.take_along_axis(weights_BN, ids_BM, axis=1), upto_BN)
        return Proposal(
            ids_N=ids_BM.astype(np.int32).reshape(-1),
            log_expected_count_N=log_count_BM.reshape(-1),
            indptr_B1=np.arange(rows + 1, dtype=np.int64) * draws,
            distinct=False,
        )

    def log_expected_count(self, query: Query, ids_M: np.ndarray, step: int) -> np.ndarray:
        weights_BN, _ = self._weights(query, step)
        return self._log_count(weights_BN[:, ids_M], np.cumsum(weights_BN, axis=1, dtype=np.float64))

    def _log_count(self, weights_BM: np.ndarray, upto_BN: np.ndarray) -> np.ndarray:
        return np.log(self.config.num_samples * weights_BM / upto_BN[:, -1:]).astype(np.float32)


register_sampler("released_sphere", ReleasedSphereConfig)
register_sampler("released_rff", ReleasedRffConfig)

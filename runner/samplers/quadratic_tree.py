"""Draw classes by the quadratic kernel, as ``quadratic`` does, but from a tree: O(d^2 log(n / d)) a draw, not O(n d).

q_i is proportional to alpha o_i^2 + 1 with the logit o_i without its bias, which the tree cannot hold. The tree
(``runner.structures.outer_tree``) follows the class vectors every ``refresh_every_steps`` steps; between refreshes it
draws by the vectors that it has, and states the probabilities of these draws. Few draws of a row are much faster than
the dense pass of ``quadratic`` where classes are many (results/bench/rf_softmax_table2.md); hundreds are not.

@inproceedings{blanc2018adaptive, title={Adaptive Sampled Softmax with Kernel Based Sampling}, author={Blanc, Guy and
Rendle, Steffen}, booktitle={ICML}, year={2018}}

Legend: B rows, D hidden size, M ids that a caller asks for, U distinct classes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from runner.contracts import Proposal, Query, TrainingFacts
from runner.errors import Diverged
from runner.options.fields import option
from runner.output.layer import Layer
from runner.samplers.base import Sampler, SamplerConfig
from runner.samplers.followed import FollowingSampler
from runner.structures.outer_tree import OuterTree


@dataclass(frozen=True, kw_only=True)
class QuadraticTreeConfig(SamplerConfig):
    """Draw with q_i proportional to alpha (logit without its bias)^2 + 1, by a tree."""

    by_magnitude: ClassVar[bool] = True
    refuses_nan: ClassVar[bool] = True
    contract_cases: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "steep": {"num_samples": 40, "refresh_every_steps": 3},
        "flat": {"num_samples": 40, "alpha": 0.5},
    }
    num_samples: int = option(100, "draws of a row, with replacement", low=1)
    alpha: float = option(100.0, "weight of the squared logit", low=1e-12, high=1e12)
    refresh_every_steps: int = option(1, "steps between refreshes of the tree", low=1)

    def build(self, *, layer: Layer, training: TrainingFacts, seed: int) -> Sampler:
        return QuadraticTree(self, layer, seed)


class QuadraticTree(FollowingSampler):
    """Draw by a tree of sums of outer products. Raise Diverged if a mass is not finite."""

    def __init__(self, config: QuadraticTreeConfig, layer: Layer, seed: int) -> None:
        super().__init__(layer, config.refresh_every_steps)
        self.config = config
        self.seed = seed
        self.tree = OuterTree(layer.num_classes, layer.dim, config.alpha)
        self.tree.vectors_ND[...] = layer.class_vectors()
        self.tree.rebuild()

    # ------------------------------------------------------------ drawing

    def _log_count(self, probability: np.ndarray) -> np.ndarray:
        # Where one of two masses overflows, the probability is 0 or not a number; true ones are far from underflow.
        if not ((probability > 0) & np.isfinite(probability)).all():
            raise Diverged(f"sampler={self.config.name}: a logit is not a finite number; try a smaller optimizer.lr")
        return np.log(self.config.num_samples * probability).astype(np.float32)

    def sample(self, query: Query, step: int) -> Proposal:
        num_samples = self.config.num_samples
        ids, probability = self.tree.draw(self.layer.query_vectors(query.hidden_BD), num_samples, self.seed, step)
        indptr = np.arange(query.num_rows + 1, dtype=np.int64) * num_samples
        return Proposal(
            ids_N=ids, log_expected_count_N=self._log_count(probability), indptr_B1=indptr, distinct=False
        )  # fmt: skip

    def log_expected_count(self, query: Query, ids_M: np.ndarray, step: int) -> np.ndarray:
        rows = query.num_rows
        indptr = np.arange(rows + 1, dtype=np.int64) * len(ids_M)
        hidden_BD = self.layer.query_vectors(query.hidden_BD)
        return self._log_count(self.tree.probability(hidden_BD, np.tile(ids_M, rows), indptr)).reshape(rows, -1)

    def log_expected_count_of_targets(self, query: Query, proposal: Any, step: int) -> np.ndarray:
        hidden_BD = self.layer.query_vectors(query.hidden_BD)
        return self._log_count(self.tree.probability(hidden_BD, query.targets_P, query.target_indptr_B1))

    # ------------------------------------------------------------ following the weights

    def follow(self, moved_U: np.ndarray) -> None:
        self.tree.vectors_ND[moved_U] = self.layer.class_vectors(moved_U)
        self.tree.update(moved_U)

    @property
    def statistics(self) -> dict[str, float]:
        return {**super().statistics, "table_mb": self.tree.nbytes / 2**20}

    def state_dict(self) -> dict[str, np.ndarray]:
        return {**super().state_dict(), "vectors": self.tree.vectors_ND}  # the layer has newer ones

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        super().load_state_dict(state)
        self.tree.vectors_ND[...] = state["vectors"]
        self.tree.rebuild()

"""Take the k classes with the largest logits, found by scoring all n: TopK softmax, a baseline of the LNS paper.

Legend: B rows, D hidden size, K candidates of a row, M ids that a caller asks for, N candidates of all rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from runner.contracts import Proposal, Query, TrainingFacts
from runner.options.fields import option
from runner.output.layer import Layer
from runner.samplers.base import Sampler, SamplerConfig


@dataclass(frozen=True, kw_only=True)
class TopKConfig(SamplerConfig):
    """Take the classes with the largest logits, or all classes where there are fewer."""

    losses: ClassVar[tuple[str, ...]] = ("active_set", "sampled_softmax")
    by_chance: ClassVar[bool] = False
    contract_cases: ClassVar[Mapping[str, Mapping[str, Any]]] = {"few": {"num_nearest": 25}}
    num_nearest: int = option(1000, "candidates of a row, the classes with the largest logits", low=1)

    @property
    def can_draw_every_class(self) -> bool:
        return False

    def build(self, *, layer: Layer, training: TrainingFacts, seed: int) -> Sampler:
        return TopK(min(self.num_nearest, layer.num_classes), layer)


class TopK(Sampler):
    """Propose to each row the k classes with its largest logits, with expected count 1."""

    def __init__(self, k: int, layer: Layer) -> None:
        self.k = k
        self.layer = layer

    def sample(self, query: Query, step: int) -> Proposal:
        self.layer.read(None, step)
        ids_BK = self.layer.largest(query.hidden_BD, self.k, ranked=False).ids_BK
        rows = query.num_rows
        return Proposal(
            ids_N=ids_BK.reshape(-1),
            log_expected_count_N=np.zeros(rows * self.k, dtype=np.float32),
            indptr_B1=np.arange(rows + 1, dtype=np.int64) * self.k,
        )

    def log_expected_count(self, query: Query, ids_M: np.ndarray, step: int) -> np.ndarray:
        chosen_BK = self.sample(query, step).ids_N.reshape(query.num_rows, self.k)
        drawn = np.stack([np.isin(ids_M, chosen) for chosen in chosen_BK])
        return np.where(drawn, np.float32(0), np.float32(-np.inf))

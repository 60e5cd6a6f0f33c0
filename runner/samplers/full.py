"""Every class, expected count 1: the sampler whose loss is the full softmax."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from runner.samplers.base import Everything, Query, Sampler, SamplerConfig

if TYPE_CHECKING:
    from runner.output_layer import OutputLayer


@dataclass(frozen=True, kw_only=True)
class FullConfig(SamplerConfig):
    losses: ClassVar[tuple[str, ...]] = ("full",)

    def build(self, *, num_classes: int, label_counts_N: np.ndarray, layer: "OutputLayer", seed: int) -> Sampler:
        return Full(num_classes)


class Full(Sampler):
    def __init__(self, num_classes: int) -> None:
        self.num_classes = num_classes

    def sample(self, query: Query, step: int) -> Everything:
        return Everything(self.num_classes)

    def log_expected_count(self, query: Query, ids_M: np.ndarray, step: int) -> np.ndarray:
        return np.zeros((query.num_rows, len(ids_M)), dtype=np.float32)

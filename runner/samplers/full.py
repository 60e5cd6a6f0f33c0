"""Every class, expected count 1: the sampler whose loss is the full softmax."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from runner.contracts import Everything, Query, TrainingFacts
from runner.errors import require
from runner.samplers.base import Sampler, SamplerConfig

if TYPE_CHECKING:
    from runner.heads.output_layer import OutputLayer


@dataclass(frozen=True, kw_only=True)
class FullConfig(SamplerConfig):
    """``products``: float32, or bf16 where the processor has it (1.7 times as fast; significands of 8 bits)."""

    losses: ClassVar[tuple[str, ...]] = ("full",)
    by_chance: ClassVar[bool] = False
    products: Literal["float32", "bf16"] = "float32"

    def build(self, *, layer: "OutputLayer", training: TrainingFacts, seed: int) -> Sampler:
        if self.products == "bf16":
            from runner.kernels.products import HAS_BF16

            require(HAS_BF16, "sampler.products=bf16 needs a processor with AVX512_BF16; take float32")
        return Full(self, layer.num_classes)


class Full(Sampler):
    def __init__(self, config: FullConfig, num_classes: int) -> None:
        self.everything = Everything(num_classes, config.products)

    def sample(self, query: Query, step: int) -> Everything:
        return self.everything

    def log_expected_count(self, query: Query, ids_M: np.ndarray, step: int) -> np.ndarray:
        return np.zeros((query.num_rows, len(ids_M)), dtype=np.float32)

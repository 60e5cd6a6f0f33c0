"""Every class, expected count 1: the sampler whose loss is the full softmax."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from runner.contracts import Everything, Query, TrainingFacts
from runner.errors import ProcessorLacks, require
from runner.machine.memory import available_bytes
from runner.samplers.base import Sampler, SamplerConfig

if TYPE_CHECKING:
    from runner.heads.output_layer import OutputLayer


@dataclass(frozen=True, kw_only=True)
class FullConfig(SamplerConfig):
    """Precision of full softmax's products, and whether its logits are stored.

    ``products``: of float32 operands, or of bf16 ones (significands of 8 bits) where the processor has AVX512_BF16;
    ``auto`` takes bf16 where it can. ``stored_logits``: ``none`` makes them twice, once for their sum and once for
    their gradients; ``bf16`` makes them once, for rows x classes x 2 bytes of memory.
    """

    losses: ClassVar[tuple[str, ...]] = ("full",)
    by_chance: ClassVar[bool] = False
    products: Literal["auto", "float32", "bf16"] = "float32"
    stored_logits: Literal["none", "bf16"] = "none"

    @property
    def takes_bf16(self) -> bool:
        """Whether products here are of bf16 operands."""
        return self.products == "bf16" or (self.products == "auto" and _has_bf16())

    def check_processor(self) -> None:
        if self.products == "bf16" and not _has_bf16():
            message = "sampler.products=bf16 needs a processor with AVX512_BF16; take auto or float32"
            raise ProcessorLacks("AVX512_BF16", message)

    def check_memory(self, num_rows: int, num_classes: int) -> str | None:
        if self.stored_logits == "none":
            return None
        needed, free = stored_bytes(num_rows, num_classes), available_bytes()
        size = f"{needed / 1e9:.2f} GB ({num_rows:,} rows x {num_classes:,} classes x 2 bytes)"
        require(
            needed < free,
            f"sampler.stored_logits=bf16 needs {size} and {free / 1e9:.2f} GB are free; take none, or a smaller batch",
        )
        return f"sampler.stored_logits=bf16 holds {size}"

    def build(self, *, layer: "OutputLayer", training: TrainingFacts, seed: int) -> Sampler:
        self.check_processor()
        return Full(self, layer.num_classes)


def _has_bf16() -> bool:
    from runner.kernels.target import target

    return target().has_bf16


def stored_bytes(num_rows: int, num_classes: int) -> float:
    """Memory of the logits of a batch as bfloat16."""
    return 2.0 * num_rows * num_classes


class Full(Sampler):
    def __init__(self, config: FullConfig, num_classes: int) -> None:
        self._is_auto = config.products == "auto"
        products: Literal["float32", "bf16"] = "bf16" if config.takes_bf16 else "float32"
        self.everything = Everything(num_classes, products, config.stored_logits == "bf16")

    @property
    def chosen(self) -> dict[str, str]:
        return {"sampler.products": self.everything.products} if self._is_auto else {}

    def sample(self, query: Query, step: int) -> Everything:
        return self.everything

    def log_expected_count(self, query: Query, ids_M: np.ndarray, step: int) -> np.ndarray:
        return np.zeros((query.num_rows, len(ids_M)), dtype=np.float32)

"""This sampler takes every class with expected count 1; its loss is the full softmax."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from runner.contracts import Everything, Query, TrainingFacts
from runner.errors import ProcessorLacks, require
from runner.machine.memory import available_bytes
from runner.options.fields import option
from runner.output.layer import Layer
from runner.samplers.base import Sampler, SamplerConfig


@dataclass(frozen=True, kw_only=True)
class FullConfig(SamplerConfig):
    """Take every class.

    With ``stored_logits=none`` the logits are computed twice, once for their sum and once for their gradients.
    ``products=bf16`` has significands of 8 bits, and the processor needs AVX512_BF16.
    """

    losses: ClassVar[tuple[str, ...]] = ("full",)
    by_chance: ClassVar[bool] = False
    products: Literal["auto", "float32", "bf16"] = option(
        "float32", "precision of the factors in the products over all classes; auto: bf16 where it is faster"
    )
    stored_logits: Literal["none", "bf16"] = option(
        "none", "bf16 keeps rows x classes x 2 bytes and saves one product of four"
    )

    @property
    def takes_bf16(self) -> bool:
        """True if products on this processor take bf16 operands."""
        return self.products == "bf16" or (self.products == "auto" and self.bf16_pays)

    @property
    def bf16_pays(self) -> bool:
        """True if products of bf16 operands are faster on this processor than those of float32."""
        return _bf16_pays()

    def check_engine(self, engine: str) -> None:
        """Raise ConfigError if logits are to be stored, which torch does not do."""
        require(
            engine == "numba" or self.stored_logits == "none",
            f"sampler.stored_logits={self.stored_logits} is for hardware.engine=numba; torch computes logits twice",
        )

    def check_processor(self) -> None:
        """Raise ``ProcessorLacks`` if the products are bf16 and the processor has no AVX512_BF16."""
        if self.products == "bf16" and not _has_bf16():
            message = "sampler.products=bf16 needs a processor with AVX512_BF16; take auto or float32"
            raise ProcessorLacks("AVX512_BF16", message)

    def check_memory(self, num_rows: int, num_classes: int) -> str | None:
        """Return a line on the memory of stored logits, None without them; refuse more than is free."""
        if self.stored_logits == "none":
            return None
        needed, free = stored_bytes(num_rows, num_classes), available_bytes()
        size = f"{needed / 1e9:.2f} GB ({num_rows:,} rows x {num_classes:,} classes x 2 bytes)"
        require(
            needed < free,
            f"sampler.stored_logits=bf16 needs {size} and {free / 1e9:.2f} GB are free; take none, or a smaller batch",
        )
        return f"sampler.stored_logits=bf16 holds {size}"

    def build(self, *, layer: Layer, training: TrainingFacts, seed: int) -> Sampler:
        self.check_processor()
        return Full(self, layer.num_classes)


def _has_bf16() -> bool:
    from runner.kernels.target import target

    return target().has_bf16


def _bf16_pays() -> bool:
    from runner.kernels.target import target

    return target().bf16_pays


def stored_bytes(num_rows: int, num_classes: int) -> float:
    """Return the memory that the logits of a batch take as bfloat16, in bytes."""
    return 2.0 * num_rows * num_classes


class Full(Sampler):
    """The sampler that returns every class; ``chosen`` reports the products that ``auto`` stands for."""

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

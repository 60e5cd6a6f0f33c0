"""Apply gradients that were computed before any weight moved, so that they can be summed and clipped."""

import math
from collections.abc import Sequence
from typing import Protocol


class Gradient(Protocol):
    """Hold a gradient that is computed but not applied yet."""

    def squared_norm(self) -> float:
        """Return the sum of the gradient's squares."""

    def apply(self, step: int, factor: float = 1.0) -> None:
        """Take the step by ``factor`` times the gradient."""


def clipping_factor(gradients: Sequence[Gradient], largest_norm: float) -> float:
    """Return the factor for all gradients under which their joint norm is at most ``largest_norm``.

    It is the factor of ``torch.nn.utils.clip_grad_norm_``, and nan if a gradient is not finite.
    """
    norm = math.sqrt(sum(gradient.squared_norm() for gradient in gradients))
    return min(1.0, largest_norm / (norm + 1e-6)) if math.isfinite(norm) else math.nan

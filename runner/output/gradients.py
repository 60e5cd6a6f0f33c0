"""Apply gradients that were computed before any weight moved, so that they can be summed and clipped."""

import math
from collections.abc import Sequence
from typing import Protocol

from runner.contracts import Passed
from runner.output.across import Across


class Gradient(Protocol):
    """Hold a gradient that is computed but not applied yet."""

    def squared_norm(self) -> Passed:
        """Return the sum of the gradient's squares: a number, or a tensor without dimensions on the weights' device."""

    def apply(self, step: int, factor: Passed = 1.0) -> None:
        """Take the step by ``factor`` times the gradient; it is of the type of ``squared_norm``, or a number."""


class SummableGradient(Gradient, Protocol):
    """Hold a gradient of a part of a batch, whose other parts other processes have."""

    def summed(self, across: Across, step: int) -> Gradient:
        """Return the sum over the processes, with the same bits on each; all of them call it together in a step."""


def clipping_factor(gradients: Sequence[Gradient], largest_norm: float) -> Passed:
    """Return the factor for all gradients under which their joint norm is at most ``largest_norm``.

    It is the factor of ``torch.nn.utils.clip_grad_norm_``, and nan if a gradient is not finite.
    """
    squared = sum(gradient.squared_norm() for gradient in gradients)
    if not isinstance(squared, float | int):  # on a device: a norm that is not finite gives nan, as infinity / infinity
        root = squared.sqrt()
        return (largest_norm / (root + 1e-6)).clamp(max=1.0) + 0.0 * root
    norm = math.sqrt(squared)
    return min(1.0, largest_norm / (norm + 1e-6)) if math.isfinite(norm) else math.nan

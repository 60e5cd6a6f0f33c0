"""Take Adam's steps with rows of tensors, those among them that rows missed included."""

import math

import torch
from torch import Tensor

from runner.optimizers.configs import AdamConfig
from runner.optimizers.drift import Drift
from runner.output.torch.arrays import tensor_of
from runner.output.torch.moments import Rounding


def apply_drift(
    weights: Tensor, first: Tensor, second: Tensor, rows: Tensor | slice, drift: Tensor, damping: Tensor
) -> None:
    """Move rows by the momentum of the steps that they missed (``Drift``)."""
    weights[rows] -= drift * first[rows] / second[rows].sqrt().add_(damping)


class AdamStep:
    """Take a step of Adam (Kingma & Ba 2015, as ``torch.optim.Adam``) with rows whose moments may have missed steps."""

    def __init__(
        self,
        config: AdamConfig,
        lr: float,
        rows: Tensor | slice,
        step: int,
        missed: Tensor | None,
        rounding: Rounding | None,
    ) -> None:
        self.config, self.rows, self.rounding = config, rows, rounding
        self.step_size = lr / (1 - config.beta1**step)
        self.root = 1 / math.sqrt(1 - config.beta2**step)
        betas = (config.beta1, config.beta2)
        self.kept: tuple[float | Tensor, ...] = betas
        if missed is not None:
            self.kept = tuple(torch.pow(beta, missed.double()).mul_(beta).float() for beta in betas)

    def take(self, weights: Tensor, first: Tensor, second: Tensor, grad: Tensor) -> None:
        """Step the rows of one matrix, or of one vector, by their gradient."""
        config, rows = self.config, self.rows
        keep1, keep2 = (kept[:, None] if isinstance(kept, Tensor) and grad.dim() == 2 else kept for kept in self.kept)
        # A slice is a view, which changes in place; a list of rows gives a copy, which is written back.
        w, m, v = weights[rows], first[rows], second[rows]
        is_bf16 = m.dtype == torch.bfloat16
        if is_bf16:
            m = m.float()
        m.mul_(keep1).add_(grad, alpha=1 - config.beta1)
        if v.shape == grad.shape:
            v.mul_(keep2).addcmul_(grad, grad, value=1 - config.beta2)
        else:
            v.mul_(keep2).add_(grad.square().mean(1, keepdim=True), alpha=1 - config.beta2)
        w.addcdiv_(m, v.sqrt().mul_(self.root).add_(config.epsilon), value=-self.step_size)
        if isinstance(rows, Tensor):
            weights[rows], second[rows] = w, v
        if is_bf16:
            assert self.rounding is not None
            first[rows] = self.rounding.bf16(m, rows)
        elif isinstance(rows, Tensor):
            first[rows] = m


class DriftOnDevice:
    """Keep a copy of a ``Drift``'s sums on the device; each step brings there only what changed."""

    def __init__(self, drift: Drift, device: torch.device) -> None:
        self.drift, self.device = drift, device
        self.restart()

    def restart(self) -> None:
        """Copy the sums whole the next time."""
        self._step = -1
        self._sums: tuple[Tensor, ...] = ()

    def until(self, step: int) -> tuple[Tensor, ...]:
        """Return the coefficients (drift_S, damping_S) for all missed steps up to and including ``step``."""
        sums = self.drift.until(step)
        if not self._sums or len(self._sums[0]) != len(sums[0]):
            self._sums = tuple(torch.from_numpy(array.copy()).to(self.device) for array in sums)
        elif self.drift.step > self._step:
            changed = slice(max(1, self._step + 1 - self.drift.window), self.drift.step)
            for tensor, array in zip(self._sums, sums, strict=True):
                tensor[changed] = tensor_of(array[changed].copy(), self.device)
        self._step = self.drift.step
        return self._sums

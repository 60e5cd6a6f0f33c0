"""Step the rows of somebody's parameters, in place: on a CPU by the compiled kernels, elsewhere by tensors.

Legend: R rows, D columns, U distinct rows.
"""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from runner.optimizers.configs import AdamConfig
from runner.output.numba.row_table import RowTable
from runner.output.torch.row_table import TorchRowTable

_NOT_MOMENTS = ("weights", "bias")


class RowSteps:
    """Hold the moments of a parameter (R, D), and of biases (R, 1) or None, and take steps by their gradients."""

    def __init__(self, config: AdamConfig, weight: Tensor, bias: Tensor | None) -> None:
        self.weight, self.bias = weight, bias
        self.step = 0
        self.table: RowTable | TorchRowTable
        if weight.is_cuda:
            self.table = TorchRowTable.over(config, weight.detach(), None if bias is None else bias.detach()[:, 0])
        else:
            self.table = RowTable.over(config, weight.detach().numpy(), None if bias is None else bias.detach().numpy())

    @property
    def lr(self) -> float:
        return self.table.lr

    def set_lr(self, lr: float) -> None:
        """Change the rate from the next step on; rows that lag take the steps that they missed at the present one."""
        self.read(None)
        self.table.set_lr(lr)

    def read(self, rows_U: Tensor | None) -> None:
        """Bring distinct rows (None: all) to their values after the steps taken so far."""
        if self.step == 0:
            return
        if isinstance(self.table, RowTable):
            self.table.read(None if rows_U is None else rows_U.numpy().astype(np.int32), self.step + 1)
        else:
            self.table.read(rows_U, self.step + 1)

    def take(self) -> None:
        """Take a step by the gradients that the parameters have; without one, rows move by their momentum."""
        self.step += 1
        rows_U, grad_UD, bias_grad_U = self._gradients()
        if rows_U is None:
            return
        if isinstance(self.table, RowTable):
            rows = rows_U.numpy().astype(np.int32)
            self.table.read(rows, self.step)
            self.table.apply(rows, grad_UD.numpy(), bias_grad_U.numpy(), self.step)
        else:
            self.table.read(rows_U, self.step)
            self.table.apply(rows_U, grad_UD, bias_grad_U if self.bias is not None else None, self.step)

    def _gradients(self) -> tuple[Tensor | None, Tensor, Tensor]:
        """Return the rows with a gradient (None: there is none), these rows' gradients and those of their biases."""
        weight, bias = self.weight, self.bias
        nothing = weight.new_zeros(0)
        parts: list[tuple[Tensor, Tensor | None]] = []
        for parameter in (weight, bias):
            if parameter is None or parameter.grad is None:
                parts.append((weight.new_zeros(0, dtype=torch.int64), None))
                continue
            grad = parameter.grad
            if not grad.is_sparse:
                parts.append((torch.arange(len(grad), device=grad.device), grad))
                continue
            grad = grad if grad.is_coalesced() else grad.coalesce()
            parts.append((grad._indices()[0], grad._values()))
        (rows_U, grad_UD), (of_bias_V, bias_grad_V1) = parts
        if grad_UD is None and bias_grad_V1 is None:
            return None, nothing, nothing
        same = bias_grad_V1 is None or (len(rows_U) == len(of_bias_V) and bool((rows_U == of_bias_V).all()))
        if not same or grad_UD is None:
            both_U, place = torch.unique(torch.cat([rows_U, of_bias_V]), return_inverse=True)
            wide_UD, wide_U1 = weight.new_zeros(len(both_U), weight.shape[1]), weight.new_zeros(len(both_U), 1)
            if grad_UD is not None:
                wide_UD.index_copy_(0, place[: len(rows_U)], grad_UD)
            if bias_grad_V1 is not None:
                wide_U1.index_copy_(0, place[len(rows_U) :], bias_grad_V1)
            rows_U, grad_UD, bias_grad_V1 = both_U, wide_UD, wide_U1
        grad_UD = grad_UD.contiguous()
        bias_grad_U = weight.new_zeros(len(rows_U)) if bias_grad_V1 is None else bias_grad_V1[:, 0].contiguous()
        return rows_U, grad_UD, bias_grad_U

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return the moments and last steps by name."""
        return {name: array for name, array in self.table.state_dict().items() if name not in _NOT_MOMENTS}

    def load_state_dict(self, state: Mapping[str, np.ndarray], step: int) -> None:
        """Restore what ``state_dict`` returned, at that step."""
        held = self.table.state_dict()
        self.table.load_state_dict({**{name: held[name] for name in _NOT_MOMENTS if name in held}, **state})
        self.step = step

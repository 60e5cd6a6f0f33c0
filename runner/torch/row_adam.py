"""Step the rows that a loss touched by Adam, and let the others catch up when they are next read.

Legend: R rows, D columns, U distinct rows.
"""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer

from runner.errors import require
from runner.optimizers.configs import AdamConfig
from runner.output.torch.row_steps import RowSteps
from runner.torch.module import SampledSoftmaxLoss


class RowAdam(Optimizer):
    """Take steps of Adam with the rows and biases of a ``SampledSoftmaxLoss``; for other parameters use another one.

    rows: ``catch_up`` gives the weights of dense Adam, and a row takes the steps that it missed when it is next read;
    ``touched`` moves only rows with a gradient, as ``SparseAdam`` does. On a CPU the steps are compiled kernels.
    Under ``catch_up``, rows are brought up when they are read by the loss, by lookups in ``loss.rows``, by ``current``,
    and before the learning rate changes.
    """

    def __init__(
        self,
        loss: SampledSoftmaxLoss,
        lr: float = 3e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        *,
        rows: Literal["catch_up", "touched"] = "catch_up",
    ) -> None:
        require(rows in ("catch_up", "touched"), f"rows: {rows!r} is not one of catch_up, touched")
        require(isinstance(loss, SampledSoftmaxLoss), f"expected a SampledSoftmaxLoss, got {type(loss).__name__}")
        config = AdamConfig(lr=lr, beta1=betas[0], beta2=betas[1], epsilon=eps, rows=rows)
        biases = [] if loss.biases is None else [loss.biases.weight]
        super().__init__([loss.rows.weight, *biases], {"lr": lr})
        self._loss = loss
        self._steps = RowSteps(config, loss.rows.weight, biases[0] if biases else None)
        if rows == "catch_up":
            loss.table.reader = self.current
            loss.table.settling = self._steps.table.settling_steps
            loss.rows.register_forward_pre_hook(lambda module, given: self.current(given[0]))

    @torch.no_grad()
    def current(self, rows: Tensor | None = None) -> None:
        """Bring rows (None: all) to their values after the steps taken so far."""
        self._steps.read(None if rows is None else torch.unique(rows))

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take a step with the gradients that are there; return what ``closure`` returned."""
        found = None
        if closure is not None:
            with torch.enable_grad():
                found = closure()
        lr = self.param_groups[0]["lr"]
        if lr != self._steps.lr:
            self._steps.set_lr(float(lr))
        self._steps.take()
        return found

    def state_dict(self) -> dict[str, Any]:
        """Return the settings, and the moments as tensors."""
        held = {name: torch.from_numpy(np.array(array)) for name, array in self._steps.state_dict().items()}
        return {"rows": held, "step": self._steps.step, "lr": self.param_groups[0]["lr"]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what ``state_dict`` returned; weights are the module's own, and must be loaded too."""
        self.param_groups[0]["lr"] = state_dict["lr"]
        self._steps.set_lr(float(state_dict["lr"]))
        self._steps.load_state_dict({n: t.cpu().numpy() for n, t in state_dict["rows"].items()}, state_dict["step"])

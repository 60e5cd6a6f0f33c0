"""Compute the exact softmax by PyTorch, which stores every class's logit and needs three products instead of four.

Legend: B rows of a batch, N classes, D hidden size, P targets (one a row), U touched class rows (here all N).
"""

from typing import Any

import numpy as np
import torch

from runner.contracts import Query, TrainingFacts
from runner.errors import require
from runner.heads.classes import ClassesHead
from runner.optimizers import SgdConfig
from runner.options.settings import OutputConfig, RunConfig
from runner.output.layer import RowGradient
from runner.output.losses import LossConfig
from runner.output.numba.layer import NumbaLayer
from runner.output.numba.row_table import RowTable, RowTableGradient


class _StoredLogits:
    """Scores of every class by torch: it stores the logits (B, N) and needs three products, our kernels four."""

    def __init__(self, table: RowTable, query: Query, step: int) -> None:
        self.table, self.step = table, step
        table.read(None, step)
        self.weights_ND, self.hidden_BD = torch.from_numpy(table.rows()), torch.from_numpy(query.hidden_BD)
        self.target_B = torch.from_numpy(query.targets_P).long()
        self.logits_BN = self.hidden_BD @ self.weights_ND.T

    @property
    def touched_U(self) -> np.ndarray:
        return np.arange(len(self.weights_ND), dtype=np.int32)

    def loss(
        self, config: LossConfig, log_count_P: np.ndarray | None = None, weight_B: np.ndarray | None = None
    ) -> np.ndarray:
        """Return the loss of each row, (B,), and replace the logits by their gradients. Each row weighs 1 / B."""
        assert weight_B is None
        log_p_BN = torch.log_softmax(self.logits_BN, dim=1)
        rows_B = torch.arange(len(self.target_B))
        loss_B = -log_p_BN[rows_B, self.target_B].numpy()
        self.logits_BN = log_p_BN.exp_()
        self.logits_BN[rows_B, self.target_B] -= 1
        self.logits_BN /= len(self.target_B)
        return loss_B

    def gradients(self) -> tuple[RowGradient, np.ndarray]:
        grad_ND = (self.logits_BN.T @ self.hidden_BD).numpy()
        nothing = np.zeros(len(grad_ND), dtype=np.float32)  # there are no biases
        rows = RowTableGradient(table=self.table, rows_U=self.touched_U, grad_UD=grad_ND, bias_grad_U=nothing)
        return rows, (self.logits_BN @ self.weights_ND).numpy()

    def update(self) -> np.ndarray:
        """Update the class vectors and return the gradient of the hidden states, (B, D).

        Under SGD, the product that makes the gradient adds the step in place.
        """
        if not isinstance(self.table.config, SgdConfig):
            rows, grad_hidden_BD = self.gradients()
            rows.apply(self.step)
            return grad_hidden_BD
        grad_hidden_BD = (self.logits_BN @ self.weights_ND).numpy()
        self.weights_ND.addmm_(self.logits_BN.T, self.hidden_BD, alpha=-self.table.lr)
        return grad_hidden_BD


class _TorchLayer(NumbaLayer):
    def score(self, query: Query, proposal: Any, step: int) -> Any:
        self.table.before_step(step)
        return _StoredLogits(self.table, query, step)


def torch_full_head(config: RunConfig, training: TrainingFacts) -> ClassesHead:
    """Build a head whose full softmax uses torch's products.

    Raises ConfigError where the layer has biases or is normalised.
    """
    require(config.output == OutputConfig(bias=False), "torch_full needs output.bias=false output.normalize=false")
    head = ClassesHead.of(config, training)
    assert isinstance(head.layer, NumbaLayer)
    head.layer = _TorchLayer(head.layer.table)
    return head

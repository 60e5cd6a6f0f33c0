"""Encode a sparse bag of words by one hidden layer, in tensors (``models.mlp`` is the encoder of a CPU).

The numbers of a batch travel to the device once; hidden states and gradients stay there. State has the names of
``models.mlp``, so that what one engine trained the other can load.

Legend: B rows of a batch, F features, D hidden size, N entries of a batch.
"""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from runner.contracts import Passed
from runner.data.rows.batches import RowBatch
from runner.kernels.groups import group_by_id
from runner.output.gradients import Gradient
from runner.output.layer import Rows
from runner.output.torch.arrays import array_of, ids_of, tensor_of
from runner.output.torch.groups import bag_sums
from runner.output.torch.row_table import TorchRowTable


class TorchMlp:
    """Encode sparse rows. ``features``: the table of the features' vectors (F, D). ``least``: of a hidden unit."""

    def __init__(self, features: Rows, least: float) -> None:
        assert isinstance(features, TorchRowTable)
        self.table, self.least, self.dim = features, least, features.num_columns
        self.bias = features.of_parameters(np.zeros((1, features.num_columns), dtype=np.float32))
        self.tables = (self.table, self.bias)
        self.dense = ()

    def _hidden_of(self, batch: RowBatch) -> Tensor:
        device = self.table.device
        entries = ids_of(batch.indices, device), tensor_of(batch.values, device)
        sums_BD = bag_sums(self.table.tensor, *entries, ids_of(batch.indptr, device))
        return sums_BD.add_(self.bias.tensor[0]).clamp_min_(self.least)

    def encode(self, batch: RowBatch) -> np.ndarray:
        """Return hidden states (B, D) float32; nothing is remembered. Rows of the input matrix must be current."""
        return array_of(self._hidden_of(batch))

    def forward(self, batch: RowBatch, step: int) -> Tensor:
        """Return hidden states (B, D) of a training step, and remember what the gradients need."""
        self._batch = batch
        self._groups = group_by_id(batch.indices, self.table.num_rows)
        self.table.before_step(step)
        self.table.read_for_update(self._groups[1], step)
        self._hidden = self._hidden_of(batch)
        return self._hidden

    def backward(self, grad_hidden_BD: Passed, step: int) -> None:
        """Update the input rows of the batch's features and the bias."""
        for gradient in self.gradients(grad_hidden_BD, step):
            gradient.apply(step)

    def gradients(self, grad_hidden_BD: Passed, step: int) -> list[Gradient]:
        """Return the gradients of the input rows and of the bias instead of applying them."""
        grad_BD = torch.where(self._hidden > self.least, tensor_of(grad_hidden_BD, self.table.device), 0)
        batch = self._batch
        row_N = np.repeat(np.arange(batch.num_rows, dtype=np.int32), np.diff(batch.indptr))
        nobody = np.zeros((0, self.table.num_columns), dtype=np.float32)
        of_rows = self.table.gradients_of_groups(self._groups, grad_BD, row_N, batch.values, nobody, step)
        return [of_rows, self.bias.gradient_of(grad_BD.sum(0, keepdim=True))]

    # ------------------------------------------------------------ state

    @property
    def _names_of_bias(self) -> dict[str, str]:
        return {"bias": "weights", "bias.first": "first", "bias.second": "second"}

    def state_dict(self) -> dict[str, np.ndarray]:
        of_bias = self.bias.state_dict()
        bias = {name: of_bias[ours][0] for name, ours in self._names_of_bias.items() if ours in of_bias}
        return {**{f"table.{name}": value for name, value in self.table.state_dict().items()}, **bias}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        prefix = "table."
        self.table.load_state_dict({n.removeprefix(prefix): v for n, v in state.items() if n.startswith(prefix)})
        of_bias = self.bias.state_dict()
        for name, ours in self._names_of_bias.items():
            if ours in of_bias:
                of_bias[ours] = np.reshape(state[name], of_bias[ours].shape)
        self.bias.load_state_dict(of_bias)

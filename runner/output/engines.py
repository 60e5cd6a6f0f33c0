"""Choose the engine that holds the class matrix: Numba's kernels on a CPU, or PyTorch on a GPU or a CPU.

Legend: B rows of a batch, D hidden size, N classes.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from runner.contracts import Batch, Query
from runner.optimizers.configs import OptimizerConfig
from runner.output.layer import Layer, Rows
from runner.output.numba.layer import NumbaLayer
from runner.output.numba.row_table import RowTable

if TYPE_CHECKING:
    from runner.options.settings import RunConfig


def rows_of(config: "RunConfig", vectors_ND: np.ndarray) -> Rows:
    """Return a table of class vectors with biases, by the engine and on the device of a run's configuration."""
    device = None
    if config.hardware.engine == "torch":
        from runner.machine.device import device_of  # it imports torch

        device = device_of(config.hardware)
    return make_rows(config.hardware.engine, config.optimizer, vectors_ND, bias_moves=config.output.bias, device=device)


def make_rows(
    engine: str, optimizer: OptimizerConfig, vectors_ND: np.ndarray, *, bias_moves: bool = True, device: Any = None
) -> Rows:
    """Return a table of class vectors with biases; ``device``: of the torch engine, None for the CPU."""
    if engine == "numba":
        return RowTable(optimizer, vectors_ND, bias=True, bias_moves=bias_moves)
    from runner.output.torch.row_table import TorchRowTable

    return TorchRowTable(optimizer, vectors_ND, bias=True, bias_moves=bias_moves, device=device)


def layer_of(table: Rows, scale: float | None) -> Layer:
    """Return the layer of a table of class vectors."""
    if isinstance(table, RowTable):
        return NumbaLayer(table, scale)
    from runner.output.torch.layer import TorchLayer
    from runner.output.torch.row_table import TorchRowTable

    assert isinstance(table, TorchRowTable)
    return TorchLayer(table, scale)


def query_of(hidden_BD: Any, batch: Batch) -> Query:
    """Return the query of a batch whose rows have these hidden states, an array (B, D) or a tensor."""
    if isinstance(hidden_BD, np.ndarray):
        return Query.of(hidden_BD, batch)
    from runner.output.torch.batches import TorchQuery

    return TorchQuery.of_batch(hidden_BD, batch)

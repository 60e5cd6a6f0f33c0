"""Choose the engine that holds the class matrix: Numba's kernels on a CPU, or PyTorch on a GPU or a CPU.

Legend: B rows of a batch, D hidden size, N classes.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from runner.contracts import Batch, Query
from runner.optimizers.configs import OptimizerConfig
from runner.output.across import Across
from runner.output.layer import Layer, Rows
from runner.output.numba.layer import NumbaLayer
from runner.output.numba.row_table import RowTable

if TYPE_CHECKING:
    from runner.options.settings import HardwareConfig, RunConfig


def rows_of(config: "RunConfig", vectors_ND: np.ndarray) -> Rows:
    """Return a table of class vectors with biases, by the engine and on the device of a run's configuration."""
    return rows_on(config.hardware, config.optimizer, vectors_ND, bias_moves=config.output.bias, seed=config.seed)


def rows_on(
    hardware: "HardwareConfig",
    optimizer: OptimizerConfig,
    vectors_ND: np.ndarray,
    *,
    bias_moves: bool = True,
    seed: int = 0,
) -> Rows:
    """Return a table of class vectors with biases, by an engine and on a device; for ``seed`` see ``RowPolicy``."""
    device = None
    if hardware.engine == "torch":
        from runner.machine.device import device_of  # it imports torch

        device = device_of(hardware)
    return make_rows(hardware.engine, optimizer, vectors_ND, bias_moves=bias_moves, device=device, seed=seed)


def make_rows(
    engine: str,
    optimizer: OptimizerConfig,
    vectors_ND: np.ndarray,
    *,
    bias_moves: bool = True,
    device: Any = None,
    seed: int = 0,
) -> Rows:
    """Return a table of class vectors with biases; ``device``: of the torch engine, None for the CPU."""
    if engine == "numba":
        return RowTable(optimizer, vectors_ND, bias=True, bias_moves=bias_moves, seed=seed)
    import torch

    from runner.output.torch.row_table import TorchRowTable

    where = torch.device("cpu" if device is None else device)
    return TorchRowTable(optimizer, vectors_ND, bias=True, bias_moves=bias_moves, device=where, seed=seed)


def layer_of(
    table: Rows, scale: float | None, *, lo: int = 0, num_classes: int | None = None, across: Across | None = None
) -> Layer:
    """Return the layer of a table of class vectors; see ``NumbaLayer`` for one that holds some of the classes."""
    table.first_row = lo
    if isinstance(table, RowTable):
        return NumbaLayer(table, scale, lo=lo, num_classes=num_classes, across=across)
    from runner.output.torch.layer import TorchLayer
    from runner.output.torch.row_table import TorchRowTable

    assert isinstance(table, TorchRowTable)
    return TorchLayer(table, scale, lo=lo, num_classes=num_classes, across=across)


def whole(layer: Layer) -> Layer:
    """Return a layer that knows all classes: this one, or one that asks the other holders."""
    if layer.hi - layer.lo == layer.num_classes:
        return layer
    if isinstance(layer, NumbaLayer):
        from runner.output.whole import WholeLayer

        return WholeLayer(layer)
    from runner.output.torch.layer import TorchLayer
    from runner.output.torch.whole import TorchWholeLayer

    assert isinstance(layer, TorchLayer)
    return TorchWholeLayer(layer)


def query_of(hidden_BD: Any, batch: Batch) -> Query:
    """Return the query of a batch whose rows have these hidden states, an array (B, D) or a tensor."""
    if isinstance(hidden_BD, np.ndarray):
        return Query.of(hidden_BD, batch)
    from runner.output.torch.batches import TorchQuery

    return TorchQuery.of_batch(hidden_BD, batch)


def on_device(query: Query, hardware: "HardwareConfig") -> Query:
    """Return a query whose hidden states are a tensor on a device, as an encoder there passes them on."""
    from runner.machine.device import device_of  # it imports torch
    from runner.output.torch.arrays import tensor_of
    from runner.output.torch.batches import TorchQuery

    hidden = tensor_of(query.hidden_BD, device_of(hardware))
    return TorchQuery(hidden, query.target_indptr_B1, query.targets_P, query.num_examples)

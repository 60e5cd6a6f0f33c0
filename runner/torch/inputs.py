"""Check what a model hands over, and hold targets as tensors; samplers of the CPU get NumPy's views on demand.

Legend: B rows of a batch, D hidden size, P targets of the batch.
"""

from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from runner.errors import RunnerError
from runner.output.torch.arrays import array_of
from runner.output.torch.batches import TorchQuery
from runner.output.torch.functions import PlacedTargets

_FLOATS = (torch.float32, torch.bfloat16, torch.float16)
_INTEGERS = (torch.int64, torch.int32)


class InputError(RunnerError, ValueError):
    """A call got an input that the module cannot use; the message is one line.

    On a GPU, and in compiled code, targets are checked where they lie: a wrong one is an error of the device.
    """


def need(condition: bool, message: str) -> None:
    """Raise InputError unless the condition holds."""
    if not condition:
        raise InputError(message)


def check_hidden(hidden: Any, columns: int, device: torch.device) -> None:
    """Raise InputError unless ``hidden`` is a batch (B, D) of floating-point numbers on the device of the rows."""
    need(isinstance(hidden, Tensor), f"input: expected a tensor, got {type(hidden).__name__}")
    shape = tuple(hidden.shape)
    need(hidden.dim() == 2 and shape[1] == columns, f"input: expected shape (batch, {columns}), got {shape}")
    need(hidden.dtype in _FLOATS, f"input: expected float32, bfloat16 or float16, got {hidden.dtype}")
    need(hidden.device == device, f"input is on {hidden.device}, but the rows are on {device}")
    need(shape[0] > 0, "input: the batch is empty")


def _ids_checked(ids: Any, name: str, device: torch.device) -> Tensor:
    need(isinstance(ids, Tensor), f"{name}: expected a tensor, got {type(ids).__name__}")
    need(ids.dim() == 1, f"{name}: expected one dimension, got shape {tuple(ids.shape)}")
    need(ids.dtype in _INTEGERS, f"{name}: expected int64 or int32, got {ids.dtype}")
    need(ids.device == device, f"{name} is on {ids.device}, but the input is on {device}")
    return ids.long()


def hold(fine: Tensor, message: str) -> None:
    """Raise InputError unless all of ``fine`` is true, without waiting for a GPU."""
    if fine.is_cuda or torch.compiler.is_compiling():
        torch._assert_async(fine.all(), message)
    else:
        need(bool(fine.all()), message)


def targets_of(target: Any, hidden: Tensor, num_classes: int, ignore_index: int) -> PlacedTargets:
    """Return targets as classes: a tensor (B,), or a pair (indptr (B + 1,), ids (P,)) of rows with several or none.

    A row whose target is ``ignore_index`` counts for nothing and holds class 0.
    """
    rows, device = len(hidden), hidden.device
    if isinstance(target, tuple | list):
        need(len(target) == 2, f"target: expected (indptr, ids), got {len(target)} parts")
        return _ragged(target[0], target[1], rows, device, num_classes)
    ids_B = _ids_checked(target, "target", device)
    need(len(ids_B) == rows, f"target: expected {rows} classes, one a row, got {len(ids_B)}")
    kept_B = ids_B != ignore_index
    hold(~kept_B | in_range(ids_B, num_classes), out_of_range("target", num_classes))
    row_B1 = torch.arange(rows + 1, device=device)
    return PlacedTargets(torch.where(kept_B, ids_B, 0), row_B1[:-1], row_B1, kept_B.float(), one_each=True)


def in_range(ids: Tensor, num_classes: int) -> Tensor:
    return (ids >= 0) & (ids < num_classes)


def out_of_range(name: str, num_classes: int) -> str:
    return f"{name}: a class is not in 0 to {num_classes - 1}"


def _ragged(indptr: Any, ids: Any, rows: int, device: torch.device, num_classes: int) -> PlacedTargets:
    indptr_B1 = _ids_checked(indptr, "target's indptr", device)
    ids_P = _ids_checked(ids, "target's ids", device)
    need(len(indptr_B1) == rows + 1, f"target's indptr: expected {rows + 1} numbers, got {len(indptr_B1)}")
    counts_B = indptr_B1.diff()
    ends = (indptr_B1[0] == 0) & (indptr_B1[-1] == len(ids_P)) & (counts_B >= 0).all()
    hold(ends, "target's indptr must ascend from 0 to the number of ids")
    hold(in_range(ids_P, num_classes), out_of_range("target's ids", num_classes))
    row_P = torch.repeat_interleave(torch.arange(rows, device=device), counts_B, output_size=len(ids_P))
    key_P = ((row_P << 32) + ids_P).sort().values
    hold(key_P[1:] != key_P[:-1], "target's ids: a row has a class twice")
    return PlacedTargets(key_P & (2**32 - 1), row_P, indptr_B1, counts_B.float())


class ModuleQuery(TorchQuery):
    """Hold hidden states and targets in tensors. Its arrays leave out the rows that count for nothing."""

    def __init__(self, hidden: Tensor, targets: PlacedTargets) -> None:
        set_field = object.__setattr__  # the base class is frozen
        set_field(self, "hidden", hidden)
        set_field(self, "targets", targets)
        set_field(self, "num_examples", None)

    targets: PlacedTargets

    @property
    def num_rows(self) -> int:
        return self.targets.num_rows

    @cached_property
    def kept_P(self) -> np.ndarray:
        """Tell which targets count, (P,) bool."""
        return array_of(self.targets.counts_B[self.targets.row_P] > 0)

    @cached_property
    def hidden_BD(self) -> np.ndarray:
        return array_of(self.hidden)

    @cached_property
    def targets_P(self) -> np.ndarray:
        return array_of(self.targets.ids_P)[self.kept_P].astype(np.int32)

    @cached_property
    def target_indptr_B1(self) -> np.ndarray:
        return np.concatenate([[0], np.cumsum(array_of(self.targets.counts_B))]).astype(np.int64)

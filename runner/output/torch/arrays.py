"""Carry numbers between NumPy's arrays and tensors on a device.

Legend: none; shapes are those of the arguments.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor


def tensor_of(values: Any, device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    """Return an array or a tensor as a tensor on ``device``; on a CPU it shares the memory of an array."""
    tensor = values if isinstance(values, Tensor) else torch.from_numpy(np.ascontiguousarray(values))
    tensor = tensor.to(dtype or tensor.dtype)
    if device.type == "cuda" and tensor.device.type == "cpu":
        tensor = tensor.pin_memory()  # from other memory, a copy of more than 64 KB waits for all work before it
    return tensor.to(device, non_blocking=True)


def ids_of(values: Any, device: torch.device) -> Tensor:
    """Return ids as int64, which indexes tensors."""
    return tensor_of(values, device, torch.int64)


def array_of(values: Any) -> np.ndarray:
    """Return an array or a tensor as an array; on a CPU it shares the memory of a tensor. This waits for a GPU."""
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)

"""Keep first moments as bfloat16 tensors that are rounded without bias, by the words of ``kernels.moments``.

Legend: U rows, D columns.
"""

import torch
from torch import Tensor

from runner.output.torch import words


class Rounding:
    """Round the first moments that a step leaves. ``key``: of the step's random words (``RowPolicy.rounding``)."""

    def __init__(self, key: int, device: torch.device) -> None:
        self.key = torch.tensor(key - 2**64 if key >= 2**63 else key, device=device)

    def bf16(self, values_UD: Tensor, rows_U: Tensor | slice) -> Tensor:
        """Return float32 numbers of these rows as bfloat16, each rounded up or down at random, right on average."""
        device = values_UD.device
        if isinstance(rows_U, slice):
            rows_U = torch.arange(rows_U.start or 0, rows_U.stop, device=device)
        columns_D = torch.arange(values_UD.shape[1], device=device)
        word_UD = words.word(words.word(self.key, rows_U)[:, None], columns_D)
        bits_UD = values_UD.contiguous().view(torch.int32) + ((word_UD >> 48) & 0xFFFF).int()
        return (bits_UD >> 16).to(torch.int16).view(torch.bfloat16)

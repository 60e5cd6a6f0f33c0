"""Ask for any class of a class matrix in tensors that several processes hold together (``output.whole``).

Legend: B rows of a batch, D hidden size, C classes of a block, K classes of each row.
"""

import numpy as np
import torch
from torch import Tensor

from runner.output.torch.layer import TorchLayer
from runner.output.whole import WholeLayer


class TorchWholeLayer(WholeLayer, TorchLayer):
    """Answer for all classes with the help of the other ranks (``output.layer.Layer``)."""

    _part: TorchLayer

    @property
    def part(self) -> TorchLayer:
        return self._part

    @property
    def device(self) -> torch.device:
        return self.part.device

    # ------------------------------------------------------------ ranking

    def blocks(self, num_rows: int) -> list[tuple[int, int]]:
        return TorchLayer.blocks(self, num_rows)

    def block(self, queries_BD: Tensor, lo: int, hi: int) -> Tensor:
        """Return the logits of classes lo to hi - 1 for vectors of ``queries``, (B, C).

        Vectors are sent, as a class has fewer coordinates than a usual batch has rows.
        """
        part = self.part
        first, end = (min(max(edge, part.lo), part.hi) for edge in (lo, hi))
        here = slice(first - part.lo, end - part.lo)
        held = torch.cat([part.vectors(here), part.biases_of(here)[:, None]], dim=1)
        if hi - lo == self.num_classes:
            block = self.of_classes(None, lambda _: held)
        else:
            block = held.new_zeros((hi - lo, held.shape[1]))
            block[max(0, first - lo) : max(0, first - lo) + len(held)] = held
            block = self.across.sum(block)
        return torch.addmm(block[:, -1], queries_BD, block[:, :-1].t())

    def listed(self, queries_BD: Tensor, ids_BK: Tensor) -> Tensor:
        return self.part.listed(queries_BD, ids_BK)

    def top(self, hidden_BD: np.ndarray | Tensor, k: int, *, by_magnitude: bool = False) -> tuple[Tensor, Tensor]:
        return self.part.top(hidden_BD, k, by_magnitude=by_magnitude)

    def nearest(self, vectors_BD: Tensor, k: int) -> Tensor:
        return self.part.nearest(vectors_BD, k)

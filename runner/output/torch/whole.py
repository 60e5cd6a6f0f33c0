"""Ask for any class of a class matrix in tensors that several processes hold together (``output.whole``).

Legend: B rows of a batch, D hidden size, N classes, U chosen classes, K classes of each row.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from runner.contracts import Everything, Proposal, Query
from runner.output.across import Across
from runner.output.held import Held
from runner.output.torch.arrays import array_of, ids_of
from runner.output.torch.layer import TorchLayer
from runner.output.torch.scores import TorchScores
from runner.output.whole import WholeTable, made_by_holders


class TorchWholeLayer(TorchLayer):
    """Answer for all classes with the help of the other ranks (``output.layer.Layer``)."""

    def __init__(self, part: TorchLayer) -> None:
        self._part, self.scale, self.dim = part, part.scale, part.dim
        self.num_classes = part.num_classes
        self.lo, self.hi = 0, part.num_classes
        self.held = Held(lo=0, hi=self.hi, num_classes=self.num_classes)
        self.across: Across = part.across
        self.table: Any = _WholeTable(self)

    # ------------------------------------------------------------ what is held here

    @property
    def part(self) -> TorchLayer:
        return self._part

    def score(self, query: Query, proposal: Proposal | Everything, step: int) -> TorchScores:
        return self.part.score(query, proposal, step)

    def state_dict(self) -> dict[str, Any]:
        return self.part.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.part.load_state_dict(state)

    def read(self, rows_U: np.ndarray | Tensor | None, step: int) -> None:
        self.part.table.read(None if rows_U is None else self.part.held.rows(rows_U), step)

    def of_classes(self, classes_U: Any, of_rows: Callable[[Any], Any], axis: int = 0) -> Any:
        part = self.part
        if not isinstance(classes_U, slice | Tensor):
            return made_by_holders(part, classes_U, of_rows, axis)
        if isinstance(classes_U, slice):
            lo, hi, _ = classes_U.indices(self.num_classes)
            first, end = (min(max(edge, part.lo), part.hi) for edge in (lo, hi))
            held = of_rows(slice(first - part.lo, end - part.lo))
            out = held.new_zeros((hi - lo, *held.shape[1:]))
            out[max(0, first - lo) : max(0, first - lo) + len(held)] = held
        else:
            here = part.held.among(classes_U)
            out = of_rows(torch.where(here, classes_U - part.lo, 0))
            out = out.masked_fill(~here.reshape(*here.shape, *[1] * (out.dim() - here.dim())), 0)
        return self.across.sum(out)

    # ------------------------------------------------------------ vectors

    def rows_of(self, rows: Tensor | slice) -> Tensor:
        return self.of_classes(rows, self.part.rows_of)

    def biases_of(self, rows: Tensor | slice) -> Tensor:
        return self.of_classes(rows, self.part.biases_of)

    def rows(self, rows_U: np.ndarray | None = None) -> np.ndarray:
        return array_of(self.rows_of(slice(None) if rows_U is None else ids_of(rows_U, self.device)))

    def biases(self, rows_U: np.ndarray | None = None) -> np.ndarray:
        return array_of(self.biases_of(slice(None) if rows_U is None else ids_of(rows_U, self.device)))

    # ------------------------------------------------------------ ranking

    def listed(self, queries_BD: Tensor, ids_BK: Tensor) -> Tensor:
        return self.part.listed(queries_BD, ids_BK)

    def top(self, hidden_BD: np.ndarray | Tensor, k: int, *, by_magnitude: bool = False) -> tuple[Tensor, Tensor]:
        return self.part.top(hidden_BD, k, by_magnitude=by_magnitude)

    def nearest(self, vectors_BD: Tensor, k: int) -> Tensor:
        return self.part.nearest(vectors_BD, k)

    def cross_entropy(self, hidden_BD: np.ndarray, target_B: np.ndarray, *, by_magnitude: bool = False) -> np.ndarray:
        return self.part.cross_entropy(hidden_BD, target_B, by_magnitude=by_magnitude)

    def is_sound(self, hidden_BD: np.ndarray) -> bool:
        return self.part.is_sound(hidden_BD)


class _WholeTable(WholeTable):
    @property
    def device(self) -> torch.device:
        device: torch.device = self._held.device
        return device

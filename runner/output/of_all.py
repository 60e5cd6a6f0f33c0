"""Be a gradient of class rows of which other processes hold more."""

import numpy as np
from torch import Tensor

from runner.contracts import Passed
from runner.output.across import Across
from runner.output.layer import RowGradient, Rows


class OfAllHolders:
    """Be a gradient of rows of which others hold more: its norm is that of all, and it moves those held here."""

    def __init__(self, held: RowGradient, across: Across) -> None:
        self._held, self._across = held, across
        self.table: Rows = held.table

    @property
    def rows_U(self) -> np.ndarray:
        """Return the rows of the table, ascending int32; a gradient on a device is waited for."""
        return self._held.rows_U

    def squared_norm(self) -> Passed:
        held = self._held.squared_norm()
        if isinstance(held, Tensor):
            return self._across.sum(held[None])[0]
        return float(self._across.sum(np.array([held]))[0])

    def apply(self, step: int, factor: Passed = 1.0) -> None:
        self._held.apply(step, factor)

    def plus(self, other: RowGradient) -> RowGradient:
        return OfAllHolders(self._held.plus(other), self._across)

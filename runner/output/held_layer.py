"""Hold what layers of all engines have in common: which classes they hold, and the rows and state of their table."""

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import numpy as np

from runner.output.across import ALONE, Across
from runner.output.held import Held
from runner.output.layer import Rows

Table = TypeVar("Table", bound=Rows)


class HeldLayer(Generic[Table]):
    """Hold class vectors and biases with their optimizer state, in a table (``output.layer.Layer``).

    ``scale``: None for logits h . w + bias; a number for logits scale * cos(h, w) + bias, whose biases are not trained.
    The number is tau in the RF-softmax paper. ``lo``: the class of the table's first row. ``num_classes``: of the task;
    None: the table has them all. ``across``: combines numbers over all layers that together hold the classes.
    """

    def __init__(
        self,
        table: Table,
        scale: float | None = None,
        *,
        lo: int = 0,
        num_classes: int | None = None,
        across: Across | None = None,
    ) -> None:
        rows, self.dim = table.shape
        self.table, self.scale = table, scale
        self.lo, self.hi = lo, lo + rows
        self.num_classes = rows if num_classes is None else num_classes
        self.held = Held(lo=lo, hi=self.hi, num_classes=self.num_classes)
        self.across = ALONE if across is None else across

    def of_classes(self, classes_U: np.ndarray | None, of_rows: Callable[[Any], Any], axis: int = 0) -> Any:
        """Return what ``of_rows`` makes of the rows of these classes (``Layer.of_classes``)."""
        return of_rows(classes_U)

    def read(self, rows_U: Any, step: int) -> None:
        """Bring rows (None: all) to their values before ``step``."""
        self.table.read(rows_U, step)

    def rows(self, rows_U: np.ndarray | None = None) -> np.ndarray:
        """Return rows of the table as they stand, which a normalised layer does not normalise."""
        return self.table.rows(rows_U)

    def biases(self, rows_U: np.ndarray | None = None) -> np.ndarray:
        """Return biases as they stand."""
        return self.table.biases(rows_U)

    def state_dict(self) -> dict[str, Any]:
        """Return the weights and optimizer state; arrays by row are a ``Part`` if others hold more rows."""
        return self.held.parts(self.table.state_dict(), self.table.by_row)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned, here or in a layer that held other rows or all."""
        self.table.load_state_dict(self.held.of_parts(state, self.table.by_row))

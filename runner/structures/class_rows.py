"""Present the class matrix as vectors that an index follows.

Legend: R rows of the matrix, D hidden size, U distinct rows.
"""

from collections.abc import Mapping

import numpy as np

from runner.contracts import OfRows
from runner.kernels.dense import double_column_sums
from runner.output.layer import Layer


class ClassRows:
    """Present the rows of a layer, and hold the step at which each was last touched (0: never).

    The class implements ``contracts.Vectors``. A row keeps moving while its momentum lasts, for ``settling_steps``
    steps after it was touched.
    """

    def __init__(self, layer: Layer) -> None:
        assert layer.hi - layer.lo == layer.num_classes, "an index follows all classes"
        self.layer = layer
        self.touched_step_R = np.zeros(layer.num_classes, dtype=np.int32)

    @property
    def shape(self) -> tuple[int, int]:
        """Return the number of classes and the size of their vectors."""
        return self.layer.num_classes, self.layer.dim

    def rows(self, rows_U: np.ndarray | None = None) -> np.ndarray:
        """Return these rows, (U, D) float32 a copy; None: all, (R, D). A row is current after ``bring_up``."""
        return self.layer.rows(rows_U)

    def of_rows(self, rows_U: np.ndarray | None, make: OfRows, axis: int = 0) -> np.ndarray:
        """Return what ``make`` makes of these rows (None: all) where they are held; see ``contracts.Vectors``."""
        layer = self.layer

        def made(held_U: np.ndarray | None) -> np.ndarray:
            table = layer.part.table
            if held_U is None:
                matrix = table.rows()
                return make(matrix, np.arange(len(matrix), dtype=np.int32))
            return make(*table.rows_at(held_U))

        return layer.of_classes(rows_U, made, axis)

    def column_sums(self) -> np.ndarray:
        """Return the sum of all rows, (D,) float64."""
        sums_D = np.empty(self.layer.dim, dtype=np.float64)
        double_column_sums(self.layer.part.table.rows(), sums_D)
        return self.layer.across.sum(sums_D)

    def note_touched(self, rows_U: np.ndarray, step: int) -> None:
        """Remember that a step updated these rows."""
        self.touched_step_R[rows_U] = step

    def changed_since(self, step: int) -> np.ndarray:
        """Return the rows that may have moved after the end of ``step``, (U,) ascending int32."""
        settled = max(0, step - self.layer.table.settling_steps)  # at least 0: a row that was never touched never moved
        return np.flatnonzero(self.touched_step_R > settled).astype(np.int32)

    def bring_up(self, rows_U: np.ndarray | None, step: int) -> None:
        """Bring these rows (None: all) up to the end of ``step``."""
        self.layer.read(rows_U, step + 1)

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return the step at which each row was last touched."""
        return {"touched_step": self.touched_step_R}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore what ``state_dict`` returned."""
        self.touched_step_R[...] = state["touched_step"]

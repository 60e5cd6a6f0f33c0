"""The class matrix as vectors that an index follows."""

from collections.abc import Mapping

import numpy as np

from runner.optimizers import RowTable


class ClassRows:
    """Rows of a ``RowTable``, and the step at which each was last touched (0: never).

    Implements ``contracts.Vectors``. A row moves on while its momentum lasts, ``settling_steps`` after it was touched.
    """

    def __init__(self, table: RowTable) -> None:
        self.table = table
        self.touched_step_R = np.zeros(len(table.weights), dtype=np.int32)

    @property
    def matrix(self) -> np.ndarray:
        """(R, D) float32; rows are current after ``bring_up``."""
        return self.table.weights

    def note_touched(self, rows_U: np.ndarray, step: int) -> None:
        """Remember that a step updated these rows."""
        self.touched_step_R[rows_U] = step

    def changed_since(self, step: int) -> np.ndarray:
        """Ids (U,) int32, ascending, of rows that may have moved after the end of ``step``."""
        settled = max(0, step - self.table.settling_steps)  # 0 stands for never touched, so never moved
        return np.flatnonzero(self.touched_step_R > settled).astype(np.int32)

    def bring_up(self, rows_U: np.ndarray | None, step: int) -> None:
        """Make these rows (None: all) current as of the end of ``step``."""
        self.table.read(rows_U, step + 1)

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return the steps at which rows were last touched."""
        return {"touched_step": self.touched_step_R}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore what ``state_dict`` gave."""
        self.touched_step_R[...] = state["touched_step"]

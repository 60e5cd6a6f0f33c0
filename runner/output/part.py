"""Mark an array of state that holds some rows of a larger one, whose others lie in other processes."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Part:
    """Hold the rows ``lo`` and following of an array with ``num_rows`` rows."""

    rows: np.ndarray
    lo: int
    num_rows: int

    @property
    def nbytes(self) -> int:
        """Return the bytes of the whole array."""
        return self.rows.itemsize * self.num_rows * int(np.prod(self.rows.shape[1:]))

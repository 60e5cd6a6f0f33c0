"""Take batches of sentence pairs.

Legend: B pairs of a batch.
"""

from dataclasses import dataclass

import numpy as np

from runner.data.pairs.dataset import Pairs


@dataclass(frozen=True, kw_only=True)
class PairBatch:
    """Hold pairs by their numbers ``rows_B``, int64, in a set of pairs.

    ``weight_B``: factors of the pairs' losses, (B,) float32; None: 1 / B each.
    """

    pairs: Pairs
    rows_B: np.ndarray
    weight_B: np.ndarray | None = None

    @property
    def num_rows(self) -> int:
        """Return B, the number of pairs."""
        return len(self.rows_B)

    @property
    def num_examples(self) -> int:
        """Return the same: every row is an example."""
        return self.num_rows

    @property
    def targets(self) -> np.ndarray:
        """Return the class id of each pair, (B,) int32."""
        return np.ascontiguousarray(self.pairs.labels_R[self.rows_B], dtype=np.int32)

    @property
    def target_indptr(self) -> np.ndarray:
        """Return where each pair's only target begins and ends in ``targets``, (B + 1,) int64."""
        return np.arange(len(self.rows_B) + 1, dtype=np.int64)

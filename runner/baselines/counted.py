"""Score items by counts of a log, or classes by counts of rows.

The score of item j is the sum of ``similarity[i, j]`` over the items i of the user's window. Between equal sums, the
item that was taken more often in training is better.

Legend: B rows, N items.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import coo_array, csr_array

from runner.baselines.base import Fitted

if TYPE_CHECKING:
    from runner.data.rows.batches import RowBatch
    from runner.data.sequences.batches import SequenceBatch

# A count times this is far below one transition, and below nearly every difference between two sums of similarities,
# even for a billion events; yet float64 holds it beside a sum of hundreds.
_TIE = 1e-12
_PARTS = ("data", "indices", "indptr")  # of a sparse matrix


def no_similarity(num_items: int) -> csr_array:
    """Return that no item speaks for another, (N, N) float64."""
    return csr_array((num_items, num_items), dtype=np.float64)


class Counts(Fitted):
    """Keep how often each item was taken in training, (N,) float32, and a sparse matrix of similarities (N, N).

    ``count``: function of a task that returns both.
    """

    def __init__(self, num_items: int, count: Callable[[Any], tuple[np.ndarray, csr_array]]) -> None:
        self._count = count
        self.counts_N = np.zeros(num_items, dtype=np.float32)
        self.similarity = no_similarity(num_items)

    def fit(self, task: Any) -> None:
        """Count the training data of a task."""
        self.counts_N[:], self.similarity = self._count(task)

    def scores(self, batch: "SequenceBatch") -> np.ndarray:
        """Return the score of every item for every window, (B, N) float64."""
        windows, num_items = len(batch.length_S), len(self.counts_N)
        window_X = np.repeat(np.arange(windows), batch.length_S)
        ones = np.ones(len(batch.items_X))
        window_BN = coo_array((ones, (window_X, batch.items_X)), shape=(windows, num_items)).tocsr()
        return (window_BN @ self.similarity).toarray() + _TIE * self.counts_N.astype(np.float64)

    def top(self, batch: "RowBatch", k: int) -> np.ndarray:
        """Return the k most frequent ids for each row, (B, k) int32; of equal counts the lower id is better."""
        top_K = np.argsort(-self.counts_N, kind="stable")[:k].astype(np.int32)
        return np.broadcast_to(top_K, (batch.num_rows, len(top_K)))

    def is_sound(self, batch: Any) -> bool:
        """Tell whether all similarities are finite."""
        return bool(np.isfinite(self.similarity.data).all())

    def about(self) -> dict[str, Any]:
        """Return how many pairs of items are similar."""
        return {"similar_pairs": int(self.similarity.nnz)}

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return the counts, (N, 1), under ``counts.``, and the parts of the sparse matrix under ``similarity.``."""
        parts = {f"similarity.{name}": getattr(self.similarity, name) for name in _PARTS}
        return {"counts.weights": self.counts_N[:, None], **parts}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore what ``state_dict`` returned."""
        self.counts_N[:, None] = state["counts.weights"]
        parts = tuple(state[f"similarity.{name}"] for name in _PARTS)
        self.similarity = csr_array(parts, shape=self.similarity.shape)

"""Score items by counts of a log, or classes by counts of rows, without learning by steps.

The score of item j is the sum of ``similarity[i, j]`` over the items i of the user's window. Between equal sums, the
item that was taken more often in training is better.

Legend: B rows, N items.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import coo_array, csr_array

from runner.machine.clock import StageClock
from runner.optimizers import OptimizerConfig
from runner.output.layer import Rows
from runner.output.numba.row_table import RowTable

if TYPE_CHECKING:
    from runner.data.sequences.batches import SequenceBatch

# A count times this is far below one transition, and below nearly every difference between two sums of similarities,
# even for a billion events; yet float64 holds it beside a sum of hundreds.
_TIE = 1e-12
_PARTS = ("data", "indices", "indptr")  # of a sparse matrix


class CountsHead:
    """Keep how often each item was taken in training, and a sparse matrix of similarities (N, N)."""

    build_seconds = 0.0

    def __init__(self, num_items: int, optimizer: OptimizerConfig) -> None:
        self.counts = RowTable(optimizer, np.zeros((num_items, 1), dtype=np.float32), bias=False)
        self.similarity = csr_array((num_items, num_items), dtype=np.float64)

    @property
    def tables(self) -> Sequence[Rows]:
        """Return the items' counts, as the only table."""
        return (self.counts,)

    def set(self, counts_N: np.ndarray, similarity: csr_array) -> None:
        """Take counts of the items and their similarities, both of training events."""
        self.counts.write(None, vectors=counts_N[:, None])
        self.similarity = similarity

    def scores(self, batch: "SequenceBatch") -> np.ndarray:
        """Return the score of every item for every window, (B, N) float64."""
        windows, num_items = len(batch.length_S), self.counts.shape[0]
        window_X = np.repeat(np.arange(windows), batch.length_S)
        ones = np.ones(len(batch.items_X))
        window_BN = coo_array((ones, (window_X, batch.items_X)), shape=(windows, num_items)).tocsr()
        return (window_BN @ self.similarity).toarray() + _TIE * self.counts.rows()[:, 0].astype(np.float64)

    def most_counted(self, k: int) -> np.ndarray:
        """Return the k most frequent ids, best first, (k,) int32; of equal counts the lower id is better."""
        return np.argsort(-self.counts.rows()[:, 0], kind="stable")[:k].astype(np.int32)

    # ------------------------------------------------------------ what every head has

    def score(self, hidden_BD: np.ndarray, batch: Any, step: int, clock: StageClock) -> Any:
        """Refuse: there are no steps."""
        raise NotImplementedError("counts are made at once, not by steps")

    def refresh(self, scores: Any, touched_U: np.ndarray, step: int, clock: StageClock) -> None:
        """Do nothing: there are no tables that follow weights."""

    def is_sound(self, hidden_BD: np.ndarray) -> bool:
        """Tell whether all similarities are finite."""
        return bool(np.isfinite(self.similarity.data).all())

    @property
    def chosen(self) -> Mapping[str, str]:
        """Return nothing: no setting reads ``auto``."""
        return {}

    def about(self) -> dict[str, Any]:
        """Return how many pairs of items are similar."""
        return {"similar_pairs": int(self.similarity.nnz)}

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return the counts under ``counts.``, and the parts of the sparse matrix under ``similarity.``."""
        counts = {f"counts.{name}": array for name, array in self.counts.state_dict().items()}
        return {**counts, **{f"similarity.{name}": getattr(self.similarity, name) for name in _PARTS}}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore what ``state_dict`` returned."""
        prefix = "counts."
        self.counts.load_state_dict({n.removeprefix(prefix): v for n, v in state.items() if n.startswith(prefix)})
        parts = tuple(state[f"similarity.{name}"] for name in _PARTS)
        self.similarity = csr_array(parts, shape=self.similarity.shape)

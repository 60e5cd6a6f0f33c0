"""Score proposals against the class matrix, rank all classes exactly, and take the exact cross-entropy.

Legend: B rows of a batch, D hidden size, N classes, C classes of a block.
"""

import numpy as np
import torch

from runner.contracts import Everything, Proposal, Query, Scores
from runner.heads.scores import Directions, Scratch, score
from runner.kernels import topk as topk_kernels
from runner.kernels.rows import LEAST_NORM
from runner.optimizers import RowTable

_BLOCK_ELEMENTS = 2**22  # logits ranked together: 16 MB, about the size of a last-level cache


def _as_tensor(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(array)


class OutputLayer:
    """Hold class vectors and biases with their optimizer state, in a ``RowTable``.

    ``scale``: None for logits h . w + bias; a number for logits scale * cos(h, w) + bias, whose biases are not trained.
    The number is tau in the RF-softmax paper.
    """

    def __init__(self, table: RowTable, scale: float | None = None) -> None:
        self.table = table
        self.scale = scale
        self.least_norm = None if scale is None else LEAST_NORM
        self.num_classes, self.dim = table.weights.shape
        self.scratch = Scratch()

    # ------------------------------------------------------------ training

    def score(self, query: Query, proposal: Proposal | Everything, step: int) -> Scores:
        """Compute the logits of the batch's targets and candidates; call ``loss`` and then ``update`` on the result."""
        return score(self, query, proposal, step)

    # ------------------------------------------------------------ ranking

    def blocks(self, num_rows: int) -> list[tuple[int, int]]:
        """Return ranges (first, end) of classes whose logits for ``num_rows`` rows make one block."""
        width = max(256, min(self.num_classes, _BLOCK_ELEMENTS // max(1, num_rows)))
        return [(lo, min(lo + width, self.num_classes)) for lo in range(0, self.num_classes, width)]

    def query_vectors(self, hidden_BD: np.ndarray) -> np.ndarray:
        """Return (B, D) vectors whose products with ``class_vectors`` are the logits without biases."""
        return hidden_BD if self.scale is None else Directions(hidden_BD, self.scale).scaled_BD

    def class_vectors(self, rows_U: np.ndarray | None = None) -> np.ndarray:
        """Return the class vectors that logits are products with, (N, D), or those of some rows (U, D).

        They are a copy if rows are given or vectors are normalised.
        """
        weights = self.table.weights if rows_U is None else self.table.weights[rows_U]
        if self.scale is None:
            return weights
        norm_N1 = np.sqrt(np.einsum("nd,nd->n", weights, weights))[:, None]
        return weights / np.maximum(norm_N1, LEAST_NORM)

    def block_logits(self, hidden_BD: np.ndarray, lo: int, hi: int, out_BC: np.ndarray) -> None:
        """Write the logits of the classes lo to hi - 1 to ``out_BC``. Rows must be current."""
        bias, weights = _as_tensor(self.table.bias_view[lo:hi]), _as_tensor(self.table.weights[lo:hi])
        if self.scale is None:
            torch.addmm(bias, _as_tensor(hidden_BD), weights.t(), out=_as_tensor(out_BC))
            return
        hidden_BD = Directions(hidden_BD, self.scale).scaled_BD
        norm = torch.linalg.vector_norm(weights, dim=1).clamp_min(float(LEAST_NORM))
        torch.mm(_as_tensor(hidden_BD), weights.t(), out=_as_tensor(out_BC)).div_(norm).add_(bias)

    def cross_entropy(self, hidden_BD: np.ndarray, target_B: np.ndarray, *, by_magnitude: bool = False) -> np.ndarray:
        """Return -log softmax over all classes of each row's target, (B,) float64 in nats.

        ``by_magnitude``: take absolute logits. Exponentials are float32; sums over classes and all after them are
        float64. A result is not finite if a logit of its row is not. Rows must be current (``table.read``).
        """
        rows = len(hidden_BD)
        top_B = np.full(rows, -np.inf)
        sum_B, target_logit_B = np.zeros(rows), np.zeros(rows)
        for lo, hi in self.blocks(rows):
            logits_BC = np.empty((rows, hi - lo), dtype=np.float32)
            self.block_logits(hidden_BD, lo, hi, logits_BC)
            logits = _as_tensor(logits_BC)
            if by_magnitude:
                logits.abs_()
            here = np.flatnonzero((target_B >= lo) & (target_B < hi))
            target_logit_B[here] = logits_BC[here, target_B[here] - lo]
            highest = logits.max(dim=1).values
            logits.sub_(highest[:, None]).exp_()
            block_sum_B, highest_B = logits.sum(dim=1, dtype=torch.float64).numpy(), highest.double().numpy()
            new_top_B = np.maximum(top_B, highest_B)
            with np.errstate(invalid="ignore"):  # logits that are not finite give nan, on purpose
                sum_B = sum_B * np.exp(top_B - new_top_B) + block_sum_B * np.exp(highest_B - new_top_B)
            top_B = new_top_B
        with np.errstate(invalid="ignore"):
            return top_B - target_logit_B + np.log(sum_B)

    def largest(self, hidden_BD: np.ndarray, k: int, *, ranked: bool = True, by_magnitude: bool = False) -> np.ndarray:
        """Return the ids of the k largest logits, (B, k) int32; of equal logits the lower id wins.

        They are best first, or by ascending id if not ``ranked``. ``by_magnitude``: compare absolute values. Rows must
        be current (``table.read``).
        """
        rows = len(hidden_BD)
        width = 2 * k + 64
        values = np.empty((rows, width), dtype=np.float32)
        ids = np.empty((rows, width), dtype=np.int32)
        count = np.zeros(rows, dtype=np.int64)
        bar = np.full(rows, -np.inf, dtype=np.float32)
        for lo, hi in self.blocks(rows):
            logits = np.empty((rows, hi - lo), dtype=np.float32)
            self.block_logits(hidden_BD, lo, hi, logits)
            if by_magnitude:
                np.abs(logits, out=logits)
            topk_kernels.fold_block(logits, lo, k, values, ids, count, bar)
        out = np.empty((rows, k), dtype=np.int32)
        topk_kernels.finish(values, ids, count, k, ranked, out)
        return out

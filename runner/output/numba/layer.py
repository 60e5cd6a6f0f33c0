"""Score proposals against the class matrix, rank all classes exactly, and take the exact cross-entropy, on a CPU.

Legend: B rows of a batch, D hidden size, N classes, C classes of a block, K classes of each row, U distinct rows.
"""

from typing import Any

import numpy as np
import torch

from runner.contracts import LARGEST_OUTPUT, Everything, Proposal, Query
from runner.kernels import topk as topk_kernels
from runner.kernels.rows import LEAST_NORM
from runner.kernels.scratch import Scratch
from runner.output.held_layer import HeldLayer
from runner.output.layer import Largest, Scores
from runner.output.numba.row_table import RowTable
from runner.output.numba.scores import Directions, score

_BLOCK_ELEMENTS = 2**22  # logits ranked together: 16 MB, about the size of a last-level cache


def blocks_of(lo: int, hi: int, num_rows: int) -> list[tuple[int, int]]:
    """Return ranges (first, end) of the classes lo to hi - 1 whose logits for ``num_rows`` rows make one block."""
    width = max(256, min(hi - lo, _BLOCK_ELEMENTS // max(1, num_rows)))
    return [(first, min(first + width, hi)) for first in range(lo, hi, width)]


def _as_tensor(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(array)


class NumbaLayer(HeldLayer[RowTable]):
    """Hold class vectors and biases in a ``RowTable``."""

    def __init__(self, table: RowTable, scale: float | None = None, **held: Any) -> None:
        super().__init__(table, scale, **held)
        self.least_norm = None if scale is None else LEAST_NORM
        self.scratch = Scratch()

    @property
    def part(self) -> "NumbaLayer":
        """Return the layer whose rows are held here."""
        return self

    # ------------------------------------------------------------ training

    def score(self, query: Query, proposal: Proposal | Everything, step: int) -> Scores:
        """Compute the logits of the batch's targets and candidates; call ``loss`` and then ``update`` on the result."""
        return score(self, query, proposal, step)

    # ------------------------------------------------------------ vectors

    def class_vectors(self, rows_U: np.ndarray | None = None) -> np.ndarray:
        """Return the vectors that logits are products with, (U, D) or of all rows.

        They are a copy if rows are given or vectors are normalised.
        """
        vectors = self.table.rows(rows_U)
        if self.scale is None:
            return vectors
        norm_N1 = np.sqrt(np.einsum("nd,nd->n", vectors, vectors))[:, None]
        return vectors / np.maximum(norm_N1, LEAST_NORM)

    def query_vectors(self, hidden_BD: np.ndarray) -> np.ndarray:
        """Return (B, D) vectors whose products with ``class_vectors`` are the logits without biases."""
        return hidden_BD if self.scale is None else Directions(hidden_BD, self.scale).scaled_BD

    # ------------------------------------------------------------ ranking; rows must be current

    def blocks(self, num_rows: int) -> list[tuple[int, int]]:
        """Return ranges (first, end) of the held classes whose logits for ``num_rows`` rows make one block."""
        return blocks_of(self.lo, self.hi, num_rows)

    def block_logits(self, hidden_BD: np.ndarray, lo: int, hi: int, out_BC: np.ndarray) -> None:
        """Write the logits of the held classes lo to hi - 1 to ``out_BC``."""
        here = slice(lo - self.lo, hi - self.lo)
        bias, weights = _as_tensor(self.table.biases()[here]), _as_tensor(self.table.rows()[here])
        if self.scale is None:
            torch.addmm(bias, _as_tensor(hidden_BD), weights.t(), out=_as_tensor(out_BC))
            return
        hidden_BD = Directions(hidden_BD, self.scale).scaled_BD
        norm = torch.linalg.vector_norm(weights, dim=1).clamp_min(float(LEAST_NORM))
        torch.mm(_as_tensor(hidden_BD), weights.t(), out=_as_tensor(out_BC)).div_(norm).add_(bias)

    def logits(self, hidden_BD: np.ndarray, class_BK: np.ndarray) -> np.ndarray:
        """Return the logits of some classes of each row, (B, K) float32."""
        row_BK = class_BK - self.lo
        here_BK = (row_BK >= 0) & (row_BK < self.hi - self.lo)
        row_BK = np.where(here_BK, row_BK, 0)
        vector_BKD = self.class_vectors(row_BK.reshape(-1)).reshape(*row_BK.shape, -1)
        logit_BK = np.einsum("bd,bkd->bk", self.query_vectors(hidden_BD), vector_BKD)
        logit_BK = (logit_BK + self.biases()[row_BK]).astype(np.float32)
        return self.across.sum(np.where(here_BK, logit_BK, np.float32(0)))

    def is_sound(self, hidden_BD: np.ndarray) -> bool:
        """Tell whether all logits for these hidden states are below ``LARGEST_OUTPUT``."""
        sound = True
        for lo, hi in self.blocks(len(hidden_BD)):
            logits = np.empty((len(hidden_BD), hi - lo), dtype=np.float32)
            self.block_logits(hidden_BD, lo, hi, logits)
            sound = sound and bool((np.abs(logits, out=logits) < LARGEST_OUTPUT).all())
        return bool(self.across.gather(np.array([sound])).all())

    def cross_entropy(self, hidden_BD: np.ndarray, target_B: np.ndarray, *, by_magnitude: bool = False) -> np.ndarray:
        """Return -log softmax over all classes of each row's target, (B,) float64 in nats.

        ``by_magnitude``: take absolute logits. Exponentials are float32; sums over classes and all after them are
        float64. A result is not finite if a logit of its row is not.
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
        target_logit_B = self.across.sum(target_logit_B)
        with np.errstate(invalid="ignore"):
            top_B, sum_B = self.across.log_sum_exp(top_B, sum_B)
            return np.asarray(top_B - target_logit_B + np.log(sum_B))

    def largest(self, hidden_BD: np.ndarray, k: int, *, ranked: bool = True, by_magnitude: bool = False) -> Largest:
        """Return the k largest logits of each row and their classes; of equal logits the lower id wins.

        They are best first, or by ascending id if not ``ranked``. ``by_magnitude``: compare absolute values, and return
        these.
        """
        rows, keep = len(hidden_BD), min(k, self.hi - self.lo)
        width = 2 * keep + 64
        values = np.empty((rows, width), dtype=np.float32)
        ids = np.empty((rows, width), dtype=np.int32)
        count = np.zeros(rows, dtype=np.int64)
        bar = np.full(rows, -np.inf, dtype=np.float32)
        for lo, hi in self.blocks(rows):
            logits = np.empty((rows, hi - lo), dtype=np.float32)
            self.block_logits(hidden_BD, lo, hi, logits)
            if by_magnitude:
                np.abs(logits, out=logits)
            topk_kernels.fold_block(logits, lo, keep, values, ids, count, bar)
        best_BK = np.empty((rows, keep), dtype=np.int32)
        topk_kernels.finish(values, ids, count, keep, ranked, best_BK)
        return Largest(*self.across.merge_top(best_BK, values[:, :keep], k, ranked=ranked))

"""Score proposals against the class matrix, rank all classes exactly, and take the exact cross-entropy, in tensors.

Legend: B rows of a batch, D hidden size, N classes, C classes of a block, K classes of each row, U distinct rows.
"""

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from runner.contracts import LARGEST_OUTPUT, Everything, Proposal, Query
from runner.output.across import ALONE, Across
from runner.output.held_layer import HeldLayer
from runner.output.layer import Largest
from runner.output.torch.arrays import array_of, ids_of, tensor_of
from runner.output.torch.directions import HiddenDirections, inverse_norms
from runner.output.torch.row_table import TorchRowTable
from runner.output.torch.scores import TorchScores, score

_LOW_32 = 2**32 - 1


class TorchLayer(HeldLayer[TorchRowTable]):
    """Hold class vectors and biases in a ``TorchRowTable``.

    Hidden states may be arrays or tensors. Results of training steps are what hidden states are; others are arrays.
    """

    @property
    def device(self) -> torch.device:
        """Return where the class matrix lies."""
        return self.table.device

    @property
    def part(self) -> "TorchLayer":
        """Return the layer whose rows are held here."""
        return self

    # ------------------------------------------------------------ training

    def score(self, query: Query, proposal: Proposal | Everything, step: int) -> TorchScores:
        """Compute the logits of the batch's targets and candidates; call ``loss`` and then ``update`` on the result."""
        return score(self, query, proposal, step)

    # ------------------------------------------------------------ vectors

    def blocks_of_rows(self, rows_U: np.ndarray | None, at_once: int) -> list[Tensor] | list[slice]:
        """Return rows of the table (None: all), so many at a time, as what tensors are indexed by; at least once."""
        if rows_U is None:
            end = self.hi - self.lo
            return [slice(lo, min(lo + at_once, end)) for lo in range(0, max(1, end), at_once)]
        return list(ids_of(rows_U, self.device).split(at_once))

    def rows_of(self, rows: Tensor | slice) -> Tensor:
        """Return rows of the table as they stand, (U, D); a view of a slice."""
        return self.table.weights[rows]

    def biases_of(self, rows: Tensor | slice) -> Tensor:
        """Return biases as they stand, in the shape of ``rows``."""
        return self.table.bias[rows]

    def vectors(self, rows: Tensor | slice) -> Tensor:
        """Return what hidden states are multiplied with: rows, or their directions; a view only of a plain slice."""
        vectors_UD = self.rows_of(rows)
        return vectors_UD if self.scale is None else vectors_UD * inverse_norms(vectors_UD)[:, None]

    def class_vectors(self, rows_U: np.ndarray | None = None) -> np.ndarray:
        """Return the vectors that logits are products with, (U, D) or of all rows."""
        return array_of(self.vectors(slice(self.hi - self.lo) if rows_U is None else ids_of(rows_U, self.device)))

    def queries(self, hidden_BD: np.ndarray | Tensor) -> Tensor:
        """Return (B, D) vectors whose products with ``vectors`` are the logits without biases."""
        hidden = tensor_of(hidden_BD, self.device, torch.float32)
        return hidden if self.scale is None else HiddenDirections(hidden, self.scale).scaled_BD

    def query_vectors(self, hidden_BD: np.ndarray) -> np.ndarray:
        """Return (B, D) vectors whose products with ``class_vectors`` are the logits without biases."""
        return array_of(self.queries(hidden_BD))

    # ------------------------------------------------------------ ranking; rows must be current

    def blocks(self, num_rows: int) -> list[tuple[int, int]]:
        """Return ranges (first, end) of the held classes whose logits for ``num_rows`` rows make one block."""
        elements = 2**25 if self.device.type == "cuda" else 2**22
        width = max(256, min(self.hi - self.lo, elements // max(1, num_rows)))
        return [(first, min(first + width, self.hi)) for first in range(self.lo, self.hi, width)]

    def block(self, queries_BD: Tensor, lo: int, hi: int) -> Tensor:
        """Return the logits of the held classes lo to hi - 1 for vectors of ``queries``, (B, C)."""
        here = slice(lo - self.lo, hi - self.lo)
        return torch.addmm(self.biases_of(here), queries_BD, self.vectors(here).t())

    def block_logits(self, hidden_BD: np.ndarray, lo: int, hi: int, out_BC: np.ndarray) -> None:
        """Write the logits of the classes lo to hi - 1 to ``out_BC``."""
        torch.from_numpy(out_BC).copy_(self.block(self.queries(hidden_BD), lo, hi))

    def logits(self, hidden_BD: np.ndarray, class_BK: np.ndarray) -> np.ndarray:
        """Return the logits of some classes of each row, (B, K) float32."""
        return array_of(self.listed(self.queries(hidden_BD), ids_of(class_BK, self.device)))

    def listed(self, queries_BD: Tensor, ids_BK: Tensor) -> Tensor:
        """Return the logits of some classes of each row for vectors of ``queries``, (B, K)."""
        here_BK = self.held.among(ids_BK)
        row_BK = torch.where(here_BK, ids_BK - self.lo, 0)
        vectors_BKD = self.vectors(row_BK.reshape(-1)).reshape(*ids_BK.shape, self.dim)
        logits_BK = torch.matmul(vectors_BKD, queries_BD[:, :, None])[:, :, 0] + self.biases_of(row_BK)
        return logits_BK if self.held.is_all else self.across.sum(torch.where(here_BK, logits_BK, 0))

    def is_sound(self, hidden_BD: np.ndarray) -> bool:
        """Tell whether all logits for these hidden states are below ``LARGEST_OUTPUT``."""
        queries_BD = self.queries(hidden_BD)
        parts = [
            (self.block(queries_BD, *block).abs_() < LARGEST_OUTPUT).all() for block in self.blocks(len(queries_BD))
        ]
        return self.across.all(bool(torch.stack(parts).all()))

    def cross_entropy(self, hidden_BD: np.ndarray, target_B: np.ndarray, *, by_magnitude: bool = False) -> np.ndarray:
        """Return -log softmax over all classes of each row's target, (B,) float64 in nats.

        ``by_magnitude``: take absolute logits. Exponentials are float32; sums over classes and all after them are
        float64. A result is not finite if a logit of its row is not.
        """
        queries_BD, ids_B = self.queries(hidden_BD), ids_of(target_B, self.device)
        rows = len(queries_BD)
        top_B = torch.full((rows,), -torch.inf, dtype=torch.float64, device=self.device)
        sum_B, target_logit_B = torch.zeros_like(top_B), torch.zeros_like(top_B)
        for lo, hi in self.blocks(rows):
            logits_BC = self.block(queries_BD, lo, hi)
            if by_magnitude:
                logits_BC.abs_()
            here_B = (ids_B >= lo) & (ids_B < hi)
            own_B = logits_BC.gather(1, (ids_B - lo).clamp(0, hi - lo - 1)[:, None])[:, 0]
            target_logit_B = torch.where(here_B, own_B.double(), target_logit_B)
            highest_B = logits_BC.amax(1)
            block_sum_B = logits_BC.sub_(highest_B[:, None]).exp_().sum(1, dtype=torch.float64)
            new_top_B = torch.maximum(top_B, highest_B.double())
            sum_B = sum_B * (top_B - new_top_B).exp() + block_sum_B * (highest_B.double() - new_top_B).exp()
            top_B = new_top_B
        top_B, sum_B = self.across.log_sum_exp(top_B, sum_B)
        return array_of(top_B - self.across.sum(target_logit_B) + sum_B.log())

    def top(self, hidden_BD: np.ndarray | Tensor, k: int, *, by_magnitude: bool = False) -> tuple[Tensor, Tensor]:
        """Return the ids (int64) and logits of the k largest logits of each row, best first; ties as in ``largest``."""
        queries_BD = self.queries(hidden_BD)

        def block(lo: int, hi: int) -> Tensor:
            logits_BC = self.block(queries_BD, lo, hi)
            return logits_BC.abs_() if by_magnitude else logits_BC

        return top_of(((lo, block(lo, hi)) for lo, hi in self.blocks(len(queries_BD))), k, self.across)

    def nearest(self, vectors_BD: Tensor, k: int) -> Tensor:
        """Return the ids of the classes with the k largest products with each vector, (B, k), best first; no biases."""

        def block(lo: int, hi: int) -> Tensor:
            return vectors_BD @ self.vectors(slice(lo - self.lo, hi - self.lo)).t()

        return top_of(((lo, block(lo, hi)) for lo, hi in self.blocks(len(vectors_BD))), k, self.across)[0]

    def largest(self, hidden_BD: np.ndarray, k: int, *, ranked: bool = True, by_magnitude: bool = False) -> Largest:
        """Return the k largest logits of each row and their classes; of equal logits the lower id wins.

        They are best first, or by ascending id if not ``ranked``. ``by_magnitude``: compare absolute values, and return
        these.
        """
        ids_BK, logits_BK = self.top(hidden_BD, k, by_magnitude=by_magnitude)
        if not ranked:
            ids_BK, order_BK = ids_BK.sort(dim=1)
            logits_BK = logits_BK.gather(1, order_BK)
        return Largest(array_of(ids_BK).astype(np.int32), array_of(logits_BK))


def top_of(blocks: Iterable[tuple[int, Tensor]], k: int, across: Across = ALONE) -> tuple[Tensor, Tensor]:
    """Return the ids (int64) and values of the k largest of each row, best first; of equal values the lower id wins.

    ``blocks``: the first id of each block held here, and its values (B, C). ``across``: all who hold blocks.
    """
    best_BK: Tensor | None = None
    for lo, values_BC in blocks:
        keys_BC = _keys(values_BC, lo)
        of_block_BK = keys_BC.topk(min(k, keys_BC.shape[1]), dim=1).values
        if best_BK is not None:
            both_BX = torch.cat([best_BK, of_block_BK], dim=1)
            of_block_BK = both_BX.topk(min(k, both_BX.shape[1]), dim=1).values
        best_BK = of_block_BK
    assert best_BK is not None
    if across.size > 1:
        lowest = torch.iinfo(torch.int64).min  # fills the places of a holder that has fewer than k
        padded_BK = torch.nn.functional.pad(best_BK, (0, k - best_BK.shape[1]), value=lowest)
        best_BK = torch.cat([*across.gather(padded_BK)], dim=1).topk(k, dim=1).values
    return _LOW_32 - (best_BK & _LOW_32), _values(best_BK)


def _keys(logits_BC: Tensor, lo: int) -> Tensor:
    """Return the keys of the classes lo, lo + 1, ... with these logits, (B, C) int64."""
    bits_BC = (logits_BC + 0.0).view(torch.int32)  # + 0 turns -0 into 0, which is equal to it
    ordered_BC = bits_BC ^ ((bits_BC >> 31) & 0x7FFFFFFF)
    ids_C = torch.arange(lo, lo + logits_BC.shape[1], device=logits_BC.device)
    return (ordered_BC.long() << 32) | (_LOW_32 - ids_C)


def _values(keys_BK: Tensor) -> Tensor:
    """Return the logits of keys, (B, K) float32."""
    ordered_BK = (keys_BK >> 32).int()
    return (ordered_BK ^ ((ordered_BK >> 31) & 0x7FFFFFFF)).view(torch.float32)

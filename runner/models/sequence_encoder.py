"""Encode windows of items as hidden states, by self-attention or by a gated recurrent network.

The windows of a batch lie one after another, the longest first. All parts of self-attention but attention itself treat
items alike, whatever window they are in. For attention, windows of similar length are laid side by side, filled from
the left, so that no item sees the empty cells, which all come after it. The recurrent
network steps through all windows at once, and windows that have ended take no part in a step.

Legend: B rows of a batch, S windows, T items of a window, X items of all windows, H heads, E size of an item's vector,
D hidden size.
"""

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import dropout
from torch.nn.utils.rnn import PackedSequence

from runner.models.same_bits import LayerNorm, causal_attention
from runner.models.token_encoder import TokenEncoder

if TYPE_CHECKING:
    from runner.data.sequences.batches import Grid, SequenceBatch


class Dropout(nn.Module):
    """Set a fraction of all numbers to 0 in training and multiply the others by 1 / (1 - fraction).

    This is torch's dropout with other draws: torch takes longer for them on a CPU than for all products of such small
    layers. They are NumPy's, by a generator that torch's seeds, with the fraction rounded to 1 / 65,536. On a GPU they
    are torch's.
    """

    def __init__(self, fraction: float) -> None:
        super().__init__()
        self.dropped = min(round(fraction * 65536), 65535)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.dropped == 0:
            return x
        if x.is_cuda:  # a mask made here would be copied there, several times a layer
            return dropout(x, self.dropped / 65536)
        generator = np.random.Generator(np.random.SFC64(int(torch.randint(2**62, ()))))
        kept = generator.integers(0, 65536, tuple(x.shape), dtype=np.uint16) >= self.dropped
        return x * torch.from_numpy(kept).to(x.device, x.dtype).mul_(65536 / (65536 - self.dropped))


class SelfAttention(nn.Module):
    """Map item vectors (X, E) to hidden states (X, E), each of which sees the items of its window up to itself."""

    def __init__(
        self, *, length: int, size: int, heads: int, feed_forward: int, layers: int, dropout: float, init: float
    ) -> None:
        super().__init__()
        self.positions = nn.Embedding(length, size)  # row 0 belongs to the newest item
        nn.init.normal_(self.positions.weight, std=init)
        self.drop = Dropout(dropout)
        self.layers = nn.ModuleList(
            _Layer(size=size, heads=heads, feed_forward=feed_forward, dropout=dropout) for _ in range(layers)
        )
        self.norm = LayerNorm(size)

    def forward(self, x_XE: Tensor, batch: "SequenceBatch") -> Tensor:
        place_X = torch.from_numpy(batch.place_from_end_X).to(x_XE.device)
        out = self.drop(x_XE * x_XE.shape[1] ** 0.5 + self.positions(place_X))
        for layer in self.layers:
            out = layer(out, batch.grids)
        return self.norm(out)


class _Layer(nn.Module):
    """Add attention and then a feed-forward part to each item, both normalised before."""

    def __init__(self, *, size: int, heads: int, feed_forward: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm_attention, self.norm_forward = LayerNorm(size), LayerNorm(size)
        self.into = nn.Linear(size, 3 * size)  # queries, keys and values
        self.out_of = nn.Linear(size, size)
        self.forward_part = nn.Sequential(
            nn.Linear(size, feed_forward), nn.ReLU(), Dropout(dropout), nn.Linear(feed_forward, size)
        )
        self.drop = Dropout(dropout)

    def forward(self, x_XE: Tensor, grids: "list[Grid]") -> Tensor:
        x_XE = x_XE + self.drop(self.out_of(self._attend(self.into(self.norm_attention(x_XE)), grids)))
        return x_XE + self.drop(self.forward_part(self.norm_forward(x_XE)))

    def _attend(self, mixed_X3E: Tensor, grids: "list[Grid]") -> Tensor:
        """Return the attended values (X, E) of queries, keys and values side by side (X, 3 E)."""
        size = mixed_X3E.shape[1] // 3
        dropout = self.dropout if self.training else 0.0
        outputs = []
        for grid in grids:
            part = mixed_X3E[grid.items]
            cell_X = torch.from_numpy(grid.cell_X).to(part.device)
            if not grid.is_full:
                part = part.new_zeros(grid.windows * grid.places, 3 * size).index_copy(0, cell_X, part)
            mixed = part.view(grid.windows, grid.places, 3, self.heads, size // self.heads).permute(2, 0, 3, 1, 4)
            query, key, value = mixed.unbind()
            attended = causal_attention(query, key, value, dropped=dropout)
            flat = attended.transpose(1, 2).reshape(-1, size)
            outputs.append(flat if grid.is_full else flat.index_select(0, cell_X))
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)


class Gru(nn.Module):
    """Map item vectors (X, E) to hidden states (X, E) by a recurrent network and a projection."""

    def __init__(self, *, size: int, hidden: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.drop = Dropout(dropout)
        self.gru = nn.GRU(size, hidden, layers, dropout=dropout if layers > 1 else 0.0)
        self.project = nn.Linear(hidden, size)

    def forward(self, x_XE: Tensor, batch: "SequenceBatch") -> Tensor:
        order_X, batch_sizes_T = step_order(batch.start_S, batch.length_S)
        order = torch.from_numpy(order_X).to(x_XE.device)
        packed = PackedSequence(self.drop(x_XE)[order], torch.from_numpy(batch_sizes_T))
        out = self.project(self.gru(packed)[0].data)
        back = torch.empty_like(order)
        back[order] = torch.arange(len(order), device=order.device)
        return out[back]


def step_order(start_S: np.ndarray, length_S: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the order in which a recurrent network reads the items, and how many windows take part in each step.

    ``start_S``, ``length_S``: where each window begins, and its length; lengths descend. The first result is (X,)
    int64: the first items of all windows, then the second items of all that have one, and so on. The second is (T,)
    int64.
    """
    longest = int(length_S[0])
    windows_T = np.searchsorted(-length_S, -np.arange(longest), side="left")  # windows longer than t
    order_X = np.concatenate([start_S[:windows] + step for step, windows in enumerate(windows_T)])
    return order_X, windows_T.astype(np.int64)


Module = SelfAttention | Gru


class SequenceEncoder(TokenEncoder[Module]):
    """Encode windows of items as hidden states of size ``dim``, one for each row of the batch."""

    def tokens(self, batch: "SequenceBatch") -> np.ndarray:
        return batch.items_X

    def run(self, vectors: Tensor, batch: "SequenceBatch") -> Tensor:
        """Return the hidden states of the rows: of every item, or of every window's last item."""
        hidden_XD = self.module(vectors, batch)
        if batch.only_last:
            return hidden_XD[torch.from_numpy(batch.start_S + batch.length_S - 1).to(hidden_XD.device)]
        return hidden_XD

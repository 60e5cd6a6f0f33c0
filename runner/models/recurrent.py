"""Encode windows of words as hidden states, by an LSTM or a Transformer.

A recurrent state is carried from one training batch to the next; it is detached, so gradients end at the batch. It is
zero if a batch ``starts_anew``. It is part of ``state_dict``, so that a resumed run has the same bits.

Legend: B rows of a batch, T tokens of a row, E size of a word's vector, D hidden size, L layers.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from runner.models.same_bits import TransformerLayer
from runner.models.token_encoder import TokenEncoder
from runner.output.layer import Rows

if TYPE_CHECKING:
    from runner.data.text.batches import TextBatch

State = tuple[Tensor, ...]  # hidden and cell states of an LSTM, (L, B, D) each; empty for a transformer


# ---------------------------------------------------------------- modules


class Lstm(nn.Module):
    """Map word vectors (B, T, E) and a state to hidden states (B, T, D) and the state after them."""

    def __init__(self, *, embedding: int, hidden: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.drop = nn.Dropout(dropout)
        between = dropout if layers > 1 else 0.0
        self.lstm = nn.LSTM(embedding, hidden, layers, batch_first=True, dropout=between)

    def start(self, rows: int) -> State:
        """Return the zero state of so many rows."""
        shape = (self.lstm.num_layers, rows, self.lstm.hidden_size)
        nothing = next(self.lstm.parameters()).new_zeros(shape)
        return nothing, nothing.clone()

    def forward(self, x_BTE: Tensor, state: State) -> tuple[Tensor, State]:
        out_BTD, after = self.lstm(self.drop(x_BTE), state)
        return self.drop(out_BTD), after


class Transformer(nn.Module):
    """Map word vectors (B, T, E) to hidden states (B, T, E).

    Each token sees the tokens up to itself in its own row, and nothing of other batches.
    """

    def __init__(self, *, embedding: int, heads: int, feed_forward: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.scale = embedding**0.5  # word vectors have norm 1, positions sqrt(E / 2)
        self.drop = nn.Dropout(dropout)
        self.layers = nn.ModuleList(TransformerLayer(embedding, heads, feed_forward, dropout) for _ in range(layers))

    def start(self, rows: int) -> State:
        """Return the empty state."""
        return ()

    def forward(self, x_BTE: Tensor, state: State) -> tuple[Tensor, State]:
        length, size = x_BTE.shape[1:]
        out = self.drop(self.scale * x_BTE + positions(length, size).to(x_BTE.device))
        mask = nn.Transformer.generate_square_subsequent_mask(length, device=x_BTE.device)
        for layer in self.layers:
            out = layer(out, src_mask=mask, is_causal=True)
        return out, ()


def positions(length: int, size: int) -> Tensor:
    """Return the vectors of positions, (T, E) float32 (Vaswani et al. 2017, section 3.5).

    The first half of the columns holds sines, the second half cosines, of wavelengths from 2 pi to 10,000 x 2 pi.
    """
    half = (size + 1) // 2
    rate = 10_000.0 ** (-torch.arange(half) / half)
    angle = torch.arange(length)[:, None] * rate
    return torch.cat([angle.sin(), angle.cos()], dim=1)[:, :size]


Module = Lstm | Transformer


# ---------------------------------------------------------------- the encoder


class TextEncoder(TokenEncoder[Module]):
    """Encode windows of words as hidden states of size ``dim``, one for each word, window after window.

    ``init``: all weights of the module except those of layer norms start uniform in [-init, init]; None: by torch's
    rules. The other arguments are those of ``TokenEncoder``.
    """

    def __init__(
        self,
        make_module: Callable[[], Module],
        *,
        dim: int,
        init: float | None,
        words: Rows,
        owns_words: bool,
        seed: int,
    ) -> None:
        def make() -> Module:
            module = make_module()
            if init is not None:
                for part in module.modules():
                    if not isinstance(part, nn.LayerNorm):  # a layer norm must start as the identity
                        for parameter in part.parameters(recurse=False):
                            nn.init.uniform_(parameter, -init, init)
            return module

        super().__init__(make, dim=dim, words=words, owns_words=owns_words, seed=seed)
        self.carried: State = self.module.start(0)

    def tokens(self, batch: "TextBatch") -> np.ndarray:
        return batch.tokens_BT

    def run(self, vectors: Tensor, batch: "TextBatch") -> Tensor:
        """Return the hidden states (B T, D) of a batch; training goes on from the state before and carries its own."""
        state = self.carried if self.module.training else self.start(len(batch.tokens_BT))
        if batch.starts_anew:
            state = self.start(len(batch.tokens_BT))
        hidden, after = self.module(vectors, state)
        if self.module.training:
            self.carried = tuple(part.detach() for part in after)
        return hidden.reshape(-1, self.dim)

    # ------------------------------------------------------------ at test time

    def start(self, rows: int) -> State:
        """Return the state before any token."""
        return self.module.start(rows)

    def go_on(self, batch: "TextBatch", state: State) -> tuple[np.ndarray, State]:
        """Continue from a state of at least B rows; return hidden states (B T, D) float32 and the state after them.

        Nothing is remembered. Rows of the word vectors must be current.
        """
        rows = len(batch.tokens_BT)
        if batch.starts_anew:
            state = self.start(rows)
        state = tuple(part[:, :rows].contiguous() for part in state)
        self.module.eval()
        with torch.no_grad():
            hidden, after = self.module(self.vectors(batch), state)
        return hidden.reshape(-1, self.dim).cpu().numpy(), after

    # ------------------------------------------------------------ state

    def state_dict(self) -> dict[str, np.ndarray]:
        arrays = super().state_dict()
        if self.carried:
            arrays["carried"] = torch.stack(self.carried).cpu().numpy()
        return arrays

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        if self.carried:
            self.carried = tuple(torch.from_numpy(part.copy()).to(self.device) for part in state["carried"])
        super().load_state_dict(state)

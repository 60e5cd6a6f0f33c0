"""Encode words as hidden states: torch computes, and the weights are kept in row tables as in all models.

The network between words and classes is a ``torch.nn.Module``; torch's autograd computes its backward pass. Its
parameters are views into one ``RowTable``, so that optimizers, clipping, checkpoints and resuming work as for all other
weights. The word vectors are a ``RowTable`` of their own, or (tied) the class matrix. A step reads and updates only the
rows of its words.

A recurrent state is carried from one training batch to the next; it is detached, so gradients end at the batch. It is
zero if a batch ``starts_anew``. It is part of ``state_dict``, so that a resumed run has the same bits. On a CPU dropout
is a function of (seed, step); on a GPU, cuDNN itself draws the dropout between the layers of an LSTM. BLAS computes the
products, so numbers of runs with different numbers of threads agree only up to rounding.

On a GPU a copy of the module computes. Before each pass its parameters are copied from the module, and after it the
gradients are copied back, so weights and optimizers are the same wherever the module runs.

Legend: B rows of a batch, T tokens of a row, E size of a word's vector, D hidden size, U distinct words, L layers,
P parameters, R rows and C columns of the table of parameters, X tokens of a batch (B T). Hidden states and their
gradients have one row for each token: in ``grad_hidden_BD`` B counts all tokens.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from runner import rng
from runner.kernels.groups import group_by_id
from runner.models.parameters import Parameters, draws_of, gradient_of_words, load_states, states_of
from runner.optimizers import Gradient, OptimizerConfig, RowTable

if TYPE_CHECKING:
    from runner.data.text_batches import TextBatch

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
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(embedding, heads, feed_forward, dropout, activation="gelu", batch_first=True)
            for _ in range(layers)
        )

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


class TextEncoder:
    """Encode windows of words as hidden states of size ``dim``.

    ``make_module``: makes the module, with torch's random numbers. ``init``: all weights of the module except those of
    layer norms start uniform in [-init, init]; None: by torch's rules. ``words``: the word vectors (words, E).
    ``owns_words``: false if the output layer uses them too (tied).
    """

    def __init__(
        self,
        make_module: Callable[[], Module],
        *,
        dim: int,
        init: float | None,
        words: RowTable,
        owns_words: bool,
        optimizer: OptimizerConfig,
        seed: int,
    ) -> None:
        self.make_module = make_module
        self.dim = dim
        self.seed = seed
        self.words, self.owns_words = words, owns_words
        with draws_of(seed, rng.MODULE_INIT):
            self.module = make_module()
            if init is not None:
                for part in self.module.modules():
                    if not isinstance(part, nn.LayerNorm):  # a layer norm must start as the identity
                        for parameter in part.parameters(recurse=False):
                            nn.init.uniform_(parameter, -init, init)
        self.parameters = Parameters(self.module.parameters(), optimizer)
        self.working = self.module  # the module that computes: this one, or its copy on another device
        self.tables: Sequence[RowTable] = (self.parameters.table, *((words,) if owns_words else ()))
        self.dense: Sequence[np.ndarray] = ()
        self.carried: State = self.module.start(0)

    # ------------------------------------------------------------ where it computes

    def move_to(self, device: torch.device) -> None:
        """Compute on ``device`` from now on, with a copy of the module there."""
        self.working = self.make_module().to(device)
        self.carried = self.working.start(0)

    @property
    def _device(self) -> torch.device:
        return next(self.working.parameters()).device

    def _bring_parameters(self) -> None:
        if self.working is not self.module:
            with torch.no_grad():
                for copy, parameter in zip(self.working.parameters(), self.module.parameters(), strict=True):
                    copy.copy_(parameter)

    def _bring_gradients_back(self) -> None:
        if self.working is not self.module:
            for copy, parameter in zip(self.working.parameters(), self.module.parameters(), strict=True):
                assert copy.grad is not None
                assert parameter.grad is not None
                parameter.grad.copy_(copy.grad)
                copy.grad = None

    # ------------------------------------------------------------ at test time

    def start(self, rows: int) -> State:
        """Return the state before any token."""
        return self.working.start(rows)

    def go_on(self, batch: "TextBatch", state: State) -> tuple[np.ndarray, State]:
        """Continue from a state of at least B rows; return hidden states (B T, D) float32 and the state after them.

        Nothing is remembered. Rows of the word vectors must be current.
        """
        rows = len(batch.tokens_BT)
        if batch.starts_anew:
            state = self.start(rows)
        state = tuple(part[:, :rows].contiguous() for part in state)
        self._bring_parameters()
        self.working.eval()
        with torch.no_grad():
            hidden, after = self.working(torch.from_numpy(self.words.weights[batch.tokens_BT]).to(self._device), state)
        return hidden.reshape(-1, self.dim).cpu().numpy(), after

    def encode(self, batch: "TextBatch") -> np.ndarray:
        """Return hidden states (B T, D) float32 of rows that have no tokens before them.

        Rows of the word vectors must be current.
        """
        return self.go_on(batch, self.start(len(batch.tokens_BT)))[0]

    # ------------------------------------------------------------ training

    def forward(self, batch: "TextBatch", step: int) -> np.ndarray:
        """Return hidden states (B T, D) float32, row after row of the batch."""
        tokens = batch.tokens_BT.reshape(-1)
        self._groups = group_by_id(tokens, len(self.words.weights))
        if self.owns_words:
            self.words.before_step(step)
            self.words.read_for_update(self._groups[1], step)
        else:
            # This reads moments too, because the output layer may or may not read these rows later in the step.
            self.words.read(self._groups[1], step)
        if batch.starts_anew:
            self.carried = self.start(len(batch.tokens_BT))
        self._x = torch.from_numpy(self.words.weights[batch.tokens_BT]).to(self._device).requires_grad_()
        self._bring_parameters()
        self.working.train()
        with draws_of(self.seed, rng.DROPOUT, step):
            hidden, after = self.working(self._x, self.carried)
        self.carried = tuple(part.detach() for part in after)
        self._hidden = hidden.reshape(-1, self.dim)
        return self._hidden.detach().cpu().numpy()

    def backward(self, grad_hidden_BD: np.ndarray, step: int) -> None:
        """Update the parameters and the vectors of the batch's words, which must be the encoder's own."""
        assert self.owns_words, "tied rows are updated once per step, by the gradients of both their uses"
        for gradient in self.gradients(grad_hidden_BD, step):
            gradient.apply(step)

    def gradients(self, grad_hidden_BD: np.ndarray, step: int) -> list[Gradient]:
        """Return the gradients of the parameters and of the batch's words."""
        self.parameters.grad_RC.fill(0)
        self._hidden.backward(torch.from_numpy(grad_hidden_BD).to(self._device))
        self._bring_gradients_back()
        grad_x = self._x.grad
        assert grad_x is not None
        grad_XE = grad_x.cpu().numpy().reshape(-1, grad_x.shape[-1])
        del self._hidden, self._x
        return [self.parameters.gradient(), gradient_of_words(self.words, self._groups, grad_XE, step)]

    # ------------------------------------------------------------ state

    @property
    def _held(self) -> dict[str, RowTable]:
        held = {"module": self.parameters.table}
        return {**held, "words": self.words} if self.owns_words else held

    def state_dict(self) -> dict[str, np.ndarray]:
        arrays = states_of(self._held)
        if self.carried:
            arrays["carried"] = torch.stack(self.carried).cpu().numpy()
        return arrays

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        if self.carried:
            self.carried = tuple(torch.from_numpy(part.copy()).to(self._device) for part in state["carried"])
        load_states(self._held, state)

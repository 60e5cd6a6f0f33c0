"""Let several processes encode a part of each batch, and train one encoder of which each has all the weights.

A process encodes its own examples, and the processes gather the hidden states of all. The gradient of all hidden states
is cut to the rows of its own examples; the gradients of the weights that come from them are summed over the processes,
and every process takes the same step. Numbers that are summed and then sent, or added in one order everywhere, have the
same bits on all processes, which are compared now and then.

A step sends, for each process, 4 B D / H bytes of hidden states (padded to the most rows that a process has), 4 bytes
for each number of a dense weight, and 4 (E + 1) bytes for each input row of size E that occurs in its examples (padded
likewise).

Legend: B rows of a batch, D hidden size, H processes, E examples of a batch.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, Self, cast

import numpy as np

from runner.contracts import Batch, Passed
from runner.errors import require
from runner.models.base import Encoder
from runner.output.across import Across
from runner.output.agreement import check_same_weights
from runner.output.gradients import Gradient, SummableGradient
from runner.output.layer import Rows

_CARRIED, _AXIS = "carried", 2
"""The state that goes on in the next batch (``models.recurrent``), and its axis of the batch's examples."""


class Divisible(Batch, Protocol):
    """Describe a batch that can be cut between its examples."""

    @property
    def first_row_E1(self) -> np.ndarray:
        """Return where the rows of each example begin, and where the last ones end, (E + 1,) int64."""

    def part(self, lo: int, hi: int) -> Self:
        """Return the batch of the examples lo to hi - 1."""


def bounds_of(first_row_E1: np.ndarray, parts: int) -> np.ndarray:
    """Return where each part's examples begin, and where the last ones end, (parts + 1,) int64.

    The parts have about as many rows each; if there are fewer examples than parts, some have none.
    """
    wanted = -(-first_row_E1[-1] * np.arange(parts + 1) // parts)
    bounds = np.searchsorted(first_row_E1, wanted)
    bounds[-1] = len(first_row_E1) - 1  # examples without rows may come last
    return bounds


def _encoded(bounds: np.ndarray, place: int) -> tuple[int, int]:
    """Return the first example that a process encodes, and the one after its last."""
    lo, hi = int(bounds[place]), int(bounds[place + 1])
    return (lo, hi) if lo < hi else (0, 1)


class SplitBatch:
    """Be an encoder that encodes its part of each training batch by ``encoder``, and learns from all parts.

    A process without an example encodes the first one, sends nothing of it, and has zero gradients.
    """

    def __init__(self, encoder: Encoder, across: Across) -> None:
        self.encoder, self.across = encoder, across
        self._examples_H = np.zeros(across.size, dtype=np.int64)  # of the last batch
        if hasattr(encoder, "part"):
            encoder.part = across.place

    @property
    def tables(self) -> Sequence[Rows]:
        return self.encoder.tables

    @property
    def dense(self) -> Sequence[np.ndarray]:
        return self.encoder.dense

    def encode(self, batch: Any) -> np.ndarray:
        return self.encoder.encode(batch)

    def forward(self, batch: Divisible, step: int) -> Passed:
        first_row_E1, place = batch.first_row_E1, self.across.place
        bounds = bounds_of(first_row_E1, self.across.size)
        self._examples_H = np.diff(bounds)
        rows = first_row_E1[bounds]
        self._own = slice(int(rows[place]), int(rows[place + 1]))
        part = batch.part(*_encoded(bounds, place))
        self._idle = part.num_rows if bounds[place] == bounds[place + 1] else 0
        hidden_OD = self.encoder.forward(part, step)
        return self.across.concatenate(hidden_OD[: rows[place + 1] - rows[place]], np.diff(rows))

    def backward(self, grad_hidden_BD: Passed, step: int) -> None:
        for gradient in self.gradients(grad_hidden_BD, step):
            gradient.apply(step)

    def gradients(self, grad_hidden_BD: Passed, step: int) -> list[Gradient]:
        """Return the gradients of all weights by the whole batch, instead of applying them."""
        grad_OD = 0 * grad_hidden_BD[: self._idle] if self._idle else grad_hidden_BD[self._own]
        own = self.encoder.gradients(grad_OD, step)
        for gradient in own:
            require(
                hasattr(gradient, "summed"),
                f"hardware.batch=split: {type(self.encoder).__name__} has gradients ({type(gradient).__name__}) that"
                " cannot be summed over processes (`summed`); take hardware.batch=whole",
            )
        gradients = [cast(SummableGradient, gradient).summed(self.across, step) for gradient in own]
        check_same_weights(self.across, gradients, self.dense, step)
        return gradients

    # ------------------------------------------------------------ state

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return the encoder's state; what its examples carry to the next batch is gathered from all processes."""
        state = self.encoder.state_dict()
        if _CARRIED in state and self._examples_H.any():
            own = state[_CARRIED][:, :, : self._examples_H[self.across.place]]
            state[_CARRIED] = self.across.concatenate(own, self._examples_H, axis=_AXIS)
        return state

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        if _CARRIED in state:
            whole = state[_CARRIED]
            bounds = bounds_of(np.arange(whole.shape[_AXIS] + 1), self.across.size)
            self._examples_H = np.diff(bounds)
            lo, hi = _encoded(bounds, self.across.place)
            state = {**state, _CARRIED: whole[:, :, lo:hi]}
        self.encoder.load_state_dict(state)

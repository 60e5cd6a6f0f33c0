"""Say what training asks of a head, which turns an encoder's hidden states into losses, and losses into gradients.

Legend: B rows of a batch, D hidden size, U distinct rows of a table.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from runner.machine.clock import StageClock
from runner.output.layer import RowGradient, Rows

Touched = Callable[[], np.ndarray]
"""A function that tells which rows moved, ascending int32; where they are known to a GPU, calling it waits for it."""


class Head(Protocol):
    """Turn an encoder's hidden states into losses, and losses into gradients.

    A subclass without tables that follow weights, and without settings that read ``auto``, inherits what says so.
    ``build_seconds``: how long the head took to make tables from the untrained weights.
    """

    build_seconds: float = 0.0

    @property
    def tables(self) -> Sequence[Rows]:
        """Return the head's weights, as tables of rows."""

    def score(self, hidden_BD: np.ndarray, batch: Any, step: int, clock: StageClock) -> "HeadScores":
        """Propose, correct, score and take the loss of a training step (1-based)."""

    def refresh(self, scores: "HeadScores", touched: Touched, step: int, clock: StageClock) -> None:
        """Bring tables up to the weights at the end of ``step``, which applied the gradients of ``scores``.

        ``touched``: tells the rows of its table that moved, the encoder's gradient among the reasons.
        """
        return

    def agrees(self, flag: bool) -> bool:
        """Tell whether a flag is true for all processes that hold the head together."""
        return flag

    def is_sound(self, hidden_BD: np.ndarray) -> bool:
        """Tell whether all outputs for these hidden states are below ``LARGEST_OUTPUT``. Rows must be current."""

    @property
    def chosen(self) -> Mapping[str, str]:
        """Return what settings that read ``auto`` became, by key."""
        return {}

    def about(self) -> dict[str, Any]:
        """Return what a run's summary tells of the head."""
        return {}

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return weights, optimizer state and tables, by name."""

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore what ``state_dict`` returned."""


class HeadScores(Protocol):
    """Hold a batch after its losses and before its update. Call either ``update`` or ``gradients``, once."""

    @property
    def loss(self) -> float:
        """Return the batch's loss, the weighted sum of its rows' losses."""

    @property
    def candidates_per_row(self) -> float:
        """Return the mean number of classes that a row was compared with; 0 for a head without classes."""

    @property
    def touched_U(self) -> np.ndarray:
        """Return the distinct rows of the head's table that its own update moves, ascending int32."""

    def update(self) -> np.ndarray:
        """Apply the head's gradients; return the gradient of the hidden states (B, D)."""

    def gradients(self) -> tuple[RowGradient, np.ndarray]:
        """Return the head's gradient, without applying it, and that of the hidden states (B, D)."""

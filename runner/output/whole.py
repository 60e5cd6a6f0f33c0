"""Ask for any class of a class matrix that several processes hold together, as if one held it.

Samplers that follow vectors, measures and evaluation ask this way. Every rank asks the same at the same time: rows are
then sent by who holds them. Scores, steps and state are those of the part that is held.

Legend: B rows of a batch, D hidden size, N classes, U chosen classes, C classes of a block, K classes of a row.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from runner.contracts import Everything, Proposal, Query
from runner.output.across import block_of
from runner.output.held import Held
from runner.output.layer import Largest, Layer
from runner.output.numba.layer import blocks_of


def made_by_holders(part: Layer, classes_U: np.ndarray | None, of_rows: Callable[[Any], Any], axis: int) -> Any:
    """Return what each holder's ``of_rows`` makes of the rows that it holds, joined (``Layer.of_classes``)."""
    across = part.across
    ends_H = np.array([block_of(part.num_classes, place, across.size)[1] for place in range(across.size)])
    if classes_U is None:
        return across.concatenate(of_rows(None), np.diff(ends_H, prepend=0), axis)
    sizes_H = np.diff(np.searchsorted(classes_U, ends_H), prepend=0)
    return across.concatenate(of_rows(part.held.rows(classes_U)), sizes_H, axis)


class WholeLayer:
    """Answer for all classes with the help of the other ranks (``output.layer.Layer``)."""

    def __init__(self, part: Any) -> None:
        self._part, self.across = part, part.across
        self.num_classes, self.dim, self.scale = part.num_classes, part.dim, part.scale
        self.lo, self.hi = 0, part.num_classes
        self.held = Held(lo=0, hi=self.hi, num_classes=self.num_classes)
        self.table: Any = WholeTable(self)

    # ------------------------------------------------------------ what is held here

    @property
    def part(self) -> Any:
        return self._part

    def score(self, query: Query, proposal: Proposal | Everything, step: int) -> Any:
        return self.part.score(query, proposal, step)

    def state_dict(self) -> dict[str, Any]:
        return self.part.state_dict()

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        self.part.load_state_dict(state)

    def read(self, rows_U: np.ndarray | None, step: int) -> None:
        self.part.read(None if rows_U is None else self.part.held.rows(rows_U), step)

    def of_classes(self, classes_U: np.ndarray | None, of_rows: Callable[[Any], Any], axis: int = 0) -> Any:
        return made_by_holders(self.part, classes_U, of_rows, axis)

    # ------------------------------------------------------------ vectors

    def _ask(self, rows_U: np.ndarray | None, held: Callable[[np.ndarray | None], np.ndarray]) -> np.ndarray:
        if rows_U is None:
            every: np.ndarray = self.of_classes(None, held)
            return every
        distinct, place_U = np.unique(rows_U, return_inverse=True)
        some: np.ndarray = self.of_classes(distinct, held)
        return some[place_U]

    def rows(self, rows_U: np.ndarray | None = None) -> np.ndarray:
        return self._ask(rows_U, self.part.rows)

    def biases(self, rows_U: np.ndarray | None = None) -> np.ndarray:
        return self._ask(rows_U, self.part.biases)

    def class_vectors(self, rows_U: np.ndarray | None = None) -> np.ndarray:
        return self._ask(rows_U, self.part.class_vectors)

    def query_vectors(self, hidden_BD: np.ndarray) -> np.ndarray:
        return self.part.query_vectors(hidden_BD)

    # ------------------------------------------------------------ ranking

    def blocks(self, num_rows: int) -> list[tuple[int, int]]:
        return blocks_of(self.lo, self.hi, num_rows)

    def block_logits(self, hidden_BD: np.ndarray, lo: int, hi: int, out_BC: np.ndarray) -> None:
        first, end = max(lo, self.part.lo), min(hi, self.part.hi)
        here_BC = np.zeros_like(out_BC)
        if first < end:
            logits = np.empty((len(hidden_BD), end - first), dtype=np.float32)
            self.part.block_logits(hidden_BD, first, end, logits)
            here_BC[:, first - lo : end - lo] = logits
        out_BC[...] = self.across.sum(here_BC)

    def logits(self, hidden_BD: np.ndarray, class_BK: np.ndarray) -> np.ndarray:
        return self.part.logits(hidden_BD, class_BK)

    def largest(self, hidden_BD: np.ndarray, k: int, *, ranked: bool = True, by_magnitude: bool = False) -> Largest:
        return self.part.largest(hidden_BD, k, ranked=ranked, by_magnitude=by_magnitude)

    def cross_entropy(self, hidden_BD: np.ndarray, target_B: np.ndarray, *, by_magnitude: bool = False) -> np.ndarray:
        return self.part.cross_entropy(hidden_BD, target_B, by_magnitude=by_magnitude)

    def is_sound(self, hidden_BD: np.ndarray) -> bool:
        return self.part.is_sound(hidden_BD)


class WholeTable:
    """Be what samplers and measures may ask of the table of all classes; it takes no steps.

    ``layer``: the whole layer, of either engine.
    """

    def __init__(self, layer: Any) -> None:
        self._layer, self._held = layer, layer.part.table
        self.engine, self.config = self._held.engine, self._held.config

    @property
    def shape(self) -> tuple[int, int]:
        return self._layer.num_classes, self._layer.dim

    @property
    def settling_steps(self) -> int:
        return self._held.settling_steps

    @property
    def lr(self) -> float:
        return self._held.lr

    def rows(self, rows_U: np.ndarray | None = None) -> np.ndarray:
        return self._layer.rows(rows_U)

    def biases(self, rows_U: np.ndarray | None = None) -> np.ndarray:
        return self._layer.biases(rows_U)

    def read(self, rows_U: np.ndarray | None, step: int) -> None:
        self._layer.read(rows_U, step)

    def frozen(self) -> AbstractContextManager[None]:
        return self._held.frozen()

    def caught_up(self, step: int) -> AbstractContextManager[None]:
        return self._held.caught_up(step)

"""Draw examples from the buckets of one hash table, the buckets in proportion to the gradients that they yielded.

The buckets of a table are a partition of the examples, whose cells hold vectors of like direction; each is cut further
by the vectors' norms. So the gradients within a cell are of like size whatever the weights are. A cell is drawn in
proportion to its size times the root mean square of its gradients' norms, which is the allocation of least variance
(Neyman 1934), and then one of its members. The chance of every example is known exactly, so the estimate is unbiased
with the tables at hand, and a draw costs O(1).

The mean squares are exact at the start; after that each drawn example corrects that of its cell.

Legend: X training examples, B examples of a step, M examples of several steps, C cells.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numba import njit

from runner import rng
from runner.contracts import Examples, View
from runner.kernels.norms import row_norms
from runner.lgd.base import BulkSampler, Draws, ExampleSamplerConfig
from runner.lgd.projections import MOST_BITS, SignProjections
from runner.options.fields import option
from runner.structures.alias_table import alias_table

_DRAWS_ALIKE = 16_384  # draws between two updates of the chances, unless the configuration says how many steps
_NORMS_RANKED = 10_000  # at least so many norms, if there are more, are ranked for the classes of norms
_RATE = 0.1  # weight of a new squared norm in the mean square of its cell


@njit(cache=True)
def _draw(seed, first_step, per_step, accept, alias, start, members, chance, rows, counts):
    """Set rows[m] to the draw number m % per_step of step first_step + m // per_step, counts[m] to its expected count.

    ``chance`` (C,): the chance of one draw to yield one member of each cell.
    """
    for m in range(rows.shape[0]):
        key = rng.stream(seed, rng.EXAMPLES, first_step + m // per_step, m % per_step)
        cell = rng.below(rng.word(key, 0), accept.shape[0])
        if rng.unit(rng.word(key, 1)) >= accept[cell]:
            cell = alias[cell]
        rows[m] = start[cell] + rng.below(rng.word(key, 2), start[cell + 1] - start[cell])
        counts[m] = per_step * chance[cell]
    for m in range(rows.shape[0]):  # in a second pass, so that these scattered reads overlap
        rows[m] = members[rows[m]]


@njit(cache=True)
def _sort(cell, cursor, members):
    """List the examples cell by cell; ``cursor`` (C,): where each cell begins, and afterwards where it ends."""
    for i in range(cell.shape[0]):
        members[cursor[cell[i]]] = i
        cursor[cell[i]] += 1


@njit(cache=True)
def _learn(rows, norms, cell_of, mean_square, rate):
    for m in range(rows.shape[0]):
        cell = cell_of[rows[m]]
        if np.isfinite(norms[m]):
            mean_square[cell] += rate * (norms[m] * norms[m] - mean_square[cell])


@dataclass(frozen=True, kw_only=True)
class LgdStrataConfig(ExampleSamplerConfig):
    """Cut the examples into cells by one hash table; draw cells in proportion to the gradients that they yielded."""

    needs_view: ClassVar[bool] = True
    needs_fixed_vectors: ClassVar[bool] = True
    name: str = "lgd_strata"
    K: int = option(8, "bits of the table; 0: cells by norm alone", low=0, high=MOST_BITS)
    norm_levels: int = option(8, "equally large classes of norms that every bucket is cut into", low=1, high=1024)
    uniform_share: float = option(
        0.1, "share of draws from all examples alike, whose inverse bounds every weight", above=0, below=1
    )
    refresh_every_steps: int | None = option(
        None, "steps between two updates of the cells' chances", null="as many as draw 16,384 examples", low=1
    )

    def build(self, *, examples: Examples, batch_size: int, seed: int) -> "LgdStrata":
        """Make the sampler."""
        return LgdStrata(self, examples, batch_size, seed)


class LgdStrata(BulkSampler):
    """Draw by an alias table over cells, then uniformly within the cell."""

    learns_norms = True
    _mean_square_C: np.ndarray
    _chance_C: np.ndarray

    def __init__(self, config: LgdStrataConfig, examples: Examples, batch_size: int, seed: int) -> None:
        self.config, self.examples, self.batch_size, self.seed = config, examples, batch_size, seed
        self._cell_X: np.ndarray | None = None
        self._restored: Mapping[str, np.ndarray] | None = None

    # ------------------------------------------------------------ cells

    def refresh(self, step: int, view: View | None = None) -> bool:
        """Give the cells chances by what was learnt, if that is due; step 0 makes the cells."""
        if self._cell_X is None:
            self.make_tables(view)
            return True
        if step % self._every:
            return False
        self._tabulate()
        return True

    def make_tables(self, view: View | None) -> None:
        """Make the cells if there are none: at the start of a run, or when it is resumed."""
        if self._cell_X is not None:
            return
        if self._restored is None:
            assert view is not None, "the task shows this sampler its examples"
            view.examples.bring_up(None, 0)
            self._set_cells(self._cells_of(view.examples.rows()))
            squares_X = view.gradient_norms() ** 2
            assert self._cell_X is not None
            self._mean_square_C = np.bincount(self._cell_X, squares_X) / self._size_C
            self._tabulate()
        else:
            self._set_cells(np.array(self._restored["cell"]))
            self._mean_square_C = np.array(self._restored["mean_square"], dtype=np.float64)
            self._tabulate(np.array(self._restored["chance"]))

    def _cells_of(self, matrix_XD: np.ndarray) -> np.ndarray:
        """Return the cell of each vector, (X,) int32; every cell has a vector."""
        config = self.config
        cell_X = np.zeros(len(matrix_XD), dtype=np.int64)
        if config.K > 0:
            family = SignProjections(dim=matrix_XD.shape[1], K=config.K, L=1, seed=self.seed, kind="gaussian")
            cell_X = family.hash_all(matrix_XD)[0].astype(np.int64)
        norm_X = row_norms(matrix_XD)
        some = norm_X[:: max(1, len(norm_X) // _NORMS_RANKED)]
        edges = np.quantile(some, np.linspace(0, 1, config.norm_levels + 1)[1:-1])
        cell_X = cell_X * config.norm_levels + np.searchsorted(edges, norm_X)
        is_there = np.bincount(cell_X, minlength=config.norm_levels << config.K) > 0
        return (np.cumsum(is_there) - 1)[cell_X].astype(np.int32)

    def _set_cells(self, cell_X: np.ndarray) -> None:
        self._cell_X = cell_X
        self._size_C = np.bincount(self._cell_X)
        self._start_C1 = np.concatenate([[0], np.cumsum(self._size_C)])
        self._members_X = np.empty(len(cell_X), dtype=np.int32)
        _sort(cell_X, self._start_C1[:-1].copy(), self._members_X)
        self._every = self.config.refresh_every_steps or max(1, _DRAWS_ALIKE // self.batch_size)

    def _tabulate(self, chance_C: np.ndarray | None = None) -> None:
        """Let the cells have these chances; None: those by sizes and mean squares."""
        if chance_C is None:
            weight_C = self._size_C * np.sqrt(self._mean_square_C)
            total, share = weight_C.sum(), self.config.uniform_share
            chance_C = self._size_C / self.examples.count
            if total > 0 and np.isfinite(total):  # otherwise there is no gradient, or the loss tells of an overflow
                chance_C = (1 - share) / total * weight_C + share * chance_C
        self._chance_C = chance_C
        self._accept_C, self._alias_C = alias_table(chance_C)

    # ------------------------------------------------------------ draws

    def draws(self, first_step: int, steps: int, view: View | None = None) -> Draws:
        """Return the draws of several steps."""
        self.make_tables(view)
        assert self._cell_X is not None
        rows_M = np.empty(steps * self.batch_size, dtype=np.int64)
        count_M = np.empty(len(rows_M), dtype=np.float64)
        _draw(
            self.seed, first_step, self.batch_size, self._accept_C, self._alias_C, self._start_C1, self._members_X,
            self._chance_C / self._size_C, rows_M, count_M,
        )  # fmt: skip
        return Draws(rows_M=rows_M, begin_S1=np.arange(steps + 1) * self.batch_size, count_M=count_M)

    def chances(self) -> np.ndarray:
        """Return each example's part of the chance of its cell."""
        assert self._cell_X is not None, "refresh(0, view) makes the cells"
        return (self._chance_C / self._size_C)[self._cell_X]

    def observe(self, rows_M: np.ndarray, norms_M: np.ndarray) -> None:
        """Correct the mean squares of the drawn examples' cells."""
        assert self._cell_X is not None
        _learn(rows_M, norms_M, self._cell_X, self._mean_square_C, _RATE)

    def steps_without_refresh(self, step: int) -> int:
        """Return the number of steps to the next new chances."""
        return self._every - (step - 1) % self._every

    # ------------------------------------------------------------ state

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return the cells, what was learnt of them, and their present chances."""
        if self._cell_X is None:
            return dict(self._restored or {})  # a resumed run may stop before its first step
        return {"cell": self._cell_X, "mean_square": self._mean_square_C, "chance": self._chance_C}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore what ``state_dict`` returned, when the sampler next gets a view."""
        self._cell_X = None
        self._restored = {name: np.array(array) for name, array in state.items()} or None

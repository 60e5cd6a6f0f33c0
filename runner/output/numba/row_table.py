"""Hold a matrix whose rows take steps one by one, and gradients of its rows that are computed but not applied yet.

Legend: R rows, D columns, N pairs of a row and a source, U distinct rows, B sources with a gradient, S all sources.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from runner.kernels import rows as kernels
from runner.optimizers.configs import AdaGradConfig, AdamConfig, OptimizerConfig, SgdConfig, of_parameters
from runner.output.across import Across
from runner.output.layer import RowGradient
from runner.output.row_policy import RowPolicy
from runner.output.row_sums import sizes_of, sum_of_rows

if TYPE_CHECKING:
    from torch import Tensor

_NOTHING = np.zeros(0, dtype=np.float32)


class RowTable(RowPolicy):
    """Hold an (R, D) float32 matrix with an optional bias per row, its Adam moments, and each row's last update.

    Under SGD the arrays of moments are empty. AdaGrad keeps its sums of squares in those of second moments. First
    moments of bfloat16 are their bits, uint16; second moments are (R, 1) where a row has one (``AdamConfig``).
    ``bias_moves``: if false, biases stay 0. For ``seed`` and ``number`` see ``RowPolicy``. Where a method gets
    ``least_norm``, it takes the rows' directions instead of the rows (see ``kernels.rows``).
    """

    def __init__(
        self,
        config: OptimizerConfig,
        weights_RD: np.ndarray,
        *,
        bias: bool,
        bias_moves: bool = True,
        seed: int = 0,
        number: int = 0,
    ) -> None:
        rows, columns = weights_RD.shape
        super().__init__(config, seed, number)
        self.weights = np.ascontiguousarray(weights_RD, dtype=np.float32)
        # Biases are a one-column matrix, so that the same code serves them; without biases their arrays are empty.
        self.bias = np.zeros((rows if bias else 0, 1), dtype=np.float32)
        firsts = rows if isinstance(config, AdamConfig) else 0
        seconds = 0 if isinstance(config, SgdConfig) else rows
        self.first = np.zeros((firsts, columns), dtype=np.uint16 if self.rounds else np.float32)
        self.second = np.zeros((seconds, 1 if self.has_row_moments else columns), dtype=np.float32)
        self.bias_first, self.bias_second = (
            np.zeros((moments if bias else 0, 1), dtype=np.float32) for moments in (firsts, seconds)
        )
        self.last_step = np.zeros(rows, dtype=np.int32)
        self._bias_moves = bias_moves

    @classmethod
    def over(cls, config: OptimizerConfig, weights_RD: np.ndarray, bias_R1: np.ndarray | None) -> "RowTable":
        """Return a table that steps these arrays in place; they must be float32, row by row."""
        assert weights_RD.dtype == np.float32
        assert weights_RD.flags.c_contiguous
        table = cls(config, weights_RD, bias=bias_R1 is not None)
        if bias_R1 is not None:
            table.bias = bias_R1
        return table

    @property
    def shape(self) -> tuple[int, int]:
        """Return the numbers of rows and columns."""
        rows, columns = self.weights.shape
        return rows, columns

    engine = "numba"

    def another(self, weights_RD: np.ndarray) -> "RowTable":
        """Return a table of other rows, without biases, under the same optimizer."""
        return RowTable(self.config, weights_RD, bias=False, seed=self.seed, number=self.number + 1)

    def of_parameters(self, weights_RD: np.ndarray) -> "RowTable":
        """Return a table of weights that are no vectors, each with moments of its own, under the same optimizer."""
        return RowTable(of_parameters(self.config), weights_RD, bias=False)

    @property
    def tensor(self) -> "Tensor":
        """Return all rows as they stand, (R, D), as a view."""
        import torch

        return torch.from_numpy(self.weights)

    def passed_on(self, values: "Tensor") -> np.ndarray:
        """Return numbers of a step as arrays, which is how this engine passes them from part to part."""
        return values.detach().numpy()

    def gradient_of(self, grad_RD: "Tensor") -> "RowTableGradient":
        """Return the gradient of all rows, which has no part for biases."""
        rows_R = np.arange(len(self.weights), dtype=np.int32)
        return RowTableGradient(table=self, rows_U=rows_R, grad_UD=grad_RD.numpy(), bias_grad_U=_NOTHING)

    def rows(self, rows_U: np.ndarray | None = None) -> np.ndarray:
        """Return these rows as they stand, (U, D) a copy; None: all rows, (R, D), as a view."""
        return self.weights if rows_U is None else self.weights[rows_U]

    def rows_at(self, rows_U: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the matrix and ``rows_U``, for kernels that read rows where they lie."""
        return self.weights, rows_U

    def biases(self, rows_U: np.ndarray | None = None) -> np.ndarray:
        """Return these biases as they stand, (U,) a copy; None: all, (R,), as a view. Without biases it is empty."""
        biases_R = self.bias[:, 0]
        return biases_R if rows_U is None else biases_R[rows_U]

    def write(
        self,
        rows_U: np.ndarray | None,
        *,
        vectors: np.ndarray | None = None,
        biases: np.ndarray | float | None = None,
    ) -> None:
        """Replace the vectors and biases of rows (None: all), by arrays of as many or by one for all; moments stay."""
        rows = slice(None) if rows_U is None else rows_U
        if vectors is not None:
            self.weights[rows] = vectors
        if biases is not None:
            self.bias[rows, 0] = biases

    def is_finite(self) -> bool:
        """Tell whether all rows and biases are finite."""
        return bool(np.isfinite(self.weights).all() and np.isfinite(self.bias).all())

    by_row: Collection[str] = ("weights", "first", "second", "last_step", "bias", "bias_first", "bias_second")
    """Names of the arrays of ``state_dict`` that have an entry for each row."""

    @property
    def _held(self) -> dict[str, np.ndarray]:
        held = {name: getattr(self, name) for name in self.by_row}
        return {name: array for name, array in held.items() if array.size}

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return weights, biases, moments and last steps by name, without those that are empty.

        ``drift``: sums over the steps that rows may have missed, once there are any (``Drift.state``).
        """
        if self.drift is None or self.drift.step == 0:
            return self._held
        return {**self._held, "drift": self.drift.state()}

    def forget_steps(self) -> None:
        """Mark every row as never updated, so that no read moves it; for weights that come without their history."""
        self.last_step[:] = 0

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore what ``state_dict`` returned."""
        for name, target in self._held.items():
            target[...] = state[name]
        if self.drift is not None and "drift" in state:
            self.drift.restore(state["drift"])

    @property
    def _arrays(self) -> tuple[np.ndarray, ...]:
        second = self.second.reshape(-1) if self.has_row_moments else self.second
        return self.weights, self.first, second, self.bias, self.bias_first, self.bias_second

    def _adam_scalars(self, step: int) -> tuple[Any, ...]:
        config = self.config
        if not isinstance(config, AdamConfig):
            return (*(np.float32(0),) * 5, None)  # the others do not use them
        return (
            np.float32(self._lr / (1 - config.beta1**step)),
            np.float32(config.beta1),
            np.float32(config.beta2),
            np.float32(1 / np.sqrt(1 - config.beta2**step)),
            np.float32(config.epsilon),
            self.rounding(step),
        )

    @property
    def _powers(self) -> tuple[np.ndarray, np.ndarray]:
        return (_NOTHING, _NOTHING) if self.drift is None else self.drift.powers

    def _lag(self, upto: int) -> tuple[Any, ...]:
        """Return ``upto``, the coefficients of ``Drift.until(upto)`` and ``rounding``."""
        upto, *sums = (0, _NOTHING, _NOTHING) if self.drift is None else (upto, *self.drift.until(upto))
        return upto, *sums, self.rounding(upto)

    @contextmanager
    def caught_up(self, step: int) -> Iterator[None]:
        """Hold the values before ``step`` in all rows for a while, and then leave the table as it was, bit by bit.

        Later steps then round as if nobody had looked: catching up at once or in two parts differs in the last bits.
        Takes a copy of the weights that lag.
        """
        upto = self._upto(step)
        if upto == 0:
            yield
            return
        rows_U = np.flatnonzero((self.last_step > 0) & (self.last_step < upto)).astype(np.int32)
        moved = [array for array in (self.weights, self.bias) if array.size]
        held = [array[rows_U] for array in moved]
        try:
            kernels.catch_up_weights(*self._arrays, rows_U, self.last_step, *self._lag(upto))
            with self.frozen():
                yield
        finally:
            for array, before in zip(moved, held, strict=True):
                array[rows_U] = before

    # ------------------------------------------------------------ before a step's gradients

    def read(self, rows_U: np.ndarray | None, step: int) -> None:
        """Bring rows (None: all) to their values before ``step``; do nothing unless the policy lets rows lag."""
        upto = self._upto(step)
        if upto == 0:
            return
        assert isinstance(self.config, AdamConfig), "rows lag under Adam only"
        if rows_U is None:
            rows_U = np.arange(self.weights.shape[0], dtype=np.int32)
        decay = (self.config.beta1, self.config.beta2, *self._powers)
        kernels.catch_up_rows(*self._arrays, rows_U, self.last_step, *self._lag(upto), *decay)

    def read_for_update(self, rows_U: np.ndarray, step: int) -> None:
        """Read distinct rows, each of which ``update_groups`` will update at the same step.

        The moments catch up in the update, so that they are written once, not twice.
        """
        upto = self._upto(step)
        if upto > 0:
            kernels.catch_up_weights(*self._arrays, rows_U, self.last_step, *self._lag(upto))

    def score_for_update(
        self,
        groups: tuple[np.ndarray, np.ndarray, np.ndarray],
        sources_BD: np.ndarray,
        pair_source_N: np.ndarray,
        logits_N: np.ndarray,
        step: int,
        least_norm: np.float32 | None = None,
    ) -> None:
        """Read the grouped rows as ``read_for_update`` does, and write the logits of their pairs in the same pass.

        ``groups``: the pairs grouped by row (``kernels.groups.group_by_id``). Pair n is the product of its row with
        ``sources_BD[pair_source_N[n]]``.
        """
        lag = (self.last_step, *self._lag(self._upto(step)))
        kernels.score_pairs(*self._arrays, *lag, sources_BD, *groups, pair_source_N, logits_N, least_norm)

    def score(
        self,
        groups: tuple[np.ndarray, np.ndarray, np.ndarray],
        sources_BD: np.ndarray,
        pair_source_N: np.ndarray,
        logits_N: np.ndarray,
        least_norm: np.float32 | None = None,
    ) -> None:
        """Write the logits of pairs whose rows are current; for the arguments see ``score_for_update``."""
        lag = (self.last_step, *self._lag(0))
        kernels.score_pairs(*self._arrays, *lag, sources_BD, *groups, pair_source_N, logits_N, least_norm)

    def before_step(self, step: int) -> None:
        """Under ``dense``, apply the previous step to the rows that it did not touch."""
        if self.config.rows == "dense":
            self.read(None, step)

    # ------------------------------------------------------------ gradients

    def update_groups(
        self,
        groups: tuple[np.ndarray, np.ndarray, np.ndarray],
        sources_SD: np.ndarray,
        pair_source_N: np.ndarray,
        grad_N: np.ndarray,
        source_grad_BD: np.ndarray,
        step: int,
        bias_grad_N: np.ndarray | None = None,
        least_norm: np.float32 | None = None,
    ) -> None:
        """Take a step with the grouped rows; see ``kernels.rows.update_groups``. Rows must have been read at this step.

        ``bias_grad_N``: gradient of the bias for each pair; None: ``grad_N``.
        """
        pairs = (groups, sources_SD, pair_source_N, grad_N, source_grad_BD, step, bias_grad_N, least_norm)
        if isinstance(self.config, AdamConfig):
            self._back_propagate(*pairs)
            self._hold_bias(groups[1])
        else:
            self.gradients_of_groups(*pairs).apply(step)

    def gradients_of_groups(
        self,
        groups: tuple[np.ndarray, np.ndarray, np.ndarray],
        sources_SD: np.ndarray,
        pair_source_N: np.ndarray,
        grad_N: np.ndarray,
        source_grad_BD: np.ndarray,
        step: int,
        bias_grad_N: np.ndarray | None = None,
        least_norm: np.float32 | None = None,
    ) -> "RowTableGradient":
        """Return the gradient that ``update_groups`` would apply; it must be applied at the same step."""
        distinct = len(groups[1])
        grad_UD = np.empty((distinct, self.weights.shape[1]), dtype=np.float32)
        bias_grad_U = np.empty(distinct, dtype=np.float32)
        pairs = (groups, sources_SD, pair_source_N, grad_N, source_grad_BD, step, bias_grad_N, least_norm)
        self._back_propagate(*pairs, grad_UD, bias_grad_U)
        return self._kept(groups[1], grad_UD, bias_grad_U)

    def _back_propagate(
        self,
        groups: tuple[np.ndarray, np.ndarray, np.ndarray],
        sources_SD: np.ndarray,
        pair_source_N: np.ndarray,
        grad_N: np.ndarray,
        source_grad_BD: np.ndarray,
        step: int,
        bias_grad_N: np.ndarray | None,
        least_norm: np.float32 | None,
        *into: np.ndarray,
    ) -> None:
        bias_grad_N = grad_N if bias_grad_N is None else bias_grad_N
        kernels.update_groups(
            *self._arrays, self.last_step, step, self._upto(step), *self._adam_scalars(step), *self._powers,
            sources_SD, *groups, pair_source_N, grad_N, bias_grad_N, source_grad_BD, least_norm, *into,
        )  # fmt: skip

    def update_all(self, kernel: Callable[..., None], step: int, *arguments: Any) -> None:
        """Take a step with every row by a kernel that computes the gradients; rows must be current (``read``)."""
        if isinstance(self.config, AdamConfig):
            kernel(*self._arrays, self.last_step, step, *self._adam_scalars(step), *arguments)
            self._hold_bias(slice(None))
        else:
            self.gradients_of_all(kernel, step, *arguments).apply(step)

    def _hold_bias(self, rows: np.ndarray | slice) -> None:
        """Reset the biases that an update changed but that must stay 0."""
        if not self._bias_moves:
            for array in (self.bias, self.bias_first, self.bias_second):
                array[rows] = 0

    def gradients_of_all(self, kernel: Callable[..., None], step: int, *arguments: Any) -> "RowTableGradient":
        """Return the gradient that ``update_all`` would apply. It takes as much memory as the matrix."""
        grad_RD, bias_grad_R = np.empty_like(self.weights), np.empty(len(self.weights), dtype=np.float32)
        scalars = self._adam_scalars(step)
        kernel(*self._arrays, self.last_step, step, *scalars, *arguments, grad_RD, bias_grad_R)
        return self._kept(np.arange(len(self.weights), dtype=np.int32), grad_RD, bias_grad_R)

    def _kept(self, rows_U: np.ndarray, grad_UD: np.ndarray, bias_grad_U: np.ndarray) -> "RowTableGradient":
        if not self._bias_moves:
            bias_grad_U[:] = 0
        return RowTableGradient(table=self, rows_U=rows_U, grad_UD=grad_UD, bias_grad_U=bias_grad_U)

    def apply(
        self, rows_U: np.ndarray, grad_UD: np.ndarray, bias_grad_U: np.ndarray, step: int, factor: float = 1.0
    ) -> None:
        """Take a step with distinct rows by gradients times ``factor``. Rows must have been read at this step."""
        if isinstance(self.config, AdamConfig):
            kernels.adam_rows(
                *self._arrays, self.last_step, step, self._upto(step), *self._adam_scalars(step), *self._powers,
                rows_U, grad_UD, bias_grad_U, np.float32(factor),
            )  # fmt: skip
        elif isinstance(self.config, AdaGradConfig):
            scalars = (np.float32(self._lr), np.float32(self.config.epsilon), np.float32(factor))
            kernels.adagrad_rows(
                self.weights, self.second, self.bias, self.bias_second, rows_U, grad_UD, bias_grad_U, *scalars
            )  # fmt: skip
        else:
            kernels.descend_rows(self.weights, self.bias, rows_U, grad_UD, bias_grad_U, np.float32(self._lr * factor))


@dataclass(frozen=True, kw_only=True)
class RowTableGradient:
    """Hold the gradient of distinct rows of a table (``rows_U`` ascending) and of their biases, if it has biases."""

    table: RowTable
    rows_U: np.ndarray
    grad_UD: np.ndarray
    bias_grad_U: np.ndarray

    def squared_norm(self) -> float:
        of_biases = kernels.squared_norm(self.bias_grad_U) if len(self.table.bias) else 0.0
        return float(kernels.squared_norm(self.grad_UD.reshape(-1)) + of_biases)

    def plus(self, other: RowGradient) -> "RowTableGradient":
        """Return the sum, over the rows of both. A gradient of all rows of the table is changed in place."""
        assert isinstance(other, RowTableGradient), "gradients of one table are of one kind"
        if len(self.rows_U) == len(self.table.weights):
            self.grad_UD[other.rows_U] += other.grad_UD
            if len(self.table.bias):
                self.bias_grad_U[other.rows_U] += other.bias_grad_U
            return self
        parts = (part for one in (self, other) for part in (one.rows_U, one.grad_UD, one.bias_grad_U))
        rows_U, grad_UD, bias_grad_U = kernels.add_rows(*parts)
        return RowTableGradient(table=self.table, rows_U=rows_U, grad_UD=grad_UD, bias_grad_U=bias_grad_U)

    def summed(self, across: Across, step: int) -> RowGradient:
        """Return the sum over all processes (``SummableGradient``). The table must have no biases."""
        sizes_H = sizes_of(self.rows_U, across)
        if (sizes_H == len(self.table.weights)).all():
            return replace(self, grad_UD=across.sum(self.grad_UD))
        return sum_of_rows(self.table, self.rows_U, self.grad_UD, sizes_H, across, step)

    def apply(self, step: int, factor: float = 1.0) -> None:
        self.table.apply(self.rows_U, self.grad_UD, self.bias_grad_U, step, factor)

"""Row optimizers: Adam and SGD over a matrix of which a step touches few rows.

Adam has three named policies for the rows that a step does not touch (their gradient is zero):

- ``dense``: every row takes every step, as ``torch.optim.Adam`` does; cost O(rows).
- ``touched``: untouched rows stand still (``torch.optim.SparseAdam``); cheap, but moments of rare rows never
  decay and their momentum is lost, so trajectories leave dense Adam's.
- ``catch_up``: untouched rows stand still in memory, and the zero-gradient steps they missed are applied in
  closed form when the row is next read: dense Adam's trajectory at the cost of ``touched``.

Under SGD, without momentum, a row without a gradient stands still by itself.

There are two ways to a step. ``update_groups`` and ``update_all`` make gradients and apply Adam in one pass over each
row. ``gradients_of_groups`` and ``gradients_of_all`` give a ``RowGradient`` instead, for those who want to add to it or
to know its norm before ``RowGradient.apply``.

BibTeX: @inproceedings{kingma2015adam, title={Adam: A Method for Stochastic Optimization},
author={Kingma, Diederik P. and Ba, Jimmy}, booktitle={ICLR}, year={2015}}
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import numpy as np

from runner.errors import require

# Last parts of the names under which ``state_dict`` methods give what only further training needs.
STATE_OF_TRAINING = ("first", "second", "last_step", "bias_first", "bias_second", "carried")
_NOTHING = np.zeros(0, dtype=np.float32)
_NEGLIGIBLE = 1e-12  # missed steps whose momentum has decayed to this share move a row by less than float32 can tell


@dataclass(frozen=True, kw_only=True)
class AdamConfig:
    """Adam; ``lr`` per step, ``rows`` one of the policies above."""

    name: str = "adam"
    lr: float = 3e-3
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    rows: Literal["dense", "touched", "catch_up"] = "catch_up"

    def __post_init__(self) -> None:
        require(self.lr > 0, "optimizer.lr must be above 0")
        require(0 <= self.beta1 < 1, "optimizer.beta1 must lie in [0, 1)")
        require(0 < self.beta2 < 1, "optimizer.beta2 must lie in (0, 1)")
        require(self.beta1 < self.beta2**0.5, "optimizer.beta1 must be below the root of optimizer.beta2")
        require(self.epsilon > 0, "optimizer.epsilon must be above 0")


@dataclass(frozen=True, kw_only=True)
class SgdConfig:
    """Stochastic gradient descent without momentum; ``lr`` per step."""

    rows: ClassVar[str] = "touched"  # no momentum: rows without a gradient stand still
    name: str = "sgd"
    lr: float = 1.0

    def __post_init__(self) -> None:
        require(self.lr > 0, "optimizer.lr must be above 0")


OptimizerConfig = AdamConfig | SgdConfig
OPTIMIZERS: dict[str, type] = {"adam": AdamConfig, "sgd": SgdConfig}


def _powers(beta: float) -> np.ndarray:
    """beta ** 0, 1, 2, ... (G,) float32, until nothing is left of it or 2^17 are listed; kernels compute the rest."""
    length = int(np.ceil(np.log(1e-37) / np.log(max(beta, 1e-37))))
    return (np.float64(beta) ** np.arange(1 + min(length, 1 << 17))).astype(np.float32)


class Drift:
    """What the zero-gradient Adam steps s+1..t do to a row last updated at step s.

    Step j moves an element by lr a_j m / (b_j sqrt(v) + epsilon), with m, v the moments at s,
    a_j = beta1^(j-s) / (1 - beta1^j) and b_j = sqrt(beta2^(j-s) / (1 - beta2^j)). With A = sum a_j and
    D = sum a_j / b_j the sum over j is, to second order in the spread of b_j,
    lr D m / (sqrt(v) + epsilon D / A): exact where epsilon is negligible and where it dominates. In between the
    spread matters in the first steps, when b_j changes fast: 3 % of the drift of a row last updated at step 1,
    under 0.1 % from step 500 on.
    """

    def __init__(self, config: AdamConfig) -> None:
        self.config = config
        self.lr = config.lr
        ratio = config.beta1 / config.beta2**0.5  # how the drift of missed steps shrinks from one to the next
        self.window = max(1, int(np.ceil(np.log(_NEGLIGIBLE) / np.log(ratio)))) if config.beta1 > 0 else 1
        self.step = 0
        self.drift = np.zeros(1024, dtype=np.float32)
        self.damping = np.zeros(1024, dtype=np.float32)
        self._weight = np.zeros(1024)  # A
        self._scaled = np.zeros(1024)  # D
        self.powers = (_powers(config.beta1), _powers(config.beta2))

    def until(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        """Coefficients (drift_S, damping_S) by last step, for all missed steps up to and including ``step``."""
        self.advance(step)
        return self.drift, self.damping

    def advance(self, step: int) -> None:
        """Extend the sums so that they cover missed steps up to and including ``step``."""
        config = self.config
        if step >= len(self.drift):
            grow = max(2 * len(self.drift), step + 1)
            for name in ("drift", "damping", "_weight", "_scaled"):
                old = getattr(self, name)
                new = np.zeros(grow, dtype=old.dtype)
                new[: len(old)] = old
                setattr(self, name, new)
        while self.step < step:
            self.step += 1
            j = self.step
            lo = max(1, j - self.window)
            gap = np.arange(j - lo, 0, -1, dtype=np.float64)  # j - s for s = lo .. j-1
            a = config.beta1**gap / (1 - config.beta1**j)
            b = np.sqrt(config.beta2**gap / (1 - config.beta2**j))
            self._weight[lo:j] += a
            self._scaled[lo:j] += a / b
            self.drift[lo:j] = self.lr * self._scaled[lo:j]
            moving = np.maximum(self._weight[lo:j], 1e-300)  # no momentum at all under beta1 = 0: any damping will do
            self.damping[lo:j] = np.maximum(config.epsilon * self._scaled[lo:j] / moving, 1e-30)


class RowTable:
    """A (rows, columns) float32 matrix with an optional bias per row, its Adam moments, and who was updated when.

    Under SGD the arrays of moments are empty.

    Legend: R rows, D columns, N pairs, U distinct rows, C rows of a block, B sources.
    ``bias_moves`` false: biases stay 0.
    ``least_norm`` of a method: rows stand for their directions (see ``kernels.rows``).
    """

    def __init__(self, config: OptimizerConfig, weights_RD: np.ndarray, *, bias: bool, bias_moves: bool = True) -> None:
        rows, columns = weights_RD.shape
        self.config = config
        self.weights = np.ascontiguousarray(weights_RD, dtype=np.float32)
        # A bias is a one-column matrix, so that the same code serves it; without one its arrays are empty.
        self.bias = np.zeros((rows if bias else 0, 1), dtype=np.float32)
        moments = rows if isinstance(config, AdamConfig) else 0
        self.first, self.second = (np.zeros((moments, columns), dtype=np.float32) for _ in range(2))
        self.bias_first, self.bias_second = (np.zeros((moments if bias else 0, 1), np.float32) for _ in range(2))
        self.last_step = np.zeros(rows, dtype=np.int32)
        self._bias_moves = bias_moves
        self.drift = Drift(config) if isinstance(config, AdamConfig) else None
        self._lr = config.lr
        self._is_frozen = False

    @property
    def lr(self) -> float:
        """Learning rate of the next step: the configuration's, unless it was set since."""
        return self._lr

    def set_lr(self, lr: float) -> None:
        """Change the learning rate from the next step on. Rows must be current: missed steps are all of one rate."""
        self._lr = lr
        if self.drift is not None:
            self.drift.lr = lr

    @property
    def bias_view(self) -> np.ndarray:
        """Biases (R,), a view."""
        return self.bias[:, 0]

    def state_dict(self) -> dict[str, np.ndarray]:
        names = ["weights", "first", "second", "last_step", "bias", "bias_first", "bias_second"]
        held = {name: getattr(self, name) for name in names}
        return {name: array for name, array in held.items() if array.size}

    def forget_steps(self) -> None:
        """Let every row be one that was never updated, so that no read moves it: for weights from elsewhere."""
        self.last_step[:] = 0

    def load_state_dict(self, state: dict[str, np.ndarray]) -> None:
        for name, target in self.state_dict().items():
            target[...] = state[name]

    @property
    def _arrays(self) -> tuple[np.ndarray, ...]:
        return self.weights, self.first, self.second, self.bias, self.bias_first, self.bias_second

    def _adam_scalars(self, step: int) -> tuple[np.float32, ...]:
        config = self.config
        if isinstance(config, SgdConfig):
            return (np.float32(0),) * 5  # nobody looks at them
        return (
            np.float32(self._lr / (1 - config.beta1**step)),
            np.float32(config.beta1),
            np.float32(config.beta2),
            np.float32(1 / np.sqrt(1 - config.beta2**step)),
            np.float32(config.epsilon),
        )

    @property
    def _powers(self) -> tuple[np.ndarray, np.ndarray]:
        return (_NOTHING, _NOTHING) if self.drift is None else self.drift.powers

    def _lag(self, upto: int) -> tuple[int, np.ndarray, np.ndarray]:
        """``upto`` and the drift of the steps up to there by last step."""
        return (0, _NOTHING, _NOTHING) if self.drift is None else (upto, *self.drift.until(upto))

    def _upto(self, step: int) -> int:
        """Rows are brought up to this step before they take part in ``step``; 0: they stay as they are."""
        return 0 if self._is_frozen or self.config.rows == "touched" else step - 1

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Meanwhile no read moves a row, so that steps can be tried that are never taken. Rows must be current."""
        before, self._is_frozen = self._is_frozen, True
        try:
            yield
        finally:
            self._is_frozen = before

    @property
    def settling_steps(self) -> int:
        """Steps after which an untouched row moves a thousand times less than at first."""
        config = self.config
        if isinstance(config, SgdConfig) or config.rows == "touched" or config.beta1 == 0:
            return 0
        return math.ceil(math.log(1e-3) / math.log(config.beta1))

    # ------------------------------------------------------------ before a step's gradients

    def read(self, rows_U: np.ndarray | None, step: int) -> None:
        """Bring rows (None: all) to their values before ``step``; a no-op unless the policy lets rows lag."""
        from runner.kernels.rows import catch_up_rows

        upto = self._upto(step)
        if upto == 0:
            return
        assert isinstance(self.config, AdamConfig), "rows lag under Adam only"
        if rows_U is None:
            rows_U = np.arange(self.weights.shape[0], dtype=np.int32)
        decay = (self.config.beta1, self.config.beta2, *self._powers)
        catch_up_rows(*self._arrays, rows_U, self.last_step, *self._lag(upto), *decay)

    def read_for_update(self, rows_U: np.ndarray, step: int) -> None:
        """``read`` of distinct rows, each of which ``update_groups`` will update at this very step.

        Saves writing the moments twice: they catch up in the update.
        """
        from runner.kernels.rows import catch_up_weights

        upto = self._upto(step)
        if upto > 0:
            catch_up_weights(*self._arrays, rows_U, self.last_step, *self._lag(upto))

    def score_for_update(
        self,
        groups: tuple[np.ndarray, np.ndarray, np.ndarray],
        sources_BD: np.ndarray,
        pair_source_N: np.ndarray,
        logits_N: np.ndarray,
        step: int,
        least_norm: np.float32 | None = None,
    ) -> None:
        """``read_for_update`` of the grouped rows and, in the same pass, the logits of their pairs."""
        from runner.kernels.rows import score_pairs

        lag = (self.last_step, *self._lag(self._upto(step)))
        score_pairs(*self._arrays, *lag, sources_BD, *groups, pair_source_N, logits_N, least_norm)

    def score(
        self,
        groups: tuple[np.ndarray, np.ndarray, np.ndarray],
        sources_BD: np.ndarray,
        pair_source_N: np.ndarray,
        logits_N: np.ndarray,
        least_norm: np.float32 | None = None,
    ) -> None:
        """Logits of pairs whose rows are current."""
        from runner.kernels.rows import score_pairs

        lag = (self.last_step, *self._lag(0))
        score_pairs(*self._arrays, *lag, sources_BD, *groups, pair_source_N, logits_N, least_norm)

    def before_step(self, step: int) -> None:
        """Under ``dense`` every row takes every step: apply what the previous step left out."""
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
        """A step of the grouped rows; see ``kernels.rows.update_groups``. Rows must have been read at this step.

        ``bias_grad_N``: per-pair gradient of the bias; default ``grad_N``.
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
    ) -> "RowGradient":
        """As ``update_groups``, but rows stay; the gradient must be applied at this very step."""
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
        from runner.kernels.rows import update_groups

        bias_grad_N = grad_N if bias_grad_N is None else bias_grad_N
        update_groups(
            *self._arrays, self.last_step, step, self._upto(step), *self._adam_scalars(step), *self._powers,
            sources_SD, *groups, pair_source_N, grad_N, bias_grad_N, source_grad_BD, least_norm, *into,
        )  # fmt: skip

    def update_all(self, kernel: Callable[..., None], step: int, *arguments: Any) -> None:
        """A step of every row by a kernel that makes the gradients itself; rows must be current, as by ``read``."""
        if isinstance(self.config, AdamConfig):
            kernel(*self._arrays, self.last_step, step, *self._adam_scalars(step), *arguments)
            self._hold_bias(slice(None))
        else:
            self.gradients_of_all(kernel, step, *arguments).apply(step)

    def _hold_bias(self, rows: np.ndarray | slice) -> None:
        """Undo what an update did to biases that are to stay 0."""
        if not self._bias_moves:
            for array in (self.bias, self.bias_first, self.bias_second):
                array[rows] = 0

    def gradients_of_all(self, kernel: Callable[..., None], step: int, *arguments: Any) -> "RowGradient":
        """As ``update_all``, but rows stay. Takes as much memory as the matrix."""
        grad_RD, bias_grad_R = np.empty_like(self.weights), np.empty(len(self.weights), dtype=np.float32)
        scalars = self._adam_scalars(step)
        kernel(*self._arrays, self.last_step, step, *scalars, *arguments, grad_RD, bias_grad_R)
        return self._kept(np.arange(len(self.weights), dtype=np.int32), grad_RD, bias_grad_R)

    def _kept(self, rows_U: np.ndarray, grad_UD: np.ndarray, bias_grad_U: np.ndarray) -> "RowGradient":
        if not self._bias_moves:
            bias_grad_U[:] = 0
        return RowGradient(table=self, rows_U=rows_U, grad_UD=grad_UD, bias_grad_U=bias_grad_U)

    def apply(
        self, rows_U: np.ndarray, grad_UD: np.ndarray, bias_grad_U: np.ndarray, step: int, factor: float = 1.0
    ) -> None:
        """A step of distinct rows by gradients times ``factor``. Rows must have been read at this step."""
        from runner.kernels.rows import adam_rows, descend_rows

        if isinstance(self.config, AdamConfig):
            adam_rows(
                *self._arrays, self.last_step, step, self._upto(step), *self._adam_scalars(step), *self._powers,
                rows_U, grad_UD, bias_grad_U, np.float32(factor),
            )  # fmt: skip
        else:
            descend_rows(self.weights, self.bias, rows_U, grad_UD, bias_grad_U, np.float32(self._lr * factor))


class Gradient(Protocol):
    """A gradient that is known but not applied yet."""

    def squared_norm(self) -> float:
        """Sum of its squares."""

    def apply(self, step: int, factor: float = 1.0) -> None:
        """Take the step, by ``factor`` times the gradient."""


@dataclass(frozen=True, kw_only=True)
class RowGradient:
    """Gradient of distinct rows of a table (``rows_U`` ascending) and, where it has biases, of these."""

    table: RowTable
    rows_U: np.ndarray
    grad_UD: np.ndarray
    bias_grad_U: np.ndarray

    def squared_norm(self) -> float:
        from runner.kernels.rows import squared_norm

        of_biases = squared_norm(self.bias_grad_U) if len(self.table.bias) else 0.0
        return float(squared_norm(self.grad_UD.reshape(-1)) + of_biases)

    def plus(self, other: "RowGradient") -> "RowGradient":
        """The sum, over the rows of both. Takes the place of the gradient where that is of every row."""
        if len(self.rows_U) == len(self.table.weights):
            self.grad_UD[other.rows_U] += other.grad_UD
            if len(self.table.bias):
                self.bias_grad_U[other.rows_U] += other.bias_grad_U
            return self
        rows_U = np.union1d(self.rows_U, other.rows_U)
        grad_UD = np.zeros((len(rows_U), self.grad_UD.shape[1]), dtype=np.float32)
        bias_grad_U = np.zeros(len(rows_U), dtype=np.float32)
        for part in (self, other):
            place = np.searchsorted(rows_U, part.rows_U)
            grad_UD[place] += part.grad_UD
            if len(self.table.bias):
                bias_grad_U[place] += part.bias_grad_U
        return RowGradient(table=self.table, rows_U=rows_U, grad_UD=grad_UD, bias_grad_U=bias_grad_U)

    def apply(self, step: int, factor: float = 1.0) -> None:
        self.table.apply(self.rows_U, self.grad_UD, self.bias_grad_U, step, factor)


def clipping_factor(gradients: Sequence[Gradient], largest_norm: float) -> float:
    """What gradients are multiplied with so that the norm of all together is at most ``largest_norm``.

    As ``torch.nn.utils.clip_grad_norm_``. nan where a gradient is not a number.
    """
    norm = math.sqrt(sum(gradient.squared_norm() for gradient in gradients))
    return min(1.0, largest_norm / (norm + 1e-6)) if math.isfinite(norm) else math.nan


def dense_adam(
    config: AdamConfig,
    state: dict[str, Any],
    parameter: np.ndarray,
    grad: np.ndarray,
    step: int,
    lr: float | None = None,
) -> None:
    """In-place Adam step of a small dense parameter; ``state`` holds its moments under 'first' and 'second'.

    ``lr``: default the configuration's.
    """
    lr = config.lr if lr is None else lr
    first = state.setdefault("first", np.zeros_like(parameter))
    second = state.setdefault("second", np.zeros_like(parameter))
    first *= config.beta1
    first += (1 - config.beta1) * grad
    second *= config.beta2
    second += (1 - config.beta2) * grad * grad
    root = np.sqrt(second / (1 - config.beta2**step)) + config.epsilon
    parameter -= (lr / (1 - config.beta1**step) * first / root).astype(parameter.dtype)

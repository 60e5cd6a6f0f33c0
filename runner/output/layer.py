"""Say what others may ask of the class matrix. Each engine has a layer and row tables of its own.

``Layer`` is what heads, samplers, evaluation, generating, predicting, diagnoses and checks ask; ``Rows`` is a matrix
whose rows take steps one by one: the class matrix, word vectors, an encoder's parameters. Nobody else reads weights.

Legend: B rows of a batch, D hidden size, P targets of the batch, N classes of the task, R rows of a matrix, U distinct
rows, K classes of each row of a batch, C classes of a block.
"""

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from runner.contracts import Everything, Passed, Proposal, Query
from runner.optimizers.configs import OptimizerConfig
from runner.output.across import Across
from runner.output.gradients import Gradient
from runner.output.held import Held
from runner.output.losses import LossConfig

if TYPE_CHECKING:
    from torch import Tensor  # composing a configuration must not take the second that torch does

# Names in ``state_dict`` that end in one of these parts are needed for further training only.
STATE_OF_TRAINING = ("first", "second", "last_step", "bias_first", "bias_second", "drift", "carried")


@runtime_checkable
class RowGradient(Gradient, Protocol):
    """Hold the gradient of distinct rows of a table, not applied yet."""

    @property
    def table(self) -> "Rows":
        """Return the table whose rows they are."""

    @property
    def rows_U(self) -> np.ndarray:
        """Return the rows, (U,) ascending int32."""

    def plus(self, other: "RowGradient") -> "RowGradient":
        """Return the sum with another gradient of the same table, over the rows of both."""


class Rows(Protocol):
    """Hold a matrix (R, D) float32 whose rows take steps one by one, with a bias for each row or without biases."""

    engine: str
    """Name of the engine: numba or torch."""
    config: OptimizerConfig
    first_row: int
    """Number of the first row in the whole matrix (``RowPolicy``)."""
    by_row: Collection[str]
    """Names of the arrays of ``state_dict`` that have an entry for each row."""

    @property
    def shape(self) -> tuple[int, int]:
        """Return the numbers of rows and columns."""

    def another(self, weights_RD: np.ndarray) -> "Rows":
        """Return a table of other rows, without biases, of the same engine, optimizer and device."""

    def of_parameters(self, weights_RD: np.ndarray) -> "Rows":
        """Return such a table of weights that are no vectors; each number has float32 moments of its own."""

    @property
    def tensor(self) -> "Tensor":
        """Return all rows as they stand, (R, D), as a view where they lie."""

    def passed_on(self, values: "Tensor") -> Any:
        """Return numbers of a step as this engine passes them from part to part: as an array, or as a tensor."""

    def gradient_of(self, grad_RD: "Tensor") -> RowGradient:
        """Return the gradient of all rows, which has no part for biases."""

    def rows(self, rows_U: np.ndarray | None = None) -> np.ndarray:
        """Return these rows as they stand, (U, D) a copy; None: all rows, (R, D), a view if they lie in CPU memory."""

    def rows_at(self, rows_U: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return a matrix and the places of these rows in it: all rows and ``rows_U`` itself, or a copy of these."""

    def biases(self, rows_U: np.ndarray | None = None) -> np.ndarray:
        """Return the biases as they stand, (U,) a copy; None: all, (R,), a view if they lie in CPU memory.

        Without biases it is empty.
        """

    def write(
        self,
        rows_U: np.ndarray | None,
        *,
        vectors: np.ndarray | None = None,
        biases: np.ndarray | float | None = None,
    ) -> None:
        """Replace the vectors and biases of rows (None: all), by arrays of as many or by one for all; moments stay."""

    def is_finite(self) -> bool:
        """Tell whether all rows and biases are finite."""

    def read(self, rows_U: np.ndarray | None, step: int) -> None:
        """Bring rows (None: all) to their values before ``step``; do nothing unless the policy lets rows lag."""

    def read_for_update(self, rows_U: np.ndarray, step: int) -> None:
        """Read distinct rows, each of which gets a gradient in the same step."""

    def gradients_of_groups(
        self,
        groups: tuple[np.ndarray, np.ndarray, np.ndarray],
        sources_SD: np.ndarray,
        pair_source_N: np.ndarray,
        grad_N: np.ndarray,
        source_grad_BD: np.ndarray,
        step: int,
        bias_grad_N: np.ndarray | None = None,
    ) -> RowGradient:
        """Return the gradient from pairs of a row and a source, grouped by row (``kernels.groups.group_by_id``).

        Pair n adds ``grad_N[n]`` times its source to its row, and ``bias_grad_N[n]`` (None: ``grad_N[n]``) to the bias.
        ``source_grad_BD`` gets the gradient of the first B sources.
        """

    def before_step(self, step: int) -> None:
        """Under ``dense``, apply the previous step to the rows that it did not touch."""

    def frozen(self) -> AbstractContextManager[None]:
        """Keep reads from moving rows for a while."""

    def caught_up(self, step: int) -> AbstractContextManager[None]:
        """Hold the values before ``step`` in all rows for a while, and then leave the table as it was, bit by bit."""

    @property
    def settling_steps(self) -> int:
        """Return the number of steps after which an untouched row moves a thousand times less than at first."""

    @property
    def lr(self) -> float:
        """Return the learning rate of the next step."""

    def set_lr(self, lr: float) -> None:
        """Change the learning rate from the next step on. Rows must be current, as missed steps share one rate."""

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return weights and optimizer state by name."""

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore what ``state_dict`` returned."""

    def forget_steps(self) -> None:
        """Mark every row as never updated, so that no read moves it; for weights that come without their history."""


class Scores(Protocol):
    """Hold the logits of a batch's targets and candidates, and turn them into losses and gradients.

    Call ``loss`` first, once; then either ``update`` or ``gradients``, once.
    """

    @property
    def touched_U(self) -> np.ndarray:
        """Return the distinct classes held here that the update touches, (U,) ascending int32."""

    def loss(self, loss: LossConfig, log_count_P: Passed | None = None, weight_B: Passed | None = None) -> Passed:
        """Return the loss of each row, (B,) float32, and replace the logits by their gradients.

        ``log_count_P``: log expected counts of the targets, if the loss corrects them. ``weight_B``: float32 factors of
        the rows' losses in the sum whose gradient is computed; None: 1 / B each. The returned losses are unweighted.
        """

    def update(self) -> Passed:
        """Apply the gradients to the touched classes; return the gradient of the hidden states (B, D)."""

    def gradients(self) -> tuple[RowGradient, Passed]:
        """Return the gradient of the touched classes, without applying it, and that of the hidden states (B, D)."""


@runtime_checkable
class CandidateScores(Scores, Protocol):
    """Score listed candidates, whose gradients can be read one by one."""

    def logit_gradients(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the row, class and gradient of each logit of targets and candidates; call it after ``loss``.

        Each array has one entry per target and candidate of all rows. A class may occur several times in a row.
        """


class Largest(NamedTuple):
    """Hold the classes of the largest logits of each row, (B, K) int32, and these logits, (B, K) float32."""

    ids_BK: np.ndarray
    logits_BK: np.ndarray


class Layer(Protocol):
    """Score classes and learn from their gradients.

    The task has ``num_classes``. A layer holds the rows of the classes ``lo`` to ``hi`` - 1; in one process these are
    all. Classes are ids of the task, and rows are those of the table: row r is class ``lo`` + r. Samplers that follow
    vectors need a layer that holds all classes.
    ``scale``: None for logits h . w + bias; a number for logits scale * cos(h, w) + bias, whose biases are not trained.
    ``across``: combines numbers over all that hold classes.
    """

    num_classes: int
    lo: int
    hi: int
    dim: int
    scale: float | None
    held: Held
    across: Across

    @property
    def part(self) -> "Layer":
        """Return the layer of the rows that are held here: itself, or what a layer of all classes is made of."""

    def of_classes(self, classes_U: Any, of_rows: Callable[[Any], Any], axis: int = 0) -> Any:
        """Return what ``of_rows`` makes of distinct ascending classes (None: all), where they are held.

        ``of_rows`` gets rows of ``part`` (None: all) and returns an array with an entry for each along ``axis``.
        """

    @property
    def table(self) -> Rows:
        """Return the rows that are held; row r is class ``lo`` + r."""

    # ------------------------------------------------------------ training

    def score(self, query: Query, proposal: Proposal | Everything, step: int) -> Scores:
        """Compute the logits of the batch's targets and candidates; call ``loss`` and then ``update`` on the result."""

    def read(self, rows_U: np.ndarray | None, step: int) -> None:
        """Bring rows (None: all) to their values before ``step``."""

    # ------------------------------------------------------------ vectors

    def rows(self, rows_U: np.ndarray | None = None) -> np.ndarray:
        """Return rows of the table as they stand (``Rows.rows``), which a normalised layer does not normalise."""

    def biases(self, rows_U: np.ndarray | None = None) -> np.ndarray:
        """Return biases as they stand (``Rows.biases``)."""

    def class_vectors(self, rows_U: np.ndarray | None = None) -> np.ndarray:
        """Return the vectors that logits are products with, (U, D) or of all rows.

        They are a copy if rows are given or vectors are normalised.
        """

    def query_vectors(self, hidden_BD: np.ndarray) -> np.ndarray:
        """Return (B, D) vectors whose products with ``class_vectors`` are the logits without biases."""

    # ------------------------------------------------------------ ranking; rows must be current

    def blocks(self, num_rows: int) -> list[tuple[int, int]]:
        """Return ranges (first, end) of the held classes whose logits for ``num_rows`` rows make one block."""

    def block_logits(self, hidden_BD: np.ndarray, lo: int, hi: int, out_BC: np.ndarray) -> None:
        """Write the logits of the held classes lo to hi - 1 to ``out_BC``."""

    def logits(self, hidden_BD: np.ndarray, class_BK: np.ndarray) -> np.ndarray:
        """Return the logits of some classes of each row, (B, K) float32."""

    def largest(self, hidden_BD: np.ndarray, k: int, *, ranked: bool = True, by_magnitude: bool = False) -> Largest:
        """Return the k largest logits of each row and their classes; of equal logits the lower id wins.

        They are best first, or by ascending id if not ``ranked``. ``by_magnitude``: compare absolute values, and return
        these.
        """

    def cross_entropy(self, hidden_BD: np.ndarray, target_B: np.ndarray, *, by_magnitude: bool = False) -> np.ndarray:
        """Return -log softmax over all classes of each row's target, (B,) float64 in nats.

        ``by_magnitude``: take absolute logits. A result is not finite if a logit of its row is not.
        """

    def is_sound(self, hidden_BD: np.ndarray) -> bool:
        """Tell whether all logits for these hidden states are below ``LARGEST_OUTPUT``."""

    # ------------------------------------------------------------ state

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return the weights and optimizer state of the rows that are held."""

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore what ``state_dict`` returned."""

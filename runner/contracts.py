"""What the parts of a training step hand to each other. Every other module may import this one; it imports none.

    batch -> ENCODE -> SAMPLE -> SCORE -> LOSS -> UPDATE -> REFRESH

A sampler of examples makes an ``ExampleDraw``, a task makes a ``Batch`` of it, an encoder makes hidden states, which
with the batch's targets are the ``Query`` of a sampler of classes. Its ``Proposal`` is scored by the output layer, and
``Scores`` become losses and gradients.

One number unifies all samplers: the *expected count* of a candidate, which says how many times it is expected to stand
in a proposal. Weighting by exp(logit - log expected count) estimates a sum over all candidates without bias.

Legend: B batch rows, D hidden size, P all targets of the batch, M shared candidates, N candidates of all rows,
U distinct rows of a matrix, R all rows of a matrix.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import numpy as np

if TYPE_CHECKING:
    from runner.losses import LossConfig
    from runner.machine.clock import StageClock
    from runner.optimizers import RowGradient, RowTable

Products = Literal["float32", "bf16"]


# ---------------------------------------------------------------- measures


@dataclass(frozen=True, kw_only=True)
class Measure:
    """A quality that a task measures and a report prints.

    ``key`` names it in metrics without the split: metrics hold ``test/p@1`` and ``valid/p@1`` for the key ``p@1``.
    ``label`` and ``unit`` (empty where it has none) are what people read. A metric is stored unscaled and printed times
    ``scale``, with ``decimals`` digits: 0.6641 with scale 100 is 66.41 %. ``higher_is_better`` decides which weights
    are kept, what stops a training early and what a report calls best. Exactly one measure of a task is the
    ``headline``, which progress bars, learning curves and comparisons show.
    """

    key: str
    label: str
    unit: str
    scale: float
    decimals: int
    higher_is_better: bool
    headline: bool

    def improves(self, value: float, best: float) -> bool:
        """Tell whether ``value`` is better than ``best``; equal values and nan are not."""
        return value > best if self.higher_is_better else value < best

    def text(self, value: float) -> str:
        """Print a stored value: ``66.41 %``."""
        return f"{self.scale * value:,.{self.decimals}f} {self.unit}".rstrip()


# ---------------------------------------------------------------- examples and batches


@dataclass(frozen=True, kw_only=True)
class Examples:
    """The examples that a task trains on.

    ``count``: how many there are. ``exchangeable``: any may come at any time; otherwise a recurrent state is carried
    from batch to batch, and they must come in their order.
    """

    count: int
    exchangeable: bool = True


def steps_per_epoch(num_examples: int, batch_size: int) -> int:
    """Return the number of batches of an epoch; the last may be smaller."""
    return -(-num_examples // batch_size)


@dataclass(frozen=True, kw_only=True)
class ExampleDraw:
    """The training examples of one step.

    ``rows_B``: int64 indices of examples. ``log_expected_count_B``: float64, how often each of them is expected in such
    a draw; None for a part of a permutation, in which every example weighs the same.
    """

    rows_B: np.ndarray
    log_expected_count_B: np.ndarray | None = None

    def weight_B(self, num_examples: int) -> np.ndarray | None:
        """(B,) float32 factors under which the sum of losses estimates the mean over all examples; None: 1 / B each.

        An example expected c times in a draw weighs 1 / (c num_examples).
        """
        if self.log_expected_count_B is None:
            return None
        return (np.exp(-self.log_expected_count_B) / num_examples).astype(np.float32)


class Batch(Protocol):
    """What a training step needs of its examples; the encoder of the family of data knows the rest.

    Row b's targets are ``targets[target_indptr[b] : target_indptr[b + 1]]``, ascending.
    """

    @property
    def num_rows(self) -> int:
        """B."""

    @property
    def target_indptr(self) -> np.ndarray:
        """(B + 1,) int64."""

    @property
    def targets(self) -> np.ndarray:
        """(P,) int32 class ids."""

    @property
    def weight_B(self) -> np.ndarray | None:
        """(B,) float32 factors of the rows' losses; None: 1 / B each."""


@dataclass(frozen=True, kw_only=True)
class TrainingFacts:
    """What a sampler may know of the training set: positives per class, rows, and how many steps make an epoch."""

    label_counts_N: np.ndarray
    num_rows: int
    steps_per_epoch: int

    @classmethod
    def one_label_a_row(cls, label_counts_N: np.ndarray, steps_per_epoch: int = 1) -> "TrainingFacts":
        """Facts of a training set whose rows have one label each."""
        return cls(label_counts_N=label_counts_N, num_rows=int(label_counts_N.sum()), steps_per_epoch=steps_per_epoch)


# ---------------------------------------------------------------- proposals


@dataclass(frozen=True, kw_only=True)
class Query:
    """What a sampler may look at: ``hidden_BD`` float32 and the true classes of each row.

    Row b's targets are ``targets_P[target_indptr_B1[b] : target_indptr_B1[b + 1]]``, ascending.
    """

    hidden_BD: np.ndarray
    target_indptr_B1: np.ndarray
    targets_P: np.ndarray

    @classmethod
    def of(cls, hidden_BD: np.ndarray, batch: Batch) -> "Query":
        """The query of a batch whose rows have these hidden states."""
        return cls(hidden_BD=hidden_BD, target_indptr_B1=batch.target_indptr, targets_P=batch.targets)

    @property
    def num_rows(self) -> int:
        """B."""
        return len(self.target_indptr_B1) - 1

    @cached_property
    def row_P(self) -> np.ndarray:
        """(P,) int32: the row of each target."""
        return np.repeat(np.arange(self.num_rows, dtype=np.int32), np.diff(self.target_indptr_B1))

    def targets_of(self, row: int) -> np.ndarray:
        """Class ids of one row's targets, ascending; a view."""
        return self.targets_P[self.target_indptr_B1[row] : self.target_indptr_B1[row + 1]]


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """One row's candidates: ids and the log of their expected counts, as views into a proposal."""

    ids_M: np.ndarray
    log_expected_count_M: np.ndarray


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """Candidates and the log of their expected counts (float32).

    ``indptr_B1`` None: all rows share ``ids_N`` (N = M), which must ascend. Otherwise row b has
    ``ids_N[indptr_B1[b] : indptr_B1[b + 1]]``.
    True classes of a row may be among its candidates (accidental hits); the loss says what becomes of them.

    ``distinct`` False: draws with replacement, where a row has a class as often as it was drawn.
    """

    ids_N: np.ndarray
    log_expected_count_N: np.ndarray
    indptr_B1: np.ndarray | None = None
    distinct: bool = True

    @property
    def is_shared(self) -> bool:
        """Whether all rows have the same candidates."""
        return self.indptr_B1 is None

    def row(self, b: int) -> Candidates:
        """The candidates of row b."""
        here = slice(None) if self.indptr_B1 is None else slice(self.indptr_B1[b], self.indptr_B1[b + 1])
        return Candidates(ids_M=self.ids_N[here], log_expected_count_M=self.log_expected_count_N[here])

    def candidates_per_row(self, num_rows: int) -> float:
        """Mean number of candidates of ``num_rows`` rows."""
        return float(len(self.ids_N)) if self.is_shared else len(self.ids_N) / max(1, num_rows)


@dataclass(frozen=True)
class Everything:
    """The proposal of full softmax: every class once, so nothing needs to be listed.

    ``products``: precision of the operands of its products. ``stores_logits``: they are kept, as bfloat16, from the
    scores to the update.
    """

    num_classes: int
    products: Products = "float32"
    stores_logits: bool = False

    def row(self, b: int) -> Candidates:
        """Every class, expected once."""
        return Candidates(
            ids_M=np.arange(self.num_classes, dtype=np.int32),
            log_expected_count_M=np.zeros(self.num_classes, dtype=np.float32),
        )

    def candidates_per_row(self, num_rows: int) -> float:
        """All classes."""
        return float(self.num_classes)


# ---------------------------------------------------------------- scores


class Scores(Protocol):
    """Logits of a batch's targets and candidates, on their way to losses and gradients.

    ``loss`` comes first, once; then either ``update`` or ``gradients``, once.
    """

    @property
    def touched_U(self) -> np.ndarray:
        """Distinct classes that the update touches, ascending int32."""

    def loss(
        self, loss: "LossConfig", log_count_P: np.ndarray | None = None, weight_B: np.ndarray | None = None
    ) -> np.ndarray:
        """Return the loss of each row (B,) float32; logits become gradients.

        ``log_count_P``: log expected counts of the targets, where the loss corrects them. ``weight_B``: float32 factors
        of the rows in the sum whose gradient it is; None: 1 / B each. The losses returned are without them.
        """

    def update(self) -> np.ndarray:
        """Apply the gradients to the touched classes; return the gradient of the hidden states (B, D)."""

    def gradients(self) -> tuple["RowGradient", np.ndarray]:
        """Return the gradient of the touched classes, not applied, and that of the hidden states (B, D)."""


@runtime_checkable
class CandidateScores(Scores, Protocol):
    """Scores of listed candidates, whose gradients can be looked at one by one."""

    def logit_gradients(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return row, class and gradient (N,) of each logit of targets and candidates, after ``loss``.

        A class may stand several times in a row.
        """


class Head(Protocol):
    """What stands on an encoder: it turns hidden states into losses, and losses into gradients."""

    @property
    def tables(self) -> Sequence["RowTable"]:
        """Its weights, as rows."""

    def score(self, hidden_BD: np.ndarray, batch: Any, step: int, clock: "StageClock") -> "HeadScores":
        """Propose, correct, score and take the loss of a training step (1-based)."""

    def refresh(self, scores: "HeadScores", touched_U: np.ndarray, step: int, clock: "StageClock") -> None:
        """Follow the weights as of the end of ``step``, which applied the gradients of ``scores``.

        ``touched_U``: the rows of its table that moved, ascending int32, the encoder's gradient among the reasons.
        """

    def is_finite(self, hidden_BD: np.ndarray) -> bool:
        """Whether all outputs for these hidden states are numbers. Rows must be current."""

    @property
    def chosen(self) -> Mapping[str, str]:
        """What settings that read ``auto`` became, by key."""

    def about(self) -> dict[str, Any]:
        """What a run's summary tells of the head."""

    def state_dict(self) -> dict[str, np.ndarray]:
        """Weights, optimizer state and tables, by name."""

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore what ``state_dict`` gave."""


class HeadScores(Protocol):
    """A batch after its losses and before its update; either ``update`` or ``gradients`` follows, once."""

    @property
    def loss(self) -> float:
        """The batch's loss: the weighted sum of its rows' losses."""

    @property
    def candidates_per_row(self) -> float:
        """Classes that a row was compared with, on average; 0 for a head without classes."""

    @property
    def touched_U(self) -> np.ndarray:
        """Distinct rows of the head's table that its own update moves, ascending int32."""

    def update(self) -> np.ndarray:
        """Apply the head's gradients; return that of the hidden states (B, D)."""

    def gradients(self) -> tuple["RowGradient", np.ndarray]:
        """Return the head's gradient, not applied, and that of the hidden states (B, D)."""


# ---------------------------------------------------------------- vectors that move


class Vectors(Protocol):
    """Rows that an index structure follows: those of the class matrix, or stored examples."""

    @property
    def matrix(self) -> np.ndarray:
        """(R, D) float32. Rows are current after ``bring_up``."""

    def changed_since(self, step: int) -> np.ndarray:
        """Ids (U,) int32, ascending, of rows that may have moved after the end of ``step``."""

    def bring_up(self, rows_U: np.ndarray | None, step: int) -> None:
        """Make these rows (None: all) current as of the end of ``step``."""

    def state_dict(self) -> dict[str, np.ndarray]:
        """What ``changed_since`` remembers."""

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore what ``state_dict`` gave."""

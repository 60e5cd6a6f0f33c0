"""Define what the parts of a training step pass to each other. Every module may import this one; it imports none.

    batch -> ENCODE -> SAMPLE -> SCORE -> LOSS -> UPDATE -> REFRESH

A sampler of examples makes an ``ExampleDraw``, a task turns it into a ``Batch``, and an encoder computes hidden states.
These and the batch's targets are the ``Query`` of a sampler of classes. The output layer scores its ``Proposal``
(``output.layer``).

One number is common to all samplers: the *expected count* of a candidate, which says how many times a proposal is
expected to contain it. Weighting by exp(logit - log expected count) estimates a sum over all candidates without bias.

Legend: B batch rows, D hidden size, P all targets of the batch, M candidates of one row or shared by all, N candidates
of all rows (classes in ``label_counts_N``), U distinct rows of a matrix, R all rows of a matrix.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np

Products = Literal["float32", "bf16"]

Passed = Any
"""Numbers of a step as the engine of the weights passes them on: an array, or a tensor on the weights' device."""


def as_array(values: Passed) -> np.ndarray:
    """Return numbers of a step as an array; from another device this waits for them."""
    return np.asarray(values if isinstance(values, np.ndarray) else values.detach().cpu().numpy())


LARGEST_OUTPUT = 2.0**24
"""From this magnitude on, float32 does not tell outputs apart that differ by 1. Such a network diverged."""


# ---------------------------------------------------------------- measures


@dataclass(frozen=True, kw_only=True)
class Measure:
    """Describe a quality that a task measures and a report prints.

    ``key`` names it in metrics without the split: metrics hold ``test/p@1`` and ``valid/p@1`` for the key ``p@1``.
    ``label`` and ``unit`` (empty if it has none) are what people read. A metric is stored unscaled and printed times
    ``scale``, with ``decimals`` digits: 0.6641 with scale 100 is 66.41 %. ``higher_is_better`` decides which weights
    are kept, when training stops early and what a report calls best. Exactly one measure of a task is the
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
        """Return a stored value as a report prints it, such as ``66.41 %``."""
        return f"{self.scale * value:,.{self.decimals}f} {self.unit}".rstrip()


# ---------------------------------------------------------------- examples and batches


@dataclass(frozen=True, kw_only=True)
class Examples:
    """Describe the examples that a task trains on.

    ``count``: how many there are. ``exchangeable``: they may come in any order; otherwise a recurrent state is carried
    from batch to batch, and they must come in their own order.
    """

    count: int
    exchangeable: bool = True


def steps_per_epoch(num_examples: int, batch_size: int) -> int:
    """Return the number of batches of an epoch; the last may be smaller."""
    return -(-num_examples // batch_size)


@dataclass(frozen=True, kw_only=True)
class ExampleDraw:
    """Hold the training examples of one step.

    ``rows_B``: int64 indices of examples. ``log_expected_count_B``: float64 log of how often such a draw is expected to
    contain each of them; None for a part of a permutation, where every example weighs the same.
    """

    rows_B: np.ndarray
    log_expected_count_B: np.ndarray | None = None

    def weight_B(self, num_examples: int) -> np.ndarray | None:
        """Return the factors of the losses whose sum estimates the mean over all examples, (B,); None: 1 / B each.

        An example that is expected c times in a draw weighs 1 / (c num_examples).
        """
        if self.log_expected_count_B is None:
            return None
        return (np.exp(-self.log_expected_count_B) / num_examples).astype(np.float32)


class Batch(Protocol):
    """Describe what a training step needs of its examples; each family of data has an encoder that knows the rest.

    The targets of row b are ``targets[target_indptr[b] : target_indptr[b + 1]]``, ascending.
    """

    @property
    def num_rows(self) -> int:
        """Return B, the number of rows."""

    @property
    def num_examples(self) -> int:
        """Return the number of training examples that the rows belong to: B, or fewer if these have many rows."""

    @property
    def target_indptr(self) -> np.ndarray:
        """Return where each row's targets begin and end, (B + 1,) int64."""

    @property
    def targets(self) -> np.ndarray:
        """Return the class ids of all targets, (P,) int32."""

    @property
    def weight_B(self) -> np.ndarray | None:
        """Return the factors of the rows' losses, (B,) float32; None: 1 / B each."""


@dataclass(frozen=True, kw_only=True)
class TrainingFacts:
    """Tell a sampler about the training set: positives per class (N,), number of rows, steps per epoch.

    Where an example has many rows, as a window of a text has, ``num_examples`` and ``count_examples`` tell how many
    examples there are, and how many of them have each class, (N,) int64. None: every row is an example.
    """

    label_counts_N: np.ndarray
    num_rows: int
    steps_per_epoch: int
    num_examples: int | None = None
    count_examples: Callable[[], np.ndarray] | None = None

    @classmethod
    def one_label_a_row(cls, label_counts_N: np.ndarray, steps_per_epoch: int = 1) -> "TrainingFacts":
        """Return the facts of a training set whose rows have one label each."""
        return cls(label_counts_N=label_counts_N, num_rows=int(label_counts_N.sum()), steps_per_epoch=steps_per_epoch)


# ---------------------------------------------------------------- proposals


@dataclass(frozen=True, kw_only=True)
class Query:
    """Hold what a sampler may look at: ``hidden_BD`` float32 and the true classes of each row.

    The targets of row b are ``targets_P[target_indptr_B1[b] : target_indptr_B1[b + 1]]``, ascending. The rows belong to
    ``num_examples`` training examples; None: each row is one.
    """

    hidden_BD: np.ndarray
    target_indptr_B1: np.ndarray
    targets_P: np.ndarray
    num_examples: int | None = None

    @classmethod
    def of(cls, hidden_BD: np.ndarray, batch: Batch) -> "Query":
        """Make the query of a batch whose rows have these hidden states."""
        return cls(
            hidden_BD=hidden_BD,
            target_indptr_B1=batch.target_indptr,
            targets_P=batch.targets,
            num_examples=batch.num_examples,
        )

    @property
    def num_rows(self) -> int:
        """Return B, the number of rows."""
        return len(self.target_indptr_B1) - 1

    @cached_property
    def row_P(self) -> np.ndarray:
        """Return the row of each target, (P,) int32."""
        return np.repeat(np.arange(self.num_rows, dtype=np.int32), np.diff(self.target_indptr_B1))

    def targets_of(self, row: int) -> np.ndarray:
        """Return the class ids of one row's targets, ascending, as a view."""
        return self.targets_P[self.target_indptr_B1[row] : self.target_indptr_B1[row + 1]]


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """Hold one row's candidates: ids and the log of their expected counts, as views into a proposal."""

    ids_M: np.ndarray
    log_expected_count_M: np.ndarray


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """Hold candidates, int32 class ids, and the log of their expected counts, float32.

    ``indptr_B1``: None if all rows share ``ids_N`` (N = M), which must ascend. Otherwise row b has
    ``ids_N[indptr_B1[b] : indptr_B1[b + 1]]``.
    ``distinct``: False for draws with replacement, where a row lists a class as often as it was drawn.

    True classes of a row may be among its candidates (accidental hits); the loss decides what becomes of them.
    """

    ids_N: np.ndarray
    log_expected_count_N: np.ndarray
    indptr_B1: np.ndarray | None = None
    distinct: bool = True

    @property
    def is_shared(self) -> bool:
        """Tell whether all rows have the same candidates."""
        return self.indptr_B1 is None

    def row(self, b: int) -> Candidates:
        """Return the candidates of row b."""
        here = slice(None) if self.indptr_B1 is None else slice(self.indptr_B1[b], self.indptr_B1[b + 1])
        return Candidates(ids_M=self.ids_N[here], log_expected_count_M=self.log_expected_count_N[here])

    def candidates_per_row(self, num_rows: int) -> float:
        """Return the mean number of candidates of ``num_rows`` rows."""
        return float(len(self.ids_N)) if self.is_shared else len(self.ids_N) / max(1, num_rows)


@dataclass(frozen=True)
class Everything:
    """Propose every class once, for full softmax, so that no ids need to be listed.

    ``products``: precision of the operands of its products. ``stores_logits``: logits are kept, as bfloat16, from the
    scores to the update.
    """

    num_classes: int
    products: Products = "float32"
    stores_logits: bool = False

    def row(self, b: int) -> Candidates:
        """Return every class, each with expected count 1."""
        return Candidates(
            ids_M=np.arange(self.num_classes, dtype=np.int32),
            log_expected_count_M=np.zeros(self.num_classes, dtype=np.float32),
        )

    def candidates_per_row(self, num_rows: int) -> float:
        """Return the number of all classes."""
        return float(self.num_classes)


# ---------------------------------------------------------------- vectors that move


OfRows = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Makes an array from a matrix and places of rows in it (``Vectors.of_rows``)."""


class Vectors(Protocol):
    """Describe the rows that an index structure follows: those of the class matrix, or stored examples."""

    @property
    def shape(self) -> tuple[int, int]:
        """Return the numbers of rows and columns, R and D."""

    def rows(self, rows_U: np.ndarray | None = None) -> np.ndarray:
        """Return these rows, (U, D) float32 a copy; None: all, (R, D). A row is current after ``bring_up``."""

    def of_rows(self, rows_U: np.ndarray | None, make: OfRows, axis: int = 0) -> np.ndarray:
        """Return what ``make`` makes of these rows (None: all), made where they are held.

        ``make`` gets a matrix and the places (U,) int32 of rows in it, and returns an array with an entry for each
        along ``axis``.
        """

    def column_sums(self) -> np.ndarray:
        """Return the sum of all rows, (D,) float64."""

    def changed_since(self, step: int) -> np.ndarray:
        """Return the rows that may have moved after the end of ``step``, (U,) ascending int32."""

    def bring_up(self, rows_U: np.ndarray | None, step: int) -> None:
        """Bring these rows (None: all) up to the end of ``step``."""

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return what ``changed_since`` has to remember."""

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore what ``state_dict`` returned."""


class View(Protocol):
    """Show a sampler of examples what it may look at: stored vectors of the examples, and the model's query.

    The norm of an example's gradient grows with query . vector, or, ``by_magnitude``, with its magnitude. (The vectors
    may differ in norm; a sampler that hashes them ignores that part, as angles do.)
    """

    by_magnitude: bool

    @property
    def examples(self) -> Vectors:
        """Return the vectors, one row for each training example, as the model sees them."""

    @property
    def query_D(self) -> np.ndarray:
        """Return the model's weights as a direction in the examples' space, (D,) float32."""

    def gradient_norms(self, rows_M: np.ndarray | None = None) -> np.ndarray:
        """Return the norms of these examples' gradients by the weights that the query holds, (M,) float64.

        ``rows_M``: int64 examples; None: all of them, in O(X D).
        """

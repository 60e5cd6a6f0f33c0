"""Define the contract of samplers of training examples: what they draw, and how often each example is expected.

A draw is a pure function of (seed, step) and of tables that only ``refresh`` changes. So a resumed run draws what an
uninterrupted one would have drawn, and a sampler that follows the model sees it as it was at its last refresh.

Legend: X all training examples, B examples of a step, S steps, M examples of all these steps, D size of the stored
vectors.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from runner.contracts import ExampleDraw, Examples, View
from runner.errors import require
from runner.options.fields import Options


@dataclass(frozen=True, kw_only=True)
class Draws:
    """Hold the draws of several steps: step s has the examples ``rows_M[begin_S1[s] : begin_S1[s + 1]]``, int64.

    ``count_M``: how often one step's draw is expected to contain each of them, float64; None: parts of permutations.
    """

    rows_M: np.ndarray
    begin_S1: np.ndarray
    count_M: np.ndarray | None


class ExampleSampler(ABC):
    """Draw the examples of each step."""

    learns_norms: ClassVar[bool] = False
    """True if the sampler learns from the norms of gradients; ``observe`` is then called after each step."""

    @abstractmethod
    def draw(self, step: int, view: View | None = None) -> ExampleDraw:
        """Return the examples of a step (1-based).

        ``view``: the model before the step, for samplers that rebuild tables of a resumed run.
        """

    def refresh(self, step: int, view: View | None = None) -> bool:
        """Bring the tables up to the model at the end of ``step``; return whether any work was due.

        The first call, with step 0, builds them.
        """
        return False

    def make_tables(self, view: View | None) -> None:  # noqa: B027
        """Make again what ``load_state_dict`` could not restore without a view; do nothing if nothing is missing.

        A resumed run calls this before its first step. Nothing is brought up to date: that is what ``refresh`` does.
        """

    def check_view(self, view: View) -> None:  # noqa: B027
        """Raise ConfigError if this sampler cannot work with what the task shows."""

    def observe(self, rows_M: np.ndarray, norms_M: np.ndarray) -> None:  # noqa: B027
        """Learn the norms (M,) float64 of the gradients of drawn examples, by the weights before each one's step.

        What draws read does not change before the next ``refresh``. Most samplers learn nothing.
        """

    def steps_without_refresh(self, step: int) -> int:
        """Return after how many steps, from the given one on, ``refresh`` has work to do; at least 1.

        By default it has work after every step, or, if the class has no ``refresh`` of its own, never.
        """
        return 2**62 if type(self).refresh is ExampleSampler.refresh else 1

    def draws(self, first_step: int, steps: int, view: View | None = None) -> Draws:
        """Return the draws of several steps, between which ``refresh`` has no work to do."""
        made = [self.draw(step, view) for step in range(first_step, first_step + steps)]
        begin_S1 = np.cumsum([0] + [len(draw.rows_B) for draw in made])
        logs = [draw.log_expected_count_B for draw in made if draw.log_expected_count_B is not None]
        return Draws(
            rows_M=np.concatenate([draw.rows_B for draw in made]),
            begin_S1=begin_S1,
            count_M=np.exp(np.concatenate(logs)) if logs else None,
        )

    def chances(self) -> np.ndarray | None:
        """Return the chance of one draw to yield each example now, (X,) float64; None if nobody knows it."""
        return None

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return the tables; there is no generator state to save."""
        return {}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore what ``state_dict`` returned."""
        assert not state, f"{type(self).__name__} keeps no tables"


class BulkSampler(ExampleSampler):
    """Draw the examples of many steps at a time; those of one step are a special case."""

    def draw(self, step: int, view: View | None = None) -> ExampleDraw:
        """Return the step's draws, in the order of drawing; a count may be infinite, which makes the weight 0."""
        draws = self.draws(step, 1, view)
        assert draws.count_M is not None
        return ExampleDraw(rows_B=draws.rows_M, log_expected_count_B=np.log(draws.count_M))

    @abstractmethod
    def draws(self, first_step: int, steps: int, view: View | None = None) -> Draws:
        """Return the draws of several steps, between which ``refresh`` has no work to do."""


@dataclass(frozen=True, kw_only=True)
class ExampleSamplerConfig(Options, ABC):
    """Serve as the base of the configurations in conf/batch_sampler.

    ``keeps_order``: every example comes once in an epoch, in order if the task needs that. ``needs_view``: the task
    must show stored vectors and a query; ``needs_fixed_vectors``: and the vectors must stay as they are in training.
    """

    section: ClassVar[str] = "batch_sampler"
    keeps_order: ClassVar[bool] = False
    needs_view: ClassVar[bool] = False
    needs_fixed_vectors: ClassVar[bool] = False
    name: str

    def check_examples(self, examples: Examples) -> None:
        """Raise ConfigError if the task's examples must come in their order and this sampler ignores that order."""
        require(
            examples.exchangeable or self.keeps_order,
            f"batch_sampler={self.name} draws examples in any order, but windows.cut=contiguous needs them in theirs, "
            "because it carries a state from batch to batch; set windows.cut=chunked, or batch_sampler=epoch",
        )

    def table_bytes(self, num_examples: int) -> int:
        """Return the memory that the tables take, roughly."""
        return 0

    @abstractmethod
    def build(self, *, examples: Examples, batch_size: int, seed: int) -> ExampleSampler:
        """Make the sampler for batches of ``batch_size`` examples; its tables come with the first ``refresh``."""

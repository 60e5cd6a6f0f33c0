"""Define the contract of samplers of training examples: what they draw, and how often each example is expected.

A draw is a pure function of (seed, step) and of tables that only ``refresh`` changes. So a resumed run draws what an
uninterrupted one would have drawn.

Legend: B examples of a step, D size of the stored vectors.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from runner.contracts import ExampleDraw, Examples, Vectors
from runner.errors import require


class View(Protocol):
    """Show a sampler of examples what it may look at: stored vectors of the examples, and the model's query."""

    @property
    def examples(self) -> Vectors:
        """Return the vectors, one row for each training example, as the model sees them."""

    @property
    def query_D(self) -> np.ndarray:
        """Return the model's weights as a direction in the examples' space, (D,) float32."""


class ExampleSampler(ABC):
    """Draw the examples of each step."""

    @abstractmethod
    def draw(self, step: int, view: View | None = None) -> ExampleDraw:
        """Return the examples of a step (1-based). ``view``: the model before the step, for samplers that need it."""

    def refresh(self, step: int, view: View | None = None) -> bool:
        """Bring the tables up to the model at the end of ``step``; return whether any work was due."""
        return False

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return the tables; there is no generator state to save."""
        return {}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore what ``state_dict`` returned."""
        assert not state, f"{type(self).__name__} keeps no tables"


@dataclass(frozen=True, kw_only=True)
class ExampleSamplerConfig(ABC):
    """Serve as the base of the configurations in conf/batch_sampler.

    ``keeps_order``: every example comes once in an epoch, in order if the task needs that.
    """

    keeps_order: ClassVar[bool] = False
    name: str

    def check_examples(self, examples: Examples) -> None:
        """Raise ConfigError if the task's examples must come in their order and this sampler ignores that order."""
        require(
            examples.exchangeable or self.keeps_order,
            f"batch_sampler={self.name} draws examples in any order, but windows.cut=contiguous needs them in theirs, "
            "because it carries a state from batch to batch; set windows.cut=chunked, or batch_sampler=epoch",
        )

    @abstractmethod
    def build(self, *, examples: Examples, batch_size: int, seed: int) -> ExampleSampler:
        """Make the sampler for batches of ``batch_size`` examples."""

"""The sampler contract: what is drawn, and the expected count of everything that could be drawn.

Legend: B batch rows, P all targets of the batch, M ids that are asked for, U distinct classes.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from runner.contracts import Everything, Proposal, Query, TrainingFacts
from runner.errors import ConfigError
from runner.losses import LOSSES

if TYPE_CHECKING:
    from runner.heads.output_layer import OutputLayer


class Sampler(ABC):
    """Draws candidates. Pure given (seed, step, tables): only ``refresh`` changes anything."""

    @abstractmethod
    def sample(self, query: Query, step: int) -> Proposal | Everything:
        """Candidates for a batch at a training step (1-based)."""

    @abstractmethod
    def log_expected_count(self, query: Query, ids_M: np.ndarray, step: int) -> np.ndarray:
        """(B, M) log expected counts of arbitrary class ids; -inf for what can not be drawn."""

    def log_expected_count_of_targets(self, query: Query, proposal: Proposal | Everything, step: int) -> np.ndarray:
        """(P,) log expected counts of the batch's targets, each for its own row; ``proposal``: what the step drew."""
        unique, position = np.unique(query.targets_P, return_inverse=True)
        log_count = self.log_expected_count(query, unique, step)[query.row_P, position]
        return np.ascontiguousarray(log_count, dtype=np.float32)

    def refresh(self, query: Query, step: int, touched_U: np.ndarray) -> bool:
        """Follow the class vectors as of the end of ``step``, which updated the classes ``touched_U`` (distinct).

        ``query``: the step's, for samplers that learn from hidden states.

        Returns whether any work was due.
        """
        return False

    @property
    def avoids_targets(self) -> bool:
        """Whether a row's own targets are never among its candidates, by design."""
        return False

    def learn(self, query: Query, step: int) -> bool:
        """Fit what is learnt from hidden states to the query's now, at the end of ``step``, whatever the schedule says.

        Returns whether there was anything to learn.
        """
        return False

    @property
    def chosen(self) -> dict[str, str]:
        """Settings that were left to the machine (``auto``), and what was taken here."""
        return {}

    @property
    def statistics(self) -> dict[str, float]:
        """Numbers worth logging, e.g. refreshes done and bytes held."""
        return {}

    def state_dict(self) -> dict[str, np.ndarray]:
        """Tables only; there is no generator state."""
        return {}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore what ``state_dict`` gave."""
        assert not state, f"{type(self).__name__} keeps no tables"


def customary(loss: str, losses: tuple[str, ...]) -> tuple[str, ...]:
    """The losses with one of them first: ``SamplerConfig.losses`` of a sampler that comes with it."""
    return (loss, *(name for name in losses if name != loss))


@dataclass(frozen=True, kw_only=True)
class SamplerConfig(ABC):
    """Base of sampler configs; ``losses`` lists the losses that make sense with the sampler, the customary one first.

    ``random_tables``: the sampler draws through tables of random hash functions, so that the error of an estimate
    under one draw of them differs from that over fresh draws. ``by_magnitude``: draws depend on how large logits are,
    not only on their differences. ``is_the_batch``: nothing is drawn but the batch itself. ``by_chance``: given the
    batch, seed and step decide what is proposed. ``refuses_nan``: a class vector that is not finite is a one-line
    error, not a proposal.

    ``contract_cases``: settings by name of case, small enough for 120 classes, that ``python -m runner.check`` and
    tests/contract build the sampler with; empty: one case of the defaults, cut down.
    """

    losses: ClassVar[tuple[str, ...]] = tuple(name for name, loss in LOSSES.items() if not loss.needs_every_class)
    random_tables: ClassVar[bool] = False
    by_magnitude: ClassVar[bool] = False
    is_the_batch: ClassVar[bool] = False
    by_chance: ClassVar[bool] = True
    refuses_nan: ClassVar[bool] = False
    contract_cases: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    name: str

    @property
    def can_draw_every_class(self) -> bool:
        """Whether every class, the targets included, has an expected count above 0."""
        return True

    def check_loss(self, loss: Any) -> None:
        """ConfigError unless the loss makes sense with this sampler."""
        if (loss.like or loss.name) not in self.losses:
            raise ConfigError(f"loss={loss.name} does not go with sampler={self.name}; valid: {', '.join(self.losses)}")
        if self.can_draw_every_class:
            return
        way_out = "; take loss=active_set or sampled_softmax without correct_target"
        if hasattr(self, "num_tail"):
            way_out += ", or sampler.num_tail of at least 1"
        if hasattr(self, "uniform_share"):
            way_out += ", or sampler.uniform_share above 0"
        if loss.corrects_targets:
            raise ConfigError(
                f"loss={loss.name} divides by the expected count of targets, which is 0 where sampler={self.name} "
                f"can not draw them{way_out}"
            )
        if not loss.masks_hits:
            raise ConfigError(
                f"loss={loss.name} has targets in its partition only where they are drawn, and sampler={self.name} "
                f"can not draw them all: it would fall without limit{way_out}"
            )

    def check_processor(self) -> None:
        """Raise ProcessorLacks where the settings need instructions that this processor has not."""
        return

    def check_memory(self, num_rows: int, num_classes: int) -> str | None:
        """Say in a line what steps on ``num_rows`` rows will hold, None where that is little.

        ConfigError where the memory is not there.
        """
        return None

    @abstractmethod
    def build(self, *, layer: "OutputLayer", training: TrainingFacts, seed: int) -> Sampler:
        """Make the sampler for the class matrix of ``layer``."""

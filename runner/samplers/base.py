"""Define the sampler contract: a sampler draws candidates and states the expected count of every class.

Legend: B batch rows, P all targets of the batch, M ids that a caller asks for, U distinct classes.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from runner.contracts import Everything, Proposal, Query, TrainingFacts
from runner.errors import ConfigError
from runner.options.fields import Options
from runner.output.layer import Layer
from runner.output.losses import LOSSES


class Sampler(ABC):
    """Draw candidates as a pure function of (seed, step, tables). Only ``refresh`` and ``learn`` change the tables."""

    @abstractmethod
    def sample(self, query: Query, step: int) -> Proposal | Everything:
        """Return the candidates for a batch at a training step (1-based)."""

    @abstractmethod
    def log_expected_count(self, query: Query, ids_M: np.ndarray, step: int) -> np.ndarray:
        """Return the log expected counts of any class ids, (B, M) float32; -inf where a class can not be drawn."""

    def log_expected_count_of_targets(self, query: Query, proposal: Proposal | Everything, step: int) -> np.ndarray:
        """Return the log expected count of each target in its own row, (P,) float32.

        ``proposal``: what ``sample`` returned for this query and step.
        """
        unique, position = np.unique(query.targets_P, return_inverse=True)
        log_count = self.log_expected_count(query, unique, step)[query.row_P, position]
        return np.ascontiguousarray(log_count, dtype=np.float32)

    def refresh(self, query: Query, step: int, touched_U: np.ndarray) -> bool:
        """Bring the tables up to the class vectors at the end of ``step``; return whether any work was due.

        ``touched_U``: the distinct classes that the step updated. ``query``: the step's query, for samplers that learn
        from hidden states.
        """
        return False

    def follows(self, step: int) -> bool:
        """Tell whether ``refresh`` may have something to do at the end of ``step``."""
        return type(self).refresh is not Sampler.refresh

    @property
    def asks_what_moved(self) -> bool:
        """Tell whether ``refresh`` reads which classes the step updated; to tell it, a step on a device must wait."""
        return True

    @property
    def avoids_targets(self) -> bool:
        """Tell whether a row's own targets are never among its candidates, by design."""
        return False

    def learn(self, query: Query, step: int) -> bool:
        """Learn from the query's hidden states now, at the end of ``step``, whatever the schedule says.

        Return whether the sampler learns from hidden states at all.
        """
        return False

    @property
    def chosen(self) -> dict[str, str]:
        """Return the settings that the user left to the machine (``auto``), each with the value taken here."""
        return {}

    @property
    def statistics(self) -> dict[str, float]:
        """Return numbers worth logging, such as refreshes done and bytes held."""
        return {}

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return the tables; there is no generator state to save."""
        return {}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore what ``state_dict`` returned."""
        assert not state, f"{type(self).__name__} keeps no tables"


def customary(loss: str, losses: tuple[str, ...]) -> tuple[str, ...]:
    """Return ``losses`` with ``loss`` moved to the front, which makes it a sampler's customary one."""
    return (loss, *(name for name in losses if name != loss))


@dataclass(frozen=True, kw_only=True)
class SamplerConfig(Options, ABC):
    """Serve as the base of sampler configs; a field that is an option is declared by ``runner.options.fields.option``.

    losses: the losses that make sense with the sampler, the customary one first.
    random_tables: the sampler draws through tables of random hash functions; an estimate's error under one choice of
    these functions differs from its error over fresh choices.
    by_magnitude: draws depend on the size of logits, not only on their differences.
    is_the_batch: the batch's own targets are the candidates; nothing else is drawn.
    by_chance: for a given batch, the proposal depends on seed and step.
    refuses_nan: a class vector that is not finite raises a one-line error instead of giving a proposal.
    contract_cases: settings by name of case, small enough for 120 classes. ``python -m runner.check`` and
    tests/contract build the sampler with each; if empty, with its defaults, cut down to size.
    """

    section: ClassVar[str] = "sampler"
    losses: ClassVar[tuple[str, ...]] = tuple(name for name, loss in LOSSES.items() if not loss.needs_every_class)
    random_tables: ClassVar[bool] = False
    by_magnitude: ClassVar[bool] = False
    is_the_batch: ClassVar[bool] = False
    by_chance: ClassVar[bool] = True
    refuses_nan: ClassVar[bool] = False
    contract_cases: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    name: str

    @classmethod
    def selected(cls) -> Mapping[str, Any]:
        """Return ``selects``, with the customary loss."""
        return {"loss": cls.losses[0], **cls.selects}

    @property
    def can_draw_every_class(self) -> bool:
        """Tell whether every class, the targets included, has an expected count above 0."""
        return True

    @property
    def draws_for_the_batch(self) -> bool:
        """Tell whether one draw serves all rows: equal rows may get equal candidates, and a row may get none."""
        return False

    def check_loss(self, loss: Any) -> None:
        """Raise ConfigError unless the loss makes sense with this sampler."""
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
                f"loss={loss.name} divides by the expected count of targets, which is 0 for some, because "
                f"sampler={self.name} can not draw them{way_out}"
            )
        if not loss.masks_hits:
            raise ConfigError(
                f"loss={loss.name} counts targets in its partition only where they are drawn, but sampler={self.name} "
                f"can not draw them all, so the loss would fall without limit{way_out}"
            )

    def check_processor(self) -> None:
        """Raise ProcessorLacks if the settings need instructions that this processor does not have."""
        return

    def check_engine(self, engine: str) -> None:
        """Raise ConfigError if the settings do not go with what holds the class matrix (``hardware.engine``)."""
        return

    def check_memory(self, num_rows: int, num_classes: int) -> str | None:
        """Return a line that says how much memory steps on ``num_rows`` rows will hold, or None if that is little.

        Raise ConfigError if that much memory is not free.
        """
        return None

    @abstractmethod
    def build(self, *, layer: Layer, training: TrainingFacts, seed: int) -> Sampler:
        """Make the sampler for the class matrix of ``layer``."""

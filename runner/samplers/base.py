"""The sampler contract: what is drawn, and the expected count of everything that could be drawn.

Legend: B batch rows, D hidden size, P all targets of the batch, M shared candidates, N candidates of all rows.

The one number that unifies samplers is the *expected count* of a candidate: how many times it is expected to
stand in the row's proposal. Weighting by exp(logit - log expected count) estimates the partition without bias.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from runner.errors import ConfigError

if TYPE_CHECKING:
    from runner.output_layer import OutputLayer


@dataclass(frozen=True, kw_only=True)
class Query:
    """What a sampler may look at: ``hidden_BD`` float32 and the true classes of each row.

    Row b's targets are ``targets_P[target_indptr_B1[b] : target_indptr_B1[b + 1]]``, ascending.
    """

    hidden_BD: np.ndarray
    target_indptr_B1: np.ndarray
    targets_P: np.ndarray

    @property
    def num_rows(self) -> int:
        return len(self.target_indptr_B1) - 1

    @cached_property
    def row_P(self) -> np.ndarray:
        """(P,) int32: the row of each target."""
        return np.repeat(np.arange(self.num_rows, dtype=np.int32), np.diff(self.target_indptr_B1))


@dataclass(frozen=True, kw_only=True)
class TrainingFacts:
    """What a sampler may know of the training set: positives per class, rows, and how many steps make an epoch."""

    label_counts_N: np.ndarray
    num_rows: int
    steps_per_epoch: int

    @classmethod
    def one_label_a_row(cls, label_counts_N: np.ndarray, steps_per_epoch: int = 1) -> "TrainingFacts":
        return cls(label_counts_N=label_counts_N, num_rows=int(label_counts_N.sum()), steps_per_epoch=steps_per_epoch)


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """Candidates and the log of their expected counts (float32).

    ``indptr`` None: all rows share ``ids_N`` (N = M), which must ascend. Otherwise row b has
    ``ids_N[indptr[b] : indptr[b + 1]]``.
    True classes of a row may be among its candidates (accidental hits); the loss says what becomes of them.

    ``distinct`` False: draws with replacement, where a row has a class as often as it was drawn.
    """

    ids_N: np.ndarray
    log_expected_count_N: np.ndarray
    indptr_B1: np.ndarray | None = None
    distinct: bool = True

    @property
    def is_shared(self) -> bool:
        return self.indptr_B1 is None

    def candidates_per_row(self, num_rows: int) -> float:
        return float(len(self.ids_N)) if self.is_shared else len(self.ids_N) / max(1, num_rows)


@dataclass(frozen=True)
class Everything:
    """The proposal of full softmax: every class once, so nothing needs to be listed.

    ``products``: precision of the operands of its products. ``stores_logits``: they are kept, as bfloat16, from the
    scores to the update.
    """

    num_classes: int
    products: Literal["float32", "bf16"] = "float32"
    stores_logits: bool = False

    def candidates_per_row(self, num_rows: int) -> float:
        return float(self.num_classes)


class Sampler(ABC):
    """Draws candidates. Pure given (seed, step, tables): only ``refresh`` changes anything."""

    @abstractmethod
    def sample(self, query: Query, step: int) -> "Proposal | Everything":
        """Candidates for a batch at a training step (1-based)."""

    @abstractmethod
    def log_expected_count(self, query: Query, ids_M: np.ndarray, step: int) -> np.ndarray:
        """(B, M) log expected counts of arbitrary class ids; -inf for what can not be drawn."""

    def log_expected_count_of_targets(self, query: Query, proposal: "Proposal | Everything", step: int) -> np.ndarray:
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


@dataclass(frozen=True, kw_only=True)
class SamplerConfig(ABC):
    """Base of sampler configs; ``losses`` lists the losses that make sense with the sampler.

    ``random_tables``: the sampler draws through tables of random hash functions, so that the error of an estimate
    under one draw of them differs from that over fresh draws. ``by_magnitude``: draws depend on how large logits are,
    not only on their differences. ``is_the_batch``: nothing is drawn but the batch itself.
    """

    losses: ClassVar[tuple[str, ...]] = (
        "sampled_softmax", "absolute_softmax", "partition_estimate", "active_set", "nce", "negative_sampling", "gbce",
        "blackout",
    )  # fmt: skip
    random_tables: ClassVar[bool] = False
    by_magnitude: ClassVar[bool] = False
    is_the_batch: ClassVar[bool] = False
    name: str

    @property
    def can_draw_every_class(self) -> bool:
        """Whether every class, the targets included, has an expected count above 0."""
        return True

    def check_loss(self, loss: Any) -> None:
        """ConfigError unless the loss makes sense with this sampler."""
        if loss.name not in self.losses:
            raise ConfigError(f"loss={loss.name} does not go with sampler={self.name}; valid: {', '.join(self.losses)}")
        if self.can_draw_every_class:
            return
        way_out = "; take loss=active_set or sampled_softmax without correct_target"
        if hasattr(self, "tail_candidates"):
            way_out += ", or sampler.tail_candidates of at least 1"
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

"""Define the contenders of a comparison: each takes a training step stage by stage, and refreshes separately.

Legend: N drawn candidates of all rows (classes in ``label_counts_N``), P targets, U distinct class rows.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from runner.bench.methods import METHODS
from runner.config import compose
from runner.contracts import Query, TrainingFacts
from runner.errors import ConfigError, ProcessorLacks
from runner.heads.classes import Estimate, estimate
from runner.machine.clock import StageClock
from runner.options.settings import RunConfig
from runner.output.engines import layer_of
from runner.output.layer import Rows
from runner.samplers.building import build_sampler
from runner.samplers.full import FullConfig, stored_bytes
from runner.samplers.hashed import HashedConfig
from runner.samplers.lsh import Lsh
from runner.samplers.rff import RffConfig
from runner.structures.refresh_schedule import RefreshSchedule

# The matrix stays as drawn (a step of Adam takes as long at any rate), so that every repetition of every method
# meets the same classes. Hidden states are drawn near the vectors of these classes.
_STANDING_STILL = ["optimizer.lr=1e-6"]


def configuration(method: str, overrides: Sequence[str]) -> RunConfig:
    """Return the method's configuration. Raises ConfigError (one line) when it does not compose."""
    return compose([*_STANDING_STILL, *METHODS[method], *overrides])


def out_of_reach(config: RunConfig) -> str | None:
    """Return a status such as ``skipped: needs AVX512_BF16`` when this processor cannot run the method, else None."""
    try:
        config.check_processor()
    except ProcessorLacks as error:
        return error.status
    return None


class Drawn(Protocol):
    """Say what a step scored besides the targets; asking may wait for a device."""

    @property
    def per_row(self) -> float:
        """Return the candidates per row."""

    @property
    def ids_N(self) -> np.ndarray | None:
        """Return the candidates' ids (N,); None: every class."""


@dataclass(frozen=True, kw_only=True)
class Listed:
    """Name what a step scored besides the targets (``Drawn``)."""

    per_row: float
    ids_N: np.ndarray | None


@dataclass(frozen=True)
class Proposed:
    """Look up what a step scored besides the targets in its proposal (``Drawn``)."""

    estimate: Estimate

    @property
    def per_row(self) -> float:
        return self.estimate.proposal.candidates_per_row(self.estimate.query.num_rows)

    @property
    def ids_N(self) -> np.ndarray | None:
        return getattr(self.estimate.proposal, "ids_N", None)


class Contender(ABC):
    """A method that can take a training step. Subclasses set the attributes below; this class times nothing."""

    name: str
    everything = False  # True if it scores and updates every class
    whole_matrix = False  # True if each step reads every class; a tenth of the steps is then enough
    stages_compare = True  # True if its stages are the runner's, so that the machine's limits apply
    rows_policy = "touched"

    @abstractmethod
    def step(self, query: Query, step: int, clock: StageClock) -> Drawn:
        """Take training step ``step`` on ``query`` without a refresh, and put each stage's seconds on ``clock``."""

    @property
    def refreshes(self) -> RefreshSchedule | None:
        """Return the refresh schedule, or None for a method without tables that follow the weights."""
        return None

    def refresh(self, step: int) -> None:
        """Update the method's tables to the class vectors at the end of ``step``."""
        raise AssertionError(f"{self.name} keeps no tables")

    def touch(self, query: Query, step: int) -> None:
        """Note which classes a step on ``query`` would have touched, without training."""
        raise AssertionError(f"{self.name} keeps no tables")

    @property
    def table_bytes(self) -> int:
        """Return the bytes that the method keeps in memory besides weights and moments."""
        return 0


class RunnerMethod(Contender):
    """A sampler and a loss of the runner on a row table that methods may share.

    Raises ConfigError when ``config.optimizer`` differs from the table's settings.
    """

    def __init__(self, name: str, config: RunConfig, table: Rows, label_counts_N: np.ndarray) -> None:
        self.name = name
        self.config = config
        self.everything = config.sampler.name == "full"
        self.whole_matrix = config.sampler.name in ("full", "topk", "sce")
        self.rows_policy = config.optimizer.rows
        if config.optimizer != table.config:
            raise ConfigError(f"{name} needs its own optimizer settings, but methods of one run share the class matrix")
        self.layer = layer_of(table, config.output.scale)
        training = TrainingFacts.one_label_a_row(label_counts_N)
        self.sampler = build_sampler(config.sampler, layer=self.layer, training=training, seed=0)

    def step(self, query: Query, step: int, clock: StageClock) -> Drawn:
        made = estimate(self.layer, self.sampler, self.config.loss, query, step, clock)
        with clock.stage("update"):
            made.scores.update()
        if isinstance(self.sampler, Lsh):
            with clock.stage("refresh"):
                self.sampler.note_touched(made.scores.touched_U, step)
        return Proposed(made)

    @property
    def refreshes(self) -> RefreshSchedule | None:
        return self.sampler.schedule if isinstance(self.sampler, Lsh) else None

    def touch(self, query: Query, step: int) -> None:
        """Tell the sampler that a step trained on ``query``, so that the next refresh includes the step's classes."""
        assert isinstance(self.sampler, Lsh)
        proposal = self.sampler.sample(query, step)
        self.sampler.note_touched(np.union1d(query.targets_P, proposal.ids_N), step)

    def refresh(self, step: int) -> None:
        assert isinstance(self.sampler, Lsh)
        self.sampler.rebuild(step)

    @property
    def table_bytes(self) -> int:
        tables = int(self.sampler.statistics.get("table_mb", 0) * 2**20)
        owners = [self.sampler, *filter(None, [getattr(self.sampler, "classes", None)])]
        return tables + sum(
            held.nbytes for owner in owners for held in vars(owner).values() if isinstance(held, np.ndarray)
        )


def sampler_bytes(config: Any, num_classes: int, batch: int) -> float:
    """Estimate the bytes that a sampler takes in memory.

    For hash tables: members, codes, and codes before they are narrowed. For a sum tree: features, one byte each, and
    sums. For full softmax that stores logits: the logits.
    """
    if isinstance(config, FullConfig) and config.stored_logits != "none":
        return stored_bytes(batch, num_classes)
    if isinstance(config, HashedConfig):
        return config.L * num_classes * 10.0
    return (4.0 * config.D if isinstance(config, RffConfig) else 64.0) * num_classes

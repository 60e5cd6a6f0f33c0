"""Build the head of a network with a huge output layer from a class matrix, a sampler and a loss.

Legend: B rows of a batch, D hidden size, N classes, P targets of the batch, U distinct classes.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from runner.contracts import Batch, Everything, Proposal, Query, TrainingFacts, as_array
from runner.door.losses import checked_loss
from runner.door.models import class_vectors
from runner.door.samplers import build_sampler, facts_of
from runner.heads.base import Touched
from runner.machine.clock import StageClock
from runner.output.across import ALONE, Across, block_of
from runner.output.agreement import check_same_draw
from runner.output.engines import layer_of, query_of, rows_of, whole
from runner.output.layer import Layer, RowGradient, Rows, Scores
from runner.output.losses import LossConfig
from runner.samplers.base import Sampler, SamplerConfig
from runner.samplers.full import FullConfig

if TYPE_CHECKING:
    from runner.options.settings import RunConfig

_NOBODY = np.zeros(0, dtype=np.int32)


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Hold a query, its candidates, their scores with gradients at hand, and the losses (B,) float32."""

    query: Query
    proposal: Proposal | Everything
    scores: Scores
    loss_B: np.ndarray


def estimate(
    layer: Layer,
    sampler: Sampler,
    loss: LossConfig,
    query: Query,
    step: int,
    clock: StageClock,
    weight_B: np.ndarray | None = None,
) -> Estimate:
    """Propose, correct, score and take the loss; nothing is updated.

    Training, measurements of speed and diagnoses all use this function to get from hidden states to gradients.
    ``weight_B``: float32 factors of the rows' losses in the sum whose gradients are computed; None: 1 / B each.
    """
    with clock.stage("sample"):
        proposal = sampler.sample(query, step)
        log_count_P = None
        if loss.corrects_targets:
            log_count_P = sampler.log_expected_count_of_targets(query, proposal, step)
    with clock.stage("score"):
        scores = layer.score(query, proposal, step)
    with clock.stage("loss"):
        loss_B = scores.loss(loss, log_count_P, weight_B)
    return Estimate(query=query, proposal=proposal, scores=scores, loss_B=loss_B)


def _touched_anywhere(made: Estimate) -> np.ndarray:
    """Return the classes that a step moves, held here or elsewhere, (U,) ascending int32."""
    if isinstance(made.proposal, Everything):
        return np.arange(made.proposal.num_classes, dtype=np.int32)
    return np.unique(np.concatenate([made.query.targets_P, made.proposal.ids_N]))


class ClassScores:
    """Hold a batch that the head of classes has scored."""

    def __init__(self, estimate: Estimate, weight_B: np.ndarray | None) -> None:
        self.estimate = estimate
        self._weight_B = weight_B

    @property
    def loss(self) -> float:
        """Return the weighted sum of the rows' losses; without weights, their mean."""
        loss_B = as_array(self.estimate.loss_B)
        if self._weight_B is None:
            return float(loss_B.mean(dtype=np.float64))
        return float(np.dot(self._weight_B.astype(np.float64), loss_B.astype(np.float64)))

    @property
    def candidates_per_row(self) -> float:
        """Return the mean number of classes that a row was compared with."""
        return self.estimate.proposal.candidates_per_row(self.estimate.query.num_rows)

    @property
    def touched_U(self) -> np.ndarray:
        """Targets and candidates, ascending int32."""
        return self.estimate.scores.touched_U

    def update(self) -> np.ndarray:
        """Apply the gradients to the touched classes; return the gradient of the hidden states (B, D)."""
        return self.estimate.scores.update()

    def gradients(self) -> tuple[RowGradient, np.ndarray]:
        """Return the gradient of the touched classes, without applying it, and that of the hidden states (B, D)."""
        return self.estimate.scores.gradients()


class ClassesHead:
    """Combine the class matrix with a sampler, which is built for it, and a loss."""

    def __init__(
        self, layer: Layer, sampler: SamplerConfig, loss: LossConfig, training: TrainingFacts, seed: int
    ) -> None:
        self._part, self.layer = layer, whole(layer)
        self.loss, self.training, self.seed = checked_loss(loss), training, seed
        self.sampler_config = sampler
        begin = time.perf_counter()
        self.sampler = build_sampler(sampler, layer=self.layer, training=training, seed=seed)
        self.build_seconds = time.perf_counter() - begin

    @classmethod
    def of(
        cls, config: "RunConfig", training: TrainingFacts, *, ranks_only: bool = False, across: Across | None = None
    ) -> "ClassesHead":
        """Make the untrained head of a run's configuration. ``across``: the holders of its classes; None: this process.

        ``ranks_only``: it is to rank by weights that are loaded, so that it needs no tables of the run's sampler.
        """
        num_classes, output = len(training.label_counts_N), config.output
        across = ALONE if across is None else across
        lo, hi = block_of(num_classes, across.place, across.size)
        table = rows_of(config, class_vectors(config, lo, hi))
        # Biases start at -log n: softmax ignores a common shift, and losses that treat logits as log probabilities
        # (NCE) then start from the uniform distribution. Magnitudes are symmetric around 0, so there biases start at 0.
        # The biases of a normalised layer stay 0.
        if output.bias and not (config.loss.by_magnitude or config.sampler.by_magnitude or output.normalize):
            table.write(None, biases=-math.log(num_classes))
        sampler = FullConfig(name="full") if ranks_only else config.sampler
        layer = layer_of(table, output.scale, lo=lo, num_classes=num_classes, across=across)
        return cls(layer, sampler, config.loss, training, config.seed)

    @property
    def tables(self) -> Sequence[Rows]:
        """Return the class matrix, or the rows of it that are held here."""
        return (self._part.table,)

    # ------------------------------------------------------------ a training step

    def score(self, hidden_BD: np.ndarray, batch: Batch, step: int, clock: StageClock) -> ClassScores:
        """Score the batch against the sampler's candidates."""
        query = query_of(hidden_BD, batch)
        made = estimate(self.layer, self.sampler, self.loss, query, step, clock, batch.weight_B)
        check_same_draw(self.layer.across, query, made.proposal, step)
        return ClassScores(made, batch.weight_B)

    def refresh(self, scores: Any, touched: Touched, step: int, clock: StageClock) -> None:
        """Let the sampler follow the classes that the step moved."""
        if not self.sampler.follows(step):
            return
        made: Estimate = scores.estimate
        with clock.stage("refresh"):
            moved_U = _NOBODY
            if self.sampler.asks_what_moved:
                moved_U = touched() if self.layer.across.size == 1 else _touched_anywhere(made)
            self.sampler.refresh(made.query, step, moved_U)

    # ------------------------------------------------------------ predicting

    def top(self, hidden_BD: np.ndarray, k: int) -> np.ndarray:
        """Return the k best classes of each row, (B, k) int32, best first. Rows must be current."""
        return self.layer.largest(hidden_BD, k, by_magnitude=self.loss.by_magnitude).ids_BK

    def logits_of(self, hidden_BD: np.ndarray, class_BK: np.ndarray) -> np.ndarray:
        """Return the logits of some classes of each row, (B, K) float32, or magnitudes if the loss is of these."""
        logit_BK = self.layer.logits(hidden_BD, class_BK)
        return np.abs(logit_BK) if self.loss.by_magnitude else logit_BK

    def probabilities_of(self, hidden_BD: np.ndarray, class_BK: np.ndarray, logit_BK: np.ndarray) -> np.ndarray:
        """Return the probabilities of each row's best classes, best first, (B, K) float64, from their logits.

        They are those of the loss: sigmoid(logit) where each class is a problem of its own, else the softmax over all
        classes.
        """
        if self.loss.independent:
            return 1 / (1 + np.exp(-logit_BK.astype(np.float64)))
        first_B = -self.layer.cross_entropy(hidden_BD, class_BK[:, 0], by_magnitude=self.loss.by_magnitude)
        return np.exp(logit_BK - logit_BK[:, :1].astype(np.float64) + first_B[:, None])

    def agrees(self, flag: bool) -> bool:
        """Tell whether a flag is true for all processes that hold classes."""
        return self.layer.across.all(flag)

    def is_sound(self, hidden_BD: np.ndarray) -> bool:
        """Tell whether all logits of these hidden states are below ``LARGEST_OUTPUT``. Rows must be current."""
        return self.layer.is_sound(hidden_BD)

    # ------------------------------------------------------------ what a run tells of it

    @property
    def chosen(self) -> Mapping[str, str]:
        """What settings of the sampler that read ``auto`` became, by key."""
        return self.sampler.chosen

    def about(self) -> dict[str, Any]:
        """The sampler's statistics and choices."""
        return facts_of(self.sampler, self.sampler_config)

    # ------------------------------------------------------------ state

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return the class matrix under ``layer.`` and the sampler's tables under ``sampler.``."""
        parts: dict[str, Any] = {"layer": self.layer, "sampler": self.sampler}
        return {f"{part}.{name}": value for part, owner in parts.items() for name, value in owner.state_dict().items()}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore what ``state_dict`` returned."""
        for part, owner in (("layer", self.layer), ("sampler", self.sampler)):
            prefix = f"{part}."
            owner.load_state_dict({n.removeprefix(prefix): v for n, v in state.items() if n.startswith(prefix)})

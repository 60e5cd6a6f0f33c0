"""Train a network of an encoder and a head; a training step goes through both.

batch -> ENCODE -> SAMPLE -> SCORE -> LOSS -> UPDATE -> REFRESH

Legend: B rows of a batch, D hidden size.
"""

import functools
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import numpy as np

from runner.door.models import build_encoder
from runner.heads.base import Head, HeadScores, Touched
from runner.heads.classes import ClassesHead
from runner.machine.clock import StageClock
from runner.models.base import Encoder
from runner.models.split_batch import SplitBatch
from runner.output.across import ALONE, Across
from runner.output.gradients import Gradient, clipping_factor
from runner.output.layer import STATE_OF_TRAINING, RowGradient, Rows

if TYPE_CHECKING:
    from runner.options.settings import RunConfig

AnyHead = TypeVar("AnyHead", bound=Head)


class Network(Generic[AnyHead]):
    """Train an encoder and a head together.

    ``clip``: largest norm of the gradient of all weights together; None: no limit. ``tied``: the encoder's input rows
    are the head's rows, so they take one step by the sum of both gradients. ``learner``: what trains the encoder, if
    it is not the encoder alone.
    """

    def __init__(
        self,
        encoder: Encoder,
        head: AnyHead,
        *,
        clip: float | None = None,
        tied: bool = False,
        learner: Encoder | None = None,
    ) -> None:
        self.encoder, self.head = encoder, head
        self._learner = encoder if learner is None else learner
        self._clip = clip
        self._steps_together = tied or clip is not None

    @classmethod
    def of(cls, config: "RunConfig", head: AnyHead, *, num_features: int, across: Across = ALONE) -> "Network[AnyHead]":
        """Make the network of a run's configuration: its model's encoder and this head.

        ``across``: the processes that encode a part of each batch, if the configuration divides batches.
        """
        encoder = build_encoder(config, num_features=num_features, classes=head.tables[0])
        learner = SplitBatch(encoder, across) if config.hardware.batch == "split" else encoder
        return cls(encoder, head, clip=config.training.clip, tied=config.model.tied, learner=learner)

    @property
    def tables(self) -> list[Rows]:
        """Return all weights that are rows, each table once."""
        return [*self.encoder.tables, *self.head.tables]

    # ------------------------------------------------------------ a training step

    def train_step(self, batch: Any, step: int, clock: StageClock) -> HeadScores:
        """Take one step (1-based) on a batch; return its scores, which hold the loss and the number of candidates."""
        with clock.stage("encode"):
            hidden_BD = self._learner.forward(batch, step)
        scores = self.head.score(hidden_BD, batch, step, clock)
        if self._steps_together:
            touched = self._update_together(scores, step, clock)
        else:
            with clock.stage("update"):
                grad_hidden_BD = scores.update()
            with clock.stage("encode"):
                self._learner.backward(grad_hidden_BD, step)
            touched = functools.partial(getattr, scores, "touched_U")
        self.head.refresh(scores, touched, step, clock)
        return scores

    def _update_together(self, scores: HeadScores, step: int, clock: StageClock) -> Touched:
        """Compute every gradient before any weight takes its step, so that gradients can be summed and clipped.

        Returns what tells the rows of the head's table that moved, those of tied input words among them.
        """
        with clock.stage("update"):
            of_head, grad_hidden_BD = scores.gradients()
        with clock.stage("encode"):
            gradients = self._learner.gradients(grad_hidden_BD, step)
        with clock.stage("update"):
            others: list[Gradient] = []
            for gradient in gradients:
                if getattr(gradient, "table", None) is of_head.table:
                    of_head = of_head.plus(cast(RowGradient, gradient))
                else:
                    others.append(gradient)
            factor = 1.0 if self._clip is None else clipping_factor([of_head, *others], self._clip)
            for gradient in (of_head, *others):
                gradient.apply(step, factor)
        return functools.partial(getattr, of_head, "rows_U")

    def set_lr(self, lr: float) -> None:
        """Set the learning rate of the steps to come. All rows must be current."""
        for table in self.tables:
            table.set_lr(lr)

    # ------------------------------------------------------------ what a run tells of it

    @property
    def has_classes(self) -> bool:
        """Tell whether the head is a class matrix with a sampler, whose proposal can be compared with the softmax."""
        return isinstance(self.head, ClassesHead)

    @property
    def build_seconds(self) -> float:
        """Return how long the head took to make tables (``Head.build_seconds``)."""
        return self.head.build_seconds

    @property
    def chosen(self) -> Mapping[str, str]:
        """Return what settings that read ``auto`` became (``Head.chosen``)."""
        return self.head.chosen

    def about(self) -> dict[str, Any]:
        """Return what a run's summary tells of the head (``Head.about``)."""
        return self.head.about()

    # ------------------------------------------------------------ the weights as they stand

    def read_all(self, step: int) -> None:
        """Bring every row up to date with the steps before ``step``, as ranking over all classes needs."""
        for table in self.tables:
            table.read(None, step)

    @contextmanager
    def caught_up(self, step: int) -> Iterator[None]:
        """Hold in every row its value before ``step`` for a while, without a trace (``RowTable.caught_up``)."""
        with ExitStack() as stack:
            for table in self.tables:
                stack.enter_context(table.caught_up(step))
            yield

    def is_sound(self, batch: Any) -> bool:
        """Tell whether all weights are finite and a batch's outputs are below ``LARGEST_OUTPUT``.

        Losses need not tell: that of the last step is taken before its update, and a large one may be finite.
        """
        are_finite = all(table.is_finite() for table in self.tables)
        are_finite = are_finite and all(np.isfinite(part).all() for part in self.encoder.dense)
        if not self.head.agrees(are_finite):
            return False
        return self.head.is_sound(self.encoder.encode(batch))

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return all that a resumed run needs: the encoder's state under ``encoder.``, and the head's."""
        of_encoder = {f"encoder.{name}": array for name, array in self._learner.state_dict().items()}
        return {**of_encoder, **self.head.state_dict()}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore what ``state_dict`` returned."""
        prefix = "encoder."
        self._learner.load_state_dict({n.removeprefix(prefix): v for n, v in state.items() if n.startswith(prefix)})
        self.head.load_state_dict({name: array for name, array in state.items() if not name.startswith(prefix)})

    def final_weights(self) -> dict[str, np.ndarray]:
        """Return the part of the state that predicting and sampling need: weights and the sampler's tables."""

        def is_needed(name: str) -> bool:
            return name.startswith("sampler.") or name.rpartition(".")[2] not in STATE_OF_TRAINING

        return {name: array for name, array in self.state_dict().items() if is_needed(name)}

    def load_final_weights(self, weights: Mapping[str, np.ndarray]) -> None:
        """Restore what ``final_weights`` or ``state_dict`` returned, to predict and sample with, not to train on."""
        state = self.state_dict()
        self.load_state_dict({**state, **weights})
        if state.keys() - weights.keys():  # rows without their history must not move any more
            for table in self.tables:
                table.forget_steps()


ClassNetwork = Network[ClassesHead]

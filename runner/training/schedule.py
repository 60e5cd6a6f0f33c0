"""Compute the learning rate of every epoch: linear decay, and annealing by validation."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from runner.training.progress import Progress

if TYPE_CHECKING:
    from runner.options.settings import RunConfig


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Say at which learning rate each epoch trains, and when training stops early.

    ``initial``: rate of the first epoch.
    ``decay``: final rate as a fraction of the initial one, reached linearly over ``epochs``; None: no decay.
    ``anneal``: factor of the rate after every epoch in which validation did not improve; None: no change.
    ``patience``: training stops after this many epochs in a row without improvement; None: it never stops early.
    """

    initial: float
    decay: float | None
    anneal: float | None
    patience: int | None
    epochs: int
    steps_per_epoch: int

    @classmethod
    def of(cls, config: "RunConfig", steps_per_epoch: int) -> "Schedule":
        """Return the schedule of a run's configuration."""
        training = config.training
        return cls(
            initial=config.optimizer.lr,
            decay=training.decay,
            anneal=training.anneal,
            patience=training.patience,
            epochs=config.epochs,
            steps_per_epoch=steps_per_epoch,
        )

    def rate(self, progress: Progress) -> float:
        """Return the learning rate of the next step."""
        epoch, share = progress.step // self.steps_per_epoch, 1.0
        if self.decay is not None:
            share -= (1 - self.decay) * min(1.0, epoch / max(1, self.epochs - 1))
        return self.initial * progress.lr_factor * share

    def end_epoch(self, progress: Progress) -> None:
        """Lower the learning rate if validation did not improve in the epoch that has just ended."""
        if self.anneal is not None and self._epochs_without_improvement(progress) > 0:
            progress.lr_factor *= self.anneal

    def is_out_of_patience(self, progress: Progress) -> bool:
        """Return whether training must stop because validation has not improved for ``patience`` whole epochs."""
        at_end_of_epoch = progress.step % self.steps_per_epoch == 0
        if self.patience is None or not at_end_of_epoch:
            return False
        return self._epochs_without_improvement(progress) >= self.patience

    def _epochs_without_improvement(self, progress: Progress) -> int:
        """Return the number of whole epochs since the one in which validation was best."""
        if progress.best_step == 0:
            return 0
        return progress.step // self.steps_per_epoch - -(-progress.best_step // self.steps_per_epoch)

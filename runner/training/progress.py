"""What a training run has behind it: the part of its state that is not in arrays."""

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from runner.errors import RunnerError
from runner.machine.clock import STAGES


@dataclass(kw_only=True)
class Progress:
    """State of a run between two steps, as a checkpoint keeps it.

    ``train_seconds``: seconds of whole steps, batch assembly included; ``stage_seconds``: of their stages.
    ``candidates``: sum over steps of the candidates a row met. ``rows``: rows trained on. ``loss_sum`` over
    ``loss_steps``: mean loss since the last evaluation; ``latest_loss``: the one before it. ``headline``: the last
    evaluation's main number. ``best_step``: step of the best validation, 0 before there was one; ``best_score`` and
    ``best_lr`` are of that evaluation. ``lr_factor``: what annealing has made of the learning rate.
    """

    step: int = 0
    train_seconds: float = 0.0
    stage_seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STAGES, 0.0))
    candidates: float = 0.0
    rows: int = 0
    loss_sum: float = 0.0
    loss_steps: int = 0
    latest_loss: float = float("nan")
    headline: float = float("nan")
    best_score: float = float("nan")
    best_step: int = 0
    best_lr: float = float("nan")
    lr_factor: float = 1.0

    @classmethod
    def of(cls, state: dict[str, Any], path: str) -> "Progress":
        """Restore what ``state`` gave. Raises RunnerError for a checkpoint of another version; ``path`` names it."""
        names = {entry.name for entry in dataclasses.fields(cls)}
        if names != state.keys():
            raise RunnerError(f"{path} was written by another version of the runner; force=true starts the run again")
        return cls(**state)

    def state(self) -> dict[str, Any]:
        """Plain values by name, for JSON."""
        return dataclasses.asdict(self)

    @property
    def mean_loss(self) -> float:
        """Mean loss of the steps since the last evaluation."""
        return self.loss_sum / max(1, self.loss_steps)

"""Define the progress of a run: the part of its state that is not in arrays."""

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from runner.errors import RunnerError
from runner.machine.clock import BUILD, STAGES
from runner.machine.company import Taken

_ADDED = {"machine_seconds", "others_seconds", "stolen_seconds"}  # earlier versions did not count them


@dataclass(kw_only=True)
class Progress:
    """Hold the state of a run between two steps, as a checkpoint keeps it.

    ``step``: number of steps done.
    ``train_seconds``: seconds of whole steps, batch assembly included, and of the making of samplers' tables.
    ``stage_seconds``: seconds of each stage of the steps, and of that making as ``build``.
    ``candidates``: sum over steps of the mean number of candidates of a row.
    ``rows``: rows trained on.
    ``loss_sum``, ``loss_steps``: sum of the losses, and number of steps, since the last evaluation.
    ``latest_loss``: mean loss between the last two evaluations.
    ``headline``: main number of the last evaluation.
    ``best_step``: step of the best validation; 0 before the first one.
    ``best_score``, ``best_lr``: score and learning rate at that step.
    ``lr_factor``: product of all annealing factors so far.
    ``machine_seconds``, ``others_seconds``, ``stolen_seconds``: processor time of the machine that passed while the run
    trained, and what others took of it (see ``runner.machine.company``).
    """

    step: int = 0
    train_seconds: float = 0.0
    stage_seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys((BUILD, *STAGES), 0.0))
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
    machine_seconds: float = 0.0
    others_seconds: float = 0.0
    stolen_seconds: float = 0.0

    @classmethod
    def problem(cls, state: Any, step: int) -> str | None:
        """Return what ``state`` cannot have returned at a step, whatever the version; None if nothing."""
        if not isinstance(state, dict):
            return "'progress' is of a wrong kind"
        for entry in dataclasses.fields(cls):
            value = state.get(entry.name, 0)
            values = [value]
            if entry.name == "stage_seconds" and entry.name in state:
                if not isinstance(value, dict):
                    return "'progress.stage_seconds' is of a wrong kind"
                values = list(value.values())
            kinds = (int,) if entry.type is int or entry.type == "int" else (int, float)
            if any(isinstance(found, bool) or not isinstance(found, kinds) for found in values):
                return f"'progress.{entry.name}' is of a wrong kind"
            if kinds == (int,) and value < 0:
                return f"'progress.{entry.name}' is below 0"
        if state.get("step", step) != step:
            return f"'progress.step' is {state['step']:,}, but the step is {step:,}"
        if state.get("stage_seconds", {}).keys() - {BUILD, *STAGES}:
            return "'progress.stage_seconds' has an unknown stage"
        return None

    @classmethod
    def of(cls, state: dict[str, Any], path: str) -> "Progress":
        """Restore what ``state`` returned. Raises RunnerError, naming ``path``, for a state of another version."""
        names = {entry.name for entry in dataclasses.fields(cls)}
        if names != state.keys() | _ADDED:
            raise RunnerError(f"{path} was written by another version of the runner; force=true starts the run again")
        return cls(**state)

    def state(self) -> dict[str, Any]:
        """Return plain values by name, for JSON."""
        return dataclasses.asdict(self)

    def note(self, taken: Taken) -> None:
        """Add what others took of the machine during the last steps."""
        self.machine_seconds += taken.machine
        self.others_seconds += taken.others
        self.stolen_seconds += taken.stolen

    @property
    def company(self) -> dict[str, float]:
        """Return the shares of the machine that others took and that its host stole; {} if nobody counted."""
        if self.machine_seconds <= 0:
            return {}
        return {
            "others_share": self.others_seconds / self.machine_seconds,
            "stolen_share": self.stolen_seconds / self.machine_seconds,
        }

    @property
    def mean_loss(self) -> float:
        """Return the mean loss of the steps since the last evaluation."""
        return self.loss_sum / max(1, self.loss_steps)

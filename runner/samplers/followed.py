"""Follow the classes that training moves, for samplers that keep numbers of every class.

Legend: U distinct classes, R rows of the class matrix.
"""

from abc import abstractmethod
from collections.abc import Mapping

import numpy as np

from runner.contracts import Query
from runner.output.layer import Layer
from runner.samplers.base import Sampler
from runner.structures.class_rows import ClassRows
from runner.structures.refresh_schedule import RefreshSchedule


class FollowingSampler(Sampler):
    """Call ``follow`` with the classes that moved, every ``refresh_every_steps`` steps."""

    def __init__(self, layer: Layer, refresh_every_steps: int) -> None:
        self.layer = layer
        self.schedule = RefreshSchedule(refresh_every_steps)
        self.classes = ClassRows(layer)
        self.refreshes = 0  # that found classes which had moved
        self.refreshed_rows = 0

    @property
    def _last_refresh(self) -> int:
        """Return the step at which a refresh was due last, 0 before."""
        return int(self.schedule.next) - self.schedule.period

    @abstractmethod
    def follow(self, moved_U: np.ndarray) -> None:
        """Bring the numbers of these classes up to their vectors, which are current."""

    def refresh(self, query: Query, step: int, touched_U: np.ndarray) -> bool:
        """Update the numbers of the classes that moved, when a refresh is due."""
        self.classes.note_touched(touched_U, step)
        last = self._last_refresh
        if not self.schedule.comes_due(step):
            return False
        moved = self._moved(last, step)
        if len(moved) == 0:
            return False
        self.classes.bring_up(moved, step)
        self.follow(moved)
        self.refreshes += 1
        self.refreshed_rows += len(moved)
        return True

    def _moved(self, last: int, step: int) -> np.ndarray:
        """Return the classes touched since the ``last`` refresh, and those that came to rest since then.

        Momentum keeps moving a class for many steps after it was touched, at beta1 = 0.9 nine times as far in all as
        that step did. To follow it at every refresh would cost more than it is worth, so the class is read once more
        when it has come to rest.
        """
        touched = self.classes.touched_step_R
        moved = touched > last
        settling = self.layer.table.settling_steps
        if settling > 0:
            moved |= (touched > max(0, last - settling)) & (touched <= step - settling)
        return np.flatnonzero(moved).astype(np.int32)

    @property
    def statistics(self) -> dict[str, float]:
        return {"refreshes": self.refreshes, "refreshed_rows": self.refreshed_rows}

    def state_dict(self) -> dict[str, np.ndarray]:
        schedule = [self.refreshes, self.refreshed_rows, self._last_refresh]
        return {**self.classes.state_dict(), "schedule": np.array(schedule, dtype=np.int64)}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        self.classes.load_state_dict(state)
        self.refreshes, self.refreshed_rows, last = state["schedule"].tolist()
        self.schedule.next = float(last + self.schedule.period)

"""Keep what row tables of all engines have in common: their optimizer, the rate, and whether rows lag."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from runner import rng
from runner.optimizers.configs import AdamConfig, OptimizerConfig
from runner.optimizers.drift import Drift


class RowPolicy:
    """Serve as the base of row tables; it holds no rows.

    ``drift``: sums over the steps that rows may have missed; None unless the optimizer is Adam. ``seed`` and ``number``
    decide the random bits by which first moments are rounded; the tables of a network have different numbers.
    ``first_row``: the number of the table's first row in a larger matrix, of which other processes hold the rest.
    """

    first_row = 0

    def __init__(self, config: OptimizerConfig, seed: int = 0, number: int = 0) -> None:
        self.config = config
        self.seed, self.number = seed, number
        self.drift = Drift(config) if isinstance(config, AdamConfig) else None
        self._lr = config.lr
        self._is_frozen = False

    @property
    def lr(self) -> float:
        """Return the learning rate of the next step: the configuration's, unless ``set_lr`` changed it."""
        return self._lr

    def set_lr(self, lr: float) -> None:
        """Change the learning rate from the next step on. Rows must be current, as missed steps share one rate."""
        self._lr = lr
        if self.drift is not None:
            self.drift.lr = lr

    @property
    def settling_steps(self) -> int:
        """Return the number of steps after which an untouched row moves a thousand times less than at first."""
        config = self.config
        if not isinstance(config, AdamConfig) or config.rows == "touched" or config.beta1 == 0:
            return 0
        return math.ceil(math.log(1e-3) / math.log(config.beta1))

    @property
    def rounds(self) -> bool:
        """Tell whether first moments are bfloat16."""
        return isinstance(self.config, AdamConfig) and self.config.first_moment == "bf16"

    @property
    def has_row_moments(self) -> bool:
        """Tell whether a row has a single second moment."""
        return isinstance(self.config, AdamConfig) and self.config.second_moment == "row"

    def rounding(self, step: int) -> np.uint64 | None:
        """Return the key of the random words by which a step rounds first moments; None if they are float32."""
        if not self.rounds:
            return None
        return rng.advanced(np.uint64(rng.stream(self.seed, rng.ROUND, step, self.number)), self.first_row)

    def _upto(self, step: int) -> int:
        """Return the step that rows are brought up to before they take part in ``step``; 0: they are left unchanged."""
        return 0 if self._is_frozen or self.config.rows == "touched" else step - 1

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Keep reads from moving rows for a while, so that a caller can try steps without taking them.

        Rows must be current, or hold the values of ``caught_up``.
        """
        before, self._is_frozen = self._is_frozen, True
        try:
            yield
        finally:
            self._is_frozen = before

"""Keep what row tables of all engines have in common: their optimizer, the rate, and whether rows lag."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

from runner.optimizers.configs import AdamConfig, OptimizerConfig
from runner.optimizers.drift import Drift


class RowPolicy:
    """Serve as the base of row tables; it holds no rows.

    ``drift``: sums over the steps that rows may have missed; None unless the optimizer is Adam.
    """

    def __init__(self, config: OptimizerConfig) -> None:
        self.config = config
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

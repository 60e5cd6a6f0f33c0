"""Keep memory for results that are needed for one step only."""

import math

import numpy as np


class Scratch:
    """Keep named float32 buffers from step to step, because fresh memory costs more than the computation in it."""

    def __init__(self) -> None:
        self._held: dict[str, np.ndarray] = {}

    def take(self, name: str, *shape: int) -> np.ndarray:
        """Return a float32 array of undefined contents. It overwrites what was taken under this name before."""
        size = math.prod(shape)
        if name not in self._held or len(self._held[name]) < size:
            self._held[name] = np.empty(size, dtype=np.float32)
        return self._held[name][:size].reshape(shape)

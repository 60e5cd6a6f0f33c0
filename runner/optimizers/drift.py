"""Sum up the steps that Adam takes without a gradient, in closed form.

Legend: S all last steps.
"""

import numpy as np

from runner.optimizers.configs import AdamConfig

_SUMS = ("drift", "damping", "_weight", "_scaled")  # arrays by last step
_NEGLIGIBLE = 1e-12  # missed steps whose momentum has decayed to this fraction move a row by less than float32 resolves


def _powers(beta: float) -> np.ndarray:
    """Return beta ** 0, 1, 2, ... as float32, until they vanish or 2^17 are listed; kernels compute the rest."""
    length = int(np.ceil(np.log(1e-37) / np.log(max(beta, 1e-37))))
    return (np.float64(beta) ** np.arange(1 + min(length, 1 << 17))).astype(np.float32)


class Drift:
    """Sum up the zero-gradient Adam steps s+1..t of a row last updated at step s.

    Step j moves an element by lr a_j m / (b_j sqrt(v) + epsilon), where m, v are the moments at s,
    a_j = beta1^(j-s) / (1 - beta1^j) and b_j = sqrt(beta2^(j-s) / (1 - beta2^j)). With A = sum a_j and
    D = sum a_j / b_j, the sum over j is lr D m / (sqrt(v) + epsilon D / A), to second order in the spread of b_j. This
    is exact if epsilon is negligible or dominates. In between, the spread matters in the first steps, when b_j changes
    fast.
    """

    def __init__(self, config: AdamConfig) -> None:
        self.config = config
        self.lr = config.lr
        ratio = config.beta1 / config.beta2**0.5  # the drift of each missed step is this fraction of the one before
        self.window = max(1, int(np.ceil(np.log(_NEGLIGIBLE) / np.log(ratio)))) if config.beta1 > 0 else 1
        self.step = 0
        self.drift = np.zeros(1024, dtype=np.float32)
        self.damping = np.zeros(1024, dtype=np.float32)
        self._weight = np.zeros(1024)  # A
        self._scaled = np.zeros(1024)  # D
        self.powers = (_powers(config.beta1), _powers(config.beta2))

    def state(self) -> np.ndarray:
        """Return all sums up to the present step, (4, S) float64, so that a resumed run need not add them up again."""
        return np.stack([getattr(self, name)[: self.step + 1].astype(np.float64) for name in _SUMS])

    def restore(self, state: np.ndarray) -> None:
        """Take up the sums that ``state`` returned."""
        self.step = state.shape[1] - 1
        for name, sums in zip(_SUMS, state, strict=True):
            held = getattr(self, name)
            setattr(self, name, np.zeros(max(len(held), 2 * len(sums)), dtype=held.dtype))
            getattr(self, name)[: len(sums)] = sums

    def until(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        """Return coefficients (drift_S, damping_S) by last step, for all missed steps up to and including ``step``."""
        self.advance(step)
        return self.drift, self.damping

    def advance(self, step: int) -> None:
        """Extend the sums so that they cover missed steps up to and including ``step``."""
        config = self.config
        if step >= len(self.drift):
            grow = max(2 * len(self.drift), step + 1)
            for name in _SUMS:
                old = getattr(self, name)
                new = np.zeros(grow, dtype=old.dtype)
                new[: len(old)] = old
                setattr(self, name, new)
        while self.step < step:
            self.step += 1
            j = self.step
            lo = max(1, j - self.window)
            gap = np.arange(j - lo, 0, -1, dtype=np.float64)  # j - s for s = lo .. j-1
            a = config.beta1**gap / (1 - config.beta1**j)
            b = np.sqrt(config.beta2**gap / (1 - config.beta2**j))
            self._weight[lo:j] += a
            self._scaled[lo:j] += a / b
            self.drift[lo:j] = self.lr * self._scaled[lo:j]
            moving = np.maximum(self._weight[lo:j], 1e-300)  # it is 0 under beta1 = 0, where any damping will do
            self.damping[lo:j] = np.maximum(config.epsilon * self._scaled[lo:j] / moving, 1e-30)

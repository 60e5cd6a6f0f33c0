"""Define the settings of Adam, AdaGrad and SGD."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from runner.errors import require


@dataclass(frozen=True, kw_only=True)
class AdamConfig:
    """Configure Adam (Kingma & Ba 2015).

    ``lr``: rate of a step.
    ``beta1``, ``beta2``: what the means of gradients and of their squares keep of the step before.
    ``epsilon``: added to the root of the mean square, which a step is divided by.
    ``rows``: see ``runner.optimizers``.
    """

    name: str = "adam"
    lr: float = 3e-3
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    rows: Literal["dense", "touched", "catch_up"] = "catch_up"

    def __post_init__(self) -> None:
        require(self.lr > 0, "optimizer.lr must be above 0")
        require(0 <= self.beta1 < 1, "optimizer.beta1 must lie in [0, 1)")
        require(0 < self.beta2 < 1, "optimizer.beta2 must lie in (0, 1)")
        require(self.beta1 < self.beta2**0.5, "optimizer.beta1 must be below the root of optimizer.beta2")
        require(1e-30 <= self.epsilon <= 1e30, "optimizer.epsilon must lie in [1e-30, 1e30]")


@dataclass(frozen=True, kw_only=True)
class SgdConfig:
    """Configure stochastic gradient descent without momentum; ``lr``: rate of a step."""

    rows: ClassVar[str] = "touched"  # without momentum, rows without a gradient do not move
    name: str = "sgd"
    lr: float = 1.0

    def __post_init__(self) -> None:
        require(self.lr > 0, "optimizer.lr must be above 0")


@dataclass(frozen=True, kw_only=True)
class AdaGradConfig:
    """Configure AdaGrad.

    ``lr``: rate, which is the size of an element's first step.
    ``epsilon``: added to the root of the sum of squared gradients, which a step is divided by.
    """

    rows: ClassVar[str] = "touched"  # rows without a gradient do not move
    name: str = "adagrad"
    lr: float = 0.01
    epsilon: float = 1e-10

    def __post_init__(self) -> None:
        require(self.lr > 0, "optimizer.lr must be above 0")
        require(1e-30 <= self.epsilon <= 1e30, "optimizer.epsilon must lie in [1e-30, 1e30]")


OptimizerConfig = AdamConfig | AdaGradConfig | SgdConfig
OPTIMIZERS: dict[str, type] = {"adam": AdamConfig, "adagrad": AdaGradConfig, "sgd": SgdConfig}

"""Define the settings of Adam, AdaGrad and SGD."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from runner.errors import require
from runner.options.fields import Options, option


@dataclass(frozen=True, kw_only=True)
class AdamConfig(Options):
    """Configure Adam (Kingma & Ba 2015)."""

    section: ClassVar[str] = "optimizer"

    name: str = "adam"
    lr: float = option(3e-3, "learning rate", above=0)
    beta1: float = option(0.9, "what the mean of gradients keeps in a step", low=0, below=1)
    beta2: float = option(0.999, "what the mean of squared gradients keeps in a step", above=0, below=1)
    epsilon: float = option(
        1e-8, "added to the root of the mean square, which a step is divided by", low=1e-30, high=1e30
    )
    rows: Literal["dense", "touched", "catch_up"] = option(
        "catch_up",
        "",
        choices={
            "dense": "every row is updated in every step",
            "touched": "only rows with a gradient are updated, the others never",
            "catch_up": "the updates of dense, but a row gets those that it missed when it is next read",
        },
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.beta1 < self.beta2**0.5, "optimizer.beta1 must be below the root of optimizer.beta2")


@dataclass(frozen=True, kw_only=True)
class SgdConfig(Options):
    """Configure stochastic gradient descent without momentum."""

    section: ClassVar[str] = "optimizer"
    rows: ClassVar[str] = "touched"  # without momentum, rows without a gradient do not move
    name: str = "sgd"
    lr: float = option(1.0, "learning rate", above=0)


@dataclass(frozen=True, kw_only=True)
class AdaGradConfig(Options):
    """Configure AdaGrad."""

    section: ClassVar[str] = "optimizer"
    rows: ClassVar[str] = "touched"  # rows without a gradient do not move
    name: str = "adagrad"
    lr: float = option(0.01, "learning rate, the size of an element's first step", above=0)
    epsilon: float = option(
        1e-10, "added to the root of the sum of squared gradients, which a step is divided by", low=1e-30, high=1e30
    )


OptimizerConfig = AdamConfig | AdaGradConfig | SgdConfig
OPTIMIZERS: dict[str, type] = {"adam": AdamConfig, "adagrad": AdaGradConfig, "sgd": SgdConfig}

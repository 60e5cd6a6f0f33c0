"""Define the settings of Adam, AdaGrad and SGD."""

from dataclasses import dataclass, replace
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
    second_moment: Literal["full", "row"] = option(
        "full",
        "mean square gradients of class vectors and input rows",
        choices={"full": "one for each number", "row": "one for each row, of its mean square"},
    )
    first_moment: Literal["float32", "bf16"] = option(
        "float32",
        "what mean gradients of class vectors and input rows are kept in",
        choices={"float32": "as they are", "bf16": "in half the memory, rounded at random without bias"},
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.beta1 < self.beta2**0.5, "optimizer.beta1 must be below the root of optimizer.beta2")

    def moment_bytes(self, columns: int) -> int:
        """Return the bytes that the moments of a row of so many numbers take."""
        return columns * (2 if self.first_moment == "bf16" else 4) + 4 * (1 if self.second_moment == "row" else columns)


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


def of_parameters(config: OptimizerConfig) -> OptimizerConfig:
    """Return the optimizer of weights that are no rows of a large matrix: each number has its own float32 moments."""
    if not isinstance(config, AdamConfig):
        return config
    return replace(config, second_moment="full", first_moment="float32")


OPTIMIZERS: dict[str, type] = {"adam": AdamConfig, "adagrad": AdaGradConfig, "sgd": SgdConfig}

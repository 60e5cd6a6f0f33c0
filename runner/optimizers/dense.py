"""Apply the optimizers to small dense parameters."""

from typing import Any

import numpy as np

from runner.optimizers.configs import AdaGradConfig, AdamConfig, OptimizerConfig


def dense_step(
    config: OptimizerConfig, state: dict[str, Any], parameter: np.ndarray, grad: np.ndarray, step: int, lr: float
) -> None:
    """Take a step of a small dense parameter, in place; ``state`` holds its moments as 'first' and 'second'."""
    if isinstance(config, AdamConfig):
        dense_adam(config, state, parameter, grad, step, lr)
    elif isinstance(config, AdaGradConfig):
        second = state.setdefault("second", np.zeros_like(parameter))
        second += grad * grad
        parameter -= (lr * grad / (np.sqrt(second) + config.epsilon)).astype(parameter.dtype)
    else:
        parameter -= np.float32(lr) * grad


def dense_adam(
    config: AdamConfig,
    state: dict[str, Any],
    parameter: np.ndarray,
    grad: np.ndarray,
    step: int,
    lr: float | None = None,
) -> None:
    """Take an Adam step of a small dense parameter, in place; ``state`` holds its moments as 'first' and 'second'.

    ``lr``: learning rate; None: the configuration's.
    """
    lr = config.lr if lr is None else lr
    first = state.setdefault("first", np.zeros_like(parameter))
    second = state.setdefault("second", np.zeros_like(parameter))
    first *= config.beta1
    first += (1 - config.beta1) * grad
    second *= config.beta2
    second += (1 - config.beta2) * grad * grad
    root = np.sqrt(second / (1 - config.beta2**step)) + config.epsilon
    parameter -= (lr / (1 - config.beta1**step) * first / root).astype(parameter.dtype)

"""Rank by models that are fitted once, and by PyTorch's adaptive softmax: what other methods are compared with."""

from runner.baselines.base import Fitted, FittedConfig

__all__ = ["Fitted", "FittedConfig"]

"""Encode batches as hidden states (B, D), and learn from their gradients. ``runner.parts`` lists all models by name."""

from runner.models.base import Encoder, ModelConfig
from runner.models.mlp import LinearConfig, MlpConfig

__all__ = ["Encoder", "LinearConfig", "MlpConfig", "ModelConfig"]

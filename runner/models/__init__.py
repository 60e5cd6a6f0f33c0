"""Encoders by name: a batch in, hidden states (B, D) out, gradients back."""

from runner.models.mlp import Mlp, MlpConfig

MODELS: dict[str, type[MlpConfig]] = {"mlp": MlpConfig}

__all__ = ["MODELS", "Mlp", "MlpConfig"]

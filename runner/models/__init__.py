"""Encoders by name: a batch in, hidden states (B, D) out, gradients back."""

from runner.models.mlp import LinearConfig, Mlp, MlpConfig

MODELS: dict[str, type[MlpConfig]] = {"mlp": MlpConfig, "linear": LinearConfig}

__all__ = ["MODELS", "LinearConfig", "Mlp", "MlpConfig"]

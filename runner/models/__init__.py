"""Encoders by name: a batch in, hidden states (B, D) out, gradients back."""

from runner.models.base import Encoder, ModelConfig
from runner.models.language import LstmConfig, TransformerConfig
from runner.models.mlp import LinearConfig, Mlp, MlpConfig

MODELS: dict[str, type[ModelConfig]] = {
    "mlp": MlpConfig,
    "linear": LinearConfig,
    "lstm": LstmConfig,
    "transformer": TransformerConfig,
}

__all__ = [
    "MODELS",
    "Encoder",
    "LinearConfig",
    "LstmConfig",
    "Mlp",
    "MlpConfig",
    "ModelConfig",
    "TransformerConfig",
]

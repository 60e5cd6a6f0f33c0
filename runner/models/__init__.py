"""List the models by name. A model encodes a batch as hidden states (B, D) and is trained by their gradients."""

from runner.models.base import Encoder, ModelConfig
from runner.models.bert import BertConfig
from runner.models.language import LstmConfig, TransformerConfig
from runner.models.mlp import LinearConfig, Mlp, MlpConfig

MODELS: dict[str, type[ModelConfig]] = {
    "mlp": MlpConfig,
    "linear": LinearConfig,
    "lstm": LstmConfig,
    "transformer": TransformerConfig,
    "bert": BertConfig,
}

__all__ = [
    "MODELS",
    "BertConfig",
    "Encoder",
    "LinearConfig",
    "LstmConfig",
    "Mlp",
    "MlpConfig",
    "ModelConfig",
    "TransformerConfig",
]

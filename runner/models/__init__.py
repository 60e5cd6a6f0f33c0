"""List the models by name. A model encodes a batch as hidden states (B, D) and is trained by their gradients."""

from runner.models.base import Encoder, ModelConfig
from runner.models.bert import BertConfig
from runner.models.counts import ItemKnnConfig, MarkovConfig, MostFrequentConfig, PopularityConfig
from runner.models.language import LstmConfig, TransformerConfig
from runner.models.mlp import LinearConfig, Mlp, MlpConfig
from runner.models.regression import LogisticConfig, RegressionConfig
from runner.models.sequences import Gru4recConfig, SasrecConfig
from runner.models.trees import OmikujiConfig

MODELS: dict[str, type[ModelConfig]] = {
    "mlp": MlpConfig,
    "linear": LinearConfig,
    "lstm": LstmConfig,
    "transformer": TransformerConfig,
    "regression": RegressionConfig,
    "logistic": LogisticConfig,
    "bert": BertConfig,
    "sasrec": SasrecConfig,
    "gru4rec": Gru4recConfig,
    "popularity": PopularityConfig,
    "most_frequent": MostFrequentConfig,
    "markov": MarkovConfig,
    "item_knn": ItemKnnConfig,
    "omikuji": OmikujiConfig,
}

__all__ = [
    "MODELS",
    "BertConfig",
    "Encoder",
    "Gru4recConfig",
    "ItemKnnConfig",
    "LinearConfig",
    "LogisticConfig",
    "LstmConfig",
    "MarkovConfig",
    "Mlp",
    "MlpConfig",
    "ModelConfig",
    "MostFrequentConfig",
    "OmikujiConfig",
    "PopularityConfig",
    "RegressionConfig",
    "SasrecConfig",
    "TransformerConfig",
]

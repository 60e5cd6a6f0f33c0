"""Configure language models: ``lstm`` and ``transformer``. The encoders are in ``runner.models.recurrent``.

``lstm`` has dropout on the embedded words, between layers and on the last layer's output (Zaremba et al. 2014), as in
the LSH Softmax, RF-softmax and MIDX papers. ``transformer`` is that of the MIDX paper: layers as in Vaswani et al. 2017
(normalised after each sum), GELU, sines and cosines as positions, and a causal mask.

@article{zaremba2014recurrent, title={Recurrent Neural Network Regularization}, author={Zaremba, Wojciech and Sutskever,
Ilya and Vinyals, Oriol}, journal={arXiv:1409.2329}, year={2014}}
@inproceedings{vaswani2017attention, title={Attention Is All You Need}, author={Vaswani, Ashish and others},
booktitle={NeurIPS}, year={2017}}
@inproceedings{press2017using, title={Using the Output Embedding to Improve Language Models}, author={Press, Ofir and
Wolf, Lior}, booktitle={EACL}, year={2017}}

Legend: N classes, D hidden size.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from runner import rng
from runner.errors import require
from runner.models.base import ModelConfig
from runner.optimizers import OptimizerConfig
from runner.output.initial import Initial, Normal, Uniform
from runner.output.layer import Rows
from runner.output.numba.row_table import RowTable

if TYPE_CHECKING:
    from runner.models.recurrent import Module, TextEncoder

_LARGEST = 8192


@dataclass(frozen=True, kw_only=True)
class LanguageModelConfig(ModelConfig):
    """Hold the settings that both language models have.

    ``layers``: number of layers.
    ``embedding``: size of a word's vector.
    ``dropout``: fraction of units set to 0 in training.
    ``tied``: the class vectors are the input embedding too (Press & Wolf 2017).
    ``init``: all weights except those of layer norms start uniform in [-init, init]. None: vectors of words and classes
    start normal with norm 1 on average, other weights by torch's rules.
    """

    reads: ClassVar[str] = "text"
    runs_on_gpu: ClassVar[bool] = True

    name: str
    layers: int = 2
    embedding: int = 200
    dropout: float = 0.5
    tied: bool = True
    init: float | None = None

    def __post_init__(self) -> None:
        require(1 <= self.layers <= 64, "model.layers must lie in [1, 64]")
        require(1 <= self.embedding <= _LARGEST, f"model.embedding must lie in [1, {_LARGEST}]")
        require(0 <= self.dropout < 1, "model.dropout must lie in [0, 1)")
        require(self.init is None or 0 < self.init <= 10, "model.init must be null or lie in (0, 10]")

    @property
    def initial_classes(self) -> Initial:
        return super().initial_classes if self.init is None else Uniform(self.init)

    def word_vectors(self, num_words: int, seed: int) -> np.ndarray:
        """Draw the word vectors to start from, (words, embedding) float32, if they are not the class vectors."""
        initial = Normal(self.embedding**-0.5) if self.init is None else Uniform(self.init)
        return initial.rows(0, num_words, self.embedding, seed=seed, purpose=rng.FEATURE_INIT)

    def build(self, *, num_features: int, classes: Rows, optimizer: OptimizerConfig, seed: int) -> "TextEncoder":
        from runner.models.recurrent import TextEncoder

        words = classes if self.tied else RowTable(optimizer, self.word_vectors(num_features, seed), bias=False)
        return TextEncoder(
            self.make_module,
            dim=self.dim,
            init=self.init,
            words=words,
            owns_words=not self.tied,
            optimizer=optimizer,
            seed=seed,
        )

    @abstractmethod
    def make_module(self) -> "Module":
        """Make the network between words and hidden states."""


@dataclass(frozen=True, kw_only=True)
class LstmConfig(LanguageModelConfig):
    """Configure an LSTM.

    ``hidden``: units of each layer and size of the class vectors; it must equal ``embedding`` if ``tied``.
    """

    name: str = "lstm"
    hidden: int = 200

    def __post_init__(self) -> None:
        super().__post_init__()
        require(1 <= self.hidden <= _LARGEST, f"model.hidden must lie in [1, {_LARGEST}]")
        require(
            not self.tied or self.hidden == self.embedding,
            f"model.tied=true needs model.hidden ({self.hidden}) and model.embedding ({self.embedding}) to be the same",
        )

    @property
    def dim(self) -> int:
        return self.hidden

    def make_module(self) -> "Module":
        from runner.models.recurrent import Lstm

        return Lstm(embedding=self.embedding, hidden=self.hidden, layers=self.layers, dropout=self.dropout)


@dataclass(frozen=True, kw_only=True)
class TransformerConfig(LanguageModelConfig):
    """Configure a Transformer.

    ``heads``: number of attention heads, which divide the columns of the embedding among them.
    ``feed_forward``: width of the hidden layer inside each layer.
    """

    name: str = "transformer"
    heads: int = 4
    feed_forward: int = 1024

    def __post_init__(self) -> None:
        super().__post_init__()
        require(1 <= self.heads <= self.embedding, "model.heads must lie in [1, model.embedding]")
        require(
            self.embedding % self.heads == 0,
            f"model.embedding ({self.embedding}) must be a multiple of model.heads ({self.heads})",
        )
        require(1 <= self.feed_forward <= 65536, "model.feed_forward must lie in [1, 65536]")

    @property
    def dim(self) -> int:
        return self.embedding

    def make_module(self) -> "Module":
        from runner.models.recurrent import Transformer

        return Transformer(
            embedding=self.embedding,
            heads=self.heads,
            feed_forward=self.feed_forward,
            layers=self.layers,
            dropout=self.dropout,
        )

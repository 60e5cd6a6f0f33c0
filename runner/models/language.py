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
from runner.models.base import ModelConfig, check_heads
from runner.optimizers import OptimizerConfig
from runner.options.fields import option
from runner.output.initial import Initial, Normal, Uniform
from runner.output.layer import Rows

if TYPE_CHECKING:
    from runner.models.recurrent import Module, TextEncoder

_LARGEST = 8192


@dataclass(frozen=True, kw_only=True)
class LanguageModelConfig(ModelConfig):
    """Hold the options that both language models have.

    Tied vectors are those of Press & Wolf (2017). Without ``init``, vectors of words and classes start with norm 1 on
    average.
    """

    reads: ClassVar[str] = "text"
    divides_batches: ClassVar[bool] = True

    name: str
    layers: int = option(2, "number of layers", low=1, high=64)
    embedding: int = option(200, "size of a word's vector", low=1, high=_LARGEST)
    dropout: float = option(0.5, "fraction of units set to 0 in training", low=0, below=1)
    tied: bool = option(True, "the class vectors are the input embedding too")
    init: float | None = option(
        None,
        "all weights except layer norms start uniform in [-init, init]; null: word and class vectors start normal,"
        " others by torch's rules",
        above=0,
        high=10,
    )

    @property
    def initial_classes(self) -> Initial:
        return super().initial_classes if self.init is None else Uniform(self.init)

    def word_vectors(self, num_words: int, seed: int) -> np.ndarray:
        """Draw the word vectors to start from, (words, embedding) float32, if they are not the class vectors."""
        initial = Normal(self.embedding**-0.5) if self.init is None else Uniform(self.init)
        return initial.rows(0, num_words, self.embedding, seed=seed, purpose=rng.FEATURE_INIT)

    def build(self, *, num_features: int, classes: Rows, optimizer: OptimizerConfig, seed: int) -> "TextEncoder":
        from runner.models.recurrent import TextEncoder

        words = classes if self.tied else classes.another(self.word_vectors(num_features, seed))
        return TextEncoder(
            self.make_module,
            dim=self.dim,
            init=self.init,
            words=words,
            owns_words=not self.tied,
            seed=seed,
        )

    @abstractmethod
    def make_module(self) -> "Module":
        """Make the network between words and hidden states."""


@dataclass(frozen=True, kw_only=True)
class LstmConfig(LanguageModelConfig):
    """Encode a text by an LSTM."""

    name: str = "lstm"
    hidden: int = option(
        200, "units of a layer, and size of the class vectors; the same as embedding if tied", low=1, high=_LARGEST
    )

    def __post_init__(self) -> None:
        super().__post_init__()
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
    """Encode a text by a Transformer."""

    name: str = "transformer"
    heads: int = option(4, "attention heads, which divide the embedding among them")
    feed_forward: int = option(1024, "width of the hidden layer inside each layer", low=1, high=65536)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_heads(self.heads, self.embedding)

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

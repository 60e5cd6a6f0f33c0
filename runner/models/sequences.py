"""Configure models of sequential recommendation: ``sasrec`` and ``gru4rec``.

The encoder is in ``runner.models.sequence_encoder``.

``sasrec`` is self-attention over the items before (Kang & McAuley 2018): learnt positions, causal attention, and two
layers normalised before each part, x + Dropout(part(LayerNorm(x))), with a LayerNorm at the end. Positions count from
the newest item, as in the authors' windows, which are padded on the left. As in the authors' code, the input is
sqrt(embedding) times the item's vector, plus the position's: without the factor, positions are as large as items at the
start, and learning is several times slower. The feed-forward part has one hidden layer with ReLU.

``gru4rec`` is a gated recurrent network (Hidasi et al. 2016) whose last layer is projected to the size of the item
vectors. A user's windows are independent; no state is carried between them.

@inproceedings{kang2018sasrec, title={Self-Attentive Sequential Recommendation}, author={Kang, Wang-Cheng and McAuley,
Julian}, booktitle={ICDM}, year={2018}}
@inproceedings{hidasi2016session, title={Session-based Recommendations with Recurrent Neural Networks}, author={Hidasi,
Bal{\\'a}zs and Karatzoglou, Alexandros and Baltrunas, Linas and Tikk, Domonkos}, booktitle={ICLR}, year={2016}}

Legend: N items, E size of an item's vector.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from runner import rng
from runner.models.base import ModelConfig, check_heads
from runner.optimizers import OptimizerConfig
from runner.options.fields import option
from runner.output.initial import Initial, Normal
from runner.output.layer import Rows

if TYPE_CHECKING:
    from runner.models.sequence_encoder import Module, SequenceEncoder

_LARGEST = 8192


@dataclass(frozen=True, kw_only=True)
class SequenceModelConfig(ModelConfig):
    """Hold the options that both models of sequences have.

    Items have no biases, as in the papers. Small vectors at the start keep items that are seldom trained on from having
    large logits by chance.
    """

    selects: ClassVar[Mapping[str, Any]] = {
        "dataset": "synthetic_log",
        "sampler": "full",
        "epochs": 50,
        "batch_size": 128,
        "evaluation.every_epochs": 1,
        "output.bias": False,
        "training.patience": 10,
    }
    reads: ClassVar[str] = "sequences"
    divides_batches: ClassVar[bool] = True

    name: str
    length: int = option(
        20, "largest number of items that a prediction looks back on, and length of a window", low=1, high=4096
    )
    embedding: int = option(64, "size of an item's vector", low=1, high=_LARGEST)
    layers: int = option(2, "number of layers", low=1, high=64)
    dropout: float = option(0.5, "fraction of units set to 0 in training", low=0, below=1)
    tied: bool = option(True, "the class vectors are the input vectors too")
    init: float = option(0.02, "standard deviation of the first vectors of items and positions", above=0, high=10)

    @property
    def dim(self) -> int:
        return self.embedding

    @property
    def initial_classes(self) -> Initial:
        return Normal(self.init)

    def build(self, *, num_features: int, classes: Rows, optimizer: OptimizerConfig, seed: int) -> "SequenceEncoder":
        from runner.models.sequence_encoder import SequenceEncoder

        items = classes
        if not self.tied:
            purpose = rng.FEATURE_INIT
            vectors = self.initial_classes.rows(0, num_features, self.embedding, seed=seed, purpose=purpose)
            items = classes.another(vectors)
        return SequenceEncoder(
            self.make_module,
            dim=self.dim,
            words=items,
            owns_words=not self.tied,
            seed=seed,
        )

    @abstractmethod
    def make_module(self) -> "Module":
        """Make the network between items and hidden states."""


@dataclass(frozen=True, kw_only=True)
class SasrecConfig(SequenceModelConfig):
    """Encode a user's items by self-attention (SASRec). Items have no biases, as in the paper."""

    name: str = "sasrec"
    heads: int = option(1, "attention heads, which divide the embedding among them")
    feed_forward: int = option(64, "width of the hidden layer inside each layer", low=1, high=65536)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_heads(self.heads, self.embedding)

    def make_module(self) -> "Module":
        from runner.models.sequence_encoder import SelfAttention

        return SelfAttention(
            length=self.length,
            size=self.embedding,
            heads=self.heads,
            feed_forward=self.feed_forward,
            layers=self.layers,
            dropout=self.dropout,
            init=self.init,
        )


@dataclass(frozen=True, kw_only=True)
class Gru4recConfig(SequenceModelConfig):
    """Encode a user's items by a gated recurrent network (GRU4Rec). Items have no biases."""

    name: str = "gru4rec"
    layers: int = 1
    hidden: int = option(128, "units of a recurrent layer", low=1, high=_LARGEST)

    def make_module(self) -> "Module":
        from runner.models.sequence_encoder import Gru

        return Gru(size=self.embedding, hidden=self.hidden, layers=self.layers, dropout=self.dropout)

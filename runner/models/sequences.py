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
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from runner import rng
from runner.errors import require
from runner.models.base import ModelConfig
from runner.optimizers import OptimizerConfig
from runner.output.initial import Initial, Normal
from runner.output.layer import Rows
from runner.output.numba.row_table import RowTable

if TYPE_CHECKING:
    from runner.models.sequence_encoder import Module, SequenceEncoder

_LARGEST = 8192


@dataclass(frozen=True, kw_only=True)
class SequenceModelConfig(ModelConfig):
    """Hold the settings that both models of sequences have.

    ``length``: largest number of items that a prediction looks back on, and the length of training windows.
    ``embedding``: size of an item's vector, and of hidden states.
    ``layers``: number of layers.
    ``dropout``: fraction of units set to 0 in training.
    ``tied``: the class vectors are the input vectors too.
    ``init``: vectors of items and positions start normal with this standard deviation, other weights by torch's rules.
    Small vectors keep items that are seldom trained on from having large logits by chance.
    """

    reads: ClassVar[str] = "sequences"
    runs_on_gpu: ClassVar[bool] = True

    name: str
    length: int = 20
    embedding: int = 64
    layers: int = 2
    dropout: float = 0.5
    tied: bool = True
    init: float = 0.02

    def __post_init__(self) -> None:
        require(1 <= self.length <= 4096, "model.length must lie in [1, 4096]")
        require(1 <= self.embedding <= _LARGEST, f"model.embedding must lie in [1, {_LARGEST}]")
        require(1 <= self.layers <= 64, "model.layers must lie in [1, 64]")
        require(0 <= self.dropout < 1, "model.dropout must lie in [0, 1)")
        require(0 < self.init <= 10, "model.init must lie in (0, 10]")

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
            items = RowTable(optimizer, vectors, bias=False)
        return SequenceEncoder(
            self.make_module,
            dim=self.dim,
            words=items,
            owns_words=not self.tied,
            optimizer=optimizer,
            seed=seed,
        )

    @abstractmethod
    def make_module(self) -> "Module":
        """Make the network between items and hidden states."""


@dataclass(frozen=True, kw_only=True)
class SasrecConfig(SequenceModelConfig):
    """Configure SASRec.

    ``heads``: number of attention heads, which divide the columns of the embedding among them.
    ``feed_forward``: width of the hidden layer inside each layer.
    """

    name: str = "sasrec"
    heads: int = 1
    feed_forward: int = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        require(1 <= self.heads <= self.embedding, "model.heads must lie in [1, model.embedding]")
        require(
            self.embedding % self.heads == 0,
            f"model.embedding ({self.embedding}) must be a multiple of model.heads ({self.heads})",
        )
        require(1 <= self.feed_forward <= 65536, "model.feed_forward must lie in [1, 65536]")

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
    """Configure GRU4Rec. ``hidden``: units of each recurrent layer."""

    name: str = "gru4rec"
    layers: int = 1
    hidden: int = 128

    def __post_init__(self) -> None:
        super().__post_init__()
        require(1 <= self.hidden <= _LARGEST, f"model.hidden must lie in [1, {_LARGEST}]")

    def make_module(self) -> "Module":
        from runner.models.sequence_encoder import Gru

        return Gru(size=self.embedding, hidden=self.hidden, layers=self.layers, dropout=self.dropout)

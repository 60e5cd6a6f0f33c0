"""Encode pairs of sentences by a BERT: transformers computes, and the weights are kept in row tables as in all models.

All weights are trained. The word vectors are a ``RowTable`` of which a step reads and updates only the rows of its
words; the other parameters are views into another ``RowTable``. Every set of pairs is tokenised once per process.

No padding is computed: the tokens of all pairs of a batch lie one after the other, and only within attention each pair
is padded to the batch's longest. Dropout is a function of (seed, step). BLAS computes the products, so numbers of runs
with different numbers of threads agree only up to rounding; with the same number, runs and resumed runs have the same
bits.

Legend: B pairs of a batch, T tokens of the longest pair, X tokens of a batch, E size of a word's vector, D hidden size
(here E), H attention heads, K size of a head, R pairs of a set, Y tokens of a set.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol
from weakref import WeakKeyDictionary

import numpy as np
import torch
import transformers
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from runner import rng
from runner.data import Pairs
from runner.data.pairs.batches import PairBatch
from runner.errors import ConfigError, require
from runner.kernels.groups import group_by_id
from runner.models.parameters import Parameters, draws_of, gradient_of_words, load_states, states_of
from runner.optimizers import OptimizerConfig
from runner.output.gradients import Gradient
from runner.output.layer import Rows
from runner.output.numba.row_table import RowTable

_PACKED = "runner_packed_rows"  # name of this module's attention among those of transformers
_ENCODED_TOKENS = 4096  # tokens that are encoded together at test time, padding included
Ids = list[list[int]]


# ---------------------------------------------------------------- tokens


class Tokenizer(Protocol):
    """Turn pairs into ids of words and of segments (0 for the first sentence, 1 for the second)."""

    @property
    def key(self) -> tuple[Any, ...]:
        """Return what the result depends on besides the pairs."""

    def ids_of(self, first: Sequence[str], second: Sequence[str]) -> tuple[Ids, Ids]:
        """Return the word ids and the segment ids of each pair, special tokens included."""


class HubTokenizer:
    """Tokenise as the checkpoint of a folder does. Raises ConfigError if the folder has no vocabulary."""

    def __init__(self, folder: Path, max_length: int) -> None:
        self.max_length = max_length
        self.key: tuple[Any, ...] = (str(folder), max_length)
        try:
            with _quiet():
                self._tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
        except Exception as error:
            raise _unusable(folder, "tokenizer", error) from None

    def ids_of(self, first: Sequence[str], second: Sequence[str]) -> tuple[Ids, Ids]:
        made = self._tokenizer(
            list(first),
            list(second),
            truncation="longest_first",
            max_length=self.max_length,
            return_token_type_ids=True,
            return_attention_mask=False,
        )
        return made["input_ids"], made["token_type_ids"]


class RehearsalTokenizer:
    """Make a few arbitrary ids of each pair; for a network whose results nobody reads."""

    key: tuple[Any, ...] = ("rehearsal",)

    def ids_of(self, first: Sequence[str], second: Sequence[str]) -> tuple[Ids, Ids]:
        words = [[len(sentence) % 7 for sentence in pair] for pair in zip(first, second, strict=True)]
        return words, [[0, 1] for _ in words]


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """Hold the tokens of R pairs: those of pair r are ``ids_Y[indptr_R1[r] : indptr_R1[r + 1]]``; segments likewise."""

    indptr_R1: np.ndarray
    ids_Y: np.ndarray
    segments_Y: np.ndarray

    @property
    def lengths_R(self) -> np.ndarray:
        """Return the number of tokens of each pair, (R,) int64."""
        return np.diff(self.indptr_R1)


_TOKENS: WeakKeyDictionary[Pairs, dict[tuple[Any, ...], Tokens]] = WeakKeyDictionary()


def tokens_of(pairs: Pairs, tokenizer: Tokenizer) -> Tokens:
    """Return the tokens of a set of pairs, which are computed once per process."""
    made = _TOKENS.setdefault(pairs, {})
    if tokenizer.key not in made:
        ids, segments = tokenizer.ids_of(pairs.first, pairs.second)
        indptr_R1 = np.zeros(len(ids) + 1, dtype=np.int64)
        np.cumsum([len(words) for words in ids], out=indptr_R1[1:])
        made[tokenizer.key] = Tokens(
            indptr_R1=indptr_R1, ids_Y=np.concatenate(ids).astype(np.int32), segments_Y=np.concatenate(segments)
        )
    return made[tokenizer.key]


class Packed:
    """Hold the tokens of a batch, one pair after another, and where they lie in padded rows (B, T)."""

    def __init__(self, tokens: Tokens, rows_B: np.ndarray) -> None:
        self.length_B = tokens.lengths_R[rows_B]
        begin_B = np.cumsum(self.length_B) - self.length_B
        row_X = np.repeat(np.arange(len(rows_B)), self.length_B)
        position_X = np.arange(int(self.length_B.sum())) - begin_B[row_X]
        from_X = tokens.indptr_R1[rows_B][row_X] + position_X
        self.ids_X = tokens.ids_Y[from_X]
        longest = int(self.length_B.max())
        self.segment_1X = torch.from_numpy(tokens.segments_Y[from_X].astype(np.int64))[None]
        self.position_1X = torch.from_numpy(position_X)[None]
        self.place_X = torch.from_numpy(row_X * longest + position_X)
        self.first_B = torch.from_numpy(begin_B)
        self.row_X = torch.from_numpy(row_X)
        # This is whether a place of the padded rows holds a token, for all heads and all queries of a pair.
        held_BT = torch.arange(longest)[None] < torch.from_numpy(self.length_B)[:, None]
        self.held_B11T = held_BT[:, None, None]


def _attend(
    module: nn.Module,
    query_1HXK: Tensor,
    key_1HXK: Tensor,
    value_1HXK: Tensor,
    attention_mask: Tensor | None,
    *,
    packed: Packed,
    scaling: float,
    dropout: float = 0.0,
    **unused: Any,
) -> tuple[Tensor, None]:
    """Attend within each pair of a packed batch; return (1, X, H, K). transformers calls it in every layer."""
    rows, _, _, longest = packed.held_B11T.shape

    def padded_BHTK(packed_1HXK: Tensor) -> Tensor:
        by_token_XHK = packed_1HXK[0].transpose(0, 1)
        empty = by_token_XHK.new_zeros(rows * longest, *by_token_XHK.shape[1:])
        return empty.index_copy(0, packed.place_X, by_token_XHK).view(rows, longest, *empty.shape[1:]).transpose(1, 2)

    out_BHTK = scaled_dot_product_attention(
        padded_BHTK(query_1HXK),
        padded_BHTK(key_1HXK),
        padded_BHTK(value_1HXK),
        attn_mask=packed.held_B11T,
        dropout_p=dropout,
        scale=scaling,
    )
    return out_BHTK.transpose(1, 2).flatten(0, 1).index_select(0, packed.place_X)[None], None


transformers.AttentionInterface.register(_PACKED, _attend)


# ---------------------------------------------------------------- checkpoints


def load_bert(folder: Path, dropout: float) -> transformers.BertModel:
    """Load a BERT without its pooler, in float32. Raises ConfigError if files or weights are missing."""
    try:
        with _quiet():
            config = transformers.BertConfig.from_pretrained(str(folder), local_files_only=True)
            loaded: Any = transformers.BertModel.from_pretrained(
                str(folder),
                config=_with_dropout(config, dropout),
                add_pooling_layer=False,
                attn_implementation=_PACKED,
                dtype=torch.float32,
                local_files_only=True,
                output_loading_info=True,
            )
    except Exception as error:
        raise _unusable(folder, "network", error) from None
    bert, about = loaded
    missing = sorted(about["missing_keys"])
    require(
        not missing,
        f"model.checkpoint: {folder} lacks {len(missing)} of the network's weights, among them {''.join(missing[:1])};"
        " give a folder with all weights of a BERT",
    )
    return bert


def random_bert(dim: int, dropout: float, seed: int) -> transformers.BertModel:
    """Return a tiny BERT with random weights."""
    config = transformers.BertConfig(
        vocab_size=16, hidden_size=dim, num_hidden_layers=1, num_attention_heads=2, intermediate_size=dim,
        max_position_embeddings=16,
    )  # fmt: skip
    config._attn_implementation = _PACKED
    with draws_of(seed, rng.MODULE_INIT):
        return transformers.BertModel(_with_dropout(config, dropout), add_pooling_layer=False)


def _with_dropout(config: transformers.BertConfig, dropout: float) -> transformers.BertConfig:
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = dropout
    return config


def _unusable(folder: Path, what: str, error: Exception) -> ConfigError:
    reason = " ".join(str(error).split())[:200]
    return ConfigError(
        f"model.checkpoint: the {what} of {folder} cannot be loaded ({type(error).__name__}: {reason}); give a folder"
        " with config.json, weights and vocabulary"
    )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep transformers from printing bars and reports; what matters of them is checked and raised as errors."""
    logging = transformers.utils.logging
    level, shows = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if shows:
            logging.enable_progress_bar()


# ---------------------------------------------------------------- the encoder


class _PooledBert(nn.Module):
    """Map the word vectors of a packed batch (X, E) to one hidden state per pair (B, D)."""

    def __init__(self, bert: transformers.BertModel, pooling: str, dropout: float) -> None:
        super().__init__()
        self.bert, self.pooling = bert, pooling
        self.drop = nn.Dropout(dropout)

    def forward(self, x_XE: Tensor, packed: Packed) -> Tensor:
        state_XD = self.bert(
            inputs_embeds=x_XE[None],
            position_ids=packed.position_1X,
            token_type_ids=packed.segment_1X,
            packed=packed,
        ).last_hidden_state[0]
        if self.pooling == "cls":
            return self.drop(state_XD[packed.first_B])
        sum_BD = state_XD.new_zeros(len(packed.length_B), state_XD.shape[1]).index_add(0, packed.row_X, state_XD)
        return self.drop(sum_BD / torch.from_numpy(packed.length_B).to(sum_BD.dtype)[:, None])


class PairEncoder:
    """Encode pairs as hidden states of size ``dim``. The word vectors are taken out of ``bert``."""

    def __init__(
        self,
        bert: transformers.BertModel,
        tokenizer: Tokenizer,
        *,
        pooling: Literal["cls", "mean"],
        dropout: float,
        optimizer: OptimizerConfig,
        seed: int,
    ) -> None:
        self.tokenizer, self.seed = tokenizer, seed
        embedding = bert.get_input_embeddings()
        self.words = RowTable(optimizer, embedding.weight.detach().numpy().copy(), bias=False)
        bert.set_input_embeddings(nn.Identity())  # word vectors are passed in, so that a step touches only its own
        self.dim = self.words.shape[1]
        self.module = _PooledBert(bert, pooling, dropout)
        self.parameters = Parameters(self.module.parameters(), self.words.of_parameters)
        self.tables: Sequence[Rows] = (self.parameters.table, self.words)
        self.dense: Sequence[np.ndarray] = ()

    # ------------------------------------------------------------ at test time

    def encode(self, batch: PairBatch) -> np.ndarray:
        """Return hidden states (B, D) float32 without dropout; pairs of similar lengths are encoded together.

        Rows of the word vectors must be current.
        """
        tokens = tokens_of(batch.pairs, self.tokenizer)
        length_B = tokens.lengths_R[batch.rows_B]
        hidden_BD = np.empty((batch.num_rows, self.dim), dtype=np.float32)
        self.module.eval()
        with torch.inference_mode():
            for here in _by_length(length_B):
                packed = Packed(tokens, batch.rows_B[here])
                hidden_BD[here] = self.module(torch.from_numpy(self.words.rows()[packed.ids_X]), packed).numpy()
        return hidden_BD

    # ------------------------------------------------------------ training

    def forward(self, batch: PairBatch, step: int) -> np.ndarray:
        """Return hidden states (B, D) float32 with dropout, and remember what the gradients need."""
        packed = Packed(tokens_of(batch.pairs, self.tokenizer), batch.rows_B)
        self._groups = group_by_id(packed.ids_X, self.words.shape[0])
        self.words.before_step(step)
        self.words.read_for_update(self._groups[1], step)
        self._x = torch.from_numpy(self.words.rows()[packed.ids_X]).requires_grad_()
        self.module.train()
        with draws_of(self.seed, rng.DROPOUT, step):
            self._hidden: Tensor = self.module(self._x, packed)
        return self._hidden.detach().numpy()

    def backward(self, grad_hidden_BD: np.ndarray, step: int) -> None:
        """Update all weights by the gradient (B, D) of the hidden states that ``forward`` returned."""
        for gradient in self.gradients(grad_hidden_BD, step):
            gradient.apply(step)

    def gradients(self, grad_hidden_BD: np.ndarray, step: int) -> list[Gradient]:
        """Return the gradients of the parameters and of the batch's words."""
        self.parameters.grad_RC.zero_()
        self._hidden.backward(torch.from_numpy(grad_hidden_BD))
        assert self._x.grad is not None
        grad_XE = self._x.grad.numpy()
        del self._hidden, self._x
        return [self.parameters.gradient(), gradient_of_words(self.words, self._groups, grad_XE, step)]

    # ------------------------------------------------------------ state

    @property
    def _held(self) -> dict[str, Rows]:
        return {"module": self.parameters.table, "words": self.words}

    def state_dict(self) -> dict[str, np.ndarray]:
        return states_of(self._held)

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        load_states(self._held, state)


def _by_length(length_B: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the rows of a batch by ascending length, as many at a time as ``_ENCODED_TOKENS`` allow."""
    order_B = np.argsort(length_B, kind="stable")
    begin = 0
    while begin < len(order_B):
        end = begin + 1
        while end < len(order_B) and length_B[order_B[end]] * (end + 1 - begin) <= _ENCODED_TOKENS:
            end += 1
        yield order_B[begin:end]
        begin = end

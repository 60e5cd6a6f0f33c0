"""Windows of a token stream as training examples and as batches of an evaluation.

Legend: B rows of a batch, T tokens of a window, n tokens of the stream. A stream of n tokens has n - 1 targets: every
token but the first, each to be predicted from those before it. ``cut`` says how the stream becomes rows:

``contiguous``  B parallel streams: row b of every batch goes on where row b of the batch before it ended, so that a
                recurrent state is carried along. Only the first batch of an epoch starts anew. Epochs are all alike.
``chunked``     independent sequences of T tokens, at multiples of T. Every batch starts anew, and each epoch takes the
                sequences in another order: the protocol of the MIDX paper's released code.

Training. All windows have T tokens. ``contiguous``: what does not fill a window of every row is left out, fewer than
B T targets at the end of the text, the same in each epoch. ``chunked``: the last sequence is left out where it is
short, fewer than T targets; the last batch has fewer rows if need be.

Evaluation. Every one of the n - 1 targets comes exactly once, in windows and batches that are smaller where they must
be. ``contiguous``: streams differ in length by at most one, the longer ones first; where a batch has fewer rows than
the one before it, they continue its first rows. ``chunked``: in the order of the text, the last sequence short. The
perplexity of a text is exp of the sum of all losses over n - 1. It depends on the cut, and on B a little where that is
``contiguous``, because each row's first target has a single token before it.

What the MIDX paper says is the maximal length: 35 for PTB, 50 for WikiText-2 (section 6.2.1). Its code (data.py of the
language models) says the rest: sequences at multiples of the length, shuffled, no state. There the last sequence is
padded with a class of its own, one more in the softmax and never a target, and a perplexity is exp of the mean
over batches, weighted by their sequences, of mean losses; here nothing is padded and every target weighs the same.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from runner.contracts import Examples
from runner.data.rows import Int32s
from runner.errors import require

Cut = Literal["contiguous", "chunked"]


@dataclass(frozen=True, kw_only=True)
class TextBatch:
    """Windows and what follows each of their tokens."""

    tokens_BT: Int32s
    targets_BT: Int32s  # targets_BT[b, t] follows tokens_BT[b, t] in the text
    starts_anew: bool  # no row continues a row of the batch before: a recurrent state is zero
    weight_B: np.ndarray | None = None  # float32 factors of the tokens' losses; None: all the same, summing to 1

    @property
    def num_targets(self) -> int:
        return self.targets_BT.size

    # As rows with one target each, row by row of the windows: what samplers and the output layer see.

    @property
    def num_rows(self) -> int:
        return self.num_targets

    @property
    def targets(self) -> Int32s:
        return self.targets_BT.reshape(-1)

    @property
    def target_indptr(self) -> np.ndarray:
        return np.arange(self.num_targets + 1, dtype=np.int64)


@dataclass(frozen=True, kw_only=True)
class Windows:
    """The training examples of a text: windows of ``length`` tokens and what follows each of their tokens.

    Under ``contiguous`` window e is part e // batch_size of stream e % batch_size, so that batches in order carry the
    streams on. Raises ConfigError where the text is too short for one step.
    """

    tokens_n: Int32s
    batch_size: int
    length: int
    cut: Cut

    def __post_init__(self) -> None:
        _check(self.batch_size, self.length, self.cut)
        least = (self.batch_size if self.cut == "contiguous" else 1) * self.length + 1
        if self.cut == "contiguous":
            what = f"batch_size={self.batch_size} windows of {self.length} tokens take"
            way_out = "batch_size or windows.length"
        else:
            what, way_out = f"one window of {self.length} tokens takes", "windows.length"
        require(
            len(self.tokens_n) >= least,
            f"{what} {least:,} tokens of training text and there are {len(self.tokens_n):,}; make {way_out} smaller",
        )

    @property
    def examples(self) -> Examples:
        """The windows; those of streams must come in their order."""
        targets = len(self.tokens_n) - 1
        if self.cut == "chunked":
            return Examples(count=targets // self.length)
        return Examples(count=self._parts * self.batch_size, exchangeable=False)

    @property
    def _parts(self) -> int:
        """Windows of each stream."""
        return (len(self.tokens_n) - 1) // (self.batch_size * self.length)

    def batch(self, rows_B: np.ndarray, weight_B: np.ndarray | None = None) -> TextBatch:
        """The given windows; ``weight_B``: factors of the windows' mean losses."""
        first = rows_B
        if self.cut == "contiguous":
            part, stream = np.divmod(rows_B, self.batch_size)
            first = stream * self._parts + part
        place_BT = first[:, None] * self.length + np.arange(self.length)
        starts_anew = self.cut == "chunked" or bool(rows_B[0] < self.batch_size)
        if weight_B is not None:  # each token's part of its window's mean
            weight_B = np.repeat(weight_B / np.float32(self.length), self.length)
        tokens_n = self.tokens_n
        return _batch(tokens_n[place_BT], tokens_n[place_BT + 1], starts_anew=starts_anew, weight_B=weight_B)


def evaluation_batches(tokens_n: Int32s, batch_size: int, length: int, cut: Cut) -> Iterator[TextBatch]:
    """Every target of the text once, in order within each row. Raises ConfigError where there is none."""
    _check(batch_size, length, cut)
    targets = len(tokens_n) - 1
    require(targets >= 1, f"a text of {len(tokens_n)} tokens has nothing to predict")
    if cut == "contiguous":
        size, longer = divmod(targets, batch_size)
        starts = np.arange(batch_size) * size + np.minimum(np.arange(batch_size), longer)
        pieces = [(begin, min(begin + length, size), batch_size) for begin in range(0, size, length)]
        if longer:
            pieces.append((size, size + 1, longer))
        for number, (begin, end, rows) in enumerate(pieces):
            at = starts[:rows, None] + np.arange(begin, end)
            yield _batch(tokens_n[at], tokens_n[at + 1], starts_anew=number == 0)
        return
    count = targets // length
    sequences = _windows(tokens_n, length, count)
    for begin in range(0, count, batch_size):
        yield _batch(*(part[begin : begin + batch_size] for part in sequences), starts_anew=True)
    if targets > count * length:
        rest = tokens_n[count * length :]
        yield _batch(rest[None, :-1], rest[None, 1:], starts_anew=True)


def _check(batch_size: int, length: int, cut: Cut) -> None:
    require(batch_size >= 1, "batch_size must be at least 1")
    require(length >= 1, "the length of a window must be at least 1")
    require(cut in get_args(Cut), f"the cut must be one of {', '.join(get_args(Cut))}")


def _windows(tokens_n: Int32s, size: int, count: int) -> tuple[Int32s, Int32s]:
    """(count, size) views of the first count * size tokens and of their targets."""
    total = size * count
    return tokens_n[:total].reshape(count, size), tokens_n[1 : total + 1].reshape(count, size)


def _batch(
    tokens_BT: Int32s, targets_BT: Int32s, *, starts_anew: bool, weight_B: np.ndarray | None = None
) -> TextBatch:
    # Always copies: a view of the mapped file here and an array of its own there are two types to compiled kernels.
    return TextBatch(
        tokens_BT=np.array(tokens_BT, dtype=np.int32, order="C"),
        targets_BT=np.array(targets_BT, dtype=np.int32, order="C"),
        starts_anew=starts_anew,
        weight_B=weight_B,
    )

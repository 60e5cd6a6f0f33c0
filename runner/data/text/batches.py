"""Cut a token stream into windows, as training examples and as batches of an evaluation.

Legend: B rows of a batch, T tokens of a window, n tokens of the stream. A stream of n tokens has n - 1 targets: every
token except the first is predicted from the tokens before it. ``cut`` says how the stream becomes rows:

``contiguous``  There are B parallel streams. Row b of a batch continues where row b of the batch before it ended, so a
                recurrent state can be carried along. Only the first batch of an epoch starts anew. All epochs are
                alike.
``chunked``     Sequences of T tokens start at multiples of T and are independent. Every batch starts anew, and each
                epoch takes the sequences in another order. This is the protocol of the MIDX paper's released code.

Training. All windows have T tokens. ``contiguous``: the end of the text that does not fill a window of every row is
left out in every epoch; it has fewer than B T targets. ``chunked``: a short last sequence, with fewer than T targets,
is left out, and the last batch may have fewer rows.

Evaluation. Each of the n - 1 targets occurs exactly once; the last windows and batches may be smaller. ``contiguous``:
the lengths of the streams differ by at most one, and the longer streams come first. If a batch has fewer rows than the
one before it, its rows continue the first rows of that batch. ``chunked``: sequences are in the order of the text, and
the last one may be short. The perplexity of a text is exp of the sum of all losses over n - 1. It depends on the cut.
With ``contiguous`` it depends slightly on B, because each row's first target has only one token before it.

The MIDX paper states only the maximal length: 35 for PTB, 50 for WikiText-2 (section 6.2.1). The rest is in its code
(data.py of the language models): sequences start at multiples of the length, are shuffled, and carry no state. The code
differs in two points. It pads the last sequence with an extra class, which is in the softmax but never a target. Its
perplexity is exp of a mean over batches, weighted by their sequences, of mean losses. Here nothing is padded and every
target has the same weight.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from runner.contracts import Examples
from runner.data.shared.examples import examples_with_class
from runner.data.shared.manifests import Int32s
from runner.errors import require

Cut = Literal["contiguous", "chunked"]


@dataclass(frozen=True, kw_only=True)
class TextBatch:
    """Hold windows, (B, T) int32, and the token that follows each of their tokens, (B, T) int32."""

    tokens_BT: Int32s
    targets_BT: Int32s  # targets_BT[b, t] follows tokens_BT[b, t] in the text
    starts_anew: bool  # True: no row continues a row of the batch before, so a recurrent state starts at zero
    weight_B: np.ndarray | None = None  # (B T) float32 factors of the tokens' losses; None: equal factors of sum 1

    @property
    def num_targets(self) -> int:
        """Return the number of targets, B T."""
        return self.targets_BT.size

    # Samplers and the output layer see B T rows with one target each, window after window.

    @property
    def num_rows(self) -> int:
        """Return the number of rows that samplers and the output layer see, B T."""
        return self.num_targets

    @property
    def num_examples(self) -> int:
        """Return the number of windows, B."""
        return len(self.targets_BT)

    @property
    def targets(self) -> Int32s:
        """Return the target of each such row, (B T,) int32."""
        return self.targets_BT.reshape(-1)

    @property
    def target_indptr(self) -> np.ndarray:
        """Return the offsets of the rows' targets, 0 to B T, (B T + 1,) int64."""
        return np.arange(self.num_targets + 1, dtype=np.int64)

    @property
    def first_row_E1(self) -> np.ndarray:
        """Return where the rows of each window begin, and where the last ones end, (B + 1,) int64."""
        windows, length = self.targets_BT.shape
        return np.arange(windows + 1, dtype=np.int64) * length

    def part(self, lo: int, hi: int) -> "TextBatch":
        """Return the batch of the windows lo to hi - 1."""
        length = self.targets_BT.shape[1]
        return TextBatch(
            tokens_BT=self.tokens_BT[lo:hi],
            targets_BT=self.targets_BT[lo:hi],
            starts_anew=self.starts_anew,
            weight_B=None if self.weight_B is None else self.weight_B[lo * length : hi * length],
        )


@dataclass(frozen=True, kw_only=True)
class Windows:
    """Cut a text into training examples: windows of ``length`` tokens and the token after each of them.

    With ``contiguous``, window e is part e // batch_size of stream e % batch_size, so that consecutive batches continue
    the streams. Raises ConfigError if the text is too short for one step.
    """

    tokens_n: Int32s
    batch_size: int
    length: int
    cut: Cut

    def __post_init__(self) -> None:
        _check(self.batch_size, self.length, self.cut)
        least = (self.batch_size if self.cut == "contiguous" else 1) * self.length + 1
        if self.cut == "contiguous":
            what = f"batch_size={self.batch_size} windows of {self.length} tokens need"
            way_out = "batch_size or windows.length"
        else:
            what, way_out = f"one window of {self.length} tokens needs", "windows.length"
        require(
            len(self.tokens_n) >= least,
            f"{what} {least:,} tokens of training text, but there are {len(self.tokens_n):,}; make {way_out} smaller",
        )

    @property
    def examples(self) -> Examples:
        """Return the windows as examples to draw; those of streams must be drawn in order."""
        targets = len(self.tokens_n) - 1
        if self.cut == "chunked":
            return Examples(count=targets // self.length)
        return Examples(count=self._parts * self.batch_size, exchangeable=False)

    @property
    def _parts(self) -> int:
        """Return the number of windows of each stream."""
        return (len(self.tokens_n) - 1) // (self.batch_size * self.length)

    def count_examples(self, num_classes: int) -> np.ndarray:
        """Return how many windows have each token among their targets, (num_classes,) int64."""
        count = self.examples.count
        # Windows of streams have other numbers, but they are the same windows.
        _, targets_ST = _windows(self.tokens_n, self.length, count)
        return examples_with_class(targets_ST.reshape(-1), np.repeat(np.arange(count), self.length), num_classes)

    def batch(self, rows_B: np.ndarray, weight_B: np.ndarray | None = None) -> TextBatch:
        """Return the windows numbered ``rows_B``; ``weight_B``: (B,) factors of the windows' mean losses, or None."""
        first = rows_B
        if self.cut == "contiguous":
            part, stream = np.divmod(rows_B, self.batch_size)
            first = stream * self._parts + part
        place_BT = first[:, None] * self.length + np.arange(self.length)
        starts_anew = self.cut == "chunked" or bool(rows_B[0] < self.batch_size)
        if weight_B is not None:  # a token's loss is 1 / T of its window's mean
            weight_B = np.repeat(weight_B / np.float32(self.length), self.length)
        tokens_n = self.tokens_n
        return _batch(tokens_n[place_BT], tokens_n[place_BT + 1], starts_anew=starts_anew, weight_B=weight_B)


def evaluation_batches(tokens_n: Int32s, batch_size: int, length: int, cut: Cut) -> Iterator[TextBatch]:
    """Yield batches that hold every target of the text once, in order within each row.

    ``tokens_n``: (n,) int32. Raises ConfigError for a text without a target.
    """
    _check(batch_size, length, cut)
    targets = len(tokens_n) - 1
    require(targets >= 1, f"a text of {len(tokens_n)} tokens has nothing to predict: it needs at least 2")
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
    """Return (count, size) views of the first count * size tokens and of their targets."""
    total = size * count
    return tokens_n[:total].reshape(count, size), tokens_n[1 : total + 1].reshape(count, size)


def _batch(
    tokens_BT: Int32s, targets_BT: Int32s, *, starts_anew: bool, weight_B: np.ndarray | None = None
) -> TextBatch:
    # The arrays are always copied, because compiled kernels see a read-only view of the file as another type.
    return TextBatch(
        tokens_BT=np.array(tokens_BT, dtype=np.int32, order="C"),
        targets_BT=np.array(targets_BT, dtype=np.int32, order="C"),
        starts_anew=starts_anew,
        weight_B=weight_B,
    )

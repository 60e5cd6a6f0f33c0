"""Convert text files to token streams: this module states what a word is and which class it gets.

Words are separated by ASCII white space; the text must be UTF-8. If a text has sentences, every line end is one
`<eos>`. This includes blank lines and a last line without LF.

Vocabulary. Classes are the types of the training split, sorted by decreasing training frequency. Equally frequent words
are sorted by their UTF-8 bytes, so the order of sentences has no influence. `<unk>` always has a class, and so has
`<eos>` if the text has sentences, even if the training split does not contain them. With `most_types` n there are at
most n classes, these two included: the most frequent other words keep their class, the rest become `<unk>`. The
frequency of `<unk>` counts the replaced words and every `<unk>` that the text itself contains. Words that occur only in
the other splits become `<unk>` too.

Files are read twice in blocks, once to count and once to write ids, so memory is bounded by a block and the types.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from runner.data.shared.files import blocks, decoded_block, progress_bar
from runner.data.shared.store import ColumnWriter
from runner.data.text.dataset import EOS, UNK, TextCounts
from runner.errors import DataError

_EOS, _UNK = EOS.encode(), UNK.encode()


@dataclass(frozen=True, kw_only=True)
class TextPart:
    """Name the text of one split: files that are read one after the other, or bytes [start, stop) of one file."""

    paths: tuple[Path, ...]
    start: int = 0
    stop: int | None = None

    @property
    def name(self) -> str:
        """Return the name of the text in messages."""
        first = str(self.paths[0])
        if self.start or self.stop is not None:
            return f"{first}: bytes from {self.start:,}"
        return first if len(self.paths) == 1 else f"{first} and {len(self.paths) - 1} more"


def read_words(part: TextPart, *, end_of_line: bool) -> Iterator[list[bytes]]:
    """Yield the part's words in blocks. Raises DataError, naming file and line, for empty files and invalid bytes."""
    for path in part.paths:
        with progress_bar(path) as progress:
            line, position, last = 0, 0, b""
            for data, consumed in blocks(path, lambda: line, cut_at=(b"\n", b" ")):  # noqa: B023  it must see the current value
                decoded_block(path, data, line)
                line += data.count(b"\n")
                last = data[-1:]
                piece = data[
                    max(0, part.start - position) : None if part.stop is None else max(0, part.stop - position)
                ]
                position += len(data)
                progress(consumed)
                yield (piece.replace(b"\n", b" " + _EOS + b" ") if end_of_line else piece).split()
                if part.stop is not None and position >= part.stop:
                    break
            if position == 0:
                raise DataError(f"{path}: the file is empty")
            if end_of_line and part.stop is None and last != b"\n":  # the last line ends in a space, without LF
                yield [_EOS]


def count_words(part: TextPart, *, end_of_line: bool) -> Counter[bytes]:
    """Count how often each word of the part occurs. Raises DataError if there is no word."""
    counts: Counter[bytes] = Counter()
    for words in read_words(part, end_of_line=end_of_line):
        counts.update(words)
    _check_words(part, counts.total() - counts[_EOS])
    return counts


def _check_words(part: TextPart, words: int) -> None:
    if words == 0:
        raise DataError(f"{part.name}: holds no word, only white space")


def choose_vocabulary(
    counts: Mapping[bytes, int], *, end_of_line: bool, most_types: int | None = None
) -> dict[bytes, int]:
    """Return the training frequency of each word that gets a class, in the order of ids.

    The rule is stated at the head of this module.
    """
    special = {_UNK, _EOS} if end_of_line else {_UNK}
    words = sorted((word for word in counts if word not in special), key=lambda word: (-counts[word], word))
    kept = words if most_types is None else words[: max(0, most_types - len(special))]
    frequency = {word: counts[word] for word in kept} | {word: counts.get(word, 0) for word in special}
    frequency[_UNK] += sum(counts[word] for word in words[len(kept) :])
    return dict(sorted(frequency.items(), key=lambda item: (-item[1], item[0])))


class _Ids(dict[bytes, int]):
    """Map words to ids; words outside the vocabulary get the id of `<unk>`."""

    def __missing__(self, word: bytes) -> int:
        return self[_UNK]


def write_tokens(
    part: TextPart, vocabulary: Mapping[bytes, int], path: Path, *, end_of_line: bool
) -> tuple[TextCounts, str]:
    """Write the part's ids as int32 to the .npy file `path`; return their counts and sha256.

    Raises DataError for a part with fewer than two tokens, or without a word.
    """
    ids = _Ids({word: number for number, word in enumerate(vocabulary)})
    unknown, end = ids[_UNK], ids.get(_EOS, -1)
    ends = outside = 0
    column = ColumnWriter(path, "<i4")
    with column.file:
        for words in read_words(part, end_of_line=end_of_line):
            tokens = np.fromiter(map(ids.__getitem__, words), np.int32, len(words))
            outside += int(np.count_nonzero(tokens == unknown)) - words.count(_UNK)
            ends += int(np.count_nonzero(tokens == end))
            column.append(tokens)
        _check_words(part, column.length - ends)
        digest = column.finish()
    if column.length < 2:
        raise DataError(f"{part.name}: holds a single word; at least two are needed, one to predict from the other")
    return TextCounts(tokens=column.length, outside=outside), digest

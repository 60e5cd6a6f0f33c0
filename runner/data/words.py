"""From text files to token streams: what a word is, which words get a class, and in which order.

Words are separated by ASCII white space; the text must be UTF-8. Where a text has sentences, every line end is one
`<eos>`, a blank line's too, and a last line without LF has one like any other.

Vocabulary. The types of the training split, by decreasing training frequency, ties in byte order of the UTF-8 words (so
the order of sentences decides nothing). `<unk>`, and `<eos>` where lines end in it, always have a class, also where the
training split has none of them. With `most_types` n the vocabulary has n classes, these two included, or fewer
where the text has fewer: the most frequent other words stay, the rest become `<unk>`, whose frequency is what was
replaced by it and what the text itself writes as `<unk>`. Words that only the other splits have become `<unk>` too.

Files are read twice in blocks, once to count and once to write ids, so memory is bounded by a block and the types.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from runner.data.readers import blocks, progress_bar
from runner.data.store import ColumnWriter, TextCounts
from runner.data.text import EOS, UNK
from runner.errors import DataError

_EOS, _UNK = EOS.encode(), UNK.encode()


@dataclass(frozen=True, kw_only=True)
class TextPart:
    """The text of one split: files read one after the other, or bytes [start, stop) of one file."""

    paths: tuple[Path, ...]
    start: int = 0
    stop: int | None = None

    @property
    def name(self) -> str:
        """For messages."""
        first = str(self.paths[0])
        if self.start or self.stop is not None:
            return f"{first}: bytes from {self.start:,}"
        return first if len(self.paths) == 1 else f"{first} and {len(self.paths) - 1} more"


def read_words(part: TextPart, *, end_of_line: bool) -> Iterator[list[bytes]]:
    """The part's words in blocks. Raises DataError, naming file and line, for empty files and foreign bytes."""
    for path in part.paths:
        with progress_bar(path) as progress:
            line, position, last = 0, 0, b""
            for data, consumed in blocks(path, lambda: line, cut_at=(b"\n", b" ")):  # noqa: B023  the current value
                _check_utf8(path, data, line)
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
            if end_of_line and part.stop is None and last != b"\n":  # it ends in a space
                yield [_EOS]


def _check_utf8(path: Path, data: bytes, line: int) -> None:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        number = line + data.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{path}: line {number}: byte 0x{data[error.start]:02x} is not UTF-8;"
            " convert the file, for example with `iconv -f latin1 -t utf-8`"
        ) from None


def count_words(part: TextPart, *, end_of_line: bool) -> Counter[bytes]:
    """How often each word of the part occurs. Raises DataError where there is none."""
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
    """Training frequency of each word that gets a class, in id order; the module states the rule."""
    special = {_UNK, _EOS} if end_of_line else {_UNK}
    words = sorted((word for word in counts if word not in special), key=lambda word: (-counts[word], word))
    kept = words if most_types is None else words[: max(0, most_types - len(special))]
    frequency = {word: counts[word] for word in kept} | {word: counts.get(word, 0) for word in special}
    frequency[_UNK] += sum(counts[word] for word in words[len(kept) :])
    return dict(sorted(frequency.items(), key=lambda item: (-item[1], item[0])))


class _Ids(dict[bytes, int]):
    """Word to id; words outside the vocabulary get the id of `<unk>`."""

    def __missing__(self, word: bytes) -> int:
        return self[_UNK]


def write_tokens(
    part: TextPart, vocabulary: Mapping[bytes, int], path: Path, *, end_of_line: bool
) -> tuple[TextCounts, str]:
    """Write the part's ids as int32 to the .npy file `path`; returns their counts and sha256."""
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

"""Convert text files to token streams: this module states what a word is and which class it gets.

Words are separated by ASCII white space; the text must be UTF-8. If a text has sentences, every line end is one
`<eos>`. This includes blank lines and a last line without LF. Lines end in LF, or all in CR. An `<eos>` that the text
itself has as the last word of a line is the end of that line, and no second one; elsewhere it is a further one.

Vocabulary. Classes are the types of the training split, sorted by decreasing training frequency. Equally frequent words
are sorted by their UTF-8 bytes, so the order of sentences has no influence. `<unk>` always has a class, and so has
`<eos>` if the text has sentences, even if the training split does not contain them. With `most_types` n there are at
most n classes, these two included: the most frequent other words keep their class, the rest become `<unk>`. So do
words that the training split has fewer than `least_count` times. The frequency of `<unk>` counts the replaced words and
every `<unk>` that the text itself contains. Words that occur only in the other splits become `<unk>` too.

Files are read twice in blocks, once to count and once to write ids, so memory is bounded by a block and the types.
"""

import re
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
_LINE_END = b"\0"  # stands for one among words; no text holds it
_LAST_WORD = re.compile(rb"(?<!\S)(\S++)[ \t\r\f\v]*+\n")  # linear in the length of words
_IN_BRACKETS = re.compile(rb"<[^<>]+>|\[[^\[\]]+\]")


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


@dataclass(kw_only=True)
class LineEnds:
    """Make `<eos>` of the ends of lines, and count what the text says of the ends of its sentences itself."""

    at_end: int = 0  # `<eos>` that are the last words of lines
    elsewhere: int = 0  # other `<eos>`
    lone_cr: int = 0  # CR that are not before LF
    lines: int = 0  # that have a word
    mark: bytes | None = None  # the last word of the first of them if it is in brackets, such as `</s>`
    marked: int = 0  # lines that end in it
    _last: bytes = b""  # the word before the next block

    def words(self, data: bytes) -> list[bytes]:
        """Return the words of the next block."""
        self.lone_cr += data.count(b"\r") - data.count(b"\r\n")
        self._look_for_marks(data)
        if _EOS not in data and self._last != _EOS:
            words = data.replace(b"\n", b" " + _EOS + b" ").split()
            self._last = data[data.rfind(b"\n") + 1 :].strip()  # a word only matters if it is `<eos>`
            return words
        words = []
        for word in data.replace(b"\n", b" " + _LINE_END + b" ").split():
            if self._last == _EOS and word == _LINE_END:
                self.at_end += 1
            else:
                self.elsewhere += self._last == _EOS
                words.append(_EOS if word == _LINE_END else word)
            self._last = word
        return words

    def finish(self, *, is_open: bool) -> list[bytes]:
        """Return the end of the last line of a file; `is_open`: no LF ends it."""
        words = [] if not is_open else self.words(b"\n")
        self._last = b""
        return words

    def _look_for_marks(self, data: bytes) -> None:
        if not self.lines and (first := _LAST_WORD.search(data)):
            self.mark = first[1] if _IN_BRACKETS.fullmatch(first[1]) and first[1] != _EOS else None
        if self.mark is not None or not self.lines:
            found = [match[1] for match in _LAST_WORD.finditer(data)] if self.mark is not None else [b""]
            self.lines += len(found)
            self.marked += found.count(self.mark or _LINE_END)

    def notes(self, name: str) -> list[str]:
        """Return what a user should know of the text."""
        notes = []
        if self.at_end:
            notes.append(f"{self.at_end:,} lines end in {EOS}, which counts once: it is the end of the line")
        if self.elsewhere:
            notes.append(f"{self.elsewhere:,} {EOS} within lines are ends of sentences, besides those of the lines")
        if self.mark is not None and self.marked == self.lines > 1:
            notes.append(
                f"every line ends in {self.mark.decode()}, a word after which {EOS} is certain, so that perplexities"
                " look too good; leave it out"
            )
        if self.lone_cr:
            notes.append(f"{self.lone_cr:,} carriage returns within lines are read as blanks, not as ends of lines")
        return [f"{name}: {note}" for note in notes]


def read_words(part: TextPart, *, end_of_line: bool, ends: LineEnds | None = None) -> Iterator[list[bytes]]:
    """Yield the part's words in blocks; `ends` counts what the text says of the ends of its sentences.

    Raises DataError, naming file and line, for empty files, bytes that are not UTF-8 and zero bytes.
    """
    ends = LineEnds() if ends is None else ends
    for path in part.paths:
        with progress_bar(path) as progress:
            line, position, last = 0, 0, b""
            for data, consumed in blocks(path, lambda: line, cut_at=(b"\n", b" ")):  # noqa: B023  it must see the current value
                decoded_block(path, data, line)
                if (zero := data.find(b"\0")) >= 0:
                    at = line + data.count(b"\n", 0, zero) + 1
                    raise DataError(f"{path}: line {at}: holds a zero byte; this is not a text file")
                line += data.count(b"\n")
                last = data[-1:]
                piece = data[
                    max(0, part.start - position) : None if part.stop is None else max(0, part.stop - position)
                ]
                position += len(data)
                progress(consumed)
                yield ends.words(piece) if end_of_line else piece.split()
                if part.stop is not None and position >= part.stop:
                    break
            if position == 0:
                raise DataError(f"{path}: the file is empty")
            if end_of_line:  # the last line may end in a space, without LF
                yield ends.finish(is_open=part.stop is None and last != b"\n")


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
    counts: Mapping[bytes, int], *, end_of_line: bool, most_types: int | None = None, least_count: int = 1
) -> dict[bytes, int]:
    """Return the training frequency of each word that gets a class, in the order of ids.

    The rule is stated at the head of this module.
    """
    special = {_UNK, _EOS} if end_of_line else {_UNK}
    words = sorted((word for word in counts if word not in special), key=lambda word: (-counts[word], word))
    kept = [word for word in words if counts[word] >= least_count]
    if most_types is not None:
        kept = kept[: max(0, most_types - len(special))]
    frequency = {word: counts[word] for word in kept} | {word: counts.get(word, 0) for word in special}
    frequency[_UNK] += sum(counts[word] for word in words[len(kept) :])
    return dict(sorted(frequency.items(), key=lambda item: (-item[1], item[0])))


class _Ids(dict[bytes, int]):
    """Map words to ids; words outside the vocabulary get the id of `<unk>`."""

    def __missing__(self, word: bytes) -> int:
        return self[_UNK]


def write_tokens(
    part: TextPart, vocabulary: Mapping[bytes, int], path: Path, *, end_of_line: bool
) -> tuple[TextCounts, str, list[str]]:
    """Write the part's ids as int32 to the .npy file `path`; return their counts, their sha256 and notes for the user.

    Raises DataError for a part with fewer than two tokens, or without a word.
    """
    ids = _Ids({word: number for number, word in enumerate(vocabulary)})
    unknown, end = ids[_UNK], ids.get(_EOS, -1)
    ends = outside = 0
    column, line_ends = ColumnWriter(path, "<i4"), LineEnds()
    with column.file:
        for words in read_words(part, end_of_line=end_of_line, ends=line_ends):
            tokens = np.fromiter(map(ids.__getitem__, words), np.int32, len(words))
            outside += int(np.count_nonzero(tokens == unknown)) - words.count(_UNK)
            ends += int(np.count_nonzero(tokens == end))
            column.append(tokens)
        _check_words(part, column.length - ends)
        digest = column.finish()
    if column.length < 2:
        raise DataError(f"{part.name}: holds a single word; at least two are needed, one to predict from the other")
    return TextCounts(tokens=column.length, outside=outside), digest, line_ends.notes(part.name)

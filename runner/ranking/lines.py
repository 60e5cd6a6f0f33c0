"""Rank the words that may follow each line of a text.

Legend: B lines ranked at the same time, K words of a line, D hidden size, T tokens.
"""

import itertools
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from runner.data.shared.files import blocks
from runner.data.shared.tables import decoded
from runner.data.text.dataset import UNK
from runner.errors import DataError
from runner.ranking.rows import rows_at_once

if TYPE_CHECKING:
    from runner.data import TextDataset

_TOKENS_AT_ONCE = 2**14  # whose hidden states are computed together
_TOKENS_KEPT = 2**20  # of lines that wait for being ranked
_WORD = re.compile(r"\S+", re.ASCII)  # other white space, such as U+00A0, is part of a word, as in training

Line = tuple[Any, ...]
Numbered = tuple[int, np.ndarray]


def ranked(network: Any, task: Any, lines: Iterable[Numbered], k: int, threshold: float = 0) -> Iterator[Line]:
    """Yield the header and, for each line, the likeliest next words whose probability is at least ``threshold``."""
    data: TextDataset = task.data
    k = min(k, data.num_classes)
    at_once = min(rows_at_once(k, network), max(1, _TOKENS_AT_ONCE // task.config.windows.length))
    groups = _groups(lines, at_once)
    first = next(groups)  # a file without a word is refused before anything is written
    yield ("line", "rank", "word", "score", "probability")
    for group in itertools.chain([first], groups):
        hidden_BD = task.hidden_after(network, [ids_T for _, ids_T in group])
        top_BK, score_BK = task.likeliest(network, hidden_BD, k)
        for (number, _), top_K, score_K in zip(group, top_BK.tolist(), score_BK, strict=True):
            found = zip(top_K, score_K.tolist(), np.exp(score_K).tolist(), strict=True)
            for rank, (word, score, chance) in enumerate(found, start=1):
                if chance >= threshold:
                    yield (number, rank, data.vocabulary[word], score, chance)


def lines_of_file(task: Any, path: Path) -> Iterator[Numbered]:
    """Yield the number and the ids of each line that has a word, (T,) int32; say at the end how many were unknown.

    Lines end in LF and words are separated by ASCII white space, to which CR belongs, as in training. Raises DataError
    for a file without a word and for a line that is not UTF-8.
    """

    def texts() -> Iterator[str]:
        number = 0
        for piece, _ in blocks(path, lambda: number):  # noqa: B023  it must see the current value
            for line in piece.split(b"\n")[:-1]:
                number += 1
                yield decoded(path, number, line)

    return _with_words(task.data, texts(), str(path))


def lines_of_texts(task: Any, texts: Iterable[str]) -> Iterator[Numbered]:
    """Yield the number, from 1, and the ids of each text that has a word. Raises DataError if none has one."""
    return _with_words(task.data, texts, "the texts")


def _with_words(data: "TextDataset", texts: Iterable[str], what: str) -> Iterator[Numbered]:
    words = unknown = 0
    for number, text in enumerate(texts, start=1):
        of_line = _WORD.findall(text)
        if not of_line:
            continue
        words += len(of_line)
        unknown += sum(word not in data.ids for word in of_line)
        yield number, np.array(data.to_continue(of_line), dtype=np.int32)
    if words == 0:
        raise DataError(f"{what}: the file holds no word to go on from")
    if unknown:
        print(f"{unknown:,} of {words:,} words are not in the vocabulary, and are read as {UNK}", file=sys.stderr)


def _groups(lines: Iterable[Numbered], at_once: int) -> Iterator[list[Numbered]]:
    """Yield some lines at a time, so that neither lines nor tokens become too many."""
    group: list[Numbered] = []
    tokens = 0
    for line in lines:
        group.append(line)
        tokens += len(line[1])
        if len(group) == at_once or tokens >= _TOKENS_KEPT:
            yield group
            group, tokens = [], 0
    if group:
        yield group

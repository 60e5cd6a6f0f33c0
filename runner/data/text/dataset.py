"""Define a prepared text: three memory-mapped streams of tokens and the word of each id.

Legend: T tokens of a split.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from runner.data.shared.card import Size
from runner.data.shared.manifests import Dataset, Int32s, Manifest, combine
from runner.data.shared.verify import check_names, map_ids, read_names

VOCABULARY = "vocabulary.txt"
EOS, UNK = "<eos>", "<unk>"


@dataclass(frozen=True, kw_only=True)
class TextDataset(Dataset):
    """Hold a prepared text for language models. Arrays read from disk are memory-mapped and read-only.

    Each split is one stream of class ids in the order of the text. Ids are sorted by decreasing training frequency, so
    0 is the most frequent word (`runner/data/text/words.py` states the whole rule).
    """

    NAMES: ClassVar[Mapping[str, str]] = {"vocabulary_path": VOCABULARY}

    train_T: Int32s
    valid_T: Int32s
    test_T: Int32s
    num_classes: int
    vocabulary_path: Path

    @classmethod
    def without_examples(cls, *, num_features: int, num_classes: int, **known: Any) -> Self:
        """Return data that have a vocabulary but no text."""
        none = np.zeros(0, np.int32)
        return cls(train_T=none, valid_T=none, test_T=none, num_classes=num_classes, **known)

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        """Return the word of each id, read from the file at first use. Raises DataError if the file is damaged."""
        return read_names(self.vocabulary_path, self.num_classes, what="words")

    @cached_property
    def ids(self) -> dict[str, int]:
        """Return the id of each word."""
        return {word: number for number, word in enumerate(self.vocabulary)}

    def to_continue(self, words: list[str]) -> list[int]:
        """Return the ids, at least one, from which a model continues some words; unknown words are `<unk>`.

        A text with sentences starts with the end of a sentence. Without sentences and words it starts with class 0, the
        most frequent word.
        """
        ids = [self.ids.get(word, self.ids[UNK]) for word in words]
        return [self.ids[EOS], *ids] if EOS in self.ids else ids or [0]


@dataclass(frozen=True, kw_only=True)
class TextCounts:
    """Hold the counts of one split of a text."""

    tokens: int
    outside: int  # how many tokens were words outside the vocabulary, which became <unk>


@dataclass(frozen=True, kw_only=True)
class TextManifest(Manifest):
    """Describe a prepared text."""

    family: str = "text"
    num_classes: int
    train: TextCounts
    valid: TextCounts
    test: TextCounts

    @property
    def size(self) -> Size:
        return Size(unit="tokens", train=self.train.tokens, test=self.test.tokens, classes=self.num_classes)

    def in_words(self) -> str:
        return (
            f"{self.train.tokens:,} / {self.valid.tokens:,} / {self.test.tokens:,} tokens, {self.num_classes:,} classes"
        )

    def checksum_of(self, digests: Mapping[str, str]) -> str:
        return combine(*(digests[name] for name in (VOCABULARY, "train.npy", "valid.npy", "test.npy")))

    def open(self, folder: Path) -> TextDataset:
        check_names(folder / VOCABULARY, self.num_classes)
        return TextDataset(
            name=self.name,
            train_T=map_ids(folder / "train.npy", self.train.tokens, below=self.num_classes),
            valid_T=map_ids(folder / "valid.npy", self.valid.tokens, below=self.num_classes),
            test_T=map_ids(folder / "test.npy", self.test.tokens, below=self.num_classes),
            num_classes=self.num_classes,
            vocabulary_path=folder / VOCABULARY,
            checksum=self.checksum,
            variant=self.variant,
        )

"""Define a prepared text: three memory-mapped streams of tokens and the word of each id.

Legend: T tokens of a split.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from runner.data.places import damaged
from runner.data.rows import Int32s

EOS, UNK = "<eos>", "<unk>"


@dataclass(frozen=True, kw_only=True)
class TextDataset:
    """Hold a prepared text for language models. Arrays read from disk are memory-mapped and read-only.

    Each split is one stream of class ids in the order of the text. Ids are sorted by decreasing training frequency, so
    0 is the most frequent word (`runner/data/words.py` states the whole rule).
    """

    name: str
    train_T: Int32s
    valid_T: Int32s
    test_T: Int32s
    num_classes: int
    vocabulary_path: Path
    checksum: str  # sha256 of the token streams and the vocabulary
    variant: str  # the published (or private) version of the text

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        """Return the word of each id, read from the file at first use. Raises DataError if the file is damaged."""
        try:
            words = self.vocabulary_path.read_bytes().decode("utf-8").split("\n")[:-1]
        except (OSError, UnicodeDecodeError) as error:
            raise damaged(self.vocabulary_path, f"it cannot be read ({error})") from None
        if len(words) != self.num_classes:
            raise damaged(self.vocabulary_path, f"{len(words)} words for {self.num_classes} classes")
        return tuple(words)

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

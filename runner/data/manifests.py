"""Define manifests: what `manifest.json` of a prepared folder says, by family of data."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

FORMAT_VERSION = 1
COLUMNS = {"indptr": "<i8", "indices": "<i4", "values": "<f4", "label_indptr": "<i8", "labels": "<i4"}
LABEL_NAMES = "labels.txt"
VOCABULARY = "vocabulary.txt"
ITEM_NAMES = "items.txt"


def combine(*parts: object) -> str:
    """Return the sha256 of the parts, each as a line of text."""
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Manifest(ABC):
    """Hold the fields that the manifests of all families of data have."""

    name: str
    variant: str
    checksum: str
    sources: dict[str, str]  # sha256 of each file that was read, "" if it was not computed
    notes: list[str]  # differences between the data and what the card expects
    format_version: int = FORMAT_VERSION

    @abstractmethod
    def in_words(self) -> str:
        """Return the sizes of the data in words."""

    @abstractmethod
    def checksum_of(self, digests: Mapping[str, str]) -> str:
        """Return the checksum of data whose files have these digests; that of whole data is ``checksum``.

        ``digests``: by name of file, the sha256 of an array's entries or of a text's bytes.
        """


@dataclass(frozen=True, kw_only=True)
class SplitCounts:
    """Hold the counts of one split of sparse rows, and how many rows were dropped when it was read."""

    rows: int
    nonzeros: int
    label_pairs: int
    rows_read: int  # rows in the file: rows + rows_dropped
    rows_dropped: int  # rows without any label
    rows_without_features: int  # rows that are kept with an empty feature row


@dataclass(frozen=True, kw_only=True)
class RowsManifest(Manifest):
    """Describe a prepared set of sparse rows."""

    num_features: int
    num_classes: int
    propensity_a: float
    propensity_b: float
    train: SplitCounts
    test: SplitCounts

    def in_words(self) -> str:
        return (
            f"{self.train.rows:,} / {self.test.rows:,} rows, {self.num_features:,} features,"
            f" {self.num_classes:,} classes"
        )

    def checksum_of(self, digests: Mapping[str, str]) -> str:
        splits = (combine(*(digests[f"{split}.{column}.npy"] for column in COLUMNS)) for split in ("train", "test"))
        return combine(self.num_features, self.num_classes, *splits)


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

    def in_words(self) -> str:
        return (
            f"{self.train.tokens:,} / {self.valid.tokens:,} / {self.test.tokens:,} tokens, {self.num_classes:,} classes"
        )

    def checksum_of(self, digests: Mapping[str, str]) -> str:
        return combine(*(digests[name] for name in (VOCABULARY, "train.npy", "valid.npy", "test.npy")))


@dataclass(frozen=True, kw_only=True)
class RegressionManifest(Manifest):
    """Describe prepared tables of numbers with one response for each row."""

    family: str = "regression"
    num_features: int
    train_rows: int
    test_rows: int

    def in_words(self) -> str:
        return f"{self.train_rows:,} / {self.test_rows:,} rows, {self.num_features:,} features"

    def checksum_of(self, digests: Mapping[str, str]) -> str:
        splits = (
            combine(*(digests[f"{split}.{array}.npy"] for array in ("features", "response")))
            for split in ("train", "test")
        )
        return combine(self.num_features, self.train_rows, self.test_rows, *splits)


@dataclass(frozen=True, kw_only=True)
class PairsManifest(Manifest):
    """Describe a prepared set of sentence pairs; `train` and `test` count pairs."""

    family: str = "pairs"
    num_classes: int
    train: int
    test: int
    class_names: list[str]  # by class id

    def in_words(self) -> str:
        return f"{self.train:,} / {self.test:,} pairs, {self.num_classes:,} classes"

    def checksum_of(self, digests: Mapping[str, str]) -> str:
        splits = (
            combine(*(digests[f"{split}.{file}"] for file in ("first.txt", "second.txt", "labels.npy")))
            for split in ("train", "test")
        )
        return combine(*self.class_names, *splits)


@dataclass(frozen=True, kw_only=True)
class SequencesManifest(Manifest):
    """Describe a prepared log of events: how many are left after its filters, of how many that were read."""

    family: str = "sequences"
    num_users: int
    num_classes: int
    num_events: int
    events_read: int

    def in_words(self) -> str:
        return f"{self.num_events:,} events of {self.num_users:,} users, {self.num_classes:,} classes"

    def checksum_of(self, digests: Mapping[str, str]) -> str:
        return combine(*(digests[name] for name in ("items.npy", "indptr.npy", ITEM_NAMES)))


# Manifests of rows do not name their family, because there was no other when the first of them were written.
FAMILIES: dict[str, type[Manifest]] = {
    "rows": RowsManifest,
    "text": TextManifest,
    "regression": RegressionManifest,
    "pairs": PairsManifest,
    "sequences": SequencesManifest,
}

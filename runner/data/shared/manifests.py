"""Define what all prepared data have in common: what their manifest says, and what is known of them once opened."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from runner.data.shared.card import Size

FORMAT_VERSION = 1

Int32s = npt.NDArray[np.int32]


def combine(*parts: object) -> str:
    """Return the sha256 of the parts, each as a line of text."""
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Say what data are called, which version of them these are, and what they are made of."""

    name: str
    variant: str
    sources: dict[str, str]  # sha256 of each file that was read, "" if it was not computed

    @classmethod
    def own(cls, name: str, variant: str, files: Mapping[str, Path]) -> "Origin":
        """Return the origin of a user's data, whose files are not hashed."""
        return cls(name=name, variant=variant, sources={str(path): "" for path in files.values()})


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """Hold what is known of the prepared data of any family.

    ``NAMES``: the files of names that predicting needs, by the field that has their path; a field may be None. A family
    that has some also has ``without_examples``.
    """

    NAMES: ClassVar[Mapping[str, str]] = {}

    name: str
    checksum: str  # sha256 of the prepared arrays, texts and dimensions
    variant: str  # the published (or private) version and split of the data

    @classmethod
    def without_examples(cls, *, num_features: int, num_classes: int, **known: Any) -> Self:
        """Return data that have names and sizes but no examples; ``known``: its other fields."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Manifest(ABC):
    """Hold the fields that the manifests of all families of data have."""

    name: str
    variant: str
    checksum: str
    sources: dict[str, str]  # as those of Origin
    notes: list[str]  # differences between the data and what the card expects
    format_version: int = FORMAT_VERSION

    @property
    @abstractmethod
    def size(self) -> Size:
        """Return the sizes of the data."""

    @abstractmethod
    def in_words(self) -> str:
        """Return the sizes of the data in words."""

    @abstractmethod
    def checksum_of(self, digests: Mapping[str, str]) -> str:
        """Return the checksum of data whose files have these digests; that of whole data is ``checksum``.

        ``digests``: by name of file, the sha256 of an array's entries or of a text's bytes.
        """

    @abstractmethod
    def open(self, folder: Path) -> Dataset:
        """Map the arrays of the folder and check what a look at each entry tells. Raises DataError."""

"""Define what the dataset cards of all families have in common: sources, layouts and sizes of published sets.

A card is `datasets/<name>/card.yaml`. What only one family's cards say is in that family's room.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True, kw_only=True)
class SourceFile:
    """Describe a file to download. Its addresses are mirrors, tried in order; `gdrive:ID` is a Google Drive file."""

    name: str  # file name under raw/
    urls: tuple[str, ...]
    sha256: str | None = None  # None if none is published: that of the first download is then recorded
    md5: str | None = None


@dataclass(frozen=True, kw_only=True)
class Source:
    """List the files that together hold one layout. If a source cannot be fetched, the next source is tried."""

    layout: str
    files: tuple[SourceFile, ...]


def is_pattern(name: str) -> bool:
    """Return whether a name stands for all names of its form, as `linux-*.tar.xz` does."""
    return not {*"*?["}.isdisjoint(name)


@dataclass(frozen=True, kw_only=True)
class Layout(ABC):
    """Name the files of a data set inside a folder or archive; subclasses do so for one family of data."""

    name: str  # recorded as the variant of what was prepared

    @abstractmethod
    def file_names(self) -> dict[str, str]:
        """Return the names (or patterns of names) of the required files, by field."""

    def optional_names(self) -> dict[str, str]:
        """Return the names of the files that may be missing, by field."""
        return {}

    def how_many(self, field: str) -> int:
        """Return how many files the name of a field stands for."""
        return 1

    @abstractmethod
    def problem(self) -> str | None:
        """Return what is wrong with the values, or None if nothing is."""

    def given(self, *fields: str) -> dict[str, str]:
        """Return the values of those fields that are not None, by field."""
        return {field: name for field in fields if (name := getattr(self, field)) is not None}

    def in_words(self) -> str:
        """Return the names of the required files, for messages."""
        many = {1: "one file"}
        return " and ".join(
            f"{many.get(self.how_many(field), f'{self.how_many(field)} files')} {name}" if is_pattern(name) else name
            for field, name in self.file_names().items()
        )


@dataclass(frozen=True, kw_only=True)
class Size:
    """Hold expected or found counts in terms that all families share."""

    unit: str  # what `train` and `test` count
    train: int | None
    test: int | None = None
    users: int | None = None  # of events
    features: int | None = None
    classes: int | None = None


@dataclass(frozen=True, kw_only=True)
class Card(ABC):
    """Hold the fields that the cards of all families have."""

    family: ClassVar[str]

    name: str
    title: str
    description: str
    licence: str
    redistribute: bool
    citation: str  # BibTeX
    counts_source: str  # who publishes the expected counts, and which of them are uncertain
    expected: Any  # the published counts, a dataclass of the family's
    layouts: tuple[Layout, ...]  # in which users may have the files
    sources: tuple[Source, ...] = ()
    embedded: tuple[SourceFile, ...] = ()  # files that lie beside the card and have no addresses
    by_hand: str = ""  # how to fetch the set with a browser

    @property
    def base(self) -> str | None:
        """Return the name of the set that this one is derived from, or None."""
        return None

    @property
    @abstractmethod
    def size(self) -> Size:
        """Return the size of the set that the card states."""

    def problem(self) -> str | None:
        """Return in which way parts of the card contradict each other, or None if they do not."""
        return None

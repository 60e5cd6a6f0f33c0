"""Say what the cards of texts hold, and in which layouts the files of a text may be."""

from dataclasses import dataclass
from typing import ClassVar

from runner.data.shared.card import Card, Layout, Size


@dataclass(frozen=True, kw_only=True)
class TextLayout(Layout):
    """Name the files of a text: `train`, `valid` and `test`, or `data` and two `cuts` between splits, or `linux`."""

    train: str | None = None  # a pattern if train_files is above 1; files are read in the order of their names
    valid: str | None = None
    test: str | None = None
    train_files: int = 1
    data: str | None = None
    cuts: tuple[int, ...] = ()  # byte positions in `data` at which valid and test begin
    linux: str | None = None  # an archive of the kernel's sources, or a pattern of its name

    def file_names(self) -> dict[str, str]:
        return self.given("train", "valid", "test", "data", "linux")

    def how_many(self, field: str) -> int:
        return self.train_files if field == "train" else 1

    def problem(self) -> str | None:
        if self.train_files < 1:
            return "train_files must be at least 1"
        given = set(self.file_names())
        if (given, len(self.cuts)) not in (({"train", "valid", "test"}, 0), ({"data"}, 2), ({"linux"}, 0)):
            return "give either train, valid and test, or data and two cuts, or linux"
        if self.cuts and not 0 < self.cuts[0] < self.cuts[1]:
            return "cuts must ascend from above 0"
        return None


@dataclass(frozen=True, kw_only=True)
class ExpectedText:
    """Hold the published counts of a text, None if unknown. The classes include `<eos>` and `<unk>`."""

    num_classes: int
    train_tokens: int | None
    valid_tokens: int | None
    test_tokens: int | None


@dataclass(frozen=True, kw_only=True)
class Canonical:
    """State the checksum of a file inside the published archives.

    Copies with other bytes exist that hold the same data, so that a file is not refused, but said to be another one.
    """

    name: str
    sha1: str


@dataclass(frozen=True, kw_only=True)
class FirstLines:
    """Describe a text made of the first lines of each split of another text, with a vocabulary of its own."""

    base: str
    train_lines: int
    valid_lines: int
    test_lines: int


@dataclass(frozen=True, kw_only=True)
class TextCard(Card):
    """Describe a text for language models; `runner/data/text/words.py` states how words become ids."""

    family: ClassVar[str] = "text"

    expected: ExpectedText
    end_of_line: bool = True  # lines are sentences, and each line end is a token
    canonical: tuple[Canonical, ...] = ()
    least_count: int = 1  # of a word in the training split that has a class; rarer ones are <unk>
    most_types: int | None = None  # largest number of classes; None: every type of the training split is a class
    layouts: tuple[TextLayout, ...] = ()
    derived: FirstLines | None = None

    @property
    def base(self) -> str | None:
        return self.derived.base if self.derived is not None else None

    @property
    def size(self) -> Size:
        counts = self.expected
        return Size(unit="tokens", train=counts.train_tokens, test=counts.test_tokens, classes=counts.num_classes)

"""What `conf/dataset/*.yaml` may say: one frozen dataclass per `kind`, each with `build()`.

Its `family` says what is built: `rows` (XmcDataset) or `text` (TextDataset).
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from runner.data.python_topics import PythonTopicsConfig
from runner.data.rows import XmcDataset
from runner.data.synthetic_xc import SyntheticXcConfig
from runner.data.text import TextDataset
from runner.errors import ConfigError, require


@dataclass(frozen=True, kw_only=True)
class CardConfig:
    """A published or embedded set, by its card's name."""

    kind: str = "card"
    name: str

    def __post_init__(self) -> None:
        from runner.data.card import card_names

        if self.name not in card_names():
            raise ConfigError(f"dataset.name: no card {self.name!r}; choose one of {', '.join(card_names())}")

    @property
    def family(self) -> str:
        from runner.data.card import load_card

        return load_card(self.name).family

    def build(self) -> XmcDataset | TextDataset:
        """Open the prepared set; an embedded one is prepared on first use. Raises DataNotPrepared."""
        from runner.data.prepare import load_card_dataset

        return load_card_dataset(self.name)


@dataclass(frozen=True, kw_only=True)
class XmcFilesConfig:
    """One's own XC text files: a folder with train.txt and test.txt, plain or compressed."""

    family: ClassVar[str] = "rows"

    kind: str = "files"
    name: str = "xmc"
    path: str | None = None  # None stands for "not given yet" in the YAML; build() refuses it

    def __post_init__(self) -> None:
        _require_plain(self.name)

    def build(self) -> XmcDataset:
        """Prepare the files (cached by path, size and time) and open them. Raises ConfigError, DataError."""
        from runner.data.prepare import load_files_dataset

        return load_files_dataset(_folder(self.path, "train.txt and test.txt"), self.name)


@dataclass(frozen=True, kw_only=True)
class TextFilesConfig:
    """One's own text: a folder with train.txt, valid.txt and test.txt, UTF-8, a sentence a line, plain or compressed.

    `most_types`: classes at most, `<eos>` and `<unk>` among them; the rarer words become `<unk>`. None: every word of
    train.txt has a class. Words that only valid.txt or test.txt has become `<unk>` in any case.
    """

    family: ClassVar[str] = "text"

    kind: str = "text_files"
    name: str = "text"
    path: str | None = None  # None stands for "not given yet" in the YAML; build() refuses it
    most_types: int | None = None

    def __post_init__(self) -> None:
        _require_plain(self.name)
        require(
            self.most_types is None or 3 <= self.most_types < 2**31,
            "dataset.most_types must be null (all words) or at least 3 (<eos>, <unk> and a word)",
        )

    def build(self) -> TextDataset:
        """Prepare the files (cached by path, size, time and most_types) and open them. ConfigError, DataError."""
        from runner.data.prepare import load_text_files_dataset

        folder = _folder(self.path, "train.txt, valid.txt and test.txt")
        return load_text_files_dataset(folder, self.name, self.most_types)


def _folder(path: str | None, files: str) -> Path:
    if not path:
        raise ConfigError(f"dataset.path: give the folder that holds {files}")
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise ConfigError(f"dataset.path: {path} is no folder; give the one with {files}")
    return folder


def _require_plain(name: str) -> None:
    """Names of one's own data begin run folders' names."""
    require(
        re.fullmatch(r"[\w.-]+", name) is not None and name[0] not in ".-",
        f"dataset.name must be of letters, digits, '_', '-' and '.', got {name!r}",
    )


KINDS: dict[str, type] = {
    "card": CardConfig,
    "files": XmcFilesConfig,
    "synthetic_xc": SyntheticXcConfig,
    "text_files": TextFilesConfig,
    "python_topics": PythonTopicsConfig,
}

"""Define what `conf/dataset/*.yaml` may say: one frozen dataclass for each `kind`.

`build()` opens the data set. `family` says which type it returns: `rows` an XmcDataset, `text` a TextDataset.
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
    """Choose a published or embedded set by the name of its card."""

    kind: str = "card"
    name: str

    def __post_init__(self) -> None:
        from runner.data.card import card_names

        if self.name not in card_names():
            raise ConfigError(f"dataset.name: no card {self.name!r}; choose one of {', '.join(card_names())}")

    @property
    def family(self) -> str:
        """Return the family of the set, as its card says: `rows` or `text`."""
        from runner.data.card import load_card

        return load_card(self.name).family

    def build(self) -> XmcDataset | TextDataset:
        """Open the prepared set; an embedded one is prepared on first use. Raises DataNotPrepared, DataError."""
        from runner.data.prepare import load_card_dataset

        return load_card_dataset(self.name)


@dataclass(frozen=True, kw_only=True)
class XmcFilesConfig:
    """Choose your own files in XC text: a folder with train.txt and test.txt, plain or compressed."""

    family: ClassVar[str] = "rows"

    kind: str = "files"
    name: str = "xmc"
    path: str | None = None  # None means "not given yet"; build() refuses it

    def __post_init__(self) -> None:
        _require_plain(self.name)

    def build(self) -> XmcDataset:
        """Prepare the files and open them. Files of the same path, size and time are prepared once.

        Raises ConfigError for a wrong path, DataError for wrong files.
        """
        from runner.data.prepare import load_files_dataset

        return load_files_dataset(_folder(self.path, "train.txt and test.txt"), self.name)


@dataclass(frozen=True, kw_only=True)
class TextFilesConfig:
    """Choose your own text: a folder with train.txt, valid.txt and test.txt, plain or compressed.

    The files are UTF-8 with one sentence per line. `most_types`: largest number of classes, `<eos>` and `<unk>`
    included; rarer words become `<unk>`. None: every word of train.txt is a class. Words that occur only in valid.txt
    or test.txt always become `<unk>`.
    """

    family: ClassVar[str] = "text"

    kind: str = "text_files"
    name: str = "text"
    path: str | None = None  # None means "not given yet"; build() refuses it
    most_types: int | None = None

    def __post_init__(self) -> None:
        _require_plain(self.name)
        require(
            self.most_types is None or 3 <= self.most_types < 2**31,
            "dataset.most_types must be null (all words) or at least 3 (<eos>, <unk> and a word)",
        )

    def build(self) -> TextDataset:
        """Prepare the files and open them. Files of the same path, size, time and `most_types` are prepared once.

        Raises ConfigError for a wrong path, DataError for wrong files.
        """
        from runner.data.prepare import load_text_files_dataset

        folder = _folder(self.path, "train.txt, valid.txt and test.txt")
        return load_text_files_dataset(folder, self.name, self.most_types)


def _folder(path: str | None, files: str) -> Path:
    """Return the folder of `dataset.path`, or raise ConfigError naming the files that it must hold."""
    if not path:
        raise ConfigError(f"dataset.path: give the folder that holds {files}")
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise ConfigError(f"dataset.path: {path} is not a folder; give the folder that holds {files}")
    return folder


def _require_plain(name: str) -> None:
    """Check the name of a user's own data, with which the names of run folders begin."""
    require(
        re.fullmatch(r"[\w.-]+", name) is not None and name[0] not in ".-",
        f"dataset.name may hold only letters, digits, '_', '-' and '.' and must not begin with - or ., got {name!r}",
    )


KINDS: dict[str, type] = {
    "card": CardConfig,
    "files": XmcFilesConfig,
    "synthetic_xc": SyntheticXcConfig,
    "text_files": TextFilesConfig,
    "python_topics": PythonTopicsConfig,
}

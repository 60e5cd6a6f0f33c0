"""Define what `conf/dataset/*.yaml` may say: one frozen dataclass for each `kind`.

`build()` opens the data set. `family` says which type it returns: `rows` an XmcDataset, `text` a TextDataset, `pairs` a
PairsDataset.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from runner.data.pairs import PairsDataset
from runner.data.python_topics import PythonTopicsConfig
from runner.data.rows import XmcDataset
from runner.data.synthetic_xc import SyntheticXcConfig
from runner.data.text import TextDataset
from runner.errors import ConfigError, require

FAMILIES_THAT_HOLD_OUT = ("pairs",)  # their sets have no validation set of their own


@dataclass(frozen=True, kw_only=True)
class CardConfig:
    """Choose a published or embedded set by the name of its card.

    `valid_share`: share of the training rows that the task holds out for validation; 0 for families that have a
    validation set of their own, or none.
    """

    kind: str = "card"
    name: str
    valid_share: float = 0.0

    def __post_init__(self) -> None:
        from runner.data.card import card_names

        if self.name not in card_names():
            raise ConfigError(f"dataset.name: no card {self.name!r}; choose one of {', '.join(card_names())}")
        require(0 <= self.valid_share <= 0.5, "dataset.valid_share must lie in [0, 0.5]")
        holds_out = self.family in FAMILIES_THAT_HOLD_OUT
        require(
            holds_out == (self.valid_share > 0),
            f"dataset.valid_share must be above 0, because {self.name} has no validation set of its own"
            if holds_out
            else f"dataset.valid_share must be 0, because no validation set is held out of {self.name}",
        )

    @property
    def family(self) -> str:
        """Return the family of the set, as its card says: `rows`, `text` or `pairs`."""
        from runner.data.card import load_card

        return load_card(self.name).family

    def build(self) -> XmcDataset | TextDataset | PairsDataset:
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


@dataclass(frozen=True, kw_only=True)
class PairsFileConfig:
    """Choose your own sentence pairs: a table with a header, TSV (without quoting) or CSV, plain or compressed.

    `first`, `second`, `label`: names of the columns that are used. `test_path`: a second file with the same columns;
    None: a draw of `test_share` of the pairs by `split_seed`. `valid_share`: share of the training pairs that the task
    holds out for validation. The classes are the labels of the training pairs.
    """

    family: ClassVar[str] = "pairs"

    kind: str = "pairs_file"
    name: str = "pairs"
    path: str | None = None  # None means "not given yet"; build() refuses it
    test_path: str | None = None
    first: str = "sentence1"
    second: str = "sentence2"
    label: str = "label"
    test_share: float = 0.1
    split_seed: int = 0
    valid_share: float = 0.1

    def __post_init__(self) -> None:
        _require_plain(self.name)
        require(0 < self.test_share <= 0.5, "dataset.test_share must lie in (0, 0.5]")
        require(0 < self.valid_share <= 0.5, "dataset.valid_share must lie in (0, 0.5]")
        require(self.split_seed >= 0, "dataset.split_seed must be 0 or more")
        names = (self.first, self.second, self.label)
        require(
            len(set(names)) == 3 and all(names),
            "dataset.first, dataset.second and dataset.label must name three different columns",
        )
        changed = [key for key in ("test_share", "split_seed") if getattr(self, key) != getattr(PairsFileConfig, key)]
        require(
            self.test_path is None or not changed,
            f"dataset.{''.join(changed[:1])} has no effect, because dataset.test_path gives the test pairs",
        )

    def build(self) -> PairsDataset:
        """Prepare the files and open them. Files of the same path, size, time and settings are prepared once.

        Raises ConfigError for a wrong path, DataError for wrong files.
        """
        from runner.data.prepare import load_pairs_file_dataset
        from runner.data.read_pairs import PairColumns

        return load_pairs_file_dataset(
            _file(self.path, "path", "sentence pairs (TSV or CSV with a header)"),
            None if self.test_path is None else _file(self.test_path, "test_path", "test pairs"),
            self.name,
            PairColumns(first=self.first, second=self.second, label=self.label),
            self.test_share,
            self.split_seed,
        )


def _file(path: str | None, key: str, holds: str) -> Path:
    """Return the file of `dataset.<key>`, or raise ConfigError saying what it must hold."""
    if not path:
        raise ConfigError(f"dataset.{key}: give the file that holds {holds}")
    file = Path(path).expanduser()
    if not file.is_file():
        raise ConfigError(f"dataset.{key}: {path} is not a file; give the file that holds {holds}")
    return file


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
    "pairs_file": PairsFileConfig,
    "python_topics": PythonTopicsConfig,
}

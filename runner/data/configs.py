"""Define what `conf/dataset/*.yaml` may say: one frozen dataclass for each `kind`.

`build()` opens the data set. `family` says which type it returns: `rows` an XmcDataset, `text` a TextDataset,
`regression` a RegressionDataset, `pairs` a PairsDataset, `sequences` a SequencesDataset.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from runner.conversion import as_path
from runner.data.pairs.dataset import PairsDataset
from runner.data.regression.bundled import SklearnConfig
from runner.data.regression.dataset import RegressionDataset
from runner.data.regression.settings import VALID_SHARE, SplitConfig, check_threshold
from runner.data.regression.synthetic import SyntheticRegressionConfig
from runner.data.rows.dataset import XmcDataset
from runner.data.rows.synthetic import SyntheticXcConfig
from runner.data.sequences.dataset import SequencesDataset, Split
from runner.data.sequences.events import Filters, Repeats
from runner.data.sequences.synthetic import SyntheticLogConfig
from runner.data.shared.manifests import Dataset
from runner.data.shared.splits import check_valid_share
from runner.data.text.dataset import TextDataset
from runner.data.text.python_topics import PythonTopicsConfig
from runner.errors import ConfigError, require


@dataclass(frozen=True, kw_only=True)
class CardConfig:
    """Choose a published or embedded set by the name of its card.

    `valid_share`: share of the training rows that the task holds out for validation, in [0, 0.5]. Families `text` and
    `sequences` need 0, `rows` may have 0, and the others need more.
    `threshold`: for regression only, None or the number above which a response becomes 1; all others become 0.
    `split`: for sequences only, which of a user's last events are for validation and testing: ratio or last_item
    (`runner/data/sequences/dataset.py`).
    """

    kind: str = "card"
    name: str
    valid_share: float = 0.0
    threshold: float | None = None
    split: Split = "ratio"

    def __post_init__(self) -> None:
        from runner.data.shared.cards import card_names
        from runner.data.shared.family import family_of

        if self.name not in card_names():
            raise ConfigError(f"dataset.name: no card {self.name!r}; choose one of {', '.join(card_names())}")
        what = f"dataset={self.name} holds {self.family}"
        check_valid_share(self.valid_share)
        holds_out = family_of(self.family).holds_out
        if holds_out == "no":
            require(self.valid_share == 0, f"dataset.valid_share: {what}, of which no share is held out; leave it at 0")
        elif holds_out == "always":
            require(self.valid_share > 0, f"dataset.valid_share: {what}, which is validated on a share above 0")
        check_threshold(self.threshold)
        require(
            self.threshold is None or self.family == "regression",
            f"dataset.threshold: {what}, which has no responses to compare with; leave it at null",
        )
        require(
            self.split == "ratio" or self.family == "sequences",
            f"dataset.split: {what}, whose users have no events to split; leave it at ratio",
        )

    @property
    def family(self) -> str:
        """Return the family of the set, as its card says: `rows`, `text`, `regression`, `pairs` or `sequences`."""
        from runner.data.shared.cards import load_card

        return load_card(self.name).family

    def build(self) -> Dataset:
        """Open the prepared set; an embedded one is prepared on first use. Raises DataNotPrepared, DataError."""
        from runner.data.shared.prepare import load_card_dataset

        dataset = load_card_dataset(self.name)
        return dataset.with_split(self.split) if isinstance(dataset, SequencesDataset) else dataset


@dataclass(frozen=True, kw_only=True)
class XmcFilesConfig:
    """Choose your own rows with labels: a folder with training and test rows, in one of the forms of `row_files`.

    These are XC text (train.txt, test.txt), svmlight text (train.svm, test.svm), tables (train.csv, test.csv), each
    plain or compressed, and SciPy's matrices (train.npz, train_labels.npz, test.npz, test_labels.npz). `path`: the
    folder.
    `valid_share`: share of the training rows that the task holds out for validation, in [0, 0.5].
    """

    family: ClassVar[str] = "rows"

    kind: str = "files"
    name: str = "xmc"
    path: str | None = None  # None means "not given yet"; build() refuses it
    valid_share: float = 0.0

    def __post_init__(self) -> None:
        _require_plain(self.name)
        check_valid_share(self.valid_share)

    def build(self) -> XmcDataset:
        """Prepare the files and open them. Files of the same path, size and time are prepared once.

        Raises ConfigError for a wrong path, DataError for wrong files.
        """
        from runner.data.rows.convert import load_own_rows

        return load_own_rows(_folder(self.path, "the rows, such as train.txt and test.txt"), self.name)


@dataclass(frozen=True, kw_only=True)
class TextFilesConfig:
    """Choose your own text: a folder with train.txt, valid.txt and test.txt, plain or compressed.

    The files are UTF-8 with one sentence per line. `path`: the folder.
    `most_types`: largest number of classes, `<eos>` and `<unk>` included; rarer words become `<unk>`. None: every word
    of train.txt is a class. Words that occur only in valid.txt or test.txt always become `<unk>`.
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
        from runner.data.text.convert import load_own_texts

        folder = _folder(self.path, "train.txt, valid.txt and test.txt")
        return load_own_texts(folder, self.name, self.most_types)


@dataclass(frozen=True, kw_only=True)
class TableFileConfig(SplitConfig):
    """Choose your own table of numbers: a file in CSV or svmlight text, plain or compressed (.gz, .xz, .bz2).

    CSV may be separated by comma, semicolon, tab or blanks and may have a header (`runner/data/shared/tables.py`).
    `path`: the file.
    `target`: name or index of the column to predict; negative indices count from the last. Every other column is a
    feature. The label of svmlight text is its target. `test_path`: a second file, with the same columns, that holds the
    test rows; without it, `test_share` of the rows of `path` are the test rows.
    """

    kind: str = "table_file"
    name: str = "regression"
    path: str | None = None  # None means "not given yet"; build() refuses it
    test_path: str | None = None
    target: str | int = -1

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_plain(self.name)
        for key in ("test_share", "split_seed"):
            require(
                self.test_path is None or getattr(self, key) == getattr(TableFileConfig, key),
                f"dataset.{key} has no effect if dataset.test_path gives the test rows; leave it at its default",
            )

    def build(self) -> RegressionDataset:
        """Prepare the files and open them. Files of the same path, size, time and settings are prepared once.

        Raises ConfigError for a wrong path or target, DataError for wrong files.
        """
        from runner.data.regression.convert import load_own_tables

        return load_own_tables(
            _own_tables(self.path, self.test_path, "CSV or svmlight text"),
            self.name,
            target=self.target,
            test_share=self.test_share,
            split_seed=self.split_seed,
        )


@dataclass(frozen=True, kw_only=True)
class PairsFileConfig:
    """Choose your own sentence pairs: a table with a header, TSV (without quoting) or CSV, plain or compressed.

    `path`: the file. `first`, `second`, `label`: names of the columns that are used.
    `test_path`: a second file with the same columns; without it, `test_share` of the pairs of `path` are for testing.
    `test_share`: share of the pairs that is held out for the test. `split_seed`: seed of the draw of the test pairs.
    `valid_share`: share of the training pairs that the task holds out for validation. The classes are the labels of the
    training pairs.
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
    valid_share: float = VALID_SHARE

    def __post_init__(self) -> None:
        _require_plain(self.name)
        require(0 < self.valid_share <= 0.5, f"dataset.valid_share must lie in (0, 0.5], got {self.valid_share}")
        require(0 < self.test_share <= 0.9, f"dataset.test_share must lie in (0, 0.9], got {self.test_share}")
        require(0 <= self.split_seed < 2**31, "dataset.split_seed must lie in [0, 2147483647]")
        names = (self.first, self.second, self.label)
        require(
            len(set(names)) == 3 and all(names),
            "dataset.first, dataset.second and dataset.label must name three different columns",
        )
        for key in ("test_share", "split_seed"):
            require(
                self.test_path is None or getattr(self, key) == getattr(PairsFileConfig, key),
                f"dataset.{key} has no effect if dataset.test_path gives the test pairs; leave it at its default",
            )

    def build(self) -> PairsDataset:
        """Prepare the files and open them. Files of the same path, size, time and settings are prepared once.

        Raises ConfigError for a wrong path, DataError for wrong files.
        """
        from runner.data.pairs.convert import load_own_pairs
        from runner.data.pairs.read import PairColumns

        return load_own_pairs(
            _own_tables(self.path, self.test_path, "TSV or CSV with a header"),
            self.name,
            columns=PairColumns(first=self.first, second=self.second, label=self.label),
            test_share=self.test_share,
            split_seed=self.split_seed,
        )


@dataclass(frozen=True, kw_only=True)
class InteractionsConfig:
    """Choose your own log of events: a table with a header, CSV or TSV, plain or compressed (.gz, .xz, .bz2).

    Comma, semicolon or tab separate, and a cell may be in double quotes. The rows may stand in any order; each is an
    event, and exact copies (same user, item and time) count once. Blanks around ids do not count.
    `path`: the file.
    `user`, `item`, `time`, `rating`: names of the columns. A time is a number or ISO 8601. `min_rating`: events rated
    below it are left out; None keeps all and reads no ratings. `min_user`, `min_item`: users and items with fewer
    events are left out until all that remain have enough. `repeats`: all, or first to keep only a user's first event
    of each item. `runner/data/sequences/events.py` states the rules. `split`: which of a user's last events are for
    validation and testing; users with fewer than three events are only trained on, and one event alone has nothing to
    be predicted from.

    ``scripts/bench.py read_log`` measures how long ten million rows take, and their memory.
    """

    family: ClassVar[str] = "sequences"

    kind: str = "interactions"
    name: str = "interactions"
    path: str | None = None  # None means "not given yet"; build() refuses it
    user: str = "user"
    item: str = "item"
    time: str = "time"
    rating: str | None = None
    min_rating: float | None = None
    min_user: int = 1
    min_item: int = 1
    repeats: Repeats = "all"
    split: Split = "ratio"

    def __post_init__(self) -> None:
        _require_plain(self.name)
        problem = self.filters.problem()
        require(problem is None, f"dataset.{problem}")
        names = [name for name in (self.user, self.item, self.time, self.rating) if name is not None]
        require(
            len(set(names)) == len(names) and all(name.strip() == name != "" for name in names),
            "dataset.user, dataset.item, dataset.time and dataset.rating must name different columns",
        )
        require(
            (self.rating is None) == (self.min_rating is None),
            "dataset.rating and dataset.min_rating go together: give both, or leave both at null to keep all events",
        )

    @property
    def filters(self) -> Filters:
        """Return which events stay."""
        return Filters(min_rating=self.min_rating, min_user=self.min_user, min_item=self.min_item, repeats=self.repeats)

    def build(self) -> SequencesDataset:
        """Prepare the file and open it. A file of the same path, size, time and settings is prepared once.

        Raises ConfigError for a wrong path, DataError for a wrong file and if no event is left.
        """
        from runner.data.sequences.convert import load_own_log
        from runner.data.sequences.logs import LogColumns

        dataset = load_own_log(
            _file("path", self.path, "CSV or TSV with a header"),
            self.name,
            columns=LogColumns(user=self.user, item=self.item, time=self.time, rating=self.rating),
            filters=self.filters,
        )
        return dataset.with_split(self.split)


def _own_tables(path: str | None, test_path: str | None, what: str) -> dict[str, Path]:
    """Return the files of `dataset.path` and, if given, `dataset.test_path`; ConfigError if one is no file."""
    train = _file("path", path, what)
    return {"train": train} if test_path is None else {"train": train, "test": _file("test_path", test_path, what)}


def _file(key: str, path: str | None, what: str) -> Path:
    """Return the file of `dataset.<key>`, or raise ConfigError."""
    if not path:
        raise ConfigError(f"dataset.{key}: give a file of {what}, e.g. dataset.{key}=my_table.csv")
    file = as_path(path, f"dataset.{key}")
    if not file.is_file():
        raise ConfigError(f"dataset.{key}: {path} is not a file; give a file of {what}")
    return file.resolve()


def _folder(path: str | None, files: str) -> Path:
    """Return the folder of `dataset.path`, or raise ConfigError naming the files that it must hold."""
    if not path:
        raise ConfigError(f"dataset.path: give the folder that holds {files}")
    folder = as_path(path, "dataset.path")
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
    "table_file": TableFileConfig,
    "sklearn": SklearnConfig,
    "synthetic_regression": SyntheticRegressionConfig,
    "pairs_file": PairsFileConfig,
    "interactions": InteractionsConfig,
    "synthetic_log": SyntheticLogConfig,
}

"""Define what `conf/dataset/*.yaml` may say: one frozen dataclass for each `kind`.

`build()` opens the data set. `family` says which type it returns: `rows` an XmcDataset, `text` a TextDataset,
`regression` a RegressionDataset, `pairs` a PairsDataset, `sequences` a SequencesDataset.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

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
from runner.data.shared.base import SPLIT, DatasetConfig, seed_of, share_for_test, share_for_validation
from runner.data.shared.manifests import Dataset
from runner.data.text.dataset import TextDataset
from runner.data.text.python_topics import PythonTopicsConfig
from runner.errors import ConfigError, require
from runner.options.conversion import one_spelling
from runner.options.fields import Variant, option

# The options of XmcFilesConfig that tables of texts have, and files of numbers have not.
_OF_TEXTS = (
    "labels", "test_path", "separator", "vectorizer", "ngrams", "min_rows", "most_features", "test_share", "split_seed",
)  # fmt: skip
CARD_KEYS: dict[str, dict[str, Any]] = {
    "rows": {"valid_share": 0.0},
    "text": {},
    "regression": {"valid_share": VALID_SHARE, "threshold": None},
    "pairs": {"valid_share": VALID_SHARE},
    "sequences": {"split": "ratio"},
}
"""The keys of ``CardConfig`` that matter for a family of cards, with their defaults there."""


@dataclass(frozen=True, kw_only=True)
class CardConfig(DatasetConfig):
    """Choose a published or embedded set by the name of its card."""

    kind: str = "card"
    name: str
    valid_share: float = option(
        0.0,
        "share of the training rows that is held out for validation; 0, for rows with labels alone: some test rows are"
        " measured meanwhile",
        low=0,
        high=0.5,
    )
    threshold: float | None = option(None, "for logistic regression: responses above it become 1, all others 0")
    split: Split = option("ratio", "", choices=SPLIT)

    def __post_init__(self) -> None:
        super().__post_init__()
        from runner.data.shared.cards import card_names
        from runner.data.shared.family import family_of

        if self.name not in card_names():
            raise ConfigError(f"dataset.name: no card {self.name!r}; choose one of {', '.join(card_names())}")
        what = f"dataset={self.name} holds {self.family}"
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

    @classmethod
    def variants(cls, name: str) -> Mapping[str, Variant]:
        """Return an option for each card, with the keys that matter for its family."""
        from runner.data.shared.cards import card_names, load_card

        cards = [load_card(card_name) for card_name in card_names()]
        return {card.name: Variant(about=card.title, keys=CARD_KEYS[card.family]) for card in cards}

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
class XmcFilesConfig(DatasetConfig):
    """Read your own rows with labels: dataset=xmc dataset.path=FILE dataset.text=COLUMN dataset.labels=COLUMN, for a
    table of texts and names of labels (CSV, TSV, JSON lines, Parquet), or dataset.path=DIR for numbers. DIR holds
    train.txt and test.txt in XC text, or train.svm and test.svm in svmlight text, or train.csv and test.csv (each
    plain, .xz, .gz or .bz2), or SciPy's train.npz, train_labels.npz, test.npz and test_labels.npz.
    """

    family: ClassVar[str] = "rows"

    kind: str = "files"
    name: str = "xmc"
    path: str | None = option(None, "table of texts and labels, or folder of the files")
    test_path: str | None = option(
        None, "a second table of texts and labels", null="test_share of the rows of path, drawn by split_seed"
    )
    text: str | None = option(None, "column of the texts", null="the files hold numbers")
    labels: str | None = option(
        None, "column of the names of labels: a list as JSON, pandas or NumPy write it, or names and separators"
    )
    separator: str | None = option(
        None,
        "character between two labels of a cell; none: each cell is one label",
        null="the one of | ; , that most cells have, and the run says which",
    )
    vectorizer: Literal["tfidf", "hashing"] = option(
        "tfidf",
        "how texts become rows",
        choices={"tfidf": "weights of the words of the training texts", "hashing": "words by their hash"},
    )
    ngrams: int = option(1, "most words in a row that are a feature together", low=1, high=5)
    min_rows: int = option(1, "training texts that a word must occur in, for tfidf", low=1, high=2**31 - 1)
    most_features: int | None = option(
        None,
        "largest number of features: for tfidf the most frequent words stay, for hashing it is the number of hashes",
        null="no limit; 262144 hashes",
        low=1,
        high=2**31 - 1,
    )
    test_share: float = share_for_test()
    split_seed: int = seed_of("the draw of the test rows")
    valid_share: float = share_for_validation(0.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_plain(self.name)
        _spell_paths(self)
        if self.text is None:
            for key in _OF_TEXTS:
                require(
                    getattr(self, key) == getattr(XmcFilesConfig, key),
                    f"dataset.{key} is for tables of texts: give dataset.text=COLUMN too",
                )
            return
        require(bool(self.text and self.labels), "dataset.text and dataset.labels go together: name both columns")
        require(self.text != self.labels, f"dataset.text and dataset.labels both name {self.text!r}")
        require(self.separator != "", "dataset.separator must be a character, or none for one label a cell")
        if self.vectorizer == "hashing":
            require(self.min_rows == 1, "dataset.min_rows has no effect on dataset.vectorizer=hashing; leave it at 1")
        _no_split_beside(self, XmcFilesConfig, "rows")

    def build(self) -> XmcDataset:
        """Prepare the files and open them. Files of the same path, size, time and settings are prepared once.

        Raises ConfigError for a wrong path, DataError for wrong files.
        """
        from runner.data.rows.convert import load_own_rows, load_own_texts

        if self.text is None or self.labels is None:
            if self.path and Path(self.path).is_file():
                raise ConfigError(
                    f"dataset.path: {self.path} is a file; for a table of texts name its columns, dataset.text=COLUMN"
                    " dataset.labels=COLUMN; rows of numbers are a folder with train.txt and test.txt"
                )
            return load_own_rows(_folder(self.path, "the rows, such as train.txt and test.txt"), self.name)
        from runner.data.rows.labelled_texts import TextColumns
        from runner.data.rows.vectorize import TextOptions

        return load_own_texts(
            _own_tables(self.path, self.test_path, "texts and labels (CSV, TSV, JSON lines or Parquet)"),
            self.name,
            columns=TextColumns(text=self.text, labels=self.labels, separator=self.separator),
            options=TextOptions(
                kind=self.vectorizer, ngrams=self.ngrams, min_rows=self.min_rows, most_features=self.most_features
            ),
            test_share=self.test_share,
            split_seed=self.split_seed,
        )


@dataclass(frozen=True, kw_only=True)
class TextFilesConfig(DatasetConfig):
    """Read your own text: dataset=text dataset.path=DIR. DIR holds train.txt, valid.txt and test.txt (or .xz, .gz, .bz2
    of them), UTF-8, one sentence per line, words separated by spaces.

    Words that occur only in valid.txt or test.txt always become `<unk>`.
    """

    family: ClassVar[str] = "text"

    kind: str = "text_files"
    name: str = "text"
    path: str | None = option(None, "folder of the files")
    most_types: int | None = option(
        None,
        "largest number of classes, <eos> and <unk> included; rarer words become <unk>",
        null="every word of train.txt is a class",
        low=3,
        high=2**31 - 1,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_plain(self.name)
        _spell_paths(self)

    def build(self) -> TextDataset:
        """Prepare the files and open them. Files of the same path, size, time and `most_types` are prepared once.

        Raises ConfigError for a wrong path, DataError for wrong files.
        """
        from runner.data.text.convert import load_own_texts

        folder = _folder(self.path, "train.txt, valid.txt and test.txt")
        return load_own_texts(folder, self.name, self.most_types)


@dataclass(frozen=True, kw_only=True)
class TableFileConfig(SplitConfig):
    """Read your own table of numbers: dataset=regression dataset.path=FILE. FILE is CSV (comma, semicolon, tab or
    blanks, with or without a header) or svmlight text, plain or .gz, .xz, .bz2.

    Every column but the target is a feature (`runner/data/shared/tables.py`).
    """

    kind: str = "table_file"
    name: str = "regression"
    path: str | None = option(None, "the file")
    test_path: str | None = option(
        None, "a file with the same columns that holds the test rows", null="test_share of the rows of path"
    )
    target: str | int = option(
        -1, "name or index of the column to predict; -1 is the last. Leave it at -1 for svmlight text"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_plain(self.name)
        _spell_paths(self)
        _no_split_beside(self, TableFileConfig, "rows")

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
class PairsFileConfig(DatasetConfig):
    """Read your own sentence pairs: dataset=pairs dataset.path=FILE. FILE is a table with a header, UTF-8: TSV (no
    quoting) or CSV, plain or compressed (.xz, .gz, .bz2). The classes are the labels of the training pairs.
    """

    family: ClassVar[str] = "pairs"

    kind: str = "pairs_file"
    name: str = "pairs"
    path: str | None = option(None, "the file")
    test_path: str | None = option(None, "a second file", null="test_share of the pairs, drawn by split_seed")
    first: str = option("sentence1", "column of the first sentence")
    second: str = option("sentence2", "column of the second sentence")
    label: str = option("label", "column of the label")
    test_share: float = share_for_test(of="pairs")
    split_seed: int = seed_of("the draw of the test pairs")
    valid_share: float = share_for_validation(VALID_SHARE, of="pairs")

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_plain(self.name)
        _spell_paths(self)
        names = (self.first, self.second, self.label)
        require(
            len(set(names)) == 3 and all(names),
            "dataset.first, dataset.second and dataset.label must name three different columns",
        )
        _no_split_beside(self, PairsFileConfig, "pairs")

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
class InteractionsConfig(DatasetConfig):
    """Read your own log of events: dataset=interactions dataset.path=FILE. FILE is a table with a header, UTF-8: CSV
    (comma or semicolon) or TSV, plain or compressed (.gz, .xz, .bz2), with a row for each event, in any order.

    A cell may be in double quotes. Exact copies (same user, item and time) count once, and blanks around ids do not
    count. `runner/data/sequences/events.py` states the rules. Users with fewer than three events are only trained on,
    and one event alone has nothing to be predicted from. ``scripts/bench.py read_log`` measures how long ten million
    rows take, and their memory.
    """

    family: ClassVar[str] = "sequences"

    kind: str = "interactions"
    name: str = "interactions"
    path: str | None = option(None, "the file")
    user: str = option("user", "column of the user")
    item: str = option("item", "column of the item")
    time: str | None = option(
        "time",
        "column of the time: numbers (seconds since 1970) or ISO 8601 (2010-10-19T23:55:27Z)",
        null="the order of the file",
    )
    columns: str | None = option(
        None, "names of all columns of a file without a header, such as user,item,time", null="the first line has them"
    )
    rating: str | None = option(None, "column of the rating, needed for min_rating only")
    min_rating: float | None = option(None, "leave out events rated below it", null="keep all")
    min_user: int = option(
        1, "leave out users with fewer events, until all users and items that remain have enough", low=1, high=2**31 - 1
    )
    min_item: int = option(
        1, "leave out items with fewer events, until all users and items that remain have enough", low=1, high=2**31 - 1
    )
    repeats: Repeats = option(
        "all", "", choices={"all": "keep every event", "first": "keep only a user's first event of each item"}
    )
    split: Split = option("ratio", "", choices=SPLIT)

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_plain(self.name)
        _spell_paths(self)
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
        for name in names if self.names else ():
            require(
                self.names is not None and self.names.count(name) == 1,
                f"dataset.columns={self.columns} must name the column {name!r} once; without times, dataset.time=null",
            )

    @property
    def names(self) -> tuple[str, ...] | None:
        """Return the names of all columns of a file without a header, None for a file with one."""
        return None if self.columns is None else tuple(name.strip() for name in self.columns.split(","))

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
            columns=LogColumns(user=self.user, item=self.item, time=self.time, rating=self.rating, names=self.names),
            filters=self.filters,
        )
        return dataset.with_split(self.split)


def _no_split_beside(config: Any, cls: type, what: str) -> None:
    """Raise ConfigError if rows are to be split although a second file gives the test rows."""
    for key in ("test_share", "split_seed"):
        require(
            config.test_path is None or getattr(config, key) == getattr(cls, key),
            f"dataset.{key} has no effect if dataset.test_path gives the test {what}; leave it at its default",
        )


def _spell_paths(config: DatasetConfig) -> None:
    """Write the paths of a data set in their one spelling, so that every other one is the same run and data.

    Raises ConfigError.
    """
    for key in ("path", "test_path"):
        if given := getattr(config, key, None):
            object.__setattr__(config, key, str(one_spelling(given, f"dataset.{key}")))


def _own_tables(path: str | None, test_path: str | None, what: str) -> dict[str, Path]:
    """Return the files of `dataset.path` and, if given, `dataset.test_path`; ConfigError if one is no file."""
    train = _file("path", path, what)
    return {"train": train} if test_path is None else {"train": train, "test": _file("test_path", test_path, what)}


def _file(key: str, path: str | None, what: str) -> Path:
    """Return the file of `dataset.<key>`, or raise ConfigError."""
    if not path:
        raise ConfigError(f"dataset.{key}: give a file of {what}, e.g. dataset.{key}=my_table.csv")
    file = Path(path)
    if not file.is_file():
        raise ConfigError(f"dataset.{key}: {path} is not a file; give a file of {what}")
    return file


def _folder(path: str | None, files: str) -> Path:
    """Return the folder of `dataset.path`, or raise ConfigError naming the files that it must hold."""
    if not path:
        raise ConfigError(f"dataset.path: give the folder that holds {files}")
    folder = Path(path)
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

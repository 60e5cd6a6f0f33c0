"""Find and read files of rows that users have: the ending of a name says which of the known forms a file has."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.data.rows.matrices import read_matrices
from runner.data.rows.tables import read_row_table
from runner.data.rows.texts import Block, TextFormat, read_rows
from runner.data.shared.files import COMPRESSIONS, find_file, progress_bar
from runner.errors import DataError

TABLE, MATRIX = "csv", "npz"
TEXTS = {
    "xmc": TextFormat(layout="xmc"),
    "libsvm": TextFormat(layout="libsvm", feature_start=1),
    "vw": TextFormat(layout="vw", feature_start=1),
}
FORMS = (*TEXTS, MATRIX, TABLE)
_FORM_OF_ENDING = {
    ".txt": "xmc",
    ".svm": "libsvm",
    ".svmlight": "libsvm",
    ".libsvm": "libsvm",
    ".vw": "vw",
    ".npz": MATRIX,
    ".csv": TABLE,
    ".tsv": TABLE,
}
_OWN = tuple(ending for ending in _FORM_OF_ENDING if ending != ".vw")  # endings of a user's own data set
_SPLITS = ("train", "test")


@dataclass(frozen=True, kw_only=True)
class OwnRows:
    """Name the files of a user's data set, resolved: `train` and `test`, for matrices also those of their labels."""

    form: str  # one of FORMS
    files: dict[str, Path]


def form_of(path: Path) -> str:
    """Return the form that the ending of a name stands for, before that of a compression; XC text for any other."""
    suffixes = path.suffixes[:-1] if path.suffix.lower() in COMPRESSIONS else path.suffixes
    return _FORM_OF_ENDING.get(suffixes[-1].lower() if suffixes else "", "xmc")


def read_new_rows(path: Path, form: str, num_features: int, names: Sequence[str] | None = None) -> list[Block]:
    """Read the features of all rows of a file; labels may be missing and are not used.

    `names`: of the features, by which the columns of a table with a header are put in order.
    Raises DataError, naming what is wrong and where, for what is no row, and for other features than `num_features`.
    """
    blocks: list[Block] = []
    if form in TEXTS:
        with progress_bar(path) as progress:
            read_rows(path, TEXTS[form], blocks.append, keep_unlabelled=True, progress=progress)
        start = TEXTS[form].feature_start
        largest = max((int(block.indices.max()) for block in blocks if len(block.indices)), default=-1)
        if largest >= num_features:
            raise DataError(
                f"{path}: feature {largest + start} is beyond the {num_features:,} features that the run was"
                " trained with; prepare these rows as its training rows were"
            )
        return blocks
    if form == TABLE:
        counts = read_row_table(path, blocks.append, labelled=False, order=names)
    else:
        counts = read_matrices(path, None, blocks.append)
    if counts.num_features != num_features:
        raise DataError(
            f"{path}: {counts.num_features:,} columns of features, but the run was trained with {num_features:,};"
            " prepare these rows as its training rows were"
        )
    return blocks


def find_own_rows(folder: Path) -> OwnRows:
    """Find the training and test rows of a folder. Raises DataError unless there are both, in one form.

    If both files of XC text are there, those of other forms are not looked at.
    """
    found = {
        ending: files
        for ending in _OWN
        if (files := {split: path for split in _SPLITS if (path := _find(folder, split, ending)) is not None})
    }
    if not found:
        raise DataError(
            f"{folder}: no rows found; looked for train.txt and test.txt (XC text), train.svm and test.svm (or"
            " .svmlight, .libsvm), train.csv and test.csv (or .tsv), plain or compressed (.xz, .gz, .bz2), and for"
            " train.npz, train_labels.npz, test.npz and test_labels.npz"
        )
    if len(found.get(".txt", {})) == len(_SPLITS):  # folders of XC text could hold any other files before other forms
        found = {".txt": found[".txt"]}
    if len(found) > 1:
        one, other = (next(iter(files.values())).name for files in list(found.values())[:2])
        raise DataError(f"{folder}: holds both {one} and {other}; keep the rows of one form and move the others away")
    ((ending, files),) = found.items()
    also = "" if ending == ".npz" else " (also looked for .xz, .gz, .bz2)"
    for split in _SPLITS:
        if split not in files:
            raise DataError(f"{folder / (split + ending)}: no such file{also}")
        if ending == ".npz" and not (labels := folder / f"{split}_labels.npz").is_file():
            raise DataError(
                f"{labels}: no such file; it holds the labels of the rows of {split}.npz, a column for each"
            )
    if ending == ".npz":
        files |= {f"{split}_labels": folder / f"{split}_labels.npz" for split in _SPLITS}
    return OwnRows(form=_FORM_OF_ENDING[ending], files={name: path.resolve() for name, path in files.items()})


def _find(folder: Path, split: str, ending: str) -> Path | None:
    path = folder / f"{split}{ending}"
    if ending == ".npz":  # is compressed inside
        return path if path.is_file() else None
    return find_file(folder, path.name)

"""Convert files of sparse rows to a prepared folder: one CSR table for each split."""

import dataclasses
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from runner.data.rows.card import LINUX, MATRICES, RowsCard, RowsLayout
from runner.data.rows.dataset import FEATURE_NAMES, LABEL_NAMES, RowsManifest, SplitCounts, XmcDataset, rows_left_out
from runner.data.rows.files import MATRIX, TABLE, TEXTS, OwnRows, find_own_rows
from runner.data.rows.labelled_texts import TextColumns, convert_texts
from runner.data.rows.linux_calls import convert_calls
from runner.data.rows.matrices import read_matrices
from runner.data.rows.tables import LABELS, form_of_rows, read_row_table
from runner.data.rows.texts import Block, FileCounts, TextFormat, read_names, read_rows, read_split_lines
from runner.data.rows.uniform import write_uniform
from runner.data.rows.vectorize import TextOptions
from runner.data.rows.write import RowsWriter
from runner.data.shared.cards import differences, origin_of
from runner.data.shared.files import progress_bar
from runner.data.shared.manifests import Origin, combine
from runner.data.shared.store import READ_ANEW, load_own
from runner.data.shared.tables import same_columns
from runner.errors import DataError

# What the manifest calls the forms of a user's own files.
_VARIANTS = {"xmc": "given-train-test", "libsvm": "given-svmlight", MATRIX: "given-npz", TABLE: "given-csv"}


@dataclass(frozen=True, kw_only=True)
class _Table:
    """Describe a split that has been written: counts, sha256 and dimensions."""

    counts: SplitCounts
    digest: str
    num_features: int
    num_classes: int


def convert(card: RowsCard, layout: RowsLayout, found: Mapping[str, tuple[Path, ...]], folder: Path) -> RowsManifest:
    """Convert a card's published files, in one of its layouts, to a prepared folder.

    Raises DataError for files that are damaged or hold another set than the card describes.
    """
    files = {field: path for field, (path,) in found.items()}
    if layout.format == LINUX:
        return convert_calls(card, layout, files["linux"], folder)
    text = TextFormat(layout=layout.format, feature_start=layout.feature_start, label_start=layout.label_start)
    if layout.format == MATRICES:
        train = _write_matrices(folder, "train", files["train"], files["train_labels"])
        test = _write_matrices(folder, "test", files["test"], files["test_labels"])
    elif layout.data is not None:
        train, test = _write_by_split_files(folder, files, text, layout.split_column)
    else:
        train = _write_split(folder, "train", files["train"], text)
        test = _write_split(folder, "test", files["test"], text)
    expected = card.expected
    if layout.format in ("xmc", MATRICES):
        place = "line 1: " if layout.format == "xmc" else ""
        if layout.data is None:
            _same_dimensions(files["train"], train, files["test"], test, place)
        if train.num_classes != expected.num_classes:
            path = files.get("train", files.get("data"))
            raise DataError(
                f"{path}: {place}{train.num_classes} labels, but {card.name} has {expected.num_classes};"
                " is this another set?"
            )
    else:
        train = _widened(train, test, num_features=expected.num_features, num_classes=expected.num_classes)
    if "label_names" in files:
        names = read_names(files["label_names"], train.num_classes)
        (folder / LABEL_NAMES).write_text("".join(name + "\n" for name in names), encoding="utf-8")
    counts = {
        "num_features": train.num_features,
        "num_classes": train.num_classes,
        "num_train": train.counts.rows_read,
        "num_test": test.counts.rows_read,
    }
    propensities = (card.propensity_a, card.propensity_b)
    return _manifest(origin_of(card, layout, found), train, test, propensities, differences(card, counts))


def load_own_rows(path: Path, name: str) -> XmcDataset:
    """Prepare the training and test rows of a folder, in any of the forms of `files`, once and open the result.

    Raises DataError for missing or wrong files, and for files of several forms.
    """
    rows = find_own_rows(path)
    anew = [READ_ANEW] if rows.form == TABLE else []
    return load_own("xmc", XmcDataset, name, partial(convert_own, rows, name=name), rows.files, *anew, says=path)


def load_own_texts(
    files: dict[str, Path],
    name: str,
    *,
    columns: TextColumns,
    options: TextOptions,
    test_share: float,
    split_seed: int,
) -> XmcDataset:
    """Prepare a user's tables of texts and labels once and open the result. Raises DataError."""
    fill = partial(
        convert_texts, files, name=name, columns=columns, options=options, test_share=test_share, split_seed=split_seed
    )
    return load_own("xmc", XmcDataset, name, fill, files, columns, options, test_share, split_seed)


def convert_own(rows: OwnRows, folder: Path, *, name: str) -> RowsManifest:
    """Convert a user's files to a prepared folder. Raises DataError for damaged files, and if they do not fit together.

    svmlight text and tables do not say how many classes there are: as many as the largest label of both files needs.
    """
    train_path, test_path = rows.files["train"], rows.files["test"]
    if rows.form == MATRIX:
        train = _write_matrices(folder, "train", train_path, rows.files["train_labels"])
        test = _write_matrices(folder, "test", test_path, rows.files["test_labels"])
        _same_dimensions(train_path, train, test_path, test, "")
    elif rows.form == TABLE:
        form = form_of_rows(train_path, labelled=True)
        same_columns(form, form_of_rows(test_path, labelled=True))
        names = [name for name in form.names or () if name != LABELS]
        (folder / FEATURE_NAMES).write_text(json.dumps(names) + "\n", encoding="utf-8")
        train, test = _write_table(folder, "train", train_path), _write_table(folder, "test", test_path)
        train = _widened(train, test)
    else:
        text = TEXTS[rows.form]
        train, test = _write_split(folder, "train", train_path, text), _write_split(folder, "test", test_path, text)
        if text.layout == "xmc":
            _same_dimensions(train_path, train, test_path, test)
        else:
            train = _widened(train, test)
    return _manifest(Origin.own(name, _VARIANTS[rows.form], rows.files), train, test, (0.55, 1.5), [])


def derive(card: RowsCard, base: XmcDataset, folder: Path) -> RowsManifest:
    """Compute a set from another one: Amazon-Uniform (see `runner/data/rows/uniform.py`)."""
    assert card.derived is not None
    train, test, digests, chosen = write_uniform(base, folder, card.derived.num_classes, card.derived.seed)
    if (names := base.label_names()) is not None:
        (folder / LABEL_NAMES).write_text("".join(names[i] + "\n" for i in chosen), encoding="utf-8")
    tables = [
        _Table(counts=counts, digest=digest, num_features=base.num_features, num_classes=card.derived.num_classes)
        for counts, digest in zip((train, test), digests, strict=True)
    ]
    kept = {"num_train": train.rows, "num_test": test.rows}
    notes = [
        f"{key} is {value}, the paper reports {getattr(card.expected, key)}"
        for key, value in kept.items()
        if value != getattr(card.expected, key)
    ]
    variant = f"{base.variant}-seed-{card.derived.seed}"
    origin = Origin(name=card.name, variant=variant, sources={base.name: base.checksum})
    return _manifest(origin, tables[0], tables[1], (card.propensity_a, card.propensity_b), notes)


def _write_split(folder: Path, split: str, path: Path, text: TextFormat) -> _Table:
    with RowsWriter(folder, split) as writer, progress_bar(path) as progress:
        counts = read_rows(path, text, _appending(writer), progress=progress)
        return _table(path, writer, counts)


def _write_matrices(folder: Path, split: str, features: Path, labels: Path) -> _Table:
    with RowsWriter(folder, split) as writer:
        return _table(labels, writer, read_matrices(features, labels, _appending(writer)))


def _write_table(folder: Path, split: str, path: Path) -> _Table:
    with RowsWriter(folder, split) as writer:
        return _table(path, writer, read_row_table(path, _appending(writer), labelled=True))


def _appending(writer: RowsWriter) -> Callable[[Block], None]:
    return lambda block: writer.append(block.row_sizes, block.indices, block.values, block.label_sizes, block.labels)


def _table(path: Path, writer: RowsWriter, counts: FileCounts) -> _Table:
    if writer.rows == 0:
        raise DataError(f"{path}: no row has a label")
    return _Table(
        counts=writer.counts(
            rows_dropped=counts.rows_without_labels, rows_without_features=counts.rows_without_features
        ),
        digest=writer.finish(),
        num_features=counts.num_features,
        num_classes=counts.num_classes,
    )


def _write_by_split_files(folder: Path, files: dict[str, Path], text: TextFormat, column: int) -> tuple[_Table, _Table]:
    """Convert the older layout of small sets: one file with all rows, and two files with the row numbers of the splits.

    All rows are held in memory. The rows of a split keep the order of its split file.
    """
    blocks: list[Block] = []
    counts = read_rows(files["data"], text, blocks.append, keep_unlabelled=True)
    sizes = np.concatenate([b.row_sizes for b in blocks])
    label_sizes = np.concatenate([b.label_sizes for b in blocks])
    indices, values = np.concatenate([b.indices for b in blocks]), np.concatenate([b.values for b in blocks])
    labels = np.concatenate([b.labels for b in blocks])
    chosen = {s: read_split_lines(files[f"{s}_split"], column, len(sizes)) for s in ("train", "test")}
    if len(common := np.intersect1d(chosen["train"], chosen["test"])):
        raise DataError(f"{files['test_split']}: line number {common[0] + 1} is in the training split too")
    tables = []
    for split, rows in chosen.items():
        kept = rows[label_sizes[rows] > 0]
        take, take_labels = _spans(sizes, kept), _spans(label_sizes, kept)
        these = dataclasses.replace(
            counts,
            rows_read=len(rows),
            rows_without_labels=len(rows) - len(kept),
            rows_without_features=int(np.count_nonzero(sizes[kept] == 0)),
        )
        with RowsWriter(folder, split) as writer:
            writer.append(sizes[kept], indices[take], values[take], label_sizes[kept], labels[take_labels])
            tables.append(_table(files[f"{split}_split"], writer, these))
    return tables[0], tables[1]


def _spans(sizes: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return the positions of the entries of `rows`, row after row, in an array with `sizes[r]` entries for row r."""
    starts = np.cumsum(sizes) - sizes
    within = np.arange(sizes[rows].sum()) - np.repeat(np.cumsum(sizes[rows]) - sizes[rows], sizes[rows])
    return np.repeat(starts[rows], sizes[rows]) + within


def _widened(train: _Table, test: _Table, *, num_features: int = 0, num_classes: int = 0) -> _Table:
    """Return the training table with the dimensions of both and at least those given.

    The files have no header, and the largest index that one of them holds is only a lower bound.
    """
    return dataclasses.replace(
        train,
        num_features=max(train.num_features, test.num_features, num_features),
        num_classes=max(train.num_classes, test.num_classes, num_classes),
    )


def _same_dimensions(train_path: Path, train: _Table, test_path: Path, test: _Table, place: str = "line 1: ") -> None:
    if (train.num_features, train.num_classes) != (test.num_features, test.num_classes):
        raise DataError(
            f"{test_path}: {place}{test.num_features} features and {test.num_classes} labels,"
            f" but {train_path} has {train.num_features} and {train.num_classes}"
        )


def _manifest(
    origin: Origin, train: _Table, test: _Table, propensities: tuple[float, float], notes: list[str]
) -> RowsManifest:
    """Return the manifest of two tables; say on stderr which rows were left out."""
    left_out = rows_left_out(
        train=(train.counts.rows_dropped, train.counts.rows_read),
        test=(test.counts.rows_dropped, test.counts.rows_read),
    )
    if left_out is not None:
        print(f"{origin.name}: {left_out}", file=sys.stderr)
    return RowsManifest(
        **vars(origin),
        num_features=train.num_features,
        num_classes=train.num_classes,
        propensity_a=propensities[0],
        propensity_b=propensities[1],
        train=train.counts,
        test=test.counts,
        checksum=combine(train.num_features, train.num_classes, train.digest, test.digest),
        notes=notes,
    )

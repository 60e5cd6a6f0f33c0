"""Convert tables with a column of texts and one of names of labels to rows of extreme classification.

Classes are the labels of all rows, the most frequent ones of the training rows first, and by name where they are
equally frequent; a label of test rows alone is a class that nothing trains. Rows without a label are left out. The
vocabulary is that of the training rows.

Legend: R rows of a table, N classes.
"""

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from runner.data.rows.dataset import LABEL_NAMES, VECTORIZER, RowsManifest, rows_left_out
from runner.data.rows.label_cells import ALONE, names_in, separator_in
from runner.data.rows.vectorize import TextOptions, Vectorizer, fitted
from runner.data.rows.write import RowsWriter
from runner.data.shared.columns import read_columns
from runner.data.shared.manifests import Origin, combine
from runner.data.shared.splits import split_rows
from runner.errors import DataError


@dataclass(frozen=True, kw_only=True)
class TextColumns:
    """Name the columns of texts and of labels, and say what separates labels (None: found out)."""

    text: str
    labels: str
    separator: str | None = None


@dataclass(frozen=True, kw_only=True)
class LabelledTexts:
    """Hold the R texts of a split and the labels of each; `path` is the file that messages name."""

    path: Path
    texts: Sequence[str]
    labels: Sequence[Sequence[str]]  # without repetition in a row; rows without any are left out


@dataclass(frozen=True, kw_only=True)
class _Table:
    path: Path
    places: list[str]  # where each row stands, for messages
    texts: list[str]
    cells: list[Any]  # of labels

    def take(self, rows_R: np.ndarray) -> "_Table":
        places, texts, cells = ([column[row] for row in rows_R] for column in (self.places, self.texts, self.cells))
        return _Table(path=self.path, places=places, texts=texts, cells=cells)


def text_of(path: Path, place: str, column: str, cell: Any) -> str:
    """Return the text in a cell; null is an empty text. Raises DataError for what is no text."""
    if cell is None or (isinstance(cell, float) and cell != cell):
        return ""
    if isinstance(cell, str):
        return cell
    raise DataError(f"{path}: {place}: column {column}: {str(cell)[:40]!r} is no text; name a column of texts")


def read_texts(path: Path, column: str, *, set_by: str) -> Iterator[str]:
    """Yield the texts of a table's column, in the order of the rows. Raises DataError."""
    notes: list[str] = []
    for place, (cell,) in read_columns(path, (column,), set_by=(set_by,), notes=notes):
        yield text_of(path, place, column, cell)
    for note in notes:
        print(note, file=sys.stderr)


def convert_texts(
    files: Mapping[str, Path],
    folder: Path,
    *,
    name: str,
    columns: TextColumns,
    options: TextOptions,
    test_share: float,
    split_seed: int,
) -> RowsManifest:
    """Convert a user's tables: `train`, and `test` unless the rows of `train` are to be split at random.

    All texts are held in memory. Raises DataError, naming file, line and column.
    """
    notes: list[str] = []
    train = _read(files["train"], columns, notes)
    if "test" in files:
        test, variant = _read(files["test"], columns, notes), "given-texts"
    else:
        if len(train.texts) < 2:
            raise DataError(f"{train.path}: 1 row is too few to split; give dataset.test_path or more rows")
        train_R, test_R = split_rows(len(train.texts), test_share, split_seed)
        train, test = train.take(train_R), train.take(test_R)
        variant = f"given-texts-seed-{split_seed}"
    separator = _separator(columns, train, notes)
    labelled = [
        LabelledTexts(path=table.path, texts=table.texts, labels=_names(table, columns, separator))
        for table in (train, test)
    ]
    origin = Origin.own(name, variant, files)
    return convert_labelled(labelled[0], labelled[1], folder, origin, columns=columns, options=options, notes=notes)


def convert_labelled(
    train: LabelledTexts,
    test: LabelledTexts,
    folder: Path,
    origin: Origin,
    *,
    columns: TextColumns,
    options: TextOptions,
    notes: list[str],
) -> RowsManifest:
    """Write the rows of two splits that have labels, their names and the vectorizer; say the notes.

    `columns`: what messages call texts and labels. Raises DataError, naming the file, if nothing can be learnt.
    """
    counts = Counter(label for labels in train.labels for label in labels)
    alone = {label for labels in test.labels for label in labels} - counts.keys()
    if alone:
        notes.append(
            f"{len(alone):,} of {len(counts) + len(alone):,} labels occur in test rows only, such as"
            f" {min(alone)[:40]!r}: no run can learn them"
        )
    classes = sorted({*counts, *alone}, key=lambda label: (-counts[label], label))
    if len(counts) < 2:
        found = f"every label is {classes[0]!r}" if counts else "no row has a label"
        raise DataError(f"{train.path}: column {columns.labels}: {found}; two classes are needed")
    kept = [text for text, labels in zip(train.texts, train.labels, strict=True) if labels]
    try:
        vectorizer = fitted(kept, options, column=columns.text)
    except DataError as error:
        raise DataError(f"{train.path}: {error}") from None
    ids = {label: number for number, label in enumerate(classes)}
    (train_counts, train_digest), (test_counts, test_digest) = (
        _write(folder, split, table, ids, vectorizer) for split, table in (("train", train), ("test", test))
    )
    (folder / LABEL_NAMES).write_text("".join(label + "\n" for label in classes), encoding="utf-8")
    (folder / VECTORIZER).write_text(vectorizer.written(), encoding="utf-8")
    left_out = rows_left_out(
        train=(train_counts.rows_dropped, train_counts.rows_read),
        test=(test_counts.rows_dropped, test_counts.rows_read),
    )
    for note in (*notes, *([left_out] if left_out else [])):
        print(f"{origin.name}: {note}", file=sys.stderr)
    return RowsManifest(
        **vars(origin), num_features=vectorizer.num_features, num_classes=len(classes), propensity_a=0.55,
        propensity_b=1.5, train=train_counts, test=test_counts, notes=notes,
        checksum=combine(vectorizer.num_features, len(classes), train_digest, test_digest),
    )  # fmt: skip


def _read(path: Path, columns: TextColumns, notes: list[str]) -> _Table:
    table = _Table(path=path, places=[], texts=[], cells=[])
    set_by = ("dataset.text=COLUMN", "dataset.labels=COLUMN")
    for place, (text, labels) in read_columns(path, (columns.text, columns.labels), set_by=set_by, notes=notes):
        table.places.append(place)
        table.texts.append(text_of(path, place, columns.text, text))
        table.cells.append(labels)
    return table


def _separator(columns: TextColumns, train: _Table, notes: list[str]) -> str | None:
    """Return what separates labels; say so if it was found out."""
    if columns.separator is not None:
        return None if columns.separator == ALONE else columns.separator
    found = separator_in(train.cells)
    if found is None:
        return None
    separator, example = found
    shown = " ".join(example.split())[:60]
    notes.append(
        f"{separator!r} separates labels, as in {shown!r} (another: dataset.separator=CHARACTER; one label a cell:"
        f" dataset.separator={ALONE})"
    )
    return separator


def _names(table: _Table, columns: TextColumns, separator: str | None) -> list[list[str]]:
    found = []
    for place, cell in zip(table.places, table.cells, strict=True):
        try:
            found.append(names_in(cell, separator))
        except ValueError as error:
            raise DataError(f"{table.path}: {place}: column {columns.labels}: {error}") from None
    return found


def _write(
    folder: Path, split: str, table: LabelledTexts, ids: Mapping[str, int], vectorizer: Vectorizer
) -> tuple[Any, str]:
    """Write the rows that have labels; return their counts and digest. Raises DataError if no row has one."""
    texts = [text for text, labels in zip(table.texts, table.labels, strict=True) if labels]
    labels = [sorted(ids[label] for label in row) for row in table.labels if row]
    if not texts:
        raise DataError(f"{table.path}: no {split} row has a label; give more rows, or dataset.test_path")
    first = without = 0
    with RowsWriter(folder, split) as writer:
        for block in vectorizer.blocks(texts):
            here = labels[first : first + len(block.row_sizes)]
            first += len(here)
            without += int(np.count_nonzero(block.row_sizes == 0))
            writer.append(
                block.row_sizes,
                block.indices,
                block.values,
                np.array([len(row) for row in here], dtype=np.int64),
                np.array([label for row in here for label in row], dtype=np.int32),
            )
        digest = writer.finish()
    return writer.counts(rows_dropped=len(table.labels) - len(texts), rows_without_features=without), digest

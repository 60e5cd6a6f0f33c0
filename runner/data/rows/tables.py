"""Read rows of extreme classification from dense tables: CSV of any usual separator, with the features as columns.

A column called `labels` holds the numbers of each row's labels, from 0, separated by blanks or semicolons. Every other
column is a feature, in the order of the file; cells of 0 are not stored.

Legend: r rows of a piece, F features.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from runner.data.rows.texts import Block, FileCounts
from runner.data.shared.tables import Form, check_first_row, recognise, rows_of_numbers
from runner.errors import DataError

LABELS = "labels"
_CELLS_AT_ONCE = 2**20
_LARGEST_LABEL = 2**31 - 2


@dataclass(frozen=True, kw_only=True)
class _Row:
    """Hold what a line says."""

    line: int  # its number in the file
    values: list[float]  # one for each feature
    labels: list[int]  # ascending


def form_of_rows(path: Path, *, labelled: bool) -> Form:
    """Return how a table of rows is laid out. Raises DataError for svmlight text, and if `labelled` has no labels."""
    form = recognise(path, of_one_column=f"; rows of one feature need a column {LABELS} too, empty in new rows")
    if form.svmlight:
        raise DataError(f"{path}: line {form.first_line}: the file is svmlight text; give its name the ending .svm")
    if labelled and LABELS not in (form.names or ()):
        lacks = "there is no header" if form.names is None else f"no column is called {LABELS}"
        raise DataError(
            f"{path}: line {form.first_line}: {lacks}; the first line names the features and the column {LABELS}, which"
            " holds the numbers of each row's labels"
        )
    return form


def read_row_table(
    path: Path, sink: Callable[[Block], None], *, labelled: bool, order: Sequence[str] | None = None
) -> FileCounts:
    """Pass the rows of a table, plain or compressed, to `sink`, block by block.

    Rows without a label are dropped and counted. If not `labelled`, a column of labels is neither needed nor read, and
    every row is kept. `order`: the features by name; a file with a header is read in this order. Raises DataError, also
    if a header has other names, naming file, line and column, for cells that are not numbers or not finite in
    float32, for labels that are no numbers, for lines with more or fewer columns than the first, and for a first line
    of the numbers of the columns, which may be a header or a row.
    """
    form = form_of_rows(path, labelled=labelled)
    column = form.names.index(LABELS) if form.names is not None and LABELS in form.names else None
    num_features = form.columns - (column is not None)
    places_F = None if order is None else _places(form, order)
    rows_read = rows_kept = featureless = 0
    top_label = -1
    rows = _rows(form, column, labelled=labelled)
    while piece := list(islice(rows, max(1, _CELLS_AT_ONCE // num_features))):
        rows_read += len(piece)
        kept = [row for row in piece if row.labels] if labelled else piece
        if kept:
            block = _block(form, column, kept, places_F)
            sink(block)
            rows_kept += len(kept)
            featureless += int(np.count_nonzero(block.row_sizes == 0))
            top_label = max(top_label, int(block.labels.max(initial=-1)))
    return FileCounts(
        rows_read=rows_read,
        rows_without_labels=rows_read - rows_kept,
        rows_without_features=featureless,
        num_features=num_features,
        num_classes=top_label + 1,
    )


def _places(form: Form, order: Sequence[str]) -> np.ndarray | None:
    """Return where in the file each feature of `order` stands, (F,), or None if they stand so or there is no header.

    Raises DataError if the file has other features.
    """
    if form.names is None:
        return None
    names = [name for name in form.names if name != LABELS]
    where, place = f"{form.path}: line {form.first_line}:", {name: number for number, name in enumerate(names)}
    if lacks := [name for name in order if name not in place]:
        ours, theirs = (", ".join(some[:5]) + (", ..." if len(some) > 5 else "") for some in (names, list(order)))
        raise DataError(
            f"{where} no column is called {lacks[0]!r}, as one is that the run was trained with: the file has {ours},"
            f" the run {theirs}"
        )
    known = set(order)
    if others := [name for name in names if name not in known]:
        raise DataError(f"{where} column {others[0]!r} is none of those that the run was trained with; leave it out")
    return None if names == list(order) else np.array([place[name] for name in order])


def _rows(form: Form, column: int | None, *, labelled: bool) -> Iterator[_Row]:
    """Yield the rows below the header; `column`: the column of labels, if there is one. Raises DataError."""
    check_first_row(form)
    if form.doubt is not None:
        print(form.doubt, file=sys.stderr)
    for number, words, values in rows_of_numbers(form, text=column):
        labels = _labels(form, column, number, words[column]) if labelled and column is not None else []
        yield _Row(line=number, values=values, labels=labels)


def _labels(form: Form, column: int, number: int, cell: str) -> list[int]:
    """Return the labels of a cell, ascending; a label that is repeated counts once."""
    words = cell.replace(";", " ").split()
    for word in words:
        if not (word.isascii() and word.isdigit() and len(word) <= 10 and int(word) <= _LARGEST_LABEL):
            raise DataError(
                f"{form.path}: line {number}: {form.named(column)}: {word[:40]!r} is not the number of a label;"
                " numbers begin at 0 and are separated by blanks or semicolons"
            )
    return sorted(set(map(int, words)))


def _block(form: Form, column: int | None, rows: list[_Row], places_F: np.ndarray | None) -> Block:
    """Return the rows as a block, with the features of `places_F` in this order, or of all columns in theirs.

    Raises DataError, naming line and column, for a value that float32 cannot hold.
    """
    with np.errstate(over="ignore"):
        values_rF = np.array([row.values for row in rows]).astype(np.float32)
    wrong = np.argwhere(~np.isfinite(values_rF))
    if len(wrong):
        row, feature = wrong[0].tolist()
        at = feature + (column is not None and feature >= column)
        raise DataError(
            f"{form.path}: line {rows[row].line}: {form.named(at)}: {rows[row].values[feature]:g} is too large for a"
            " number of 32 bits; give the feature another unit"
        )
    if places_F is not None:
        values_rF = values_rF[:, places_F]
    row_of_value, indices = np.nonzero(values_rF)
    return Block(
        row_sizes=np.bincount(row_of_value, minlength=len(rows)).astype(np.int64),
        indices=indices.astype(np.int32),
        values=values_rF[row_of_value, indices],
        label_sizes=np.array([len(row.labels) for row in rows], dtype=np.int64),
        labels=np.array([label for row in rows for label in row.labels], dtype=np.int32),
    )

"""Read svmlight text, `label index:value index:value ...`, as dense tables.

Legend: R rows, C columns.
"""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from runner.data.shared.files import blocks
from runner.data.shared.tables import DAMAGED, Form, no_number, text_lines
from runner.errors import DataError, brief

_PAIR = re.compile(r"(\d+):(.*)")
_MOST_DIGITS = 4000  # Python reads no integer of many more
MOST_CELLS = 2**31  # 16 GiB; indices may promise far more cells than the file has numbers


def read_svmlight(forms: list[Form]) -> list[np.ndarray]:
    """Return the numbers of files that belong together, each (R, C) float64 with the label in the last column.

    Feature indices begin at 1, unless an index 0 stands in one of the files; the largest index of all files gives the
    number of features. Features that a row does not name are 0. Raises DataError, naming file, line and entry, for
    wrong text, and for a table of more than MOST_CELLS.
    """
    parts = [_read(form) for form in forms]
    indices = [sparse.indices for sparse, _ in parts if sparse.nnz]
    start = min(1, min((int(found.min()) for found in indices), default=1))
    end = max((int(found.max()) for found in indices), default=-1) + 1
    if end <= start:
        raise DataError(f"{forms[0].path}: no row has a feature")
    tables = []
    for form, (sparse, label_R) in zip(forms, parts, strict=True):
        rows, columns = len(label_R), end - start + 1
        if rows * columns > MOST_CELLS:
            raise DataError(
                f"{form.path}: {rows:,} rows with indices up to {end - 1:,} make a dense table of"
                f" {rows * columns / 2**27:,.0f} GiB; leave features out (the limit is {MOST_CELLS >> 27} GiB)"
            )
        values_RC = np.zeros((rows, columns))
        values_RC[np.repeat(np.arange(rows), np.diff(sparse.indptr)), sparse.indices - start] = sparse.data
        values_RC[:, -1] = label_R
        tables.append(values_RC)
    return tables


def _read(form: Form) -> tuple[Any, np.ndarray]:
    """Return a file's features as a CSR matrix with the indices of the file, and its labels (R)."""
    from sklearn.datasets import load_svmlight_file

    try:
        sparse, label_R = load_svmlight_file(_Lines(form), dtype=np.float64, zero_based=True)
    except DAMAGED as error:
        raise _fault(form, error) from None
    if not len(label_R) or not (np.isfinite(sparse.data).all() and np.isfinite(label_R).all()):
        raise _fault(form, None)
    return sparse, label_R


class _Lines:
    """The lines of a file as scikit-learn iterates over those of an open one, whatever ends them."""

    def __init__(self, form: Form) -> None:
        self._path = form.path

    def read(self) -> bytes:  # by it scikit-learn knows open files
        raise NotImplementedError

    def __iter__(self) -> Iterator[bytes]:
        number = 0
        for data, _ in blocks(self._path, lambda: number):  # noqa: B023  it must see the current value
            lines = data.split(b"\n")[:-1]
            yield from lines
            number += len(lines)


def _fault(form: Form, reason: Exception | None) -> DataError:
    """Return the error of the first wrong label or pair; `reason`: what the parser said, shown if there is none."""
    rows = 0
    for number, line in text_lines(form.path):
        words = line.split("#", 1)[0].split()
        if not words:
            continue
        rows += 1
        where = f"{form.path}: line {number}:"
        if (problem := no_number(words[0])) is not None:
            return DataError(f"{where} label {problem}")
        before = -1
        for entry, word in enumerate(words[1:], start=2):
            pair = _PAIR.fullmatch(word)
            if pair is None:
                return DataError(f"{where} entry {entry}: {word[:40]!r} is not a pair index:value")
            if (problem := no_number(pair[2])) is not None:
                return DataError(f"{where} entry {entry} (index {pair[1]}): {problem}")
            if len(pair[1]) > _MOST_DIGITS:
                return DataError(f"{where} entry {entry}: index {pair[1][:40]}... is too large")
            if int(pair[1]) <= before:
                return DataError(f"{where} entry {entry}: index {pair[1]} after {before}; indices must ascend in a row")
            before = int(pair[1])
    if rows == 0:
        return DataError(f"{form.path}: the file has no rows")
    return DataError(f"{form.path}: cannot be read as svmlight text ({brief(reason) if reason else reason})")

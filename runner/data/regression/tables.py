"""Read tables of numbers: CSV with any usual separator, with or without a header, and svmlight text.

Tables are first read by the fast parsers of pandas and scikit-learn. Only if these fail, or find anything but finite
numbers, is the file read again line by line, to name the line and column.

Legend: R rows, C columns.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from runner.data.regression.svmlight import read_svmlight
from runner.data.shared.files import decompress
from runner.data.shared.tables import BLANKS, DAMAGED, Form, check_first_row, recognise, rows_of_numbers, same_columns
from runner.errors import DataError, brief


@dataclass(frozen=True, kw_only=True)
class Table:
    """Hold the numbers of a file. The label of svmlight text is the last column."""

    form: Form
    values_RC: np.ndarray  # float64, all finite

    @property
    def names(self) -> tuple[str, ...] | None:
        """Return the names of the columns, or None if the file has no header."""
        return self.form.names


def read_tables(paths: list[Path]) -> list[Table]:
    """Read files that belong together, plain or compressed (.gz, .xz, .bz2): they must have the same columns.

    Raises DataError, naming file, line and column, for everything that is not a table of finite numbers in UTF-8, and
    for a first line of the numbers of the columns, which may be a header or a row.
    """
    forms = [recognise(path) for path in paths]
    for form in forms[1:]:
        same_columns(forms[0], form)
    if forms[0].svmlight:
        return [Table(form=form, values_RC=v) for form, v in zip(forms, read_svmlight(forms), strict=True)]
    tables = [Table(form=form, values_RC=_read_csv(form)) for form in forms]
    for form in forms:
        check_first_row(form)
    return tables


def _read_csv(form: Form) -> np.ndarray:
    """Return the numbers below the header, (R, C) float64, all finite."""
    reason = None
    try:
        values_RC = _parse(form)
        if values_RC.shape[1] == form.columns and np.isfinite(values_RC).all():
            return values_RC
    except DAMAGED as error:
        reason = brief(error)
    for _ in rows_of_numbers(form):  # raises the error of the first line with a fault
        pass
    raise DataError(f"{form.path}: cannot be read as a table ({reason})")


def _parse(form: Form) -> np.ndarray:
    import pandas as pd

    options: dict[str, Any] = {}
    if tuple(map(int, pd.__version__.split(".")[:2])) < (3, 1):  # later versions always parse exactly
        options["float_precision"] = "round_trip"
    with form.path.open("rb") as file:
        return pd.read_csv(
            decompress(form.path, file),
            sep=r"\s+" if form.separator == BLANKS else form.separator,
            header=None,
            skiprows=0 if form.names is None else form.first_line,
            dtype=np.float64,
            low_memory=False,
            encoding="utf-8",
            **options,
        ).to_numpy()

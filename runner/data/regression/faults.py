"""Find the line and column of what the fast parsers of tables refused, for one-line errors."""

import csv
import math
import re

from runner.data.shared.tables import Form, cells, no_number, problem_of_cells, text_lines
from runner.errors import DataError

_PAIR = re.compile(r"(\d+):(.*)")


def csv_fault(form: Form, reason: Exception | None) -> DataError:
    """Return the error of the first cell or line that is not as it should be.

    `reason`: what the fast parser said, shown only if no fault is found line by line.
    """
    rows = 0
    for number, line in text_lines(form.path):
        if number == form.first_line and form.names is not None:
            continue
        rows += 1
        try:
            words = cells(line, form.separator)
        except csv.Error as error:
            return DataError(f"{form.path}: line {number}: cannot be read as CSV ({error})")
        if _looks_right(form, words, line):
            continue
        if (problem := problem_of_cells(form, words)) is not None:
            return DataError(f"{form.path}: line {number}: {problem}")
    if rows == 0:
        return DataError(f"{form.path}: line {form.first_line} is a header, but no rows follow")
    return DataError(f"{form.path}: cannot be read as a table ({' '.join(str(reason).split())})")


def svmlight_fault(form: Form, reason: Exception | None) -> DataError:
    """Return the error of the first wrong label or pair of svmlight text; `reason` as in `csv_fault`."""
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
            if int(pair[1]) <= before:
                return DataError(f"{where} entry {entry}: index {pair[1]} after {before}; indices must ascend in a row")
            before = int(pair[1])
    if rows == 0:
        return DataError(f"{form.path}: the file has no rows")
    return DataError(f"{form.path}: cannot be read as svmlight text ({' '.join(str(reason).split())})")


def _looks_right(form: Form, words: list[str], line: str) -> bool:
    """Return True only if a line has nothing wrong; this is a quick test, because nearly all lines are right."""
    try:
        return len(words) == form.columns and "_" not in line and math.isfinite(sum(map(float, words)))
    except ValueError:
        return False

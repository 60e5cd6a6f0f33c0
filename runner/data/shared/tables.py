"""Recognise how a file of numbers is laid out from its first lines: separator, header, or svmlight text."""

import csv
import lzma
import math
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from runner.data.shared.files import blocks
from runner.errors import DataError

SEPARATORS = ("\t", ";", ",")  # a file in which two of them fit equally well is split at the first
BLANKS = " "  # stands for any number of spaces and tabs
_AROUND = r"[^\S\x1c-\x1f]*"  # float() takes all blanks but these, which str.strip() takes
NUMBER = re.compile(rf"{_AROUND}[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?{_AROUND}")
DECIMAL_COMMA = re.compile(r"\s*[+-]?\d*,\d+\s*")
NO_NUMBER = {"", "nan", "na", "n/a", "null", "none", "?", "inf", "+inf", "-inf", "infinity", "-infinity"}  # lower case
_HEAD_LINES = 64  # separator and svmlight are recognised from so many lines
# What a parser raises on a damaged file; pandas' own errors are ValueErrors.
DAMAGED = (ValueError, OverflowError, EOFError, OSError, lzma.LZMAError, zlib.error)


@dataclass(frozen=True, kw_only=True)
class Form:
    """Say how a file of numbers is laid out."""

    path: Path
    svmlight: bool
    separator: str  # one of SEPARATORS, or BLANKS
    columns: int  # of the first line; 0 for svmlight
    names: tuple[str, ...] | None  # the header's, None without one
    first_line: int  # 1-based number of the first line that is not blank


def recognise(path: Path, *, of_one_column: str = "") -> Form:
    """Find out separator and header from the first lines. Raises DataError if there is no table with two columns.

    `of_one_column`: what the message says besides if there is only one.
    """
    head = list(islice(text_lines(path), _HEAD_LINES))
    if not head:
        raise DataError(f"{path}: the file is empty")
    number, first = head[0]
    if any(_is_svmlight(line) for _, line in head):
        return Form(path=path, svmlight=True, separator=BLANKS, columns=0, names=None, first_line=number)
    separator = _separator([line for _, line in head])
    words = cells(first, separator)
    if len(words) < 2:
        raise DataError(
            f"{path}: line {number}: only one column; a table has two or more, separated by comma, semicolon, tab or"
            f" blanks{of_one_column}"
        )
    names = _header(path, number, words)
    return Form(path=path, svmlight=False, separator=separator, columns=len(words), names=names, first_line=number)


def text_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the 1-based number and the text of every line that is not blank.

    Raises DataError for damaged compression and for a line that is not UTF-8.
    """
    number = 0
    for data, _ in blocks(path, lambda: number):  # noqa: B023  it must see the current value
        for line in data.splitlines():
            number += 1
            text = decoded(path, number, line)
            if text.strip():
                yield number, text


def decoded(path: Path, number: int, line: bytes) -> str:
    """Return the text of a line. Raises DataError, naming its number, if it is not UTF-8."""
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: line {number}: byte {error.start + 1} is not UTF-8; save the file as UTF-8") from None


def cells(line: str, separator: str) -> list[str]:
    """Split a line at its separator; quotes around a cell are removed."""
    return line.split() if separator == BLANKS else next(csv.reader([line], delimiter=separator))


def named(form: Form, column: int) -> str:
    """Return what messages call a column: its 1-based number, and its name if there is a header."""
    known = form.names is not None and column < len(form.names)
    return f"column {column + 1} ({form.names[column]})" if known and form.names else f"column {column + 1}"


def _is_svmlight(line: str) -> bool:
    """Return whether a line is `label index:value ...` with at least one pair."""
    label, *pairs = line.split("#", 1)[0].split() or [""]
    parts = [pair.partition(":") for pair in pairs]
    return bool(NUMBER.fullmatch(label) and parts) and all(i.isdigit() and NUMBER.fullmatch(v) for i, _, v in parts)


def _separator(lines: list[str]) -> str:
    """Return the separator that gives the most lines the same number of columns, above one."""

    def fitting(separator: str) -> int:
        try:
            columns, count = Counter(len(cells(line, separator)) for line in lines).most_common(1)[0]
        except csv.Error:
            return 0
        return count if columns > 1 else 0

    best = max(SEPARATORS, key=fitting)
    return best if fitting(best) else BLANKS


def _header(path: Path, number: int, words: list[str]) -> tuple[str, ...] | None:
    """Return the names if the first line is a header: it has text and no number.

    Raises DataError for a line with both, for an unnamed column (often the row numbers that a tool has added, which
    must not become a feature), and for a name that stands twice.
    """
    names = [word.strip() for word in words]
    numbers = [bool(NUMBER.fullmatch(name) or DECIMAL_COMMA.fullmatch(name)) for name in names]
    text = [name for name, is_number in zip(names, numbers, strict=True) if not is_number]
    if all(name.lower() in NO_NUMBER for name in text):
        return None
    if any(numbers):
        column = next(i for i, n in enumerate(names) if not numbers[i] and n.lower() not in NO_NUMBER)
        raise DataError(
            f"{path}: line {number}: column {column + 1}: {names[column][:40]!r} beside numbers is neither a header nor"
            " a row; give every column a name that is no number, or correct the number"
        )
    for column, name in enumerate(names):
        if not name:
            raise DataError(
                f"{path}: line {number}: column {column + 1} has no name; name it, or remove it if it only counts rows"
            )
        if name in names[:column]:
            raise DataError(
                f"{path}: line {number}: columns {names.index(name) + 1} and {column + 1} are both called {name!r}"
            )
    return tuple(names)


def same_columns(one: Form, other: Form) -> None:
    """Raise DataError unless both files have the same columns in the same order."""
    where = f"{other.path}: line {other.first_line}:"
    if one.svmlight != other.svmlight:
        kinds = [("svmlight text" if form.svmlight else "a table with separators") for form in (other, one)]
        raise DataError(f"{where} the file is {kinds[0]}, but {one.path} is {kinds[1]}")
    if (one.names is None) != (other.names is None):
        has, lacks = (one, other) if other.names is None else (other, one)
        raise DataError(f"{where} {lacks.path} has no header, but {has.path} has one; give both a header or neither")
    if one.columns != other.columns:
        raise DataError(f"{where} {other.columns} columns, but {one.path} has {one.columns}")
    for column, (name, wanted) in enumerate(zip(other.names or (), one.names or (), strict=True)):
        if name != wanted:
            raise DataError(f"{where} column {column + 1} is called {name!r}, but {wanted!r} in {one.path}")


def problem_of_cells(form: Form, words: list[str], *, text: int | None = None) -> str | None:
    """Return what is wrong with the cells of a line, or None. The column `text`, if there is one, may hold anything."""
    wanted = f"{len(words)} columns, but line {form.first_line} has {form.columns}"
    if len(words) < form.columns:
        return f"{named(form, len(words))} is missing: {wanted}"
    if len(words) > form.columns:
        return f"{named(form, form.columns)} is one too many: {wanted}"
    for column, word in enumerate(words):
        if column != text and (problem := no_number(word)) is not None:
            return f"{named(form, column)}: {problem}"
    return None


def no_number(word: str) -> str | None:
    """Return why a cell is not a finite number, or None if it is one."""
    if NUMBER.fullmatch(word):
        return None if math.isfinite(float(word)) else f"{word.strip()[:40]!r} is too large for a number of 64 bits"
    if not word.strip():
        return "the cell is empty; fill it in or leave the row out"
    shown = repr(word.strip(" ")[:40])
    if word.strip().lower() in NO_NUMBER:
        return f"{shown} is not a finite number; fill it in or leave the row out"
    if DECIMAL_COMMA.fullmatch(word):
        return f"{shown} is not a number; write a decimal point instead of the comma"
    return f"{shown} is not a number; columns of text and categories are not supported, encode them as numbers first"

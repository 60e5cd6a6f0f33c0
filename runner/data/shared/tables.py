"""Read the tables that people have, CSV and TSV: how a file is laid out, its rows, and what is wrong in which line.

There are two kinds. Tables of numbers may lack a header, and each line is a row. Tables of text are read as streams: a
cell in quotes may go on over several lines, and a row has the number of its first line.
"""

import csv
import io
import lzma
import math
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

from runner.data.shared.files import blocks, decoded_block
from runner.errors import DataError

SEPARATORS = ("\t", ";", ",")  # a file in which two of them fit equally well is split at the first
BLANKS = " "  # stands for any number of spaces and tabs
_AROUND = r"[^\S\x1c-\x1f]*"  # float() takes all blanks but these, which str.strip() takes
NUMBER = re.compile(rf"{_AROUND}[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?{_AROUND}")
DECIMAL_COMMA = re.compile(r"\s*[+-]?\d*,\d+\s*")
NO_NUMBER = {"", "nan", "na", "n/a", "null", "none", "?", "inf", "+inf", "-inf", "infinity", "-infinity"}  # lower case
_SHOWN_COLUMNS = 20  # of a header in messages
_HEAD_LINES = 64  # separator and svmlight are recognised from so many lines
# What a parser raises on a damaged file; pandas' own errors are ValueErrors.
DAMAGED = (ValueError, OverflowError, EOFError, OSError, lzma.LZMAError, zlib.error)


@dataclass(frozen=True, kw_only=True)
class Form:
    """Say how a table is laid out.

    ``quoting``: QUOTE_MINIMAL or QUOTE_NONE of the module csv, or None to split lines at every separator.
    """

    path: Path
    separator: str  # one of SEPARATORS, any other string, or BLANKS
    first_line: int  # 1-based number of the first line that is not blank
    names: tuple[str, ...] | None = None  # the header's, None without one
    columns: int = 0  # of the first line; 0 for svmlight
    svmlight: bool = False
    quoting: int | None = csv.QUOTE_MINIMAL

    def named(self, column: int, otherwise: str = "") -> str:
        """Return what messages call a column: its 1-based number, and its name if there is a header."""
        name = self.names[column] if self.names is not None and column < len(self.names) else otherwise
        return f"column {column + 1} ({name})" if name else f"column {column + 1}"


# ---- tables of numbers ----


def recognise(path: Path, *, of_one_column: str = "") -> Form:
    """Find out separator and header from the first lines. Raises DataError if there is no table with two columns.

    `of_one_column`: what the message says besides if there is only one.
    """
    head = list(islice(text_lines(path), _HEAD_LINES))
    if not head:
        raise DataError(f"{path}: the file is empty")
    number, first = head[0]
    if any(_is_svmlight(line) for _, line in head):
        return Form(path=path, svmlight=True, separator=BLANKS, first_line=number)
    separator = _separator([line for _, line in head])
    words = cells(first, separator)
    if len(words) < 2:
        raise DataError(
            f"{path}: line {number}: only one column; a table has two or more, separated by comma, semicolon, tab or"
            f" blanks{of_one_column}"
        )
    names = _header(path, number, words)
    return Form(path=path, separator=separator, columns=len(words), names=names, first_line=number)


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


def rows_of_numbers(form: Form, *, text: int | None = None) -> Iterator[tuple[int, list[str], list[float]]]:
    """Yield the rows below the header: number of the line, cells, and the numbers of all cells but that of ``text``.

    ``text``: a column that may hold anything. Raises DataError, naming line and column, for a cell that is no finite
    number, for a line with more or fewer cells than the first, and for a header without rows.
    """
    number = form.first_line
    for number, line in text_lines(form.path):
        if number == form.first_line and form.names is not None:
            continue
        try:
            words = cells(line, form.separator)
        except csv.Error as error:
            raise DataError(f"{form.path}: line {number}: cannot be read as CSV ({error})") from None
        try:
            values = list(map(float, words if text is None else words[:text] + words[text + 1 :]))
            is_right = len(words) == form.columns and "_" not in line and math.isfinite(sum(values))
        except ValueError:
            is_right = False
        if not is_right and (problem := _problem_of_cells(form, words, text)) is not None:
            raise DataError(f"{form.path}: line {number}: {problem}")
        yield number, words, values
    if number == form.first_line and form.names is not None:
        raise DataError(f"{form.path}: line {number} is a header, but no rows follow")


def _problem_of_cells(form: Form, words: list[str], text: int | None) -> str | None:
    """Return what is wrong with the cells of a line, or None. The column `text`, if there is one, may hold anything."""
    wanted = f"{len(words)} columns, but line {form.first_line} has {form.columns}"
    if len(words) < form.columns:
        return f"{form.named(len(words))} is missing: {wanted}"
    if len(words) > form.columns:
        return f"{form.named(form.columns)} is one too many: {wanted}"
    for column, word in enumerate(words):
        if column != text and (problem := no_number(word)) is not None:
            return f"{form.named(column)}: {problem}"
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


# ---- tables of text ----


def lines_of(path: Path, progress: Callable[[int], None] | None = None, *, one_by_one: bool = False) -> Iterator[str]:
    """Return the lines of a file with their ends; a line ends in LF. `progress` gets the bytes read from disk so far.

    Raises DataError, naming the line, for bytes that are not UTF-8 and for a zero byte: before any line of a block is
    returned, or, with `one_by_one`, at the line that has it, whose column is named too.
    """

    def texts() -> Iterator[Iterator[str]]:
        number = 0
        for block, consumed in blocks(path, lambda: number):  # noqa: B023  it must see the current value
            if progress is not None:
                progress(consumed)
            for data in io.BytesIO(block) if one_by_one else (block,):
                text = decoded_block(path, data, number, tell_column=one_by_one)
                if "\0" in text:
                    line = number + text.count("\n", 0, text.index("\0")) + 1
                    raise DataError(f"{path}: line {line}: holds a zero byte; this is not a text file")
                yield io.StringIO(text, newline="\n")  # splits only at LF, as the line numbers of editors do
                number += data.count(b"\n")

    return chain.from_iterable(texts())


def first_line(path: Path, lines: Iterator[str]) -> tuple[int, str]:
    """Return the number and the text of the first line that is not blank. Raises DataError if there is none."""
    for number, line in enumerate(lines, start=1):
        if line.strip():
            return number, line
    raise DataError(f"{path}: the file is empty")


def place_of(path: Path, line: int, names: Sequence[str], wanted: str, way_out: str = "") -> int:
    """Return the position of a column in a header. Raises DataError if it is missing or there twice."""
    if names.count(wanted) != 1:
        what = "no column" if wanted not in names else f"{names.count(wanted)} columns"
        shown = ", ".join(" ".join(name.split())[:40] for name in names[:_SHOWN_COLUMNS])
        raise DataError(f"{path}: line {line}: {what} named {wanted!r}; the header has {shown}{way_out}")
    return names.index(wanted)


def rows_of_text(form: Form, lines: Iterator[str]) -> Iterator[list[str]]:
    """Yield the cells of each row, blank rows included. Raises csv.Error for unbalanced quotes."""
    if form.quoting is None:
        return (line.rstrip("\r\n").split(form.separator) for line in lines)
    quoting: Any = form.quoting
    return csv.reader(lines, delimiter=form.separator, quoting=quoting, strict=True)


def numbered_rows(
    form: Form, lines: Iterator[str], *, before: int, unbalanced: str = "cannot be read as a table ({})"
) -> Iterator[tuple[int, list[str]]]:
    """Yield each row that is not blank with the number of its first line; `before`: how many lines come before `lines`.

    Raises DataError with the words `unbalanced` for unbalanced quotes.
    """
    rows, line = rows_of_text(form, lines), before + 1
    while True:
        try:
            row = next(rows, None)
        except csv.Error as error:
            raise DataError(f"{form.path}: line {line}: {unbalanced.format(error)}") from None
        if row is None:
            return
        if not is_blank(row):
            yield line, row
        line = before + rows.line_num + 1 if hasattr(rows, "line_num") else line + 1


def is_blank(row: list[str]) -> bool:
    """Return whether a row is that of a blank line."""
    return len(row) < 2 and not "".join(row).strip()

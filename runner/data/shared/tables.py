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
from dataclasses import dataclass, replace
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
# Numbers whose digits are in groups of three, with a comma, a point, or a blank or apostrophe between them.
_BY_COMMAS = re.compile(r"\s*[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d*)?\s*")
_BY_POINTS = re.compile(r"\s*[+-]?[1-9]\d{0,2}(\.\d{3})+(,\d+)?\s*")
_BY_BLANKS = re.compile(r"\s*[+-]?[1-9]\d{0,2}([ \u00a0\u202f'\u2019]\d{3})+([.,]\d*)?\s*")
_WITH_A_SIGN = re.compile(r"\s*[$€£¥]?\s*[+-]?\d[\d.,]*\s*[%$€£¥]?\s*")
_INTEGER = re.compile(r"\s*[+-]?\d+\s*")
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
    first_row: tuple[str, ...] = ()  # the cells of the first line if it is a row of numbers
    doubt: str | None = None  # why that may be a header
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
    for line, text in head:
        if (unread := _unread_svmlight(text)) is not None:
            raise DataError(f"{path}: line {line}: this is svmlight text with {unread}")
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
    form = Form(path=path, separator=separator, columns=len(words), names=names, first_line=number)
    if names is not None:
        return form
    others = [cells(line, separator) for _, line in head[1:]]
    is_alone = others and all(any(map(_has_decimals, row)) for row in others)
    doubt = (
        f"{path}: line {number}: all its numbers are whole, unlike those of the lines below; it is read as a row. If it"
        " is a header, give the columns names that are no numbers"
    )
    return replace(
        form, first_row=tuple(words), doubt=doubt if is_alone and all(map(_INTEGER.fullmatch, words)) else None
    )


def check_first_row(form: Form) -> None:
    """Raise DataError if the first row consists of the numbers of the columns, and may be a header."""
    words = [word.strip() for word in form.first_row]
    if _number_columns(words):
        raise DataError(
            f"{form.path}: line {form.first_line}: {words[0]} to {words[-1]} in order may be a header or a row (pandas"
            " writes such a header for columns without names); begin the file with a line of names that are no numbers,"
            " or remove this header (in pandas, header=False)"
        )


def _has_decimals(word: str) -> bool:
    return NUMBER.fullmatch(word) is not None and _INTEGER.fullmatch(word) is None


def _number_columns(words: list[str]) -> bool:
    """Return whether cells are 0, 1, 2 and so on, or 1, 2, 3 and so on."""
    return bool(words) and any(words == [str(start + column) for column in range(len(words))] for start in (0, 1))


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


def _unread_svmlight(line: str) -> str | None:
    """Return what a line of svmlight text has that is not read, and the way out; None for any other line."""
    label, *pairs = line.split("#", 1)[0].split() or [""]
    several = re.fullmatch(r"\d+(,\d+)+", label, re.ASCII) is not None
    if not (several or NUMBER.fullmatch(label)) or not all(re.match(r"(\d+|qid):", pair) for pair in pairs):
        return None
    if any(pair.startswith("qid:") for pair in pairs):
        return f"a qid, which is not read: rows of a query are not kept together; leave {pairs[0][:40]} out"
    if several and pairs:
        return f"several labels, {label[:40]}, but a table of numbers has one response; dataset=xmc reads such files"
    return None


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
    if len(names) > 2 and not names[0] and _number_columns(names[1:]):
        raise DataError(
            f"{path}: line {number}: column 1 has no name, and {names[1]} to {names[-1]} in order name the others; give"
            " the columns names that are no numbers, and leave out the first if it counts rows (in pandas, index=False)"
        )
    forms = (NUMBER, DECIMAL_COMMA, _BY_COMMAS, _BY_POINTS)
    numbers = [any(form.fullmatch(name) for form in forms) for name in names]
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
        if column != text and (problem := no_number(word, form.separator)) is not None:
            return f"{form.named(column)}: {problem}"
    return None


def no_number(word: str, separator: str = BLANKS) -> str | None:
    """Return why a cell is not a finite number, or None if it is one; ``separator``: of the columns."""
    if NUMBER.fullmatch(word):
        return None if math.isfinite(float(word)) else f"{word.strip()[:40]!r} is too large for a number of 64 bits"
    if not word.strip():
        return "the cell is empty; fill it in or leave the row out"
    shown = repr(word.strip(" ")[:40])
    if word.strip().lower() in NO_NUMBER:
        return f"{shown} is not a finite number; fill it in or leave the row out"
    way_out = other_spelling(word, separator)
    return f"{shown} is not a number; {way_out or _CATEGORIES}"


_CATEGORIES = "columns of text and categories are not supported, encode them as numbers first"


def other_spelling(word: str, separator: str) -> str | None:
    """Return how a number must be spelt that people write so; None for what is no number in any spelling."""
    if _BY_COMMAS.fullmatch(word):
        if word.count(",") > 1 or "." in word:
            return "its commas separate thousands: leave them out"
        if separator == ",":  # in which a decimal comma would be unusual
            return "its comma separates thousands: leave it out"
        return "leave its comma out if it separates thousands, or write a decimal point instead"
    if DECIMAL_COMMA.fullmatch(word):
        return "write a decimal point instead of the comma"
    if _BY_POINTS.fullmatch(word):
        comma = ", and write a decimal point instead of the comma" if "," in word else ""
        return f"its points separate thousands: leave them out{comma}"
    if _BY_BLANKS.fullmatch(word):
        return "digits must not be in groups: leave out what separates thousands"
    if _WITH_A_SIGN.fullmatch(word):
        return "write the number alone, without a unit and without marks between thousands"
    return None


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


def separator_of_header(line: str, wanted: set[str], separators: Sequence[str] = SEPARATORS) -> str:
    """Return the separator that finds the most of the wanted columns in a header, and then the most columns."""

    def fitting(separator: str) -> tuple[int, int]:
        names = [cell.strip() for cell in cells_of_line(line, separator, quoted=True)]
        return len(set(names) & wanted), len(names)

    return max(separators, key=fitting)


def cells_of_line(line: str, separator: str, *, quoted: bool) -> list[str]:
    """Split a single line; a line with unbalanced quotes is one cell."""
    if not quoted:
        return line.rstrip("\r\n").split(separator)
    try:
        return next(csv.reader([line], delimiter=separator, strict=True))
    except csv.Error:
        return [line]


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
    form: Form,
    lines: Iterator[str],
    *,
    before: int,
    unbalanced: str = "cannot be read as a table ({})",
    long_cells: "LongCells | None" = None,
) -> Iterator[tuple[int, list[str]]]:
    """Yield each row that is not blank with the number of its first line; `before`: how many lines come before `lines`.

    `long_cells` counts cells of several lines. Raises DataError with the words `unbalanced` for unbalanced quotes.
    """
    rows, line = rows_of_text(form, lines), before + 1
    while True:
        try:
            row = next(rows, None)
        except csv.Error as error:
            raise DataError(f"{form.path}: line {line}: {unbalanced.format(error)}") from None
        if row is None:
            return
        if long_cells is not None:
            long_cells.look_at(rows, [row], before)
        if not is_blank(row):
            yield line, row
        line = before + rows.line_num + 1 if hasattr(rows, "line_num") else line + 1


class LongCells:
    """Count the cells in quotes that go on over several lines; a single quotation mark may be the reason of one."""

    def __init__(self) -> None:
        self._count = self._most = self._line_of_most = self._lines = 0

    def look_at(self, rows: Any, piece: list[list[str]], before: int) -> None:
        """Look at rows that a reader of the module csv has just returned; `before`: lines before the first of all."""
        seen, self._lines = self._lines, getattr(rows, "line_num", 0)
        if self._lines - seen <= len(piece):
            return
        line = before + seen + 1
        for row in piece:
            ends = sum(cell.count("\n") for cell in row)
            if ends:
                self._count += sum("\n" in cell for cell in row)
                if ends >= self._most:
                    self._most, self._line_of_most = ends + 1, line
            line += 1 + ends

    def notes(self) -> tuple[str, ...]:
        """Return what a user should know of them."""
        if not self._count:
            return ()
        what = "1 cell in quotes goes" if self._count == 1 else f"{self._count:,} cells in quotes go, the longest one,"
        return (
            f"{what} on over {self._most:,} lines, from line {self._line_of_most:,}; if a quotation mark there is plain"
            " text, rows are lost: write it twice within quotes, or save the table as TSV",
        )


def is_blank(row: list[str]) -> bool:
    """Return whether a row is that of a blank line."""
    return len(row) < 2 and not "".join(row).strip()

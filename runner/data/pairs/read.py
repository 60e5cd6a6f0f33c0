"""Read sentence pairs from tables with a header: TSV without quoting, or CSV with the usual quoting.

A file whose first line has a tab is TSV. There a double quote is a character like any other: the published files hold
sentences with a single quotation mark, which a reader of quotes would take for the beginning of a longer cell. Other
files are CSV: commas separate, and a cell in double quotes may hold commas, line ends and doubled quotes.

Blank lines are skipped. White space within a sentence is written as single spaces, so that a sentence is one line.
"""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from runner.data.shared.files import blocks
from runner.errors import DataError

_SHOWN_COLUMNS = 20  # of a header in messages


@dataclass(frozen=True, kw_only=True)
class PairColumns:
    """Name the columns of a file: both sentences, the label, and columns that the caller needs besides."""

    first: str
    second: str
    label: str
    others: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PairTable:
    """Hold the pairs of a file in its order; ``lines`` are the numbers of their lines, from 1."""

    path: Path
    first: list[str]
    second: list[str]
    labels: list[str]
    others: list[tuple[str, ...]]
    lines: list[int]

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, kw_only=True)
class _Row:
    """Hold the cells of a line; a cell in quotes may go on over the lines after it."""

    line: int
    cells: list[str]


def read_pairs(path: Path, columns: PairColumns) -> PairTable:
    """Read a plain or compressed file in UTF-8, with or without a byte-order mark.

    Raises DataError, naming file, line and column, for a missing column, a line with more or fewer cells than the
    header, an empty cell, unbalanced quotes, invalid bytes, or a file without pairs.
    """
    rows = _rows(path)
    header = next(rows, None)
    if header is None:
        raise DataError(f"{path}: the file is empty")
    place = _places(path, header, columns)
    table = PairTable(path=path, first=[], second=[], labels=[], others=[], lines=[])
    for row in rows:
        if len(row.cells) != len(header.cells):
            raise DataError(
                f"{path}: line {row.line}: {len(row.cells)} columns, but the header has {len(header.cells)}"
                + (" (TSV has no quoting: tabs always separate)" if len(row.cells) > len(header.cells) else "")
            )
        found = {name: " ".join(row.cells[number].split()) for name, number in place.items()}
        for name, text in found.items():
            if not text:
                raise DataError(f"{path}: line {row.line}: column {place[name] + 1} ({name}) is empty")
        table.first.append(found[columns.first])
        table.second.append(found[columns.second])
        table.labels.append(found[columns.label])
        table.others.append(tuple(found[name] for name in columns.others))
        table.lines.append(row.line)
    if not len(table):
        raise DataError(f"{path}: line {header.line}: only a header, no pairs")
    return table


def read_ids(path: Path, width: int) -> dict[tuple[str, ...], int]:
    """Return the line number of each row of a headerless TSV file of ids, which has ``width`` columns.

    Raises DataError for a row of another width or one that stands twice.
    """
    found: dict[tuple[str, ...], int] = {}
    for line, text in _lines(path):
        if not text.strip():
            continue
        ids = tuple(text.split("\t"))
        if len(ids) != width or not all(ids):
            raise DataError(f"{path}: line {line}: expected {width} tab-separated ids, found {text[:60]!r}")
        if ids in found:
            raise DataError(f"{path}: line {line}: the ids of line {found[ids]} again")
        found[ids] = line
    if not found:
        raise DataError(f"{path}: the file is empty")
    return found


def _places(path: Path, header: _Row, columns: PairColumns) -> dict[str, int]:
    """Return the position of each wanted column, by its name."""
    names = [cell.strip() for cell in header.cells]
    wanted = (columns.first, columns.second, columns.label, *columns.others)
    for name in wanted:
        if names.count(name) != 1:
            what = "no column" if name not in names else f"{names.count(name)} columns"
            shown = ", ".join(names[:_SHOWN_COLUMNS])
            raise DataError(f"{path}: line {header.line}: {what} named {name!r}; the header has {shown}")
    return {name: names.index(name) for name in wanted}


def _rows(path: Path) -> Iterator[_Row]:
    """Yield the rows of a TSV or CSV file that are not blank, the header first."""
    lines = _lines(path)
    first = next(((line, text) for line, text in lines if text.strip()), None)
    if first is None:
        return
    if "\t" in first[1]:
        yield _Row(line=first[0], cells=first[1].split("\t"))
        yield from (_Row(line=line, cells=text.split("\t")) for line, text in lines if text.strip())
        return
    start = first[0]

    def texts() -> Iterator[str]:
        yield first[1] + "\n"
        yield from (text + "\n" for _, text in lines)

    reader = csv.reader(texts(), strict=True)
    begin = start
    try:
        for cells in reader:
            if cells and any(cell.strip() for cell in cells):
                yield _Row(line=begin, cells=cells)
            begin = start + reader.line_num
    except csv.Error as error:
        raise DataError(f"{path}: line {begin}: not CSV ({error}); use a TSV file if quotes are plain text") from None


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield number and text of each line, without its end. Raises DataError, naming the line, for invalid bytes."""
    number = 0
    for data, _ in blocks(path, lambda: number):  # noqa: B023  it must see the current value
        for raw in data.split(b"\n")[:-1]:
            number += 1
            try:
                text = raw.removesuffix(b"\r").decode("utf-8")
            except UnicodeDecodeError as error:
                column = raw.count(b"\t", 0, error.start) + 1
                raise DataError(
                    f"{path}: line {number}: column {column}: byte 0x{raw[error.start]:02x} is not UTF-8;"
                    " convert the file, for example with `iconv -f latin1 -t utf-8`"
                ) from None
            if "\0" in text:
                raise DataError(f"{path}: line {number}: holds a zero byte; this is not a text file")
            yield number, text

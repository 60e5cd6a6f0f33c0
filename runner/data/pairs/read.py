"""Read sentence pairs from tables with a header: TSV without quoting, or CSV with the usual quoting.

A file whose first line has a tab is TSV. There a double quote is a character like any other: the published files hold
sentences with a single quotation mark, which a reader of quotes would take for the beginning of a longer cell. Other
files are CSV: commas separate, and a cell in double quotes may hold commas, line ends and doubled quotes.

Blank lines are skipped. White space within a sentence is written as single spaces, so that a sentence is one line.
"""

import csv
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from runner.data.shared.tables import Form, LongCells, first_line, lines_of, numbered_rows, place_of
from runner.errors import DataError


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
    notes: tuple[str, ...] = ()  # what a user should know of the file

    def __len__(self) -> int:
        return len(self.labels)


def read_pairs(path: Path, columns: PairColumns) -> PairTable:
    """Read a plain or compressed file in UTF-8, with or without a byte-order mark.

    Raises DataError, naming file, line and column, for a missing column, a line with more or fewer cells than the
    header, an empty cell, unbalanced quotes, invalid bytes, or a file without pairs.
    """
    long_cells = LongCells()
    rows = _rows(path, long_cells)
    header_line, header = next(rows, (0, []))
    if not header_line:
        raise DataError(f"{path}: the file is empty")
    names = [cell.strip() for cell in header]
    wanted = (columns.first, columns.second, columns.label, *columns.others)
    place = {name: place_of(path, header_line, names, name) for name in wanted}
    table = PairTable(path=path, first=[], second=[], labels=[], others=[], lines=[])
    for line, cells in rows:
        if len(cells) != len(header):
            raise DataError(
                f"{path}: line {line}: {len(cells)} columns, but the header has {len(header)}"
                + (" (TSV has no quoting: tabs always separate)" if len(cells) > len(header) else "")
            )
        found = {name: " ".join(cells[number].split()) for name, number in place.items()}
        for name, text in found.items():
            if not text:
                raise DataError(f"{path}: line {line}: column {place[name] + 1} ({name}) is empty")
        table.first.append(found[columns.first])
        table.second.append(found[columns.second])
        table.labels.append(found[columns.label])
        table.others.append(tuple(found[name] for name in columns.others))
        table.lines.append(line)
    if not len(table):
        raise DataError(f"{path}: line {header_line}: only a header, no pairs")
    return replace(table, notes=long_cells.notes())


def read_ids(path: Path, width: int) -> dict[tuple[str, ...], int]:
    """Return the line number of each row of a headerless TSV file of ids, which has ``width`` columns.

    Raises DataError for a row of another width or one that stands twice.
    """
    found: dict[tuple[str, ...], int] = {}
    for line, written in enumerate(lines_of(path, one_by_one=True), start=1):
        text = written.removesuffix("\n").removesuffix("\r")
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


def _rows(path: Path, long_cells: LongCells) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a TSV or CSV file that are not blank, the header first, with the numbers of their lines.

    `long_cells` counts cells of several lines.
    """
    lines = lines_of(path, one_by_one=True)
    number, first = first_line(path, lines)
    separator, quoting = ("\t", None) if "\t" in first else (",", csv.QUOTE_MINIMAL)
    form = Form(path=path, separator=separator, first_line=number, quoting=quoting)
    unbalanced = "not CSV ({}); use a TSV file if quotes are plain text"
    numbered = numbered_rows(
        form, chain([first], lines), before=number - 1, unbalanced=unbalanced, long_cells=long_cells
    )
    for line, cells in numbered:
        if any(cell.strip() for cell in cells):
            yield line, cells

"""Read some columns of people's tables by their names: CSV and TSV with a header, JSON lines, and Parquet.

CSV and TSV are read as all tables of text are (``tables``); a cell is text. A cell of JSON lines or of Parquet may also
be a list, a number or null. The ending of a file's name, before that of a compression, says what it holds.
"""

import csv
import json
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from runner.data.shared.files import COMPRESSIONS
from runner.data.shared.tables import (
    Form,
    LongCells,
    cells_of_line,
    first_line,
    lines_of,
    numbered_rows,
    place_of,
    separator_of_header,
)
from runner.errors import DataError

CSV, JSON, PARQUET = "csv", "jsonl", "parquet"
KIND_OF_ENDING = {
    ".csv": CSV,
    ".tsv": CSV,
    ".jsonl": JSON,
    ".ndjson": JSON,
    ".json": JSON,
    ".parquet": PARQUET,
}
_SHOWN = 20  # names of columns in messages
_ROWS_AT_ONCE = 1 << 13

Row = tuple[str, tuple[Any, ...]]


def kind_of(path: Path) -> str | None:
    """Return which kind of table the ending of a name stands for, None for any other."""
    suffixes = path.suffixes[:-1] if path.suffix.lower() in COMPRESSIONS else path.suffixes
    return KIND_OF_ENDING.get(suffixes[-1].lower() if suffixes else "")


def read_columns(path: Path, columns: Sequence[str], *, set_by: Sequence[str], notes: list[str]) -> Iterator[Row]:
    """Yield where each row stands, such as ``line 3``, and its cells in the order of ``columns``.

    ``set_by``: how a user names each column, for messages. ``notes`` gets what a user should know, at the end. Any
    other ending than those known is read as CSV. Raises DataError, naming file, line and column, for a missing column,
    a row of another width, and what cannot be read; and if there are no rows.
    """
    kind = kind_of(path) or CSV
    rows = {CSV: _of_csv, JSON: _of_json_lines, PARQUET: _of_parquet}[kind](path, columns, set_by, notes)
    first = next(rows, None)
    if first is None:
        raise DataError(f"{path}: the file has no rows")
    return chain([first], rows)


def _of_csv(path: Path, columns: Sequence[str], set_by: Sequence[str], notes: list[str]) -> Iterator[Row]:
    lines, long_cells = lines_of(path, one_by_one=True), LongCells()
    number, first = first_line(path, lines)
    separator = separator_of_header(first, set(columns))
    plain = {cell.strip() for cell in cells_of_line(first, separator, quoted=False)}
    quoted = separator != "\t" or {f'"{name}"' for name in columns} <= plain
    quoting = csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE
    form = Form(path=path, separator=separator, first_line=number, quoting=quoting)
    rows = numbered_rows(form, chain([first], lines), before=number - 1, long_cells=long_cells)
    line, header = next(rows)
    names = [cell.strip() for cell in header]
    way_out = " (comma, semicolon or tab separate columns); name the column by "
    place = [place_of(path, line, names, name, way_out + how) for name, how in zip(columns, set_by, strict=True)]
    for line, row in rows:
        if len(row) != len(header):
            quotes = (
                "" if quoted else "; in TSV a quotation mark is plain text: save it as CSV if a cell has tabs or lines"
            )
            raise DataError(f"{path}: line {line}: {len(row)} columns, but the header has {len(header)}{quotes}")
        yield f"line {line}", tuple(row[at] for at in place)
    notes += [f"{path}: {note}" for note in long_cells.notes()]


def _of_json_lines(path: Path, columns: Sequence[str], set_by: Sequence[str], notes: list[str]) -> Iterator[Row]:
    for number, line in enumerate(lines_of(path, one_by_one=True), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            row, why = None, f" ({error})"
        else:
            why = ""
        if not isinstance(row, dict):
            raise DataError(
                f"{path}: line {number}: is not a JSON object{why}; each line holds one, with a key for each column (in"
                " pandas, to_json(FILE, orient='records', lines=True))"
            )
        for name, how in zip(columns, set_by, strict=True):
            if name not in row:
                shown = ", ".join(list(row)[:_SHOWN])
                raise DataError(
                    f"{path}: line {number}: no key named {name!r}; the row has {shown}; name the column by {how}"
                )
        yield f"line {number}", tuple(row[name] for name in columns)


def _of_parquet(path: Path, columns: Sequence[str], set_by: Sequence[str], notes: list[str]) -> Iterator[Row]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise DataError(
            f"{path}: Parquet is read by pyarrow, which is not installed: pip install '.[parquet]', or save the table"
            " as CSV or JSON lines"
        ) from None
    try:
        with parquet.ParquetFile(path) as file:
            names = file.schema_arrow.names
            for name, how in zip(columns, set_by, strict=True):
                if name not in names:
                    shown = ", ".join(names[:_SHOWN])
                    raise DataError(
                        f"{path}: no column named {name!r}; the table has {shown}; name the column by {how}"
                    )
            number = 0
            for batch in file.iter_batches(_ROWS_AT_ONCE, columns=list(columns)):
                for cells in zip(*(batch.column(name).to_pylist() for name in columns), strict=True):
                    number += 1
                    yield f"row {number}", cells
    except (OSError, pyarrow.ArrowException) as error:
        raise DataError(f"{path}: cannot be read as Parquet ({' '.join(str(error).split())[:200]})") from None

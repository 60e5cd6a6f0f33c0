"""Read logs of events from tables (a row for each event), and from files with the items of one user in each line.

A table is UTF-8 text, plain or compressed (.gz, .xz, .bz2), whose columns are separated by comma, semicolon, tab, or
several characters. Blank lines are skipped, and ids lose the blanks around them. A time is a finite number (seconds
since 1970, or anything else that grows) or ISO 8601 (``2010-10-19T23:55:27Z``; without an offset it counts as UTC); the
first row says which of both the file has.

A table is read in pieces of some thousand rows, of which only three numbers for each event are kept. Only if a piece
has a fault is the file read again row by row, to name its line.

Legend: E events, r rows of a piece.
"""

import csv
import io
import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, islice
from operator import itemgetter
from pathlib import Path

import numpy as np

from runner.data.sequences.events import Events
from runner.data.shared.files import blocks, progress_bar
from runner.data.shared.tables import NUMBER
from runner.errors import DataError

SEPARATORS = ("\t", ";", ",")  # if several of them fit a header equally well, the first is taken
ROWS_AT_ONCE = 1 << 10  # many short-lived lists at once would keep Python's garbage collector busy
_SHOWN_COLUMNS = 20  # of a header in messages
_NO_NUMBER = {"nan", "inf", "infinity"}  # lower case and without sign


@dataclass(frozen=True, kw_only=True)
class LogColumns:
    """Say which columns of a table are used: names if it has a header, otherwise numbers from 0.

    ``set_by`` tells how a user names a column; messages say so.
    """

    user: str | int
    item: str | int
    time: str | int
    rating: str | int | None = None
    set_by: str = "dataset.{}=COLUMN"

    def used(self) -> dict[str, str | int]:
        """Return the columns by what they hold; the rating only if there is one."""
        columns = {"user": self.user, "item": self.item, "time": self.time, "rating": self.rating}
        return {what: column for what, column in columns.items() if column is not None}


@dataclass(frozen=True, kw_only=True)
class Read:
    """Hold the events of a file in its order, without those whose rating is too low."""

    events: Events
    num_read: int  # rows of the file
    stripped: int  # ids that had blanks around them


@dataclass(frozen=True, kw_only=True)
class _Table:
    """Say how a table is laid out."""

    path: Path
    separator: str
    quoted: bool  # a cell may be in double quotes
    lines_before: int  # number of lines up to the header, 0 without one
    header: tuple[str, ...] | None
    width: int
    place: dict[str, int]  # position of the columns of LogColumns
    iso: bool  # times are ISO 8601 and not numbers

    def named(self, what: str) -> str:
        """Return what messages call a column."""
        column = self.place[what]
        return f"column {column + 1} ({self.header[column]})" if self.header else f"column {column + 1} ({what})"


class _Ids:
    """Number the ids of users or items in the order in which they are met."""

    def __init__(self) -> None:
        self.number: defaultdict[str, int] = defaultdict()
        self.number.default_factory = self.number.__len__
        self.pieces: list[np.ndarray] = []

    def append(self, cells_r: list[str], keep_r: np.ndarray | None) -> None:
        """Number the ids of a piece; those of rows that are not kept get numbers, too, but leave no event."""
        codes_r = np.fromiter(map(self.number.__getitem__, cells_r), np.int32, len(cells_r))
        self.pieces.append(codes_r if keep_r is None else codes_r[keep_r])

    def finish(self) -> tuple[np.ndarray, list[str], int] | None:
        """Return numbers (E,), ids and how many ids were stripped of blanks; None if an id is not a line of text."""
        codes_E, written = np.concatenate(self.pieces), list(self.number)
        self.pieces.clear()
        ids = [text.strip() for text in written]
        if any(not text or "\n" in text for text in ids):
            return None
        if ids == written:
            return codes_E, ids, 0
        once = _Ids()
        once.append(ids, None)
        changed = np.array([text != id_ for text, id_ in zip(written, ids, strict=True)])
        return once.pieces[0][codes_E], list(once.number), int(np.count_nonzero(changed[codes_E]))


def read_events(
    path: Path,
    columns: LogColumns,
    *,
    separator: str | None,
    header: bool,
    quoted: bool,
    min_rating: float | None,
) -> Read:
    """Read a table. ``separator`` None: the one of SEPARATORS that fits the header.

    Ratings are read only if there is a ``min_rating``, below which events are left out. Raises DataError, naming file,
    line and column, for a missing column, a row with more or fewer cells than the first line, an empty id, a time or a
    rating that is no finite number, unbalanced quotes, bytes that are not UTF-8, and a file without events.
    """
    table = _layout(path, columns, separator, header, quoted)
    users, items, times, count = _Ids(), _Ids(), [np.empty(0)], 0
    use_ratings = min_rating is not None and "rating" in table.place
    parse_time = _iso_seconds if table.iso else float
    try:
        with progress_bar(path) as progress:
            rows = _rows(table, progress)
            while piece := list(islice(rows, ROWS_AT_ONCE)):
                if set(map(len, piece)) != {table.width}:
                    piece = [row for row in piece if not _is_blank(row)]
                    if set(map(len, piece)) - {table.width}:
                        raise _fault(table, use_ratings, None)
                cells = {what: list(map(itemgetter(column), piece)) for what, column in table.place.items()}
                count += len(piece)
                keep_r = None
                if use_ratings:
                    keep_r = _numbers(cells["rating"], float) >= min_rating
                time_r = _numbers(cells["time"], parse_time)
                times.append(time_r if keep_r is None else time_r[keep_r])
                users.append(cells["user"], keep_r)
                items.append(cells["item"], keep_r)
    except (ValueError, OverflowError, csv.Error) as error:
        raise _fault(table, use_ratings, error) from None
    if not count:
        raise DataError(f"{path}: line {table.lines_before}: only a header, no events")
    user, item = users.finish(), items.finish()
    if user is None or item is None:
        raise _fault(table, use_ratings, None)
    events = Events(user_E=user[0], item_E=item[0], time_E=np.concatenate(times), users=user[1], items=item[1])
    return Read(events=events, num_read=count, stripped=user[2] + item[2])


def read_users(path: Path) -> Read:
    """Read a file that has a user's items in each line, oldest first, separated by blanks; a blank line is no user.

    The number of the line is the user's id, and the position in the file is the time. Raises DataError for bytes that
    are not UTF-8 and for a file without events.
    """
    items, sizes, users = _Ids(), [], []
    with progress_bar(path) as progress:
        for line, text in enumerate(chain.from_iterable(_texts(path, progress)), start=1):
            if cells := text.split():
                items.append(cells, None)
                sizes.append(len(cells))
                users.append(str(line))
    if not sizes:
        raise DataError(f"{path}: the file is empty")
    item = items.finish()
    assert item is not None, "words of a line are neither blank nor several lines"
    events = Events(
        user_E=np.repeat(np.arange(len(sizes), dtype=np.int32), sizes),
        item_E=item[0],
        time_E=np.arange(len(item[0]), dtype=np.float64),
        users=users,
        items=item[1],
    )
    return Read(events=events, num_read=len(events), stripped=0)


# ---- layout ----


def _layout(path: Path, columns: LogColumns, separator: str | None, header: bool, quoted: bool) -> _Table:
    """Find out separator, width and the kind of times from the first lines. Raises DataError."""
    lines = enumerate(chain.from_iterable(_texts(path, lambda _: None)), start=1)
    number, first = next(((number, line) for number, line in lines if line.strip()), (0, ""))
    if not number:
        raise DataError(f"{path}: the file is empty")
    used = columns.used()
    separator = _separator(first, used) if separator is None else separator
    cells = _cells(first, separator, quoted)
    names = tuple(cell.strip() for cell in cells) if header else None
    if names is not None:
        for role, name in used.items():
            if names.count(str(name)) != 1:
                what = "no column" if name not in names else f"{names.count(str(name))} columns"
                shown = ", ".join(" ".join(name.split())[:40] for name in names[:_SHOWN_COLUMNS])
                raise DataError(
                    f"{path}: line {number}: {what} named {name!r}; the header has {shown} (comma,"
                    f" semicolon or tab separate columns); name the column by {columns.set_by.format(role)}"
                )
        place = {what: names.index(str(name)) for what, name in used.items()}
    else:
        place = {what: int(column) for what, column in used.items()}
        if max(place.values()) >= len(cells):
            raise DataError(
                f"{path}: line {number}: {len(cells)} columns, but column {max(place.values()) + 1} is used"
            )
    table = _Table(
        path=path,
        separator=separator,
        quoted=quoted,
        lines_before=number if header else 0,
        header=names,
        width=len(cells),
        place=place,
        iso=False,
    )
    row = cells
    if header:
        _, row = next(_numbered_rows(table), (0, cells))
    is_iso = len(row) == len(cells) and NUMBER.fullmatch(row[place["time"]]) is None and _is_iso(row[place["time"]])
    return _Table(**{**vars(table), "iso": is_iso})


def _separator(line: str, used: dict[str, str | int]) -> str:
    """Return the separator that finds the most of the wanted columns in a header, and then the most columns."""

    def fitting(separator: str) -> tuple[int, int]:
        names = [cell.strip() for cell in _cells(line, separator, True)]
        return len(set(names) & set(used.values())), len(names)

    return max(SEPARATORS, key=fitting)


def _cells(line: str, separator: str, quoted: bool) -> list[str]:
    """Split a single line; a line with unbalanced quotes is one cell."""
    if not quoted:
        return line.rstrip("\r\n").split(separator)
    try:
        return next(csv.reader([line], delimiter=separator, strict=True))
    except csv.Error:
        return [line]


# ---- rows ----


def _texts(path: Path, progress: Callable[[int], None]) -> Iterator[Iterator[str]]:
    """Yield the lines of each block of a file, with their ends. Raises DataError, naming the line, for bad bytes."""
    number = 0
    for data, consumed in blocks(path, lambda: number):  # noqa: B023  it must see the current value
        progress(consumed)
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            line = number + data.count(b"\n", 0, error.start) + 1
            raise DataError(
                f"{path}: line {line}: byte 0x{data[error.start]:02x} is not UTF-8; convert the file, for example with"
                " `iconv -f latin1 -t utf-8`"
            ) from None
        if "\0" in text:
            line = number + text.count("\n", 0, text.index("\0")) + 1
            raise DataError(f"{path}: line {line}: holds a zero byte; this is not a text file")
        yield io.StringIO(text, newline="\n")  # splits only at LF, as the line numbers of editors do
        number += data.count(b"\n")


def _rows(table: _Table, progress: Callable[[int], None]) -> Iterator[list[str]]:
    """Yield the rows below the header, blank ones included."""
    lines = islice(chain.from_iterable(_texts(table.path, progress)), table.lines_before, None)
    if len(table.separator) > 1:
        return (line.rstrip("\r\n").split(table.separator) for line in lines)
    if table.quoted:
        return csv.reader(lines, delimiter=table.separator, strict=True)
    return csv.reader(lines, delimiter=table.separator, quoting=csv.QUOTE_NONE, strict=True)


def _numbered_rows(table: _Table) -> Iterator[tuple[int, list[str]]]:
    """Yield each row that is not blank with the number of its first line. Raises DataError for unbalanced quotes."""
    rows = _rows(table, lambda _: None)
    line = table.lines_before + 1
    while True:
        try:
            row = next(rows, None)
        except csv.Error as error:
            raise DataError(f"{table.path}: line {line}: cannot be read as a table ({error})") from None
        if row is None:
            return
        if not _is_blank(row):
            yield line, row
        line = table.lines_before + rows.line_num + 1 if hasattr(rows, "line_num") else line + 1


def _is_blank(row: list[str]) -> bool:
    return len(row) < 2 and not "".join(row).strip()


# ---- cells ----


def _numbers(cells_r: list[str], parse: Callable[[str], float]) -> np.ndarray:
    """Return the numbers that cells stand for, (r,) float64. Raises ValueError unless all are finite."""
    numbers_r = np.fromiter(map(parse, cells_r), np.float64, len(cells_r))
    if not np.isfinite(numbers_r).all() or (parse is float and "_" in "".join(cells_r)):  # Python reads 1_000
        raise ValueError("a cell is no finite number")
    return numbers_r


def _iso_seconds(text: str) -> float:
    """Return seconds since 1970 of a time in ISO 8601. Raises ValueError."""
    time = datetime.fromisoformat(text.strip())
    return (time if time.tzinfo is not None else time.replace(tzinfo=UTC)).timestamp()


def _is_iso(text: str) -> bool:
    try:
        _iso_seconds(text)
    except (ValueError, OverflowError):
        return False
    return True


def _fault(table: _Table, use_ratings: bool, reason: Exception | None) -> DataError:
    """Return the error of the first row with a fault; ``reason`` is shown only if no row has one."""
    for line, row in _numbered_rows(table):
        if (problem := _problem(table, row, use_ratings)) is not None:
            return DataError(f"{table.path}: line {line}: {problem}")
    return DataError(f"{table.path}: cannot be read as a table ({reason})")


def _problem(table: _Table, row: list[str], use_ratings: bool) -> str | None:
    """Return what is wrong with a row, or None."""
    if len(row) != table.width:
        return f"{len(row)} columns, but {'the header' if table.header else 'the first line'} has {table.width}"
    for what in ("user", "item"):
        text = row[table.place[what]].strip()
        if not text:
            return f"{table.named(what)} is empty; every event needs a user and an item"
        if "\n" in text:
            return f"{table.named(what)}: an id must not hold a line end, found {text[:40]!r}"
    time = row[table.place["time"]]
    if table.iso and not _is_iso(time):
        return f"{table.named('time')}: {time.strip()[:40]!r} is not ISO 8601, as the times before it are"
    if not table.iso and (problem := _no_number(time)) is not None:
        return f"{table.named('time')}: {problem}; a time is a number or ISO 8601, and all rows have the same kind"
    if use_ratings and (problem := _no_number(row[table.place["rating"]])) is not None:
        return f"{table.named('rating')}: {problem}; min_rating needs a rating in every row"
    return None


def _no_number(text: str) -> str | None:
    """Return why a cell is not a finite number, or None if it is one."""
    shown = repr(text.strip(" ")[:40])
    if not text.strip():
        return "the cell is empty"
    if NUMBER.fullmatch(text):
        return None if math.isfinite(float(text)) else f"{shown} is too large for a number of 64 bits"
    if text.strip().lstrip("+-").lower() in _NO_NUMBER:
        return f"{shown} is not finite"
    return f"{shown} is not a number"

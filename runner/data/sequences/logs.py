"""Read logs of events from tables (a row for each event), and from files with the items of one user in each line.

A table is UTF-8 text, plain or compressed (.gz, .xz, .bz2), whose columns are separated by comma, semicolon, tab, or
several characters. Blank lines are skipped, and ids lose the blanks around them. A time is a finite number (seconds
since 1970, or anything else that grows) or ISO 8601 (``2010-10-19T23:55:27Z``; without an offset it counts as UTC); the
first row says which of both the file has. Times are compared exactly, however many digits they have.

Where tabs separate, a double quote is a character like any other, unless the names of the used columns are in quotes:
titles have single quotation marks, which a reader of quotes would take for the beginning of a longer cell. In CSV a
cell in quotes may go on over several lines, which is said.

A table is read in pieces of some thousand rows, of which only three numbers for each event are kept. Only if a piece
has a fault is the file read again row by row, to name its line.

Legend: E events, r rows of a piece.
"""

import csv
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from itertools import islice
from operator import itemgetter
from pathlib import Path

import numpy as np

from runner.data.sequences.events import Events
from runner.data.shared.files import progress_bar
from runner.data.shared.tables import (
    NUMBER,
    SEPARATORS,
    Form,
    LongCells,
    cells_of_line,
    first_line,
    is_blank,
    lines_of,
    numbered_rows,
    other_spelling,
    place_of,
    rows_of_text,
    separator_of_header,
)
from runner.errors import DataError

ROWS_AT_ONCE = 1 << 10  # many short-lived lists at once would keep Python's garbage collector busy
_EXACT_CHARACTERS = 15  # a number of so many is exact in float64, or has no neighbour that is written as shortly
_NO_NUMBER = {"nan", "inf", "infinity"}  # lower case and without sign


@dataclass(frozen=True, kw_only=True)
class LogColumns:
    """Say which columns of a table are used: names if it has a header, otherwise numbers from 0.

    ``time``: None if the order of the file is that of time. ``names``: those of all columns of a file without a header.
    ``set_by`` tells how a user names a column; messages say so.
    """

    user: str | int
    item: str | int
    time: str | int | None
    rating: str | int | None = None
    names: tuple[str, ...] | None = None
    set_by: str = "dataset.{}=COLUMN"

    def used(self) -> dict[str, str | int]:
        """Return the columns by what they hold; time and rating only if they are among them."""
        columns = {"user": self.user, "item": self.item, "time": self.time, "rating": self.rating}
        return {what: column for what, column in columns.items() if column is not None}


@dataclass(frozen=True, kw_only=True)
class Read:
    """Hold the events of a file in its order, without those whose rating is too low."""

    events: Events
    num_read: int  # rows of the file
    stripped: int  # ids that had blanks around them
    notes: tuple[str, ...] = ()  # what else a user should know


@dataclass(frozen=True, kw_only=True)
class _Log:
    """Say how a log is laid out."""

    form: Form
    place: dict[str, int]  # position of the columns of LogColumns
    iso: bool  # times are ISO 8601 and not numbers

    @property
    def lines_before(self) -> int:
        """Return the number of lines up to the header, 0 without one."""
        return 0 if self.form.names is None else self.form.first_line

    def lines(self, progress: Callable[[int], None] | None = None) -> Iterator[str]:
        """Return the lines below the header."""
        return islice(lines_of(self.form.path, progress), self.lines_before, None)

    def named(self, what: str) -> str:
        """Return what messages call a column."""
        return self.form.named(self.place[what], otherwise=what)


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
    log = _layout(path, columns, separator, header, quoted)
    users, items, count = _Ids(), _Ids(), 0
    times = _Times(iso=log.iso) if "time" in log.place else _Order()
    spans = LongCells()
    use_ratings = min_rating is not None and "rating" in log.place
    try:
        with progress_bar(path) as progress:
            rows = rows_of_text(log.form, log.lines(progress))
            while piece := list(islice(rows, ROWS_AT_ONCE)):
                spans.look_at(rows, piece, log.lines_before)
                if set(map(len, piece)) != {log.form.columns}:
                    piece = [row for row in piece if not is_blank(row)]
                    if set(map(len, piece)) - {log.form.columns}:
                        raise _fault(log, use_ratings, None)
                cells = {what: list(map(itemgetter(column), piece)) for what, column in log.place.items()}
                count += len(piece)
                keep_r = None
                if use_ratings:
                    keep_r = _numbers(cells["rating"], float) >= min_rating
                times.append(cells.get("time", cells["user"]), keep_r)
                users.append(cells["user"], keep_r)
                items.append(cells["item"], keep_r)
    except (ValueError, OverflowError, csv.Error) as error:
        raise _fault(log, use_ratings, error) from None
    if not count:
        raise DataError(f"{path}: line {log.lines_before}: only a header, no events")
    user, item = users.finish(), items.finish()
    if user is None or item is None:
        raise _fault(log, use_ratings, None)
    events = Events(user_E=user[0], item_E=item[0], time_E=times.finish(), users=user[1], items=item[1])
    return Read(events=events, num_read=count, stripped=user[2] + item[2], notes=spans.notes())


def has_header(path: Path, columns: LogColumns) -> bool:
    """Return whether the first line of a file names the columns that are used. Raises DataError if it is empty."""
    _, first = first_line(path, lines_of(path))
    wanted = set(map(str, columns.used().values()))
    cells = cells_of_line(first, separator_of_header(first, wanted), quoted=True)
    return wanted <= {cell.strip() for cell in cells}


def read_users(path: Path) -> Read:
    """Read a file that has a user's items in each line, oldest first, separated by blanks; a blank line is no user.

    The number of the line is the user's id, and the position in the file is the time. Raises DataError for bytes that
    are not UTF-8 and for a file without events.
    """
    items, sizes, users = _Ids(), [], []
    with progress_bar(path) as progress:
        for line, text in enumerate(lines_of(path, progress), start=1):
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


def _layout(path: Path, columns: LogColumns, separator: str | None, header: bool, quoted: bool) -> _Log:
    """Find out separator, width and the kind of times from the first lines. Raises DataError."""
    number, first = first_line(path, lines_of(path))
    used = columns.used()
    if separator is None:
        separator = (
            max(SEPARATORS, key=lambda each: len(cells_of_line(first, each, quoted=True)))
            if columns.names is not None
            else separator_of_header(first, set(map(str, used.values())))
        )
    if separator == "\t" and quoted:
        plain = {cell.strip() for cell in cells_of_line(first, separator, quoted=False)}
        quoted = not plain.issuperset(used.values()) and {f'"{name}"' for name in used.values()} <= plain
    cells = cells_of_line(first, separator, quoted=quoted)
    names = tuple(cell.strip() for cell in cells) if header and columns.names is None else None
    if names is not None:
        place = {
            what: place_of(path, number, names, str(name), _way_out(columns, what, names))
            for what, name in used.items()
        }
    elif columns.names is not None:
        place = _named_places(path, number, cells, columns)
    else:
        place = {what: int(column) for what, column in used.items()}
        if max(place.values()) >= len(cells):
            raise DataError(
                f"{path}: line {number}: {len(cells)} columns, but column {max(place.values()) + 1} is used"
            )
    quoting = None if len(separator) > 1 else csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE
    form = Form(path=path, separator=separator, first_line=number, names=names, columns=len(cells), quoting=quoting)
    log = _Log(form=form, place=place, iso=False)
    if "time" not in place:
        return log
    row = cells
    if names is not None:
        _, row = next(_numbered(log), (0, cells))
    is_iso = len(row) == len(cells) and NUMBER.fullmatch(row[place["time"]]) is None and _is_iso(row[place["time"]])
    return replace(log, iso=is_iso)


def _way_out(columns: LogColumns, what: str, names: Sequence[str]) -> str:
    """Return what a message says of a column that a header lacks."""
    text = f" (comma, semicolon or tab separate columns); name the column by {columns.set_by.format(what)}"
    if what == "time":
        text += f", or take the order of the file: {columns.set_by.format(what).replace('COLUMN', 'null')}"
    if any(map(NUMBER.fullmatch, names)) or not set(columns.used().values()) & set(names):
        in_order = columns.set_by.format("columns").replace("COLUMN", "user,item,time")
        text += f"; if the file has no header, name all its columns: {in_order}"
    return text


def _named_places(path: Path, number: int, cells: Sequence[str], columns: LogColumns) -> dict[str, int]:
    """Return the positions of the used columns in a file without a header. Raises DataError if they do not fit."""
    assert columns.names is not None
    key = columns.set_by.format("columns").replace("=COLUMN", "").replace(" COLUMN", "")
    if len(cells) != len(columns.names):
        raise DataError(
            f"{path}: line {number}: {len(cells)} columns, but {key} names {len(columns.names)}:"
            f" {', '.join(columns.names)}; name every column"
        )
    if [cell.strip() for cell in cells] == list(columns.names):
        raise DataError(f"{path}: line {number}: is a header; leave {key} out")
    used = columns.used()
    for what, name in used.items():
        if name not in columns.names:
            raise DataError(
                f"{path}: {key} names no column {name!r} for the {what}; it names {', '.join(columns.names)}"
            )
    return {what: columns.names.index(str(name)) for what, name in used.items()}


def _numbered(log: _Log) -> Iterator[tuple[int, list[str]]]:
    return numbered_rows(log.form, log.lines(), before=log.lines_before)


# ---- cells ----


def _numbers(cells_r: list[str], parse: Callable[[str], float]) -> np.ndarray:
    """Return the numbers that cells stand for, (r,) float64. Raises ValueError unless all are finite."""
    numbers_r = np.fromiter(map(parse, cells_r), np.float64, len(cells_r))
    if not np.isfinite(numbers_r).all() or (parse is float and "_" in "".join(cells_r)):  # Python reads 1_000
        raise ValueError("a cell is no finite number")
    return numbers_r


class _Times:
    """Collect the times of events, so that no two that differ become equal.

    A time is the sum of two numbers: that of float64 next to it, and the rest, which is 0 for short ones. Rounding
    keeps the order, so that only the rests tell the times apart that float64 cannot.
    """

    def __init__(self, *, iso: bool) -> None:
        self._iso = iso
        self._nearest: list[np.ndarray] = [np.empty(0)]
        self._rests: list[np.ndarray | None] = [None]

    def append(self, cells_r: list[str], keep_r: np.ndarray | None) -> None:
        """Read the times of a piece. Raises ValueError unless all are finite numbers, or all ISO 8601."""
        time_r = _numbers(cells_r, _iso_seconds if self._iso else float)
        rest_r = None
        if max(map(len, cells_r), default=0) > _EXACT_CHARACTERS:
            if not self._iso:
                rest_r = _rests(cells_r, time_r)
            elif any(map(_FINE, cells_r)):
                rest_r = np.array([_iso_rest(text) for text in cells_r])
        self._nearest.append(time_r if keep_r is None else time_r[keep_r])
        self._rests.append(rest_r if keep_r is None or rest_r is None else rest_r[keep_r])

    def finish(self) -> np.ndarray:
        """Return the times, (E,) float64, or, if they have rests, their ranks: equal times have equal ones."""
        time_E = np.concatenate(self._nearest)
        if all(rest_r is None or not rest_r.any() for rest_r in self._rests):
            return time_E
        pieces = zip(self._rests, self._nearest, strict=True)
        rest_E = np.concatenate([np.zeros(len(near)) if rest is None else rest for rest, near in pieces])
        order = np.lexsort((rest_E, time_E))
        later_E = (np.diff(time_E[order]) != 0) | (np.diff(rest_E[order]) != 0)
        rank_E = np.empty(len(order))
        rank_E[order] = np.concatenate([[0], np.cumsum(later_E)])
        return rank_E


class _Order:
    """Stand in for the times of events whose order is that of the file."""

    def __init__(self) -> None:
        self._pieces: list[np.ndarray] = [np.empty(0)]
        self._read = 0

    def append(self, cells_r: list[str], keep_r: np.ndarray | None) -> None:
        place_r = np.arange(self._read, self._read + len(cells_r), dtype=np.float64)
        self._read += len(cells_r)
        self._pieces.append(place_r if keep_r is None else place_r[keep_r])

    def finish(self) -> np.ndarray:
        """Return the numbers of the events' rows, (E,) float64."""
        return np.concatenate(self._pieces)


def _rests(cells_r: list[str], near_r: np.ndarray) -> np.ndarray:
    """Return by how much numbers exceed those of float64 next to them, (r,) float64."""
    try:
        exact_r = np.fromiter(map(int, cells_r), np.int64, len(cells_r))
        if np.abs(exact_r).max() < 2**62:
            return (exact_r - near_r.astype(np.int64)).astype(np.float64)
    except (ValueError, OverflowError):
        pass
    return np.array([_rest(text, near) for text, near in zip(cells_r, near_r.tolist(), strict=True)])


def _rest(text: str, near: float) -> float:
    try:
        return float(Decimal(text.strip()) - Decimal(near))
    except InvalidOperation:  # an exponent of very many digits, whose number is zero
        return 0.0


_FINE = re.compile(r"[.,]\d{7}").search  # finer than microseconds, at which Python's times end


def _iso_rest(text: str) -> float:
    """Return the part of a second that is finer than microseconds."""
    digits = re.search(r"[.,]\d{6}(\d+)", text)
    return float(f"0.{digits[1]}") if digits is not None else 0.0


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


def _fault(log: _Log, use_ratings: bool, reason: Exception | None) -> DataError:
    """Return the error of the first row with a fault; ``reason`` is shown only if no row has one."""
    for line, row in _numbered(log):
        if (problem := _problem(log, row, use_ratings)) is not None:
            return DataError(f"{log.form.path}: line {line}: {problem}")
    return DataError(f"{log.form.path}: cannot be read as a table ({reason})")


def _problem(log: _Log, row: list[str], use_ratings: bool) -> str | None:
    """Return what is wrong with a row, or None."""
    if len(row) != log.form.columns:
        return f"{len(row)} columns, but {'the header' if log.form.names else 'the first line'} has {log.form.columns}"
    for what in ("user", "item"):
        text = row[log.place[what]].strip()
        if not text:
            return f"{log.named(what)} is empty; every event needs a user and an item"
        if "\n" in text:
            return f"{log.named(what)}: an id must not hold a line end, found {text[:40]!r}"
    time = row[log.place["time"]] if "time" in log.place else "0"
    if log.iso and not _is_iso(time):
        return f"{log.named('time')}: {time.strip()[:40]!r} is not ISO 8601, as the times before it are"
    if not log.iso and (problem := _no_number(time, log.form.separator)) is not None:
        return f"{log.named('time')}: {problem}; a time is a number or ISO 8601, and all rows have the same kind"
    if use_ratings and (problem := _no_number(row[log.place["rating"]], log.form.separator)):
        return f"{log.named('rating')}: {problem}; min_rating needs a rating in every row"
    return None


def _no_number(text: str, separator: str) -> str | None:
    """Return why a cell is not a finite number, or None if it is one; ``separator``: of the columns."""
    shown = repr(text.strip(" ")[:40])
    if not text.strip():
        return "the cell is empty"
    if NUMBER.fullmatch(text):
        return None if math.isfinite(float(text)) else f"{shown} is too large for a number of 64 bits"
    if text.strip().lstrip("+-").lower() in _NO_NUMBER:
        return f"{shown} is not finite"
    way_out = other_spelling(text, separator)
    return f"{shown} is not a number{f' ({way_out})' if way_out else ''}"

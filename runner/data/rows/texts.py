"""Read text files of extreme classification as streams of CSR blocks; errors name the exact line.

There are three layouts: `xmc` (header `rows features labels`, then `l1,l2 f:v f:v`), `libsvm` (the same without a
header, features usually 1-based; `#` begins a comment) and `vw` (`LABEL | f:v f:v`). The values of a feature that is
repeated in a row are added; a label that is repeated in a row counts once. Rows without a label are dropped and
counted, because neither a loss nor a metric can use them.

Legend: r rows of a block, nnz stored feature values, P stored (row, label) pairs.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from runner.data.shared.files import blocks
from runner.errors import DataError

LAYOUTS = ("xmc", "libsvm", "vw")
_INT32_MAX = 2**31 - 1
_MOST_DIGITS = 4000  # Python reads no integer of many more


@dataclass(frozen=True, kw_only=True)
class TextFormat:
    """Say how to read one kind of file. The starts are the smallest allowed indices in the file: 0 or 1."""

    layout: str
    feature_start: int = 0
    label_start: int = 0


@dataclass(frozen=True, kw_only=True)
class Block:
    """Hold r consecutive rows in CSR form, with sizes of rows instead of offsets."""

    row_sizes: np.ndarray  # (r) int64
    indices: np.ndarray  # (nnz) int32
    values: np.ndarray  # (nnz) float32
    label_sizes: np.ndarray  # (r) int64
    labels: np.ndarray  # (P) int32


@dataclass(frozen=True, kw_only=True)
class FileCounts:
    """Hold the counts of a whole file. Dimensions are those of the header, or the largest index + 1 without one."""

    rows_read: int
    rows_without_labels: int
    rows_without_features: int
    num_features: int
    num_classes: int


@dataclass(frozen=True, kw_only=True)
class _Header:
    rows: int
    features: int
    labels: int


def read_rows(
    path: Path,
    text: TextFormat,
    sink: Callable[[Block], None],
    *,
    keep_unlabelled: bool = False,
    progress: Callable[[int], None] | None = None,
) -> FileCounts:
    """Read one file and pass each block of rows to `sink`; `progress` gets the bytes read from disk so far.

    With `keep_unlabelled` rows without a label are kept. Raises DataError, naming file and line, for everything that
    breaks the format: damaged compression, wrong counts in the header, indices out of range, values that are not
    finite, other bytes.
    """
    from runner.data.rows import scan  # imported here because it compiles or loads machine code, which only this needs

    layout = {"xmc": scan.XC, "libsvm": scan.LIBSVM, "vw": scan.VW}[text.layout]
    header: _Header | None = None
    line = 0  # lines read so far
    rows = unlabelled = featureless = 0
    top_feature = top_label = -1
    for data, consumed in blocks(path, lambda: line):  # noqa: B023  it must see the current value
        if text.layout == "xmc" and header is None:
            cut = data.index(b"\n") + 1
            header = _parse_header(path, data[:cut])
            data = data[cut:]
            line = 1
        if text.layout == "xmc" and header is not None:
            data = _within_header(path, data, line, header.rows - rows)
        buffer = np.frombuffer(data, np.uint8)
        most_rows, most_features, most_labels = scan.count_bounds(buffer)
        row_sizes, label_sizes = np.empty(most_rows, np.int64), np.empty(most_rows, np.int64)
        indices, values = np.empty(most_features, np.int32), np.empty(most_features, np.float32)
        labels = np.empty(most_labels, np.int32)
        num_features = header.features if header else _INT32_MAX
        num_classes = header.labels if header else _INT32_MAX
        result = scan.scan_block(
            buffer,
            layout,
            text.feature_start,
            text.label_start,
            num_features,
            num_classes,
            keep_unlabelled,
            row_sizes,
            indices,
            values,
            label_sizes,
            labels,
        )
        status, bad_line, position, lines, kept, nonzeros, pairs, without, bare, feature, label = result
        if status != scan.OK:
            reason = _reason(status, data, position, text, num_features, num_classes)
            raise DataError(f"{path}: line {line + bad_line + 1}: {reason}")
        sink(
            Block(
                row_sizes=row_sizes[:kept],
                indices=indices[:nonzeros],
                values=values[:nonzeros],
                label_sizes=label_sizes[:kept],
                labels=labels[:pairs],
            )
        )
        line += lines
        rows += kept if keep_unlabelled else kept + without
        unlabelled += without
        featureless += bare
        top_feature, top_label = max(top_feature, feature), max(top_label, label)
        if progress is not None:
            progress(consumed)
    if line == 0:
        raise DataError(f"{path}: the file is empty")
    if header is not None and rows < header.rows:
        raise DataError(
            f"{path}: line {line}: the file ends after {rows} rows, its header promises {header.rows} (truncated?)"
        )
    if header is None and rows == 0:
        raise DataError(f"{path}: the file has no rows")
    return FileCounts(
        rows_read=rows,
        rows_without_labels=unlabelled,
        rows_without_features=featureless,
        num_features=header.features if header else top_feature + 1,
        num_classes=header.labels if header else top_label + 1,
    )


def read_split_lines(path: Path, column: int, num_rows: int) -> np.ndarray:
    """Read one column (0-based) of a split file, which holds 1-based line numbers of the data.

    Returns 0-based row numbers, (rows of the split,) int64. Raises DataError if a number is missing, is not in
    1..num_rows, or stands twice in the column.
    """
    chosen: list[int] = []
    for data, _ in blocks(path, lambda: len(chosen)):
        for text in data.splitlines():
            words = text.split()
            if not words:
                continue
            where = f"{path}: line {len(chosen) + 1}"
            if len(words) <= column:
                raise DataError(f"{where}: {len(words)} columns, but column {column + 1} is needed")
            digits = words[column]
            if not (digits.isdigit() and len(digits) <= _MOST_DIGITS and 1 <= int(digits) <= num_rows):
                shown = words[column][:40].decode("ascii", "backslashreplace")
                raise DataError(f"{where}: {shown!r} is not a line number in 1..{num_rows}")
            chosen.append(int(words[column]) - 1)
    if len(set(chosen)) != len(chosen):
        raise DataError(f"{path}: column {column + 1} names a line twice")
    if not chosen:
        raise DataError(f"{path}: the file is empty")
    return np.array(chosen, dtype=np.int64)


def read_names(path: Path, num_classes: int) -> list[str]:
    """Return the names of the labels, which the file lists one per line in the order of their ids.

    If a line has tab-separated columns, the last one is the name. Raises DataError for a wrong number of names.
    """
    names: list[str] = []
    for data, _ in blocks(path, lambda: len(names)):
        try:
            texts = data.decode("utf-8").split("\n")[:-1]
        except UnicodeDecodeError as error:
            line = len(names) + data.count(b"\n", 0, error.start) + 1
            raise DataError(f"{path}:{line}: label names must be UTF-8") from None
        for text in texts:
            names.append(text.rstrip("\r").split("\t")[-1])
    if len(names) != num_classes:
        raise DataError(f"{path}: {len(names)} names for {num_classes} labels")
    return names


def _parse_header(path: Path, line: bytes) -> _Header:
    words = line.split()
    if len(words) != 3 or not all(word.isdigit() and len(word) <= _MOST_DIGITS for word in words):
        raise DataError(f"{path}: line 1: header `rows features labels` missing, found {_shown(line)}")
    rows, features, labels = map(int, words)
    if not (rows > 0 and 0 < features <= _INT32_MAX and 0 < labels <= _INT32_MAX):
        raise DataError(f"{path}: line 1: the header's counts must be positive and fit 32 bits, found {_shown(line)}")
    return _Header(rows=rows, features=features, labels=labels)


def _within_header(path: Path, data: bytes, line: int, rows_left: int) -> bytes:
    """Cut off blank lines after the last row that the header promises; raise DataError for anything else there."""
    surplus = data.count(b"\n") - rows_left
    if surplus <= 0:
        return data
    cut = 0
    for _ in range(rows_left):
        cut = data.index(b"\n", cut) + 1
    if data[cut:].strip():
        raise DataError(f"{path}: line {line + rows_left + 1}: more rows than the header promises")
    return data[:cut]


def _reason(status: int, data: bytes, position: int, text: TextFormat, num_features: int, num_classes: int) -> str:
    """Return what the scanner's status means at a byte of the data, for messages."""
    from runner.data.rows import scan

    line_start = data.rfind(b"\n", 0, position) + 1
    start = max(data.rfind(b" ", line_start, position), data.rfind(b"\t", line_start, position)) + 1
    token = data[max(start, line_start) : data.index(b"\n", position)].split()
    shown = _shown(token[0] if token else b"")
    last_feature, last_label = num_features - 1 + text.feature_start, num_classes - 1 + text.label_start
    is_zero = text.feature_start == 1 and bool(token) and token[0].startswith(b"0:")
    way_out = "; indices begin at 1 here (scikit-learn writes them so with zero_based=False)" if is_zero else ""
    word = token[0] if token else b""
    of_feature = of_label = ""
    if word.startswith(b"qid:"):
        of_feature = "; a qid is not read, because classes are ranked for each row alone: leave it out"
    elif word.startswith(b"#"):
        of_feature = of_label = f"; {text.layout} has no comments: leave them out"
    elif b"," in data[line_start:position] and re.fullmatch(rb"[\d,]+", word):
        of_feature = "; labels are separated by commas without blanks"
    if word.endswith(b","):
        of_label = "; labels are separated by commas without blanks"
    elif re.match(rb"[+-]\d", word):
        of_label = "; a label is the number of a class, from 0 and without a sign: write 1 for +1 and 0 for -1"
    elif re.fullmatch(rb"\d*\.\d+", word):
        of_label = "; a label is the number of a class; dataset=regression reads other responses"
    reasons = {
        scan.BAD_FEATURE: f"expected `feature:value`, found {shown}{of_feature}",
        scan.BAD_LABEL: f"expected comma-separated label numbers, found {shown}{of_label}",
        scan.BAD_VALUE: f"the value is not a number in {shown}",
        scan.NOT_FINITE: f"the value is not finite (NaN, infinite, or beyond float32) in {shown}",
        scan.LABEL_RANGE: f"label outside {text.label_start}..{last_label} in {shown}",
        scan.FEATURE_RANGE: f"feature index outside {text.feature_start}..{last_feature} in {shown}{way_out}",
        scan.NO_BAR: "no `|` between the label and the features",
    }
    return reasons[status]


def _shown(data: bytes) -> str:
    text = data.strip()[:40].decode("ascii", "backslashreplace")
    return repr(text).replace("\\\\", "\\")

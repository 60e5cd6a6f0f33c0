"""Find files, plain or compressed, and read them piece by piece; errors name the file and the line."""

import bz2
import contextlib
import functools
import gzip
import hashlib
import io
import lzma
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, TextIO, cast

from runner.data.shared.card import is_pattern
from runner.errors import DataError

COMPRESSIONS = ("", ".xz", ".gz", ".bz2")
STDIN = Path("standard input")  # this very object stands for it; messages call it so
BLOCK_BYTES = 8 << 20
LONGEST_LINE = 64 << 20
_BEGINNING = 4096  # so many bytes tell what a file is
# What files that are no text begin with, and what to do with them.
_NO_TEXT = {
    b"PK\3\4": "a zip archive or a spreadsheet; unpack it, or save it as text",
    b"\x1f\x8b": "compressed by gzip; give its name the ending .gz",
    b"BZh": "compressed by bzip2; give its name the ending .bz2",
    b"\xfd7zXZ\0": "compressed by xz; give its name the ending .xz",
    b"\x28\xb5\x2f\xfd": "compressed by zstd, which is not read; unpack it with `zstd -d`",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive; unpack it",
    b"Rar!": "a rar archive; unpack it",
    b"PAR1": "a Parquet file; save it as text",
    b"ARROW1": "an Arrow file; save it as text",
    b"\x89HDF": "an HDF5 file; save it as text",
    b"\x93NUMPY": "an array of NumPy; save it as text",
    b"\xd0\xcf\x11\xe0": "a file of an old Microsoft Office; save it as text",
    b"SQLite format 3": "a database of SQLite; save its table as text",
    b"%PDF-": "a PDF; save it as text",
    b"\xff\xfe\0\0": "UTF-32; convert it, for example with `iconv -f utf-32 -t utf-8`",
    b"\0\0\xfe\xff": "UTF-32; convert it, for example with `iconv -f utf-32 -t utf-8`",
    b"\xff\xfe": "UTF-16; convert it, for example with `iconv -f utf-16 -t utf-8`",
    b"\xfe\xff": "UTF-16; convert it, for example with `iconv -f utf-16 -t utf-8`",
}
_CONTROL = re.compile(rb"[\0-\x08\x0e-\x1f]")
_TAR = (slice(257, 262), b"ustar")
_ENDING_OF = {".gz": b"\x1f\x8b", ".bz2": b"BZh", ".xz": b"\xfd7zXZ\0"}


def find_file(folder: Path, name: str) -> Path | None:
    """Return the path of `name` in `folder`, plain or compressed; None if there is no such file."""
    for suffix in COMPRESSIONS:
        path = folder / (name + suffix)
        if path.is_file():
            return path
    return None


def find_files(folder: Path, pattern: str, count: int) -> tuple[Path, ...]:
    """Return the files whose names match a pattern, sorted by name; () unless there are exactly `count` of them.

    All must be plain, or all compressed in the same way.
    """
    if not is_pattern(pattern):
        path = find_file(folder, pattern)
        return () if path is None else (path,)
    for suffix in COMPRESSIONS:
        found = sorted(path for path in folder.glob(pattern + suffix) if path.is_file())
        if len(found) == count:
            return tuple(found)
    return ()


def blocks(path: Path, line: Callable[[], int], *, cut_at: tuple[bytes, ...] = (b"\n",)) -> Iterator[tuple[bytes, int]]:
    """Yield pieces of a plain or compressed file, each with the number of bytes read from disk so far.

    A piece ends in one of `cut_at`; a file that does not end so gets an LF. A byte-order mark is dropped, and in a file
    whose lines end in CR alone, as its first block tells, LF takes the place of each. `line()` returns how many lines
    the caller has seen, for messages. Raises DataError for what is no text but UTF-16, an archive and the like, for
    damaged compression and for a piece longer than LONGEST_LINE.
    """
    rest, first, ends_in_cr = b"", True, False
    try:
        with io.BytesIO(_typed(sys.stdin)) if path is STDIN else path.open("rb") as file:
            _check_ending(path, file.read(_BEGINNING))
            file.seek(0)
            stream = decompress(path, file)
            while True:
                data = stream.read(BLOCK_BYTES)
                if first:
                    if (found := no_text(data[:_BEGINNING])) is not None:
                        raise DataError(f"{path}: line 1: this is {found}")
                    data = data.removeprefix(b"\xef\xbb\xbf")
                    ends_in_cr = b"\r" in data[:-1] and b"\n" not in data
                first = False
                if ends_in_cr:
                    data = data.replace(b"\r", b"\n")
                if not data:
                    break
                cut = max(data.rfind(end) for end in cut_at) + 1
                if cut == 0:
                    rest += data
                    if len(rest) > LONGEST_LINE:
                        raise DataError(f"{path}: line {line() + 1}: longer than {LONGEST_LINE >> 20} MiB; not text?")
                    continue
                yield rest + data[:cut], file.tell()
                rest = data[cut:]
            if rest:
                yield rest + b"\n", file.tell()
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except EOFError:
        raise DataError(f"{path}: line {line() + 1}: the compressed file is truncated after this line") from None
    except (lzma.LZMAError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: line {line() + 1}: the compressed file is damaged ({error})") from None
    except OSError as error:
        raise DataError(f"{path}: line {line() + 1}: cannot be read ({error})") from None


@functools.lru_cache(maxsize=1)
def _typed(stream: TextIO) -> bytes:
    """Return all of standard input, which some readers go through twice."""
    return stream.buffer.read()


def no_text(beginning: bytes) -> str | None:
    """Return what a file that begins so is, if it is no text of bytes, and what to do with it; None for text."""
    for mark, what in _NO_TEXT.items():
        if beginning.startswith(mark) and (
            _CONTROL.search(beginning) or not mark[:3].isalnum()
        ):  # a column may be PAR1
            return what
    if beginning[_TAR[0]] == _TAR[1]:
        return "a tar archive; unpack it"
    even, odd = (beginning[start::2].count(0) for start in (0, 1))
    if max(even, odd) * 4 > len(beginning) and min(even, odd) * 8 < max(even, odd):  # a half would be all Latin text
        if beginning.startswith(("\xff\xfe".encode(), "\xfe\xff".encode())):
            return (
                "UTF-16 that was converted as if it were latin1; convert the original, with `iconv -f utf-16 -t utf-8`"
            )
        kind = "utf-16le" if odd > even else "utf-16be"
        return f"UTF-16 without a mark; convert it, for example with `iconv -f {kind} -t utf-8`"
    return None


def _check_ending(path: Path, beginning: bytes) -> None:
    """Raise DataError if the file's name ends in that of a compression, but the file is not compressed so."""
    ending = path.suffix.lower()
    mark = _ENDING_OF.get(ending, b"")
    if beginning and not beginning.startswith(mark[: len(beginning)]):
        found = no_text(beginning)
        what = f": it is {found}" if found else "; if it is plain text, leave the ending out"
        raise DataError(f"{path}: line 1: the name ends in {ending}, but the file is not compressed so{what}")


def decoded_block(path: Path, data: bytes, lines_before: int, *, tell_column: bool = False) -> str:
    """Return the text of whole lines.

    Raises DataError if it is not UTF-8, naming the line and, with `tell_column`, the column by the tabs before it.
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = lines_before + data.count(b"\n", 0, error.start) + 1
        tabs = data.count(b"\t", data.rfind(b"\n", 0, error.start) + 1, error.start)
        raise DataError(
            f"{path}: line {line}: {f'column {tabs + 1}: ' if tell_column else ''}byte 0x{data[error.start]:02x} is not"
            " UTF-8; convert the file, for example with `iconv -f latin1 -t utf-8`"
        ) from None


@contextlib.contextmanager
def progress_bar(path: Path) -> Iterator[Callable[[int], None]]:
    """Show a bar over the bytes of a file; nothing is shown if stderr is not a terminal."""
    from tqdm import tqdm

    size = path.stat().st_size if path.exists() else 0
    with tqdm(total=size, unit="B", unit_scale=True, desc=path.name, file=sys.stderr, disable=None) as bar:

        def show(consumed: int) -> None:
            bar.update(consumed - bar.n)

        yield show


def decompress(path: Path, file: BinaryIO) -> BinaryIO:
    """Return the content of an open file, decompressed as the ending of its name says."""
    ending = path.suffix.lower()
    if ending == ".xz":
        return cast(BinaryIO, lzma.LZMAFile(file))
    if ending == ".gz":
        return cast(BinaryIO, gzip.GzipFile(fileobj=file))
    if ending == ".bz2":
        return cast(BinaryIO, bz2.BZ2File(file))
    return file


def hash_file(path: Path, algorithm: str = "sha256") -> str:
    """Return the hash of a file's content in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()

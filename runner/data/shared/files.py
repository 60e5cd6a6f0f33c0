"""Find files, plain or compressed, and read them piece by piece; errors name the file and the line."""

import bz2
import contextlib
import gzip
import hashlib
import lzma
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

from runner.errors import DataError

COMPRESSIONS = ("", ".xz", ".gz", ".bz2")
BLOCK_BYTES = 8 << 20
LONGEST_LINE = 64 << 20


def find_file(folder: Path, name: str) -> Path | None:
    """Return the path of `name` in `folder`, plain or compressed; None if there is no such file."""
    for suffix in COMPRESSIONS:
        path = folder / (name + suffix)
        if path.is_file():
            return path
    return None


def find_files(folder: Path, pattern: str, count: int) -> tuple[Path, ...]:
    """Return the files whose names match a pattern, sorted by name; () unless there are exactly `count` of them.

    All must be plain, or all compressed in the same way. With `count` 1 the pattern is a plain name.
    """
    if count == 1:
        path = find_file(folder, pattern)
        return () if path is None else (path,)
    for suffix in COMPRESSIONS:
        found = sorted(path for path in folder.glob(pattern + suffix) if path.is_file())
        if len(found) == count:
            return tuple(found)
    return ()


def blocks(path: Path, line: Callable[[], int], *, cut_at: tuple[bytes, ...] = (b"\n",)) -> Iterator[tuple[bytes, int]]:
    """Yield pieces of a plain or compressed file, each with the number of bytes read from disk so far.

    A piece ends in one of `cut_at`; a file that does not end so gets an LF. A byte-order mark is dropped. `line()`
    returns how many lines the caller has seen, for messages. Raises DataError for damaged compression and for a piece
    longer than LONGEST_LINE.
    """
    rest, first = b"", True
    try:
        with path.open("rb") as file:
            stream = decompress(path, file)
            while True:
                data = stream.read(BLOCK_BYTES)
                if first and data.startswith(b"\xef\xbb\xbf"):
                    data = data[3:]
                first = False
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
    if path.suffix == ".xz":
        return cast(BinaryIO, lzma.LZMAFile(file))
    if path.suffix == ".gz":
        return cast(BinaryIO, gzip.GzipFile(fileobj=file))
    if path.suffix == ".bz2":
        return cast(BinaryIO, bz2.BZ2File(file))
    return file


def hash_file(path: Path, algorithm: str = "sha256") -> str:
    """Return the hash of a file's content in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()

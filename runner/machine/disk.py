"""Write to a disk that may be full or failing: an error names the file, and what is flushed survives a power cut."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_NAMED = "named_by_writing"  # an attribute of errors that have their file
_WAYS_OUT = {
    errno.ENOSPC: "free some space, and the same command goes on",
    errno.EDQUOT: "free some space, and the same command goes on",
    errno.EROFS: "choose a place that can be written",
    errno.EIO: "the disk or its connection fails; once it works, the same command goes on",
}


@contextmanager
def writing(path: Path, *, keeps_names: bool = False) -> Iterator[None]:
    """Name this file in any OSError of the block: the system names none, or the temporary one, when a write fails.

    Of nested blocks, the innermost one names its file. ``keeps_names``: only errors without any name get this one,
    because the block also reads files.
    """
    try:
        yield
    except OSError as error:
        if error.filename is None or not (keeps_names or getattr(error, _NAMED, False)):
            error.filename, error.filename2 = str(path), None
            setattr(error, _NAMED, True)
        raise


def explained(error: OSError) -> str | None:
    """Return the line for an error of the disk, with the file and the way out; None for any other OSError."""
    if error.errno not in _WAYS_OUT or error.filename is None:
        return None
    return f"{error.filename}: {error.strerror}; {_WAYS_OUT[error.errno]}"


def sync(path: Path) -> None:
    """Flush a file, or the entries of a folder, to the disk."""
    with writing(path):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def size(path: Path) -> int:
    """Return the bytes of all files under a folder; 0 if there is none."""
    return sum(file.lstat().st_size for file in path.rglob("*") if not file.is_dir())


def size_text(count: int) -> str:
    """Write a number of bytes in the largest unit that suits it: ``512 kB``, ``1.2 MB``, ``3.4 GB``."""
    if count < 1e6:
        return f"{count / 1e3:,.0f} kB"
    return f"{count / 1e6:,.1f} MB" if count < 1e9 else f"{count / 1e9:,.1f} GB"

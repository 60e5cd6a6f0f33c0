"""Tell whole prepared folders from damaged ones.

At every opening, sizes, types, offsets and ranges of ids are checked: one pass over the arrays, without copies. After a
change of any file's size or time, and at the first opening of a folder that an earlier version prepared, the data are
also compared with the checksum of their manifest. `verified.json` in the folder remembers the digests, sizes and times
of the files that had that checksum, so that this is done once; without it, it is done again.
"""

import contextlib
import gzip
import hashlib
import json
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from runner.data.shared.manifests import Manifest
from runner.data.shared.places import damaged

MANIFEST = "manifest.json"
_VERIFIED = "verified.json"
_MAGIC = b"\x93NUMPY\x01\x00"
_BLOCK = 1 << 20


# ---- what every opening checks ----


def map_array(path: Path, dtype: str, *shape: int) -> np.ndarray:
    """Map an array into memory, read-only. Raises DataError if it is not the array that the manifest describes.

    The header is compared with the one that such an array has, and never evaluated.
    """
    kind = np.dtype(dtype)
    size = int(kind.itemsize * np.prod(shape, dtype=object))
    wanted = f"{{'descr': {dtype!r}, 'fortran_order': False, 'shape': {shape!r}, }}"
    try:
        with path.open("rb") as file:
            start = _start_of_entries(file.read(len(_MAGIC) + 2))
            header = file.read(max(0, start - file.tell())).decode("latin-1").strip()
            found = os.fstat(file.fileno()).st_size
            if header != wanted:
                raise damaged(path, f"it is not an array of type {dtype} and shape {shape}, as its manifest says")
            if found != start + size:
                raise damaged(path, f"it has {found:,} bytes instead of {start + size:,}")
            # A plain ndarray is used because np.memmap's indexing is slow and Numba treats it as another type.
            return np.memmap(file, kind, mode="r", offset=start, shape=shape).view(np.ndarray)
    except (OSError, ValueError) as error:
        raise damaged(path, f"it cannot be read ({error})") from None


def _start_of_entries(beginning: bytes) -> int:
    """Return where the entries of an array begin in its file, which begins with these bytes; 0 for any other file."""
    if len(beginning) != len(_MAGIC) + 2 or not beginning.startswith(_MAGIC):
        return 0
    return len(beginning) + int.from_bytes(beginning[-2:], "little")


def map_ids(path: Path, count: int, *, below: int) -> np.ndarray:
    """Map ``count`` ids, int32. Raises DataError unless all lie in [0, ``below``)."""
    ids = map_array(path, "<i4", count)
    least, largest = (int(ids.min()), int(ids.max())) if count else (0, -1)
    if least < 0 or largest >= below:
        raise damaged(path, f"it has ids from {least:,} to {largest:,}, but valid ones lie from 0 to {below - 1:,}")
    return ids


def map_numbers(path: Path, dtype: str, *shape: int) -> np.ndarray:
    """Map numbers. Raises DataError unless all are finite."""
    numbers = map_array(path, dtype, *shape)
    if numbers.size and not (np.isfinite(numbers.min()) and np.isfinite(numbers.max())):  # both are NaN if one is
        raise damaged(path, "it holds NaN or infinite numbers")
    return numbers


def check_offsets(path: Path, offsets: np.ndarray, *, last: int) -> None:
    """Raise DataError unless the offsets ascend from 0 to ``last``."""
    if not len(offsets) or offsets[0] != 0 or offsets[-1] != last or (offsets[1:] < offsets[:-1]).any():
        raise damaged(path, f"its offsets do not ascend from 0 to {last:,}")


def read_lines(path: Path, count: int) -> tuple[str, ...]:
    """Read a file of ``count`` lines of UTF-8. Raises DataError if it is not the file that the manifest describes."""
    try:
        *lines, rest = path.read_bytes().decode().split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise damaged(path, f"it cannot be read ({error})") from None
    if rest or len(lines) != count:
        raise damaged(path, f"it has {len(lines):,} whole lines, but its manifest says {count:,}")
    return tuple(lines)


def content_of(path: Path) -> bytes:
    """Return what a file holds, unpacked if its name ends in .gz, as in run folders. Raises OSError."""
    data = path.read_bytes()
    if path.suffix != ".gz":
        return data
    try:
        return gzip.decompress(data)
    except (EOFError, zlib.error) as error:
        raise OSError(str(error)) from None


def read_names(path: Path, count: int, *, what: str = "names") -> tuple[str, ...]:
    """Read the name of each of ``count`` classes, one in a line. Raises DataError if the file has changed."""
    try:
        names = content_of(path).decode().split("\n")[:-1]
    except (OSError, UnicodeDecodeError) as error:
        raise damaged(path, f"it cannot be read ({error})") from None
    if len(names) != count:
        raise damaged(path, f"{len(names)} {what} for {count} classes")
    return tuple(names)


def check_names(path: Path, count: int) -> None:
    """Raise DataError unless the file has a line for each of ``count`` classes."""
    try:
        lines = path.read_bytes().count(b"\n")
    except OSError as error:
        raise damaged(path, f"it cannot be read ({error})") from None
    if lines != count:
        raise damaged(path, f"{lines:,} names for {count:,} classes")


# ---- the checksum ----


def remember(folder: Path) -> None:
    """Write down digests, sizes and times of the files of a whole folder; a place that is read-only stays as it is."""
    states = _states(folder)
    _write(folder, states, {name: _digest(folder / name) for name in states})


@contextlib.contextmanager
def verified(folder: Path, manifest: Manifest) -> Iterator[None]:
    """Raise DataError if the files are not those that the manifest was written for.

    That they are is remembered if what the caller does with them raises no error.
    """
    known, states = _remembered(folder), _states(folder)
    if {name: entry["state"] for name, entry in known.items()} == states:
        yield
        return
    for name in known.keys() - states.keys():
        raise damaged(folder / name, "it is missing")
    try:
        digests = {name: _digest(folder / name) for name in states}
    except OSError as error:
        raise damaged(folder / MANIFEST, f"files beside it cannot be read ({error})") from None
    for name, entry in known.items():
        if digests[name] != entry["sha256"]:
            raise damaged(folder / name, "its content has changed since it was prepared")
    try:
        whole = manifest.checksum_of(digests) == manifest.checksum
    except KeyError as error:
        raise damaged(folder / error.args[0], "it is missing") from None
    if not whole:
        raise damaged(folder / MANIFEST, "the files beside it do not have its checksum")
    yield
    _write(folder, states, digests)


def _states(folder: Path) -> dict[str, list[int]]:
    """Return size and time of each file of the folder."""
    files = (path for path in sorted(folder.iterdir()) if path.is_file())
    return {
        path.name: [path.stat().st_size, path.stat().st_mtime_ns]
        for path in files
        if path.name != _VERIFIED and not path.name.startswith(".")
    }


def _remembered(folder: Path) -> dict[str, dict[str, Any]]:
    """Return what `verified.json` says; nothing if it is missing or damaged, as then all can be computed again."""
    try:
        known = json.loads((folder / _VERIFIED).read_bytes())
        return {str(name): {"state": entry["state"], "sha256": entry["sha256"]} for name, entry in known.items()}
    except (OSError, ValueError, RecursionError, TypeError, KeyError, AttributeError):
        return {}


def _write(folder: Path, states: dict[str, list[int]], digests: dict[str, str]) -> None:
    known = {name: {"state": state, "sha256": digests[name]} for name, state in states.items()}
    partial = folder / f".{_VERIFIED}.{os.getpid()}"
    with contextlib.suppress(OSError):
        partial.write_text(json.dumps(known, indent=1) + "\n")
        partial.replace(folder / _VERIFIED)


def _digest(path: Path) -> str:
    """Return the sha256 of a text, or of the entries of an array."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        file.seek(_start_of_entries(file.read(len(_MAGIC) + 2)))
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()

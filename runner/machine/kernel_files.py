"""Say where compiled kernels are cached: in a folder for each state of the sources that they are compiled from.

Numba compiles a cached kernel again when its own file changes, but not when a function inlined from another file
changes. So each file of kernels has one folder for every state of itself and of all kernel sources that it imports. A
stale kernel is impossible, a change compiles again only the kernels that it reaches, and a state that comes back finds
its kernels. The folder's name says too whether kernels have AMX's tiles. Numba's own key only has what the processor
can do, and a system may keep tiles from some processes.
"""

import fcntl
import hashlib
import io
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO, Any

from numba.core import caching

from runner.kernels.target import target

_PACKAGE = Path(__file__).resolve().parents[1]
# Imports within functions and under TYPE_CHECKING are indented; kernels see none of them.
_FROM = re.compile(r"^from (runner(?:\.\w+)*) import (\([^)]*\)|[^(\n]*)", re.MULTILINE)
_PLAIN = re.compile(r"^import (runner(?:\.\w+)*)", re.MULTILINE)


@cache
def _kernel_source(file: Path) -> bytes | None:
    """Return the content of a file that has kernels; None for any other, and where there is no such file."""
    if not file.is_file():
        return None
    source = file.read_bytes()
    return source if b"njit" in source else None


def _imported(source: str) -> Iterable[Path]:
    """Return the files of this package that a source may import, some of which do not exist."""
    modules = _PLAIN.findall(source)
    for module, names in _FROM.findall(source):
        modules += [module, *(f"{module}.{name.split()[0]}" for name in names.strip("()").split(",") if name.strip())]
    for module in modules:
        place = _PACKAGE.joinpath(*module.split(".")[1:])
        yield from (place.with_suffix(".py"), place / "__init__.py")


def kernel_sources(file: Path) -> list[Path]:
    """Return the files that the kernels of ``file`` are compiled from: itself, and what it imports from kernel sources.

    A kernel may use names from other files of this package only if those have kernels (tests/structure checks it).
    """
    found, left = {file}, [file]
    while left:
        source = _kernel_source(left.pop())
        if source is not None:
            new = {other for other in _imported(source.decode()) if _kernel_source(other) is not None} - found
            found |= new
            left += new
    return sorted(found)


def _digest(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        source = _kernel_source(file) or file.read_bytes()
        digest.update(hashlib.sha256(source).digest())
    return digest.hexdigest()[:16]


@cache
def _state_of(file: Path) -> str:
    return _digest(kernel_sources(file))


@cache
def state_of_all() -> str:
    """Return a digest of all kernel sources of this package."""
    return _digest(file for file in sorted(_PACKAGE.rglob("*.py")) if _kernel_source(file) is not None)


def _folder_of(file: Path) -> str:
    """Return the name of the folder for the kernels of a file in their present state."""
    return f"{file.stem}-{_state_of(file.resolve())}{'-amx' if target().has_amx else ''}"


class BySources(caching.UserProvidedCacheLocator):
    """Numba's locator of kernels in NUMBA_CACHE_DIR, with one folder for each state of a kernel's sources."""

    def __init__(self, py_func: Any, py_file: str) -> None:
        super().__init__(py_func, py_file)
        file = Path(py_file)
        if file.is_file():
            self._cache_path = str(Path(self.get_cache_path(), _folder_of(file)))

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> Any:
        """Return a locator; one of Numba's own where there is no such file or folder."""
        found = super().from_function(py_func, py_file)
        if found is not None:
            return found
        others = (locator.from_function(py_func, py_file) for locator in caching.CacheImpl._locator_classes)
        other: Any = next((locator for locator in others if locator is not None), None)
        if other is not None and (file := Path(py_file)).is_file():
            other._cache_path = str(Path(other.get_cache_path(), _folder_of(file)))
        return other


_MARK = b"crc-32: "
_TRAILER = len(_MARK) + 4  # bytes at the end of a cached file, which Numba does not look at


class _KernelFiles(caching.IndexDataCacheFile):
    """The files of a kernel, which two processes do not change at the same time, and which are whole when read.

    Two processes that change an index may both choose the same file name for kernels of different signatures, and a
    later process would run the kernel of one with the arguments of the other. A file that is damaged is deleted, so
    that its kernels are compiled again; with changed machine code a process would end, or compute something else.
    """

    def save(self, key: Any, data: Any) -> None:
        folder = os.open(self._cache_path, os.O_RDONLY)
        try:
            with suppress(OSError):  # a file system without locks
                fcntl.flock(folder, fcntl.LOCK_EX)
            super().save(key, data)
        finally:
            os.close(folder)  # which also unlocks

    def _load_index(self) -> Any:
        return self._whole(self._index_path, super()._load_index, {})

    def _load_data(self, name: str) -> Any:
        return self._whole(self._data_path(name), lambda: super(_KernelFiles, self)._load_data(name), None)

    def _whole(self, path: str, load: Callable[[], Any], otherwise: Any) -> Any:
        """Return what ``load`` reads from a file; ``otherwise`` if it is damaged."""
        try:
            with suppress(FileNotFoundError):
                _check_trailer(Path(path).read_bytes())
            return load()
        except OSError:
            raise
        except Exception:  # what a damaged pickle raises may be anything
            with suppress(OSError):
                os.unlink(path)
            # Who compiles a kernel runs other code than who loads it, so the next run compiles in another process.
            for marker in Path(os.environ.get("NUMBA_CACHE_DIR") or path).glob("compiled-*"):
                marker.unlink(missing_ok=True)
            return otherwise

    @contextmanager
    def _open_for_write(self, filepath: str) -> Iterator[IO[bytes]]:
        with super()._open_for_write(filepath) as file:
            content = io.BytesIO()
            yield content
            written = content.getvalue()
            file.write(written + _MARK + zlib.crc32(written).to_bytes(4, "little"))


def _check_trailer(content: bytes) -> None:
    """Raise ValueError if a cached file does not have its checksum; files of earlier versions have none."""
    written, trailer = content[:-_TRAILER], content[-_TRAILER:]
    if trailer.startswith(_MARK) and zlib.crc32(written).to_bytes(4, "little") != trailer[len(_MARK) :]:
        raise ValueError("the file does not have its checksum")


caching.IndexDataCacheFile = _KernelFiles

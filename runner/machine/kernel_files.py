"""Say where compiled kernels are cached: in a folder for each state of the sources that they are compiled from.

Numba compiles a cached kernel again when its own file changes, but not when a function inlined from another file
changes. So each file of kernels has one folder for every state of itself and of all kernel sources that it imports. A
stale kernel is impossible, a change compiles again only the kernels that it reaches, and a state that comes back finds
its kernels. The folder's name says too whether kernels have AMX's tiles. Numba's own key only has what the processor
can do, and a system may keep tiles from some processes.
"""

import fcntl
import hashlib
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

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


class _OneAtATime(caching.IndexDataCacheFile):
    """A kernel's index, which two processes do not change at the same time.

    Otherwise both may choose the same file name for kernels of different signatures, and a later process would run the
    kernel of one with the arguments of the other.
    """

    def save(self, key: Any, data: Any) -> None:
        folder = os.open(self._cache_path, os.O_RDONLY)
        try:
            with suppress(OSError):  # a file system without locks
                fcntl.flock(folder, fcntl.LOCK_EX)
            super().save(key, data)
        finally:
            os.close(folder)  # which also unlocks


caching.IndexDataCacheFile = _OneAtATime

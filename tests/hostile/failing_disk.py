"""A disk that fails at one operation, or from it on: every creation, write, flush, rename and deletion can be the one.

Only what lies below one folder fails. Writes fail half-way, as they do on a full disk: the first half is written.
"""

import builtins
import errno
import io
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

TAKING_SPACE = ("create", "write", "fsync", "rename", "mkdir")
DELETING = ("unlink", "rmdir")


@dataclass(kw_only=True)
class FailingDisk:
    """Fail the operation number ``at`` below ``place`` (from 0; None: none), and all later ones if it ``stays``.

    ``kinds``: the kinds of operations that count and fail. ``seen``: kind and file of each that was counted.
    """

    place: Path
    at: int | None = None
    code: int = errno.ENOSPC
    stays: bool = True
    kinds: tuple[str, ...] = TAKING_SPACE
    seen: list[tuple[str, str]] = field(default_factory=list)

    @property
    def has_failed(self) -> bool:
        return self.at is not None and len(self.seen) > self.at

    def fails(self, kind: str, file: Any) -> bool:
        """Count an operation; tell whether it fails."""
        path = str(file)
        if kind not in self.kinds or not path.startswith(str(self.place)):
            return False
        self.seen.append((kind, path.removeprefix(str(self.place))))
        number = len(self.seen) - 1
        return self.at is not None and (number == self.at or (self.stays and number > self.at))

    def check(self, kind: str, file: Any, name: Any = None) -> None:
        if self.fails(kind, file):
            raise OSError(self.code, os.strerror(self.code), *([] if name is None else [str(name)]))

    def __enter__(self) -> "FailingDisk":
        self._patch = pytest.MonkeyPatch()
        for name, kind in (
            ("replace", "rename"), ("rename", "rename"), ("mkdir", "mkdir"), ("truncate", "write"), ("utime", "write"),
            ("chmod", "write"), ("unlink", "unlink"), ("remove", "unlink"), ("rmdir", "rmdir"),
        ):  # fmt: skip
            self._patch.setattr(os, name, self._checked(kind, getattr(os, name)))
        self._patch.setattr(os, "fsync", self._checked_handle("fsync", os.fsync))
        self._patch.setattr(os, "open", self._opened(os.open))
        opened = self._file_opened(io.open)
        self._patch.setattr(io, "open", opened)
        self._patch.setattr(builtins, "open", opened)
        return self

    def __exit__(self, *_: object) -> None:
        self._patch.undo()

    def _checked(self, kind: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, *arguments: Any, **options: Any) -> Any:
            whole = path if options.get("dir_fd") is None else f"{_path_of(options['dir_fd'])}/{path}"
            self.check(kind, whole, path)
            return real(path, *arguments, **options)

        return call

    def _checked_handle(self, kind: str, real: Callable[[int], None]) -> Callable[[int], None]:
        def call(handle: int) -> None:
            self.check(kind, _path_of(handle))
            real(handle)

        return call

    def _opened(self, real: Callable[..., int]) -> Callable[..., int]:
        def call(path: Any, flags: int, *arguments: Any, **options: Any) -> int:
            if flags & os.O_CREAT:
                self.check("create", path, path)
            return real(path, flags, *arguments, **options)

        return call

    def _file_opened(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(file: Any, mode: str = "r", buffering: int = -1, *arguments: Any, **options: Any) -> Any:
            path = _path_of(file) if isinstance(file, int) else str(file)
            if not set(mode) & set("wax") or not path.startswith(str(self.place)):
                return real(file, mode, buffering, *arguments, **options)
            if not isinstance(file, int):
                self.check("create", path, path)
            binary = "b" in mode
            raw = _Raw(file, mode.replace("b", "").replace("t", ""), closefd=True)
            raw.disk, raw.path = self, path
            buffered = io.BufferedWriter(raw)
            return buffered if binary else io.TextIOWrapper(buffered, *arguments, **options)

        return call


class _Raw(io.FileIO):
    """A file whose writes the disk may refuse."""

    disk: FailingDisk
    path: str

    def write(self, data: Any) -> int:
        if self.disk.fails("write", self.path):
            super().write(memoryview(data).cast("B")[: len(data) // 2])
            raise OSError(self.disk.code, os.strerror(self.disk.code))
        return super().write(data)


def _path_of(handle: int) -> str:
    return os.readlink(f"/proc/self/fd/{handle}")

"""Unpack archives without trusting them, plain files alone and inside the target folder, or read them as streams."""

import bz2
import contextlib
import gzip
import lzma
import shutil
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO, Self, cast

from runner.errors import DataError, brief

ENDINGS = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
MOST_BYTES = 64 << 30  # limit of the unpacked size; the largest set of the papers is below 10 GB
MOST_MEMBERS = 10_000
MOST_BYTES_AT_ONCE = 256 << 20  # of a member that is read as a whole
_CHUNK_BYTES = 1 << 20
_MOST_PADDING = 64 << 20  # bytes of zeros after the mark of a tar's end


def is_archive(path: Path) -> bool:
    """Return whether the file's name ends like that of an archive."""
    return path.name.lower().endswith(ENDINGS)


def extract(archive: Path, into: Path, *, most_bytes: int | None = None) -> None:
    """Unpack a zip or tar archive into the new folder `into`, which is removed again if anything is wrong.

    Checksums are verified: those of a zip's members, and those of a compressed tar. Raises DataError for damaged
    archives, absolute paths, `..`, links, devices, and if the unpacked files exceed
    `most_bytes` (default: MOST_BYTES) or MOST_MEMBERS.
    """
    left = MOST_BYTES if most_bytes is None else most_bytes
    opener = _zip_members if archive.name.lower().endswith(".zip") else _tar_members
    try:
        with _naming(archive, "damaged archive or unpacking failed"):
            into.mkdir(parents=True)
            for count, (name, stream) in enumerate(opener(archive), start=1):
                if count > MOST_MEMBERS:
                    raise DataError(f"{archive}: more than {MOST_MEMBERS} members; not one of the published archives")
                target = into / _safe(archive, name)
                target.parent.mkdir(parents=True, exist_ok=True)
                # Mode "x" refuses a second member of the same name instead of overwriting the first.
                with stream, target.open("xb") as file:
                    while data := stream.read(_CHUNK_BYTES):
                        left -= len(data)
                        if left < 0:
                            raise DataError(f"{archive}: unpacks to more than the allowed size; refused")
                        file.write(data)
    except BaseException:
        shutil.rmtree(into, ignore_errors=True)
        raise


def read_members(
    archive: Path, is_wanted: Callable[[str], bool], *, progress: Callable[[int], None]
) -> Iterator[tuple[str, bytes]]:
    """Yield the names and contents of a tar's plain files that are wanted, in their order; nothing is unpacked.

    One file is held in memory at a time; `progress` gets the bytes read from disk so far. Raises DataError for damaged
    archives and for a wanted file of more than MOST_BYTES_AT_ONCE.
    """
    with _naming(archive, "damaged archive"), archive.open("rb") as file:
        stream = _decompressed(file)
        with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Member, bufsize=_CHUNK_BYTES) as tar:
            while (member := tar.next()) is not None:
                tar.members.clear()  # type: ignore[attr-defined]  # tarfile remembers all of them
                progress(file.tell())
                if not member.isreg() or not is_wanted(member.name):
                    continue
                if member.size > MOST_BYTES_AT_ONCE:
                    raise DataError(f"{archive}: member {member.name!r} has {member.size:,} bytes; refused")
                content = tar.extractfile(member)
                assert content is not None, "a plain file has content"
                yield member.name, content.read()
            _check_end(archive, tar)


@contextlib.contextmanager
def _naming(archive: Path, what: str) -> Iterator[None]:
    """Turn every error that a damaged archive causes into a DataError that names it."""
    try:
        yield
    except DataError:
        raise
    except (
        zipfile.BadZipFile,
        tarfile.TarError,
        EOFError,
        zlib.error,
        lzma.LZMAError,
        OSError,
        RuntimeError,
        ValueError,
        LookupError,
        ArithmeticError,
        struct.error,
    ) as error:
        raise DataError(f"{archive}: {what} ({brief(error)})") from None


def _safe(archive: Path, name: str) -> PurePosixPath:
    """Return a member's relative path, or raise DataError if it leads out of the folder."""
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or ":" in name or "\0" in name:
        raise DataError(f"{archive}: member {name!r} would leave the folder; refused")
    return path


def _zip_members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    with zipfile.ZipFile(archive) as file:
        for member in file.infolist():
            kind = stat.S_IFMT(member.external_attr >> 16)  # 0 if the archive was not made on Unix
            if member.is_dir():
                _safe(archive, member.filename)
                continue
            if kind not in (0, stat.S_IFREG):
                raise DataError(f"{archive}: member {member.filename!r} is a link or device; refused")
            yield member.filename, file.open(member)


class _Member(tarfile.TarInfo):
    """A tar's member whose header must be whole: tarfile takes any damaged one but the first for the archive's end."""

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> Self:
        try:
            return super().fromtarfile(archive)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]  # the mark of the end, blocks of zeros
            raise
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(f"a member's header is damaged or missing: {error}") from None


def _tar_members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    with archive.open("rb") as file:
        stream = _decompressed(file)
        with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Member) as tar:  # "r|": a stream, in the order of members
            for member in tar:
                if member.isdir():
                    _safe(archive, member.name)
                    continue
                content = tar.extractfile(member) if member.isreg() else None
                if content is None:
                    raise DataError(f"{archive}: member {member.name!r} is a link or device; refused")
                yield member.name, content
            _check_end(archive, tar)


def _check_end(archive: Path, tar: tarfile.TarFile) -> None:
    """Read what follows the last member, to the checksum of compressed bytes. Raises DataError if it is not padding."""
    padding = 0
    while rest := tar.fileobj.read(_CHUNK_BYTES):
        padding += len(rest)
        if rest.strip(b"\0") or padding > _MOST_PADDING:
            raise DataError(f"{archive}: damaged archive: something follows the mark of its end")


def _decompressed(file: BinaryIO) -> IO[bytes]:
    """Return the content of a file, decompressed as its first bytes say."""
    beginning = file.read(6)
    file.seek(0)
    for mark, opened in ((b"\x1f\x8b", gzip.open), (b"BZh", bz2.open), (b"\xfd7zXZ\0", lzma.open)):
        if beginning.startswith(mark):
            return cast("IO[bytes]", opened(file, "rb"))
    return file

"""Write and open prepared folders; a folder is written whole or not at all.

A preparation fills a temporary folder beside the final one, flushes it to the disk, writes `manifest.json` last, and
renames the folder to its final name, all under a file lock. So a folder with a manifest is complete. A killed
preparation leaves only a temporary folder, which the next one removes. Two processes that prepare the same set do the
work once.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np

from runner.data.shared.family import FAMILIES, family_of
from runner.data.shared.manifests import FORMAT_VERSION, Dataset, Manifest, combine
from runner.data.shared.places import damaged, prepared_dir
from runner.data.shared.verify import MANIFEST, remember, verified
from runner.errors import ConfigError, DataError, DataNotPrepared
from runner.machine.disk import sync, writing
from runner.options.conversion import convert

READ_ANEW = "read anew"  # a setting of kinds of files that are read otherwise than before, so they are prepared again
SomeDataset = TypeVar("SomeDataset", bound=Dataset)


# ---- writing ----


class ColumnWriter:
    """Write a .npy file whose length is known only at the end; entries are numbers, or rows of `width` numbers."""

    def __init__(self, path: Path, dtype: str, *width: int) -> None:
        self.path, self.dtype, self.length, self.width = path, np.dtype(dtype), 0, width
        self.digest = hashlib.sha256()
        self.file: BinaryIO = path.open("wb")
        self._write_header()
        self.header_size = self.file.tell()

    def _write_header(self) -> None:
        shape = {"descr": self.dtype.str, "fortran_order": False, "shape": (self.length, *self.width)}
        np.lib.format.write_array_header_1_0(self.file, shape)

    def append(self, array: np.ndarray) -> None:
        """Write the array's entries after those written before."""
        data = np.ascontiguousarray(array, dtype=self.dtype)
        self.digest.update(data.data)
        with writing(self.path):
            self.file.write(data.data)
        self.length += len(data)

    def finish(self) -> str:
        """Complete the file and return the sha256 of its entries. Raises DataError if its header cannot be written."""
        with writing(self.path):
            self.file.seek(0)
            self._write_header()
            if self.file.tell() != self.header_size:  # NumPy pads the header so that a longer shape still fits
                raise DataError(f"{self.path}: cannot write the array header in place")
            self.file.close()
        return self.digest.hexdigest()


def write_column(path: Path, dtype: str, array: np.ndarray) -> str:
    """Write a whole array to a .npy file and return the sha256 of its entries."""
    column = ColumnWriter(path, dtype)
    with column.file:
        column.append(array)
        return column.finish()


def fill_folder(final: Path, fill: Callable[[Path], Manifest], *, force: bool = False) -> Manifest:
    """Run `fill` on a temporary folder and move that folder to `final`; return the manifest.

    A finished `final` is reused unless `force` is set. An error of `fill` is raised again, and nothing is left behind;
    an OSError names the folder or a file in it.
    """
    final.parent.mkdir(parents=True, exist_ok=True)
    old = final.parent / f".{final.name}.old.tmp"
    with writing(final, keeps_names=True), _locked(final):
        if old.exists() and not final.exists():  # a forced preparation was killed between its two renames
            old.rename(final)
        for stale in final.parent.glob(f".{final.name}.*.tmp"):  # left by a killed preparation
            shutil.rmtree(stale)
        if not force and (done := read_manifest(final)) is not None:
            return done
        temporary = final.parent / f".{final.name}.{os.getpid()}.tmp"
        temporary.mkdir()
        try:
            manifest = fill(temporary)
            for path in sorted(temporary.iterdir()):
                sync(path)
            (temporary / MANIFEST).write_text(json.dumps(asdict(manifest), indent=1) + "\n")
            remember(temporary)
            sync(temporary / MANIFEST)
            sync(temporary)
            _take_name(temporary, final, old)
            sync(final.parent)
            shutil.rmtree(old, ignore_errors=True)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        return manifest


def _take_name(temporary: Path, final: Path, old: Path) -> None:
    """Give the temporary folder its final name; a folder that had it is called ``old`` then."""
    if final.exists():
        final.rename(old)
    try:
        temporary.rename(final)
    except OSError:
        if old.exists():
            old.rename(final)
        raise


def read_manifest(folder: Path) -> Manifest | None:
    """Return the manifest of a finished preparation, or None if there is none in the current format.

    Raises DataError if the manifest is damaged.
    """
    path = folder / MANIFEST
    try:
        raw: Any = json.loads(path.read_bytes().decode())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise damaged(path, f"it is not a manifest ({str(error) or type(error).__name__})") from None
    if not isinstance(raw, dict):
        raise damaged(path, "it is not a manifest, which is a JSON object")
    if raw.get("format_version") != FORMAT_VERSION:
        return None
    family = raw.get("family", "rows")
    if not isinstance(family, str) or family not in FAMILIES:
        raise damaged(path, f"family {family!r} is unknown")
    kind = family_of(family).manifest
    missing = {field.name for field in fields(kind)} ^ raw.keys()
    if missing:
        raise damaged(path, f"keys {sorted(missing)} are missing or unknown")
    try:
        return convert(kind, raw, "")
    except ConfigError as error:
        raise damaged(path, str(error)) from None


# ---- opening ----


def load_dataset(folder: Path, *, how_to_get: str = "") -> Dataset:
    """Open a prepared folder.

    Raises DataNotPrepared, with the message `how_to_get`, if there is no manifest; DataError if a file is not as the
    manifest says.
    """
    manifest = read_manifest(folder)
    if manifest is None:
        raise DataNotPrepared(how_to_get or f"{folder}: not prepared")
    with verified(folder, manifest):
        return manifest.open(folder)


def load(folder: Path, kind: type[SomeDataset]) -> SomeDataset:
    """Open a prepared folder that is known to hold data of a kind."""
    dataset = load_dataset(folder)
    assert isinstance(dataset, kind)
    return dataset


def load_own(
    place: str,
    kind: type[SomeDataset],
    name: str,
    fill: Callable[[Path], Manifest],
    files: Mapping[str, Path],
    *settings: object,
    says: Path | None = None,
) -> SomeDataset:
    """Open a user's data under a name, after `fill` has prepared them; the same files are prepared once.

    `place`: where such data are prepared. `settings`: what the preparation depends on besides the files, of which path,
    size and time count. `says`: what the data are called while they are prepared, the first file by default.
    """
    stats = {field: file.stat() for field, file in files.items()}
    seen = (f"{files[field]} {at.st_size} {at.st_mtime_ns}" for field, at in stats.items())
    key = combine(*seen, *settings)[:16]
    what = says or next(iter(files.values()))
    return load_once_filled(prepared_dir(place, key), kind, name, fill, says=f"preparing {what}")


def load_once_filled(
    folder: Path, kind: type[SomeDataset], name: str, fill: Callable[[Path], Manifest], *, says: str
) -> SomeDataset:
    """Open a folder under a name, after `fill` has filled it; what was filled before is only opened.

    `says`: what is done to the data, printed on standard error before it is done.
    """

    def fill_once(temporary: Path) -> Manifest:
        print(f"{says} (once)", file=sys.stderr)
        return fill(temporary)

    fill_folder(folder, fill_once)
    return replace(load(folder, kind), name=name)


@contextlib.contextmanager
def _locked(final: Path) -> Iterator[None]:
    """Hold the lock of a prepared folder; wait, with a message, while another process holds it."""
    with (final.parent / f".{final.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting for another process that is preparing {final}", file=sys.stderr)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield

"""Keep arrays in a folder, with a manifest that tells whole arrays from damaged ones.

FOLDER/
    <name>.npy    an array
    shard-...     rows of arrays that several processes hold together (``split_arrays``)
    state.json    the manifest, written last: run id, step, and size, type, shape and checksum of every array

The manifest has a checksum of itself. CRC-32 finds what disks and copies do to files, and reads several gigabytes in a
second, so that it costs little beside the writing.
"""

import io
import json
import os
import shutil
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from runner.errors import DamagedRun
from runner.machine.disk import sync, writing
from runner.output.across import ALONE, Across
from runner.output.part import Part
from runner.training.files import read_json
from runner.training.split_arrays import read_parts, write_parts

MANIFEST = "state.json"
_LENGTH = slice(8, 10)  # where an npy file of version 1.0 says how long the header is that follows


@dataclass(frozen=True, kw_only=True)
class StoredArrays:
    """Hold what a folder keeps: arrays by name, the step that they belong to, and other values of the same step."""

    step: int
    arrays: dict[str, Any]
    state: dict[str, Any]


def save_arrays(
    target: Path,
    *,
    run_id: str,
    step: int,
    arrays: Mapping[str, np.ndarray | Part],
    state: Mapping[str, Any],
    across: Across = ALONE,
) -> None:
    """Write a folder, replacing one that is there; it has its name only when all of it is on the disk.

    All of ``across`` call it together: each writes the rows that it holds, and the first all else.

    Raises OSError, which names the file, if the disk is full or fails; what was there before is left.
    """
    parts = {name: array for name, array in arrays.items() if isinstance(array, Part)}
    if not across.leads:
        across.wait()
        write_parts(_partial_of(target), parts, across)
        across.wait()
        return
    with replacement(target) as partial:
        entries, split = {}, {}
        if across.size > 1:
            across.wait()
            split = {"split": write_parts(partial, parts, across)}
        for name, array in arrays.items():
            if isinstance(array, Part):
                continue
            path = partial / f"{name}.npy"
            with writing(target / path.name), open(path, "wb") as file:
                entries[name] = _write_array(file, array)
        body = {"run_id": run_id, "step": step, "arrays": entries, **split, "state": dict(state)}
        (partial / MANIFEST).write_text(json.dumps({**body, "checksum": _checksum_of(body)}))
    across.wait()


@contextmanager
def replacement(target: Path) -> Iterator[Path]:
    """Give an empty folder to fill, which takes the place of ``target`` once all its files are on the disk.

    An error leaves what was there before. A kill between the two renames leaves no ``target``; ``complete`` mends that.
    """
    partial, old = _partial_of(target), _deleted_of(target)
    with writing(target):
        for left in (partial, old):
            shutil.rmtree(left, ignore_errors=True)
        partial.mkdir(parents=True)
        try:
            yield partial
            for written in sorted(partial.iterdir()):
                sync(written)
            sync(partial)
            if target.exists():
                sync(target.parent)  # or a power cut could leave neither
                _lose_name(target)
            try:
                os.rename(partial, target)
            except BaseException:
                if old.exists():
                    os.rename(old, target)
                raise
            sync(target.parent)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)  # it takes space that may be wanted
            raise
    shutil.rmtree(old, ignore_errors=True)


def complete(place: Path) -> None:
    """Finish replacements of stored arrays in a folder that were killed between their two renames."""
    for old in place.glob(".*-deleted"):
        target = place / old.name.removeprefix(".").removesuffix("-deleted")
        if not target.exists() and (_partial_of(target) / MANIFEST).exists():
            with writing(target):
                os.rename(_partial_of(target), target)


def discard(folder: Path) -> None:
    """Delete a folder, which loses its name first: a kill half-way leaves nothing that looks like a whole one."""
    with writing(folder):
        _lose_name(folder)
    shutil.rmtree(_deleted_of(folder), ignore_errors=True)


def _lose_name(folder: Path) -> None:
    shutil.rmtree(_deleted_of(folder), ignore_errors=True)
    if folder.exists():
        os.rename(folder, _deleted_of(folder))


def _partial_of(folder: Path) -> Path:
    return folder.parent / f".{folder.name}-partial"


def _deleted_of(folder: Path) -> Path:
    return folder.parent / f".{folder.name}-deleted"


def load_arrays(folder: Path, *, run_id: str, across: Across = ALONE) -> StoredArrays:
    """Return what ``save_arrays`` wrote for this run. Raises DamagedRun, which names the file, if anything differs.

    Of the header of an array only its length is read, so nothing can be unpickled.
    """
    path = folder / MANIFEST
    body = read_json(path)
    if body is None:
        raise DamagedRun(path, "it is missing")
    if "checksum" not in body:
        raise DamagedRun(path, "it has no checksum, so that it may be of an earlier version of the runner")
    if body.pop("checksum") != _checksum_of(body):
        raise DamagedRun(path, "its content does not have its checksum")
    try:
        if body["run_id"] != run_id:
            raise DamagedRun(path, f"it is of another run, {body['run_id']}")
        if isinstance(body["step"], bool) or not isinstance(body["step"], int) or body["step"] < 0:
            raise DamagedRun(path, f"its step is {str(body['step'])[:40]!r}")
        if not isinstance(body["state"], dict):
            raise DamagedRun(path, "its state is of a wrong kind")
        arrays: dict[str, Any] = {
            name: _read_array(folder / f"{name}.npy", entry) for name, entry in body["arrays"].items()
        }
        if "split" in body:
            arrays |= read_parts(folder, body["split"], across)
        return StoredArrays(step=body["step"], arrays=arrays, state=body["state"])
    except (KeyError, TypeError, ValueError, AttributeError):
        raise DamagedRun(path, "it is no manifest of arrays") from None


@contextmanager
def fitting(path: Path) -> Iterator[None]:
    """Turn an error of code that takes stored arrays into DamagedRun: they may be of another version of the runner."""
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise DamagedRun(path, f"its arrays do not fit this version ({type(error).__name__}: {error})") from None


def _checksum_of(body: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(body, sort_keys=True).encode())


def _write_array(file: BinaryIO, array: np.ndarray) -> dict[str, Any]:
    """Write an array as ``np.save`` does; return its entry in the manifest. The checksum is that of the whole file."""
    array = np.asarray(array, order="C")
    if array.dtype.hasobject:
        raise TypeError("arrays of objects would have to be pickled")
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, np.lib.format.header_data_from_array_1_0(array))
    data = array.reshape(-1).view(np.uint8).data
    file.write(header.getbuffer())
    file.write(data)
    return {
        "bytes": header.tell() + data.nbytes,
        "dtype": array.dtype.str,
        "shape": list(array.shape),
        "crc32": zlib.crc32(data, zlib.crc32(header.getbuffer())),
    }


def _read_array(path: Path, entry: Mapping[str, Any]) -> np.ndarray:
    if not path.is_file():
        raise DamagedRun(path, "it is missing")
    if path.stat().st_size != entry["bytes"]:
        raise DamagedRun(path, f"it has {path.stat().st_size:,} bytes instead of {entry['bytes']:,}")
    content = np.fromfile(path, dtype=np.uint8)
    if zlib.crc32(content.data) != entry["crc32"]:
        raise DamagedRun(path, "its content does not have its checksum")
    start = _LENGTH.stop + int.from_bytes(content[_LENGTH].tobytes(), "little")
    return content[start:].view(np.dtype(entry["dtype"])).reshape(entry["shape"])

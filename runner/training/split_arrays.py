"""Write and read arrays whose rows lie in several processes, by torch.distributed.checkpoint.

FOLDER/
    shard-<rank + 1>-model-...safetensors    the rows that a rank held, and where they belong

The files are of the format safetensors, which holds no code. The manifest of the folder (``stored_arrays``) has the
size and checksum of each, and type and shape of each array. Any number of processes reads them, one included.
"""

import warnings
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from runner.errors import DamagedRun
from runner.machine.disk import sync, writing
from runner.output.across import Across, block_of
from runner.output.part import Part

_AT_ONCE = 2**24  # bytes


def write_parts(folder: Path, parts: Mapping[str, Part], across: Across) -> dict[str, Any]:
    """Write what this rank holds into a folder that all ranks write to; return the manifest's entries.

    ``arrays``: type and shape of each array. ``files``: size and checksum of each file, of rank 0 only.
    Raises OSError.
    """
    import torch.distributed.checkpoint as dcp

    with writing(folder), _quiet():
        try:
            dcp.save(
                {name: _distributed(part, across) for name, part in parts.items()},
                storage_writer=dcp.HuggingFaceStorageWriter(str(folder), save_distributed=True),
            )
        except dcp.api.CheckpointException as error:
            rank, (why, _) = next(iter(error.failures.items()))
            raise OSError(getattr(why, "errno", None), f"rank {rank}: {why}", str(folder)) from None
    own = _file_of(folder, across.place)
    sync(own)
    sizes = across.gather(np.array([own.stat().st_size, _checksum(own)], dtype=np.int64))
    files = {
        _file_of(folder, place).name: {"bytes": int(size), "crc32": int(checksum)}
        for place, (size, checksum) in enumerate(sizes)
    }
    arrays = {
        name: {"dtype": part.rows.dtype.str, "shape": [part.num_rows, *part.rows.shape[1:]]}
        for name, part in parts.items()
    }
    return {"arrays": arrays, "files": files}


def read_parts(folder: Path, entries: Mapping[str, Any], across: Across) -> dict[str, np.ndarray | Part]:
    """Return what ``write_parts`` wrote: the rows that this process holds as ``Part``, or all if it is the only one.

    Raises DamagedRun, on every rank, if a file is missing or is not as it was written.
    """
    _check(folder, entries["files"], across)
    empty: dict[str, Part] = {}
    for name, entry in entries["arrays"].items():
        total, *more = entry["shape"]
        lo, hi = block_of(total, across.place, across.size)
        empty[name] = Part(rows=np.empty((hi - lo, *more), dtype=np.dtype(entry["dtype"])), lo=lo, num_rows=total)
    import torch.distributed.checkpoint as dcp

    with _quiet():
        dcp.load(
            {name: _distributed(part, across) for name, part in empty.items()},
            storage_reader=dcp.HuggingFaceStorageReader(str(folder)),
            no_dist=across.size == 1,
        )
    if across.size == 1:
        return {name: part.rows for name, part in empty.items()}
    return dict(empty)


def _distributed(part: Part, across: Across) -> Any:
    """Return a tensor over the memory of a part, which knows the whole."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard

    held = torch.from_numpy(part.rows)
    if across.size == 1:
        return held
    shape = torch.Size([part.num_rows, *part.rows.shape[1:]])
    mesh = init_device_mesh("cpu", (across.size,))
    stride = torch.empty(shape, device="meta").stride()
    return DTensor.from_local(held, mesh, [Shard(0)], run_check=False, shape=shape, stride=stride)


def _file_of(folder: Path, place: int) -> Path:
    found = [*folder.glob(f"shard-{place + 1:05d}-*.safetensors")]
    return found[0] if found else folder / f"shard-{place + 1:05d}-model-00001-of-00001.safetensors"


def _checksum(path: Path) -> int:
    checksum = 0
    with open(path, "rb") as file:
        while piece := file.read(_AT_ONCE):
            checksum = zlib.crc32(piece, checksum)
    return checksum


def _check(folder: Path, files: Mapping[str, Mapping[str, int]], across: Across) -> None:
    """Let every rank check some of the files, and raise DamagedRun on all of them for the first that is not whole."""
    problem_X = np.zeros(len(files), dtype=np.int64)
    for number, (name, entry) in enumerate(files.items()):
        if number % across.size != across.place:
            continue
        path = folder / name
        if not path.is_file():
            problem_X[number] = 1
        elif path.stat().st_size != entry["bytes"]:
            problem_X[number] = 2
        elif _checksum(path) != entry["crc32"]:
            problem_X[number] = 3
    problem_X = across.max(problem_X)
    for name, problem in zip(files, problem_X.tolist(), strict=True):
        if problem:
            raise DamagedRun(folder / name, _PROBLEMS[problem])


_PROBLEMS = ["", "it is missing", "it does not have its size", "its content does not have its checksum"]


@contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says which of its functions will change
        yield

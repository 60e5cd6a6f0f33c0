"""Keep weights in a file of the format safetensors, which other programs read, with a checksum among its remarks."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from runner.errors import DamagedRun, RunnerError

SAFETENSORS = "weights.safetensors"
_MISSING = "safetensors is not installed: pip install '.[export]'"


def save_safetensors(folder: Path, *, run_id: str, step: int, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays to a folder's file. Raises RunnerError without the library."""
    try:
        from safetensors.numpy import save_file
    except ImportError:
        raise RunnerError(_MISSING) from None
    whole = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    remarks = {"run_id": run_id, "step": str(step), "sha256": _digest(whole)}
    save_file(whole, folder / SAFETENSORS, metadata=remarks)
    (folder / SAFETENSORS).chmod(0o644)  # as all other files of the folder


def load_safetensors(path: Path, *, run_id: str) -> tuple[dict[str, np.ndarray], int]:
    """Return the arrays of a run and their step. Raises DamagedRun, and RunnerError without the library."""
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError:
        raise RunnerError(f"{path}: {_MISSING}") from None
    try:
        with safe_open(path, framework="numpy") as file:
            remarks = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  it is no mapping
        step = int(remarks["step"])
    except (SafetensorError, OSError, KeyError, ValueError, TypeError) as error:
        raise DamagedRun(path, f"it cannot be read ({' '.join(str(error).split())[:100]})") from None
    if remarks.get("run_id") != run_id:
        raise DamagedRun(path, f"it is of another run, {remarks.get('run_id')}")
    if remarks.get("sha256") != _digest(arrays):
        raise DamagedRun(path, "its content does not have its checksum")
    return arrays, step


def _digest(arrays: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype.str} {arrays[name].shape}\n".encode())
        digest.update(np.ascontiguousarray(arrays[name]).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()

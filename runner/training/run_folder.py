"""The run folder: everything one run leaves behind, written so that a kill at any moment loses nothing.

<results_dir>/runs/<run_id>/
    config.yaml       the resolved settings
    provenance.json   commit, command, versions, threads, machine, data checksum
    metrics.jsonl     observations, one JSON object a line
    summary.json      status and final numbers; replaced atomically
    checkpoint/       step-<n>/ with arrays and state.json; renamed into place when whole
    best/             weights of the best validation so far; gone when the run is finished
    weights/          of a finished run, where they were to be kept: arrays and state.json
    diagnostics*/     what ``python -m runner.diagnose`` made of them
"""

import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from runner import REPOSITORY
from runner.config import to_run_config
from runner.errors import RunLocked, RunnerError
from runner.settings import RunConfig


def write_atomically(path: Path, text: str) -> None:
    """Replace a file so that a reader sees the old text or the new, never a part."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(handle, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.chmod(name, 0o644)
    os.replace(name, path)


def _sync(path: Path) -> None:
    """fsync a file or the entries of a folder."""
    handle = os.open(path, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)


def _save_arrays(target: Path, arrays: Mapping[str, np.ndarray], state: Mapping[str, Any]) -> None:
    """Write a folder of arrays and state.json beside ``target``, which must not exist, and rename it when whole."""
    partial = target.parent / f".{target.name}-partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    for name, array in arrays.items():
        np.save(partial / f"{name}.npy", array)
    (partial / "state.json").write_text(json.dumps(state))
    # Data must be on disk before the name that promises it is.
    for file in partial.iterdir():
        _sync(file)
    os.rename(partial, target)
    _sync(target.parent)


def _load_arrays(folder: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    state = json.loads((folder / "state.json").read_text())
    return {file.stem: np.load(file) for file in folder.glob("*.npy")}, state


def read_json(path: Path) -> dict[str, Any] | None:
    """The file's object, or None when it is not there."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return None


@dataclass(frozen=True, kw_only=True)
class KeptWeights:
    """Weights as of the end of ``step``. ``progress``: of the run then, where they are a checkpoint's."""

    arrays: dict[str, np.ndarray]
    step: int
    progress: dict[str, Any] | None


class RunFolder:
    """Reads and writes one run's files; holds its lock while a run is in progress."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metrics_path = path / "metrics.jsonl"
        self._checkpoints = path / "checkpoint"
        self._weights = path / "weights"
        self._best = path / "best"

    # ------------------------------------------------------------ life of a run

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder for this process; RunLocked when another process has it."""
        self.path.mkdir(parents=True, exist_ok=True)
        with open(self.path / ".lock", "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RunLocked(f"another process is running {self.path}; wait for it or stop it") from None
            yield

    def summary(self) -> dict[str, Any] | None:
        return read_json(self.path / "summary.json")

    def provenance(self) -> dict[str, Any]:
        return read_json(self.path / "provenance.json") or {}

    def is_finished(self) -> bool:
        return (self.summary() or {}).get("status") == "finished"

    def start(self, config: RunConfig) -> None:
        """Write config.yaml for a run about to start or resume."""
        write_atomically(self.path / "config.yaml", yaml.safe_dump(config.as_dict(), sort_keys=False))

    def clear(self) -> None:
        """Forget an earlier run of the same configuration."""
        for name in ("summary.json", "metrics.jsonl", "provenance.json"):
            (self.path / name).unlink(missing_ok=True)
        self.drop_checkpoint()
        for folder in (self._weights, self._best, *self.path.glob("diagnostics*")):
            shutil.rmtree(folder, ignore_errors=True)

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        write_atomically(self.path / "summary.json", json.dumps(summary, indent=1) + "\n")

    def write_provenance(self, provenance: Mapping[str, Any], *, resumed: bool) -> None:
        """Replace provenance.json; when a run resumes, what it said of earlier attempts is kept in a list."""
        if resumed and (before := self.provenance()):
            earlier = before.pop("earlier_attempts", [])
            provenance = {**provenance, "earlier_attempts": [*earlier, before]}
        write_atomically(self.path / "provenance.json", json.dumps(provenance, indent=1) + "\n")

    # ------------------------------------------------------------ observations

    def observe(self, record: Mapping[str, Any]) -> None:
        """Append one observation to metrics.jsonl."""
        with open(self.metrics_path, "a") as file:
            file.write(json.dumps(record) + "\n")

    def observations(self) -> list[dict[str, Any]]:
        if not self.metrics_path.exists():
            return []
        return [json.loads(line) for line in self.metrics_path.read_text().splitlines()]

    # ------------------------------------------------------------ checkpoints

    def save_checkpoint(self, step: int, arrays: Mapping[str, np.ndarray], progress: Mapping[str, Any]) -> None:
        """Write a whole checkpoint beside the old one, rename it into place, then drop the old one."""
        target = self._checkpoints / f"step-{step:09d}"
        if target.exists():
            return
        offset = self.metrics_path.stat().st_size if self.metrics_path.exists() else 0
        _save_arrays(target, arrays, {"step": step, "metrics_bytes": offset, "progress": progress})
        for old in self._checkpoints.iterdir():
            if old != target:
                shutil.rmtree(old, ignore_errors=True)

    def load_checkpoint(self) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
        """Return arrays and progress of the newest whole checkpoint; observations made after it are dropped."""
        found = sorted(self._checkpoints.glob("step-*/state.json"))
        if not found:
            return None
        arrays, state = _load_arrays(found[-1].parent)
        if self.metrics_path.exists():
            os.truncate(self.metrics_path, state["metrics_bytes"])
        return arrays, state.get("progress", {})

    def save_weights(self, step: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Keep the final weights; those of an earlier attempt at finishing are replaced."""
        shutil.rmtree(self._weights, ignore_errors=True)
        _save_arrays(self._weights, arrays, {"step": step})

    def load_weights(self) -> KeptWeights | None:
        """Return the final weights, those of the newest checkpoint before the end, or None."""
        folders = [self._weights] if self.has_weights else sorted(self._checkpoints.glob("step-*"))
        if not any((folder / "state.json").exists() for folder in folders):
            return None
        arrays, state = _load_arrays(folders[-1])
        return KeptWeights(arrays=arrays, step=int(state["step"]), progress=state.get("progress"))

    def save_best(self, step: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Keep these weights in place of those that were the best before."""
        shutil.rmtree(self._best, ignore_errors=True)
        _save_arrays(self._best, arrays, {"step": step})

    def load_best(self) -> dict[str, np.ndarray]:
        """The weights that ``save_best`` kept last."""
        return _load_arrays(self._best)[0]

    def drop_best(self) -> None:
        shutil.rmtree(self._best, ignore_errors=True)

    @property
    def has_weights(self) -> bool:
        return (self._weights / "state.json").exists()

    def diagnostics_path(self, name: str = "") -> Path:
        """Where ``python -m runner.diagnose --name NAME`` writes."""
        return self.path / (f"diagnostics-{name}" if name else "diagnostics")

    @property
    def has_checkpoint(self) -> bool:
        return any(self._checkpoints.glob("step-*/state.json"))

    def drop_checkpoint(self) -> None:
        """Delete all checkpoints; renamed first, so that a kill half-way leaves none that looks whole."""
        doomed = self.path / ".checkpoint-deleted"
        shutil.rmtree(doomed, ignore_errors=True)
        if self._checkpoints.exists():
            os.rename(self._checkpoints, doomed)
        shutil.rmtree(doomed, ignore_errors=True)


def run_with_weights(path: Path) -> RunFolder:
    """The folder, if it is one of a run that has a checkpoint or, finished, kept its weights; RunnerError if not."""
    folder = RunFolder(path.expanduser().absolute())
    summary = folder.summary() if folder.path.is_dir() else None
    if summary is None:
        raise RunnerError(f"{path} is no run folder: it has no summary.json; 'python -m runner' prints the one it made")
    if not (folder.is_finished() or folder.has_checkpoint):
        raise RunnerError(f"{path}: the run is '{summary['status']}' and left no checkpoint; give its command again")
    if not (folder.has_weights or folder.has_checkpoint):
        raise RunnerError(
            f"{path}: the run's weights were not kept (they are if they take at most 64 MB); "
            "give its command again with force=true keep_weights=true"
        )
    return folder


def config_of(folder: RunFolder) -> RunConfig:
    """The configuration that a run folder was made by."""
    return to_run_config(yaml.safe_load((folder.path / "config.yaml").read_text()))


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(REPOSITORY), *arguments],
            capture_output=True,
            text=True,
            check=True,
            timeout=20,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _gpu_name() -> str | None:
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else None


def provenance(config: RunConfig, threads: int, data_checksum: str) -> dict[str, Any]:
    """Where the numbers come from. ``patch`` is the hash of uncommitted changes, null when there are none."""
    patch = _git("diff", "HEAD")
    packages = ("torch", "numpy", "numba", "hydra-core", "omegaconf", "scikit-learn")
    return {
        "commit": (_git("rev-parse", "HEAD") or "").strip() or None,
        "patch": hashlib.sha256(patch.encode()).hexdigest()[:16] if patch else None,
        "command": " ".join(sys.argv),
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in packages},
        "threads": threads,
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "gpu": _gpu_name() if config.hardware.name == "gpu" else None,
        "load_average_at_start": os.getloadavg()[0],
        "platform": platform.platform(),
        "data_checksum": data_checksum,
        "run_id": config.run_id,
    }

"""Read and write a run folder: all results of one run, written so that a kill at any moment loses nothing.

<results_dir>/runs/<run_id>/
    config.yaml       the resolved settings
    provenance.json   commit, command, versions, threads, machine, data checksum
    metrics.jsonl     observations, one JSON object per line
    summary.json      status and final numbers; it is replaced atomically
    checkpoint/       step-<n>/ with arrays and state.json, renamed to this name when it is complete
    best/             weights of the best validation so far; deleted at the end of the run
    weights/          final weights, if they are kept: arrays and state.json
    diagnostics*/     results of ``python -m runner.diagnose``
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
    """Replace a file so that a reader sees the old text or the new one, never a part."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(handle, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.chmod(name, 0o644)
    os.replace(name, path)


def _sync(path: Path) -> None:
    """Flush a file, or the entries of a folder, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)


def _save_arrays(target: Path, arrays: Mapping[str, np.ndarray], state: Mapping[str, Any]) -> None:
    """Write arrays and state.json to a temporary folder and rename it to ``target``, which must not exist."""
    partial = target.parent / f".{target.name}-partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    for name, array in arrays.items():
        np.save(partial / f"{name}.npy", array)
    (partial / "state.json").write_text(json.dumps(state))
    # The data must be on the disk before the folder has its final name.
    for file in partial.iterdir():
        _sync(file)
    os.rename(partial, target)
    _sync(target.parent)


def _load_arrays(folder: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    state = json.loads((folder / "state.json").read_text())
    return {file.stem: np.load(file) for file in folder.glob("*.npy")}, state


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the object in a JSON file, or None if there is no such file."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return None


@dataclass(frozen=True, kw_only=True)
class KeptWeights:
    """Hold the weights of a run after ``step``. ``progress``: the run's progress if they come from a checkpoint."""

    arrays: dict[str, np.ndarray]
    step: int
    progress: dict[str, Any] | None


class RunFolder:
    """Read and write the files of one run; hold its lock while the run is in progress."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metrics_path = path / "metrics.jsonl"
        self._checkpoints = path / "checkpoint"
        self._weights = path / "weights"
        self._best = path / "best"

    # ------------------------------------------------------------ life of a run

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder for this process. Raises RunLocked if another process holds the lock."""
        self.path.mkdir(parents=True, exist_ok=True)
        with open(self.path / ".lock", "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RunLocked(f"another process is running {self.path}; wait for it or stop it") from None
            yield

    def summary(self) -> dict[str, Any] | None:
        """Return summary.json, or None if there is none."""
        return read_json(self.path / "summary.json")

    def provenance(self) -> dict[str, Any]:
        """Return provenance.json, or an empty dict if there is none."""
        return read_json(self.path / "provenance.json") or {}

    def is_finished(self) -> bool:
        """Return whether the run is finished."""
        return (self.summary() or {}).get("status") == "finished"

    def start(self, config: RunConfig) -> None:
        """Write config.yaml of a run that starts or resumes."""
        write_atomically(self.path / "config.yaml", yaml.safe_dump(config.as_dict(), sort_keys=False))

    def clear(self) -> None:
        """Delete the results of an earlier run of the same configuration."""
        for name in ("summary.json", "metrics.jsonl", "provenance.json"):
            (self.path / name).unlink(missing_ok=True)
        self.drop_checkpoint()
        for folder in (self._weights, self._best, *self.path.glob("diagnostics*")):
            shutil.rmtree(folder, ignore_errors=True)

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Replace summary.json."""
        write_atomically(self.path / "summary.json", json.dumps(summary, indent=1) + "\n")

    def write_provenance(self, provenance: Mapping[str, Any], *, resumed: bool) -> None:
        """Replace provenance.json; if the run resumes, earlier attempts are kept in the list ``earlier_attempts``."""
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
        """Return all observations of metrics.jsonl in their order."""
        if not self.metrics_path.exists():
            return []
        return [json.loads(line) for line in self.metrics_path.read_text().splitlines()]

    # ------------------------------------------------------------ checkpoints

    def save_checkpoint(self, step: int, arrays: Mapping[str, np.ndarray], progress: Mapping[str, Any]) -> None:
        """Write a complete new checkpoint, then delete the old one."""
        target = self._checkpoints / f"step-{step:09d}"
        if target.exists():
            return
        offset = 0
        if self.metrics_path.exists():
            _sync(self.metrics_path)  # the checkpoint counts on the observations before it
            offset = self.metrics_path.stat().st_size
        _save_arrays(target, arrays, {"step": step, "metrics_bytes": offset, "progress": progress})
        for old in self._checkpoints.iterdir():
            if old != target:
                shutil.rmtree(old, ignore_errors=True)

    def load_checkpoint(self) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
        """Return arrays and progress of the newest complete checkpoint, or None; delete observations made after it."""
        found = sorted(self._checkpoints.glob("step-*/state.json"))
        if not found:
            return None
        arrays, state = _load_arrays(found[-1].parent)
        if self.metrics_path.exists():
            os.truncate(self.metrics_path, state["metrics_bytes"])
        return arrays, state.get("progress", {})

    def save_weights(self, step: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Write the final weights; those of an earlier attempt to finish are replaced."""
        shutil.rmtree(self._weights, ignore_errors=True)
        _save_arrays(self._weights, arrays, {"step": step})

    def load_weights(self) -> KeptWeights | None:
        """Return the final weights or, before the end of the run, those of the newest checkpoint; None without any."""
        folders = [self._weights] if self.has_weights else sorted(self._checkpoints.glob("step-*"))
        if not any((folder / "state.json").exists() for folder in folders):
            return None
        arrays, state = _load_arrays(folders[-1])
        return KeptWeights(arrays=arrays, step=int(state["step"]), progress=state.get("progress"))

    def save_best(self, step: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Replace the weights of the best validation so far."""
        shutil.rmtree(self._best, ignore_errors=True)
        _save_arrays(self._best, arrays, {"step": step})

    def load_best(self) -> dict[str, np.ndarray]:
        """Return the weights that ``save_best`` wrote last."""
        return _load_arrays(self._best)[0]

    def drop_best(self) -> None:
        """Delete the weights of the best validation."""
        shutil.rmtree(self._best, ignore_errors=True)

    @property
    def has_weights(self) -> bool:
        """Tell whether the final weights were kept."""
        return (self._weights / "state.json").exists()

    def diagnostics_path(self, name: str = "") -> Path:
        """Return the folder that ``python -m runner.diagnose --name NAME`` writes to."""
        return self.path / (f"diagnostics-{name}" if name else "diagnostics")

    @property
    def has_checkpoint(self) -> bool:
        """Tell whether there is a complete checkpoint."""
        return any(self._checkpoints.glob("step-*/state.json"))

    def drop_checkpoint(self) -> None:
        """Delete all checkpoints; they are renamed first, so that a kill half-way leaves none that looks complete."""
        doomed = self.path / ".checkpoint-deleted"
        shutil.rmtree(doomed, ignore_errors=True)
        if self._checkpoints.exists():
            os.rename(self._checkpoints, doomed)
        shutil.rmtree(doomed, ignore_errors=True)


def run_with_weights(path: Path) -> RunFolder:
    """Return the folder of a run that has its weights: final ones that were kept, or those of a checkpoint.

    Raises RunnerError if ``path`` is no run folder or holds no weights.
    """
    folder = RunFolder(path.expanduser().absolute())
    summary = folder.summary() if folder.path.is_dir() else None
    if summary is None:
        raise RunnerError(
            f"{path} is not a run folder: it has no summary.json; give the path that 'python -m runner' printed"
        )
    if not (folder.is_finished() or folder.has_checkpoint):
        raise RunnerError(f"{path}: the run is '{summary['status']}' and left no checkpoint; run its command again")
    if not (folder.has_weights or folder.has_checkpoint):
        raise RunnerError(
            f"{path}: the run's weights were not kept (by default only up to 64 MB are); "
            "run its command again with force=true keep_weights=true"
        )
    return folder


def config_of(folder: RunFolder) -> RunConfig:
    """Return the configuration of a run, read from its folder."""
    return to_run_config(yaml.safe_load((folder.path / "config.yaml").read_text()))


_DECIDING = ("runner", "conf", "datasets", "constraints.txt", "pyproject.toml")  # not results, which runs change


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
    """Return what produced the numbers of a run: commit, command, versions, machine and data.

    ``patch`` is the hash of uncommitted changes of what decides a run's numbers, None if there are none.
    """
    new_files = _git("ls-files", "--others", "--exclude-standard", "--", *_DECIDING) or ""
    patch = (_git("diff", "HEAD", "--", *_DECIDING) or "") + new_files
    packages = ("torch", "numpy", "numba", "hydra-core", "omegaconf", "scikit-learn")
    return {
        "commit": (_git("rev-parse", "HEAD") or "").strip() or None,
        "patch": hashlib.sha256(patch.encode()).hexdigest()[:16] if patch else None,
        "command": " ".join(sys.argv),
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in packages},
        "threads": threads,
        "parallel_jobs": config.hardware.parallel_jobs,
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "gpu": _gpu_name() if config.hardware.name == "gpu" else None,
        "load_average_at_start": os.getloadavg()[0],
        "platform": platform.platform(),
        "data_checksum": data_checksum,
        "run_id": config.run_id,
    }

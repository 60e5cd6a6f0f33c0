"""Read and write a run folder: all results of one run, written so that a kill at any moment loses nothing.

<results_dir>/runs/<run_id>/
    config.yaml       the resolved settings
    provenance.json   commit, command, versions, threads, machine, data checksum
    metrics.jsonl     observations, one JSON object per line
    summary.json      status and final numbers; it is replaced atomically
    checkpoint/       step-<n>/ with arrays and their manifest (see ``stored_arrays``)
    best/             step-<n>/ with weights of the best validation so far; deleted at the end of the run
    weights/          final weights, if they are kept, with their manifest
    weights.safetensors    in their place, in a folder that ``python -m runner.export`` wrote
    prediction/       names and sizes that predicting needs besides (see ``prediction``)
    diagnostics*/     results of ``python -m runner.diagnose``
"""

import fcntl
import hashlib
import json
import math
import os
import platform
import shutil
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any

import numpy as np
import yaml

from runner import NUMBERS, __version__
from runner.config import to_run_config
from runner.errors import ConfigError, DamagedRun, DataNotPrepared, RunLocked, RunnerError
from runner.home import IS_CHECKOUT, REPOSITORY
from runner.machine.disk import sync, writing
from runner.machine.group import Place
from runner.options.conversion import as_path
from runner.options.settings import RunConfig
from runner.output.across import ALONE, Across
from runner.registry import check_trusted, sources_of
from runner.training.files import write_atomically
from runner.training.progress import Progress
from runner.training.run_records import (
    CLEARING,
    FINISHED,
    check_run,
    read_observations,
    read_provenance,
    read_settings,
    read_summary,
)
from runner.training.safetensors import SAFETENSORS, load_safetensors
from runner.training.stored_arrays import MANIFEST, StoredArrays, complete, discard, load_arrays, save_arrays


@dataclass(frozen=True, kw_only=True)
class KeptWeights:
    """Hold the weights of a run after ``step``. ``progress``: the run's progress if they come from a checkpoint."""

    arrays: dict[str, np.ndarray]
    step: int
    progress: dict[str, Any] | None


# What a killed process leaves of a file that it wrote, or of a folder that it wrote or deleted.
LOCK = ".lock"
_TEMPORARY = (".*.json.*", ".config.yaml.*", ".*-partial", ".*-deleted")


class RunFolder:
    """Read and write the files of one run; hold its lock while the run is in progress."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metrics_path = path / "metrics.jsonl"
        self._checkpoints = path / "checkpoint"
        self._weights = path / "weights"
        self._best = path / "best"
        self._clearing = path / CLEARING
        self.across: Across = ALONE  # the processes that write and read arrays together
        self._lock: IO[str] | None = None  # held while the run is in progress
        self.mirror: Callable[[Mapping[str, Any]], None] | None = None  # is given every observation, too

    # ------------------------------------------------------------ life of a run

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder for this process and delete what killed ones left of their writing.

        Raises RunLocked if another process holds the lock, ConfigError if the folder cannot be made.
        """
        if not self.path.exists():
            try:
                self.path.mkdir(parents=True, exist_ok=True)
            except (FileNotFoundError, NotADirectoryError, FileExistsError, PermissionError) as error:
                why = f"no folder can be made in {self.path.parents[1]}: {error.strerror}"
                raise ConfigError(f"results_dir: {why}; choose a folder that can be written") from None
            sync(self.path.parent)
        with open(self.path / LOCK, "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RunLocked(f"another process is running {self.path}; wait for it or stop it") from None
            self._sweep()
            self._lock = lock
            try:
                yield
            except (ConfigError, DataNotPrepared):  # what ends a run before it begins leaves no folder
                if [entry.name for entry in self.path.iterdir()] == [LOCK]:
                    shutil.rmtree(self.path, ignore_errors=True)
                raise
            finally:
                self._lock = None

    def _require_own(self) -> None:
        """Raise RunnerError if the folder is not the one that was locked: somebody deleted, moved or replaced it."""
        if self._lock is None:
            return
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(self._lock.fileno()), os.stat(self.path / LOCK)):
                return
        raise RunnerError(f"{self.path} was deleted or moved during the run; the same command starts the run again")

    def _sweep(self) -> None:
        """Delete temporary files and folders, and finish a replacement or a ``clear`` that was killed."""
        for place in (self.path, self._checkpoints, self._best):
            complete(place)
            for left in [left for pattern in _TEMPORARY for left in place.glob(pattern)]:
                if left.is_dir():
                    shutil.rmtree(left)
                else:
                    left.unlink()
        if self._clearing.exists():
            self.clear()

    def check(self, run_id: str | None = None) -> None:
        """Raise DamagedRun if the folder holds what its run, or the run of this id, cannot have left."""
        check_run(self.path, run_id)

    def summary(self) -> dict[str, Any] | None:
        """Return summary.json, or None if there is none. Raises DamagedRun."""
        return read_summary(self.path)

    def provenance(self) -> dict[str, Any]:
        """Return provenance.json, or an empty dict if there is none. Raises DamagedRun."""
        return read_provenance(self.path) or {}

    def is_finished(self) -> bool:
        """Return whether the run is finished. Raises DamagedRun if its summary is damaged."""
        return (self.summary() or {}).get("status") == FINISHED

    def start(self, config: RunConfig) -> None:
        """Write config.yaml of a run that starts or resumes."""
        write_atomically(self.path / "config.yaml", yaml.safe_dump(config.as_dict(), sort_keys=False))

    def clear(self) -> None:
        """Delete the results of an earlier run of the same configuration. After a kill, the next start ends this."""
        self._clearing.touch()
        sync(self.path)
        for name in ("summary.json", "metrics.jsonl", "provenance.json", "config.yaml"):
            (self.path / name).unlink(missing_ok=True)
        for folder in (
            self._checkpoints,
            self._best,
            self._weights,
            self.path / "prediction",
            *self.path.glob("diagnostics*"),
        ):
            discard(folder)
        sync(self.path)  # nothing may come back after the mark is gone
        self._clearing.unlink()

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Replace summary.json. It counts on the observations before it, which are flushed to the disk first."""
        self._require_own()
        if self.metrics_path.exists():
            sync(self.metrics_path)
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
        self._require_own()
        with writing(self.metrics_path), open(self.metrics_path, "a") as file:
            file.write(json.dumps(record) + "\n")
        if self.mirror is not None:
            self.mirror(record)

    def observations(self) -> list[dict[str, Any]]:
        """Return all observations of metrics.jsonl in their order. Raises DamagedRun."""
        return read_observations(self.path) or []

    # ------------------------------------------------------------ checkpoints

    def save_checkpoint(self, step: int, arrays: Mapping[str, np.ndarray], progress: Mapping[str, Any]) -> None:
        """Write a complete new checkpoint, then delete the old one.

        One generation is kept: a checkpoint has its name only when it is whole and on the disk, so a second one would
        serve only against a failing disk, at twice the space.
        """
        self._require_own()
        if (self._checkpoints / _name_of(step)).exists():
            return
        observed = b""
        if self.metrics_path.exists():
            sync(self.metrics_path)  # the checkpoint counts on the observations before it
            observed = self.metrics_path.read_bytes()
        state = {"metrics_bytes": len(observed), "metrics_crc32": zlib.crc32(observed), "progress": progress}
        self._save_only(self._checkpoints, step, arrays, state)
        sync(self.path)  # it has entries of the first checkpoint and of the observations

    def load_checkpoint(self) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
        """Return arrays and progress of the newest whole checkpoint, or None; delete observations made after it.

        Damaged newer ones are named on standard error and deleted. Raises DamagedRun if none is whole, or if the
        observations made before it have changed.
        """
        found, damaged = self._newest(self._checkpoints)
        if found is None:
            return None
        size = found.state["metrics_bytes"]
        observed = self.metrics_path.read_bytes() if self.metrics_path.exists() else b""
        if len(observed) < size:
            raise DamagedRun(self.metrics_path, f"it has {len(observed):,} bytes; at the checkpoint it had {size:,}")
        if zlib.crc32(observed[:size]) != found.state["metrics_crc32"]:
            raise DamagedRun(self.metrics_path, "observations made before the checkpoint have changed")
        self._forget_after(size, damaged)
        return found.arrays, found.state["progress"]

    def _forget_after(self, size: int, damaged: list[DamagedRun]) -> None:
        """Delete what came after a checkpoint: damaged newer ones, and observations behind ``size`` bytes."""
        _tell(damaged)
        for error in damaged:
            discard(error.path.parent)
        if self.metrics_path.exists():
            with writing(self.metrics_path):
                os.truncate(self.metrics_path, size)

    def save_weights(self, step: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Write the final weights; those of an earlier attempt to finish are replaced."""
        self._require_own()
        save_arrays(self._weights, run_id=self.path.name, step=step, arrays=arrays, state={}, across=self.across)

    def load_weights(self) -> KeptWeights | None:
        """Return the final weights or, before the end of the run, those of the newest whole checkpoint; None without.

        Raises DamagedRun.
        """
        if (self.path / SAFETENSORS).is_file():
            arrays, step = load_safetensors(self.path / SAFETENSORS, run_id=self.run_id)
            return KeptWeights(arrays=arrays, step=step, progress=None)
        if self.has_weights:
            kept = load_arrays(self._weights, run_id=self.run_id)
            return KeptWeights(arrays=kept.arrays, step=kept.step, progress=None)
        found, damaged = self._newest(self._checkpoints)
        _tell(damaged)
        if found is None:
            return None
        return KeptWeights(arrays=found.arrays, step=found.step, progress=found.state["progress"])

    def save_best(self, step: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Replace the weights of the best validation so far."""
        self._require_own()
        self._save_only(self._best, step, arrays, {})

    def load_best(self, step: int) -> dict[str, np.ndarray]:
        """Return the weights of the best validation, which was at this step. Raises DamagedRun."""
        return self._best_since(step, at_most=step)

    def check_best(self, step: int) -> None:
        """Raise DamagedRun unless the weights of the best validation at this step are whole.

        Those of a later step will do: the run was killed after it saved them, and will save them again.
        """
        self._best_since(step)

    def _best_since(self, step: int, at_most: float = math.inf) -> dict[str, np.ndarray]:
        found, damaged = self._newest(self._best)
        if found is None or not step <= found.step <= at_most:
            raise damaged[0] if damaged else DamagedRun(self._best / _name_of(step), "it is missing")
        return found.arrays

    @property
    def run_id(self) -> str:
        """The run's id: the folder may have been moved, so its summary knows better than its name."""
        return str((self.summary() or {}).get("run_id", self.path.name))

    @property
    def has_weights(self) -> bool:
        """Tell whether the final weights were kept."""
        return self._weights.exists() or (self.path / SAFETENSORS).is_file()

    def diagnostics_path(self, name: str = "") -> Path:
        """Return the folder that ``python -m runner.diagnose --name NAME`` writes to."""
        return self.path / (f"diagnostics-{name}" if name else "diagnostics")

    @property
    def has_checkpoint(self) -> bool:
        """Tell whether there is a checkpoint."""
        return any(self._checkpoints.glob("step-*"))

    def drop_what_resumes(self) -> None:
        """Delete checkpoints and the weights of the best validation of a finished run, which stays finished if an error
        of the disk prevents that: the next start tries again."""
        try:
            for folder in (self._checkpoints, self._best):
                discard(folder)
        except OSError as error:
            print(f"{error.filename} is not needed any more, but cannot be deleted: {error.strerror}", file=sys.stderr)

    def _save_only(self, place: Path, step: int, arrays: Mapping[str, np.ndarray], state: Mapping[str, Any]) -> None:
        """Write ``step-<n>/`` into a folder, then delete all others of that folder."""
        target = place / _name_of(step)
        save_arrays(target, run_id=self.path.name, step=step, arrays=arrays, state=state, across=self.across)
        self._drop_older(place, target)

    def _drop_older(self, place: Path, target: Path) -> None:
        for old in place.iterdir():
            if old != target:
                discard(old)

    def _newest(self, place: Path) -> tuple[StoredArrays | None, list[DamagedRun]]:
        """Return the newest whole ``step-<n>/`` of a folder, and what is wrong with newer ones.

        Returns None if there is no ``step-<n>/`` at all; raises DamagedRun if none of them is whole.
        """
        damaged: list[DamagedRun] = []
        for folder in sorted(place.glob("step-*"), reverse=True):
            try:
                found = load_arrays(folder, run_id=self.run_id, across=self.across)
                if folder.name != _name_of(found.step):
                    raise DamagedRun(folder / MANIFEST, f"it is of step {found.step:,}")
                if place == self._checkpoints:
                    _check_state(folder / MANIFEST, found)
                return found, damaged
            except DamagedRun as error:
                if not folder.exists():  # the run is in progress and has just replaced it by a newer one
                    return self._newest(place)
                damaged.append(error)
        if damaged:
            raise damaged[0]
        return None, []


def _check_state(path: Path, found: StoredArrays) -> None:
    """Raise DamagedRun, with the path of the manifest, if a checkpoint has a state that no run writes."""
    for key in ("metrics_bytes", "metrics_crc32"):
        value = found.state.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise DamagedRun(path, f"'{key}' is {'of a wrong kind' if key in found.state else 'missing'}")
    if (problem := Progress.problem(found.state.get("progress"), found.step)) is not None:
        raise DamagedRun(path, problem)


def _name_of(step: int) -> str:
    return f"step-{step:09d}"


def _tell(damaged: Iterable[DamagedRun]) -> None:
    for error in damaged:
        print(f"{error.path} is damaged: {error.why}; an older checkpoint is whole and is used", file=sys.stderr)


def run_with_weights(path: Path) -> RunFolder:
    """Return the folder of a run that has its weights: final ones that were kept, or those of a checkpoint.

    Raises RunnerError if ``path`` is no run folder, is damaged or holds no weights.
    """
    folder = RunFolder(as_path(path, "the run folder"))
    summary = folder.summary() if folder.path.is_dir() else None
    if summary is None:
        raise RunnerError(
            f"{path} is not a run folder: it has no summary.json; give the path that 'python -m runner' printed"
        )
    folder.check()
    if not (folder.is_finished() or folder.has_checkpoint):
        raise RunnerError(f"{path}: the run is '{summary['status']}' and left no checkpoint; run its command again")
    if not (folder.has_weights or folder.has_checkpoint):
        raise RunnerError(
            f"{path}: the run's weights were not kept (by default only up to 64 MB are); "
            "run its command again with force=true keep_weights=true"
        )
    return folder


def config_of(folder: RunFolder) -> RunConfig:
    """Return the configuration of a run, read from its folder; options that are newer than the run have their defaults.

    Raises DamagedRun, ConfigError for a setting that there is no more, and RunnerError if it names plugins that the
    user does not trust.
    """
    path = folder.path / "config.yaml"
    settings = read_settings(folder.path)
    if settings is None:
        raise DamagedRun(path, "it is missing")
    if isinstance(plugins := settings.get("plugins"), list):
        check_trusted(path, map(str, plugins))
    try:
        return to_run_config(settings)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


# Not results, which runs change, and not the tables that ask for runs. What asks for a bench decides its numbers.
_TABLES = (":(exclude,glob)conf/table/*", ":(exclude)conf/table/grid")
_DECIDING = ("runner", "conf", *_TABLES, "datasets", "constraints.txt", "pyproject.toml")


def _git(*arguments: str) -> str | None:
    if not IS_CHECKOUT:  # a repository around the installation would be another program's
        return None
    try:
        done = subprocess.run(
            ["git", "-C", str(REPOSITORY), *arguments],
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            check=True,
            timeout=20,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _gpu_name() -> str | None:
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else None


def description(config: RunConfig) -> dict[str, Any]:
    """Return what the summary of a run says of the run from its start: its id, settings and device."""
    return {
        "run_id": config.run_id,
        "identity": config.identity,
        "config": config.as_dict(),
        **({"ranks": ranks} if (ranks := Place.of_environment().size) > 1 else {}),
        "device": {"kind": config.hardware.name, "name": _gpu_name() if config.hardware.name == "gpu" else _cpu_name()},
    }


def provenance(config: RunConfig, threads: int, data_checksum: str) -> dict[str, Any]:
    """Return what produced the numbers of a run: commit, command, versions, plugins, machine and data.

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
        "versions": {"runner": __version__, **{name: version(name) for name in packages}},
        "numbers": NUMBERS,
        "plugins": sources_of(config),
        "threads": threads,
        "ranks": Place.of_environment().size,
        "parallel_jobs": config.hardware.parallel_jobs,
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "gpu": _gpu_name() if config.hardware.name == "gpu" else None,
        "load_average_at_start": os.getloadavg()[0],
        "platform": platform.platform(),
        "data_checksum": data_checksum,
        "run_id": config.run_id,
    }

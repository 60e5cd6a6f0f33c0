"""Keep in a run folder what predicting needs besides weights, so that it needs no data: names, vocabulary and sizes.

RUN/prediction/
    labels.txt.gz, features.json.gz, vectorizer.json.gz    of rows, as far as the data set has them
    items.txt.gz                                           of logs
    vocabulary.txt.gz                                      of texts
    state.json                                             sizes, and the sha256 of each file and of itself

It is written with the weights, and only if they are kept. Runs of earlier versions have none, and need their data.
"""

import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

from runner.data.shared.family import family_of
from runner.data.shared.manifests import combine
from runner.errors import DamagedRun
from runner.options.settings import RunConfig
from runner.parts import task_class
from runner.tasks.base import Task
from runner.training.files import read_json
from runner.training.stored_arrays import replacement

FOLDER = "prediction"
_STATE = "state.json"
_SIZES = ("num_features", "num_classes", "steps_per_epoch")


def save_prediction(run: Path, task: Task) -> None:
    """Write the folder for a task of a family that ranks, unless its head needs more of the data than these."""
    dataset, family = type(task.data), task.config.dataset.family
    names = getattr(dataset, "NAMES", {})
    if not names or not task.can_rank_without_data:
        return
    with replacement(run / FOLDER) as folder:
        digests = {}
        for field, name in names.items():
            if (path := getattr(task.data, field)) is None:
                continue
            packed = gzip.compress(path.read_bytes(), mtime=0)
            (folder / f"{name}.gz").write_bytes(packed)
            digests[f"{name}.gz"] = hashlib.sha256(packed).hexdigest()
        body = {
            "family": family,
            "name": task.data.name,
            "variant": task.data.variant,
            "data_checksum": task.data.checksum,
            "num_features": task.num_features,
            "num_classes": task.data.num_classes,
            "steps_per_epoch": task.training.steps_per_epoch,
            "files": digests,
        }
        (folder / _STATE).write_text(json.dumps({**body, "checksum": _checksum(body)}, indent=1) + "\n")


def restored_task(config: RunConfig, run: Path) -> Task | None:
    """Return a task without examples, which ranks; None if the run has no such folder. Raises DamagedRun."""
    folder = run / FOLDER
    body = read_json(folder / _STATE) if folder.is_dir() else None
    if body is None:
        return None
    if body.pop("checksum", None) != _checksum(body):
        raise DamagedRun(folder / _STATE, "its content does not have its checksum")
    for name, digest in body["files"].items():
        if not (path := folder / name).is_file():
            raise DamagedRun(path, "it is missing")
        if hashlib.sha256(path.read_bytes()).hexdigest() != digest:
            raise DamagedRun(path, "its content does not have its checksum")
    dataset: Any = family_of(body["family"]).dataset
    paths = {field: folder / f"{name}.gz" for field, name in dataset.NAMES.items() if f"{name}.gz" in body["files"]}
    data = dataset.without_examples(
        num_features=body["num_features"], num_classes=body["num_classes"], name=body["name"], variant=body["variant"],
        checksum=body["data_checksum"], **paths,
    )  # fmt: skip
    return task_class(config).without_examples(config, data, **{size: body[size] for size in _SIZES})


def _checksum(body: dict[str, Any]) -> str:
    return combine(json.dumps(body, sort_keys=True))

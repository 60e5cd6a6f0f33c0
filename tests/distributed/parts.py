"""Be one rank of a test: train networks whose batches the ranks divide beside whole ones of its own, and compare.

torchrun starts it: ``torchrun --nproc-per-node 2 tests/distributed/parts.py OUT.json``. Rank 0 writes what differs.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from findings import write_all

from runner.config import compose
from runner.machine.clock import StageClock
from runner.machine.group import meet
from runner.machine.threads import set_threads
from runner.network import Network
from runner.output.across import ALONE, Across
from runner.output.part import Part
from runner.output.ranks import Ranks
from runner.parts import task_of

STEPS, RESUMED_AT = 50, 20
COMPARED = 16  # the steps of them after which ranks compare checksums
ROWS = [
    "dataset=synthetic_xc", "dataset.num_classes=150", "dataset.num_train=200", "dataset.num_test=20",
    "dataset.num_features=100", "model.hidden=12", "optimizer.lr=0.003", "sampler=uniform",
]  # fmt: skip
TEXT = [
    "dataset=python_topics", "model.dropout=0", "model.tied=false", "model.embedding=8", "windows.length=5",
    "sampler=uniform",
]  # fmt: skip
LOG = [
    "dataset=synthetic_log", "model.dropout=0", "model.tied=false", "model.embedding=8", "model.length=6",
    "sampler=uniform", "epochs=4",
]  # fmt: skip
# Both engines and all models take their turn. A batch of one example leaves a rank without any. Attention ignores the
# bias of its keys, whose gradient is rounding alone: SGD takes it as it is, and others make steps of it.
CASES = {
    "mlp": [*ROWS, "batch_size=11"],
    "mlp-one": [*ROWS, "batch_size=1", "training.clip=0.5", "optimizer.rows=dense"],
    "linear-torch": [*ROWS, "model=linear", "model.hidden=12", "batch_size=11", "hardware.engine=torch"],
    "lstm": [*TEXT, "model=lstm", "model.hidden=8", "batch_size=5", "training.clip=0.5"],
    "lstm-one-torch": [*TEXT, "model=lstm", "model.hidden=8", "batch_size=1", "hardware.engine=torch"],
    "transformer": [
        *TEXT, "model=transformer", "model.heads=2", "model.feed_forward=9", "batch_size=5", "windows.cut=chunked",
        "optimizer=sgd", "optimizer.lr=0.1",
    ],
    "sasrec": [*LOG, "model=sasrec", "model.feed_forward=9", "batch_size=5", "optimizer=sgd", "optimizer.lr=0.1"],
    "gru4rec-torch": [*LOG, "model=gru4rec", "batch_size=5", "optimizer=adagrad", "hardware.engine=torch"],
}  # fmt: skip


def trained(words: list[str], batch: str, across: Across) -> dict[str, Any]:
    """Take the steps; return losses, weights and state. The network is made anew on the way, from its state."""
    config = compose([*words, "hardware.classes=split", f"hardware.batch={batch}"])
    task = task_of(config, config.dataset.build())
    task.across = across
    sampler = config.batch_sampler.build(examples=task.examples, batch_size=config.batch_size, seed=0)
    network: Network[Any] = task.build_network()
    losses = []
    for step in range(1, STEPS + 1):
        losses.append(network.train_step(task.batch(sampler.draw(step)), step, StageClock()).loss)
        if step == RESUMED_AT:
            state = {
                name: array if isinstance(array, Part) else array.copy() for name, array in network.state_dict().items()
            }
            network = task.build_network()
            network.load_state_dict(state)
    network.read_all(STEPS + 1)
    return {"losses": np.array(losses), **network.state_dict()}


def far(split: Any, whole: np.ndarray) -> float:
    """Return how far an array, or the part of it that a rank holds, is from the whole one, relative to the whole."""
    if isinstance(split, Part):
        whole = whole[split.lo : split.lo + len(split.rows)]
        split = split.rows
    assert split.shape == whole.shape
    return float(
        np.linalg.norm((split - whole).astype(np.float64)) / max(1e-9, np.linalg.norm(whole.astype(np.float64)))
    )


def expected_bytes(words: list[str], size: int) -> int:
    """Return what a rank hands to gathers by the formulas of ``models.split_batch``, for a model of sparse rows."""
    config = compose(words)
    task = task_of(config, config.dataset.build())
    sampler = config.batch_sampler.build(examples=task.examples, batch_size=config.batch_size, seed=0)
    total, width = 0, config.model.dim
    for step in range(1, STEPS + 1):
        batch = task.batch(sampler.draw(step))
        parts = [rows for rows in np.array_split(np.arange(batch.num_rows), size) if len(rows)]
        features = [len(np.unique(batch.indices[batch.indptr[r[0]] : batch.indptr[r[-1] + 1]])) for r in parts]
        total += 4 * width * max(map(len, parts)) + 4 * (width + 1) * max(features)
        total += 8 + (8 * (4 + 2) if step <= COMPARED else 0)  # the number of rows; checksums of draws, rows and biases
    return total


def main(out: Path) -> None:
    group = meet(300.0)
    assert group is not None
    set_threads(1)
    across = Ranks(group, torch.device("cpu"))
    split, gathered = {}, {}
    for name, words in CASES.items():
        across.traffic.clear()
        split[name] = trained(words, "split", across)
        gathered[name] = across.traffic["gather"]
    found: dict[str, Any] = {}
    for number, (name, words) in enumerate(CASES.items()):
        if number % across.size == across.place:
            whole = trained(words, "whole", ALONE)
            kept = [key for key in whole if not key.endswith(("first", "second", "drift"))]
            found[name] = {"far": {key: far(split[name][key], whole[key]) for key in kept}}
            found[name]["gathered"] = gathered[name]
    if "mlp" in found:
        found["mlp"]["expected"] = expected_bytes(CASES["mlp"], across.size)
    write_all(found, group, across, out)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

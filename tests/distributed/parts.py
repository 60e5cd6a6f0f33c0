"""Be one rank of a test: train networks whose batches the ranks divide beside whole ones of its own, and compare.

torchrun starts it: ``torchrun --nproc-per-node 2 tests/distributed/parts.py OUT.json``. Rank 0 writes what differs.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

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
ROWS = [
    "dataset=synthetic_xc", "dataset.num_classes=150", "dataset.num_train=200", "dataset.num_test=20",
    "dataset.num_features=100", "model.hidden=12", "optimizer.lr=0.003",
]  # fmt: skip
TEXT = ["dataset=python_topics", "model.dropout=0", "model.tied=false", "model.embedding=8", "windows.length=5"]
LOG = [
    "dataset=synthetic_log", "model.dropout=0", "model.tied=false", "model.embedding=8", "model.length=6",
    "sampler=uniform", "epochs=4",
]  # fmt: skip
# Both engines and all models take their turn. A batch of one example leaves a rank without any.
CASES = {
    "mlp": [*ROWS, "batch_size=11"],
    "mlp-one": [*ROWS, "batch_size=1", "training.clip=0.5"],
    "mlp-dense": [*ROWS, "batch_size=7", "optimizer.rows=dense"],
    "linear-torch": [*ROWS, "model=linear", "model.hidden=12", "batch_size=11", "hardware.engine=torch"],
    "lstm": [*TEXT, "model=lstm", "model.hidden=8", "batch_size=5"],
    "lstm-one": [*TEXT, "model=lstm", "model.hidden=8", "batch_size=1", "training.clip=0.5"],
    "lstm-torch": [*TEXT, "model=lstm", "model.hidden=8", "batch_size=5", "hardware.engine=torch"],
    "transformer": [
        *TEXT, "model=transformer", "model.heads=2", "model.feed_forward=9", "batch_size=5", "windows.cut=chunked",
    ],
    "sasrec": [*LOG, "model=sasrec", "model.feed_forward=9", "batch_size=5", "optimizer=adagrad"],
    "gru4rec-torch": [*LOG, "model=gru4rec", "model.hidden=9", "batch_size=5", "hardware.engine=torch"],
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


def main(out: Path) -> None:
    group = meet(300.0)
    assert group is not None
    set_threads(1)
    across = Ranks(group, torch.device("cpu"))
    found = {}
    for name, words in CASES.items():
        across.traffic.clear()
        split, whole = trained(words, "split", across), trained(words, "whole", ALONE)
        kept = [key for key in split if not key.endswith(("first", "second", "drift"))]
        found[name] = {
            "far": {key: far(split[key], whole[key]) for key in kept},
            "gathered": across.traffic["gather"],
        }
    group.store.set(f"found/{across.place}", json.dumps(found))
    across.wait()
    if across.leads:
        out.write_text(
            json.dumps([json.loads(group.store.get(f"found/{rank}")) for rank in range(across.size)], indent=1)
        )
    across.end()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

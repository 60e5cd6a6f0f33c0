"""Be one rank of a test: train a class matrix that the ranks hold together beside one of its own, and compare.

torchrun starts it: ``torchrun --nproc-per-node 3 tests/distributed/program.py OUT.json all 200 numba``. Rank 0 writes
what differs.
Legend: B rows of a batch, D hidden size, N classes.
"""

import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from findings import write_all

from runner.check.cases import Case, cases_of, label_counts
from runner.contracts import Everything, Query, TrainingFacts
from runner.heads.classes import ClassesHead
from runner.machine.clock import StageClock
from runner.machine.group import meet
from runner.machine.threads import set_threads
from runner.optimizers import AdamConfig
from runner.output.across import ALONE, Across, block_of
from runner.output.engines import layer_of, make_rows
from runner.output.losses import LOSSES, LossConfig
from runner.output.ranks import Ranks
from runner.samplers import SAMPLERS

N, D, B = 120, 16, 12


def cases(which: str, engine: str) -> Iterator[tuple[str, Case, LossConfig]]:
    """Yield every sampler with its customary loss, and one for each kind of candidates with every loss.

    ``which``: all cases of the samplers' contract, or the first of each.
    """
    for name in SAMPLERS:
        for case in list(cases_of(name, engine).values())[: None if which == "all" else 1]:
            loss = case.config.losses[0]
            yield f"{name}-{case.name}-{loss}", case, LOSSES[loss](name=loss)
    for name in ("log_uniform", "lsh_label"):
        config = next(iter(cases_of(name).values()))
        for loss in config.config.losses[1:]:
            yield f"{name}-{loss}", config, LOSSES[loss](name=loss)


def head_of(case: Case, loss: LossConfig, across: Across, engine: str) -> ClassesHead:
    weights_ND = np.random.default_rng(0).standard_normal((N, D)).astype(np.float32) / 2
    lo, hi = block_of(N, across.place, across.size)
    table = make_rows(engine, AdamConfig(lr=0.01), weights_ND[lo:hi])
    layer = layer_of(table, None, lo=lo, num_classes=N, across=across)
    return ClassesHead(layer, case.config, loss, TrainingFacts.one_label_a_row(label_counts(N)), 3)


@dataclasses.dataclass(frozen=True)
class Batch:
    target_indptr: np.ndarray
    targets: np.ndarray
    num_rows: int = B
    num_examples: int = B
    weight_B: None = None


def batch_of(step: int) -> tuple[np.ndarray, Batch]:
    generator = np.random.default_rng(step)
    hidden_BD = np.maximum(generator.standard_normal((B, D)), 0).astype(np.float32)
    sizes = generator.integers(1, 4, B)
    targets = [np.sort(generator.choice(N, size, replace=False)) for size in sizes]
    indptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return hidden_BD, Batch(indptr, np.concatenate(targets).astype(np.int32))


def train(case: Case, loss: LossConfig, across: Across, steps: int, engine: str) -> dict[str, Any]:
    """Take the steps; return what came out, with the vectors of all classes."""
    head, clock = head_of(case, loss, across, engine), StageClock()
    drawn, losses, hidden = [], [], []
    for step in range(1, steps + 1):
        hidden_BD, batch = batch_of(step)
        scores = head.score(hidden_BD, batch, step, clock)
        proposal = scores.estimate.proposal
        drawn.append(np.zeros(0) if isinstance(proposal, Everything) else proposal.ids_N.copy())
        losses.append(scores.loss)
        touched = scores.touched_U
        hidden.append(scores.update())
        head.refresh(scores, lambda touched=touched: touched, step, clock)
    of_steps = dict(getattr(across, "traffic", {}))
    head.layer.read(None, steps + 1)
    hidden_BD, batch = batch_of(0)
    query = Query(hidden_BD=hidden_BD, target_indptr_B1=batch.target_indptr, targets_P=batch.targets)
    first_B = batch.targets[batch.target_indptr[:-1]]
    return {
        "of_steps": of_steps,
        "drawn": drawn,
        "losses": np.array(losses),
        "hidden": np.stack(hidden),
        "vectors": head.layer.rows(),
        "biases": head.layer.biases(),
        "top": head.top(hidden_BD, 10),
        "cross_entropy": head.layer.cross_entropy(hidden_BD, first_B),
        "state": head.state_dict().keys(),
        "counts": head.sampler.log_expected_count(query, np.arange(N, dtype=np.int32), steps + 1),
    }


def difference(alone: dict[str, Any], split: dict[str, Any]) -> dict[str, Any]:
    """Return how far the numbers of the ranks are from one process's, and from which step on draws are others."""
    far = {
        key: float(np.max(np.abs(alone[key] - split[key]) / (1 + np.abs(alone[key])), initial=0))
        for key in ("losses", "hidden", "vectors", "biases", "cross_entropy")
    }
    other = [i for i, (a, b) in enumerate(zip(alone["drawn"], split["drawn"], strict=True)) if not np.array_equal(a, b)]
    return {
        "far": far,
        "other_draws_from": other[0] + 1 if other else None,
        "same_top": bool(np.array_equal(alone["top"], split["top"])),
        "of_steps": split["of_steps"],
    }


def main(out: Path, which: str, steps: int, engine: str) -> None:
    group = meet(300.0)
    assert group is not None
    set_threads(1)
    across = Ranks(group, torch.device("cpu"))
    every = list(cases(which, engine))
    # What one process makes of a case, one rank computes, before all train it: so they compile different kernels.
    alone = {name: train(case, loss, ALONE, steps, engine) for name, case, loss in every[across.place :: across.size]}
    across.wait()
    found: dict[str, Any] = {}
    for name, case, loss in every:
        across.traffic.clear()
        split = train(case, loss, across, steps, engine)
        if name in alone:
            found[name] = difference(alone[name], split)
    write_all(found, group, across, out)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4])

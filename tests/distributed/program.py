"""Be one rank of a test: train a class matrix that the ranks hold together beside one of its own, and compare.

torchrun starts it: ``torchrun --nproc-per-node 3 tests/distributed/program.py OUT.json --steps 200``. Rank 0 writes
what differs, and prints a summary.
Legend: B rows of a batch, D hidden size, N classes.
"""

import argparse
import dataclasses
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from findings import summary, write_all

from runner.check.cases import Case, cases_of, label_counts
from runner.contracts import Everything, Query, TrainingFacts
from runner.errors import ConfigError
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

N, D, B = 121, 16, 12  # ranks hold different numbers of classes
SAMPLED = 34  # pairs of a turn
COUNTED = (
    "full-defaults-full",
    "uniform-shared-sampled_softmax",
    "log_uniform-shared-sampled_softmax",
    "lsh_embedding-simhash-active_set",
)  # pairs whose bytes the test knows
BLOCK = 24  # pairs that one process trains before the ranks train them
Pair = tuple[Case, LossConfig]


def losses() -> Iterator[tuple[str, LossConfig]]:
    """Yield every loss by name, and once more with corrected targets if that is an option of it."""
    for name, cls in LOSSES.items():
        yield name, cls(name=name)
        if any(field.name == "correct_target" for field in dataclasses.fields(cls)):
            yield f"{name}_of_targets", cls(name=name, correct_target=True)  # type: ignore[call-arg]


def crossed(engine: str, *, first: bool = False) -> tuple[dict[str, Pair], Counter[str]]:
    """Return every sampler with every loss, in all cases of its contract, and why a configuration refuses the others.

    ``first``: take the first case that goes with the loss; a pair is refused if there is none.
    """
    pairs, refused = {}, Counter[str]()
    for sampler, (name, loss) in itertools.product(SAMPLERS, losses()):
        why = []
        for case in cases_of(sampler, engine).values():
            try:
                case.config.check_loss(loss)
                case.config.check_engine(engine)
            except ConfigError as error:
                why.append(re.sub(r"(loss|sampler)=\w+", r"\1", str(error)).split(";")[0])
            else:
                pairs[f"{sampler}-{case.name}-{name}"] = case, loss
                if first:
                    why.clear()
                    break
        refused.update(why[:1] if first else why)
    return pairs, refused


def sample(pairs: dict[str, Pair], turn: int) -> dict[str, Pair]:
    """Return some of the pairs: every sampler, every loss, and as many different cases as go into a few pairs.

    Each ``turn`` has others, but for the pairs whose bytes are counted.
    """
    counted = [name for name in COUNTED if name in pairs]
    order = np.random.default_rng(turn).permutation(list(pairs)).tolist()
    uses = Counter[str]()

    def use(name: str) -> str:
        sampler, case, loss = name.split("-")
        uses.update((sampler, f"{sampler}-{case}", loss))
        return name

    def used(name: str) -> tuple[int, ...]:
        sampler, case, loss = name.split("-")
        return name in chosen, uses[sampler], uses[loss], uses[f"{sampler}-{case}"]

    chosen = [use(name) for name in counted]
    while len(chosen) < SAMPLED:
        chosen.append(use(min(order, key=used)))
    return {name: pairs[name] for name in chosen}


def head_of(case: Case, loss: LossConfig, across: Across, engine: str, scale: float | None) -> ClassesHead:
    weights_ND = np.random.default_rng(0).standard_normal((N, D)).astype(np.float32) / 2
    lo, hi = block_of(N, across.place, across.size)
    table = make_rows(engine, AdamConfig(lr=0.01), weights_ND[lo:hi])
    layer = layer_of(table, scale, lo=lo, num_classes=N, across=across)
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


def train(pair: Pair, across: Across, steps: int, engine: str, scale: float | None) -> dict[str, Any]:
    """Take the steps; return what came out, with the vectors of all classes."""
    head, clock = head_of(*pair, across, engine, scale), StageClock()
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
        "counts": head.sampler.log_expected_count(query, np.arange(N, dtype=np.int32), steps + 1),
    }


def difference(alone: dict[str, Any], split: dict[str, Any]) -> dict[str, Any]:
    """Return how far the numbers of the ranks are from one process's.

    Draws that rounding turned into others make all that follows differ: then only the steps before are compared.
    """
    drawn = list(zip(alone["drawn"], split["drawn"], strict=True))
    same = next((i for i, (a, b) in enumerate(drawn) if not np.array_equal(a, b)), len(drawn))
    has_others = same < len(drawn)
    compared = {key: (alone[key][:same], split[key][:same]) for key in ("losses", "hidden")}
    if not has_others:
        compared |= {key: (alone[key], split[key]) for key in ("vectors", "biases", "cross_entropy", "counts")}
    return {
        "far": {key: far(*both) for key, both in compared.items()},
        "other_draws_from": same + 1 if has_others else None,
        "other_draws": others(*drawn[same]) if has_others else None,
        "same_top": has_others or bool(np.array_equal(alone["top"], split["top"])),
        "of_steps": split["of_steps"],
    }


def far(alone: np.ndarray, split: np.ndarray) -> float:
    """Return the largest difference, relative to numbers above 1; NaN if only one of two numbers is none."""
    with np.errstate(invalid="ignore"):
        differences = np.where(alone == split, 0, np.abs(alone - split) / (1 + np.abs(alone)))
    return float(np.max(differences, initial=0))


def others(alone: np.ndarray, split: np.ndarray) -> list[int]:
    """Return how many draws of a step are others, and of how many."""
    if len(alone) != len(split):
        return [len(np.setxor1d(alone, split)), len(alone)]
    return [int((alone != split).sum()), len(alone)]


def main() -> None:
    words = argparse.ArgumentParser()
    words.add_argument("out", type=Path)
    words.add_argument("--engine", default="numba")
    words.add_argument("--steps", type=int, default=200)
    words.add_argument("--scale", type=float, help="of normalised vectors")
    words.add_argument("--first", action="store_true", help="compare one case of each pair of a sampler and a loss")
    words.add_argument("--turn", type=int, help="compare a sample of all cases, another one at each turn")
    words.add_argument("--only", default="", help="compare pairs whose names begin with this")
    words.add_argument("--part", default="1/1", help="compare the first of two parts of all pairs: 1/2")
    given = words.parse_args()
    number, parts = map(int, given.part.split("/"))
    how = (given.steps, given.engine, given.scale)

    group = meet(900.0)
    assert group is not None
    set_threads(1)
    across = Ranks(group, torch.device("cpu"))
    allowed, refused = crossed(given.engine, first=given.first)
    pairs = sample(allowed, given.turn) if given.turn is not None else allowed
    names = [name for name in pairs if name.startswith(given.only)][number - 1 :: parts]
    found: dict[str, Any] = {}
    for begin in range(0, len(names), BLOCK):
        block = names[begin : begin + BLOCK]
        # What one process makes of a pair, one rank computes, before all train it: so they compile different kernels.
        alone = {name: train(pairs[name], ALONE, *how) for name in block[across.place :: across.size]}
        across.wait()
        for name in block:
            across.traffic.clear()
            split = train(pairs[name], across, *how)
            if name in alone:
                found[name] = difference(alone[name], split)
    write_all(found, group, across, given.out)
    print(summary(json.loads(given.out.read_text())) if across.leads else "")
    print("\n".join(f"refused: {times} as {why}" for why, times in refused.items()))


if __name__ == "__main__":
    main()

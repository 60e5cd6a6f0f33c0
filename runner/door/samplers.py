"""Check what samplers of classes hand over: proposals, expected counts, tables and statistics.

Legend: B rows of a batch, N candidates of all rows, M ids that a caller asks for, P targets of the batch.
"""

from typing import Any

import numpy as np

from runner.contracts import Everything, Proposal, Query, TrainingFacts, as_array
from runner.door.arrays import (
    Wrong,
    check_array,
    check_arrays,
    check_finite,
    check_ids,
    check_offsets,
    check_plain,
    demand,
    row_with_repeats,
    shown,
)
from runner.door.guard import Guard, is_from_outside
from runner.output.layer import Layer
from runner.output.losses import LOSSES
from runner.samplers import building
from runner.samplers.base import Sampler, SamplerConfig

_ROUNDING = 1e-6  # of the log of an expected count that is 1


def build_sampler(config: SamplerConfig, *, layer: Layer, training: TrainingFacts, seed: int) -> Sampler:
    """Make the sampler of a configuration; all that one from outside returns is checked, here and later.

    Raises PluginError.
    """
    if not is_from_outside(config):
        return building.build_sampler(config, layer=layer, training=training, seed=seed)
    guard, num_classes = Guard.of(config, "sampler", config.name), layer.num_classes
    sampler = guard.made(lambda: building.build_sampler(config, layer=layer, training=training, seed=seed))
    if not isinstance(sampler, Sampler):
        raise guard.error(f"build must return a Sampler, not {shown(sampler)}")
    guard.check(lambda: check_arrays(guard.made(sampler.state_dict), "state_dict()"))
    guard.check(lambda: check_statistics(guard.made(lambda: sampler.statistics)))
    guard.check(lambda: check_chosen(guard.made(lambda: sampler.chosen)))
    is_ours = not is_from_outside(sampler)
    every_class = config.can_draw_every_class
    takes_all = all(LOSSES[name].needs_every_class for name in config.losses if name in LOSSES)

    def proposes(made: Any, query: Query, *_: Any, **__: Any) -> None:
        check_proposal(made, query.num_rows, num_classes)
        if isinstance(made, Everything) != takes_all:
            is_of = "one of the listed candidates" if isinstance(made, Everything) else "the full one"
            raise Wrong(f"the loss is {is_of}, but sample returned {shown(made)}; losses must say which one fits")

    def counts(made: Any, query: Query, ids_M: np.ndarray, *_: Any, **__: Any) -> None:
        check_counts(made, "log_expected_count", query.num_rows, len(ids_M))

    def counts_of_targets(made: Any, query: Query, *_: Any, **__: Any) -> None:
        if is_ours and not isinstance(made, np.ndarray):
            made = as_array(made)  # a sampler of this package, which draws where the class matrix lies
        check_array(made, "log_expected_count_of_targets", "float32", len(query.targets_P))
        check_counts(made, "log_expected_count_of_targets", len(query.targets_P))
        if every_class and len(made) and np.isneginf(made.min()):
            target = query.targets_P[int(np.argmin(made))]
            raise Wrong(f"target {target} has log expected count -inf, but can_draw_every_class is true")

    guard.watch(sampler, "sample", proposes, step=1)
    guard.watch(sampler, "log_expected_count", counts, step=2)
    guard.watch(sampler, "log_expected_count_of_targets", counts_of_targets, step=2)
    guard.watch(sampler, "refresh", _anything, step=1)
    guard.watch(sampler, "learn", _anything, step=1)
    guard.watch(sampler, "state_dict", lambda made: check_arrays(made, "state_dict()"))
    return sampler


def facts_of(sampler: Sampler, config: SamplerConfig) -> dict[str, Any]:
    """Return the statistics of a sampler and what it chose, for a run's summary. Raises PluginError."""
    facts: dict[str, Any] = {"sampler_statistics": sampler.statistics, "chosen": dict(sampler.chosen)}
    if is_from_outside(config):
        guard = Guard.of(config, "sampler", config.name)
        guard.check(lambda: check_statistics(facts["sampler_statistics"]))
        guard.check(lambda: check_chosen(facts["chosen"]))
    return facts


def check_proposal(made: Any, num_rows: int, num_classes: int) -> None:
    """Raise Wrong unless this is a proposal for a batch that every loss and every kernel can take."""
    if isinstance(made, Everything):
        demand(made.num_classes == num_classes, f"Everything is for {made.num_classes} classes, not {num_classes}")
        demand(made.products in ("float32", "bf16"), f"products must be float32 or bf16, not {shown(made.products)}")
        demand(isinstance(made.stores_logits, bool), f"stores_logits must be a bool, not {shown(made.stores_logits)}")
        return
    demand(isinstance(made, Proposal), f"sample must return a Proposal, not {shown(made)}")
    ids_N, log_count_N, indptr_B1 = made.ids_N, made.log_expected_count_N, made.indptr_B1
    check_array(ids_N, "ids_N", "int32", None)
    check_array(log_count_N, "log_expected_count_N", "float32", None)
    demand(isinstance(made.distinct, bool | np.bool_), f"distinct must be a bool, not {shown(made.distinct)}")
    if len(log_count_N) != len(ids_N):
        raise Wrong(f"{len(ids_N)} candidates must have as many log expected counts, not {len(log_count_N)}")
    demand(len(ids_N) > 0, "the proposal has no candidate")
    check_ids(ids_N, "candidate ids", num_classes)
    largest = log_count_N.max()
    if not (np.isfinite(largest) and np.isfinite(log_count_N.min())):
        check_finite(log_count_N, "log expected counts")
    if indptr_B1 is None:
        _check_shared(ids_N, distinct=made.distinct)
    else:
        check_offsets(indptr_B1, "indptr_B1", num_rows, len(ids_N))
        if made.distinct and (row := row_with_repeats(ids_N, indptr_B1)) >= 0:
            raise Wrong(f"distinct is true, but row {row} has a class twice")
    if made.distinct and largest > _ROUNDING:
        candidate = ids_N[int(np.argmax(log_count_N))]
        raise Wrong(f"distinct is true, so log expected counts are at most 0, but class {candidate} has {largest:.6g}")


def _check_shared(ids_N: np.ndarray, *, distinct: bool) -> None:
    """Raise Wrong unless the ids ascend, because hits are found by bisection."""
    step_N = np.diff(ids_N)
    if len(step_N) and step_N.min() < distinct:
        place = int(np.argmin(step_N))
        here, after = ids_N[place], ids_N[place + 1]
        if here == after:
            raise Wrong(f"distinct is true, but the shared candidates have class {here} twice")
        raise Wrong(f"shared ids must ascend, but {after} comes after {here}")


def check_counts(made: Any, what: str, *shape: int) -> None:
    """Raise Wrong unless these are logs of expected counts of this shape: numbers, or -inf for what is never drawn."""
    if not isinstance(made, np.ndarray) or made.dtype.kind != "f":
        kind = made.dtype if isinstance(made, np.ndarray) else shown(made)
        raise Wrong(f"{what} must be an array of float32, not {kind}")
    demand(made.shape == shape, f"{what} must have shape {shape}, not {made.shape}")
    if made.size and not made.max() < np.inf:  # NaN is not either
        first = made.ravel()[np.argmin(made.ravel() < np.inf)]
        raise Wrong(f"{what} must be finite, or -inf where nothing is drawn, not {first}")


def check_statistics(statistics: Any) -> None:
    """Raise Wrong unless these are numbers by name."""
    demand(isinstance(statistics, dict), f"statistics must be a dict of numbers, not {shown(statistics)}")
    check_plain(statistics, "statistics")


def check_chosen(chosen: Any) -> None:
    """Raise Wrong unless these are texts by names of settings."""
    is_text = isinstance(chosen, dict) and all(isinstance(word, str) for pair in chosen.items() for word in pair)
    demand(is_text, f"chosen must be a dict of texts by setting, not {shown(chosen)}")


def _anything(*_: Any, **__: Any) -> None:
    """Check nothing: only errors of the plugin's own code are told in one line."""

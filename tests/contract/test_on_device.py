"""A sampler that draws on a device draws what it draws on a CPU, and a step waits for the device no more than it must.

Legend: B rows, C counters.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from runner import rng
from runner.check.cases import NOBODY, NUM_CLASSES, Case, cases_of, label_counts, move_rows, random_layer, random_query
from runner.contracts import Everything, TrainingFacts, as_array
from runner.errors import ConfigError
from runner.heads.classes import estimate
from runner.machine.clock import StageClock
from runner.output.losses import LOSSES
from runner.output.torch import words
from runner.output.torch.batches import TorchQuery
from runner.samplers import SAMPLERS
from runner.samplers.building import build_sampler
from runner.samplers.lsh import LshConfig
from runner.samplers.lsh_topk import LshTopKConfig
from runner.samplers.on_device import draws_on_device

ON_DEVICE = (
    "full", "uniform", "unigram", "log_uniform", "in_batch", "topk", "exact", "quadratic", "midx_pq", "midx_rq",
    "lsh_label", "lsh_embedding", "lsh", "lsh_topk", "sce", "midx_exact", "midx_learn_pq", "midx_learn_rq", "rff",
)  # fmt: skip
DRAWS_THERE = [
    pytest.param(case, id=f"{name}-{case.name}")
    for name in ON_DEVICE
    for case in cases_of(name, "torch").values()
    if draws_on_device(case.config)
]


@pytest.mark.parametrize("bound", [3, 1000, 2**20 - 1, 2**20, 2**31 - 1])
def test_words_have_the_bits_of_the_generator(bound: int) -> None:
    seed, step = 2**31 - 1, 123_456
    rows, counters = np.array([0, 1, 5, 2**31 - 1]), np.array([0, 1, 2**20, 2**33])
    key_B = words.stream(seed, rng.SAMPLE, step, torch.from_numpy(rows), torch.device("cpu"))
    bits_BC = words.word(key_B[:, None], torch.from_numpy(counters))
    assert torch.equal(words.word(key_B, 2**33), bits_BC[:, 3])
    below_BC, unit_BC = words.below(bits_BC, bound), words.unit(bits_BC)
    for b, row in enumerate(rows):
        key = rng.stream(seed, rng.SAMPLE, step, row)
        expected = [rng.word(np.uint64(key), counter) for counter in counters]
        assert bits_BC[b].numpy().view(np.uint64).tolist() == [int(word) for word in expected]
        assert below_BC[b].tolist() == [rng.below(np.uint64(word), bound) for word in expected]
        assert unit_BC[b].tolist() == [rng.unit(np.uint64(word)) for word in expected]


@pytest.mark.parametrize("case", DRAWS_THERE)
def test_draws_are_those_of_the_cpu(case: Case) -> None:
    """They are so from fresh tables, and from tables that follow classes which all moved."""
    layers = [random_layer(engine=engine) for engine in ("numba", "torch")]
    samplers = [Case(case.name, case.config, layer.table.engine).build(layer) for layer in layers]
    for step in (1, 2, 3, 4):
        query = random_query(seed=step)
        ours, theirs = (sampler.sample(query, step) for sampler in samplers)
        if case.config.name == "full":
            assert ours.num_classes == theirs.num_classes  # type: ignore[union-attr]
            continue
        for name in ("ids_N", "indptr_B1", "distinct"):
            np.testing.assert_array_equal(getattr(theirs, name), getattr(ours, name), err_msg=name)
        counts = (proposal.log_expected_count_N for proposal in (ours, theirs))
        np.testing.assert_allclose(*counts, rtol=1e-5, atol=1e-5)
        of_targets = (
            as_array(sampler.log_expected_count_of_targets(query, proposal, step))
            for sampler, proposal in zip(samplers, (ours, theirs), strict=True)
        )
        np.testing.assert_allclose(*of_targets, rtol=1e-5, atol=1e-5)
        moved_U = move_rows(layers[0], list(range(NUM_CLASSES)), step, seed=step)
        move_rows(layers[1], list(range(NUM_CLASSES)), step, seed=step)
        layers[1].table.write(None, vectors=layers[0].rows(), biases=layers[0].biases())
        refreshed = [sampler.refresh(query, step, moved_U) for sampler in samplers]
        assert refreshed[0] == refreshed[1]


WAITS = ("aten::_local_scalar_dense", "aten::nonzero", "aten::_unique2", "aten::masked_select", "aten::bincount")
"""Operations that make the processor wait for a device: they return numbers, or sizes, that the device knows."""


class CountWaits(TorchDispatchMode):
    """Collect the operations of a context that would wait for a device."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name
        places = args[1] if name.startswith("aten::index") and isinstance(args[1], list | tuple) else ()
        if name in WAITS or any(place is not None and place.dtype == torch.bool for place in places):
            self.found.append(name)
        return func(*args, **(kwargs or {}))


def test_a_wait_is_counted() -> None:
    values = torch.arange(3)
    with CountWaits() as waits:
        values[values > 1]
        int(values.sum())
        values.nonzero()
    assert len(waits.found) == 3


def waits_of(case: Case, num_classes: int, width: int) -> list[str]:
    """Return the waits of a step whose proposal has so many places for a row; they are few and known.

    A shared proposal of LSH learns the size of the union, SCE the most buckets of a row. Rows that draw from outside
    what they retrieved learn whether one will have more than half of all classes, if one may.
    """
    config: Any = case.config
    if isinstance(config, LshConfig) and config.shared:
        return ["aten::nonzero"]
    if config.name == "sce":
        may_have_many = config.num_tail > 0 and 2 * width > num_classes
        return ["aten::_local_scalar_dense"] * (2 if may_have_many else 1)
    has_few = case.name in ("simhash_capped", "all_ranked", "capped") or num_classes > NUM_CLASSES
    if isinstance(config, LshConfig | LshTopKConfig) and not has_few:
        return ["aten::_local_scalar_dense"]
    return []


@pytest.mark.parametrize("num_classes", [NUM_CLASSES, 40 * NUM_CLASSES])
@pytest.mark.parametrize("case", DRAWS_THERE)
def test_a_step_waits_no_more_than_it_must(case: Case, num_classes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    given = random_query()

    def no_array(self: torch.Tensor, *arguments: Any, **named: Any) -> Any:
        raise AssertionError("a tensor became an array in a step")

    for name in case.config.losses:
        layer = random_layer(num_classes, engine="torch")
        sampler = case.build(layer)
        for step in (1, 2, 3):
            query = TorchQuery(torch.from_numpy(given.hidden_BD), given.target_indptr_B1, given.targets_P)
            with CountWaits() as waits, monkeypatch.context() as patch:
                patch.setattr(torch.Tensor, "numpy", no_array)
                patch.setattr(torch.Tensor, "cpu", no_array)
                made = estimate(layer, sampler, LOSSES[name](name=name), query, step, StageClock())
                made.scores.update()
                if case.config.name.startswith("midx_learn") and step < 3:  # at the third, classes are assigned anew
                    sampler.refresh(query, step, NOBODY)
            width = 0 if isinstance(made.proposal, Everything) else made.proposal.ids.shape[-1]  # type: ignore[attr-defined]
            assert waits.found == waits_of(case, num_classes, width)


def test_full_softmax_says_which_products_and_stores_no_logits() -> None:
    layer, config = random_layer(engine="torch"), SAMPLERS["full"](name="full")
    build = {"layer": layer, "training": TrainingFacts.one_label_a_row(label_counts(120)), "seed": 0}
    assert build_sampler(replace(config, products="auto"), **build).chosen == {"sampler.products": "float32"}
    bf16 = build_sampler(replace(config, products="bf16"), **build)
    assert bf16.sample(random_query(), 1).products == "bf16"  # type: ignore[union-attr]
    with pytest.raises(ConfigError, match="stored_logits=bf16 is for hardware"):
        build_sampler(replace(config, stored_logits="bf16"), **build)


def test_a_clock_of_events_reads_them_late() -> None:
    """A GPU's clock asks for the time between two events once somebody reads it."""
    made: list[Any] = []

    class Event:
        def __init__(self) -> None:
            self.when = len(made)
            made.append(self)

        def record(self) -> None:
            pass

        def synchronize(self) -> None:
            pass

        def elapsed_time(self, end: Any) -> float:
            return 1000.0 * (end.when - self.when)

    clock = StageClock(Event)
    for stage in ("score", "update", "score"):
        with clock.stage(stage):
            pass
    assert len(made) == 6
    assert [clock.seconds[stage] for stage in ("encode", "score", "update")] == [0.0, 2.0, 1.0]
    assert clock.seconds["score"] == 2.0

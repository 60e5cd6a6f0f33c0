"""Formulas of ``bench.scale_model`` on small numbers, and what it says of memory beside the arrays of real heads."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runner.bench import ranks as bench_ranks
from runner.bench.scale import Measured, distinct_draws
from runner.bench.scale_model import (
    FULL,
    LOG_UNIFORM,
    LSH,
    Collective,
    Network,
    Rates,
    Split,
    full_is_as_fast_from,
    least_ranks,
    on,
    talks_half_from,
)
from runner.bench.settings import Ranks, Scale
from runner.contracts import TrainingFacts
from runner.errors import ConfigError
from runner.heads.classes import ClassesHead
from runner.optimizers import AdamConfig
from runner.output.engines import layer_of, make_rows
from runner.output.losses import LOSSES
from runner.samplers import SAMPLERS

NETWORK = Network(bytes_per_second=1000.0, latency=0.01, overhead=0.5)
RATES = Rates(flops=1e6, pair_seconds=1e-6, draw_seconds=0.25, index_seconds=1e-3)


@pytest.mark.parametrize(("kind", "seconds"), [
    ("sum", 0.5 + 6 * 0.01 + 6 / 4 * 80 / 1000),  # 2 (R - 1) messages of a fourth each
    ("max", 0.5 + 6 * 0.01 + 6 / 4 * 80 / 1000),
    ("gather", 0.5 + 3 * 0.01 + 3 * 80 / 1000),  # everybody's 80 bytes from three others
    ("scatter", 0.5 + 3 * 0.01 + 3 / 4 * 80 / 1000),
])  # fmt: skip
def test_a_collective_of_four_ranks(kind: str, seconds: float) -> None:
    assert Collective(kind, 80).seconds(4, NETWORK) == pytest.approx(seconds)
    assert Collective(kind, 80).seconds(1, NETWORK) == 0
    tree = replace(NETWORK, tree=True)  # of two levels
    assert Collective(kind, 80).seconds(4, tree) == pytest.approx(seconds - (0.02 if kind in ("sum", "max") else 0.01))


def test_a_step_sends_the_hidden_gradient_and_three_numbers_a_row() -> None:
    """A divided batch also gathers hidden states and targets, and sums the encoder's gradients."""
    same = Split(method=LOG_UNIFORM, classes=100, ranks=2, rows=10, dim=3)
    assert same.traffic() == {"sum": 10 * 3 * 4 + 2 * 10 * 4, "max": 10 * 4}
    divided = Split(method=LOG_UNIFORM, classes=100, ranks=2, rows=10, dim=3, parallel=True, encoder=7)
    assert divided.traffic() == {"gather": 5 * 3 * 4 + 5 * 4, "sum": 2 * 10 * 4 + 7 * 4, "max": 10 * 4, "scatter": 120}
    full = Split(method=FULL, classes=100, ranks=2, rows=10, dim=3)
    assert full.traffic() == {"sum": 10 * 3 * 4 + 32 * 4 + 10 * 8, "max": 32 * 4}  # rows are padded to a tile


def test_seconds_of_computing() -> None:
    full = Split(method=FULL, classes=101, ranks=2, rows=10, dim=3)
    assert full.computation(RATES) == pytest.approx(8 * 10 * 51 * 3 / 1e6)
    shared = Split(method=LOG_UNIFORM, classes=100, ranks=2, rows=10, dim=3, candidates=19)
    assert shared.computation(RATES) == pytest.approx(0.25 + 10 * 20 / 2 * (6 * 3 / 1e6 + 1e-6))
    skewed = Split(method=LOG_UNIFORM, classes=100, ranks=2, rows=10, dim=3, candidates=19, share=0.9)
    assert skewed.computation(RATES) == pytest.approx(0.25 + 10 * 20 * 0.9 * (6 * 3 / 1e6 + 1e-6))
    lsh = Split(method=LSH, classes=100, ranks=2, rows=1024, dim=3, refresh_steps=10)
    assert lsh.computation(RATES) == pytest.approx(0.25 + 512 * (6 * 3 / 1e6 + 1e-6) + 100 * 1e-3 / 10)


@pytest.mark.parametrize(
    ("moved", "sent"), [(20, {"gather": 20 / 4 * 5 * 2}), (60, {"sum": 3 * 8, "gather": 25 * 5 * 2})]
)
def test_a_refresh_gathers_codes_of_what_moved_or_of_all(moved: float, sent: dict[str, float]) -> None:
    split = Split(method=LSH, classes=100, ranks=4, dim=3, moved=moved, refresh_steps=10, tables=5)
    refresh = split.refresh_collectives()
    assert {collective.kind: collective.bytes for collective in refresh} == sent
    still = Split(method=LSH, classes=100, ranks=4, dim=3)
    more = sum(collective.seconds(4, NETWORK) for collective in refresh) / 10
    assert split.communication(NETWORK) - still.communication(NETWORK) == pytest.approx(more)


def test_crossings_lie_between_two_numbers_of_ranks() -> None:
    assert [least_ranks(lambda ranks, n=n: ranks >= n) for n in (1, 2, 3, 64, 65, 1000)] == [2, 2, 3, 64, 65, 1000]
    assert least_ranks(lambda ranks: False) is None
    network = Network(bytes_per_second=1e9, latency=1e-5, overhead=1e-4)
    full = Split(method=FULL, classes=10_000, ranks=1, rows=10, dim=3)
    begins = talks_half_from(full, RATES, network)
    assert begins is not None
    for ranks, talks in ((begins - 1, False), (begins, True)):
        there = on(full, ranks)
        assert (there.communication(network) > there.computation(RATES)) == talks
    lsh = Split(method=LSH, classes=10_000, ranks=1, rows=10, dim=3, refresh_steps=10)  # an index costs 1 s a step
    assert full_is_as_fast_from(full, lsh, {FULL: RATES, LSH: RATES}, network) == 3, "1.2 s on two, 0.8 s on three"
    still = Split(method=LOG_UNIFORM, classes=10_000, ranks=1, rows=10, dim=3)
    rates = {FULL: RATES, LOG_UNIFORM: Rates(flops=1e6)}
    assert full_is_as_fast_from(full, still, rates, network) is None, "its products alone take longer"


def test_a_divided_batch_grows_with_the_ranks() -> None:
    split = Split(method=LSH, classes=10_000, ranks=1, rows=10, dim=3, parallel=True, candidates=40).refreshed(5)
    there = on(split, 8)
    assert (there.rows, there.candidates, there.moved) == (80, 320, 8 * 5 * 50)
    assert on(Split(method=LOG_UNIFORM, classes=10, ranks=1, rows=10, parallel=True, candidates=4), 8).candidates == 4


def held_bytes(thing: Any, seen: set[int]) -> int:
    """Return the bytes of all arrays that an object of the runner holds, itself or by others."""
    if id(thing) in seen:
        return 0
    seen.add(id(thing))
    if isinstance(thing, np.ndarray):
        return thing.nbytes
    if not type(thing).__module__.startswith("runner.") or not hasattr(thing, "__dict__"):
        return 0
    return sum(held_bytes(value, seen) for value in vars(thing).values())


@pytest.mark.parametrize(("method", "sampler"), [(LOG_UNIFORM, "log_uniform"), (LSH, "lsh_embedding"), (FULL, "full")])
def test_memory_is_that_of_the_arrays(method: str, sampler: str) -> None:
    classes, dim = 40_000, 16  # so many that sums over steps and projections, whose sizes do not grow, are little
    table = make_rows("numba", AdamConfig(), np.random.default_rng(0).standard_normal((classes, dim), dtype=np.float32))
    layer = layer_of(table, None)
    config: Any = SAMPLERS[sampler](name=sampler, **({"shared": True} if method == LSH else {}))
    loss = LOSSES[config.losses[0]](name=config.losses[0])
    facts = TrainingFacts.one_label_a_row(np.ones(classes, dtype=np.int64))
    head = ClassesHead(layer, config, loss, facts, 0)
    said = Split(method=method, classes=classes, ranks=1, dim=dim).memory()
    assert held_bytes(table, set()) == pytest.approx(said["rows"], rel=0.01)
    assert held_bytes(head.sampler, {id(layer)}) == pytest.approx(said["sampler"], rel=0.01)
    assert (said["counts"], said["gathered"], said["checkpoint"]) == (facts.label_counts_N.nbytes, 0, 0)


def test_peak_memory_has_a_checkpoint_or_gathered_codes() -> None:
    split = Split(method=LSH, classes=1000, ranks=4, dim=8, tables=20)
    held = split.memory()
    assert (held["rows"], held["checkpoint"], held["gathered"]) == (250 * 112, 2 * 250 * 112, 3 * 20 * 2 * 1000)
    assert split.peak() == sum(held.values()) - min(held["checkpoint"], held["gathered"])
    assert Split(method=FULL, classes=1000, ranks=4, dim=8).peak() == 3 * 250 * 112 + 8 * 1000


def test_distinct_draws_are_those_of_the_sampler() -> None:
    config: Any = SAMPLERS["log_uniform"](name="log_uniform", num_samples=300)
    sampler = config.build(layer=None, training=TrainingFacts.one_label_a_row(np.ones(5000, dtype=np.int64)), seed=0)
    assert distinct_draws(5000, 300) == pytest.approx(float(np.exp(sampler.log_count_N).sum()), rel=0.01)


# ---------------------------------------------------------------- the bench


def fake_run(method: str, classes: int, ranks: int, threads: int, settings: Ranks) -> dict[str, Any]:
    stages = {"encode": 0.001, "sample": 0.0, "score": 0.1, "loss": 0.0, "update": 0.2, "refresh": 0.0}
    if method != FULL:
        stages |= {"sample": 0.002, "loss": 0.004, "refresh": 0.005 if method == LSH else 0.0}
    return {
        "method": method, "classes": classes, "ranks": ranks, "threads": threads, "steps_timed": 20,
        "step_seconds": 0.4, "stages": stages, "candidates": 0.0 if method == FULL else 50.0,
        "refreshes": 2 if method == LSH else 0, "others_percent": 0.0,
        "of_ranks": [{"seconds": 9.0, "cpu_seconds": 8.0, "peak_kb": 2048}] * ranks,
    }  # fmt: skip


def test_rates_of_one_rank_give_its_step_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two ranks then take as long, as their classes are twice as many, and as long as their collectives beside."""
    from runner.bench.report import measure

    monkeypatch.setattr(bench_ranks, "_run", fake_run)
    found = {"small_us": 100.0, "large_ms": 10.0, "gigabits": 8.0}
    monkeypatch.setattr(bench_ranks, "_collectives", lambda ranks: found)
    path = tmp_path / "ranks.json"
    text = measure("ranks", Ranks(batch=64, dim=8, ranks=(2, 3)), path)
    assert "full, 100,000 classes a rank" in text
    for size in json.loads(path.read_text())["sizes"]:
        rows = {(row["ranks"], row["threads"]): row for row in size["results"]}
        assert {key for key in rows if key[1] == 1} == {(1, 1), (2, 1), (3, 1)}
        assert rows[1, 1]["of_predicted"] == pytest.approx(1)
        if size["method"] == FULL:
            more = rows[2, 1]["predicted_ms"] - rows[1, 1]["predicted_ms"]
            assert more == pytest.approx(rows[2, 1]["communication_ms"])
            assert more == pytest.approx(5 * 0.1 + (64 * 8 * 4 + 64 * 16 + 12) / 1e9 * 1000)
    predicted = tmp_path / "scale.json"
    asked = Scale(classes=(10_000,), ranks=(1, 4), measured=str(path), batch=64, dim=8)
    assert "10,000 classes" in measure("scale", asked, predicted)
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "ranks.json", "ranks.md", "scale.json", "scale.md", "scale.png", "scale.svg",
    ]  # fmt: skip
    (size,) = json.loads(predicted.read_text())["sizes"]
    alone = next(row for row in size["results"] if (row["method"], row["batch"], row["ranks"]) == (FULL, "same", 1))
    machine = Measured.of(path, 1.0).rates[FULL]
    assert alone["seconds"]["10"] == pytest.approx(8 * 64 * 10_000 * 8 / machine.flops)


def test_a_report_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"measured: .*none.json is missing; scripts/bench.py ranks writes it"):
        Measured.of(tmp_path / "none.json", 1.0)

"""One thread and two give the same bits: whole steps of every kind of proposal, and what hash tables do.

Legend: B rows, D hidden size, N classes. Sizes leave every one of the 16 parts of the work something to do.
"""

import os
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest
import torch

from runner.contracts import Query, TrainingFacts
from runner.errors import ConfigError
from runner.kernels.products import HAS_BF16
from runner.machine.threads import set_threads
from runner.output.losses import LOSSES
from runner.output.numba.layer import NumbaLayer
from runner.samplers import SAMPLERS

B, D, N, STEPS = 90, 24, 3000, 4
_LSH = {"K": 5, "L": 8, "min_candidates": 40, "num_tail": 20, "refresh_every_steps": 2, "refresh_growth": 1.0}
KINDS: dict[str, tuple[str, dict[str, Any], str]] = {
    "full_float32": ("full", {}, "full"),
    "full_stored": ("full", {"stored_logits": "bf16"}, "full"),
    "full_bf16": ("full", {"products": "bf16"}, "full"),
    "shared": ("uniform", {"num_samples": 300}, "sampled_softmax"),
    "per_row": ("uniform", {"num_samples": 50, "shared": False}, "nce"),
    "shared_magnitudes": ("uniform", {"num_samples": 300}, "absolute_softmax"),
    "shared_partition": ("unigram", {"num_samples": 300, "unique": False}, "partition_estimate"),
    "per_row_partition": ("unigram", {"num_samples": 50, "shared": False}, "partition_estimate"),
    "per_row_gbce": ("uniform", {"num_samples": 50, "shared": False}, "gbce"),
    "shared_blackout": ("unigram", {"num_samples": 300}, "blackout"),
    "lsh_per_row": ("lsh_label", _LSH, "active_set"),
    "lsh_shared": ("lsh_embedding", {**_LSH, "shared": True, "max_retrieved": 5}, "sampled_softmax"),
    "midx": ("midx_rq", {"codewords": 9, "refresh_every_steps": 2}, "sampled_softmax"),
    "midx_learn": ("midx_learn_rq", {"codewords": 9, "learn_steps": 3, "refresh_every_steps": 2}, "sampled_softmax"),
    "midx_exact": ("midx_exact", {"codewords": 9, "refresh_every_steps": 2}, "nce"),
    "lsh_dwta": ("lsh_embedding", {**_LSH, "hash": "dwta", "K": 3, "max_retrieved": 30}, "sampled_softmax"),
    "exact": ("exact", {"num_samples": 50}, "sampled_softmax"),
    "quadratic_tree": ("quadratic_tree", {"num_samples": 50, "refresh_every_steps": 2}, "sampled_softmax"),
    "quadratic": ("quadratic", {"num_samples": 50}, "absolute_softmax"),
    "topk": ("topk", {"num_nearest": 50}, "active_set"),
    "lsh": ("lsh", {"num_samples": 50, "refresh_every_steps": 2, "refresh_growth": 1.0}, "nce"),
    "lsh_topk": (
        "lsh_topk",
        {"num_nearest": 40, "refresh_every_steps": 2, "refresh_growth": 1.0},
        "partition_estimate",
    ),
    "sce": ("sce", {"bucket_classes": 40, "mix": True}, "active_set"),
    "sce_tail": ("sce", {"bucket_classes": 40, "num_tail": 20}, "nce"),
    "in_batch": ("in_batch", {}, "sampled_softmax"),
    "rff": ("rff", {"num_samples": 50, "D": 48, "refresh_every_steps": 2}, "nce"),
    "rff_orthogonal": ("rff", {"D": 48, "features": "orthogonal", "shared": True, "refresh_every_steps": 2}, "nce"),
}

SLOW = {kind: [pytest.mark.slow] for kind in ("full_stored", "full_bf16")}  # compile for ten seconds each


def results(kind: str, layer: NumbaLayer, query: Query, threads: int) -> dict[str, np.ndarray]:
    """Everything a few steps with refreshes leave behind."""
    numba.set_num_threads(threads)
    torch.set_num_threads(threads)  # products that score every class are torch's
    name, options, loss_name = KINDS[kind]
    config = SAMPLERS[name](name=name, **options)
    loss = LOSSES[loss_name](name=loss_name)
    counts_N = np.arange(N, dtype=np.int64)
    sampler = config.build(layer=layer, training=TrainingFacts.one_label_a_row(counts_N), seed=1)
    kept: dict[str, np.ndarray] = {}
    refreshes = 0
    for step in range(1, STEPS + 1):
        proposal = sampler.sample(query, step)
        scores = layer.score(query, proposal, step)
        log_counts = sampler.log_expected_count_of_targets(query, proposal, step) if loss.corrects_targets else None
        kept[f"losses {step}"] = scores.loss(loss, log_counts).copy()
        kept[f"grad_hidden {step}"] = scores.update()
        if hasattr(proposal, "ids_N"):
            kept[f"ids {step}"], kept[f"counts {step}"] = proposal.ids_N, proposal.log_expected_count_N
        refreshes += sampler.refresh(query, step, scores.touched_U)
    learns = name.startswith("midx_learn")
    assert refreshes == (STEPS if learns else 2 if name.startswith(("lsh", "rff", "midx", "quadratic_tree")) else 0)
    if name.startswith("lsh"):
        kept["members"] = sampler.tables.members  # type: ignore[attr-defined]
    layer.table.read(None, STEPS + 1)
    return {**kept, **layer.table.state_dict(), **sampler.state_dict()}


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=SLOW.get(kind, ())) for kind in KINDS])
def test_same_bits_with_one_thread_and_two(
    kind: str, make_layer: Callable[..., NumbaLayer], make_query: Callable[..., Query]
) -> None:
    if kind == "full_bf16" and not HAS_BF16:
        pytest.skip("needs AVX512_BF16")
    query = make_query(B, D, N)
    one, two = (results(kind, make_layer(N, D), query, threads) for threads in (1, 2))
    assert set(one) == set(two)
    for name, value in one.items():
        assert np.isfinite(value).all(), name
        np.testing.assert_array_equal(value, two[name], err_msg=name)


@pytest.mark.parametrize("rows", ["dense", "catch_up"])
def test_a_refresh_of_few_classes_has_the_same_bits(rows: str, make_layer: Callable[..., NumbaLayer]) -> None:
    """The incremental path: two refreshes with a handful of moved classes each."""
    states = []
    for threads in (1, 2):
        numba.set_num_threads(threads)
        layer = make_layer(N, D, norm=2.0, rows=rows)
        config = SAMPLERS["lsh_label"](name="lsh_label", K=5, L=8)  # type: ignore[call-arg]
        sampler: Any = config.build(layer=layer, training=TrainingFacts.one_label_a_row(np.ones(N)), seed=1)
        ids = np.arange(0, N, 50, dtype=np.int32)
        for step in (1, 2):
            groups = (np.arange(len(ids), dtype=np.int32), ids, np.arange(len(ids) + 1, dtype=np.int64))
            grad = np.random.default_rng(step).standard_normal((len(ids), D)).astype(np.float32)
            layer.table.before_step(step)
            layer.table.read(ids, step)
            one, nobody = np.ones(len(ids), np.float32), np.zeros((0, D), np.float32)
            layer.table.update_groups(groups, grad, groups[0], one, nobody, step)
            sampler.note_touched(ids, step)
            sampler.rebuild(step)
        assert sampler.index.rehashed_rows == N + 2 * len(ids)
        states.append((*sampler.state_dict().values(), sampler.tables.start, sampler.tables.members))
    for a, b in zip(*states, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("parallel_jobs", "of_numba", "threads"),
    [(1, 8, 8), (2, 8, 4), (3, 8, 2), (9, 8, 1), (2, 3, 3), (1, 1, 1), (1, 64, 8)],
)
def test_parallel_jobs_divide_the_cores(
    parallel_jobs: int, of_numba: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight cores are divided by the number of jobs; a launcher or a cluster may have given Numba fewer."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)))
    monkeypatch.setattr(numba.config, "NUMBA_NUM_THREADS", of_numba)
    for library in (numba, torch):
        monkeypatch.setattr(library, "set_num_threads", lambda count: None)
    assert set_threads(0, parallel_jobs) == threads
    if of_numba >= 3:
        assert set_threads(3, parallel_jobs) == 3, "a number that is asked for stays"
        return
    monkeypatch.setenv("NUMBA_NUM_THREADS", str(of_numba))
    with pytest.raises(ConfigError, match=r"^hardware.threads=3 is more than the 1 threads that NUMBA_NUM_THREADS"):
        set_threads(3, parallel_jobs)


@pytest.mark.parametrize(
    ("given", "submitted", "threads"), [("6", True, 6), ("16", True, 8), ("6", False, 3), ("", False, 4)]
)
def test_a_job_of_slurm_takes_the_cores_that_slurm_gave_to_it(
    given: str, submitted: bool, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four jobs of a sweep do not divide theirs. Two jobs side by side within one allocation do."""
    monkeypatch.setenv("SLURM_CPUS_ON_NODE", given)
    if submitted:
        monkeypatch.setenv("SUBMITIT_EXECUTOR", "slurm")
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)))
    monkeypatch.setattr(numba.config, "NUMBA_NUM_THREADS", 8)
    for library in (numba, torch):
        monkeypatch.setattr(library, "set_num_threads", lambda count: None)
    assert set_threads(0, 4 if submitted else 2) == threads

"""A class matrix that several layers hold together takes the steps that one layer takes.

Each layer holds a range of classes and runs in a thread of its own; the threads take turns, so that only one computes.
Legend: B rows of a batch, D hidden size, N classes.
"""

import itertools
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from runner.check.cases import cases_of
from runner.contracts import Everything, Proposal, Query
from runner.errors import Diverged
from runner.kernels.products import HAS_BF16
from runner.optimizers import AdamConfig
from runner.output.across import Alone
from runner.output.losses import LOSSES, FullLoss, LossConfig
from runner.output.numba.layer import NumbaLayer
from runner.output.numba.row_table import RowTable

B, D, N = 9, 12, 90
SPLITS = [(0, 45, 90), (0, 7, 61, 90), (0, 89, 90)]


class Group:
    """Let threads take turns, and give each what all of them brought to a meeting."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.turn = threading.Lock()
        self.meeting = threading.Barrier(size)
        self.brought: list[Any] = [None] * size

    def exchange(self, place: int, value: Any) -> list[Any]:
        self.brought[place] = value
        self.turn.release()
        self.meeting.wait(timeout=60)
        everything = list(self.brought)
        self.meeting.wait(timeout=60)
        self.turn.acquire()
        return everything

    def run(self, work: Callable[["Member"], Any]) -> list[Any]:
        done: list[Any] = [None] * self.size

        def one(place: int) -> None:
            with self.turn:
                try:
                    done[place] = work(Member(self, place))
                except BaseException as error:
                    done[place] = error
                    self.meeting.abort()

        threads = [threading.Thread(target=one, args=(place,)) for place in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for result in done:
            if isinstance(result, BaseException):
                raise result
        return done


class Member:
    """Be one holder of classes (``output.across.Across``)."""

    def __init__(self, group: Group, place: int) -> None:
        self.group, self.place = group, place

    def sum(self, values: np.ndarray) -> np.ndarray:
        return np.sum(self.group.exchange(self.place, values), axis=0, dtype=values.dtype)

    def log_sum_exp(self, top_B: np.ndarray, sum_B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        parts = self.group.exchange(self.place, (top_B, sum_B))
        highest_B = np.max([top for top, _ in parts], axis=0)
        with np.errstate(invalid="ignore"):
            shares = [np.where(np.isneginf(top), 0, total * np.exp(top - highest_B)) for top, total in parts]
        return highest_B, np.sum(shares, axis=0, dtype=sum_B.dtype)

    def gather(self, values_B: np.ndarray) -> np.ndarray:
        return np.stack(self.group.exchange(self.place, values_B))

    def merge_top(
        self, ids_BK: np.ndarray, values_BK: np.ndarray, k: int, *, ranked: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        parts = self.group.exchange(self.place, (ids_BK, values_BK))
        ids, values = (np.concatenate([part[i] for part in parts], axis=1) for i in (0, 1))
        order = np.stack([np.lexsort((ids[row], -values[row]))[:k] for row in range(len(ids))])
        best, highest = np.take_along_axis(ids, order, 1), np.take_along_axis(values, order, 1)
        if not ranked:
            order = np.argsort(best, axis=1)
            best, highest = np.take_along_axis(best, order, 1), np.take_along_axis(highest, order, 1)
        return best, highest


def vectors() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    return generator.standard_normal((N, D)).astype(np.float32), generator.standard_normal(N).astype(np.float32)


def layer_of(lo: int, hi: int, scale: float | None, **options: Any) -> NumbaLayer:
    weights_ND, bias_N = vectors()
    table = RowTable(AdamConfig(lr=0.05), weights_ND[lo:hi], bias=True)
    table.write(None, biases=bias_N[lo:hi])
    return NumbaLayer(table, scale, lo=lo, num_classes=N, **options)


def batch(seed: int = 1) -> Query:
    """Rows with none to four targets."""
    generator = np.random.default_rng(seed)
    sizes = [0, 4, *generator.integers(1, 4, B - 2)]
    targets = np.concatenate([np.sort(generator.choice(N, size, replace=False)) for size in sizes]).astype(np.int32)
    hidden_BD = generator.standard_normal((B, D)).astype(np.float32)
    indptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return Query(hidden_BD=hidden_BD, target_indptr_B1=indptr, targets_P=targets)


def shared(query: Query) -> Proposal:
    ids = np.unique(np.concatenate([np.random.default_rng(2).choice(N, 25, replace=False), query.targets_P[:2]]))
    counts = np.log(np.random.default_rng(3).uniform(0.05, 1, N)).astype(np.float32)[ids]
    return Proposal(ids_N=ids.astype(np.int32), log_expected_count_N=counts)


def each_row(query: Query) -> Proposal:
    """Rows with 0 to 12 draws with replacement; one row's are all of the last class."""
    generator = np.random.default_rng(4)
    drawn = [generator.integers(0, N, size) for size in generator.integers(1, 13, B)]
    drawn[3], drawn[4] = np.full(3, N - 1), np.zeros(0, dtype=np.int64)
    ids = np.concatenate(drawn).astype(np.int32)
    indptr = np.concatenate([[0], np.cumsum([len(own) for own in drawn])]).astype(np.int64)
    counts = np.log(generator.uniform(0.05, 1, len(ids))).astype(np.float32)
    return Proposal(ids_N=ids, log_expected_count_N=counts, indptr_B1=indptr, distinct=False)


def steps(layer: NumbaLayer, propose: Callable[[Query], Any], loss: LossConfig, weighted: bool) -> dict[str, Any]:
    """Take three steps; return losses, gradients of hidden states and, at the end, the rows that are held."""
    out: dict[str, Any] = {"loss": [], "hidden": []}
    for step in (1, 2, 3):
        query = batch(step)
        weight_B = np.linspace(0.02, 0.3, B, dtype=np.float32) if weighted else None
        counts = np.log(np.linspace(0.1, 0.9, len(query.targets_P))).astype(np.float32)
        scores = layer.score(query, propose(query), step)
        out["loss"].append(scores.loss(loss, counts if loss.corrects_targets else None, weight_B))
        out["hidden"].append(scores.update())
        out["touched"] = scores.touched_U
    layer.read(None, 4)
    return {**out, "rows": layer.rows().copy(), "biases": layer.biases().copy()}


def compare(bounds: tuple[int, ...], scale: float | None, *how: Any) -> None:
    whole = steps(layer_of(0, N, scale), *how)
    ranges = list(itertools.pairwise(bounds))

    def work(member: Member) -> dict[str, Any]:
        return steps(layer_of(*ranges[member.place], scale, across=member), *how)

    parts = Group(len(ranges)).run(work)
    for part in parts:
        np.testing.assert_allclose(part["loss"], whole["loss"], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(part["hidden"], whole["hidden"], rtol=1e-4, atol=1e-6)
    for key in ("rows", "biases"):
        np.testing.assert_allclose(np.concatenate([part[key] for part in parts]), whole[key], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(np.concatenate([part["touched"] for part in parts]), whole["touched"])


@pytest.mark.parametrize("name", [name for name in LOSSES if name != "full"])
@pytest.mark.parametrize("propose", [shared, each_row], ids=["shared", "each_row"])
@pytest.mark.parametrize("bounds", SPLITS, ids=str)
def test_listed_candidates(name: str, propose: Callable[[Query], Proposal], bounds: tuple[int, ...]) -> None:
    loss = LOSSES[name](name=name)
    compare(bounds, None, propose, loss, False)
    if hasattr(loss, "correct_target"):
        compare(bounds, 3.0, propose, replace(loss, correct_target=True), True)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("scale", [None, 3.0])
@pytest.mark.parametrize("bounds", SPLITS, ids=str)
def test_full_softmax(bounds: tuple[int, ...], scale: float | None, weighted: bool) -> None:
    everything = Everything(num_classes=N)
    compare(bounds, scale, lambda query: everything, FullLoss(name="full"), weighted)


@pytest.mark.slow
@pytest.mark.skipif(not HAS_BF16, reason="bf16 products need instructions that this processor lacks")
def test_full_softmax_in_bf16() -> None:
    everything = Everything(num_classes=N, products="bf16")
    compare(SPLITS[1], None, lambda query: everything, FullLoss(name="full"), False)


@pytest.mark.parametrize("bounds", SPLITS, ids=str)
@pytest.mark.parametrize("by_magnitude", [False, True])
def test_ranking_cross_entropy_and_logits(bounds: tuple[int, ...], by_magnitude: bool) -> None:
    query, target_B = batch(), np.random.default_rng(5).integers(0, N, B).astype(np.int32)
    ranges = list(itertools.pairwise(bounds))
    some_BK = np.random.default_rng(6).integers(0, N, (B, 4)).astype(np.int32)

    def ask(layer: NumbaLayer) -> list[np.ndarray]:
        best = layer.largest(query.hidden_BD, 10, by_magnitude=by_magnitude)
        ascending = layer.largest(query.hidden_BD, 10, ranked=False, by_magnitude=by_magnitude)
        losses = layer.cross_entropy(query.hidden_BD, target_B, by_magnitude=by_magnitude)
        sound = np.array([layer.is_sound(query.hidden_BD), layer.is_sound(1e30 * query.hidden_BD)])
        return [*best, *ascending, losses, layer.logits(query.hidden_BD, some_BK), sound]

    whole = ask(layer_of(0, N, None))
    for part in Group(len(ranges)).run(lambda member: ask(layer_of(*ranges[member.place], None, across=member))):
        for ours, expected in zip(part, whole, strict=True):
            np.testing.assert_allclose(ours, expected, rtol=1e-5)
    weights_ND, bias_N = vectors()
    logits_BN = query.hidden_BD @ weights_ND.T + bias_N
    np.testing.assert_allclose(whole[5], np.take_along_axis(logits_BN, some_BK, 1), rtol=1e-4, atol=1e-5)
    assert whole[6].tolist() == [True, False]


class _LostElsewhere(Alone):
    """Be a holder of classes beside one whose vectors are not finite."""

    def all(self, flag: bool) -> bool:
        return False


@pytest.mark.parametrize("engine", ["numba", "torch"])
def test_vectors_that_are_lost_elsewhere_end_this_process_too(engine: str) -> None:
    case = cases_of("midx_rq", engine)["uniform"]
    layer = case.layer()
    sampler: Any = case.build(layer)
    layer.across = _LostElsewhere()
    with pytest.raises(Diverged, match="not finite numbers of usable size after step 7"):
        sampler.rebuild(7)

"""A class matrix in tensors takes the steps of the one in arrays, ranks as it does, and reads its state.

Legend: B rows of a batch, D hidden size, N classes.
"""

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from runner.contracts import Everything, Proposal, Query
from runner.optimizers import AdaGradConfig, AdamConfig, OptimizerConfig, SgdConfig
from runner.output.losses import LOSSES, LossConfig
from runner.output.numba.layer import NumbaLayer
from runner.output.numba.row_table import RowTable
from runner.output.torch.batches import TorchQuery, proposal_on
from runner.output.torch.layer import TorchLayer
from runner.output.torch.row_table import TorchRowTable

B, D, N = 9, 12, 90
ADAM = AdamConfig(lr=0.05)
AnyLayer = NumbaLayer | TorchLayer


def layers(
    optimizer: OptimizerConfig = ADAM, scale: float | None = None, seed: int = 0
) -> tuple[NumbaLayer, TorchLayer]:
    generator = np.random.default_rng(seed)
    weights_ND, bias_N = generator.standard_normal((N, D)), generator.standard_normal(N).astype(np.float32)
    ours = NumbaLayer(RowTable(optimizer, weights_ND, bias=True), scale)
    theirs = TorchLayer(TorchRowTable(optimizer, weights_ND, bias=True), scale)
    for layer in (ours, theirs):
        layer.table.write(None, biases=bias_N)
    return ours, theirs


def batch(seed: int) -> Query:
    """Rows with none to four targets."""
    generator = np.random.default_rng(seed)
    sizes = [0, 4, *generator.integers(1, 4, B - 2)]
    targets = [np.sort(generator.choice(N, size, replace=False)) for size in sizes]
    return Query(
        hidden_BD=generator.standard_normal((B, D)).astype(np.float32),
        target_indptr_B1=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        targets_P=np.concatenate(targets).astype(np.int32),
    )


def shared(query: Query, *, distinct: bool = True) -> Proposal:
    """Candidates of the whole batch, targets of its first rows among them."""
    generator = np.random.default_rng(len(query.targets_P))
    ids = np.concatenate([generator.choice(N, 25, replace=not distinct), query.targets_P[:2]])
    ids = np.unique(ids) if distinct else np.sort(ids)
    counts = np.log(np.linspace(0.05, 1, N)).astype(np.float32)[ids]
    return Proposal(ids_N=ids.astype(np.int32), log_expected_count_N=counts, distinct=distinct)


def repeated(query: Query) -> Proposal:
    return shared(query, distinct=False)


def each_row(query: Query) -> Proposal:
    """Rows with 0 to 12 draws with replacement."""
    generator = np.random.default_rng(len(query.targets_P))
    drawn = [generator.integers(0, N, size) for size in generator.integers(1, 13, B)]
    drawn[4] = np.zeros(0, dtype=np.int64)
    ids = np.concatenate(drawn).astype(np.int32)
    counts = np.log(generator.uniform(0.05, 1, len(ids))).astype(np.float32)
    indptr = np.concatenate([[0], np.cumsum([len(own) for own in drawn])]).astype(np.int64)
    return Proposal(ids_N=ids, log_expected_count_N=counts, indptr_B1=indptr, distinct=False)


def nothing(query: Query) -> Proposal:
    none = np.zeros(0, dtype=np.float32)
    return Proposal(ids_N=none.astype(np.int32), log_expected_count_N=none)


def every(query: Query) -> Everything:
    return Everything(num_classes=N)


Propose = Callable[[Query], Any]


def steps(layer: AnyLayer, propose: Propose, loss: LossConfig, weighted: bool, count: int = 3) -> dict[str, Any]:
    """Take steps; return losses, gradients of hidden states and, at the end, the state."""
    out: dict[str, Any] = {"losses": [], "hidden": []}
    for step in range(1, count + 1):
        query = batch(step)
        weight_B = np.linspace(0.02, 0.3, B, dtype=np.float32) if weighted else None
        counts = np.log(np.linspace(0.1, 0.9, len(query.targets_P))).astype(np.float32)
        scores = layer.score(query, propose(query), step)
        out["losses"].append(scores.loss(loss, counts if loss.corrects_targets else None, weight_B))
        if weighted and step % 2:
            gradient, grad_hidden_BD = scores.gradients()
            out["norm"] = gradient.squared_norm()
            gradient.apply(step, 0.5)
        else:
            grad_hidden_BD = scores.update()
        out["hidden"].append(grad_hidden_BD)
        out["touched"] = scores.touched_U
    layer.read(None, count + 1)
    return {**out, **without_drift(layer)}


def without_drift(layer: AnyLayer) -> dict[str, np.ndarray]:
    """Return the state but for sums over missed steps, which an engine takes only where a row missed one."""
    return {name: array.copy() for name, array in layer.state_dict().items() if name != "drift"}


def agree(optimizer: OptimizerConfig, scale: float | None, *how: Any) -> None:
    ours, theirs = layers(optimizer, scale)
    expected, found = steps(ours, *how), steps(theirs, *how)
    assert expected.keys() == found.keys()
    for key, value in expected.items():
        rtol, atol = (1e-5, 2e-6) if key in ("losses", "norm") else (1e-4, 1e-5)
        np.testing.assert_allclose(found[key], value, rtol=rtol, atol=atol, err_msg=key)


@pytest.mark.parametrize("name", [name for name in LOSSES if name != "full"])
@pytest.mark.parametrize("propose", [shared, repeated, each_row, nothing])
def test_listed_candidates(name: str, propose: Propose) -> None:
    loss = LOSSES[name](name=name)
    agree(ADAM, None, propose, loss, False)
    agree(ADAM, 3.0, propose, replace(loss, correct_target=True) if hasattr(loss, "correct_target") else loss, True)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("scale", [None, 3.0])
def test_full_softmax(scale: float | None, weighted: bool) -> None:
    agree(ADAM, scale, every, LOSSES["full"](name="full"), weighted)


def test_full_softmax_in_many_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    from runner.output.torch.scores import EverythingScores

    pieces = list(itertools.pairwise([0, 1, 40, 89, 90]))
    monkeypatch.setattr(EverythingScores, "_blocks", lambda self: pieces)
    agree(ADAM, None, every, LOSSES["full"](name="full"), True)


def test_products_of_bf16_round_operands_alone() -> None:
    _, exact = layers()
    _, rounded = layers()
    full = LOSSES["full"](name="full")
    losses = [
        layer.score(batch(1), Everything(N, products), 1).loss(full)
        for layer, products in ((exact, "float32"), (rounded, "bf16"))
    ]
    assert 0 < np.abs(losses[0] - losses[1]).max() < 0.05


OPTIMIZERS = [
    AdamConfig(lr=0.05, rows="dense"),
    AdamConfig(lr=0.05, rows="touched"),
    AdamConfig(lr=0.01, epsilon=1e-3),
    AdamConfig(lr=0.01, beta1=0.0),
    SgdConfig(lr=0.1),
    AdaGradConfig(lr=0.1),
]


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda config: f"{config.name}-{config.rows}")
@pytest.mark.parametrize("propose", [shared, every])
def test_optimizers(optimizer: OptimizerConfig, propose: Propose) -> None:
    loss = LOSSES["full" if propose is every else "sampled_softmax"]
    agree(optimizer, None, propose, loss(name=loss.__name__), False, 6)


def test_rows_that_missed_steps_catch_up_in_closed_form() -> None:
    """After 60 steps, the two engines' rows differ by rounding alone."""
    ours, theirs = layers(AdamConfig(lr=0.01))

    def few(query: Query) -> Proposal:
        ids = np.sort(np.random.default_rng(query.targets_P).choice(N, 3, replace=False)).astype(np.int32)
        return Proposal(ids_N=ids, log_expected_count_N=np.zeros(3, dtype=np.float32))

    how = (few, LOSSES["active_set"](name="active_set"), False, 60)
    expected, found = steps(ours, *how), steps(theirs, *how)
    np.testing.assert_allclose(found["weights"], expected["weights"], rtol=0, atol=2e-5)
    np.testing.assert_array_equal(found["last_step"], expected["last_step"])
    np.testing.assert_allclose(theirs.state_dict()["drift"], ours.state_dict()["drift"])


def test_looking_leaves_no_trace() -> None:
    loss = LOSSES["active_set"](name="active_set")
    for layer in layers():
        for step in (1, 2, 3):
            scores = layer.score(batch(step), shared(batch(step)), step)
            scores.loss(loss)
            scores.update()
        before = without_drift(layer)
        with layer.table.caught_up(4):
            looked_at = layer.rows().copy()
            layer.read(None, 4)  # moves nothing
            np.testing.assert_array_equal(layer.rows(), looked_at)
        assert np.abs(looked_at - before["weights"]).max() > 1e-3
        for name, array in without_drift(layer).items():
            np.testing.assert_array_equal(array, before[name])


@pytest.mark.parametrize("scale", [None, 3.0])
@pytest.mark.parametrize("by_magnitude", [False, True])
def test_ranking_cross_entropy_and_logits(scale: float | None, by_magnitude: bool) -> None:
    query, target_B = batch(1), np.random.default_rng(5).integers(0, N, B).astype(np.int32)
    some_BK = np.random.default_rng(6).integers(0, N, (B, 4)).astype(np.int32)

    def ask(layer: AnyLayer) -> list[np.ndarray]:
        best = layer.largest(query.hidden_BD, 10, by_magnitude=by_magnitude)
        ascending = layer.largest(query.hidden_BD, 200, ranked=False, by_magnitude=by_magnitude)
        losses = layer.cross_entropy(query.hidden_BD, target_B, by_magnitude=by_magnitude)
        block = np.empty((B, 7), dtype=np.float32)
        layer.block_logits(query.hidden_BD, 80, 87, block)
        others = [layer.class_vectors(), layer.class_vectors(target_B), layer.query_vectors(query.hidden_BD)]
        return [*best, *ascending, losses, layer.logits(query.hidden_BD, some_BK), block, *others]

    ours, theirs = layers(scale=scale)
    for found, expected in zip(ask(theirs), ask(ours), strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    for layer in (ours, theirs):
        assert layer.is_sound(query.hidden_BD)
        assert scale is not None or not layer.is_sound(1e30 * query.hidden_BD)


def test_of_equal_logits_the_lower_id_wins() -> None:
    for layer in layers():
        layer.table.write(None, vectors=np.zeros((N, D), dtype=np.float32), biases=0.0)
        layer.table.write(np.array([70, 20]), biases=1.0)
        layer.table.write(np.array([5]), biases=-0.0)
        assert layer.largest(batch(1).hidden_BD, 5).ids_BK.tolist() == [[20, 70, 0, 1, 2]] * B


def test_each_engine_reads_the_others_state() -> None:
    how = (shared, LOSSES["active_set"](name="active_set"), False)
    ours, theirs = layers()
    steps(ours, *how)
    theirs.load_state_dict(ours.state_dict())
    fresh, _ = layers(seed=1)
    fresh.load_state_dict(theirs.state_dict())
    for name, array in ours.state_dict().items():
        np.testing.assert_array_equal(fresh.state_dict()[name], array)


def test_gradients_of_one_table_add_up() -> None:
    for whole in (False, True):
        sums = []
        for layer in layers():
            query, propose = batch(1), every if whole else shared
            scores = layer.score(query, propose(query), 1)
            scores.loss(LOSSES["full" if whole else "active_set"](name="any"))
            gradient, _ = scores.gradients()
            groups = (np.arange(3), np.array([1, 40, 89], dtype=np.int32), np.arange(4))
            ones, nobody = np.ones(3, dtype=np.float32), np.zeros((0, D), dtype=np.float32)
            words = layer.table.gradients_of_groups(
                groups, query.hidden_BD, np.arange(3, dtype=np.int32), ones, nobody, 1, 0 * ones
            )
            total = gradient.plus(words)  # type: ignore[arg-type]
            total.apply(1)
            sums.append((total.squared_norm(), total.rows_U, layer.rows().copy(), layer.biases().copy()))
        for expected, found in zip(*sums, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_tensors_stay_tensors() -> None:
    """A network on the device gets tensors back; NumPy's view of a proposal lists what it holds, in order."""
    query = batch(1)
    _, layer = layers()
    of_tensors = TorchQuery(torch.from_numpy(query.hidden_BD), query.target_indptr_B1, query.targets_P)
    np.testing.assert_array_equal(of_tensors.hidden_BD, query.hidden_BD)
    scores = layer.score(of_tensors, each_row(query), 1)
    assert isinstance(scores.loss(LOSSES["active_set"](name="active_set")), torch.Tensor)
    assert isinstance(scores.update(), torch.Tensor)
    for propose in (shared, each_row):
        given = propose(query)
        held = proposal_on(given, layer.device)
        assert held.candidates_per_row(B) == given.candidates_per_row(B)
        for name in ("ids_N", "log_expected_count_N", "indptr_B1", "distinct"):
            np.testing.assert_array_equal(getattr(held, name), getattr(given, name))

"""Scores, losses and gradients over candidates: shared path = per-row path = torch's autograd."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from runner.config import compose
from runner.contracts import Everything, Proposal, Query, TrainingFacts
from runner.data.rows.batches import RowBatch
from runner.heads.classes import ClassesHead
from runner.network import Network
from runner.output.losses import LOSSES, GbceLoss, LossConfig
from runner.output.numba.layer import NumbaLayer

B, D, N = 7, 12, 60


def proposal_for(query: Query, *, repeats: bool, seed: int = 0) -> Proposal:
    """Ascending shared candidates that contain some rows' targets (accidental hits)."""
    generator = np.random.default_rng(seed)
    ids = generator.choice(N, 20, replace=repeats)
    ids = np.sort(np.concatenate([ids, query.targets_P[[0, -1]]]))
    ids = (ids if repeats else np.unique(ids)).astype(np.int32)
    log_count_N = np.log(generator.uniform(0.05, 1.0, N)).astype(np.float32)
    return Proposal(ids_N=ids, log_expected_count_N=log_count_N[ids])


def one_for_each_row(proposal: Proposal, rows: int) -> Proposal:
    shared = len(proposal.ids_N)
    return Proposal(
        ids_N=np.tile(proposal.ids_N, rows),
        log_expected_count_N=np.tile(proposal.log_expected_count_N, rows),
        indptr_B1=np.arange(rows + 1, dtype=np.int64) * shared,
    )


def step(
    layer: NumbaLayer,
    query: Query,
    proposal: Proposal,
    loss: LossConfig,
    target_log_count: np.ndarray | None,
) -> dict[str, np.ndarray]:
    """One step; gradients of the class matrix are read off Adam's first moment."""
    scores = layer.score(query, proposal, 1)
    losses = scores.loss(loss, target_log_count).copy()
    grad_hidden = scores.update()
    share = 1 - layer.table.config.beta1
    assert layer.table.bias_first is not None
    return {
        "loss": losses,
        "hidden": grad_hidden,
        "weights": layer.table.first / share,
        "bias": layer.table.bias_first[:, 0] / share,
    }


def autograd(
    layer: NumbaLayer,
    query: Query,
    proposal: Proposal,
    loss: LossConfig,
    target_log_count: np.ndarray | None,
) -> dict[str, np.ndarray]:
    """The losses as their papers write them, row by row; targets among a row's candidates are left out of them."""
    assert layer.table.bias is not None
    weights = torch.from_numpy(layer.table.weights.copy()).double().requires_grad_()
    bias = torch.from_numpy(layer.table.bias[:, 0].copy()).double().requires_grad_()
    hidden = torch.from_numpy(query.hidden_BD.copy()).double().requires_grad_()
    losses = []
    for row in range(B):
        here = slice(query.target_indptr_B1[row], query.target_indptr_B1[row + 1])
        targets = query.targets_P[here]
        if proposal.indptr_B1 is None:
            ids, log_count = proposal.ids_N, proposal.log_expected_count_N
        else:
            mine = slice(proposal.indptr_B1[row], proposal.indptr_B1[row + 1])
            ids, log_count = proposal.ids_N[mine], proposal.log_expected_count_N[mine]
        if loss.name != "partition_estimate":
            kept = ~np.isin(ids, targets)
            ids, log_count = ids[kept], log_count[kept]
        logits = weights @ hidden[row] + bias
        if loss.name == "absolute_softmax":
            logits = logits.abs()
        of_targets, of_candidates = logits[targets.astype(np.int64)], logits[ids.astype(np.int64)]
        if loss.name not in ("active_set", "negative_sampling", "gbce"):
            of_candidates = of_candidates - torch.from_numpy(log_count).double()
        if target_log_count is not None:
            of_targets = of_targets - torch.from_numpy(target_log_count[here]).double()
        every = torch.cat([of_targets, of_candidates])
        if loss.name in ("nce", "negative_sampling", "gbce"):
            alpha = len(ids) / (N - 1)
            beta = alpha * (loss.t * (1 - 1 / alpha) + 1 / alpha) if isinstance(loss, GbceLoss) else 1
            softplus = torch.nn.functional.softplus
            losses.append(beta * softplus(-of_targets).mean() + softplus(of_candidates).sum())
        elif loss.name == "blackout":
            p = torch.softmax(every, 0)
            losses.append(-p[: len(targets)].log().mean() - (1 - p[len(targets) :]).log().sum())
        elif loss.name == "partition_estimate":
            losses.append(torch.logsumexp(of_candidates, 0) - of_targets.mean())
        else:
            losses.append(torch.logsumexp(every, 0) - of_targets.mean())
    stacked = torch.stack(losses)
    stacked.mean().backward()
    assert hidden.grad is not None
    assert weights.grad is not None
    assert bias.grad is not None
    return {
        "loss": stacked.detach().numpy(),
        "hidden": hidden.grad.numpy(),
        "weights": weights.grad.numpy(),
        "bias": bias.grad.numpy(),
    }


CASES = [
    ("sampled_softmax", {}),
    ("sampled_softmax", {"correct_target": True}),
    ("absolute_softmax", {}),
    ("absolute_softmax", {"correct_target": True}),
    ("partition_estimate", {}),
    ("active_set", {}),
    ("nce", {}),
    ("negative_sampling", {}),
    ("gbce", {}),
    ("gbce", {"t": 0.2}),
    ("blackout", {}),
]


def test_every_sampled_loss_is_compared() -> None:
    assert {name for name, _ in CASES} == set(LOSSES) - {"full"}


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("repeats", [False, True])
@pytest.mark.parametrize(("name", "options"), CASES)
def test_like_autograd(
    name: str, options: dict[str, Any], repeats: bool, shared: bool,
    make_layer: Callable[..., NumbaLayer], make_query: Callable[..., Query],
) -> None:  # fmt: skip
    layer, query = make_layer(N, D, norm=3.0), make_query(B, D, N)
    loss = LOSSES[name](name=name, **options)
    proposal = proposal_for(query, repeats=repeats)
    if not shared:
        proposal = one_for_each_row(proposal, B)
    target_log_count = None
    if loss.corrects_targets:
        target_log_count = np.log(np.random.default_rng(4).uniform(0.05, 1, len(query.targets_P)))
        target_log_count = target_log_count.astype(np.float32)
    expected = autograd(layer, query, proposal, loss, target_log_count)
    ours = step(layer, query, proposal, loss, target_log_count)
    np.testing.assert_allclose(ours["loss"], expected["loss"], rtol=2e-5)
    for key in ("hidden", "weights", "bias"):
        np.testing.assert_allclose(ours[key], expected[key], rtol=2e-4, atol=5e-7, err_msg=key)


def test_rows_with_candidates_of_their_own_and_of_different_number(
    make_layer: Callable[..., NumbaLayer], make_query: Callable[..., Query]
) -> None:
    layer, query = make_layer(N, D, norm=2.0), make_query(B, D, N)
    generator = np.random.default_rng(3)
    sizes = np.array([0, 1, 30, 5, 0, N, 2])  # none at all, and every class
    ids = np.concatenate([generator.permutation(N)[:size] for size in sizes]).astype(np.int32)
    proposal = Proposal(
        ids_N=ids,
        log_expected_count_N=np.log(generator.uniform(0.1, 1, len(ids))).astype(np.float32),
        indptr_B1=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
    )
    loss = LOSSES["sampled_softmax"](name="sampled_softmax")
    expected = autograd(layer, query, proposal, loss, None)
    ours = step(layer, query, proposal, loss, None)
    np.testing.assert_allclose(ours["loss"], expected["loss"], rtol=2e-5, atol=1e-6)
    for key in ("hidden", "weights", "bias"):
        np.testing.assert_allclose(ours[key], expected[key], rtol=2e-4, atol=5e-7, err_msg=key)


@pytest.mark.parametrize("shared", [True, False])
def test_untouched_classes_keep_their_bits(
    shared: bool, make_layer: Callable[..., NumbaLayer], make_query: Callable[..., Query]
) -> None:
    layer, query = make_layer(N, D), make_query(B, D, N)
    before = layer.table.weights.copy()
    proposal = proposal_for(query, repeats=False)
    touched = np.union1d(proposal.ids_N, query.targets_P)
    loss = LOSSES["active_set"](name="active_set")
    step(layer, query, proposal if shared else one_for_each_row(proposal, B), loss, None)
    moved = np.flatnonzero((layer.table.weights != before).any(1))
    np.testing.assert_array_equal(moved, touched)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("name", sorted(set(LOSSES) - {"full"}))
def test_a_hit_is_masked_in_its_row_only(
    name: str, shared: bool, make_layer: Callable[..., NumbaLayer], make_query: Callable[..., Query]
) -> None:
    """A candidate that is row 0's target: row 0's loss is that without it, row 1's loss is that with it.

    An estimate of the partition has room for targets that were drawn: there both rows' losses rise.
    """
    query = make_query(2, D, N)
    query = Query(
        hidden_BD=query.hidden_BD,
        target_indptr_B1=np.array([0, 2, 3], dtype=np.int64),
        targets_P=np.array([4, 9, 30], dtype=np.int32),
    )
    loss = LOSSES[name](name=name)
    zeros = np.zeros(3, dtype=np.float32) if loss.corrects_targets else None

    def losses(ids: list[int]) -> np.ndarray:
        proposal = Proposal(
            ids_N=np.array(ids, dtype=np.int32), log_expected_count_N=np.full(len(ids), -1, dtype=np.float32)
        )
        scores = make_layer(N, D).score(query, proposal if shared else one_for_each_row(proposal, 2), 1)
        return scores.loss(loss, zeros)

    without, with_hit = losses([2, 17, 50]), losses([2, 9, 17, 50])
    if loss.masks_hits:
        assert with_hit[0] == pytest.approx(without[0], rel=1e-6)
    else:
        assert with_hit[0] > without[0] + 1e-3
    assert with_hit[1] > without[1] + 1e-3


@pytest.mark.parametrize("shared", [True, False])
def test_partition_estimate_is_lsh_softmaxs(
    shared: bool, make_layer: Callable[..., NumbaLayer], make_query: Callable[..., Query]
) -> None:
    """-o_y + log(sum over S of e^o + (n - k) / l sum over T of e^o), k = |S| = 10, l = |T| = 5 (PAPERS, section 4)."""
    layer, query = make_layer(N, D, norm=2.0), make_query(B, D, N, most_targets=1)
    chosen = np.random.default_rng(0).permutation(N)[:15].astype(np.int32)
    log_count_N = np.zeros(N, dtype=np.float32)
    log_count_N[chosen[10:]] = np.log(5 / (N - 10))
    ids = np.sort(chosen)
    proposal = Proposal(ids_N=ids, log_expected_count_N=log_count_N[ids])
    logits = query.hidden_BD.astype(np.float64) @ layer.table.weights.T + layer.table.biases()
    z = np.exp(logits[:, chosen[:10]]).sum(1) + (N - 10) / 5 * np.exp(logits[:, chosen[10:]]).sum(1)
    expected = np.log(z) - logits[np.arange(B), query.targets_P]
    scores = layer.score(query, proposal if shared else one_for_each_row(proposal, B), 1)
    ours = scores.loss(LOSSES["partition_estimate"](name="partition_estimate"))
    np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shared", [True, False])
def test_partition_of_every_class_is_full_softmax(
    shared: bool, make_layer: Callable[..., NumbaLayer], make_query: Callable[..., Query]
) -> None:
    query = make_query(B, D, N)
    every = Proposal(ids_N=np.arange(N, dtype=np.int32), log_expected_count_N=np.zeros(N, dtype=np.float32))
    full = make_layer(N, D).score(query, Everything(N), 1)
    listed = make_layer(N, D).score(query, every if shared else one_for_each_row(every, B), 1)
    exact = full.loss(LOSSES["full"](name="full"))
    ours = listed.loss(LOSSES["partition_estimate"](name="partition_estimate"))
    np.testing.assert_allclose(ours, exact, rtol=1e-5)
    np.testing.assert_allclose(listed.update(), full.update(), rtol=1e-4, atol=1e-7)


def test_an_empty_partition_estimate_teaches_nothing(
    make_layer: Callable[..., NumbaLayer], make_query: Callable[..., Query]
) -> None:
    """A row without candidates: not -log of nothing, and no pull on its targets."""
    layer, query = make_layer(N, D), make_query(2, D, N, most_targets=1)
    own = np.array([n for n in range(N) if n not in query.targets_P][:4], dtype=np.int32)
    indptr = np.array([0, 0, 4], dtype=np.int64)
    proposal = Proposal(ids_N=own, log_expected_count_N=np.zeros(4, np.float32), indptr_B1=indptr)
    before = layer.table.weights.copy()
    ours = step(layer, query, proposal, LOSSES["partition_estimate"](name="partition_estimate"), None)
    assert ours["loss"][0] == 0
    assert not ours["hidden"][0].any()
    np.testing.assert_array_equal(layer.table.weights[query.targets_P[0]], before[query.targets_P[0]])
    assert ours["hidden"][1].any()


@pytest.mark.parametrize("loss", ["absolute_softmax", "sampled_softmax"])
def test_a_network_ranks_as_its_loss_reads_logits(loss: str) -> None:
    """Magnitudes where the loss trained them; then biases start where magnitudes are least."""
    config = compose(["sampler=uniform", f"loss={loss}", f"model.hidden={D}"])
    network = Network.of(
        config, ClassesHead.of(config, TrainingFacts.one_label_a_row(np.ones(N, dtype=np.int64))), num_features=5
    )
    by_magnitude = loss == "absolute_softmax"
    assert network.head.layer.table.biases() == pytest.approx(0 if by_magnitude else -np.log(N))
    network.head.layer.table.biases()[:] = 0
    one_feature = RowBatch(
        indptr=np.arange(4, dtype=np.int64),
        indices=np.arange(3, dtype=np.int32),
        values=np.ones(3, dtype=np.float32),
        target_indptr=np.arange(4, dtype=np.int64),
        targets=np.zeros(3, dtype=np.int32),
    )
    logits = network.encoder.encode(one_feature) @ network.head.layer.table.weights.T
    expected = np.argsort(-(np.abs(logits) if by_magnitude else logits), axis=1, kind="stable")[:, :9]
    np.testing.assert_array_equal(network.head.top(network.encoder.encode(one_feature), 9), expected)


@pytest.mark.parametrize(("overrides", "start"), [
    (["sampler=uniform", "loss=nce"], -np.log(N)), (["sampler=full"], -np.log(N)),
    (["sampler=quadratic"], 0), (["sampler=quadratic", "loss=absolute_softmax"], 0),
    (["sampler=uniform", "output.bias=false"], 0),
])  # fmt: skip
def test_biases_start_where_draws_and_losses_want_them(overrides: list[str], start: float) -> None:
    """alpha o^2 + 1 has its least where o = 0: with all logits near -log n it would shun the largest."""
    config = compose([*overrides, f"model.hidden={D}"])
    head = ClassesHead.of(config, TrainingFacts.one_label_a_row(np.ones(N, dtype=np.int64)))
    assert head.layer.table.biases() == pytest.approx(start)


@pytest.mark.parametrize("kind", ["full", "uniform", "exact"])
@pytest.mark.parametrize("rows", ["dense", "catch_up"])
def test_a_layer_without_biases_has_none_after_training(kind: str, rows: str, make_query: Callable[..., Query]) -> None:
    """All three kinds of proposal; and class vectors learn as ever."""
    config = compose([f"sampler={kind}", "output.bias=false", f"optimizer.rows={rows}", f"model.hidden={D}"])
    training = TrainingFacts.one_label_a_row(np.ones(N, dtype=np.int64))
    layer = ClassesHead.of(config, training).layer
    sampler = config.sampler.build(layer=layer, training=training, seed=0)
    before, query = layer.table.weights.copy(), make_query(B, D, N)
    for step in (1, 2, 3):
        scores = layer.score(query, sampler.sample(query, step), step)
        scores.loss(config.loss)
        scores.update()
    layer.table.read(None, 4)
    assert not np.array_equal(layer.table.weights, before)
    for array in (layer.table.bias, layer.table.bias_first, layer.table.bias_second):
        assert not array.any()


@pytest.mark.parametrize("k", [1, 7, N])
def test_ranking_by_magnitude(k: int, make_layer: Callable[..., NumbaLayer], make_query: Callable[..., Query]) -> None:
    layer, query = make_layer(N, D, norm=2.0), make_query(B, D, N)
    logits = query.hidden_BD @ layer.table.weights.T + layer.table.biases()
    expected = np.argsort(-np.abs(logits), axis=1, kind="stable")[:, :k]
    np.testing.assert_array_equal(layer.largest(query.hidden_BD, k, by_magnitude=True).ids_BK, expected)
    assert (layer.largest(query.hidden_BD, k).ids_BK != expected).any()


@pytest.mark.parametrize("rows", ["dense", "touched", "catch_up"])
@pytest.mark.parametrize("shared", [True, False])
def test_several_steps_of_both_paths_stay_together(
    rows: str, shared: bool, make_layer: Callable[..., NumbaLayer], make_query: Callable[..., Query]
) -> None:
    """Scores read lagging rows at their current values: compare with a layer that reads all rows."""
    plain, eager = make_layer(N, D, rows=rows), make_layer(N, D, rows=rows)
    loss = LOSSES["sampled_softmax"](name="sampled_softmax")
    for number in range(1, 13):
        query = make_query(B, D, N, seed=number)
        proposal = proposal_for(query, repeats=False, seed=number)
        ours = plain.score(query, proposal if shared else one_for_each_row(proposal, B), number)
        eager.table.read(None, number)
        theirs = eager.score(query, one_for_each_row(proposal, B), number)
        np.testing.assert_allclose(ours.loss(loss), theirs.loss(loss), rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(ours.update(), theirs.update(), rtol=1e-3, atol=1e-6)
    plain.table.read(None, 13)
    eager.table.read(None, 13)
    np.testing.assert_allclose(plain.table.weights, eager.table.weights, atol=2e-4)

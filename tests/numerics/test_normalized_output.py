"""The normalised output layer, logits scale * cos(h, w) + constant bias, against torch.

Legend: B rows, D hidden size, N classes. N leaves every one of the 16 parts of full softmax a whole block of 64 classes
and a part of one. Biases are not 0 here, to show that they are added and never move.
"""

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest
import torch

from runner.config import compose
from runner.contracts import Everything, Proposal, Query, TrainingFacts
from runner.heads.classes import ClassesHead
from runner.kernels.products import HAS_BF16
from runner.output.losses import LOSSES
from runner.output.numba.layer import NumbaLayer

B, D, N = 40, 12, 1300
SCALE = 0.3**-2
KINDS = ["full", "shared", "per_row"]
BF16 = pytest.param("bf16", marks=[pytest.mark.skipif(not HAS_BF16, reason="needs AVX512_BF16"), pytest.mark.slow])


@pytest.fixture
def make_normalized(make_layer: Callable[..., NumbaLayer]) -> Callable[..., NumbaLayer]:
    """Rows of norms between .1 and 10."""

    def make(rows: str = "catch_up", n: int = N) -> NumbaLayer:
        table = make_layer(n, D, rows=rows).table
        table.weights *= (10 ** np.random.default_rng(1).uniform(-1, 1, (n, 1))).astype(np.float32)
        return NumbaLayer(table, SCALE)

    return make


def proposal_for(kind: str, query: Query, seed: int, n: int = N) -> Proposal | Everything:
    """Candidates with repeats, some of them targets."""
    if kind == "full":
        return Everything(n)
    generator = np.random.default_rng(seed)
    log_count_N = np.log(generator.uniform(0.05, 1.0, n)).astype(np.float32)
    if kind == "shared":
        ids = np.sort(np.concatenate([generator.integers(0, n, 80), query.targets_P[:3]])).astype(np.int32)
        return Proposal(ids_N=ids, log_expected_count_N=log_count_N[ids])
    sizes = generator.integers(1, 60, B)
    ids = generator.integers(0, n, sizes.sum()).astype(np.int32)
    ids[0] = query.targets_P[0]
    indptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return Proposal(ids_N=ids, log_expected_count_N=log_count_N[ids], indptr_B1=indptr)


def reference_losses(logits_BN: torch.Tensor, query: Query, proposal: Proposal | Everything) -> torch.Tensor:
    """Full softmax, or sampled softmax with corrected candidates."""
    losses = []
    for row in range(B):
        targets = query.targets_P[query.target_indptr_B1[row] : query.target_indptr_B1[row + 1]].astype(np.int64)
        of_targets = logits_BN[row, targets]
        if isinstance(proposal, Everything):
            partition = torch.logsumexp(logits_BN[row], 0)
        else:
            indptr = proposal.indptr_B1
            mine = slice(None) if indptr is None else slice(indptr[row], indptr[row + 1])
            ids, log_count = proposal.ids_N[mine].astype(np.int64), proposal.log_expected_count_N[mine]
            kept = ~np.isin(ids, targets)
            corrected = logits_BN[row, ids[kept]] - torch.from_numpy(log_count[kept])
            partition = torch.logsumexp(torch.cat([of_targets, corrected]), 0)
        losses.append(partition - of_targets.mean())
    return torch.stack(losses)


def logits_of(weights: torch.Tensor, bias: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
    normalize = torch.nn.functional.normalize
    return SCALE * normalize(hidden, dim=1) @ normalize(weights, dim=1).T + bias


def loss_for(kind: str) -> Any:
    name = "full" if kind == "full" else "sampled_softmax"
    return LOSSES[name](name=name)


@pytest.mark.parametrize("rows", ["dense", "catch_up"])
@pytest.mark.parametrize("kind", KINDS)
def test_steps_like_torch(
    kind: str, rows: str, make_normalized: Callable[..., NumbaLayer], make_query: Callable[..., Query]
) -> None:
    """Losses, hidden gradients and class vectors through 12 steps of dense Adam in double precision.

    Missed steps in closed form are least exact at the first steps (see ``optimizers.Drift``), whatever the layer.
    """
    tolerance = 1e-3 if rows == "catch_up" else 1e-4
    layer = make_normalized(rows)
    table, config = layer.table, layer.table.config
    start, bias = table.weights.copy(), table.bias.copy()
    weights = torch.nn.Parameter(torch.from_numpy(start.copy()).double())
    constant = torch.from_numpy(bias[:, 0].copy()).double()
    adam = torch.optim.Adam([weights], lr=config.lr, betas=(config.beta1, config.beta2), eps=config.epsilon)
    for step in range(1, 13):
        query = make_query(B, D, N, seed=step)
        proposal = proposal_for(kind, query, step)
        hidden = torch.from_numpy(query.hidden_BD.copy()).double().requires_grad_()
        expected_B = reference_losses(logits_of(weights, constant, hidden), query, proposal)
        adam.zero_grad()
        expected_B.mean().backward()
        adam.step()
        assert hidden.grad is not None
        scores = layer.score(query, proposal, step)
        np.testing.assert_allclose(scores.loss(loss_for(kind)), expected_B.detach(), rtol=tolerance, atol=1e-5)
        grad_hidden = scores.update()
        assert grad_hidden.dtype == np.float32
        most = float(hidden.grad.abs().max())
        np.testing.assert_allclose(grad_hidden, hidden.grad.numpy(), atol=10 * tolerance * most)
    table.read(None, 13)
    theirs = weights.detach().numpy()
    error = np.linalg.norm(table.weights - theirs) / np.linalg.norm(theirs - start)
    print(f"{kind} {rows}: {error:.1e}")
    assert error < tolerance
    np.testing.assert_array_equal(table.bias, bias)


@pytest.mark.parametrize("products", ["float32", BF16])
@pytest.mark.parametrize("n", [1, 63, 65, N])
def test_gradients_of_full_softmax(
    products: Any, n: int, make_normalized: Callable[..., NumbaLayer], make_query: Callable[..., Query]
) -> None:
    """One step, gradients read off the first moment. bfloat16 rounds directions; the rounding has no gradient."""
    layer, query = make_normalized(n=n), make_query(B, D, n)
    bias = layer.table.bias.copy()
    weights = torch.from_numpy(layer.table.weights.copy()).double().requires_grad_()
    hidden = torch.from_numpy(query.hidden_BD.copy()).double().requires_grad_()

    def rounded(values: torch.Tensor) -> torch.Tensor:
        return values if products == "float32" else values + (values.float().bfloat16() - values).detach()

    normalize = torch.nn.functional.normalize
    factors = rounded(SCALE * normalize(hidden, dim=1)), rounded(normalize(weights, dim=1))
    logits = factors[0] @ factors[1].T + torch.from_numpy(bias[:, 0])
    expected_B = reference_losses(logits, query, Everything(n))
    expected_B.mean().backward()
    assert weights.grad is not None
    assert hidden.grad is not None
    scores = layer.score(query, Everything(n, products), 1)
    losses, grad_hidden = scores.loss(loss_for("full")), scores.update()
    # Target logits are not rounded, unlike the partition's: 2^-8 of logits up to the scale.
    np.testing.assert_allclose(losses, expected_B.detach().numpy(), atol=2e-5 if products == "float32" else 0.1)
    tolerance = 5e-5 if products == "float32" else 2e-2
    ours = layer.table.first / (1 - layer.table.config.beta1)
    for mine, theirs in ((ours, weights.grad.numpy()), (grad_hidden, hidden.grad.numpy())):
        size = np.linalg.norm(theirs, axis=1, keepdims=True) + 1e-3 * np.abs(theirs).max(initial=1e-12)
        assert (np.abs(mine - theirs) / size).max() < tolerance
    np.testing.assert_array_equal(layer.table.bias, bias)


@pytest.mark.parametrize("kind", KINDS)
def test_only_directions_matter(
    kind: str, make_normalized: Callable[..., NumbaLayer], make_query: Callable[..., Query]
) -> None:
    """Scaled vectors give the same losses; gradients are orthogonal to what they belong to."""
    query = make_query(B, D, N)
    proposal = proposal_for(kind, query, 0)
    one, other = make_normalized(), make_normalized()
    other.table.weights *= np.random.default_rng(2).uniform(0.1, 10, (N, 1)).astype(np.float32)
    longer = Query(hidden_BD=7 * query.hidden_BD, target_indptr_B1=query.target_indptr_B1, targets_P=query.targets_P)
    weights = one.table.weights.copy()
    scores = one.score(query, proposal, 1)
    losses, grad_hidden = scores.loss(loss_for(kind)).copy(), scores.update()
    np.testing.assert_allclose(other.score(longer, proposal, 1).loss(loss_for(kind)), losses, rtol=1e-5)
    for vectors, grads in ((query.hidden_BD, grad_hidden), (weights, one.table.first)):
        assert np.linalg.norm(grads, axis=1).max() > 1e-4
        cosine = (vectors * grads).sum(1)
        bound = 1e-5 * np.linalg.norm(vectors, axis=1) * np.linalg.norm(grads, axis=1)
        assert (np.abs(cosine) <= bound + 1e-12).all()


@pytest.mark.parametrize("kind", KINDS)
def test_zero_vectors(kind: str, make_normalized: Callable[..., NumbaLayer], make_query: Callable[..., Query]) -> None:
    """A hidden state of zeros scores the biases and gets no gradient; a class of zeros scores its bias and moves."""
    layer, query = make_normalized(), make_query(B, D, N)
    query.hidden_BD[3] = 0
    proposal = proposal_for(kind, query, 0)
    zero = query.targets_P[0]
    layer.table.weights[zero] = 0
    constant, weights, hidden = (
        torch.from_numpy(x.copy()) for x in (layer.table.bias[:, 0], layer.table.weights, query.hidden_BD)
    )
    expected_B = reference_losses(logits_of(weights, constant, hidden), query, proposal)
    scores = layer.score(query, proposal, 1)
    np.testing.assert_allclose(scores.loss(loss_for(kind)), expected_B, rtol=1e-5)
    grad_hidden = scores.update()
    assert np.isfinite(grad_hidden).all()
    assert not grad_hidden[3].any()
    assert grad_hidden[4].any()
    assert np.isfinite(layer.table.weights).all()
    assert np.isfinite(layer.table.second).all()
    assert layer.table.weights[zero].any()


def test_ranking_by_the_same_logits(
    make_normalized: Callable[..., NumbaLayer], make_query: Callable[..., Query]
) -> None:
    layer, query = make_normalized(), make_query(B, D, N)
    bias, weights, hidden = (
        torch.from_numpy(x).double() for x in (layer.table.bias[:, 0], layer.table.weights, query.hidden_BD)
    )
    expected = logits_of(weights, bias, hidden).numpy()
    logits = np.empty((B, 900), dtype=np.float32)
    layer.block_logits(query.hidden_BD, 100, 1000, logits)
    np.testing.assert_allclose(logits, expected[:, 100:1000], rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(layer.largest(query.hidden_BD, 5).ids_BK, np.argsort(-expected, axis=1)[:, :5])
    by_magnitude = layer.largest(query.hidden_BD, 5, by_magnitude=True).ids_BK
    np.testing.assert_array_equal(by_magnitude, np.argsort(-np.abs(expected), axis=1)[:, :5])
    # Logits of a training step, seen through the loss of one target against one candidate.
    one = Query(
        hidden_BD=query.hidden_BD[:1],
        target_indptr_B1=np.array([0, 1], dtype=np.int64),
        targets_P=np.array([10], dtype=np.int32),
    )
    for indptr in (None, np.array([0, 1], dtype=np.int64)):
        proposal = Proposal(
            ids_N=np.array([20], dtype=np.int32), log_expected_count_N=np.zeros(1, np.float32), indptr_B1=indptr
        )
        loss = layer.score(one, proposal, 1).loss(loss_for("shared"))
        assert loss[0] == pytest.approx(np.log1p(np.exp(expected[0, 20] - expected[0, 10])), rel=1e-5)


@pytest.mark.parametrize("kind", ["full", BF16, "shared", "per_row"])
def test_same_bits_with_one_thread_and_two(
    kind: str, make_normalized: Callable[..., NumbaLayer], make_query: Callable[..., Query]
) -> None:
    left = []
    for threads in (1, 2):
        numba.set_num_threads(threads)
        layer = make_normalized()
        for step in range(1, 4):
            query = make_query(B, D, N, seed=step)
            proposal = Everything(N, "bf16") if kind == "bf16" else proposal_for(kind, query, step)
            scores = layer.score(query, proposal, step)
            losses = scores.loss(loss_for("full" if kind == "bf16" else kind)).copy()
            grad_hidden = scores.update()
        layer.table.read(None, 4)
        left.append([losses, grad_hidden, *layer.table.state_dict().values()])
    for one, two in zip(*left, strict=True):
        np.testing.assert_array_equal(one, two)


def test_a_network_is_normalised_by_its_configuration() -> None:
    facts = TrainingFacts.one_label_a_row(np.ones(50, dtype=np.int64))
    plain = ClassesHead.of(compose(["sampler=uniform"]), facts)
    assert plain.layer.scale is None
    assert plain.layer.table.biases() == pytest.approx(-np.log(50))
    choices = ["sampler=uniform", "output.normalize=true", "output.temperature=0.5"]
    head = ClassesHead.of(compose(choices), facts)
    assert head.layer.scale == 4
    assert not head.layer.table.biases().any()

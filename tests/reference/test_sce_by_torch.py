"""Scalable cross-entropy beside the published algorithm, written down plainly in torch and double precision.

Legend: B rows, N classes, D hidden size, K buckets, X rows of a bucket, C classes of a bucket.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from runner.contracts import Query, TrainingFacts
from runner.errors import ConfigError
from runner.output.losses import ActiveSetLoss, LossConfig, PartitionEstimateLoss, SampledSoftmaxLoss
from runner.output.numba.layer import NumbaLayer
from runner.samplers.sce import Sce, SceConfig, centres, gram, triangular_root, usual_buckets

B, D, N = 30, 8, 200
ACTIVE_SET = ActiveSetLoss(name="active_set")
Make = Callable[..., Any]


def build(layer: NumbaLayer, **settings: Any) -> Any:
    training = TrainingFacts.one_label_a_row(np.ones(layer.num_classes, dtype=np.int64))
    return SceConfig(name="sce", **settings).build(layer=layer, training=training, seed=5)


@pytest.fixture
def layer(make_layer: Make) -> NumbaLayer:
    """Make a class matrix without biases, which the paper does not have."""
    layer: NumbaLayer = make_layer(N, D, norm=2.0)
    layer.table.biases()[:] = 0
    return layer


@pytest.fixture
def query(make_query: Make) -> Query:
    """Make a batch with one target a row, as in the paper."""
    query: Query = make_query(B, D, N, most_targets=1)
    return query


def losses_of(layer: NumbaLayer, query: Query, sampler: Sce, loss: LossConfig = ACTIVE_SET) -> tuple[np.ndarray, Any]:
    """Return each row's loss at step 1, and the scores."""
    scores = layer.score(query, sampler.sample(query, 1), 1)
    return scores.loss(loss).copy(), scores


def published(
    hidden: torch.Tensor, weights: torch.Tensor, target: torch.Tensor, centre: torch.Tensor, rows: int, classes: int
) -> torch.Tensor:
    """Return the largest of each row's losses over its buckets, (B,); -inf for rows in no bucket."""
    loss = torch.full((len(hidden),), -torch.inf, dtype=torch.float64)
    for one in centre:
        members_X = torch.topk(hidden @ one, rows).indices
        classes_C = torch.topk(weights @ one, classes).indices
        others_XC = hidden[members_X] @ weights[classes_C].T
        others_XC = others_XC.masked_fill(classes_C == target[members_X][:, None], -torch.inf)
        own_X = (hidden[members_X] * weights[target[members_X]]).sum(1)
        loss_X = torch.logsumexp(torch.cat([others_XC, own_X[:, None]], 1), 1) - own_X
        loss = torch.maximum(loss, torch.full_like(loss, -torch.inf).index_put((members_X,), loss_X))
    return loss


def tensors(layer: NumbaLayer, query: Query) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return hidden states, class vectors and targets."""
    hidden, weights = (
        torch.tensor(array, dtype=torch.float64, requires_grad=True) for array in (query.hidden_BD, layer.table.weights)
    )
    return hidden, weights, torch.from_numpy(query.targets_P).long()


# ---------------------------------------------------------------- the paper's loss


@pytest.mark.parametrize("mix", [True, False])
def test_one_bucket_has_the_published_loss_and_gradients(layer: NumbaLayer, query: Query, mix: bool) -> None:
    """With one bucket nothing is aggregated. The paper's mean is over the rows in it, ours over the batch."""
    sampler = build(layer, buckets=1, bucket_rows=12, bucket_classes=50, mix=mix)
    centre = torch.from_numpy(centres(query.hidden_BD, 1, mix=mix, seed=5, step=1)).double()
    hidden, weights, target = tensors(layer, query)
    expected = published(hidden, weights, target, centre, 12, 50)
    inside = expected > -torch.inf
    (expected[inside].sum() / B).backward()

    losses, scores = losses_of(layer, query, sampler)
    np.testing.assert_allclose(losses[inside.numpy()], expected[inside].detach(), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(losses[~inside.numpy()], 0)
    rows, grad_hidden = scores.gradients()
    np.testing.assert_allclose(grad_hidden, hidden.grad, atol=1e-7)
    np.testing.assert_array_equal(grad_hidden[~inside.numpy()], 0)
    grad_weights = np.zeros((N, D))
    grad_weights[rows.rows_U] = rows.grad_UD
    np.testing.assert_allclose(grad_weights, weights.grad, atol=1e-7)


def test_the_loss_lies_between_the_published_one_and_full_softmax(layer: NumbaLayer, query: Query) -> None:
    """The partition over all of a row's buckets contains that over each, and is part of that over all classes."""
    sampler = build(layer, buckets=9, bucket_rows=10, bucket_classes=40, mix=True)
    centre = torch.from_numpy(centres(query.hidden_BD, 9, mix=True, seed=5, step=1)).double()
    hidden, weights, target = tensors(layer, query)
    lower = published(hidden, weights, target, centre, 10, 40).detach().numpy()
    upper = torch.nn.functional.cross_entropy(hidden @ weights.T, target, reduction="none").detach().numpy()
    rows_KX, _ = sampler.buckets(query, 1)
    held_B = np.bincount(rows_KX.reshape(-1), minlength=B)
    assert {0, 1, 2} <= set(held_B.tolist())
    losses, _ = losses_of(layer, query, sampler)
    np.testing.assert_allclose(losses[held_B == 1], lower[held_B == 1], rtol=1e-5, atol=1e-6)
    assert (losses[held_B > 0] >= lower[held_B > 0] - 1e-6).all()
    assert (losses[held_B > 1] > lower[held_B > 1] + 1e-3).any()
    assert (losses <= upper + 1e-6).all()


@pytest.mark.parametrize("scale", [None, 4.0])
def test_candidates_are_the_classes_of_the_rows_buckets(layer: NumbaLayer, query: Query, scale: float | None) -> None:
    """In a normalised layer directions are compared, of classes whose vectors differ in length."""
    layer.table.weights *= np.geomspace(0.2, 5, N, dtype=np.float32)[:, None]
    layer = NumbaLayer(layer.table, scale)
    sampler = build(layer, buckets=7, bucket_rows=9, bucket_classes=33, mix=True)
    vectors_BD, classes_ND = layer.query_vectors(query.hidden_BD), layer.class_vectors()
    expected: list[set[int]] = [set() for _ in range(B)]
    for one in centres(vectors_BD, 7, mix=True, seed=5, step=3):
        for row in np.argsort(-(vectors_BD @ one), kind="stable")[:9]:
            expected[row] |= set(np.argsort(-(classes_ND @ one), kind="stable")[:33].tolist())
    proposal = sampler.sample(query, 3)
    assert [set(proposal.row(row).ids_M.tolist()) for row in range(B)] == expected
    assert len(proposal.ids_N) == sum(map(len, expected))
    assert (proposal.log_expected_count_N == 0).all()


def test_a_bucket_larger_than_the_batch_and_the_classes_gives_full_softmax(layer: NumbaLayer, query: Query) -> None:
    sampler = build(layer, bucket_rows=B + 1, bucket_classes=N + 1)
    hidden, weights, target = tensors(layer, query)
    full = torch.nn.functional.cross_entropy(hidden @ weights.T, target, reduction="none")
    np.testing.assert_allclose(losses_of(layer, query, sampler)[0], full.detach(), rtol=1e-5, atol=1e-6)


def test_the_authors_sizes_are_taken_where_none_are_set(layer: NumbaLayer, query: Query) -> None:
    assert [usual_buckets(rows) for rows in (1, 2, 4, 6, 2048 * 95)] == [2, 2, 4, 4, 882]
    rows_KX, classes_KC = build(layer, bucket_classes=11).buckets(query, 1)
    assert rows_KX.shape == (10, 10)
    assert classes_KC.shape == (10, 11)


# ---------------------------------------------------------------- rows without targets, and tails


def test_rows_without_targets_are_in_no_bucket(layer: NumbaLayer, query: Query) -> None:
    """Padding must not be drawn, nor pull the centres."""
    sampler = build(layer, bucket_classes=20, mix=True)
    with_padding = Query(
        hidden_BD=np.concatenate([query.hidden_BD, np.full((50, D), 9, dtype=np.float32)]),
        target_indptr_B1=np.concatenate([query.target_indptr_B1, np.full(50, B)]),
        targets_P=query.targets_P,
    )
    plain, padded = sampler.sample(query, 2), sampler.sample(with_padding, 2)
    np.testing.assert_array_equal(padded.ids_N, plain.ids_N)
    np.testing.assert_array_equal(padded.indptr_B1[: B + 1], plain.indptr_B1)
    nobody = Query(
        hidden_BD=query.hidden_BD, target_indptr_B1=np.zeros(B + 1, np.int64), targets_P=np.zeros(0, np.int32)
    )
    assert len(sampler.sample(nobody, 2).ids_N) == 0
    assert (losses_of(layer, nobody, sampler)[0] == 0).all()


def test_a_tail_gives_candidates_to_every_row_and_stated_counts_to_targets(layer: NumbaLayer, query: Query) -> None:
    sampler = build(layer, buckets=2, bucket_rows=8, bucket_classes=30, num_tail=25)
    proposal = sampler.sample(query, 1)
    sizes_B = np.diff(proposal.indptr_B1)
    in_buckets_B = np.add.reduceat(proposal.log_expected_count_N == 0, proposal.indptr_B1[:-1])
    np.testing.assert_array_equal(sizes_B, in_buckets_B + 25)
    assert (in_buckets_B == 0).any()
    everyone = np.arange(N, dtype=np.int32)
    log_count_BN = sampler.log_expected_count(query, everyone, 1)
    log_count_P = sampler.log_expected_count_of_targets(query, proposal, 1)
    np.testing.assert_array_equal(log_count_P, log_count_BN[query.row_P, query.targets_P])
    np.testing.assert_allclose(np.exp(log_count_BN).sum(1), sizes_B, rtol=1e-5)
    repeated = sampler.log_expected_count(query, np.array([5, 3, 5], dtype=np.int32), 1)
    np.testing.assert_array_equal(repeated, log_count_BN[:, [5, 3, 5]])


def test_a_loss_that_needs_every_class_needs_a_tail() -> None:
    corrected = SampledSoftmaxLoss(name="sampled_softmax", correct_target=True)
    for loss in (PartitionEstimateLoss(name="partition_estimate"), corrected):
        with pytest.raises(ConfigError, match=r"or sampler\.num_tail of at least 1"):
            SceConfig(name="sce").check_loss(loss)
        SceConfig(name="sce", num_tail=1).check_loss(loss)
    SceConfig(name="sce").check_loss(ACTIVE_SET)


@pytest.mark.parametrize("key", ["buckets", "bucket_rows", "bucket_classes", "num_tail"])
def test_sizes_out_of_range_are_refused(key: str) -> None:
    with pytest.raises(ConfigError, match=rf"^sampler\.{key} must be .*$"):
        SceConfig(name="sce", **{key: -1})


# ---------------------------------------------------------------- centres


@given(rows=st.integers(1, 40), dim=st.integers(1, 40), rank=st.integers(0, 40), seed=st.integers(0, 2**16))
def test_the_triangular_root_of_a_gram_matrix(rows: int, dim: int, rank: int, seed: int) -> None:
    """Vectors may be fewer than their columns, or lie in a plane, or be zero.

    Without full rank, rounding errors of the products show: a covariance right to 1e-3 is right enough for draws.
    """
    generator = np.random.default_rng(seed)
    vectors = (generator.standard_normal((rows, rank)) @ generator.standard_normal((rank, dim))).astype(np.float32)
    exact = vectors.astype(np.float64).T @ vectors
    found = gram(vectors)
    np.testing.assert_allclose(found, exact, atol=1e-6 * (1 + np.diag(exact).max()))
    root = triangular_root(found)
    assert (root == np.tril(root)).all()
    np.testing.assert_allclose(root @ root.T, exact, atol=1e-3 * (1e-9 + np.diag(exact).max()))


def test_mixed_centres_are_random_combinations_of_the_hidden_states() -> None:
    """Omega X has independent normal rows with covariance X'X: compare its moments within 5 standard errors."""
    generator = np.random.default_rng(0)
    hidden = (generator.standard_normal((50, 5)) * [1, 2, 0.1, 1, 1] + [0, 3, 0, 1, 0]).astype(np.float32)
    count = 40_000
    drawn = centres(hidden, count, mix=True, seed=1, step=1).astype(np.float64)
    covariance = hidden.T.astype(np.float64) @ hidden
    variance = np.diag(covariance)
    assert (np.abs(drawn.mean(0)) < 5 * np.sqrt(variance / count)).all()
    error = np.sqrt((np.outer(variance, variance) + covariance**2) / count)
    assert (np.abs(drawn.T @ drawn / count - covariance) < 5 * error).all()
    kurtosis = (drawn**4).mean(0) / variance**2
    assert (np.abs(kurtosis - 3) < 5 * np.sqrt(96 / count)).all()
    assert not np.array_equal(drawn, centres(hidden, count, mix=True, seed=1, step=2))
    plain = centres(hidden, count, mix=False, seed=1, step=1)
    np.testing.assert_allclose(plain.T @ plain / count, np.eye(5), atol=5 * np.sqrt(2 / count))

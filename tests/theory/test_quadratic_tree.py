"""The tree of the quadratic kernel: draws by alpha o^2 + 1, whatever moves below it."""

from typing import Any

import numpy as np
import pytest
from quantized import Layers, Queries, build, log_q

from runner.errors import Diverged
from runner.structures.outer_tree import OuterTree

N, DIM = 700, 20


def kernel(layer: Any, query: Any, alpha: float) -> np.ndarray:
    """q of the dense formula, in float64."""
    logits = query.hidden_BD.astype(np.float64) @ layer.class_vectors().T.astype(np.float64)
    weight = alpha * logits**2 + 1
    return weight / weight.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("num_classes", [1, 15, 20, 21, 333, N])
@pytest.mark.parametrize("alpha", [0.5, 100.0])
def test_stated_counts_are_those_of_the_kernel(
    num_classes: int, alpha: float, make_layer: Layers, make_query: Queries
) -> None:
    """One leaf, a full last leaf, one class too many for it, and deep trees with leaves on two levels."""
    layer, query = make_layer(num_classes, DIM), make_query(5, DIM, num_classes)
    sampler = build("quadratic_tree", layer, num_samples=10, alpha=alpha)
    np.testing.assert_allclose(np.exp(log_q(sampler, query)), kernel(layer, query, alpha), rtol=1e-4)


def test_biases_play_no_part(make_layer: Layers, make_query: Queries) -> None:
    layer, query = make_layer(N, DIM), make_query(5, DIM, N)
    before = log_q(build("quadratic_tree", layer), query)
    layer.table.bias[:] += 3
    np.testing.assert_array_equal(before, log_q(build("quadratic_tree", layer), query))


@pytest.mark.parametrize("place", [0, N // 2, N - 1])
def test_masses_that_overflow_are_refused(place: int, make_layer: Layers, make_query: Queries) -> None:
    layer, query = make_layer(N, DIM), make_query(5, DIM, N)
    query.hidden_BD[:] = 1
    layer.table.weights[place] = 0
    layer.table.weights[place, 0] = 1e20
    sampler = build("quadratic_tree", layer)
    with pytest.raises(Diverged, match=r"sampler=quadratic_tree: a logit is not a finite number"):
        sampler.sample(query, 1)


def test_a_refreshed_tree_is_a_rebuilt_one() -> None:
    """Bit by bit, after any number of changes of any classes."""
    generator = np.random.default_rng(0)
    tree = OuterTree(N, DIM, 100.0)
    tree.vectors_ND[...] = generator.standard_normal((N, DIM))
    tree.rebuild()
    for size in (1, 3, 40, N):
        moved = np.sort(generator.choice(N, size, replace=False)).astype(np.int32)
        tree.vectors_ND[moved] += generator.standard_normal((size, DIM)).astype(np.float32)
        tree.update(moved)
    other = OuterTree(N, DIM, 100.0)
    other.vectors_ND[...] = tree.vectors_ND
    other.rebuild()
    np.testing.assert_array_equal(tree.sums_VF, other.sums_VF)
    triangle = np.triu_indices(DIM)
    whole = tree.vectors_ND.T.astype(np.float64) @ tree.vectors_ND
    np.testing.assert_allclose(tree.sums_VF[1], whole[triangle], rtol=1e-4, atol=1e-2)


def test_the_tree_follows_the_vectors_when_it_is_due(make_layer: Layers, make_query: Queries) -> None:
    layer, query = make_layer(N, DIM), make_query(5, DIM, N)
    sampler = build("quadratic_tree", layer, refresh_every_steps=2)
    old = kernel(layer, query, 100.0)
    moved = np.arange(0, N, 3, dtype=np.int32)
    layer.table.weights[moved] *= 4
    assert not sampler.refresh(query, 1, moved)
    np.testing.assert_allclose(np.exp(log_q(sampler, query)), old, rtol=1e-4)
    assert sampler.refresh(query, 2, np.zeros(0, dtype=np.int32))
    np.testing.assert_allclose(np.exp(log_q(sampler, query)), kernel(layer, query, 100.0), rtol=1e-4)

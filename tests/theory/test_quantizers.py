"""Quantisers of class vectors: what k-means leaves."""

import itertools

import numba
import numpy as np
import pytest
import torch
from quantized import (
    Layers,
    Queries,
    build,
    grouped_layer,
    quantizer,
    vectors,
)

from runner.errors import ConfigError, Diverged

# ---------------------------------------------------------------- k-means


@pytest.mark.parametrize("kind", ["gaussian", "grouped"])
def test_residual_quantisation_distorts_less_than_product_quantisation(kind: str) -> None:
    values = vectors(kind)
    error = {}
    for name in ("pq", "rq"):
        made = quantizer(name, 16)
        error[name] = made.assign(values, made.fit(values, np.random.default_rng(0)))[1].mean()
    assert error["rq"] < error["pq"], error


def test_a_wider_beam_never_hurts() -> None:
    """The same codebooks: a class's error under a wider beam is never above that under a narrower one."""
    values = vectors("gaussian")
    made = quantizer("rq", 16)
    codebooks = made.fit(values, np.random.default_rng(0))
    errors = [made.assign(values, codebooks, beam=beam)[1] for beam in (1, 2, 4, 16)]
    for narrow, wide in itertools.pairwise(errors):
        assert (wide <= narrow).all()
    assert errors[2].mean() < 0.99 * errors[0].mean()
    assert errors[3].mean() > 0.97 * errors[2].mean(), "beyond 4 there is little left to gain"


@pytest.mark.parametrize("kind", ["pq", "rq"])
@pytest.mark.parametrize("dim", [2, 3, 7])
def test_codebooks_live_in_their_parts(kind: str, dim: int) -> None:
    """Odd sizes give the first half the coordinate in the middle."""
    made = quantizer(kind, 4)
    codebooks = made.fit(vectors("gaussian", 200, dim), np.random.default_rng(0))
    half = (dim + 1) // 2
    inside = np.zeros((2, 1, dim), dtype=bool)
    inside[0, :, : half if kind == "pq" else dim] = True
    inside[1, :, half if kind == "pq" else 0 :] = True
    np.testing.assert_array_equal(codebooks != 0, np.broadcast_to(inside, codebooks.shape))


def test_product_quantisation_needs_two_coordinates() -> None:
    with pytest.raises(ConfigError, match="at least 2 coordinates"):
        quantizer("pq", 4).fit(vectors("gaussian", 20, 1), np.random.default_rng(0))
    codebooks = quantizer("rq", 4).fit(vectors("gaussian", 20, 1), np.random.default_rng(0))
    assert codebooks.shape == (2, 4, 1)


@pytest.mark.parametrize("kind", ["pq", "rq"])
@pytest.mark.parametrize("case", ["one", "two", "three", "duplicates", "zeros", "nearly_equal", "as_many", "sparse"])
def test_vectors_that_k_means_dislikes(kind: str, case: str) -> None:
    """Fewer distinct vectors than codewords are met exactly, without a warning, from a cold and a warm start."""
    generator = np.random.default_rng(4)
    some = generator.standard_normal((5, 6)).astype(np.float32)
    values = {
        "one": some[:1], "two": some[:2], "three": some[:3], "as_many": generator.standard_normal((8, 6)),
        "duplicates": some[generator.integers(0, 5, 300)], "zeros": np.zeros((300, 6)),
        "nearly_equal": 1 + 1e-7 * generator.integers(0, 3, (300, 6)),
        "sparse": np.eye(300, 6),
    }[case].astype(np.float32)  # fmt: skip
    made = quantizer(kind, 8)
    codebooks = made.fit(values, np.random.default_rng(0))
    for _ in range(2):
        codes, error = made.assign(values, codebooks)
        assert np.isfinite(codebooks).all()
        np.testing.assert_allclose(error, 0, atol=1e-5)
        assert codes.max() < 8
        codebooks = made.fit(values, np.random.default_rng(1), codebooks)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e25])
def test_weights_that_are_not_finite_are_an_error_of_one_line(
    bad: float, make_layer: Layers, make_query: Queries
) -> None:
    layer, query = make_layer(60, 8), make_query(3, 8, 60)
    sampler = build("midx_rq", layer, codewords=4, refresh_every_steps=2)
    layer.table.weights[7, 3] = bad
    nobody = np.zeros(0, dtype=np.int32)
    assert not sampler.refresh(query, 1, nobody)
    with pytest.raises(Diverged, match=r"class vectors are not finite .* after step 2; try a smaller optimizer\.lr$"):
        sampler.refresh(query, 2, nobody)
    for operation in (
        lambda: quantizer("rq", 4).fit(layer.table.weights, np.random.default_rng(0)),
        lambda: quantizer("rq", 4).assign(layer.table.weights, sampler.codebooks_2CD),
    ):
        with pytest.raises(Diverged, match="not finite"):
            operation()


@pytest.mark.parametrize("kind", ["pq", "rq"])
def test_a_warm_start_goes_on_from_where_it_was(kind: str) -> None:
    """One pass from the codebooks of vectors that hardly moved beats one pass from nothing."""
    values = vectors("grouped")
    codebooks = quantizer(kind, 16).fit(values, np.random.default_rng(0))
    moved = values + 0.05 * vectors("gaussian")
    short = quantizer(kind, 16, iterations=1)
    error = {
        name: short.assign(moved, short.fit(moved, np.random.default_rng(1), start))[1].mean()
        for name, start in (("warm", codebooks), ("cold", None))
    }
    assert error["warm"] < error["cold"], error


def test_same_codebooks_with_one_thread_and_two(make_layer: Layers, make_query: Queries) -> None:
    """k-means and learning too, whose libraries have threads of their own: 65,536 numbers are enough to wake them."""
    layer, query = grouped_layer(make_layer, 5000, 16), make_query(40, 16, 5000)
    states = []
    for threads in (1, 2):
        numba.set_num_threads(threads)
        torch.set_num_threads(threads)
        sampler = build("midx_learn_rq", layer, codewords=12, refresh_every_steps=1, learn_steps=4)
        assert sampler.refresh(query, 1, np.zeros(0, dtype=np.int32))
        assert torch.get_num_threads() == threads
        states.append(sampler.state_dict())
    for name, value in states[0].items():
        np.testing.assert_array_equal(value, states[1][name], err_msg=name)

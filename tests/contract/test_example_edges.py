"""Odd examples and odd weights: samplers of examples neither hang nor crash, and weights stay finite where input is.

Legend: X training examples, D size of the vectors, M draws.
"""

import numpy as np
import pytest
from example_cases import BATCH, COUNT, DIM, VARIANTS, ToyView, build, toy_view, walk

from runner.lgd import ExampleSampler


def odd(name: str) -> ToyView:
    """Return a view whose vectors or query are odd as the name says; each is finite."""
    view = toy_view()
    matrix_XD, query_D = view.examples.matrix, view.query_D
    match name:
        case "identical points":
            matrix_XD[:] = matrix_XD[0]
        case "zero vectors":
            matrix_XD[:] = 0
        case "some zero vectors":
            matrix_XD[::2] = 0
        case "zero residuals":
            query_D[:-1] = [2, 0, 0, 0]  # so that the products are exact
            matrix_XD[:, -1] = 2 * matrix_XD[:, 0]
        case "constant features":
            matrix_XD[:, :-1] = 0
        case "zero query":
            query_D[:] = 0
        case "no weights yet":
            query_D[:-1] = 0
        case "one outlier":
            matrix_XD[3] *= 1e15
        case "tiny":
            matrix_XD *= np.float32(1e-18)
        case "opposite":
            matrix_XD[:] = -query_D * np.linspace(0.5, 2, COUNT)[:, None]
    return view


ODD = [
    "identical points", "zero vectors", "some zero vectors", "zero residuals", "constant features", "zero query",
    "no weights yet", "one outlier", "tiny", "opposite",
]  # fmt: skip


def check(sampler: ExampleSampler, view: ToyView, count: int, *, least: float = 0.0) -> np.ndarray:
    """Check 50 steps' draws; return their weights in units of a uniform draw's."""
    draws = sampler.draws(1, 50, view)
    assert draws.rows_M.min() >= 0
    assert draws.rows_M.max() < count
    if draws.count_M is None:
        return np.ones(len(draws.rows_M))
    assert not np.isnan(draws.count_M).any()
    assert (draws.count_M > least).all()
    weight_B = sampler.draw(1, view).weight_B(count)
    assert weight_B is not None
    assert np.isfinite(weight_B).all()
    return BATCH / (draws.count_M * count)


@pytest.mark.parametrize("what", ODD)
@pytest.mark.parametrize("variant", VARIANTS)
def test_odd_examples(variant: str, what: str) -> None:
    view = odd(what)
    name, settings = VARIANTS[variant]
    sampler = build(name, view, **settings)
    weights_M = check(sampler, view, COUNT)
    if "uniform_share" in settings:
        assert weights_M.max() <= 1 / settings["uniform_share"] * (1 + 1e-9)
    if what in ("identical points", "zero vectors", "zero residuals") and not variant.startswith("lgd, "):
        drawn = sampler.draws(1, 500, view).rows_M
        assert len(np.unique(drawn)) == COUNT, "examples of equal gradients are all drawn"
    walk(sampler, view, 1, 8)


@pytest.mark.parametrize("max_weight", [None, 100.0, 1.0])
@pytest.mark.parametrize("when_empty", ["skip", "redraw"])
@pytest.mark.parametrize("by_magnitude", [True, False])
@pytest.mark.parametrize("what", ODD)
def test_no_weight_passes_the_limit(what: str, by_magnitude: bool, when_empty: str, max_weight: float | None) -> None:
    """With 65,536 buckets for 37 examples most draws find none, and chances may be far too small for 1 / (p N)."""
    view = odd(what)
    view.by_magnitude = by_magnitude
    sampler = build("lgd", view, K=16, L=3, when_empty=when_empty, max_weight=max_weight)
    weights_M = check(sampler, view, COUNT)
    assert weights_M.max() <= (max_weight or 1e30) * (1 + 1e-6)
    assert (weights_M > 0).all() or when_empty == "skip"


@pytest.mark.parametrize("when_empty", ["skip", "redraw"])
@pytest.mark.parametrize("max_weight", [None, 100.0])
def test_a_chance_of_zero_has_a_finite_weight(max_weight: float | None, when_empty: str) -> None:
    """Vectors that moved since the tables were built may lie opposite to the query, where their chance is 0."""
    view = toy_view(by_magnitude=False)
    view.examples.matrix[:] = view.query_D
    sampler = build("lgd", view, K=16, L=2, max_weight=max_weight, when_empty=when_empty)
    view.examples.matrix[:] = -view.query_D
    weights_M = check(sampler, view, COUNT)
    np.testing.assert_allclose(weights_M, max_weight or 1e30)


def test_with_every_bucket_empty_all_draws_are_skipped() -> None:
    """Or, with redraws, come from all examples with their uniform count, after 64 tries."""
    view = toy_view(count=2, by_magnitude=False)
    view.examples.matrix[:] = -view.query_D
    for when_empty in ("skip", "redraw"):
        sampler = build("lgd", view, K=12, L=5, when_empty=when_empty)
        draws = sampler.draws(1, 100, view)
        assert draws.count_M is not None
        if when_empty == "skip":
            assert np.isinf(draws.count_M).all()
            assert not np.asarray(sampler.draw(1, view).weight_B(2)).any()
        else:
            np.testing.assert_allclose(draws.count_M, BATCH / 2)
            assert np.bincount(draws.rows_M).min() > 300


BROKEN = ["nan vector", "inf vector", "all nan", "nan query", "inf query", "huge query"]


def broken(name: str) -> ToyView:
    view = toy_view()
    value = np.inf if "inf" in name else np.nan
    if name.endswith("vector"):
        view.examples.matrix[4, 1] = value
    elif name == "all nan":
        view.examples.matrix[:] = np.nan
    else:
        view.query_D[1] = 3e38 if name == "huge query" else value
    return view


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy warns in the toy's own gradients
@pytest.mark.parametrize("what", BROKEN)
@pytest.mark.parametrize("variant", VARIANTS)
def test_numbers_that_are_not_finite_do_no_harm(variant: str, what: str) -> None:
    """Tables are built and drawn from after an overflow; what the numbers mean is for the loss to tell."""
    view = broken(what)
    name, settings = VARIANTS[variant]
    sampler = build(name, view, **settings)
    for step in range(1, 13):
        rows_B = sampler.draw(step, view).rows_B
        assert rows_B.min() >= 0
        assert rows_B.max() < COUNT
        if sampler.learns_norms:
            sampler.observe(rows_B, view.gradient_norms(rows_B))
        sampler.refresh(step, view)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("variant", [name for name in VARIANTS if name.startswith(("norm", "lgd_strata"))])
def test_examples_are_drawn_alike_after_an_overflow(variant: str) -> None:
    name, settings = VARIANTS[variant]
    for what in ("all nan", "nan query"):
        view = broken(what)
        draws = build(name, view, **settings).draws(1, 200, view)
        np.testing.assert_allclose(draws.count_M, BATCH / COUNT)


@pytest.mark.parametrize("dim", [1, 2, DIM])
@pytest.mark.parametrize("variant", VARIANTS)
def test_vectors_of_few_coordinates(variant: str, dim: int) -> None:
    """A response without features has vectors of one coordinate."""
    view = toy_view(dim=dim)
    name, settings = VARIANTS[variant]
    check(build(name, view, **settings), view, COUNT)

"""What the documents of LGD's samplers claim, against exact expectations.

Legend: X training examples, D size of the vectors, M draws, C cells, S seeds.
"""

from typing import Any

import numpy as np
import pytest

from runner import rng
from runner.contracts import Examples
from runner.lgd import BATCH_SAMPLERS
from runner.lgd.task import FixedVectors


class PlainView:
    """Show vectors, a query and norms of gradients that a test has chosen."""

    def __init__(self, matrix_XD: Any, query_D: Any, *, by_magnitude: bool = False, norms_X: Any = None) -> None:
        self.examples = FixedVectors(np.array(matrix_XD, dtype=np.float32))
        self.query_D = np.array(query_D, dtype=np.float32)
        self.by_magnitude = by_magnitude
        self.norms_X = np.ones(len(self.examples.matrix)) if norms_X is None else norms_X

    def gradient_norms(self, rows_M: np.ndarray | None = None) -> np.ndarray:
        return self.norms_X if rows_M is None else self.norms_X[rows_M]


def built(name: str, view: PlainView, *, seed: int = 0, batch: int = 1, **settings: Any) -> Any:
    examples = Examples(count=len(view.examples.matrix))
    sampler = BATCH_SAMPLERS[name](name=name, **settings).build(examples=examples, batch_size=batch, seed=seed)
    sampler.refresh(0, view)
    return sampler


# ---------------------------------------------------------------- empty buckets


@pytest.mark.parametrize("by_magnitude", [True, False])
def test_a_redraw_states_the_papers_probability(by_magnitude: bool) -> None:
    """Algorithm 1, repeated in NumPy on the same random words: P (1 - P)^(l - 1) / |S| for the l-th bucket."""
    generator = np.random.default_rng(0)
    count, K, L, batch, draws = 6, 4, 40, 3, 600
    vectors_XD, query_D = generator.standard_normal((count, 4)), generator.standard_normal(4)
    view = PlainView(vectors_XD, query_D, by_magnitude=by_magnitude)
    sampler = built("lgd", view, seed=11, batch=batch, K=K, L=L, when_empty="redraw", max_weight=None)
    found = sampler.draws(5, draws // batch, view)
    dense = sampler.buckets.projections.dense.astype(np.float64)
    powers = 2 ** np.arange(K)[::-1]
    code_LX = np.einsum("lkx,k->lx", np.einsum("lkd,xd->lkx", dense, vectors_XD) > 0, powers)
    query_L = (np.einsum("lkd,d->lk", dense, query_D) > 0) @ powers
    cosine_X = vectors_XD @ query_D / np.linalg.norm(vectors_XD, axis=1) / np.linalg.norm(query_D)
    alpha_X = 1 - np.arccos(cosine_X) / np.pi
    chance_X = alpha_X**K + ((1 - alpha_X) ** K if by_magnitude else 0)
    tries = []
    for m in range(draws):
        key = np.uint64(rng.stream(11, rng.EXAMPLES, 5 + m // batch, m % batch))
        for attempt in range(64):
            table = rng.below(np.uint64(rng.word(key, 1 + 2 * attempt)), L)
            inside = code_LX[table] == query_L[table]
            if by_magnitude:
                inside |= code_LX[table] == 2**K - 1 - query_L[table]
            if inside.any():
                break
        row = found.rows_M[m]
        assert inside[row], "the example is in the bucket"
        expected = chance_X[row] * (1 - chance_X[row]) ** attempt / inside.sum()
        assert found.count_M[m] == pytest.approx(batch * expected, rel=1e-4)
        tries.append(attempt + 1)
    assert max(tries) >= 4, "several buckets in a row were empty"


def test_redrawing_is_biased_and_skipping_is_not() -> None:
    """Two examples in the plane at 45 and -60 degrees to the query, K = 2: all chances follow from angles.

    P = (3/4)^2 and (2/3)^2; both are in the bucket with chance (1 - 105/180)^2, so that it is empty with e = 1/6. A
    redrawn example contributes e^(l-1) P / (P (1 - P)^(l-1)) at the l-th try, in total (1 - P) / (1 - P - e) instead of
    1: the stated factor is the chance that this example misses l - 1 buckets, but a try is repeated only if all miss.
    Bounds are 5 standard errors over seeds.
    """
    angles = np.deg2rad([45, -60])
    view = PlainView(np.column_stack([np.cos(angles), np.sin(angles)]), [1, 0])
    chance_X = np.array([0.75, 2 / 3]) ** 2
    empty = 1 - chance_X.sum() + (1 - 105 / 180) ** 2
    assert empty == pytest.approx(1 / 6)
    expected = {"skip": np.ones(2), "redraw": (1 - chance_X) / (1 - chance_X - empty)}
    np.testing.assert_allclose(expected["redraw"], [1.615, 1.4286], atol=1e-3)
    for when_empty, expected_X in expected.items():
        means_SX = []
        for seed in range(30):
            # So many tables that two tries of a draw hardly ever meet the same one.
            sampler = built("lgd", view, seed=seed, K=2, L=4000, when_empty=when_empty, max_weight=None)
            draws = sampler.draws(1, 4000, view)
            means_SX.append(np.bincount(draws.rows_M, weights=1 / draws.count_M, minlength=2) / 4000)
        error_X = np.std(means_SX, axis=0) / np.sqrt(len(means_SX))
        difference_X = np.abs(np.mean(means_SX, axis=0) - expected_X)
        assert (difference_X < 5 * error_X).all(), (when_empty, difference_X, error_X)
        assert error_X.max() < 0.03, "the bias of more than .4 would show"


def test_with_one_table_the_estimate_is_biased() -> None:
    """With the tables of one run, examples outside the query's buckets are never drawn (docs: Lgd's module)."""
    generator = np.random.default_rng(0)
    view = PlainView(generator.standard_normal((50, 5)), generator.standard_normal(5), by_magnitude=True)
    draws = built("lgd", view, K=5, L=2).draws(1, 4000, view)
    assert len(np.unique(draws.rows_M[np.isfinite(draws.count_M)])) < 25


# ---------------------------------------------------------------- cells


def second_moment(chance_X: np.ndarray, norms_X: np.ndarray) -> float:
    """Return E |gradient / (N chance)|^2 of one draw; the mean's square is the same for all samplers."""
    return float((norms_X**2 / chance_X).sum()) / len(norms_X) ** 2


def strata_of(sampler: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the cell and the chance of every example in one draw, read from many draws and the sampler's cells."""
    cell_X = sampler._cell_X
    draws = sampler.draws(1, 60_000)
    chance_X = np.full(len(cell_X), np.nan)
    chance_X[draws.rows_M] = draws.count_M
    assert not np.isnan(chance_X).any()
    return cell_X, chance_X


@pytest.mark.parametrize("share", [0.1, 0.5, 1e-6])
@pytest.mark.parametrize("spread", [0.0, 1.0, 2.5])
def test_cells_have_the_allocation_of_least_variance(spread: float, share: float) -> None:
    """Enumerated over all examples, the variance is that of the formula, near Neyman's and never above uniform's.

    ``spread``: deviation of the log norms of gradients within and between cells.
    """
    generator = np.random.default_rng(2)
    vectors_XD = generator.standard_normal((120, 4)) * generator.lognormal(0, 0.5, (120, 1))
    norms_X = np.linalg.norm(vectors_XD, axis=1) * generator.lognormal(0, spread, 120)
    view = PlainView(vectors_XD, [1, 0, 0, 0], by_magnitude=True, norms_X=norms_X)
    sampler = built("lgd_strata", view, K=2, norm_levels=2, uniform_share=share)
    cell_X, chance_X = strata_of(sampler)
    assert chance_X.sum() == pytest.approx(1)
    size_C = np.bincount(cell_X)
    assert 4 <= len(size_C) <= 8
    rms_C = np.sqrt(np.bincount(cell_X, norms_X**2) / size_C)
    neyman_C = size_C * rms_C / (size_C * rms_C).sum()
    allocated_C = (1 - share) * neyman_C + share * size_C / 120
    np.testing.assert_allclose(chance_X, (allocated_C / size_C)[cell_X], rtol=1e-9)
    ours, uniform = second_moment(chance_X, norms_X), second_moment(np.full(120, 1 / 120), norms_X)
    least = ((size_C * rms_C).sum() / 120) ** 2
    assert second_moment((neyman_C / size_C)[cell_X], norms_X) == pytest.approx(least)
    assert least * (1 - 1e-9) <= ours <= least / (1 - share)
    assert ours <= uniform * (1 + 1e-9)
    for _ in range(50):  # no other allocation to these cells has less
        other_C = neyman_C * generator.lognormal(0, 0.3, len(size_C))
        assert second_moment((other_C / other_C.sum() / size_C)[cell_X], norms_X) >= least * (1 - 1e-12)
    assert 1 / (120 * chance_X.min()) <= 1 / share, "no weight exceeds the share's inverse"


def test_variance_of_drawn_estimates_is_the_enumerated_one() -> None:
    generator = np.random.default_rng(4)
    vectors_XD = generator.standard_normal((60, 3))
    norms_X = generator.lognormal(0, 1, 60)
    view = PlainView(vectors_XD, [1, 0, 0], by_magnitude=True, norms_X=norms_X)
    sampler = built("lgd_strata", view, K=2, norm_levels=1)
    _, chance_X = strata_of(sampler)
    draws = sampler.draws(1, 200_000, view)
    values_M = norms_X[draws.rows_M] / (60 * draws.count_M)
    assert values_M.mean() == pytest.approx(norms_X.mean(), abs=5 * values_M.std() / np.sqrt(200_000))
    squares_M = values_M**2
    assert squares_M.mean() == pytest.approx(
        second_moment(chance_X, norms_X), abs=5 * squares_M.std() / np.sqrt(200_000)
    )  # fmt: skip


def test_cells_learn_a_tenth_of_each_square() -> None:
    """The mean square of a drawn example's cell moves by a tenth, example by example; refreshes bring it to draws."""
    vectors_XD = np.array([[1.0], [1.0], [9.0], [9.0]])
    view = PlainView(vectors_XD, [1.0], by_magnitude=True, norms_X=np.array([1.0, 1.0, 3.0, 3.0]))
    sampler = built("lgd_strata", view, K=0, norm_levels=2, uniform_share=0.2, refresh_every_steps=2)
    np.testing.assert_allclose(sampler.state_dict()["mean_square"], [1, 9])
    np.testing.assert_allclose(sampler.state_dict()["chance"], [0.8 * 0.25 + 0.1, 0.8 * 0.75 + 0.1])
    sampler.observe(np.array([0, 2, 1]), np.array([2.0, np.nan, 4.0]))
    learnt = 0.9 * (0.9 * 1 + 0.1 * 4) + 0.1 * 16
    np.testing.assert_allclose(sampler.state_dict()["mean_square"], [learnt, 9])
    assert not sampler.refresh(1, view)
    np.testing.assert_allclose(sampler.state_dict()["chance"], [0.3, 0.7])
    assert sampler.refresh(2, view)
    first = 0.8 * np.sqrt(learnt) / (np.sqrt(learnt) + 3) + 0.1
    np.testing.assert_allclose(sampler.state_dict()["chance"], [first, 1 - first])


def test_chances_by_norms_have_less_variance_than_any_cells() -> None:
    """The oracle's second moment is the square of the mean norm, the least of all (LGD paper, section 1.1)."""
    generator = np.random.default_rng(6)
    norms_X = generator.lognormal(0, 1, 40)
    view = PlainView(generator.standard_normal((40, 3)), [1, 0, 0], by_magnitude=True, norms_X=norms_X)
    oracle, cells = built("norm_oracle", view), built("lgd_strata", view, K=2, norm_levels=2)
    chance_X = np.zeros(40)
    draws = oracle.draws(1, 20_000, view)
    chance_X[draws.rows_M] = draws.count_M
    np.testing.assert_allclose(chance_X, norms_X / norms_X.sum())
    assert second_moment(chance_X, norms_X) == pytest.approx(norms_X.mean() ** 2)
    assert second_moment(strata_of(cells)[1], norms_X) > 1.05 * norms_X.mean() ** 2

"""Assignment to codewords, the sums over cells and the logits of exact MIDX, against NumPy in double precision.

Legend: N rows, D columns, C codewords of a codebook, W rows of a panel.
"""

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.kernels.codewords import nearest_pairs, panels_of, squared_norms
from runner.kernels.products import COLUMNS
from runner.samplers.midx import _running_sums, draw_cell, fold_cells
from runner.samplers.midx_exact import _cell_masses, _logits


def assigned(values_ND: np.ndarray, codebooks_2CD: np.ndarray, beam: int) -> tuple[np.ndarray, np.ndarray]:
    """(2, N) codes and (N,) errors by the kernel."""
    codes = np.full((2, len(values_ND)), 60000, dtype=np.uint16)
    error = np.full(len(values_ND), -1, dtype=np.float32)
    norm_2C = np.square(codebooks_2CD).sum(2)
    cross = np.einsum("kd,ld->kl", *codebooks_2CD)
    nearest_pairs(values_ND, squared_norms(values_ND), panels_of(codebooks_2CD), norm_2C, cross, beam, codes, error)
    return codes.astype(np.int64), error


def by_numpy(values_ND: np.ndarray, codebooks_2CD: np.ndarray, beam: int) -> np.ndarray:
    """(N,) least squared error over the ``beam`` nearest first codewords and all second ones."""
    values, (first, second) = values_ND.astype(np.float64), codebooks_2CD.astype(np.float64)
    near = np.square(values[:, None] - first).sum(2)
    tried = np.argsort(near, axis=1, kind="stable")[:, :beam]
    errors = np.square(values[:, None, None] - first[tried][:, :, None] - second).sum(3)
    least: np.ndarray = errors.min((1, 2))
    return least


@settings(max_examples=60)
@given(
    n=st.integers(1, 150), dim=st.integers(1, 40), codewords=st.integers(1, COLUMNS + 3), beam=st.integers(1, 40),
    seed=st.integers(0, 2**16),
)  # fmt: skip
def test_nearest_pairs(n: int, dim: int, codewords: int, beam: int, seed: int) -> None:
    """The error is the pair's own, and the least of all pairs tried."""
    generator = np.random.default_rng(seed)
    values = generator.standard_normal((n, dim)).astype(np.float32)
    codebooks = generator.standard_normal((2, codewords, dim)).astype(np.float32)
    beam = min(beam, codewords)
    codes, error = assigned(values, codebooks, beam)
    assert codes.max() < codewords
    chosen = codebooks[0, codes[0]].astype(np.float64) + codebooks[1, codes[1]]
    scale = np.square(values).sum(1) + np.square(codebooks).sum(2).max()
    np.testing.assert_allclose(error, np.square(values - chosen).sum(1), rtol=0, atol=2e-6 * scale.max())
    # Two first codewords at float32's distance from each other may stand in either order at the beam's edge.
    np.testing.assert_allclose(error, by_numpy(values, codebooks, beam), rtol=0, atol=1e-5 * scale.max())


@settings(max_examples=30)
@given(n=st.integers(1, 150), dim=st.integers(2, 40), codewords=st.integers(1, 20), seed=st.integers(0, 2**16))
def test_product_quantisation_takes_the_nearest_in_each_half(n: int, dim: int, codewords: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    values = generator.standard_normal((n, dim)).astype(np.float32)
    codebooks = generator.standard_normal((2, codewords, dim)).astype(np.float32)
    half = (dim + 1) // 2
    codebooks[0, :, half:] = 0
    codebooks[1, :, :half] = 0
    codes, _ = assigned(values, codebooks, 1)
    for book, part in enumerate((slice(0, half), slice(half, dim))):
        distance = np.square(values[:, None, part].astype(np.float64) - codebooks[book, None, :, part]).sum(2)
        chosen = distance[np.arange(n), codes[book]]
        np.testing.assert_allclose(chosen, distance.min(1), rtol=0, atol=1e-5 * distance.max())


def test_equal_codewords_are_a_tie_for_the_first() -> None:
    """Codewords to spare repeat the first one, and must stay without classes."""
    values = np.random.default_rng(0).standard_normal((50, 6)).astype(np.float32)
    codes, _ = assigned(values, np.zeros((2, 9, 6), dtype=np.float32), 3)
    assert (codes == 0).all()


def test_one_thread_and_two_assign_alike() -> None:
    generator = np.random.default_rng(1)
    values = generator.standard_normal((3001, 24)).astype(np.float32)
    codebooks = generator.standard_normal((2, 17, 24)).astype(np.float32)
    results = []
    for threads in (1, 2):
        numba.set_num_threads(threads)
        results.append(assigned(values, codebooks, 4))
    for one, two in zip(*results, strict=True):
        np.testing.assert_array_equal(one, two)


# ---------------------------------------------------------------- cells


@settings(max_examples=60)
@given(
    codewords=st.integers(1, 20), scale=st.sampled_from([0.0, 1.0, 30.0, 3000.0]), full=st.floats(0, 1),
    seed=st.integers(0, 2**16),
)  # fmt: skip
def test_sums_over_cells(codewords: int, scale: float, full: float, seed: int) -> None:
    """P(k1), P(k2 | k1) and log Z, at scores whose exponentials overflow even a double."""
    generator = np.random.default_rng(seed)
    score_1, score_2 = (scale * generator.standard_normal((2, codewords))).astype(np.float32)
    size = np.where(generator.random((codewords, codewords)) < full, generator.integers(1, 9, (codewords,) * 2), 0)
    size.flat[generator.integers(size.size)] = 3  # a class at least
    with np.errstate(divide="ignore"):
        log_mass = np.log(size).astype(np.float32)  # (k2, k1)
    top, total = np.empty((2, codewords), dtype=np.float32)
    cumulative_CC = np.empty((codewords, codewords), dtype=np.float32)
    cumulative_C = np.empty(codewords)
    log_z = fold_cells(score_1, score_2, log_mass, top, total, cumulative_CC, cumulative_C)

    log_cell = log_mass.astype(np.float64) + score_2[:, None] + score_1
    expected = np.logaddexp.reduce(log_cell, axis=None)
    assert log_z == pytest.approx(expected, rel=1e-6, abs=1e-6 + 1e-7 * scale), "the sum of two scores is rounded"
    probability = np.exp(log_cell - expected)
    first = probability.sum(0)
    np.testing.assert_allclose(np.diff(cumulative_C, prepend=0) / cumulative_C[-1], first, atol=2e-6 + 1e-7 * scale)
    for k1 in np.flatnonzero(first > 1e-6):
        given_k1 = np.exp(log_cell[:, k1] - np.logaddexp.reduce(log_cell[:, k1]))
        found = np.diff(cumulative_CC[:, k1].astype(np.float64), prepend=0) / cumulative_CC[-1, k1]
        np.testing.assert_allclose(found, given_k1, atol=2e-6 + 1e-7 * scale)
    for bits in (0, 1, 2**63, 2**64 - 1):  # the ends of the unit interval
        k1, k2 = draw_cell(cumulative_C, cumulative_CC, np.uint64(bits), np.uint64(2**64 - 1 - bits))
        assert size[k2, k1] > 0, "an empty cell is never drawn"


def test_a_first_codeword_keeps_its_mass_however_low_its_second_scores() -> None:
    """exp(200 - 150) beside exp(0 + 0): a maximum common to all cells would lose the 50."""
    score_1, score_2 = np.array([200, 0], dtype=np.float32), np.array([-150, 0], dtype=np.float32)
    log_mass = np.array([[0, -np.inf], [-np.inf, 0]], dtype=np.float32)
    top, total = np.empty((2, 2), dtype=np.float32)
    cumulative_CC, cumulative_C = np.empty((2, 2), dtype=np.float32), np.empty(2)
    assert fold_cells(score_1, score_2, log_mass, top, total, cumulative_CC, cumulative_C) == pytest.approx(50)
    assert draw_cell(cumulative_C, cumulative_CC, np.uint64(0), np.uint64(0)) == (0, 0)


def test_running_sums_start_again_in_each_cell() -> None:
    weight = np.array([1e20, 1, 2, 3, 4], dtype=np.float64)
    start = np.array([0, 1, 1, 4, 5], dtype=np.int64)
    members = np.array([0, 2, 4, 1, 3], dtype=np.int32)
    assert _running_sums(weight, start, members).tolist() == [1e20, 2, 6, 7, 3]


# ---------------------------------------------------------------- exact MIDX


@settings(max_examples=30)
@given(n=st.integers(1, 90), dim=st.integers(1, 40), bias=st.booleans(), seed=st.integers(0, 2**16))
def test_logits_of_listed_classes(n: int, dim: int, bias: bool, seed: int) -> None:
    generator = np.random.default_rng(seed)
    weights = generator.standard_normal((n, dim)).astype(np.float32)
    bias_N = generator.standard_normal(n if bias else 0).astype(np.float32)
    panel = generator.standard_normal((dim, COLUMNS)).astype(np.float32)
    ids = generator.integers(0, n, generator.integers(1, 60)).astype(np.int32)
    logits = np.empty((len(ids), COLUMNS), dtype=np.float32)
    _logits(weights, bias_N, ids, panel, logits)
    expected = weights[ids].astype(np.float64) @ panel + (bias_N[ids, None] if bias else 0)
    np.testing.assert_allclose(logits, expected, atol=2e-5)


def test_masses_of_cells_are_sums_over_their_classes() -> None:
    generator = np.random.default_rng(0)
    codewords, n = 3, 40
    cells = np.sort(generator.choice([0, 2, 3, 7, 8], n))  # four cells are empty
    start = np.searchsorted(cells, np.arange(codewords**2 + 1)).astype(np.int64)
    scores = (20 * generator.standard_normal((COLUMNS, 2 * codewords))).astype(np.float32)
    logits = (20 * generator.standard_normal((n, COLUMNS))).astype(np.float32)
    residual = logits.copy()
    log_mass = np.empty((COLUMNS, codewords, codewords), dtype=np.float32)
    _cell_masses(residual, start, scores, codewords, log_mass)
    expected = logits - (scores[:, cells // codewords] + scores[:, codewords + cells % codewords]).T
    np.testing.assert_array_equal(residual, expected)
    for cell in range(codewords**2):
        inside = expected[cells == cell].astype(np.float64)
        log_sum = np.logaddexp.reduce(inside, axis=0) if len(inside) else np.full(COLUMNS, -np.inf)
        np.testing.assert_allclose(log_mass[:, cell % codewords, cell // codewords], log_sum, rtol=1e-6, atol=1e-6)

"""Register tiles and the dense products of shared candidates against NumPy in double precision.

Legend: B rows, D hidden size, M shared candidates, N classes, K summed dimension. Sizes are one below, at and one
above whole tiles; what lies around a result is marked, so that a kernel that writes too far is caught.
"""

import numpy as np
import pytest
from numba import njit

from runner.kernels import dense
from runner.kernels.products import COLUMNS, HAS_BF16, ROWS, tile_bf16, tile_float32, to_bf16
from runner.kernels.target import target

MARK = np.float32(77)
HAS_AMX = target().has_amx
NEEDS_BF16 = pytest.mark.skipif(not HAS_BF16, reason="needs AVX512_BF16")


@njit
def one_tile_float32(a, a_row, a_step, b, b_step, k, c, c_first, c_row, add):  # type: ignore[no-untyped-def]
    """A tile that lies ``c_first`` elements into c."""
    tile_float32(a.ctypes.data, a_row, a_step, b.ctypes.data, b_step, k, c.ctypes.data + 4 * c_first, c_row, add)


@njit
def round_all(values, bits):  # type: ignore[no-untyped-def]
    for i in range(values.shape[0]):
        bits[i] = to_bf16(values[i])


if HAS_BF16:  # elsewhere the instruction can not be compiled

    @njit
    def one_tile_bf16(a, a_row, a_step, b, b_step, k, c, c_first, c_row, add):  # type: ignore[no-untyped-def]
        tile_bf16(a.ctypes.data, a_row, a_step, b.ctypes.data, b_step, k, c.ctypes.data + 4 * c_first, c_row, add)


if HAS_AMX:
    from runner.kernels import amx

    @njit
    def one_tile_amx(a, a_row, b, b_step, k, c, c_first, c_row, add):  # type: ignore[no-untyped-def]
        amx.begin_tiles()
        amx.tile_amx(a.ctypes.data, a_row, 1, b.ctypes.data, b_step, k, c.ctypes.data + 4 * c_first, c_row, add)
        amx.end_tiles()


def as_bf16(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Bits (uint32, 16 of them used) of the nearest bfloat16 and the float32 that they stand for."""
    bits = np.empty(values.size, dtype=np.uint32)
    round_all(values.reshape(-1).astype(np.float32), bits)
    return bits.reshape(values.shape), (bits << 16).view(np.float32).reshape(values.shape)


def around(c: np.ndarray, c_first: int, c_row: int, rows: int = ROWS) -> np.ndarray:
    """The elements of a flat c that do not belong to the tile."""
    inside = c_first + (np.arange(rows)[:, None] * c_row + np.arange(COLUMNS)).ravel()
    return np.delete(c, inside)


def strided(values_XY: np.ndarray, row: int, step: int, fill: object) -> np.ndarray:
    """A flat array in which element (x, y) stands at x * row + y * step."""
    x, y = values_XY.shape
    out = np.full((x - 1) * row + (y - 1) * step + 1, fill, dtype=values_XY.dtype)
    out[(np.arange(x)[:, None] * row + np.arange(y) * step).ravel()] = values_XY.ravel()
    return out


# (row, step) of A by K: along rows with odd gaps, along columns, and every third element.
STRIDES = [lambda k: (k + 3, 1), lambda k: (1, ROWS + 5), lambda k: (3 * k + 1, 3)]


@pytest.mark.parametrize("add", [False, True])
@pytest.mark.parametrize("k", [1, 2, 7, 129])
@pytest.mark.parametrize("stride", range(len(STRIDES)))
def test_tile_float32(stride: int, k: int, add: bool) -> None:
    generator = np.random.default_rng(k)
    a, b = (generator.standard_normal(shape).astype(np.float32) for shape in ((ROWS, k), (k, COLUMNS)))
    a_row, a_step = STRIDES[stride](k)
    b_step, c_row, c_first = COLUMNS + 3, COLUMNS + 1, 5
    c = np.full(c_first + ROWS * c_row, MARK)
    one_tile_float32(
        strided(a, a_row, a_step, np.nan), a_row, a_step, strided(b, b_step, 1, np.nan), b_step, k,
        c, c_first, c_row, add,
    )  # fmt: skip
    expected = a.astype(np.float64) @ b + (MARK if add else 0)
    np.testing.assert_allclose(c[c_first:].reshape(ROWS, c_row)[:, :COLUMNS], expected, rtol=1e-5, atol=2e-5)
    assert (around(c, c_first, c_row) == MARK).all()


@NEEDS_BF16
@pytest.mark.parametrize("add", [False, True])
@pytest.mark.parametrize("k", [1, 2, 7, 65])
@pytest.mark.parametrize("stride", range(len(STRIDES)))
def test_tile_bf16(stride: int, k: int, add: bool) -> None:
    """K counts pairs; sums are float32, so against the rounded operands only their rounding is left."""
    generator = np.random.default_rng(k)
    a_bits, a = as_bf16(generator.standard_normal((ROWS, 2 * k)))
    b_bits, b = as_bf16(generator.standard_normal((2 * k, COLUMNS)))
    a_words, b_words = a_bits[:, ::2] | a_bits[:, 1::2] << 16, b_bits[::2] | b_bits[1::2] << 16
    a_row, a_step = STRIDES[stride](k)
    b_step, c_row, c_first = COLUMNS + 3, COLUMNS + 1, 5
    c = np.full(c_first + ROWS * c_row, MARK)
    not_a_number = 0x7FC07FC0
    one_tile_bf16(
        strided(a_words, a_row, a_step, not_a_number), a_row, a_step, strided(b_words, b_step, 1, not_a_number),
        b_step, k, c, c_first, c_row, add,
    )  # fmt: skip
    expected = a.astype(np.float64) @ b + (MARK if add else 0)
    np.testing.assert_allclose(c[c_first:].reshape(ROWS, c_row)[:, :COLUMNS], expected, rtol=1e-5, atol=2e-5)
    assert (around(c, c_first, c_row) == MARK).all()


@pytest.mark.skipif(not HAS_AMX, reason="needs AMX")
@pytest.mark.parametrize("add", [False, True])
@pytest.mark.parametrize("k", [16, 32, 112])
def test_tile_amx(k: int, add: bool) -> None:
    generator = np.random.default_rng(k)
    a_bits, a = as_bf16(generator.standard_normal((amx.ROWS, 2 * k)))
    b_bits, b = as_bf16(generator.standard_normal((2 * k, amx.COLUMNS)))
    a_words, b_words = a_bits[:, ::2] | a_bits[:, 1::2] << 16, b_bits[::2] | b_bits[1::2] << 16
    a_row, b_step, c_row, c_first = k + 3, amx.COLUMNS + 3, amx.COLUMNS + 1, 5
    c = np.full(c_first + amx.ROWS * c_row, MARK)
    not_a_number = 0x7FC07FC0
    one_tile_amx(
        strided(a_words, a_row, 1, not_a_number), a_row, strided(b_words, b_step, 1, not_a_number), b_step, k,
        c, c_first, c_row, add,
    )  # fmt: skip
    expected = a.astype(np.float64) @ b + (MARK if add else 0)
    np.testing.assert_allclose(c[c_first:].reshape(-1, c_row)[:, : amx.COLUMNS], expected, rtol=1e-5, atol=3e-5)
    assert amx.COLUMNS == COLUMNS  # panels of hidden states have this width
    assert (around(c, c_first, c_row, amx.ROWS) == MARK).all()


def test_rounding_to_bf16_is_torchs() -> None:
    import torch

    ties = np.array([0x3F808000, 0x3F818000, 0x3F807FFF, 0x3F808001, 0x80000000, 0x00000001], dtype=np.uint32)
    drawn = np.random.default_rng(0).standard_normal(5000).astype(np.float32)
    values = np.concatenate([ties.view(np.float32), drawn, drawn * np.float32(1e-30), drawn * np.float32(1e30)])
    np.testing.assert_array_equal(as_bf16(values)[1], torch.from_numpy(values).bfloat16().float().numpy())


# ---------------------------------------------------------------- products of shared candidates

SIZES = [1, ROWS - 1, ROWS + 1, COLUMNS - 1, COLUMNS, COLUMNS + 1, 3 * COLUMNS + 5]
# Each size in each place, with 1 among them; 261 is above the depth that is summed at a time.
SHAPES = [(1, 1, 1), (1, 40, 9), (40, 1, 9), (261, 261, 33)]
SHAPES += [(SIZES[i], SIZES[(i + 2) % 7], SIZES[(i + 5) % 7]) for i in range(7)]


@pytest.mark.parametrize(("batch", "candidates", "dim"), SHAPES)
def test_products_of_shared_candidates(batch: int, candidates: int, dim: int) -> None:
    generator = np.random.default_rng(batch)
    n = 2 * candidates + 3
    weights, hidden, bias = (
        generator.standard_normal(shape).astype(np.float32) for shape in ((n, dim), (batch, dim), n)
    )
    ids = np.sort(generator.choice(n, candidates, replace=False)).astype(np.int32)
    padded_batch, padded_candidates, padded_dim = *map(dense.padded_size, (batch, candidates)), dense.padded_dim(dim)
    assert padded_candidates % ROWS == padded_candidates % COLUMNS == padded_dim % COLUMNS == 0
    assert padded_candidates - candidates < ROWS * COLUMNS

    hidden_BD = dense.padded_rows(hidden)
    assert hidden_BD.shape == (padded_batch, padded_dim)
    # Buffers are reused from step to step, so they come full of whatever was in them.
    rows_MD = np.full((padded_candidates, padded_dim), np.nan, dtype=np.float32)
    panels = np.full((padded_candidates // COLUMNS, padded_dim, COLUMNS), np.nan, dtype=np.float32)
    dense.gather_candidates(weights, ids, rows_MD, panels)
    expected_rows = np.zeros_like(rows_MD)
    expected_rows[:candidates, :dim] = weights[ids]
    np.testing.assert_array_equal(rows_MD, expected_rows)
    np.testing.assert_array_equal(panels.transpose(0, 2, 1).reshape(rows_MD.shape), expected_rows)

    logits_BM = np.full((padded_batch, dense.pitch(candidates)), np.nan, dtype=np.float32)
    dense.logits(hidden_BD, panels, bias[ids], logits_BM)
    expected = hidden.astype(np.float64) @ weights[ids].T + bias[ids]
    np.testing.assert_allclose(logits_BM[:batch, :candidates], expected, rtol=1e-5, atol=5e-5)

    grad = generator.standard_normal((batch, candidates)).astype(np.float32)
    grad_BM = np.full_like(logits_BM, np.nan)
    grad_BM[:batch, :candidates] = grad
    dense.clear_padding(grad_BM, batch, candidates, padded_candidates)
    np.testing.assert_array_equal(grad_BM[:batch, :candidates], grad)
    assert (grad_BM[:batch, candidates:padded_candidates] == 0).all()
    assert (grad_BM[batch:, :padded_candidates] == 0).all()

    grad_MD = np.full_like(rows_MD, np.nan)
    dense.grad_candidates(grad_BM, hidden_BD, grad_MD)
    np.testing.assert_allclose(grad_MD[:candidates, :dim], grad.astype(np.float64).T @ hidden, rtol=1e-5, atol=1e-4)
    grad_BD = np.full_like(hidden_BD, np.nan)
    dense.grad_hidden(grad_BM, rows_MD, grad_BD)
    np.testing.assert_allclose(grad_BD[:batch, :dim], grad.astype(np.float64) @ weights[ids], rtol=1e-5, atol=1e-4)
    for gradient, size in ((grad_MD, candidates), (grad_BD, batch)):
        assert (gradient[size:] == 0).all()
        assert (gradient[:, dim:] == 0).all()

    sums_M = np.full(candidates, np.nan, dtype=np.float32)
    dense.column_sums(grad_BM[:batch], sums_M)
    np.testing.assert_allclose(sums_M, grad.astype(np.float64).sum(0), rtol=1e-5, atol=5e-5)

"""Sign projections against the laws that LGD relies on, and bulk codes against those of one vector.

Collisions are counted over tables of one bit, whose projections are independent; bounds are 5 standard errors over
fixed seeds, a false alarm for 6e-7 of seeds each.

Legend: X vectors, D their size, L tables, K bits of a table, J drawn entries of a projection.
"""

from typing import Any

import numpy as np
import pytest

from runner.lgd.buckets import BOTH_SIGNS, ONE_SIDED, SQUARED, arccos, chance_of_bucket
from runner.lgd.projections import SignProjections, codes_in_all

ANGLES = np.linspace(0.05, 0.95, 10) * np.pi


def fan(dim: int) -> np.ndarray:
    """Return a vector and then one at each of ANGLES to it, of other norms, in directions spread over all axes."""
    basis = np.linalg.qr(np.random.default_rng(1).standard_normal((dim, 2)))[0].T
    rows = [0.5 * basis[0], *(3 * (np.cos(angle) * basis[0] + np.sin(angle) * basis[1]) for angle in ANGLES)]
    return np.array(rows, dtype=np.float32)


def agreements(vectors_XD: np.ndarray, tables: int, **settings: Any) -> np.ndarray:
    """Return the shares of one-bit tables in which each other vector has the code of the first, (X - 1,)."""
    codes = SignProjections(dim=vectors_XD.shape[1], K=1, L=tables, seed=7, **settings).hash_all(vectors_XD)
    return (codes[:, 1:] == codes[:, :1]).mean(axis=0)


def bound(chance: Any, tables: int) -> Any:
    return 5 * np.sqrt(chance * (1 - chance) / tables)


BY_ANGLE = 1 - ANGLES / np.pi
BY_SQUARE = 1 - np.arccos(np.cos(ANGLES) ** 2) / np.pi


def check_gaussian(dim: int, tables: int) -> None:
    found = agreements(fan(dim), tables, kind="gaussian")
    assert (np.abs(found - BY_ANGLE) < bound(BY_ANGLE, tables)).all()


@pytest.mark.parametrize("dim", [2, 30])
def test_gaussian_bits_collide_by_the_angle(dim: int) -> None:
    check_gaussian(dim, 20_000)


@pytest.mark.slow
@pytest.mark.parametrize("dim", [2, 5, 90])
def test_gaussian_bits_collide_by_the_angle_in_a_million_tables(dim: int) -> None:
    check_gaussian(dim, 1_000_000)


@pytest.mark.parametrize(("kind", "dim", "near"), [("hadamard", 64, 0.01), ("sparse", 90, 0.08)])
def test_other_bits_nearly_do(kind: str, dim: int, near: float) -> None:
    """Hadamard projections come within .01 in 64 dimensions.

    Sparse ones of density 1/30 miss by up to .08 in 90 dimensions, as a projection has only three entries there.
    """
    tables = 12_800
    found = agreements(fan(dim), tables, kind=kind)
    assert (np.abs(found - BY_ANGLE) < near + bound(BY_ANGLE, tables)).all()


def test_sparse_bits_do_not_tell_a_query_on_one_axis() -> None:
    """The query [0, ..., 0, -1], with which training begins, meets few entries of a sparse projection.

    Its sum is 0, thus its bit 0, unless the last coordinate is drawn, so that nearly all tables give one code, and it
    does not matter where an example lies.
    """
    dim, tables = 91, 4_000
    query = np.zeros((1, dim), dtype=np.float32)
    query[0, -1] = -1
    sparse = SignProjections(dim=dim, K=5, L=tables, seed=3, kind="sparse").hash_all(query)[:, 0]
    share_of_zero = float((sparse == 0).mean())
    # A bit is 1 if the coordinate is drawn with sign -1: with chance 1/60.
    expected = (1 - 1 / 60) ** 5
    assert abs(share_of_zero - expected) < bound(expected, tables)
    gaussian = SignProjections(dim=dim, K=5, L=tables, seed=3, kind="gaussian").hash_all(query)[:, 0]
    counts = np.bincount(gaussian, minlength=32)
    assert np.abs(counts - tables / 32).max() < 5 * np.sqrt(tables / 32)
    across = np.append(fan(dim - 1)[0], 0) / np.linalg.norm(fan(dim - 1)[0])
    examples = [np.sin(angle) * across + np.cos(angle) * query[0] for angle in (0.25 * np.pi, 0.75 * np.pi)]
    near, far = agreements(np.array([query[0], *examples], dtype=np.float32), tables, kind="sparse")
    assert abs(near - far) < 0.1, "the law says 0.75 and 0.25"


# ---------------------------------------------------------------- quadratic


def test_quadratic_codes_are_those_of_all_products() -> None:
    """Hashing v x v made explicitly, by a dense matrix with the same entries, gives the same bits."""
    dim, K, L = 7, 4, 9
    family = SignProjections(dim=dim, K=K, L=L, seed=5, kind="sparse", density=0.3, quadratic=True)
    vectors_XD = np.random.default_rng(0).standard_normal((40, dim)).astype(np.float32)
    matrix = np.zeros((L, K, dim * dim))
    arrays = family.arrays
    for table, bit in np.ndindex(L, K):
        for j in range(arrays.entries[table, bit]):
            place = arrays.first[table, bit, j] * dim + arrays.second[table, bit, j]
            assert matrix[table, bit, place] == 0, "an entry is drawn once"
            matrix[table, bit, place] = arrays.sign[table, bit, j]
    assert set(np.unique(matrix)) == {-1.0, 0.0, 1.0}
    products = np.stack([np.kron(v, v) for v in vectors_XD.astype(np.float64)])
    bits = np.einsum("lkp,xp->lkx", matrix, products) > 0
    expected = (bits * 2 ** np.arange(K)[::-1][None, :, None]).sum(axis=1)
    assert np.array_equal(family.hash_all(vectors_XD), expected)
    assert np.array_equal(family.hash_all(-vectors_XD), expected), "signs do not matter"


def test_share_of_sparse_entries_is_the_density() -> None:
    family = SignProjections(dim=300, K=5, L=200, seed=1, kind="sparse", density=0.1)
    entries = family.arrays.entries
    assert abs(entries.mean() - 30) < 5 * np.sqrt(300 * 0.1 * 0.9 / entries.size)
    used = np.arange(entries.max()) < entries[..., None]
    signs = family.arrays.sign[used]
    assert set(signs.tolist()) == {-1.0, 1.0}
    assert abs(signs.mean()) < 5 / np.sqrt(len(signs))
    for places, count in zip(family.arrays.first.reshape(-1, entries.max()), entries.reshape(-1), strict=True):
        assert len(set(places[:count].tolist())) == count
    least = SignProjections(dim=3, K=4, L=50, seed=1, kind="sparse", density=0.001).arrays.entries
    assert (least == 1).all(), "no projection is without an entry"


@pytest.mark.parametrize(("dim", "density", "near", "tables"), [
    (5, 1.0, 0.05, 12_000),
    (20, 0.2, 0.02, 6_000),
    pytest.param(20, 1.0, 0.01, 40_000, marks=pytest.mark.slow),
])  # fmt: skip
def test_quadratic_bits_collide_by_the_squared_cosine(dim: int, density: float, near: float, tables: int) -> None:
    """T(x) . T(y) = (x . y)^2, so the law has the angle of cos^2.

    Sums of products by random signs are only nearly normal: the law holds within .05 in 5 dimensions, .01 in 20.
    """
    found = agreements(fan(dim), tables, kind="sparse", density=density, quadratic=True)
    assert (np.abs(found - BY_SQUARE) < near + bound(BY_SQUARE, tables)).all()


# ---------------------------------------------------------------- codes

KINDS: list[dict[str, Any]] = [
    {"kind": "gaussian"}, {"kind": "sparse", "density": 0.3}, {"kind": "sparse", "density": 0.3, "quadratic": True},
    {"kind": "hadamard"},
]  # fmt: skip


@pytest.mark.parametrize("dim", [1, 6, 33])
@pytest.mark.parametrize("settings", KINDS, ids=["gaussian", "sparse", "quadratic", "hadamard"])
def test_codes_in_bulk_are_those_of_one_vector(settings: dict[str, Any], dim: int) -> None:
    """A draw hashes the query alone; its bucket is found only if stored vectors are hashed to the same bits."""
    K, L = 5, 23
    family = SignProjections(dim=dim, K=K, L=L, seed=2, **settings)
    vectors_XD = np.random.default_rng(3).standard_normal((300, dim)).astype(np.float32)
    vectors_XD[7], vectors_XD[8, 1:] = 0, 0
    bulk = family.hash_all(vectors_XD)
    assert bulk.dtype == np.uint16
    assert bulk.max() < 2**K
    for i, vector in enumerate(vectors_XD):
        codes = np.full(L, -1)
        codes_in_all(family.arrays, vector, K, codes)
        assert np.array_equal(codes, bulk[:, i])


@pytest.mark.parametrize("kind", ["gaussian", "hadamard"])
def test_the_complement_is_the_code_of_the_negative(kind: Any) -> None:
    """Unless a projection is exactly 0, as sparse ones may be."""
    vectors_XD = np.random.default_rng(3).standard_normal((200, 12)).astype(np.float32)
    family = SignProjections(dim=12, K=6, L=30, seed=2, kind=kind)
    assert np.array_equal(family.hash_all(-vectors_XD), 2**6 - 1 - family.hash_all(vectors_XD))


def test_gaussian_codes_are_signs_of_products() -> None:
    family = SignProjections(dim=9, K=3, L=4, seed=8, kind="gaussian")
    vectors_XD = np.random.default_rng(1).standard_normal((50, 9)).astype(np.float32)
    bits = np.einsum("lkd,xd->lkx", family.arrays.dense.astype(np.float64), vectors_XD.astype(np.float64)) > 0
    assert np.array_equal(family.hash_all(vectors_XD), 4 * bits[:, 0] + 2 * bits[:, 1] + bits[:, 2])


# ---------------------------------------------------------------- chances


def test_arc_cosine_is_as_exact_as_stated() -> None:
    grid = np.linspace(-1, 1, 20_001, dtype=np.float32)
    error = [abs(float(arccos(x)) - np.arccos(np.float64(x))) for x in grid]
    assert max(error) < 5e-7


def test_chances_are_those_of_the_formulas() -> None:
    for cosine in (-1.0, -0.6, 0.0, 0.3, 1.0):
        alpha = 1 - np.arccos(cosine) / np.pi
        squared = 1 - np.arccos(cosine**2) / np.pi
        for bits in (1, 5, 16):
            x = np.float32(cosine)
            assert chance_of_bucket(x, bits, ONE_SIDED) == pytest.approx(alpha**bits, rel=1e-4, abs=1e-6)
            joined = alpha**bits + (1 - alpha) ** bits
            assert chance_of_bucket(x, bits, BOTH_SIGNS) == pytest.approx(joined, rel=1e-4, abs=1e-6)
            assert chance_of_bucket(x, bits, SQUARED) == pytest.approx(squared**bits, rel=1e-4, abs=1e-6)
    assert chance_of_bucket(np.float32(1.0000002), 5, ONE_SIDED) == 1, "rounding may pass 1"

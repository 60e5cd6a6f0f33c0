"""What the papers prove about the hash families, within statistical error.

Legend: R vectors, D dimension, K hashes a table, L tables. Seeds are fixed; bounds are 5 standard deviations
(a false alarm in 6e-7 of seeds for each comparison, of which there are fewer than 100).
"""

import numpy as np
import pytest

from runner.contracts import Query, TrainingFacts
from runner.rng import mix
from runner.samplers import SAMPLERS
from runner.structures.dwta import Dwta
from runner.structures.simhash import SimHash


def at_angle(theta: float, dim: int, kind: str, seed: int = 0) -> np.ndarray:
    """Two vectors at an angle: dense, or as few non-zero coordinates as can be."""
    if kind == "sparse":
        pair = np.zeros((2, dim))
        pair[0, 1] = 1
        pair[1, 1], pair[1, dim - 2] = np.cos(theta), np.sin(theta)
        return pair.astype(np.float32)
    basis, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((dim, 2)))
    return np.stack([basis[:, 0], np.cos(theta) * basis[:, 0] + np.sin(theta) * basis[:, 1]]).astype(np.float32)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("dim", [20, 100, 128, 200])
@pytest.mark.parametrize("theta", [0.2, 1.0, np.pi / 2, 2.5])
def test_simhash_bits_collide_with_one_minus_angle_over_pi(theta: float, dim: int, kind: str) -> None:
    """40 families of 1,000 bits; families are independent, so their spread gives the error."""
    vectors = at_angle(theta, dim, kind)
    both = np.arange(2, dtype=np.int32)
    shares = []
    for seed in range(40):
        codes = SimHash(dim=dim, K=1, L=1000, seed=seed).hash(vectors, both)
        shares.append((codes[:, 0] == codes[:, 1]).mean())
    error = max(np.std(shares) / np.sqrt(40), 1e-4)
    # Beside chance, (HD)^3 is a finite set of directions: in 32 dimensions that shows in the third decimal.
    assert abs(np.mean(shares) - (1 - theta / np.pi)) < 5 * error + 0.3 / dim


def test_simhash_sees_directions_only() -> None:
    generator = np.random.default_rng(3)
    vectors = generator.standard_normal((50, 24)).astype(np.float32)
    family = SimHash(dim=24, K=6, L=8, seed=1)
    rows = np.arange(50, dtype=np.int32)
    codes = family.hash(vectors, rows)
    np.testing.assert_array_equal(codes, family.hash(np.float32(64) * vectors, rows))
    opposite = family.hash(-vectors, rows)
    np.testing.assert_array_equal(codes ^ opposite, np.full_like(codes, 2**6 - 1))


def test_simhash_bits_are_balanced_and_codes_spread() -> None:
    """4 divides 32, so the bits of a table are orthogonal directions: buckets are evenly full."""
    vectors = np.random.default_rng(0).standard_normal((4000, 32)).astype(np.float32)
    codes = SimHash(dim=32, K=4, L=20, seed=5).hash(vectors, np.arange(4000, dtype=np.int32))
    for table in codes:
        counts = np.bincount(table, minlength=16)
        assert len(counts) == 16
        assert ((counts - 250) ** 2 / 250).sum() < 15 + 6 * np.sqrt(2 * 15)


@pytest.mark.parametrize("case", [
    {"K": 2, "bin_size": 8}, {"K": 3, "bin_size": 4}, {"K": 1, "bin_size": 16}, {"K": 4, "bin_size": 2},
    {"K": 6, "bin_size": 8, "max_bits": 8},
])  # fmt: skip
@pytest.mark.parametrize("kind", ["dense", "relu"])
def test_dwta_reaches_every_bucket_of_small_tables(case: dict[str, int], kind: str) -> None:
    """Over 90 % of the buckets of every table are used by 5,000 random vectors."""
    vectors = np.random.default_rng(0).standard_normal((5000, 64)).astype(np.float32)
    if kind == "relu":
        vectors = np.maximum(vectors, 0)
    family = Dwta(dim=64, L=6, seed=3, **case)
    codes = family.hash(vectors, np.arange(5000, dtype=np.int32))
    assert codes.max() < 2**family.code_bits
    for table in codes:
        assert len(np.unique(table)) > 0.9 * 2**family.code_bits


def test_dwta_positions_are_equally_likely() -> None:
    """Chi-square over the 8 positions of each of 200 bins pooled by position: 7 degrees of freedom, bound 45
    (false alarm 1e-7). Bins of one vector share coordinates only within a permutation."""
    vectors = np.random.default_rng(2).standard_normal((2000, 64)).astype(np.float32)
    codes = Dwta(dim=64, K=1, L=8, seed=9).hash(vectors, np.arange(2000, dtype=np.int32))
    counts = np.bincount(codes.ravel(), minlength=8)
    expected = codes.size / 8
    assert ((counts - expected) ** 2 / expected).sum() < 45


@pytest.mark.parametrize("kind", ["dense", "relu", "sparse_relu"])
def test_dwta_collisions_grow_with_similarity(kind: str) -> None:
    """Mean share of equal hashes over 300 pairs at each correlation; neighbours differ beyond chance."""
    generator = np.random.default_rng(1)
    family = Dwta(dim=64, K=1, L=400, seed=2)
    shares = []
    for correlation in (0.0, 0.3, 0.6, 0.9, 1.0):
        a, noise = generator.standard_normal((2, 300, 64))
        b = correlation * a + np.sqrt(1 - correlation**2) * noise
        if kind != "dense":
            bar = 0.0 if kind == "relu" else 1.5
            a, b = (np.maximum(v - bar, 0) for v in (a, b))
        both = np.concatenate([a, b]).astype(np.float32)
        codes = family.hash(both, np.arange(600, dtype=np.int32))
        shares.append((codes[:, :300] == codes[:, 300:]).mean())
    assert shares[-1] == 1
    assert (np.diff(shares) > 0.03).all(), shares
    if kind == "dense":
        assert shares[0] == pytest.approx(1 / 8, abs=0.01)  # unrelated vectors agree by chance


def test_densification_spreads_sparse_vectors() -> None:
    """Vectors with 3 non-zeros of 128: most bins are empty, yet codes are shared by few vectors."""
    generator = np.random.default_rng(0)
    vectors = np.zeros((2000, 128), dtype=np.float32)
    for row in vectors:
        row[generator.choice(128, 3, replace=False)] = generator.uniform(0.1, 1, 3)
    codes = Dwta(dim=128, K=3, L=10, seed=1).hash(vectors, np.arange(2000, dtype=np.int32))
    for table in codes:
        counts = np.bincount(table, minlength=512)
        assert counts[0] < 0.05 * 2000
        assert counts.max() < 0.05 * 2000


def test_densified_codes_are_a_function_of_the_vector() -> None:
    generator = np.random.default_rng(0)
    vectors = np.maximum(generator.standard_normal((40, 64)) - 1.8, 0).astype(np.float32)
    vectors = np.concatenate([vectors, vectors[::-1]])
    family = Dwta(dim=64, K=4, L=12, seed=6)
    codes = family.hash(vectors, np.arange(80, dtype=np.int32))
    np.testing.assert_array_equal(codes[:, :40], codes[:, 40:][:, ::-1])
    one_by_one = np.concatenate([family.hash(vectors, np.array([i], dtype=np.int32)) for i in range(80)], axis=1)
    np.testing.assert_array_equal(codes, one_by_one)
    again = Dwta(dim=64, K=4, L=12, seed=6).hash(vectors, np.arange(80, dtype=np.int32))
    np.testing.assert_array_equal(codes, again)
    assert not np.array_equal(codes, Dwta(dim=64, K=4, L=12, seed=7).hash(vectors, np.arange(80, dtype=np.int32)))


def test_folding_is_even_and_keeps_equal_codes_equal() -> None:
    full = np.arange(2**12, dtype=np.uint64)
    folded = np.array([int(mix(code)) & 0xFF for code in full])
    counts = np.bincount(folded, minlength=256)
    assert ((counts - 16) ** 2 / 16).sum() < 255 + 5 * np.sqrt(2 * 255)
    vectors = np.random.default_rng(0).standard_normal((500, 32)).astype(np.float32)
    rows = np.arange(500, dtype=np.int32)
    wide = Dwta(dim=32, K=4, L=3, seed=1, bin_size=8, max_bits=12).hash(vectors, rows)
    narrow = Dwta(dim=32, K=4, L=3, seed=1, bin_size=8, max_bits=5).hash(vectors, rows)
    assert narrow.max() < 2**5
    for one, other in zip(wide, narrow, strict=True):
        pairs = {(int(a), int(b)) for a, b in zip(one, other, strict=True)}
        assert len(pairs) == len(np.unique(one)), "equal wide codes have equal folded codes"


# ---------------------------------------------------------------- retrieval


@pytest.mark.parametrize(("K", "L"), [(2, 3), (4, 10), (6, 30)])
@pytest.mark.parametrize("theta", [0.3, 0.9, 1.4])
def test_retrieval_probability_of_theorem_one(K: int, L: int, theta: float, make_layer: object) -> None:
    """P[retrieved] = 1 - (1 - a^K)^L, a = 1 - theta / pi, over draws of the hash functions.

    Cap and budget are off and the query stands at the same angle to 40 classes (at random otherwise). Each of
    60 seeds gives a mean over classes, and the spread over seeds the error. The allowance of 0.02 is for bits
    of one table, which are orthogonal and so not quite independent.
    """
    dim, n = 128, 40
    generator = np.random.default_rng(4)
    query_vector = generator.standard_normal(dim)
    query_vector /= np.linalg.norm(query_vector)
    away = generator.standard_normal((n, dim))
    away -= np.outer(away @ query_vector, query_vector)
    away /= np.linalg.norm(away, axis=1, keepdims=True)
    layer = make_layer(n, dim)  # type: ignore[operator]
    layer.table.weights[:] = np.cos(theta) * query_vector + np.sin(theta) * away
    query = Query(
        hidden_BD=query_vector[None].astype(np.float32),
        target_indptr_B1=np.array([0, 1], dtype=np.int64),
        targets_P=np.array([0], dtype=np.int32),
    )
    config = SAMPLERS["lsh_embedding"](
        name="lsh_embedding", K=K, L=L, hash="simhash", max_per_bucket=n, sparsity_budget=1.0, min_candidates=1,
        num_tail=0, center=False,
    )  # type: ignore[call-arg]  # fmt: skip
    shares = []
    for seed in range(60):
        sampler = config.build(
            layer=layer, training=TrainingFacts.one_label_a_row(np.ones(n, dtype=np.int64)), seed=seed
        )
        log_counts = sampler.log_expected_count(query, np.arange(n, dtype=np.int32), 1)[0]
        shares.append((log_counts == 0).mean())
    expected = 1 - (1 - (1 - theta / np.pi) ** K) ** L
    assert abs(np.mean(shares) - expected) < 5 * np.std(shares) / np.sqrt(60) + 0.02

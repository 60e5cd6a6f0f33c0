"""Ranking metrics against hand values, scikit-learn and brute force. Legend: R rows, N classes."""

import numpy as np
import pytest
from sklearn.metrics import ndcg_score

from runner.metrics import inverse_propensity, ranking_metrics


def as_rows(labels: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in labels])]).astype(np.int64)
    return indptr, np.concatenate([np.array(row, dtype=np.int32) for row in labels])


def test_by_hand() -> None:
    """Row 0 has classes 3 and 8, found at ranks 1 and 4; row 1 has class 2, found at rank 2."""
    top = np.array([[3, 1, 0, 8, 5], [7, 2, 9, 0, 1]], dtype=np.int32)
    ours = ranking_metrics(top, *as_rows([[3, 8], [2]]), np.ones(10))
    assert ours["p@1"] == pytest.approx(1 / 2)
    assert ours["p@3"] == pytest.approx((1 / 3 + 1 / 3) / 2)
    assert ours["p@5"] == pytest.approx((2 / 5 + 1 / 5) / 2)
    assert ours["rp@3"] == pytest.approx((1 / 2 + 1) / 2)
    assert ours["rp@5"] == pytest.approx((2 / 2 + 1) / 2)
    second, fourth = 1 / np.log2(3), 1 / np.log2(5)
    assert ours["ndcg@1"] == pytest.approx(1 / 2)
    assert ours["ndcg@3"] == pytest.approx((1 / (1 + second) + second) / 2)
    assert ours["ndcg@5"] == pytest.approx(((1 + fourth) / (1 + second) + second) / 2)
    assert ours["psp@1"] == pytest.approx(1 / 2)
    assert ours["psp@3"] == pytest.approx(2 / 3)
    assert ours["psp@5"] == pytest.approx(3 / 3)


def random_problem(seed: int) -> tuple[np.ndarray, np.ndarray, list[list[int]], np.ndarray]:
    generator = np.random.default_rng(seed)
    scores = generator.permuted(np.tile(np.arange(30.0), (40, 1)), axis=1)
    labels = [sorted(generator.choice(30, generator.integers(1, 9), replace=False).tolist()) for _ in range(40)]
    top = np.argsort(-scores, axis=1)[:, :5].astype(np.int32)
    return scores, top, labels, generator.uniform(1, 20, 30)


@pytest.mark.parametrize("seed", range(3))
def test_ndcg_like_scikit_learn(seed: int) -> None:
    scores, top, labels, weight = random_problem(seed)
    truth = np.zeros((40, 30))
    for row, mine in enumerate(labels):
        truth[row, mine] = 1
    ours = ranking_metrics(top, *as_rows(labels), weight)
    for k in (1, 3, 5):
        assert ours[f"ndcg@{k}"] == pytest.approx(ndcg_score(truth, scores, k=k))


@pytest.mark.parametrize("seed", range(3))
def test_precision_and_propensity_by_brute_force(seed: int) -> None:
    _, top, labels, weight = random_problem(seed)
    ours = ranking_metrics(top, *as_rows(labels), weight)
    for k in (1, 3, 5):
        hits = [[c for c in top[row, :k].tolist() if c in labels[row]] for row in range(40)]
        best = [sorted((weight[c] for c in mine), reverse=True)[:k] for mine in labels]
        assert ours[f"p@{k}"] == pytest.approx(np.mean([len(found) / k for found in hits]))
        r_precision = [len(found) / min(k, len(mine)) for found, mine in zip(hits, labels, strict=True)]
        assert ours.get(f"rp@{k}", ours["p@1"]) == pytest.approx(np.mean(r_precision))
        gained = sum(weight[c] for found in hits for c in found)
        assert ours[f"psp@{k}"] == pytest.approx(gained / sum(map(sum, best)))


def test_the_best_ranking_scores_one() -> None:
    _, _, labels, weight = random_problem(9)
    labels = [(mine * 5)[:1] if len(mine) < 5 else mine for mine in labels]
    top = np.array([sorted(range(30), key=lambda c, m=mine: (c not in m, -weight[c]))[:5] for mine in labels])
    ours = ranking_metrics(top.astype(np.int32), *as_rows(labels), weight)
    for k in (1, 3, 5):
        assert ours[f"ndcg@{k}"] == pytest.approx(1)
        assert ours[f"psp@{k}"] == pytest.approx(1)
    assert ours["p@1"] == 1


def test_ranks_beyond_the_classes_are_left_out() -> None:
    ours = ranking_metrics(np.array([[1, 0]], dtype=np.int32), *as_rows([[1]]), np.ones(2))
    assert ours == {"p@1": 1.0, "psp@1": 1.0, "ndcg@1": 1.0}


def test_inverse_propensity_formula() -> None:
    """Jain et al. 2016 with A 0.55, B 1.5 on 1,000 rows, worked out with a calculator."""
    counts = np.array([1, 10, 500])
    c = (np.log(1000) - 1) * 2.5**0.55
    expected = [1 + c * np.exp(-0.55 * np.log(count + 1.5)) for count in counts]
    ours = inverse_propensity(counts, 1000, 0.55, 1.5)
    np.testing.assert_allclose(ours, expected)
    assert ours[0] == pytest.approx(6.9078, abs=1e-4)  # 1 + (ln 1000 - 1): where count + B = B + 1
    assert (np.diff(ours) < 0).all(), "rare classes weigh more"

"""Compute ranking metrics over all classes (precision, propensity-scored precision and nDCG at k), and perplexity.

Ranking metrics are fractions in [0, 1], of all rows together. Rows of extreme classification have sets of true classes;
rows of sequential recommendation have one target each, and only its rank counts.

Legend: R rows, K ranks, N classes.
"""

import math

import numpy as np
from numba import njit, prange

from runner.kernels.groups import PRANGE

RANKS = (1, 3, 5)
ITEM_RANKS = (10, 20, 50)
_LARGEST_EXPONENT = 709.0


@njit(cache=True, parallel=PRANGE)
def _hits(top_RK, label_indptr, labels):
    out = np.zeros(top_RK.shape, dtype=np.bool_)
    for row in prange(top_RK.shape[0]):
        for rank in range(top_RK.shape[1]):
            for i in range(label_indptr[row], label_indptr[row + 1]):
                if labels[i] == top_RK[row, rank]:
                    out[row, rank] = True
    return out


def inverse_propensity(label_counts_N: np.ndarray, num_rows: int, a: float, b: float) -> np.ndarray:
    """Return 1 / p_l = 1 + C (N_l + b)^-a of each class l, (N,) float64 (Jain, Prabhu & Varma, KDD 2016).

    C = (ln R - 1)(b + 1)^a, with R = ``num_rows`` training rows, N_l of which have class l (``label_counts_N``).
    """
    c = (np.log(num_rows) - 1) * (b + 1) ** a
    return 1 + c * (label_counts_N + b) ** -a


def ranking_metrics(
    top_RK: np.ndarray, label_indptr: np.ndarray, labels: np.ndarray, inverse_propensity_N: np.ndarray
) -> dict[str, float]:
    """Return ``p@k``, ``psp@k`` and ``ndcg@k`` for k in (1, 3, 5) up to K, and ``rp@k`` for those above 1.

    top_RK: the ids ranked for each row, best first. label_indptr, labels: row r's true classes are
    ``labels[label_indptr[r] : label_indptr[r + 1]]``. p@k has denominator k. nDCG's ideal ranking has
    min(k, number of true classes) hits first. psp@k is the sum of inverse propensities of hits, divided by the largest
    sum that any ranking could reach; both are summed over rows, as in the extreme-classification repository's scripts.
    rp@k is R-precision at k, the mean of hits / min(k, number of true classes) (Chalkidis et al. 2019); with one true
    class a row it is the share of rows whose class is among the first k, and rp@1 would be p@1.
    """
    hit_RK = _hits(top_RK, label_indptr, labels)
    counts_R = np.diff(label_indptr)
    gain_RK = hit_RK * inverse_propensity_N[top_RK]
    discount = 1 / np.log2(np.arange(2, top_RK.shape[1] + 2))
    ideal = np.concatenate([[0.0], np.cumsum(discount)])
    # Order each row's true classes by decreasing inverse propensity; the best ranking has the first k of them.
    row_of_label = np.repeat(np.arange(len(counts_R)), counts_R)
    weight = inverse_propensity_N[labels]
    order = np.lexsort((-weight, row_of_label))
    rank = np.arange(len(labels)) - np.repeat(label_indptr[:-1] - label_indptr[0], counts_R)
    out: dict[str, float] = {}
    for k in (k for k in RANKS if k <= top_RK.shape[1]):
        out[f"p@{k}"] = float(hit_RK[:, :k].mean())
        if k > 1:
            out[f"rp@{k}"] = float((hit_RK[:, :k].sum(1) / np.clip(counts_R, 1, k)).mean())
        best = weight[order][rank < k].sum()
        out[f"psp@{k}"] = float(gain_RK[:, :k].sum() / best) if best else 0.0
        dcg = (hit_RK[:, :k] * discount[:k]).sum(1)
        reachable = np.maximum(ideal[np.minimum(counts_R, k)], discount[0])
        out[f"ndcg@{k}"] = float((dcg / reachable).mean())
    return out


def target_metrics(rank_R: np.ndarray) -> dict[str, float]:
    """Return ``ndcg@k``, ``recall@k`` and ``mrr@k`` for k in (10, 20, 50), means over rows with one target each.

    rank_R: the rank of each row's target, 1 for the best; 0 if it is not ranked. With one target the ideal gain is 1,
    so nDCG@k is 1 / log2(rank + 1), recall@k is 1 and MRR@k is 1 / rank if the rank is at most k; all are 0 if not.
    """
    found_R = rank_R >= 1
    rank_R = np.maximum(rank_R, 1).astype(np.float64)
    out = {}
    for k in ITEM_RANKS:
        hit_R = found_R & (rank_R <= k)
        out[f"ndcg@{k}"] = float((hit_R / np.log2(rank_R + 1)).mean())
        out[f"recall@{k}"] = float(hit_R.mean())
        out[f"mrr@{k}"] = float((hit_R / rank_R).mean())
    return out


def perplexity(cross_entropy: float) -> float | str:
    """Return exp of a mean cross-entropy in nats; the string ``inf`` if no float holds it, as JSON has no infinity."""
    return math.exp(cross_entropy) if cross_entropy < _LARGEST_EXPONENT else "inf"

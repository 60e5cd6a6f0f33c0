"""Check that weighting candidates by exp(logit) / expected count estimates the partition without bias.

Legend: B rows, N classes, D hidden size, S steps.
"""

import math

import numpy as np

from runner.check.cases import (
    BOUND,
    NUM_CLASSES,
    ROWS,
    Case,
    demand,
    random_query,
    rows_of,
    stated_counts,
)
from runner.check.counts import frequencies_of
from runner.contracts import Query
from runner.samplers import Sampler


def partition_estimate_is_unbiased(case: Case, draws: int) -> None:
    """Check that sum over candidates of exp(logit) / count has as its mean the sum of exp(logit).

    The latter sum is over the classes that can be drawn.
    """
    sampler, layer, query = case.on_the_usual()
    logit_BN = query.hidden_BD.astype(np.float64) @ layer.rows().T + layer.biases()
    partition_is_met(sampler, query, np.exp(logit_BN), draws)


def counts_hold_in_a_normalised_layer(case: Case, draws: int) -> None:
    """Check frequencies and partition when logits are 4 cos(h, w) + b and class vectors differ in length.

    Frequencies take a quarter of the draws, because lengths that are read wrongly change them much.
    """
    layer, query = case.layer(scale=4.0), random_query()
    sizes_N1 = np.geomspace(0.2, 5, NUM_CLASSES, dtype=np.float32)[:, None]
    layer.table.write(None, vectors=layer.rows() * sizes_N1)
    sampler = case.build(layer)
    frequencies_of(sampler, query, draws // 4).are_as_stated()
    weights_ND, hidden_BD = layer.rows().astype(np.float64), query.hidden_BD.astype(np.float64)
    directions_ND = weights_ND / np.linalg.norm(weights_ND, axis=1, keepdims=True)
    cosine_BN = (hidden_BD / np.linalg.norm(hidden_BD, axis=1, keepdims=True)) @ directions_ND.T
    partition_is_met(sampler, query, np.exp(4 * cosine_BN + layer.biases()), draws)


def partition_is_met(sampler: Sampler, query: Query, weight_BN: np.ndarray, draws: int) -> None:
    """Raise Broken unless the mean estimate of many steps is within 5 standard errors of the true partition.

    The true partition is the sum over classes that can be drawn at the step. ``weight_BN``: exp(logit) of all classes.
    There is a step for every 600 draws, and at least 300 steps.
    """
    possible_BN = stated_counts(sampler, query, 1) > 0
    steps = max(300, draws // 600)
    estimate_SB, exact_SB = np.empty((steps, ROWS)), np.empty((steps, ROWS))
    for step in range(steps):
        if not possible_BN.all():  # which classes can be drawn may depend on the step
            possible_BN = stated_counts(sampler, query, step + 1) > 0
        exact_SB[step] = (weight_BN * possible_BN).sum(1)
        for row, (ids, log_counts) in enumerate(rows_of(sampler.sample(query, step + 1), ROWS)):
            estimate_SB[step, row] = (weight_BN[row, ids] / np.exp(log_counts.astype(np.float64))).sum()
    mean_B, exact_B = estimate_SB.mean(0), exact_SB.mean(0)
    error_B = (estimate_SB - exact_SB).std(0) / math.sqrt(steps) + 2e-6 * exact_B
    score_B = np.abs(mean_B - exact_B) / error_B
    row = int(np.argmax(score_B))
    demand(
        (score_B < BOUND).all(),
        f"row {row}: the partition is {exact_B[row]:.5g}, but its mean estimate is {mean_B[row]:.5g}, "
        f"{score_B[row]:.1f} standard errors away",
    )

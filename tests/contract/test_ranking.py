"""Samplers that rank take the largest logits among the classes that they rank."""

from typing import Any

import numpy as np
import pytest
from lsh_cases import N, build, full_hashing

from runner.check.cases import ROWS, cases_of, random_layer, rows_of, stated_counts
from runner.contracts import Query
from runner.kernels import topk as topk_kernels
from runner.output.numba.layer import NumbaLayer


@pytest.mark.slow
def test_topk_takes_the_largest_logits(layer: NumbaLayer, query: Query) -> None:
    logits_BN = query.hidden_BD @ layer.table.weights.T + layer.table.biases()
    for row, (ids, _) in enumerate(rows_of(build("topk", "few", layer).sample(query, 1), ROWS)):
        np.testing.assert_array_equal(ids, np.sort(np.argsort(-logits_BN[row])[:25]))


@pytest.mark.parametrize("case", cases_of("lsh_topk"))
def test_lsh_topk_takes_the_largest_logits_it_retrieves(case: str, layer: NumbaLayer, query: Query) -> None:
    sampler: Any = build("lsh_topk", case, layer, max_per_bucket=N)
    logits_BN = query.hidden_BD @ layer.table.weights.T + layer.table.biases()
    code_LN = full_hashing(sampler, layer)
    code_LB = sampler.index.family.hash(query.hidden_BD, np.arange(ROWS, dtype=np.int32))
    retrieved_BN = (code_LN[:, None, :] == code_LB[:, :, None]).any(0)
    for row, (ids, log_counts) in enumerate(rows_of(sampler.sample(query, 1), ROWS)):
        found = np.flatnonzero(retrieved_BN[row])
        best = found[np.argsort(-logits_BN[row, found])[: sampler.k]]
        np.testing.assert_array_equal(np.sort(ids[log_counts == 0]), np.sort(best))
        assert (log_counts != 0).sum() == sampler.tail


@pytest.mark.parametrize(("name", "case"), [("topk", "few"), ("lsh_topk", "all_ranked")])
def test_a_normalised_layer_is_ranked_by_its_cosines(name: str, case: str, query: Query) -> None:
    """Classes that are certain to be candidates have larger cosines than most, whatever the lengths of the vectors."""
    layer = NumbaLayer(random_layer().table, 4.0)
    layer.table.weights *= np.geomspace(0.2, 5, N, dtype=np.float32)[:, None]
    certain_BN = stated_counts(build(name, case, layer), query, 1) == 1
    logit_BN = layer.query_vectors(query.hidden_BD) @ layer.class_vectors().T + layer.table.biases()
    for row in range(ROWS):
        assert np.exp(logit_BN[row, certain_BN[row]]).mean() > np.exp(logit_BN[row]).mean()


@pytest.mark.parametrize("count", [1, 2, 5, 40, 1000])
def test_long_rankings_are_sorted(count: int) -> None:
    """Descending values, of equal ones the lower id, and NaN last, as a library sorts them."""
    draw = np.random.default_rng(count)
    values = draw.integers(-5, 5, count).astype(np.float32)
    values[draw.random(count) < 0.1] = np.nan
    values[draw.random(count) < 0.1] = -np.inf
    ids = draw.permutation(count).astype(np.int32)
    wanted = ids[np.lexsort((ids, -values))]
    topk_kernels._rank(values, ids)
    assert ids.tolist() == wanted.tolist()

"""Samplers work with more classes than a float can count, and with more draws than classes."""

import numpy as np
import pytest

from runner.check.cases import NUM_CLASSES, ROWS, cases_of, random_layer, rows_of, stated_counts
from runner.contracts import Query, TrainingFacts
from runner.output.numba.layer import NumbaLayer
from runner.samplers import SAMPLERS
from runner.samplers.static import StaticConfig

N = NUM_CLASSES


@pytest.mark.slow
def test_more_classes_than_a_float_can_count() -> None:
    """With over 2^24 classes, no sampler rounds ids through float32 or stops at torch.multinomial's limit.

    Class vectors are short, so draws are about uniform. A tenth of them lies in the last tenth of the classes, and some
    60 of 8,000 above 2^24, where float32 has no odd numbers; all of them are even with a chance of one in 2^60.
    """
    n = 2**24 + 2**17
    layer = random_layer(n, 4, norm=1.0)
    query = Query(
        hidden_BD=np.ones((2, 4), dtype=np.float32),
        target_indptr_B1=np.array([0, 1, 2], dtype=np.int64),
        targets_P=np.array([n - 1, 2**24 + 5], dtype=np.int32),
    )
    training = TrainingFacts.one_label_a_row(np.ones(n, dtype=np.int64))
    some = np.array([0, 2**24 - 1, 2**24, 2**24 + 1, n - 2], dtype=np.int32)
    for name, options in {
        "uniform": {"num_samples": 4000, "shared": False, "unique": False},
        "log_uniform": {"num_samples": 4000},
        "unigram": {"num_samples": 4000},
        "exact": {"num_samples": 4000},
        "lsh": {"num_samples": 4000, "K": 8, "L": 2},
        "lsh_embedding": {"K": 12, "L": 2},
        "lsh_topk": {"K": 12, "L": 2},
        "midx_rq": {"num_samples": 4000},
        "rff": {"num_samples": 4000, "D": 2},
        "topk": {"num_nearest": 50},
        "sce": {"num_tail": 4000},
        "in_batch": {},
    }.items():
        sampler = SAMPLERS[name](name=name, **options).build(layer=layer, training=training, seed=1)  # type: ignore[arg-type]
        for ids, log_counts in rows_of(sampler.sample(query, 1), 2):
            assert 0 <= ids.min() <= ids.max() < n, name
            assert np.isfinite(log_counts).all(), name
            if name not in ("log_uniform", "topk", "in_batch", "lsh_topk", "lsh_embedding", "sce"):
                assert 0.05 < (ids > 0.9 * n).mean() < 0.15, name
                assert (ids[ids >= 2**24] & 1).any(), f"{name}: odd ids above 2^24 need more than float32"
        if name != "topk":
            assert np.isfinite(sampler.log_expected_count(query, some, 1)).all(), name
        del sampler


@pytest.mark.parametrize("name", [name for name, cls in SAMPLERS.items() if issubclass(cls, StaticConfig)])
@pytest.mark.parametrize(("shared", "unique"), [(True, True), (False, True), (True, False)])
def test_more_samples_than_classes(name: str, shared: bool, unique: bool, layer: NumbaLayer, query: Query) -> None:
    case = next(iter(cases_of(name).values()))
    sampler = case.build(layer, num_samples=20 * N, shared=shared, unique=unique)
    proposal = sampler.sample(query, 1)
    for ids, _ in rows_of(proposal, ROWS):
        assert len(ids) <= N if unique else len(ids) == 20 * N
    assert (stated_counts(sampler, query, 1) > 0).all()


@pytest.mark.parametrize("case", ["until_distinct", "per_row_until_distinct"])
@pytest.mark.parametrize("num_samples", [1, 40, N - 1, N, 20 * N])
def test_draws_go_on_until_all_are_distinct(case: str, num_samples: int, layer: NumbaLayer, query: Query) -> None:
    sampler = cases_of("log_uniform")[case].build(layer, num_samples=num_samples)
    for ids, log_counts in rows_of(sampler.sample(query, 1), ROWS):
        assert len(np.unique(ids)) == len(ids) == min(num_samples, N)
        assert (log_counts == 0).all() == (num_samples >= N), "a class is certain only where all are drawn"

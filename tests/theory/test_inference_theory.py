"""Sampling from the model: exact draws and lazily evaluated Gumbels follow the softmax.

Chi-square over classes with at least five expected draws, the others pooled; false alarm 1e-6 of seeds a test.
"""

from collections.abc import Callable

import numba
import numpy as np
import pytest
from scipy.stats import chi2

from runner.contracts import TrainingFacts
from runner.errors import Diverged
from runner.heads.inference import most_likely, sample_by_gumbel, sample_exactly
from runner.output.numba.layer import NumbaLayer
from runner.samplers import SAMPLERS
from runner.samplers.lsh_topk import LshTopK

N, DIM, DRAWS = 300, 12, 20_000


def softmax(layer: NumbaLayer, hidden_D: np.ndarray) -> np.ndarray:
    logits = layer.table.weights.astype(np.float64) @ hidden_D + layer.table.biases()
    weights = np.exp(logits - logits.max())
    return np.asarray(weights / weights.sum())


def surprise(drawn: np.ndarray, p_N: np.ndarray) -> float:
    """Probability of a chi-square at least this large."""
    seen, expected = np.bincount(drawn, minlength=N), len(drawn) * p_N
    often = expected >= 5
    seen = np.append(seen[often], seen[~often].sum())
    expected = np.append(expected[often], expected[~often].sum())
    keep = expected > 0
    return float(chi2.sf((np.square(seen - expected)[keep] / expected[keep]).sum(), keep.sum() - 1))


def lsh(layer: NumbaLayer, **options: int) -> LshTopK:
    config = SAMPLERS["lsh_topk"](name="lsh_topk", **options)  # type: ignore[arg-type]
    training = TrainingFacts.one_label_a_row(np.ones(layer.num_classes, dtype=np.int64))
    sampler = config.build(layer=layer, training=training, seed=5)
    assert isinstance(sampler, LshTopK)
    return sampler


@pytest.fixture
def hidden_D() -> np.ndarray:
    return np.maximum(np.random.default_rng(3).standard_normal(DIM), 0).astype(np.float32)


@pytest.mark.parametrize("norm", [0.5, 3.0])
def test_exact_draws_follow_the_softmax(
    norm: float, make_layer: Callable[..., NumbaLayer], hidden_D: np.ndarray
) -> None:
    layer = make_layer(N, DIM, norm=norm)
    drawn = sample_exactly(layer, np.repeat(hidden_D[None], DRAWS, axis=0), seed=1, step=1)
    assert surprise(drawn, softmax(layer, hidden_D)) > 1e-6
    assert surprise(drawn, np.full(N, 1 / N)) < 1e-6, "the test must be able to tell"


@pytest.mark.parametrize("norm", [0.5, 3.0])
@pytest.mark.parametrize(
    "options",
    [
        {"K": 1, "L": 8, "num_nearest": 60, "num_tail": 40},
        {"K": 6, "L": 2, "num_nearest": 60, "num_tail": 120},  # little is retrieved
        {"K": 20, "L": 1, "num_nearest": 1, "num_tail": 300},  # nothing is, and all noise is drawn
    ],
)
def test_lazy_gumbels_follow_the_softmax(
    norm: float, options: dict[str, int], make_layer: Callable[..., NumbaLayer], hidden_D: np.ndarray
) -> None:
    layer = make_layer(N, DIM, norm=norm)
    drawn = sample_by_gumbel(lsh(layer, **options), np.repeat(hidden_D[None], DRAWS, axis=0), step=1)
    assert surprise(drawn, softmax(layer, hidden_D)) > 1e-6


def test_without_the_tail_the_draws_are_the_nearest_classes_only(
    make_layer: Callable[..., NumbaLayer], hidden_D: np.ndarray
) -> None:
    """What the chi-square above must be able to see: a sampler that forgets the tail."""
    layer = make_layer(N, DIM, norm=0.5)
    sampler = lsh(layer, K=1, L=8, num_nearest=60, num_tail=1)
    drawn = sample_by_gumbel(sampler, np.repeat(hidden_D[None], DRAWS, axis=0), step=1)
    assert surprise(drawn, softmax(layer, hidden_D)) < 1e-6


def test_draws_differ_by_step_and_row_but_not_by_threads(
    make_layer: Callable[..., NumbaLayer], hidden_D: np.ndarray
) -> None:
    hidden_BD = np.repeat(hidden_D[None], 50, axis=0)
    results = []
    for threads in (1, 2):
        numba.set_num_threads(threads)
        sampler = lsh(make_layer(N, DIM), num_nearest=40, num_tail=30)
        results.append([sample_by_gumbel(sampler, hidden_BD, step=step) for step in (1, 2, 1)])
    np.testing.assert_array_equal(results[0], results[1])
    first, second, again = results[0]
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, second)
    assert len(np.unique(first)) > 5


def test_the_most_likely_class(make_layer: Callable[..., NumbaLayer], hidden_D: np.ndarray) -> None:
    layer = make_layer(N, DIM)
    assert most_likely(layer, hidden_D[None])[0] == softmax(layer, hidden_D).argmax()


@pytest.mark.parametrize("what", ["hidden", "weights"])
def test_a_model_that_is_not_a_number_can_not_be_sampled(
    what: str, make_layer: Callable[..., NumbaLayer], hidden_D: np.ndarray
) -> None:
    layer = make_layer(N, DIM)
    sampler = lsh(layer, num_nearest=5, num_tail=20, K=4, L=3)
    hidden_BD = np.repeat(hidden_D[None], 2, axis=0)
    if what == "hidden":
        hidden_BD[1] = np.nan
    else:
        layer.table.weights[:] = np.nan
    with pytest.raises(Diverged, match="not finite numbers"):
        sample_by_gumbel(sampler, hidden_BD, step=1)

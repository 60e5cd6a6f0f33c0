"""MIDX-Learn: codewords that take a step after every training step, and what that gains."""

from typing import Any

import numpy as np
import pytest
from quantized import Layers, build, divergence, grouped_layer, log_q, log_softmax, logits_of, quantizer

from runner.contracts import Query, TrainingFacts
from runner.errors import Diverged
from runner.output.numba.layer import NumbaLayer
from runner.samplers import SAMPLERS
from runner.structures.codeword_learning import Learner, Lesson

NOBODY = np.zeros(0, dtype=np.int32)


def trained_like(make_layer: Layers) -> tuple[NumbaLayer, Query, Query]:
    """Classes in groups, and hidden states near the vectors of Zipf-distributed targets: to learn from, to judge by."""
    n, dim, rows = 3000, 16, 200
    layer = grouped_layer(make_layer, n, dim, spread=0.8)
    generator = np.random.default_rng(3)
    share = 1 / np.arange(1, n + 1)
    queries = []
    for _ in range(2):
        targets = generator.choice(n, rows, p=share / share.sum())
        noise = generator.standard_normal((rows, dim)) * 0.3
        hidden = np.maximum(3 * layer.table.weights[targets] + noise, 0).astype(np.float32)
        indptr = np.arange(rows + 1, dtype=np.int64)
        queries.append(Query(hidden_BD=hidden, target_indptr_B1=indptr, targets_P=targets.astype(np.int32)))
    return layer, queries[0], queries[1]


def trained(name: str, layer: NumbaLayer, query: Query, steps: int, **options: Any) -> Any:
    """A sampler after some steps in which the layer stood still."""
    sampler = build(name, layer, codewords=8, **options)
    for step in range(1, steps + 1):
        sampler.refresh(query, step, NOBODY)
    return sampler


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pq", "rq"])
def test_learning_lowers_the_divergence_on_new_queries(kind: str, make_layer: Layers) -> None:
    """The sampler's KL(p || q) falls below that of k-means by a tenth at least, and further in each period."""
    layer, seen, fresh = trained_like(make_layer)
    log_p = log_softmax(logits_of(layer, fresh))
    options = {"refresh_every_steps": 20, "learn_lr": 0.002}
    samplers = {
        "kmeans": trained(f"midx_{kind}", layer, seen, 20, refresh_every_steps=20),
        "short": trained(f"midx_learn_{kind}", layer, seen, 20, **options),
        "long": trained(f"midx_learn_{kind}", layer, seen, 100, **options),
    }
    kl = {name: divergence(log_p, log_q(sampler, fresh)).mean() for name, sampler in samplers.items()}
    assert kl["short"] < kl["kmeans"], kl
    assert kl["long"] < 0.9 * kl["kmeans"], kl
    assert kl["long"] < kl["short"], "what is learnt in one period goes on in the next one"


@pytest.mark.parametrize("name", ["midx_learn_pq", "midx_learn_rq"])
def test_codewords_move_a_little_at_every_step(name: str, make_layer: Layers) -> None:
    """A step of Adam moves a number by about learn_lr at most, also when classes are assigned anew."""
    layer, seen, _ = trained_like(make_layer)
    sampler = build(name, layer, codewords=8, refresh_every_steps=2, learn_lr=1e-4)
    before, codes = sampler.codebooks_2CD.copy(), sampler.codes_2N.copy()
    layer.table.weights[:] = np.roll(layer.table.weights, 7, axis=0)
    for step in (1, 2, 3, 4):
        assert sampler.refresh(seen, step, NOBODY)
        moved = np.abs(sampler.codebooks_2CD - before)
        assert 0 < moved.max() < 1.1e-4 * 1.1, step
        assert (sampler.codes_2N != codes).any() == (step in (2, 4)), step
        before, codes = sampler.codebooks_2CD.copy(), sampler.codes_2N.copy()
        layer.table.weights[:] = np.roll(layer.table.weights, 7, axis=0)


def test_null_assigns_the_classes_anew_once_an_epoch(make_layer: Layers) -> None:
    layer, seen, _ = trained_like(make_layer)
    config: Any = SAMPLERS["midx_learn_rq"](name="midx_learn_rq", codewords=8)  # type: ignore[call-arg]
    counts_N = np.ones(layer.num_classes, dtype=np.int64)
    training = TrainingFacts(label_counts_N=counts_N, num_rows=700, steps_per_epoch=3)
    sampler = config.build(layer=layer, training=training, seed=0)
    for step in range(1, 7):
        codes = sampler.codes_2N.copy()
        layer.table.weights[:] = np.roll(layer.table.weights, 7, axis=0)
        sampler.refresh(seen, step, NOBODY)
        assert (sampler.codes_2N != codes).any() == (step in (3, 6)), step


@pytest.mark.slow
def test_a_fresh_index_learns_at_once(make_layer: Layers) -> None:
    """``learn``, which serves networks trained by other samplers, gains what many steps would."""
    layer, seen, fresh = trained_like(make_layer)
    log_p = log_softmax(logits_of(layer, fresh))
    sampler = build("midx_learn_rq", layer, codewords=8)
    before = divergence(log_p, log_q(sampler, fresh)).mean()
    assert sampler.learn(seen, 1)
    assert divergence(log_p, log_q(sampler, fresh)).mean() < 0.9 * before


def test_learning_allows_for_popularity(make_layer: Layers) -> None:
    """Where classes are drawn by popularity, codewords unlearn what popularity says; uniform learning would not."""
    layer, seen, fresh = trained_like(make_layer)
    weight = np.random.default_rng(2).permutation(1000 / np.arange(1, layer.num_classes + 1))
    layer.table.bias[:, 0] = np.log(weight)
    made = quantizer("rq", 8)
    start = made.fit(layer.table.weights, np.random.default_rng(0))
    codes, _ = made.assign(layer.table.weights, start)
    kl = []
    for log_weight in (None, np.log(weight)):
        lesson = Lesson(
            values_SD=layer.table.weights, codes_2S=codes, hidden_BD=seen.hidden_BD, bias_S=layer.table.biases(),
            log_weight_S=log_weight,
        )  # fmt: skip
        first, second = learnt(made, start, lesson, "hard", 60)
        logits = fresh.hidden_BD.astype(np.float64) @ (first[codes[0]] + second[codes[1]]).T + np.log(weight)
        kl.append(divergence(log_softmax(logits_of(layer, fresh)), log_softmax(logits)).mean())
    assert kl[1] < 0.97 * kl[0], kl


def learnt(made: Any, start: np.ndarray, lesson: Lesson, assignment: Any, steps: int, lr: float = 0.01) -> np.ndarray:
    """Codebooks after some steps from ``start``."""
    learner = Learner(assignment=assignment, lr=lr, shape=start.shape, parts=made.parts(start.shape[2]))
    codebooks = start.copy()
    for _ in range(steps):
        learner.step(codebooks, lesson)
    return codebooks


@pytest.mark.parametrize("assignment", ["hard", "soft"])
@pytest.mark.parametrize("kind", ["pq", "rq"])
def test_learning_lowers_its_own_objective(assignment: Any, kind: Any, make_layer: Layers) -> None:
    """Reconstruction + KL over all classes, computed here in NumPy, falls with steps of Adam."""
    layer, seen, _ = trained_like(make_layer)
    weights, bias = layer.table.weights, layer.table.biases()
    made = quantizer(kind, 8)
    start = made.fit(weights, np.random.default_rng(0))
    codes, _ = made.assign(weights, start)

    def soft(scores: np.ndarray) -> np.ndarray:
        return np.exp(log_softmax(scores))

    def objective(codebooks: np.ndarray) -> float:
        values, (first, second) = weights.astype(np.float64), codebooks.astype(np.float64)
        if assignment == "soft":
            near = soft(values @ first.T) @ first
            approximate = near + soft((values - near) @ second.T) @ second
        else:
            approximate = first[codes[0]] + second[codes[1]]
        hidden = seen.hidden_BD.astype(np.float64)
        kl = divergence(log_softmax(hidden @ values.T + bias), log_softmax(hidden @ approximate.T)).mean()
        return float(np.square(values - approximate).sum(1).mean() + kl)

    lesson = Lesson(values_SD=weights, codes_2S=codes, hidden_BD=seen.hidden_BD, bias_S=bias)
    values = [objective(start)]
    for steps in (5, 25):
        codebooks = learnt(made, start, lesson, assignment, steps)
        values.append(objective(codebooks))
        for codebook, part in zip(codebooks, made.parts(16), strict=True):
            outside = np.ones(16, dtype=bool)
            outside[part] = False
            assert (codebook[:, outside] == 0).all(), "codewords stay in their half"
    assert values[0] > values[1] > values[2], values


def test_state_carries_on_the_moments(make_layer: Layers) -> None:
    """A sampler restored half-way ends with the same codewords as one that was not interrupted."""
    layer, seen, _ = trained_like(make_layer)
    whole = trained("midx_learn_rq", layer, seen, 4, refresh_every_steps=3)
    half = trained("midx_learn_rq", layer, seen, 2, refresh_every_steps=3)
    state = {name: np.array(value) for name, value in half.state_dict().items()}
    restored = build("midx_learn_rq", layer, codewords=8, refresh_every_steps=3)
    restored.load_state_dict(state)
    for step in (3, 4):
        restored.refresh(seen, step, NOBODY)
    for name, value in whole.state_dict().items():
        np.testing.assert_array_equal(value, restored.state_dict()[name], err_msg=name)


@pytest.mark.parametrize("assignment", ["hard", "soft"])
def test_learning_that_overflows_says_which_key(assignment: Any, make_layer: Layers) -> None:
    layer, seen, _ = trained_like(make_layer)
    made = quantizer("rq", 4)
    start = made.fit(layer.table.weights, np.random.default_rng(0))
    codes, _ = made.assign(layer.table.weights, start)
    lesson = Lesson(values_SD=layer.table.weights, codes_2S=codes, hidden_BD=seen.hidden_BD)
    with pytest.raises(Diverged, match=r"sampler\.learn_lr"):
        learnt(made, start, lesson, assignment, 5, lr=1e30)

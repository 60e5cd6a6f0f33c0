"""What tests of MIDX and of its quantisers have in common. Legend: B queries, N classes, D coordinates."""

from collections.abc import Callable
from typing import Any

import numpy as np

from runner.contracts import Query, TrainingFacts
from runner.output.losses import LOSSES
from runner.output.numba.layer import NumbaLayer
from runner.samplers import SAMPLERS
from runner.structures.quantizers import Quantizer

Layers = Callable[..., NumbaLayer]
Queries = Callable[..., Query]


def build(name: str, layer: NumbaLayer, *, counts: np.ndarray | None = None, seed: int = 3, **options: Any) -> Any:
    config = SAMPLERS[name](name=name, **options)
    counts = np.ones(layer.num_classes, dtype=np.int64) if counts is None else counts
    return config.build(layer=layer, training=TrainingFacts.one_label_a_row(counts), seed=seed)


def one_step(layer: NumbaLayer, query: Query, sampler: Any) -> None:
    """Step 1 of training on the query's targets and the sampler's candidates."""
    layer.table.before_step(1)
    scores = layer.score(query, sampler.sample(query, 1), 1)
    scores.loss(LOSSES["sampled_softmax"](name="sampled_softmax"))
    scores.update()


def log_q(sampler: Any, query: Query, step: int = 1) -> np.ndarray:
    """(B, N) stated log probabilities."""
    ids = np.arange(sampler.layer.num_classes, dtype=np.int32)
    stated = sampler.log_expected_count(query, ids, step).astype(np.float64)
    return stated - np.log(sampler.config.num_samples)


def log_softmax(logits: np.ndarray) -> np.ndarray:
    out: np.ndarray = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    return out


def logits_of(layer: NumbaLayer, query: Query) -> np.ndarray:
    """(B, N) true logits in double precision."""
    return query.hidden_BD.astype(np.float64) @ layer.table.weights.T + layer.table.biases()


def approximate_logits(sampler: Any, query: Query) -> np.ndarray:
    """(B, N) o - residual logit: the query's products with the quantised vectors."""
    (first, second), (k1, k2) = sampler.codebooks_2CD.astype(np.float64), sampler.codes_2N
    out: np.ndarray = query.hidden_BD.astype(np.float64) @ (first[k1] + second[k2]).T
    return out


def divergence(log_p: np.ndarray, log_q: np.ndarray) -> np.ndarray:
    """(B,) KL(p || q)."""
    out: np.ndarray = (np.exp(log_p) * (log_p - log_q)).sum(1)
    return out


def grouped_layer(make_layer: Layers, n: int, dim: int, *, groups: int = 40, spread: float = 0.6) -> NumbaLayer:
    """Class vectors around common centres, as training makes them; the biases are small."""
    layer = make_layer(n, dim, norm=spread)
    layer.table.bias[:] *= 0.2
    generator = np.random.default_rng(5)
    centres = generator.standard_normal((groups, dim)).astype(np.float32) * np.float32(2 / np.sqrt(dim))
    layer.table.weights += centres[generator.integers(0, groups, n)]
    return layer


def quantizer(kind: Any, codewords: int, **options: Any) -> Quantizer:
    return Quantizer(kind=kind, codewords=codewords, **{"rows": 100_000, "iterations": 20, **options})


def vectors(kind: str, n: int = 3000, dim: int = 16) -> np.ndarray:
    generator = np.random.default_rng(8)
    values = generator.standard_normal((n, dim))
    if kind == "grouped":
        values = 0.4 * values + generator.standard_normal((60, dim))[generator.integers(0, 60, n)]
    return values.astype(np.float32)

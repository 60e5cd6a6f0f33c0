"""Sample from a trained model or find its most likely class: exactly, or in sub-linear time by LSH Softmax's Gumbels.

Adding independent Gumbel noise to the logits and taking the arg-max draws from the softmax. Only the noise that can win
has to be drawn (LSH Softmax paper, section 3.3). For the k nearest classes S that is all of it. For the other classes
it is the noise above a threshold t with P(G > t) = l / n. Each class exceeds t with that probability, independently of
the others. So geometric jumps find the classes outside S with noise above t, about l of them, and each of these draws a
Gumbel conditioned on exceeding t. The arg-max over both sets is the exact one, unless a class that was left out would
have won with noise below t.

Legend: B rows, N classes, D hidden size, P targets of all rows, W most candidates of a row.
"""

import math

import numpy as np
from numba import njit, prange

from runner import rng
from runner.contracts import Query
from runner.errors import Diverged
from runner.kernels.rows import LEAST_NORM
from runner.output.layer import Layer
from runner.samplers.lsh_topk import LshTopK
from runner.samplers.scored import ExactConfig, Scored

_NO_TARGETS = np.zeros(0, dtype=np.int32)


def query_of(hidden_BD: np.ndarray) -> Query:
    """Return a query of hidden states (B, D) without targets, as there are none at inference."""
    indptr = np.zeros(len(hidden_BD) + 1, dtype=np.int64)
    return Query(hidden_BD=hidden_BD, target_indptr_B1=indptr, targets_P=_NO_TARGETS)


def most_likely(layer: Layer, hidden_BD: np.ndarray) -> np.ndarray:
    """Return the class with the largest logit of each row, (B,) int32. Class vectors must be current."""
    return layer.largest(hidden_BD, 1).ids_BK[:, 0]


def sample_exactly(layer: Layer, hidden_BD: np.ndarray, *, seed: int, step: int) -> np.ndarray:
    """Draw one class for each row from the softmax over all classes, (B,) int32, fresh for every (seed, step).

    Raise Diverged if a logit is not finite.
    """
    sampler = Scored(ExactConfig(name="exact", num_samples=1), layer, seed)
    return sampler.sample(query_of(hidden_BD), step).ids_N


@njit(cache=True, inline="always")
def _gumbel(unit):
    """Turn a uniform number in [0, 1) into Gumbel noise."""
    return -math.log(-math.log(max(unit, 1e-300)))


@njit(cache=True, inline="always")
def _logit(query_BD, row, weights_ND, bias_N, normalize, class_id):
    total, square = 0.0, 0.0
    for k in range(query_BD.shape[1]):
        total += np.float64(query_BD[row, k]) * np.float64(weights_ND[class_id, k])
        square += np.float64(weights_ND[class_id, k]) ** 2
    return (total / max(math.sqrt(square), LEAST_NORM) if normalize else total) + bias_N[class_id]


@njit(cache=True, parallel=True)
def _argmax_of_perturbed(ids_BW, nearest_B, query_BD, weights_ND, bias_N, normalize, share, seed, step, out_B):
    """Set ``out_B`` to the arg-max over S (ids[:nearest], ascending) and the other classes with noise above t."""
    num_classes = weights_ND.shape[0]
    for row in prange(out_B.shape[0]):
        key = rng.stream(seed, rng.GUMBEL, step, row)
        best, best_value = -1, -np.inf
        for i in range(nearest_B[row]):
            value = _logit(query_BD, row, weights_ND, bias_N, normalize, ids_BW[row, i]) + _gumbel(
                rng.unit(rng.word(key, i))
            )
            if value > best_value:
                best, best_value = ids_BW[row, i], value
        counter = nearest_B[row]
        nearest = ids_BW[row, : nearest_B[row]]
        while True:
            class_id = -1
            looked_at = nearest_B[row]
            while True:
                # The number of classes before the next one whose noise exceeds the threshold is geometric.
                unit = rng.unit(rng.word(key, counter))
                jump = math.log(1.0 - unit) / math.log1p(-share) if share < 1.0 else 0.0
                if jump >= num_classes - class_id - 1:
                    break
                class_id += 1 + int(jump)
                above = 1.0 - share * (1.0 - rng.unit(rng.word(key, counter + 1)))
                counter += 2
                place = np.searchsorted(nearest, class_id)
                if place < nearest.shape[0] and nearest[place] == class_id:
                    continue
                looked_at += 1
                value = _logit(query_BD, row, weights_ND, bias_N, normalize, class_id) + _gumbel(above)
                if value > best_value:
                    best, best_value = class_id, value
            if best >= 0 or looked_at > 0:  # best < 0 after looking at classes: their logits are not numbers
                break
            counter += 1  # nothing was retrieved and no noise exceeded the threshold: draw noise again
        out_B[row] = best


def sample_by_gumbel(sampler: LshTopK, hidden_BD: np.ndarray, *, step: int) -> np.ndarray:
    """Draw one class for each row from the softmax, almost exactly, (B,) int32, in time sub-linear in the classes.

    k and l are the sampler's. Its tables should be fresh (``sampler.rebuild``) and class vectors current. The same
    ``step`` gives the same draws. Raise Diverged if a row's logits are not finite.
    """
    nothing = 0
    ids_BW, nearest_B, _ = sampler.nearest_and_tail(query_of(hidden_BD), step, nothing)
    for ids, nearest in zip(ids_BW, nearest_B, strict=True):
        ids[:nearest].sort()
    out_B = np.empty(len(hidden_BD), dtype=np.int32)
    layer = sampler.layer
    share = min(1.0, sampler.tail / sampler.num_classes)
    _argmax_of_perturbed(
        ids_BW, nearest_B, layer.query_vectors(hidden_BD), layer.rows(), layer.biases(), layer.scale is not None,
        share, sampler.seed, step, out_B,
    )  # fmt: skip
    if (out_B < 0).any():
        raise Diverged(
            "logits are not finite numbers, so the model can not be sampled; train it again with a smaller optimizer.lr"
        )
    return out_B

"""Propose the k largest logits among the classes that hash tables retrieve, and a uniform tail (LSH Softmax).

S holds the k nearest classes of the row, found by maximum inner product search: the union of the buckets that its
hidden state falls into, ranked by exact logit. T holds l classes drawn uniformly without replacement from outside S.
The expected count is 1 in S and l / (n - |S|) elsewhere. So sum_S e^o + (n - |S|) / l sum_T e^o estimates the partition
without bias, whatever the tables retrieve. The paper's loss is ``loss=partition_estimate``: -o_y + log of that
estimate.

The paper takes k = 10 sqrt(n), l = sqrt(n), log2(n) bits a table and as many tables as the wanted recall needs. It
hashes the touched classes again after every step (``refresh_every_steps: 1``, ``refresh_growth: 1``).

@article{levy2018lsh, title={LSH Softmax: Sub-Linear Learning and Inference of the Softmax Layer in Deep Architectures},
author={Levy, Daniel and Chen, Danlu and Ermon, Stefano}, year={2018}}

Legend: B rows, N classes (in a ``Proposal``: candidates of all rows), D hidden size, M ids that a caller asks for,
L tables, W most candidates of a row.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numba import get_num_threads, njit, prange

from runner import rng
from runner.contracts import Proposal, Query, TrainingFacts
from runner.kernels.rows import FAST, LEAST_NORM
from runner.kernels.topk import kth_largest
from runner.options.fields import option
from runner.output.layer import Layer
from runner.samplers.base import Sampler, customary
from runner.samplers.hashed import Hashed, HashedConfig, draw_outside, log_count_outside, window_of_bucket


def usual_sizes(num_classes: int) -> tuple[int, int]:
    """Return the paper's k and l for n classes: 10 sqrt(n) nearest classes and sqrt(n) tail classes."""
    root = math.sqrt(num_classes)
    return round(10 * root), round(root)


@njit(cache=True, fastmath=FAST)
def _logit(query_D, vector_D, bias, normalize):
    total, square = np.float32(0.0), np.float32(0.0)
    for k in range(query_D.shape[0]):
        total += query_D[k] * vector_D[k]
        square += vector_D[k] * vector_D[k]
    return (total / max(np.sqrt(square), LEAST_NORM) if normalize else total) + bias


@njit(cache=True)
def _keep_largest(ids, logits, length, k, count):
    """Move the k ids with the largest logits to the front, in their order; return k. The others lose their count."""
    bar = kth_largest(logits[:length].copy(), k)  # np.partition would double the time to compile this sampler
    ties = k
    for i in range(length):
        ties -= logits[i] > bar
    kept = 0
    for i in range(length):
        if logits[i] > bar or (logits[i] == bar and ties > 0):
            ties -= logits[i] == bar
            ids[kept] = ids[i]
            kept += 1
        else:
            count[ids[i]] = 0
    return kept


@njit(cache=True, parallel=True)
def _nearest_and_tail(
    codes_LB,
    start,
    members,
    max_per_bucket,
    query_BD,
    weights_ND,
    bias_N,
    normalize,
    k,
    tail,
    seed,
    step,
    count,
    ids_BW,
):
    """Fill ids_BW with S and then T for each row; return |S| and |S| + |T| of each row.

    count: (workers, N) uint8 zeros, left as zeros.
    """
    rows = ids_BW.shape[0]
    num_tables, num_classes = members.shape
    num_nearest = np.empty(rows, dtype=np.int64)
    lengths = np.empty(rows, dtype=np.int64)
    workers = count.shape[0]
    for worker in prange(workers):
        logits = np.empty(ids_BW.shape[1], dtype=np.float32)
        for row in range(worker * rows // workers, (worker + 1) * rows // workers):
            key = rng.stream(seed, rng.SAMPLE, step, row)
            ids = ids_BW[row]
            length = 0
            for table in range(num_tables):
                begin, size, offset = window_of_bucket(start, table, codes_LB[table, row], max_per_bucket, key)
                for i in range(min(size, max_per_bucket)):
                    place = offset + i
                    if place >= size:
                        place -= size
                    candidate = members[table, begin + place]
                    if count[worker, candidate] == 0:
                        count[worker, candidate] = 1
                        ids[length] = candidate
                        length += 1
            if length > k:
                for i in range(length):
                    logits[i] = _logit(query_BD[row], weights_ND[ids[i]], bias_N[ids[i]], normalize)
                length = _keep_largest(ids, logits, length, k, count[worker])
            num_nearest[row] = length
            goal = length + min(tail, num_classes - length)
            length = draw_outside(ids, length, goal, num_classes, count[worker], key)
            for i in range(length):
                count[worker, ids[i]] = 0
            lengths[row] = length
    return num_nearest, lengths


@dataclass(frozen=True, kw_only=True)
class LshTopKConfig(HashedConfig):
    """Take the retrieved classes with the largest logits, and a uniform tail (LSH Softmax).

    The paper refreshes after every step: ``refresh_every_steps`` and ``refresh_growth`` are 1 there.

    Logits are ranked with the vectors that the optimizer last wrote. Under ``optimizer.rows=catch_up`` the vector of a
    class that was not read lately lags by the rest of its momentum.
    """

    losses: ClassVar[tuple[str, ...]] = customary("partition_estimate", HashedConfig.losses)
    contract_cases: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "all_ranked": {"K": 1, "L": 6, "num_nearest": 20, "num_tail": 15, "refresh_every_steps": 3},
        "few_retrieved": {"K": 5, "L": 2, "num_nearest": 60, "num_tail": 15, "refresh_every_steps": 3},
        "capped": {"K": 2, "L": 4, "num_nearest": 10, "num_tail": 30, "max_per_bucket": 5, "refresh_every_steps": 3},
    }
    K: int | None = 7
    L: int = 32
    num_nearest: int | None = option(
        None, "most retrieved classes that a row keeps, those with the largest logits", null="10 sqrt(n)", low=1
    )
    num_tail: int | None = option(None, "uniform draws from the other classes", null="sqrt(n)", low=1)
    max_per_bucket: int = option(1024, "most ids read from one bucket", low=1)

    def build(self, *, layer: Layer, training: TrainingFacts, seed: int) -> Sampler:
        return LshTopK(self, layer, seed)


class LshTopK(Hashed):
    """Propose each row's nearest retrieved classes and a uniform tail."""

    config: LshTopKConfig

    def __init__(self, config: LshTopKConfig, layer: Layer, seed: int) -> None:
        super().__init__(config, layer, seed)
        usual_k, usual_tail = usual_sizes(self.num_classes)
        self.k = min(self.num_classes, config.num_nearest or usual_k)
        self.tail = min(self.num_classes, config.num_tail or usual_tail)
        self._count = np.zeros((get_num_threads(), self.num_classes), dtype=np.uint8)

    def nearest_and_tail(self, query: Query, step: int, tail: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return ids (B, W) int32, nearest (B,) and length (B,) int64; ``tail``: l, the number of tail classes.

        Row b has S = ids[b, : nearest[b]] and T = ids[b, nearest[b] : length[b]].
        """
        config, layer = self.config, self.layer
        width = min(self.num_classes, max(config.L * config.max_per_bucket, self.k) + tail)
        ids_BW = np.empty((query.num_rows, width), dtype=np.int32)
        nearest_B, length_B = _nearest_and_tail(
            self.hidden_codes(query), self.tables.start, self.tables.members, config.max_per_bucket,
            layer.query_vectors(query.hidden_BD), layer.rows(), layer.biases(), layer.scale is not None,
            self.k, tail, self.seed, step, self._count, ids_BW,
        )  # fmt: skip
        return ids_BW, nearest_B, length_B

    def sample(self, query: Query, step: int) -> Proposal:
        ids_BW, nearest_B, length_B = self.nearest_and_tail(query, step, self.tail)
        place_W = np.arange(ids_BW.shape[1])
        chosen_BW = place_W < length_B[:, None]
        log_tail_B = log_count_outside(self.num_classes, nearest_B, self.tail)
        log_count_BW = np.where(place_W < nearest_B[:, None], np.float32(0), log_tail_B[:, None])
        return Proposal(
            ids_N=ids_BW[chosen_BW],
            log_expected_count_N=log_count_BW[chosen_BW],
            indptr_B1=np.concatenate([[0], np.cumsum(length_B)]),
        )

    def log_expected_count(self, query: Query, ids_M: np.ndarray, step: int) -> np.ndarray:
        ids_BW, nearest_B, _ = self.nearest_and_tail(query, step, self.tail)
        log_tail_B = log_count_outside(self.num_classes, nearest_B, self.tail)
        out_BM = np.empty((query.num_rows, len(ids_M)), dtype=np.float32)
        for row, ids in enumerate(ids_BW):
            out_BM[row] = np.where(np.isin(ids_M, ids[: nearest_B[row]]), np.float32(0), log_tail_B[row])
        return out_BM

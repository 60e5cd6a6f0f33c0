"""Draw from the log-uniform distribution q, a number of times or until m classes are distinct, as TensorFlow does.

In the second case the draws are given times: those of a Poisson process of rate 1. Class i then first comes at a time
that is exponential with rate q_i and independent of all other classes. It is among the first m if it comes before the
m-th of the *other* classes. Given when that one comes, t_i, its expected count is exactly 1 - exp(-t_i q_i); t_i is the
time of the m-th class for those outside the sample, and of the (m + 1)-th for those in it. TensorFlow states 1 - (1 -
q_i)^tries for all, with the number of tries in place of the time. That is nearly the same, but not unbiased: its counts
sum to less than m. The argument is that of priority sampling.

@article{duffield2007priority, title={Priority Sampling for Estimation of Arbitrary Subset Sums}, author={Duffield, Nick
and Lund, Carsten and Thorup, Mikkel}, journal={Journal of the ACM}, year={2007}}

Legend: B rows, M ids that a caller asks for, N classes, S classes of one row's sample.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numba import njit, prange

from runner import rng
from runner.contracts import Proposal, Query, TrainingFacts
from runner.errors import require
from runner.options.fields import option
from runner.output.layer import Layer
from runner.samplers.base import Sampler
from runner.samplers.static import Static, StaticConfig


@njit(cache=True, parallel=True)
def _draw(accept, alias, ids, times, seed, step, stamp):
    """Fill ``ids`` (B, S) int32 with distinct classes, and ``times`` (B, 2) with those of the last and of the next one.

    If there is no next one, its time is infinite. stamp: (workers, N) zeros, which is left as zeros.
    """
    n = accept.shape[0]
    num_rows, goal = ids.shape
    workers = stamp.shape[0]
    for worker in prange(workers):
        for row in range(worker * num_rows // workers, (worker + 1) * num_rows // workers):
            key = rng.stream(seed, rng.SAMPLE, step, row)
            length, draw, time, slot = 0, 0, 0.0, 0
            while length < goal or (goal < n and stamp[worker, slot] == 1):
                slot = rng.below(rng.word(key, 3 * draw), n)
                if rng.unit(rng.word(key, 3 * draw + 1)) >= accept[slot]:
                    slot = alias[slot]
                time -= np.log1p(-rng.unit(rng.word(key, 3 * draw + 2)))
                draw += 1
                if length < goal and stamp[worker, slot] == 0:
                    stamp[worker, slot] = 1
                    ids[row, length] = slot
                    length += 1
                    times[row, 0] = time
            times[row, 1] = time if goal < n else np.inf
            for i in range(goal):
                stamp[worker, ids[row, i]] = 0


@dataclass(frozen=True, kw_only=True)
class LogUniformConfig(StaticConfig):
    """Draw class i with q_i = log((r + 2) / (r + 1)) / log(n + 1), where r is its rank.

    The usual formula takes ids for ranks. It is made for ids that are sorted by frequency.
    """

    contract_cases: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        **StaticConfig.contract_cases,
        "ranked_by_id": {"num_samples": 40, "rank": "label"},
        "until_distinct": {"num_samples": 40, "until_distinct": True},
        "per_row_until_distinct": {"num_samples": 40, "until_distinct": True, "shared": False},
    }
    rank: Literal["frequency", "label"] = option(
        "frequency",
        "",
        choices={
            "frequency": "the most frequent class of the training rows has rank 0",
            "label": "a class's id is its rank",
        },
    )
    until_distinct: bool = option(
        False, "draw until num_samples classes are distinct; with rank=label, as TensorFlow does"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.unique or not self.until_distinct,
            "sampler.until_distinct=true draws no class twice, but sampler.unique=false keeps repeated draws; leave one"
            " of them out",
        )
        require(
            not (self.with_targets and self.until_distinct),
            "sampler.with_targets=true does not go with sampler.until_distinct=true; leave one of them out",
        )

    def distribution(self, label_counts_N: np.ndarray) -> np.ndarray:
        n = len(label_counts_N)
        rank = np.arange(n)
        if self.rank == "frequency":
            rank[np.argsort(-label_counts_N, kind="stable")] = np.arange(n)
        return np.log((rank + 2) / (rank + 1)) / np.log(n + 1)

    def build(self, *, layer: Layer, training: TrainingFacts, seed: int) -> Sampler:
        kind = StaticDistinct if self.until_distinct else Static
        return kind(self, self.distribution(training.label_counts_N), seed)


class StaticDistinct(Static):
    """Draw ``num_samples`` distinct classes, or all classes if there are no more."""

    def __init__(self, config: StaticConfig, q_N: np.ndarray, seed: int) -> None:
        super().__init__(config, q_N, seed)
        self.q_N = q_N

    def _samples(self, num_rows: int, step: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids (B, S), ascending in each row, and the times (B, 2) that decide their counts."""
        num_rows = 1 if self.config.shared else num_rows
        ids_BS = np.empty((num_rows, min(self.config.num_samples, len(self.q_N))), dtype=np.int32)
        times_B2 = np.empty((num_rows, 2))
        _draw(self._accept, self._alias, ids_BS, times_B2, self.seed, step, self._stamp)
        ids_BS.sort(axis=1)
        return ids_BS, times_B2

    def _log_count(self, rate: np.ndarray, time: np.ndarray) -> np.ndarray:
        return np.log(-np.expm1(-rate * time)).astype(np.float32)

    def sample(self, query: Query, step: int) -> Proposal:
        ids_BS, times_B2 = self._samples(query.num_rows, step)
        log_count_BS = self._log_count(self.q_N[ids_BS], times_B2[:, 1:])
        indptr = None if self.config.shared else np.arange(len(ids_BS) + 1) * ids_BS.shape[1]
        return Proposal(ids_N=ids_BS.ravel(), log_expected_count_N=log_count_BS.ravel(), indptr_B1=indptr)

    def log_expected_count(self, query: Query, ids_M: np.ndarray, step: int) -> np.ndarray:
        ids_BS, times_B2 = self._samples(query.num_rows, step)
        unique_U, place_M = np.unique(ids_M, return_inverse=True)
        is_in_BU = np.stack([np.isin(unique_U, ids_S, assume_unique=True) for ids_S in ids_BS])
        time_BU = np.where(is_in_BU, times_B2[:, 1:], times_B2[:, :1])
        log_count_BM = self._log_count(self.q_N[unique_U], time_BU)[:, place_M]
        return np.broadcast_to(log_count_BM, (query.num_rows, len(ids_M)))

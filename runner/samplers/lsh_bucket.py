"""Draw a random table, then a random member of the query's bucket in it (Spring & Shrivastava's bucket sampler).

For given tables the probability of class i is known exactly, without a law of collisions. A draw takes one of the E
tables in which the query's bucket is not empty, all equally likely. Then it takes a member of that bucket S_t, all
equally likely. So q_i = (1/E) sum_t [i in S_t] / |S_t|.

The tables never give a class that shares no bucket with the query. At K = 4, L = 16 that holds for a third of the
classes orthogonal to the query. So a share u (``uniform_share``) of the draws comes from all classes:
q_i = (1 - u) (1/E) sum_t [i in S_t] / |S_t| + u / n. This is positive for every class and makes the partition estimate
unbiased for any tables. ``uniform_share: 0`` is the sampler as published; its estimate then covers only the classes
that it can reach. The MIDX paper's baseline has 16 tables of 4 bits.

@article{spring2017new, title={A New Unbiased and Efficient Class of LSH-Based Samplers and Estimators for Partition
Function Computation in Log-Linear Models}, author={Spring, Ryan and Shrivastava, Anshumali},
journal={arXiv:1703.05160}, year={2017}}

Legend: B rows, N classes (in a ``Proposal``: candidates of all rows), M draws a row or ids that a caller asks for,
L tables.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numba import njit, prange

from runner import rng
from runner.contracts import Proposal, Query, TrainingFacts
from runner.options.fields import option
from runner.output.layer import Layer
from runner.samplers.base import Sampler
from runner.samplers.hashed import Hashed, HashedConfig


@njit(cache=True, inline="always")
def _share_of_bucket(class_codes_L, query_codes_LB, row, share_L):
    """Sum over tables the probability that a draw takes this class from the table's bucket."""
    total = 0.0
    for table in range(class_codes_L.shape[0]):
        if class_codes_L[table] == query_codes_LB[table, row]:
            total += share_L[table]
    return total


@njit(cache=True, inline="always")
def _shares(query_codes_LB, row, start, uniform_share, share_L):
    """Fill share_L with the probability that a draw takes a given member of the query's bucket in each table.

    Return the probability of a draw from all classes (1 where every bucket is empty) and the number of buckets that are
    not empty.
    """
    occupied = 0
    for table in range(share_L.shape[0]):
        code = query_codes_LB[table, row]
        size = start[table, code + 1] - start[table, code]
        share_L[table] = 0.0 if size == 0 else 1.0 / size
        occupied += size > 0
    if occupied == 0:
        return 1.0, occupied
    for table in range(share_L.shape[0]):
        share_L[table] *= (1.0 - uniform_share) / occupied
    return uniform_share, occupied


@njit(cache=True, parallel=True)
def _draw(query_codes_LB, codes_NL, start, members, uniform_share, seed, step, ids_BM, log_count_BM):
    rows, draws = ids_BM.shape
    num_tables, num_classes = members.shape
    for row in prange(rows):
        share_L = np.empty(num_tables, dtype=np.float64)
        uniform, occupied = _shares(query_codes_LB, row, start, uniform_share, share_L)
        key = rng.stream(seed, rng.SAMPLE, step, row)
        for draw in range(draws):
            where, which = rng.word(key, 2 * draw), rng.word(key, 2 * draw + 1)
            if rng.unit(where) < uniform:
                candidate = rng.below(which, num_classes)
            else:
                # Mix the same word into fresh bits, which choose one of the tables whose bucket is not empty.
                left = rng.below(rng.mix(where), occupied)
                table = 0
                while share_L[table] == 0.0 or left > 0:
                    if share_L[table] > 0.0:
                        left -= 1
                    table += 1
                code = query_codes_LB[table, row]
                begin = np.int64(start[table, code])
                candidate = members[table, begin + rng.below(which, start[table, code + 1] - start[table, code])]
            ids_BM[row, draw] = candidate
            q = uniform / num_classes + _share_of_bucket(codes_NL[candidate], query_codes_LB, row, share_L)
            log_count_BM[row, draw] = np.log(draws * q)


@njit(cache=True, inline="always")
def _log_count(class_codes_L, query_codes_LB, row, uniform, num_classes, num_samples, share_L):
    q = uniform / num_classes + _share_of_bucket(class_codes_L, query_codes_LB, row, share_L)
    return np.log(num_samples * q) if q > 0.0 else -np.inf


@njit(cache=True, parallel=True)
def _log_counts(query_codes_LB, codes_NL, start, uniform_share, num_samples, ids_M, out_BM):
    """Write the log expected count of every id in every row."""
    num_classes, num_tables = codes_NL.shape
    for row in prange(out_BM.shape[0]):
        share_L = np.empty(num_tables, dtype=np.float64)
        uniform, _ = _shares(query_codes_LB, row, start, uniform_share, share_L)
        for i in range(ids_M.shape[0]):
            out_BM[row, i] = _log_count(
                codes_NL[ids_M[i]], query_codes_LB, row, uniform, num_classes, num_samples, share_L
            )  # fmt: skip


@njit(cache=True, parallel=True)
def _log_counts_of_targets(
    query_codes_LB, codes_NL, start, uniform_share, num_samples, targets_P, indptr_B1, out_P
):  # fmt: skip
    """Write the log expected count of each row's own targets."""
    num_classes, num_tables = codes_NL.shape
    for row in prange(indptr_B1.shape[0] - 1):
        share_L = np.empty(num_tables, dtype=np.float64)
        uniform, _ = _shares(query_codes_LB, row, start, uniform_share, share_L)
        for i in range(indptr_B1[row], indptr_B1[row + 1]):
            out_P[i] = _log_count(
                codes_NL[targets_P[i]], query_codes_LB, row, uniform, num_classes, num_samples, share_L
            )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class LshBucketConfig(HashedConfig):
    """Draw a random table, then a random member of the query's bucket in it."""

    contract_cases: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "simhash": {"num_samples": 40, "K": 4, "L": 5, "refresh_every_steps": 3},
        "dwta": {"num_samples": 40, "hash": "dwta", "K": 1, "bin_size": 4, "L": 3, "refresh_every_steps": 3},
        "empty_buckets": {"num_samples": 40, "K": 9, "L": 2, "refresh_every_steps": 3},
        "published": {"num_samples": 40, "K": 3, "L": 2, "uniform_share": 0.0, "refresh_every_steps": 3},
    }
    K: int | None = 4
    L: int = 16
    num_samples: int = option(100, "draws of a row, with replacement", low=1)
    uniform_share: float = option(
        0.1,
        "fraction of draws taken uniformly from all classes, so that each can be drawn; 0: as published",
        low=0,
        high=1,
    )

    @property
    def can_draw_every_class(self) -> bool:
        return self.uniform_share > 0

    def build(self, *, layer: Layer, training: TrainingFacts, seed: int) -> Sampler:
        return LshBucket(self, layer, seed)


class LshBucket(Hashed):
    """Draw members of the query's buckets, and some classes uniformly."""

    config: LshBucketConfig

    def __init__(self, config: LshBucketConfig, layer: Layer, seed: int) -> None:
        super().__init__(config, layer, seed)
        self._transpose_codes()

    def _transpose_codes(self) -> None:
        # Keep a class's codes side by side: its probability then takes one cache line to compute, not one per table.
        self._codes_NL = np.ascontiguousarray(self.tables.codes.T)

    def rebuild(self, step: int) -> None:
        super().rebuild(step)
        self._transpose_codes()

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        super().load_state_dict(state)
        self._transpose_codes()

    def sample(self, query: Query, step: int) -> Proposal:
        config, rows = self.config, query.num_rows
        ids_BM = np.empty((rows, config.num_samples), dtype=np.int32)
        log_count_BM = np.empty((rows, config.num_samples), dtype=np.float32)
        _draw(
            self.hidden_codes(query), self._codes_NL, self.tables.start, self.tables.members, config.uniform_share,
            self.seed, step, ids_BM, log_count_BM,
        )  # fmt: skip
        return Proposal(
            ids_N=ids_BM.reshape(-1),
            log_expected_count_N=log_count_BM.reshape(-1),
            indptr_B1=np.arange(rows + 1, dtype=np.int64) * config.num_samples,
            distinct=False,
        )

    def log_expected_count(self, query: Query, ids_M: np.ndarray, step: int) -> np.ndarray:
        config = self.config
        out_BM = np.empty((query.num_rows, len(ids_M)), dtype=np.float32)
        codes_LB = self.hidden_codes(query)
        _log_counts(
            codes_LB, self._codes_NL, self.tables.start, config.uniform_share, config.num_samples, ids_M, out_BM
        )
        return out_BM

    def log_expected_count_of_targets(self, query: Query, proposal: Any, step: int) -> np.ndarray:
        config = self.config
        out_P = np.empty(len(query.targets_P), dtype=np.float32)
        _log_counts_of_targets(
            self.hidden_codes(query), self._codes_NL, self.tables.start, config.uniform_share, config.num_samples,
            query.targets_P, query.target_indptr_B1, out_P,
        )  # fmt: skip
        return out_P

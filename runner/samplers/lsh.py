"""Draw locality-sensitive negatives (LNS), queried with the hidden state or with the true class's vector.

L hash tables, each keyed by K concatenated hashes, hold the class vectors (Algorithm 2). A row's candidates are the
union S of the buckets that its query falls into, read table by table until |S| exceeds the sparsity budget
(Algorithms 3 and 4). To these the sampler adds a tail T of classes drawn uniformly without replacement from outside S.

Given the tables, the expected count is 1 for classes in S and |T| / (n - |S|) for every other class. That is exact for
any tables, bucket cap and budget, because the draw of T does not depend on how S was found. So with at least one tail
class the corrected partition estimate is unbiased. If ``tail_distribution`` names a static distribution, a class
outside S has that distribution's own expected count instead. The LNS paper uses no correction (``loss=active_set``).

@inproceedings{daghaghi2021tale, title={A Tale of Two Efficient and Informative Negative Sampling
Distributions}, author={Daghaghi, Shabnam and Medini, Tharun and Meisburger, Nicholas and Chen, Beidi and
Zhao, Mengnan and Shrivastava, Anshumali}, booktitle={ICML}, year={2021}}

Legend: B rows, L tables, Q queries of all rows, M most candidates of a row or ids that a caller asks for, P targets of
all rows, N candidates of all rows (classes in ``log_count_N`` of a static distribution), n classes.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numba import get_num_threads, njit, prange

from runner import rng
from runner.contracts import Proposal, Query, TrainingFacts
from runner.errors import require
from runner.kernels.groups import PRANGE
from runner.kernels.memory import prefetch_element
from runner.options.fields import option
from runner.output.layer import Layer
from runner.samplers.base import Sampler, customary
from runner.samplers.hashed import Hashed, HashedConfig, draw_outside, window_of_bucket
from runner.samplers.log_uniform import LogUniformConfig
from runner.samplers.static import Static, UnigramConfig


@njit(cache=True)
def _keep_most_met(ids, length, keep, count, by_count):
    """Move the ``keep`` classes met in most buckets to the front of ids, in the order found; return how many are kept.

    The others lose their count.
    """
    by_count[:] = 0
    for i in range(length):
        by_count[count[ids[i]]] += 1
    least, left = 255, keep
    while by_count[least] < left:
        left -= by_count[least]
        least -= 1
    kept = 0
    for i in range(length):
        candidate = ids[i]
        met = count[candidate]
        if met > least or (met == least and left > 0):
            if met == least:
                left -= 1
            ids[kept] = candidate
            kept += 1
        else:
            count[candidate] = 0
    return kept


@njit(cache=True, parallel=PRANGE)
def _retrieve(
    codes_LQ, query_indptr_B1, start, members, max_per_bucket, budget, max_retrieved, min_candidates, tail, seed, step,
    count, ids_BM,
):  # fmt: skip
    """Fill ids_BM with S and then T for each row; return |S| and |S| + |T| of each row.

    count: (workers, n) uint8 zeros, left as zeros. Meanwhile it holds in how many of the row's buckets a class was met.
    """
    rows = ids_BM.shape[0]
    num_classes = members.shape[1]
    num_hits = np.empty(rows, dtype=np.int64)
    lengths = np.empty(rows, dtype=np.int64)
    num_tables = codes_LQ.shape[0]
    workers = count.shape[0]
    for worker in prange(workers):
        by_count = np.zeros(256, dtype=np.int64)
        for row in range(worker * rows // workers, (worker + 1) * rows // workers):
            key = rng.stream(seed, rng.SAMPLE, step, row)
            length = 0
            # Buckets are scattered over memory: prefetch all of them before the first is read.
            for table in range(num_tables):
                for query in range(query_indptr_B1[row], query_indptr_B1[row + 1]):
                    begin, size, offset = window_of_bucket(start, table, codes_LQ[table, query], max_per_bucket, key)
                    prefetch_element(members, table, begin + offset)
            # Start at a random table, so that the budget and ties do not always cut off the same tables.
            first = rng.below(rng.word(key, -1 - num_tables), num_tables)
            for turn in range(num_tables):
                table = first + turn if first + turn < num_tables else first + turn - num_tables
                if length > budget:
                    break
                for query in range(query_indptr_B1[row], query_indptr_B1[row + 1]):
                    begin, size, offset = window_of_bucket(start, table, codes_LQ[table, query], max_per_bucket, key)
                    for i in range(min(size, max_per_bucket)):
                        place = offset + i
                        if place >= size:
                            place -= size
                        candidate = members[table, begin + place]
                        met = count[worker, candidate]
                        if met == 0:
                            ids_BM[row, length] = candidate
                            length += 1
                        if met < 255:
                            count[worker, candidate] = met + 1
            if length > max_retrieved:
                length = _keep_most_met(ids_BM[row], length, max_retrieved, count[worker], by_count)
            num_hits[row] = length
            wanted = min(max(tail, min_candidates - length), num_classes - length)
            length = draw_outside(ids_BM[row], length, length + wanted, num_classes, count[worker], key)
            for i in range(length):
                count[worker, ids_BM[row, i]] = 0
            lengths[row] = length
    return num_hits, lengths


@njit(cache=True)
def _mark(ids_BM, num_hits_B, is_hit_n):
    """Mark the classes that any row retrieved. For hundreds of thousands of ids this is faster than sorting them."""
    for row in range(ids_BM.shape[0]):
        for i in range(num_hits_B[row]):
            is_hit_n[ids_BM[row, i]] = True


@njit(cache=True, parallel=PRANGE)
def _flatten(ids_BM, num_hits, indptr, num_classes, ids_N, log_count_N):
    for row in prange(ids_BM.shape[0]):
        begin, hits = indptr[row], num_hits[row]
        length = indptr[row + 1] - begin
        tail_count = np.float32(0.0)
        if length > hits:
            tail_count = np.float32(np.log((length - hits) / (num_classes - hits)))
        for i in range(length):
            ids_N[begin + i] = ids_BM[row, i]
            log_count_N[begin + i] = np.float32(0.0) if i < hits else tail_count


@njit(cache=True, parallel=PRANGE)
def _target_counts(target_indptr_B1, targets_P, indptr_B1, ids_N, log_count_N, out_P):
    """Set ``out_P`` to 0 for targets that their row retrieved and to its tail's log count for the others."""
    for row in prange(target_indptr_B1.shape[0] - 1):
        begin, end = indptr_B1[row], indptr_B1[row + 1]
        tail = np.float32(-np.inf)
        for i in range(begin, end):
            if log_count_N[i] != np.float32(0.0):
                tail = log_count_N[i]
        for t in range(target_indptr_B1[row], target_indptr_B1[row + 1]):
            out_P[t] = tail
            for i in range(begin, end):
                if ids_N[i] == targets_P[t] and log_count_N[i] == np.float32(0.0):
                    out_P[t] = np.float32(0.0)


_EVERY_BUCKET = {"max_per_bucket": 120, "sparsity_budget": 1.0, "min_candidates": 1, "refresh_every_steps": 3}
_CONTRACT_CASES: dict[str, dict[str, Any]] = {
    # Whole buckets and no budget: every step retrieves the same classes.
    "simhash": {**_EVERY_BUCKET, "K": 4, "L": 3, "min_candidates": 20, "num_tail": 15},
    "dwta": {
        **_EVERY_BUCKET, "hash": "dwta", "K": 2, "L": 3, "bin_size": 4, "min_candidates": 20, "num_tail": 15,
    },
    # Some buckets exceed the cap, and the tables together exceed the budget.
    "simhash_capped": {
        "K": 2, "L": 4, "max_per_bucket": 4, "sparsity_budget": 0.05, "min_candidates": 30, "num_tail": 5,
        "refresh_every_steps": 3,
    },
    "dwta_folded": {
        "hash": "dwta", "K": 6, "L": 5, "bin_size": 8, "max_per_bucket": 2, "sparsity_budget": 0.1,
        "min_candidates": 1, "num_tail": 90, "refresh_every_steps": 3,
    },
    "shared": {**_EVERY_BUCKET, "K": 5, "L": 2, "num_tail": 15, "shared": True},
    # There is a tail only because few classes are retrieved.
    "shared_topped_up": {
        "K": 7, "L": 1, "max_per_bucket": 4, "sparsity_budget": 0.1, "min_candidates": 60, "num_tail": 0,
        "shared": True, "refresh_every_steps": 3,
    },
    "shared_log_uniform_tail": {
        **_EVERY_BUCKET, "K": 5, "L": 2, "tail_distribution": "log_uniform", "num_tail": 25, "shared": True,
    },
    "shared_unigram_tail": {
        **_EVERY_BUCKET, "K": 4, "L": 2, "max_retrieved": 3, "tail_distribution": "unigram", "num_tail": 25,
        "shared": True,
    },
    "shared_lean": {
        **_EVERY_BUCKET, "K": None, "L": 4, "max_retrieved": 1, "tail_distribution": "unigram", "num_tail": 25,
        "shared": True,
    },
    "max_retrieved": {**_EVERY_BUCKET, "K": 3, "L": 6, "max_retrieved": 10, "num_tail": 15},
    "shared_max_retrieved": {
        **_EVERY_BUCKET, "hash": "dwta", "K": 2, "L": 6, "bin_size": 4, "max_retrieved": 4, "num_tail": 15,
        "shared": True,
    },
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class LshConfig(HashedConfig):
    """Hold the options of both LNS samplers; K and L are the paper's.

    A shared proposal is the union of what the rows retrieved and one tail. Every row then meets the other rows' hard
    classes too, in dense products. A tail that is not uniform has the expected counts of its own distribution.
    """

    losses: ClassVar[tuple[str, ...]] = customary("active_set", HashedConfig.losses)
    contract_cases: ClassVar[Mapping[str, Mapping[str, Any]]] = _CONTRACT_CASES
    max_per_bucket: int = option(16, "most ids read from one bucket", low=1)
    sparsity_budget: float = option(
        0.05, "stop reading tables when more than this fraction of all classes is retrieved", above=0, high=1
    )
    max_retrieved: int | None = option(
        None, "most retrieved classes that a row keeps, those met in most buckets", null="all", low=1
    )
    min_candidates: int = option(
        500, "a row that retrieved fewer is topped up by uniform draws (if the tail is uniform)", low=1
    )
    num_tail: int = option(0, "least number of drawn classes to add (uniform: without replacement)", low=0)
    tail_distribution: Literal["uniform", "log_uniform", "unigram"] = option(
        "uniform", "the tail's distribution (the last two need shared: true)"
    )
    shared: bool = option(False, "true: every row gets the union of what all rows retrieved, and the same tail")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tail_distribution != "uniform":
            chosen = f"sampler.tail_distribution={self.tail_distribution}"
            require(self.shared, f"{chosen} needs sampler.shared=true; a tail of each row can only be uniform")
            require(self.num_tail >= 1, f"{chosen} needs sampler.num_tail of at least 1")

    @property
    def can_draw_every_class(self) -> bool:
        return self.num_tail >= 1

    @property
    @abstractmethod
    def queries_with_label(self) -> bool:
        """Tell whether to query with the true classes' vectors (LSH Label), not the hidden state (LSH Embedding)."""

    def tail(self, training: TrainingFacts, seed: int) -> Static | None:
        """Return what draws the tail; None if it is uniform over the classes that were not retrieved."""
        if self.tail_distribution == "uniform":
            return None
        config = {"log_uniform": LogUniformConfig, "unigram": UnigramConfig}[self.tail_distribution](
            name=self.tail_distribution, num_samples=self.num_tail
        )
        return Static(config, config.distribution(training.label_counts_N), seed)

    def build(self, *, layer: Layer, training: TrainingFacts, seed: int) -> Sampler:
        return Lsh(self, layer, seed, self.tail(training, seed))


@dataclass(frozen=True, kw_only=True)
class LshEmbeddingConfig(LshConfig):
    """Query the tables with the hidden state (LSH Embedding, Theorem 2)."""

    queries_with_label = False


@dataclass(frozen=True, kw_only=True)
class LshLabelConfig(LshConfig):
    """Query the tables with the vectors of the row's true classes (LSH Label, Theorem 1).

    Their codes are already in the tables.
    """

    queries_with_label = True


class Lsh(Hashed):
    """Propose the union of the query's buckets and a tail, from hash tables that follow the class matrix."""

    config: LshConfig

    def __init__(self, config: LshConfig, layer: Layer, seed: int, tail: Static | None = None) -> None:
        super().__init__(config, layer, seed)
        self._tail = tail
        self._count = np.zeros((get_num_threads(), self.num_classes), dtype=np.uint8)

    # ------------------------------------------------------------ drawing

    def _query_codes(self, query: Query) -> tuple[np.ndarray, np.ndarray]:
        if self.config.queries_with_label:
            return self.tables.codes[:, query.targets_P].astype(np.uint32), query.target_indptr_B1
        return self.hidden_codes(query), np.arange(query.num_rows + 1, dtype=np.int64)

    @property
    def _budget(self) -> int:
        """Return the number of retrieved classes above which a row reads no further table."""
        return int(self.config.sparsity_budget * self.num_classes)

    def _most_retrieved(self, queries: int, window: int) -> int:
        """Return how many classes a row with so many queries retrieves at most, reading ``window`` ids of a bucket."""
        # The last table that is read may exceed the budget by one bucket for each of the row's queries.
        most_of_a_table = window * queries
        return min(self.num_classes, self._budget + 1 + most_of_a_table, self.config.L * most_of_a_table)

    def sample(self, query: Query, step: int) -> Proposal:
        config = self.config
        codes_LQ, query_indptr = self._query_codes(query)
        width = self._most_retrieved(int(np.diff(query_indptr).max(initial=1)), config.max_per_bucket)
        if not config.shared:
            width = min(self.num_classes, max(width + config.num_tail, config.min_candidates))
        ids_BM = np.empty((query.num_rows, width), dtype=np.int32)
        num_hits, lengths = _retrieve(
            codes_LQ, query_indptr, self.tables.start, self.tables.members, config.max_per_bucket, self._budget,
            config.max_retrieved or self.num_classes, 0 if config.shared else config.min_candidates,
            0 if config.shared else config.num_tail, self.seed, step, self._count, ids_BM,
        )  # fmt: skip
        if config.shared:
            return self._share(ids_BM, num_hits, step)
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        ids_N = np.empty(indptr[-1], dtype=np.int32)
        log_count_N = np.empty(indptr[-1], dtype=np.float32)
        _flatten(ids_BM, num_hits, indptr, self.num_classes, ids_N, log_count_N)
        return Proposal(ids_N=ids_N, log_expected_count_N=log_count_N, indptr_B1=indptr)

    def _share(self, ids_BM: np.ndarray, num_hits_B: np.ndarray, step: int) -> Proposal:
        """Return one proposal for all rows: the union of what they retrieved, and a tail drawn from outside it."""
        is_hit = np.zeros(self.num_classes, dtype=np.bool_)
        _mark(ids_BM, num_hits_B, is_hit)
        is_chosen = is_hit.copy()
        log_count: Any
        if self._tail is None:
            drawn, log_count = self._uniform_outside(np.flatnonzero(is_hit), step)
            is_chosen[drawn] = True
        else:
            is_chosen[self._tail.draw(step)] = True
        ids = np.flatnonzero(is_chosen).astype(np.int32)
        if self._tail is not None:
            log_count = self._tail.log_count_N[ids]
        return Proposal(ids_N=ids, log_expected_count_N=np.where(is_hit[ids], np.float32(0), log_count))

    def _uniform_outside(self, hits: np.ndarray, step: int) -> tuple[np.ndarray, np.float32]:
        """Draw classes without replacement from outside ``hits`` (ascending); return them and their log count."""
        position, log_count = self._places_outside(len(hits), step)
        # Shift each position by the number of hits below it to get the class.
        return position + np.searchsorted(hits - np.arange(len(hits)), position, side="right"), np.float32(log_count)

    def _places_outside(self, num_hits: int, step: int) -> tuple[np.ndarray, float]:
        """Draw positions among the classes that were not retrieved, ascending; return them and their log count."""
        config = self.config
        outside = self.num_classes - num_hits
        wanted = min(max(config.num_tail, config.min_candidates - num_hits), outside)
        position = np.sort(rng.generator(self.seed, rng.SAMPLE, step).choice(outside, wanted, replace=False))
        return position, float(np.log(max(wanted, 1) / max(outside, 1)))

    def log_expected_count_of_targets(self, query: Query, proposal: Any, step: int) -> np.ndarray:
        """Return the log expected count of each target in its own row, (P,) float32.

        It is read from the proposal, because ``Sampler.log_expected_count_of_targets`` would retrieve a second time.
        """
        ids_N, log_count_N, targets_P = proposal.ids_N, proposal.log_expected_count_N, query.targets_P
        if proposal.indptr_B1 is not None:
            out_P = np.empty(len(targets_P), dtype=np.float32)
            _target_counts(query.target_indptr_B1, targets_P, proposal.indptr_B1, ids_N, log_count_N, out_P)
            return out_P
        is_hit_P = np.isin(targets_P, ids_N[log_count_N == 0])
        if self._tail is not None:
            return np.where(is_hit_P, np.float32(0), self._tail.log_count_N[targets_P])
        of_tail = log_count_N[log_count_N != 0]
        return np.where(is_hit_P, np.float32(0), of_tail[0] if len(of_tail) else np.float32(-np.inf))

    def log_expected_count(self, query: Query, ids_M: np.ndarray, step: int) -> np.ndarray:
        proposal = self.sample(query, step)
        indptr = np.array([0, len(proposal.ids_N)]) if proposal.indptr_B1 is None else proposal.indptr_B1
        out = np.empty((len(indptr) - 1, len(ids_M)), dtype=np.float32)
        for row in range(len(out)):
            here = slice(indptr[row], indptr[row + 1])
            ids, log_count = proposal.ids_N[here], proposal.log_expected_count_N[here]
            retrieved = ids[log_count == 0]
            if self._tail is None:
                tail = log_count[log_count != 0]
                others: Any = tail[0] if len(tail) else -np.inf
            else:
                others = self._tail.log_count_N[ids_M]
            out[row] = np.where(np.isin(ids_M, retrieved), 0.0, others)
        return np.broadcast_to(out, (query.num_rows, len(ids_M)))

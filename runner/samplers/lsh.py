"""LNS: locality-sensitive negative sampling, querying with the hidden state or with the true class's vector.

Class vectors lie in L hash tables keyed by K concatenated hashes (Algorithm 2). A row's candidates are the
union S of the buckets its query falls into, read table by table until |S| exceeds the sparsity budget
(Algorithms 3 and 4), plus a tail T of classes drawn uniformly without replacement from outside S.

Expected counts, given the tables: 1 for S, |T| / (n - |S|) for every other class. That is exact for any tables,
bucket cap and budget, because T is drawn independently of how S came about, so with at least one tail class
the corrected partition estimate is unbiased. A tail drawn from a static distribution instead (``tail``) gives each
class outside S that distribution's own count. The LNS paper uses no correction (``loss=active_set``).

@inproceedings{daghaghi2021tale, title={A Tale of Two Efficient and Informative Negative Sampling
Distributions}, author={Daghaghi, Shabnam and Medini, Tharun and Meisburger, Nicholas and Chen, Beidi and
Zhao, Mengnan and Shrivastava, Anshumali}, booktitle={ICML}, year={2021}}
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numba import get_num_threads, njit, prange

from runner import rng
from runner.errors import require
from runner.hashing import HASH_FAMILIES, BucketTables, Dwta, SimHash
from runner.kernels.dense import column_sums
from runner.kernels.memory import prefetch_element
from runner.samplers.base import Proposal, Query, Sampler, SamplerConfig
from runner.samplers.static import LogUniformConfig, Static, UnigramConfig

if TYPE_CHECKING:
    from runner.output_layer import OutputLayer

_CENTER_TOLERANCE = 0.1  # how far the mean may leave the hashing's centre, as a share of the vectors' distance from it


@njit(cache=True)
def _keep_most_met(ids, length, keep, count, by_count):
    """Move the ``keep`` classes met in most buckets to the front of ids, in the order found; forget the others."""
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


@njit(cache=True, inline="always")
def _window(start, table, code, bucket_cap, key):
    """Begin and size of a bucket, and where in it to start reading.

    A full bucket is read as a window at a random place, so that each member is as likely.
    """
    begin = np.int64(start[table, code])
    size = np.int64(start[table, code + 1]) - begin
    offset = np.int64(0)
    if size > bucket_cap:
        offset = rng.below(rng.word(key, -1 - table), size)
    return begin, size, offset


@njit(cache=True, parallel=True)
def _retrieve(
    codes_LQ, query_indptr_B1, start, members, bucket_cap, budget, max_hits, min_candidates, tail, seed, step,
    count, ids_BM,
):  # fmt: skip
    """Fill ids_BM with S then T for each row; return |S| and |S| + |T|.

    count: (workers, n) uint8 zeros, left as zeros; meanwhile, in how many of the row's buckets a class was met.
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
            # Buckets lie anywhere in memory: ask for all of them before the first is needed.
            for table in range(num_tables):
                for query in range(query_indptr_B1[row], query_indptr_B1[row + 1]):
                    begin, size, offset = _window(start, table, codes_LQ[table, query], bucket_cap, key)
                    prefetch_element(members, table, begin + offset)
            # Start anywhere, so that what the budget or ties cut off is not always from the same tables.
            first = rng.below(rng.word(key, -1 - num_tables), num_tables)
            for turn in range(num_tables):
                table = first + turn if first + turn < num_tables else first + turn - num_tables
                if length > budget:
                    break
                for query in range(query_indptr_B1[row], query_indptr_B1[row + 1]):
                    begin, size, offset = _window(start, table, codes_LQ[table, query], bucket_cap, key)
                    for i in range(min(size, bucket_cap)):
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
            if length > max_hits:
                length = _keep_most_met(ids_BM[row], length, max_hits, count[worker], by_count)
            num_hits[row] = length
            wanted = min(max(tail, min_candidates - length), num_classes - length)
            draw = 0
            goal = length + wanted
            if 2 * goal > num_classes:
                # Rejection would be slow: walk the classes outside S once, keeping a uniform subset.
                left = num_classes - length
                for candidate in range(num_classes):
                    if count[worker, candidate] == 0:
                        if rng.unit(rng.word(key, draw)) * left < goal - length:
                            ids_BM[row, length] = candidate
                            length += 1
                        left -= 1
                        draw += 1
            while length < goal:
                candidate = rng.below(rng.word(key, draw), num_classes)
                draw += 1
                if count[worker, candidate] == 0:
                    count[worker, candidate] = 1
                    ids_BM[row, length] = candidate
                    length += 1
            for i in range(length):
                count[worker, ids_BM[row, i]] = 0
            lengths[row] = length
    return num_hits, lengths


@njit(cache=True, parallel=True)
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


@njit(cache=True, parallel=True)
def _target_counts(target_indptr_B1, targets_P, indptr_B1, ids_N, log_count_N, log_tail_P, out_P):
    """out = 0 for targets among the retrieved, the tail's log count for others; one range of ids serves all rows."""
    for row in prange(target_indptr_B1.shape[0] - 1):
        begin, end = indptr_B1[0], indptr_B1[1]
        if indptr_B1.shape[0] > 2:
            begin, end = indptr_B1[row], indptr_B1[row + 1]
        tail = np.float32(-np.inf)
        for i in range(begin, end):
            if log_count_N[i] != np.float32(0.0):
                tail = log_count_N[i]
        for t in range(target_indptr_B1[row], target_indptr_B1[row + 1]):
            out_P[t] = tail if log_tail_P.shape[0] == 0 else log_tail_P[t]
            for i in range(begin, end):
                if ids_N[i] == targets_P[t] and log_count_N[i] == np.float32(0.0):
                    out_P[t] = np.float32(0.0)


@dataclass(frozen=True, kw_only=True)
class LshConfig(SamplerConfig):
    """Settings of both LNS samplers; K and L are the paper's.

    hash: ``simhash`` (K sign bits) or ``dwta`` (K winners among ``bin_size`` coordinates).
    bucket_cap: most ids read from one bucket. sparsity_budget: stop reading tables when |S| / n exceeds it.
    max_hits: of what a row retrieved, keep only so many classes, those met in most buckets.
    min_candidates: rows with fewer retrieved classes are topped up uniformly. tail_candidates: always add at
    least so many uniform ones. shared: one proposal for the batch, the union of what its rows retrieved and one tail;
    every row then meets the others' hard classes too, in dense products. tail: what a shared tail is drawn from;
    other than uniform it has tail_candidates draws with their own expected counts.
    center: hash class vectors minus their mean. The mean adds the same to every logit, so the softmax does not see it,
    but training makes it large and then all vectors look alike to a hash of angles.
    refresh_period: steps until the tables are first rebuilt; each following
    interval is refresh_growth times longer.
    """

    K: int = 9
    L: int = 50
    hash: Literal["simhash", "dwta"] = "simhash"
    bin_size: int = 8
    bucket_cap: int = 16
    sparsity_budget: float = 0.05
    max_hits: int | None = None
    min_candidates: int = 500
    tail_candidates: int = 0
    tail: Literal["uniform", "log_uniform", "unigram"] = "uniform"
    shared: bool = False
    center: bool = True
    refresh_period: int = 50
    refresh_growth: float = 1.1

    def __post_init__(self) -> None:
        HASH_FAMILIES[self.hash].check(self.K, self.bin_size)
        if self.hash == "simhash":  # dwta folds its codes to the number of classes, simhash does not
            require(self.L * 2**self.K <= 2**28, "sampler.L times 2^sampler.K must be at most 2^28 buckets (1 GB)")
        require(1 <= self.L <= 4096, "sampler.L must lie in [1, 4096]")
        require(self.bucket_cap >= 1, "sampler.bucket_cap must be at least 1")
        require(0 < self.sparsity_budget <= 1, "sampler.sparsity_budget must lie in (0, 1]")
        require(self.max_hits is None or self.max_hits >= 1, "sampler.max_hits must be null or at least 1")
        require(self.min_candidates >= 1, "sampler.min_candidates must be at least 1")
        require(self.tail_candidates >= 0, "sampler.tail_candidates must be 0 or more")
        if self.tail != "uniform":
            require(self.shared, f"sampler.tail={self.tail} needs sampler.shared=true: a tail of each row is uniform")
            require(self.tail_candidates >= 1, f"sampler.tail={self.tail} needs sampler.tail_candidates of at least 1")
        require(self.refresh_period >= 1, "sampler.refresh_period must be at least 1 step")
        require(self.refresh_growth >= 1, "sampler.refresh_growth must be at least 1")

    @property
    def can_draw_every_class(self) -> bool:
        return self.tail_candidates >= 1

    @property
    @abstractmethod
    def queries_with_label(self) -> bool:
        """Whether the query is the true class's vector (LSH Label) or the hidden state (LSH Embedding)."""

    def build(self, *, num_classes: int, label_counts_N: np.ndarray, layer: "OutputLayer", seed: int) -> Sampler:
        tail = None
        if self.tail != "uniform":
            config = {"log_uniform": LogUniformConfig, "unigram": UnigramConfig}[self.tail](
                name=self.tail, num_samples=self.tail_candidates
            )
            tail = Static(config, config.distribution(label_counts_N), seed)
        return Lsh(self, layer, num_classes, seed, tail)


@dataclass(frozen=True, kw_only=True)
class LshEmbeddingConfig(LshConfig):
    """LSH Embedding (Theorem 2): query with the hidden state."""

    queries_with_label = False


@dataclass(frozen=True, kw_only=True)
class LshLabelConfig(LshConfig):
    """LSH Label (Theorem 1): query with the vectors of the row's true classes, whose codes are at hand."""

    queries_with_label = True


class Lsh(Sampler):
    """Bucket union plus a tail, over hash tables that follow the class matrix."""

    def __init__(
        self, config: LshConfig, layer: "OutputLayer", num_classes: int, seed: int, tail: Static | None = None
    ) -> None:
        self.config = config
        self._tail = tail
        self.layer = layer
        self.num_classes = num_classes
        self.seed = seed
        # Four buckets a class are plenty; more would be empty and cost memory.
        max_bits = min(18, max(4, int(num_classes).bit_length() + 1))
        family = HASH_FAMILIES[config.hash]
        options = {"max_bits": max_bits, "bin_size": config.bin_size} if family is Dwta else {}
        self.family: Dwta | SimHash = family(dim=layer.dim, K=config.K, L=config.L, seed=seed, **options)
        self.tables = BucketTables(L=config.L, num_rows=num_classes, code_bits=self.family.code_bits)
        self._count = np.zeros((get_num_threads(), num_classes), dtype=np.uint8)
        self.refreshes = 0
        self.rehashed_rows = 0
        self.last_refresh = 0
        self.next_refresh = float(config.refresh_period)
        self._center_D = np.zeros(layer.dim, dtype=np.float32)
        self._touched_step = np.zeros(num_classes, dtype=np.int32)
        self._rehash_all()
        self.tables.build(seed, 0)

    # ------------------------------------------------------------ drawing

    def _query_codes(self, query: Query) -> tuple[np.ndarray, np.ndarray]:
        if self.config.queries_with_label:
            return self.tables.codes[:, query.targets_P].astype(np.uint32), query.target_indptr_B1
        rows = np.arange(query.num_rows, dtype=np.int32)
        return self.family.hash(query.hidden_BD, rows), np.arange(query.num_rows + 1, dtype=np.int64)

    def sample(self, query: Query, step: int) -> Proposal:
        config = self.config
        codes_LQ, query_indptr = self._query_codes(query)
        budget = int(config.sparsity_budget * self.num_classes)
        # The last table read may overshoot the budget by one bucket for each of the row's queries.
        most_of_a_table = config.bucket_cap * int(np.diff(query_indptr).max(initial=1))
        union = min(self.num_classes, budget + 1 + most_of_a_table, config.L * most_of_a_table)
        width = min(self.num_classes, max(union + config.tail_candidates, config.min_candidates))
        ids_BM = np.empty((query.num_rows, width), dtype=np.int32)
        num_hits, lengths = _retrieve(
            codes_LQ, query_indptr, self.tables.start, self.tables.members, config.bucket_cap, budget,
            config.max_hits or self.num_classes, 0 if config.shared else config.min_candidates,
            0 if config.shared else config.tail_candidates, self.seed, step, self._count, ids_BM,
        )  # fmt: skip
        if config.shared:
            return self._share(ids_BM, num_hits, step)
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        ids_N = np.empty(indptr[-1], dtype=np.int32)
        log_count_N = np.empty(indptr[-1], dtype=np.float32)
        _flatten(ids_BM, num_hits, indptr, self.num_classes, ids_N, log_count_N)
        return Proposal(ids_N=ids_N, log_expected_count_N=log_count_N, indptr_B1=indptr)

    def _share(self, ids_BM: np.ndarray, num_hits_B: np.ndarray, step: int) -> Proposal:
        """One proposal for all rows: the union of what they retrieved, and a tail drawn outside of it."""
        hits = np.unique(np.concatenate([ids[:length] for ids, length in zip(ids_BM, num_hits_B, strict=True)]))
        if self._tail is None:
            tail, tail_log_count = self._uniform_outside(hits, step)
        else:
            drawn = self._tail.draw(step)
            tail = np.setdiff1d(drawn, hits, assume_unique=True)
            tail_log_count = self._tail.log_count_N[tail]
        ids = np.concatenate([hits, tail]).astype(np.int32)
        log_count = np.concatenate([np.zeros(len(hits), dtype=np.float32), tail_log_count])
        order = np.argsort(ids, kind="stable")
        return Proposal(ids_N=ids[order], log_expected_count_N=log_count[order])

    def _uniform_outside(self, hits: np.ndarray, step: int) -> tuple[np.ndarray, np.ndarray]:
        """Classes drawn without replacement from outside ``hits`` (ascending), and their log expected counts."""
        config = self.config
        outside = self.num_classes - len(hits)
        wanted = min(max(config.tail_candidates, config.min_candidates - len(hits)), outside)
        # Positions among the classes outside, then the classes themselves: shift by the hits below.
        position = np.sort(rng.generator(self.seed, rng.SAMPLE, step).choice(outside, wanted, replace=False))
        tail = position + np.searchsorted(hits - np.arange(len(hits)), position, side="right")
        return tail, np.full(wanted, np.log(max(wanted, 1) / max(outside, 1)), dtype=np.float32)

    def log_expected_count_of_targets(self, query: Query, proposal: Any, step: int) -> np.ndarray:
        """As of the base class, without retrieving once more what the proposal already tells."""
        ids_N, log_count_N, indptr_B1 = proposal.ids_N, proposal.log_expected_count_N, proposal.indptr_B1
        if indptr_B1 is None:
            indptr_B1 = np.array([0, len(ids_N)], dtype=np.int64)
        log_tail_P = np.zeros(0, dtype=np.float32) if self._tail is None else self._tail.log_count_N[query.targets_P]
        out_P = np.empty(len(query.targets_P), dtype=np.float32)
        _target_counts(query.target_indptr_B1, query.targets_P, indptr_B1, ids_N, log_count_N, log_tail_P, out_P)
        return out_P

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

    # ------------------------------------------------------------ following the weights

    def note_touched(self, rows_U: np.ndarray, step: int) -> None:
        """Remember that a step updated these classes."""
        self._touched_step[rows_U] = step

    def refresh(self, step: int, touched_U: np.ndarray) -> bool:
        """Rebuild when the schedule says so."""
        self.note_touched(touched_U, step)
        if step < self.next_refresh:
            return False
        self.rebuild(step)
        self.refreshes += 1
        period = self.config.refresh_period * self.config.refresh_growth**self.refreshes
        self.next_refresh = step + period
        return True

    def rebuild(self, step: int) -> None:
        """Hash the classes that moved since the last rebuild, or all of them, and sort all into buckets anew.

        A class moves while its momentum lasts. All are hashed when most have moved, which is cheaper in bulk, and when
        the mean has moved away from the centre that codes were made with.
        """
        table = self.layer.table
        settled = max(0, self.last_refresh - table.settling_steps)  # 0 stands for never touched, so never moved
        moved = np.flatnonzero(self._touched_step > settled).astype(np.int32)
        if 2 * len(moved) > self.num_classes or not self._center_holds():
            table.read(None, step + 1)
            self._rehash_all()
        elif len(moved):
            table.read(moved, step + 1)
            self.tables.codes[:, moved] = self.family.hash(table.weights, moved, self._center_D)
            self.rehashed_rows += len(moved)
        self.tables.build(self.seed, step)
        self.last_refresh = step

    def _rehash_all(self) -> None:
        weights = self.layer.table.weights
        if self.config.center:
            column_sums(weights, self._center_D)
            self._center_D /= np.float32(self.num_classes)
        rows = np.arange(self.num_classes, dtype=np.int32)
        self.family.hash(weights, rows, self._center_D, out=self.tables.codes)
        self.rehashed_rows += self.num_classes

    def _center_holds(self) -> bool:
        """Whether the mean is still near the centre of the last full hashing, in units of the vectors' spread."""
        if not self.config.center:
            return True
        weights = self.layer.table.weights
        mean_D = np.empty_like(self._center_D)
        column_sums(weights, mean_D)
        mean_D /= np.float32(self.num_classes)
        some = weights[:: max(1, self.num_classes // 1000)]
        spread = np.square(some - mean_D).sum(axis=1).mean()
        return bool(np.square(mean_D - self._center_D).sum() <= _CENTER_TOLERANCE**2 * spread)

    @property
    def statistics(self) -> dict[str, float]:
        return {
            "refreshes": self.refreshes,
            "rehashed_rows": self.rehashed_rows,
            "table_mb": self.tables.nbytes / 2**20,
        }

    def state_dict(self) -> dict[str, np.ndarray]:
        schedule = [self.refreshes, self.rehashed_rows, self.last_refresh, self.next_refresh]
        return {
            "codes": self.tables.codes,
            "center": self._center_D,
            "touched_step": self._touched_step,
            "schedule": np.array(schedule, dtype=np.float64),
        }

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        self.tables.codes[...] = state["codes"]
        self._center_D[...] = state["center"]
        self._touched_step[...] = state["touched_step"]
        refreshes, rehashed, last, self.next_refresh = state["schedule"].tolist()
        self.refreshes, self.rehashed_rows, self.last_refresh = int(refreshes), int(rehashed), int(last)
        # Members are a function of the codes and the step of the last build.
        self.tables.build(self.seed, self.last_refresh)

"""Retrieve classes from hash tables on a device: LNS's samplers, bucket sampling and LSH Softmax.

Each row reads a fixed number of places, of which some are empty, so that no size depends on what the tables hold. What
is read, kept and drawn is what ``samplers.lsh``, ``lsh_bucket`` and ``lsh_topk`` read, keep and draw.

Legend: B rows, b rows that are worked on together, L tables in the order in which a row reads them, Q queries of a row,
W places of a bucket's window, X = L Q W places that a row reads, M places of a row's candidates, S shared candidates,
P targets of all rows, T drawn classes of a row, N classes.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from runner import rng
from runner.contracts import Passed, Query
from runner.output.torch import words
from runner.output.torch.arrays import array_of, ids_of, tensor_of
from runner.output.torch.batches import Targets, TorchProposal, hidden_on
from runner.output.torch.layer import TorchLayer
from runner.samplers.hashed import Hashed, HashedConfig
from runner.samplers.lsh import Lsh
from runner.samplers.lsh_bucket import LshBucket
from runner.samplers.lsh_topk import LshTopK
from runner.samplers.on_device.hashing import HashIndexOnDevice, TablesOnDevice
from runner.samplers.on_device.subsets import SureAndTail, first_of_each, pushed_together

_PLACES = 2**24  # of rows that are worked on together: 128 MB for each kind of number


class _OnDevice(Hashed):
    """Hold the tables of a ``Hashed`` sampler where the class matrix lies."""

    layer: TorchLayer
    index: HashIndexOnDevice

    def __init__(self, config: HashedConfig, layer: TorchLayer, seed: int, *others: Any) -> None:
        self.device = layer.device
        super().__init__(config, layer, seed, *others)

    def _make_index(self) -> HashIndexOnDevice:
        config = self.config
        return HashIndexOnDevice(
            self.layer, family=config.hash, K=config.hashes_of(self.num_classes), L=config.L,
            bin_size=config.bin_size, center=self._centers, seed=self.seed,
        )  # fmt: skip

    @property
    def tables(self) -> TablesOnDevice:
        """Return the index's buckets."""
        return self.index.tables

    asks_what_moved = False

    def follows(self, step: int) -> bool:
        """Tell whether the tables are rebuilt after ``step``; which classes other steps touched does not matter."""
        return step >= self.schedule.next

    def codes_on_device(self, query: Query) -> Tensor:
        """Return the bucket of each hidden state in each table, (L, B)."""
        return self.index.codes_of(hidden_on(query, self.device))

    def keys(self, num_rows: int, step: int) -> Tensor:
        """Return the keys of the rows' streams, (B,)."""
        return words.stream(self.seed, rng.SAMPLE, step, torch.arange(num_rows, device=self.device), self.device)

    def windows(self, table_bL: Tensor, code_bLQ: Tensor, key_b: Tensor, most: int) -> tuple[Tensor, Tensor]:
        """Return what rows read of the buckets of their queries, (b, L, Q, W), and which places hold a class.

        ``code_bLQ``: -1 where a row has no such query. ``most``: ids that are read of a bucket (``window_of_bucket``).
        """
        tables, width = self.tables, min(most, self.tables.largest)
        table_bL1, has_query_bLQ, code_bLQ = table_bL[:, :, None], code_bLQ >= 0, code_bLQ.clamp_min(0)
        begin_bLQ = tables.start[table_bL1, code_bLQ].long()
        size_bLQ = torch.where(has_query_bLQ, tables.start[table_bL1, code_bLQ + 1] - begin_bLQ, 0)
        word_bL1 = words.word(key_b[:, None], -1 - table_bL)[:, :, None]
        offset_bLQ = torch.where(size_bLQ > most, words.below(word_bL1, size_bLQ), 0)
        place_bLQW = offset_bLQ[..., None] + torch.arange(width, device=self.device)
        place_bLQW = torch.where(place_bLQW >= size_bLQ[..., None], place_bLQW - size_bLQ[..., None], place_bLQW)
        held_bLQW = torch.arange(width, device=self.device) < size_bLQ[..., None]
        at_bLQW = torch.where(held_bLQW, begin_bLQ[..., None] + place_bLQW, 0)
        return tables.members[table_bL1[..., None], at_bLQW].long(), held_bLQW


class TorchLsh(_OnDevice, Lsh):
    """Propose the union of the query's buckets and a tail. A shared proposal waits once, to learn the union's size."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._latest: tuple[TorchProposal, SureAndTail] | None = None
        self._latest_shared: tuple[TorchProposal, Tensor, Tensor] | None = None
        if self._tail is not None:
            self._log_tail_N = tensor_of(self._tail.log_count_N, self.device)

    def _codes(self, query: Query) -> Tensor:
        """Return the bucket of each row's queries in each table, (L, B, Q); -1 where a row has fewer queries."""
        if not self.config.queries_with_label:
            return self.codes_on_device(query)[:, :, None]
        codes_LP = self.tables.codes[:, Targets.of(query, self.device).ids_P].long()
        codes_LP = torch.nn.functional.pad(codes_LP, (0, 1), value=-1)
        indptr_B1 = query.target_indptr_B1
        place_BQ = indptr_B1[:-1, None] + np.arange(max(1, int(np.diff(indptr_B1).max(initial=1))))
        place_BQ = np.where(place_BQ < indptr_B1[1:, None], place_BQ, len(query.targets_P))
        return codes_LP[:, ids_of(place_BQ, self.device)]

    def sample(self, query: Query, step: int) -> TorchProposal:
        config, rows = self.config, query.num_rows
        codes_LBQ, key_B = self._codes(query), self.keys(rows, step)
        queries, window = codes_LBQ.shape[2], min(config.max_per_bucket, self.tables.largest)
        hits = self._most_retrieved(queries, window)
        at_once = max(1, _PLACES // max(1, config.L * queries * window))
        parts = [
            self._retrieved(codes_LBQ[:, lo : lo + at_once], key_B[lo : lo + at_once], hits)
            for lo in range(0, max(1, rows), at_once)
        ]
        hits_BM, num_hits_B = (torch.cat(kind) for kind in zip(*parts, strict=True))
        if config.shared:
            return self._shared(hits_BM, step)
        most = min(max(config.num_tail, config.min_candidates), self.num_classes)
        outside_B = self.num_classes - num_hits_B
        wanted_B = torch.minimum((config.min_candidates - num_hits_B).clamp_min(config.num_tail), outside_B)
        places = min(self.num_classes, max(hits + config.num_tail, config.min_candidates))
        found = SureAndTail(hits_BM, num_hits_B, wanted_B, self.num_classes)
        self._latest = found.proposal(key_B, most, places), found
        return self._latest[0]

    def _retrieved(self, codes_LbQ: Tensor, key_b: Tensor, most: int) -> tuple[Tensor, Tensor]:
        """Return the classes S of some rows in the order found, (b, M), and |S|; empty places have ``num_classes``."""
        config, nobody = self.config, self.num_classes
        # Each row begins at a table of its own.
        first_b1 = words.below(words.word(key_b, -1 - config.L), config.L)[:, None]
        table_bL = (first_b1 + torch.arange(config.L, device=self.device)) % config.L
        code_bLQ = codes_LbQ[table_bL, torch.arange(len(key_b), device=self.device)[:, None]]
        ids_bLQW, held_bLQW = self.windows(table_bL, code_bLQ, key_b, config.max_per_bucket)
        ids_bX = torch.where(held_bLQW, ids_bLQW, nobody).flatten(1)
        is_new_bX = first_of_each(ids_bX) & (ids_bX < nobody)
        # A table is read unless those before it gave more classes than the budget.
        new_bL = is_new_bX.unflatten(1, (config.L, -1)).sum(2)
        reads_bL = new_bL.cumsum(1) - new_bL <= self._budget
        reads_bX = reads_bL[:, :, None].expand(ids_bLQW.flatten(2).shape).flatten(1)
        is_new_bX &= reads_bX
        if config.max_retrieved is not None and config.max_retrieved < most:
            is_new_bX &= _most_met(torch.where(reads_bX, ids_bX, nobody), is_new_bX, config.max_retrieved)
        found_bM, number_b = pushed_together(ids_bX, is_new_bX, most)
        is_held_bM = torch.arange(most, device=self.device) < number_b[:, None]
        return torch.where(is_held_bM, found_bM, nobody), number_b

    def _shared(self, hits_BM: Tensor, step: int) -> TorchProposal:
        """Return one proposal for all rows: the union of what they retrieved, and a tail drawn from outside it."""
        is_hit_N = torch.zeros(self.num_classes + 1, dtype=torch.bool, device=self.device)
        is_hit_N = is_hit_N.index_fill_(0, hits_BM.reshape(-1), True)[:-1]
        hits = is_hit_N.nonzero()[:, 0]  # the one wait: how many there are decides how many are drawn
        if self._tail is None:
            position, log_count = self._places_outside(len(hits), step)
            place = ids_of(position, self.device)
            tail = place + torch.searchsorted(hits - torch.arange(len(hits), device=self.device), place, right=True)
            log_tail = torch.full((len(tail),), log_count, device=self.device)
            log_outside = torch.full((), log_count if len(tail) else -torch.inf, device=self.device)
        else:
            tail = ids_of(self._tail.draw(step), self.device)
            log_tail, log_outside = self._log_tail_N[tail], self._log_tail_N
        ids, order = torch.cat([hits, tail]).sort(stable=True)
        log_count_S = torch.cat([torch.zeros(len(hits), device=self.device), log_tail])[order]
        # A drawn class that was retrieved too comes after it, in a place that is empty.
        valid = None if self._tail is None else first_of_each(ids, is_sorted=True)
        proposal = TorchProposal(ids, log_count_S, valid)
        self._latest_shared = proposal, is_hit_N, log_outside
        return proposal

    def log_expected_count_of_targets(self, query: Query, proposal: Any, step: int) -> Passed:
        """Return the log expected count of each target in its own row, (P,) float32, as a tensor."""
        latest = self._latest_shared if self.config.shared else self._latest
        if latest is None or latest[0] is not proposal:
            self.sample(query, step)
        if self._latest is not None:
            return self._latest[1].log_count_of_targets(query)
        assert self._latest_shared is not None
        _, is_hit_N, log_outside = self._latest_shared
        ids_P = Targets.of(query, self.device).ids_P
        return torch.where(is_hit_N[ids_P], 0.0, log_outside[ids_P] if log_outside.dim() else log_outside)


def _most_met(read_bX: Tensor, is_new_bX: Tensor, keep: int) -> Tensor:
    """Tell which new classes are among the ``keep`` that were met in most buckets, the first of equals; (b, X) bool."""
    sorted_bX, order_bX = read_bX.sort(dim=1, stable=True)
    times_bX = torch.searchsorted(sorted_bX, sorted_bX, right=True) - torch.arange(
        sorted_bX.shape[1], device=read_bX.device
    )
    met_bX = torch.empty_like(times_bX).scatter_(1, order_bX, times_bX).clamp_max_(255)
    best_bX = torch.where(is_new_bX, met_bX, 0).argsort(dim=1, descending=True, stable=True)
    return torch.zeros_like(is_new_bX).scatter_(1, best_bX[:, :keep], True)


class TorchLshBucket(_OnDevice, LshBucket):
    """Draw members of the query's buckets, and some classes uniformly."""

    def _transpose_codes(self) -> None:
        """Do nothing: a device reads the codes of many classes at a time."""

    def _shares(self, codes_LB: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return sizes of the rows' buckets, a member's share of draws, (L, B), and the uniform share, (B,)."""
        table_L1 = torch.arange(len(codes_LB), device=self.device)[:, None]
        start = self.tables.start
        size_LB = (start[table_L1, codes_LB + 1] - start[table_L1, codes_LB]).long()
        occupied_B = (size_LB > 0).sum(0)
        u = self.config.uniform_share
        share_LB = torch.where(size_LB > 0, 1 / size_LB.double(), 0) * ((1 - u) / occupied_B.clamp_min(1).double())
        return size_LB, share_LB, torch.where(occupied_B > 0, u, 1.0).double()

    def _log_counts(
        self, codes_LB: Tensor, share_LB: Tensor, uniform_B: Tensor, row_X: Tensor, ids_X: Tensor
    ) -> Tensor:
        """Return log expected counts of pairs of rows and ids, which broadcast; float32."""
        row_X, ids_X = torch.broadcast_tensors(row_X, ids_X)
        q_X = uniform_B[row_X] / self.num_classes
        shared_X = torch.zeros_like(q_X)
        for codes_N, codes_B, share_B in zip(self.tables.codes, codes_LB, share_LB, strict=True):
            shared_X += torch.where(codes_N[ids_X] == codes_B[row_X], share_B[row_X], 0)
        return (self.config.num_samples * (q_X + shared_X)).log().float()

    def sample(self, query: Query, step: int) -> TorchProposal:
        rows, draws = query.num_rows, self.config.num_samples
        codes_LB = self.codes_on_device(query)
        size_LB, share_LB, uniform_B = self._shares(codes_LB)
        key_B1, draw_M = self.keys(rows, step)[:, None], torch.arange(draws, device=self.device)
        where_BM, which_BM = words.word(key_B1, 2 * draw_M), words.word(key_B1, 2 * draw_M + 1)
        # The same word, mixed into fresh bits, chooses one of the tables whose bucket is not empty.
        upto_BL = (size_LB > 0).t().cumsum(1)
        turn_BM = words.below(words.mix(where_BM), upto_BL[:, -1:])
        table_BM = torch.searchsorted(upto_BL, turn_BM + 1).clamp_max_(len(codes_LB) - 1)
        begin_BM = self.tables.start[table_BM, codes_LB.t().gather(1, table_BM)]
        place_BM = begin_BM + words.below(which_BM, size_LB.t().gather(1, table_BM))
        member_BM = self.tables.members[table_BM, place_BM.clamp_max_(self.num_classes - 1)].long()
        is_uniform_BM = words.unit(where_BM) < uniform_B[:, None]
        ids_BM = torch.where(is_uniform_BM, words.below(which_BM, self.num_classes), member_BM)
        row_B1 = torch.arange(rows, device=self.device)[:, None]
        log_count_BM = self._log_counts(codes_LB, share_LB, uniform_B, row_B1, ids_BM)
        return TorchProposal(ids_BM, log_count_BM, distinct=False)

    def _counts_of(self, query: Query, row_X: Tensor, ids_X: Tensor) -> Tensor:
        codes_LB = self.codes_on_device(query)
        _, share_LB, uniform_B = self._shares(codes_LB)
        return self._log_counts(codes_LB, share_LB, uniform_B, row_X, ids_X)

    def log_expected_count(self, query: Query, ids_M: np.ndarray, step: int) -> np.ndarray:
        row_B1 = torch.arange(query.num_rows, device=self.device)[:, None]
        return array_of(self._counts_of(query, row_B1, ids_of(ids_M, self.device)))

    def log_expected_count_of_targets(self, query: Query, proposal: Any, step: int) -> Passed:
        """Return the log expected count of each target in its own row, (P,) float32, as a tensor."""
        targets = Targets.of(query, self.device)
        return self._counts_of(query, targets.row_P, targets.ids_P)


class TorchLshTopK(_OnDevice, LshTopK):
    """Propose each row's nearest retrieved classes and a uniform tail."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._latest: tuple[TorchProposal, SureAndTail] | None = None

    def _nearest(self, queries_bD: Tensor, codes_Lb: Tensor, key_b: Tensor) -> tuple[Tensor, Tensor]:
        """Return the nearest classes of some rows in the order found, (b, k), and their number.

        Empty places have ``num_classes``.
        """
        layer, nobody, table_L = self.layer, self.num_classes, torch.arange(len(codes_Lb), device=self.device)
        table_bL = table_L.expand(len(key_b), -1)
        ids_bLQW, held_bLQW = self.windows(table_bL, codes_Lb.t()[:, :, None], key_b, self.config.max_per_bucket)
        ids_bX = torch.where(held_bLQW, ids_bLQW, nobody).flatten(1)
        is_new_bX = first_of_each(ids_bX) & (ids_bX < nobody)
        found_bM, number_b = pushed_together(ids_bX, is_new_bX, min(ids_bX.shape[1], nobody))
        logits_bM = layer.listed(queries_bD, found_bM)
        is_held_bM = torch.arange(found_bM.shape[1], device=self.device) < number_b[:, None]
        best_bM = logits_bM.masked_fill_(~is_held_bM, -torch.inf).argsort(dim=1, descending=True, stable=True)
        is_best_bM = torch.zeros_like(is_held_bM).scatter_(1, best_bM[:, : self.k], True) & is_held_bM
        nearest_bk, number_b = pushed_together(found_bM, is_best_bM, self.k)
        is_held_bk = torch.arange(self.k, device=self.device) < number_b[:, None]
        return torch.where(is_held_bk, nearest_bk, nobody), number_b

    def _found(self, query: Query, key_B: Tensor) -> SureAndTail:
        """Return each row's nearest classes, of which empty places have ``num_classes``."""
        queries_BD = self.layer.queries(hidden_on(query, self.device))
        codes_LB = self.codes_on_device(query)
        places = max(1, self.config.L * min(self.config.max_per_bucket, self.tables.largest))
        at_once = max(1, min(_PLACES // places, 4 * _PLACES // (places * self.layer.dim)))
        parts = [
            self._nearest(queries_BD[rows], codes_LB[:, rows], key_B[rows])
            for rows in (slice(lo, lo + at_once) for lo in range(0, max(1, query.num_rows), at_once))
        ]
        nearest_Bk, number_B = (torch.cat(kind) for kind in zip(*parts, strict=True))
        wanted_B = (self.num_classes - number_B).clamp_max(self.tail)
        return SureAndTail(nearest_Bk, number_B, wanted_B, self.num_classes)

    def sample(self, query: Query, step: int) -> TorchProposal:
        key_B = self.keys(query.num_rows, step)
        found = self._found(query, key_B)
        self._latest = found.proposal(key_B, self.tail, min(self.num_classes, self.k + self.tail)), found
        return self._latest[0]

    def log_expected_count(self, query: Query, ids_M: np.ndarray, step: int) -> np.ndarray:
        found = self._found(query, self.keys(query.num_rows, step))
        return array_of(found.log_count_of(ids_of(ids_M, self.device)))

    def log_expected_count_of_targets(self, query: Query, proposal: Any, step: int) -> Passed:
        """Return the log expected count of each target in its own row, (P,) float32, as a tensor."""
        if self._latest is None or self._latest[0] is not proposal:
            self.sample(query, step)
        assert self._latest is not None
        return self._latest[1].log_count_of_targets(query)

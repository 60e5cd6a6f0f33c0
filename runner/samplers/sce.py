"""Propose to each row the classes of random buckets that its hidden state falls into: scalable cross-entropy (SCE).

Each step draws n_b centres. A bucket holds the b_x hidden states of the batch and the b_y classes whose inner products
with its centre are largest. So rows are compared with classes whose logits are likely to be large, and only
n_b (B + n) inner products are needed to find them, not B n. Biases are not seen; in a normalised layer the products
are those of directions.

Centres are standard normal vectors. With ``mix`` they are Omega X, random combinations of the batch's hidden states X,
where Omega has independent standard normal entries. The rows of Omega X are then independent normal vectors with
covariance X'X. They are drawn as such, by a triangular root of X'X, which costs less than Omega itself. Only directions
matter for a ranking, so the paper's factor d^(-1/4) is left out. Where hidden states have a large common mean, mixed
centres lie along it and choose the same rows again and again; docs/log.md compares both.

Given seed, step and batch nothing is left to chance: the expected count of a class in the row's buckets is 1, that of
any other 0. These counts belong to one step; over steps they do not average to a known distribution. So losses that
need every class are refused, unless ``num_tail`` adds uniform draws from the classes outside the row's buckets (the
hybrid of LSH Softmax), which makes the partition estimate unbiased. A row in no bucket has only its tail. Without a
tail it has no candidates: its loss is that of its own targets, which is 0 and has no gradient if there is one target.

This is the paper's method, with three differences. The paper takes the cross-entropy within each bucket and keeps, for
a row in several buckets, the largest of its losses. Here the row's candidates are the classes of all its buckets, each
once, so its loss is at least the paper's and at most full softmax's. The paper averages losses over the rows that are
in a bucket; here rows in no bucket count too. Rows without targets are put into no bucket, as the paper does with
padding, and are not mixed into centres either.

The authors take n_b = b_x = 2 sqrt(B) (None here), so that a row is in four buckets on average, and b_y from 64 to
4,096, with and without Mix.

@inproceedings{mezentsev2024scalable, title={Scalable Cross-Entropy Loss for Sequential Recommendations with Large Item
Catalogs}, author={Mezentsev, Gleb and Gusak, Danil and Oseledets, Ivan and Frolov, Evgeny}, booktitle={RecSys},
year={2024}}

Legend: B rows, R rows with targets or any vectors, D hidden size, S columns rounded up to whole tiles, K buckets, C
classes of a bucket, X pairs of a row and a bucket, W room for the candidates of all rows, N classes (in a ``Proposal``:
candidates of all rows), M ids that a caller asks for, U distinct ones, P targets of all rows.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numba import get_num_threads, njit, prange

from runner import rng
from runner.contracts import Proposal, Query, TrainingFacts
from runner.kernels import dense, topk
from runner.kernels.groups import group_by_id
from runner.kernels.rows import FAST, LEAST_NORM
from runner.kernels.scratch import Scratch
from runner.options.fields import option
from runner.output.layer import Layer
from runner.samplers.base import Sampler, SamplerConfig, customary
from runner.samplers.hashed import draw_outside, log_count_outside

_BLOCK_ELEMENTS = 2**20  # inner products that are ranked together: 4 MB, which a core's caches hold


def usual_buckets(num_rows: int) -> int:
    """Return the authors' number of buckets, and of rows in a bucket, for so many rows: 2 sqrt(rows), rounded down."""
    return math.isqrt(4 * num_rows)


# ---------------------------------------------------------------- centres


def gram(vectors_RD: np.ndarray) -> np.ndarray:
    """Return X'X, (D, D) float32, with the same bits for any number of threads."""
    rows, dim = vectors_RD.shape
    padded_RS = np.zeros((rows, dense.padded_size(dim)), dtype=np.float32)
    padded_RS[:, :dim] = vectors_RD
    out_SS = np.empty((padded_RS.shape[1],) * 2, dtype=np.float32)
    dense.grad_candidates(padded_RS, padded_RS, out_SS)
    return out_SS[:dim, :dim]


@njit(cache=True, fastmath=FAST)
def _product(a, b):
    total = 0.0
    for k in range(a.shape[0]):
        total += a[k] * b[k]
    return total


@njit(cache=True)
def triangular_root(gram_DD):
    """Return the lower triangular L with L L' = G for a positive semi-definite G, (D, D) float64.

    A column whose pivot is as small as the rounding errors of float32 is 0, so G need not have full rank.
    """
    columns = gram_DD.shape[0]
    root_DD = np.zeros((columns, columns), dtype=np.float64)
    for j in range(columns):
        pivot = gram_DD[j, j] - _product(root_DD[j, :j], root_DD[j, :j])
        if pivot <= 1e-5 * gram_DD[j, j]:
            continue
        root_DD[j, j] = np.sqrt(pivot)
        for i in range(j + 1, columns):
            root_DD[i, j] = (gram_DD[i, j] - _product(root_DD[i, :j], root_DD[j, :j])) / root_DD[j, j]
    return root_DD


def centres(vectors_RD: np.ndarray, num_buckets: int, *, mix: bool, seed: int, step: int) -> np.ndarray:
    """Return the buckets' centres, (K, D) float32: Omega X, or standard normal vectors without ``mix``."""
    normal_KD = rng.generator(seed, rng.SAMPLE, step).standard_normal((num_buckets, vectors_RD.shape[1]))
    if mix:
        import torch

        root_DD = triangular_root(gram(vectors_RD))
        normal_KD = torch.mm(torch.from_numpy(normal_KD), torch.from_numpy(root_DD).t()).numpy()
    return normal_KD.astype(np.float32)


# ---------------------------------------------------------------- candidates


@njit(cache=True, parallel=True)
def _unions(buckets_of_B1, bucket_X, classes_KC, tail, seed, step, room_B1, count, ids_W):
    """Fill each row's room with S, the distinct classes of its buckets, and T; return |S| and |S| + |T| of each row.

    Row b has the buckets ``bucket_X[buckets_of_B1[b] : buckets_of_B1[b + 1]]``. Its room must be one longer than its
    candidates. count: (workers, N) uint8 zeros, left as zeros.
    """
    rows, num_classes, workers = buckets_of_B1.shape[0] - 1, count.shape[1], count.shape[0]
    sure_B, length_B = np.empty(rows, dtype=np.int64), np.empty(rows, dtype=np.int64)
    for worker in prange(workers):
        for row in range(worker * rows // workers, (worker + 1) * rows // workers):
            ids = ids_W[room_B1[row] : room_B1[row + 1]]
            length = 0
            for pair in range(buckets_of_B1[row], buckets_of_B1[row + 1]):
                bucket = bucket_X[pair]
                for i in range(classes_KC.shape[1]):
                    # A class that is there already is overwritten by the next; a branch would often be mispredicted.
                    candidate = classes_KC[bucket, i]
                    ids[length] = candidate
                    length += 1 - count[worker, candidate]
                    count[worker, candidate] = 1
            sure_B[row] = length
            if tail > 0:
                goal = length + min(tail, num_classes - length)
                key = rng.stream(seed, rng.SAMPLE, step, row)
                length = draw_outside(ids, length, goal, num_classes, count[worker], key)
            for i in range(length):
                count[worker, ids[i]] = 0
            length_B[row] = length
    return sure_B, length_B


@njit(cache=True, parallel=True)
def _close_up(ids_W, room_B1, indptr_B1, sure_B, log_outside_B, ids_N, log_count_N):
    """Copy the rows' candidates to where ``indptr_B1`` has them, and write their log counts."""
    for row in prange(sure_B.shape[0]):
        begin, end = indptr_B1[row], indptr_B1[row + 1]
        ids_N[begin:end] = ids_W[room_B1[row] : room_B1[row] + end - begin]
        log_count_N[begin : begin + sure_B[row]] = np.float32(0.0)
        log_count_N[begin + sure_B[row] : end] = log_outside_B[row]


@njit(cache=True, parallel=True)
def _set_sure(ids_W, room_B1, sure_B, place_N, out_BU):
    """Write log count 0 where a row's S has the class; ``place_N``: a class's column in ``out_BU``, or -1."""
    for row in prange(sure_B.shape[0]):
        for i in range(room_B1[row], room_B1[row] + sure_B[row]):
            if place_N[ids_W[i]] >= 0:
                out_BU[row, place_N[ids_W[i]]] = np.float32(0.0)


@njit(cache=True, parallel=True)
def _holds_targets(indptr_B1, ids_N, log_count_N, target_indptr_B1, targets_P, held_P):
    """Tell of each target whether its row's S has it; return |S| of each row, the number of candidates of count 1."""
    rows = indptr_B1.shape[0] - 1
    sure_B = np.zeros(rows, dtype=np.int64)
    for row in prange(rows):
        for i in range(indptr_B1[row], indptr_B1[row + 1]):
            if log_count_N[i] == 0:
                sure_B[row] += 1
                for t in range(target_indptr_B1[row], target_indptr_B1[row + 1]):
                    held_P[t] |= targets_P[t] == ids_N[i]
    return sure_B


@dataclass(frozen=True, kw_only=True)
class SceConfig(SamplerConfig):
    """Compare rows and classes that fall into the same random buckets: scalable cross-entropy (SCE).

    A batch of fewer rows than ``bucket_rows`` is all in every bucket.
    """

    losses: ClassVar[tuple[str, ...]] = customary("active_set", SamplerConfig.losses)
    contract_cases: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "usual": {"bucket_classes": 20},
        "few_rows": {"buckets": 3, "bucket_rows": 2, "bucket_classes": 25},
        "mixed": {"bucket_classes": 20, "mix": True},
        "tail": {"buckets": 3, "bucket_rows": 3, "bucket_classes": 15, "num_tail": 30},
    }
    buckets: int | None = option(
        None, "random buckets of a step (the paper's n_b)", null="2 sqrt(rows of the batch)", low=1
    )
    bucket_rows: int | None = option(None, "rows of a bucket (b_x)", null="2 sqrt(rows of the batch)", low=1)
    bucket_classes: int = option(256, "classes of a bucket (b_y)", low=1)
    mix: bool = option(
        False, "centres are random combinations of the batch's hidden states (the paper's Mix); false: normal vectors"
    )
    num_tail: int = option(0, "uniform draws of each row from the classes outside its buckets; the paper: 0", low=0)

    @property
    def can_draw_every_class(self) -> bool:
        return self.num_tail >= 1

    @property
    def draws_for_the_batch(self) -> bool:
        return self.num_tail == 0

    def build(self, *, layer: Layer, training: TrainingFacts, seed: int) -> Sampler:
        return Sce(self, layer, seed)


@dataclass(frozen=True, kw_only=True)
class _Drawn:
    """Hold S and T of all rows: row b has S = ids_W[room_B1[b] :][: sure_B[b]] and then T, together length_B[b]."""

    ids_W: np.ndarray
    room_B1: np.ndarray
    sure_B: np.ndarray
    length_B: np.ndarray


class Sce(Sampler):
    """Propose the classes of each row's buckets and a uniform tail."""

    def __init__(self, config: SceConfig, layer: Layer, seed: int) -> None:
        self.config = config
        self.layer = layer
        self.seed = seed
        self.num_classes = layer.num_classes
        self._count = np.zeros((get_num_threads(), self.num_classes), dtype=np.uint8)
        self._scratch = Scratch()

    # ------------------------------------------------------------ buckets

    def _nearest(self, centre_KD: np.ndarray, matrix_RD: np.ndarray, keep: int, *, normalize: bool) -> np.ndarray:
        """Return the rows with the largest inner products with each centre, (K, keep) int32, ascending.

        ``normalize``: compare the directions of the rows. Of equal products the lower row wins.
        """
        import torch

        buckets, rows = len(centre_KD), len(matrix_RD)
        values = np.empty((buckets, 2 * keep + 64), dtype=np.float32)
        ids = np.empty(values.shape, dtype=np.int32)
        count, bar = np.zeros(buckets, dtype=np.int64), np.full(buckets, -np.inf, dtype=np.float32)
        width = min(rows, max(256, _BLOCK_ELEMENTS // buckets))
        scratch = self._scratch.take("products with centres", buckets * width)
        centre = torch.from_numpy(centre_KD)
        for lo in range(0, rows, width):
            block = torch.from_numpy(matrix_RD[lo : lo + width])
            product_KR = scratch[: buckets * len(block)].reshape(buckets, len(block))
            product = torch.from_numpy(product_KR)
            torch.mm(centre, block.t(), out=product)
            if normalize:
                product.div_(torch.linalg.vector_norm(block, dim=1).clamp_min(float(LEAST_NORM)))
            topk.fold_block(product_KR, lo, keep, values, ids, count, bar)
        out = np.empty((buckets, keep), dtype=np.int32)
        topk.finish(values, ids, count, keep, False, out)
        return out

    def buckets(self, query: Query, step: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows, (K, b_x) int32, and the classes, (K, b_y) int32, of each bucket, both ascending."""
        config, layer = self.config, self.layer
        layer.read(None, step)
        vectors_RD, learning_R = layer.query_vectors(query.hidden_BD), None
        if (np.diff(query.target_indptr_B1) == 0).any():
            learning_R = np.flatnonzero(np.diff(query.target_indptr_B1)).astype(np.int32)
            vectors_RD = vectors_RD[learning_R]
        num_rows = len(vectors_RD)
        if num_rows == 0:
            return np.zeros((0, 0), dtype=np.int32), np.zeros((0, 0), dtype=np.int32)
        usual = usual_buckets(num_rows)
        vectors_RD = np.ascontiguousarray(vectors_RD, dtype=np.float32)
        centre_KD = centres(vectors_RD, config.buckets or usual, mix=config.mix, seed=self.seed, step=step)
        rows = self._nearest(centre_KD, vectors_RD, min(num_rows, config.bucket_rows or usual), normalize=False)
        classes = self._nearest(
            centre_KD, layer.rows(), min(self.num_classes, config.bucket_classes),
            normalize=layer.scale is not None,
        )  # fmt: skip
        return rows if learning_R is None else learning_R[rows], classes

    def _draw(self, query: Query, step: int, tail: int) -> _Drawn:
        rows_KX, classes_KC = self.buckets(query, step)
        row_X = rows_KX.reshape(-1)
        order_X, _, _ = group_by_id(row_X, query.num_rows)
        bucket_X = order_X // np.int32(max(1, rows_KX.shape[1]))
        held_B = np.bincount(row_X, minlength=query.num_rows)
        room_B = 1 + np.minimum(held_B * classes_KC.shape[1] + tail, self.num_classes)
        buckets_of_B1, room_B1 = (np.concatenate([[0], np.cumsum(sizes)]) for sizes in (held_B, room_B))
        ids_W = self._scratch.take("classes of buckets", int(room_B1[-1])).view(np.int32)
        sure_B, length_B = _unions(
            buckets_of_B1, bucket_X, classes_KC, tail, self.seed, step, room_B1, self._count, ids_W
        )
        return _Drawn(ids_W=ids_W, room_B1=room_B1, sure_B=sure_B, length_B=length_B)

    # ------------------------------------------------------------ proposals

    def sample(self, query: Query, step: int) -> Proposal:
        tail = self.config.num_tail
        drawn = self._draw(query, step, tail)
        indptr_B1 = np.concatenate([[0], np.cumsum(drawn.length_B)])
        ids_N = np.empty(indptr_B1[-1], dtype=np.int32)
        log_count_N = np.empty(indptr_B1[-1], dtype=np.float32)
        log_outside_B = log_count_outside(self.num_classes, drawn.sure_B, tail)
        _close_up(drawn.ids_W, drawn.room_B1, indptr_B1, drawn.sure_B, log_outside_B, ids_N, log_count_N)
        return Proposal(ids_N=ids_N, log_expected_count_N=log_count_N, indptr_B1=indptr_B1)

    def log_expected_count(self, query: Query, ids_M: np.ndarray, step: int) -> np.ndarray:
        drawn = self._draw(query, step, 0)
        unique_U, position_M = np.unique(ids_M, return_inverse=True)
        place_N = np.full(self.num_classes, -1, dtype=np.int64)
        place_N[unique_U] = np.arange(len(unique_U))
        log_outside_B = log_count_outside(self.num_classes, drawn.sure_B, self.config.num_tail)
        out_BU = np.repeat(log_outside_B[:, None], len(unique_U), axis=1)
        _set_sure(drawn.ids_W, drawn.room_B1, drawn.sure_B, place_N, out_BU)
        return out_BU[:, position_M]

    def log_expected_count_of_targets(self, query: Query, proposal: Any, step: int) -> np.ndarray:
        # The proposal says which classes are in the row's buckets, so the buckets need not be found again.
        held_P = np.zeros(len(query.targets_P), dtype=np.bool_)
        sure_B = _holds_targets(
            proposal.indptr_B1, proposal.ids_N, proposal.log_expected_count_N,
            query.target_indptr_B1, query.targets_P, held_P,
        )  # fmt: skip
        log_outside_B = log_count_outside(self.num_classes, sure_B, self.config.num_tail)
        return np.where(held_P, np.float32(0), log_outside_B[query.row_P])

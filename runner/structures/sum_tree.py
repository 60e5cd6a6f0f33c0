"""Draw classes by a kernel in O(log n), from a binary tree whose nodes hold the sums of the feature vectors below.

Legend: N classes, F features, V nodes, U distinct classes, B queries, X keys of all queries.

The mass of a node for a query is the product of the query with the node's sum. A draw starts at the root. It goes left
with probability clamp(left) / (clamp(left) + clamp(right)), where clamp(mass) = max(mass, floor * classes below). A
leaf is a block of classes, in which the draw takes class i with probability clamp(i) / sum of the clamped masses. So
every class has a probability above 0, whatever the signs of the masses, and all probabilities sum to 1.

Features are whole numbers of one byte, so sums are exact. The mass on the right is the parent's minus the left one's,
a refreshed tree equals a rebuilt one, and neither threads nor vector instructions can change a bit.
"""

import numpy as np
from numba import njit, prange, types
from numba.extending import overload

from runner import rng
from runner.kernels.groups import CHUNKS
from runner.kernels.memory import prefetch_row
from runner.structures.block_tree import BlockTree, add, first_class

MOST_CLASSES = (2**31 - 1) // 127  # sums are int32
MOST_FEATURES = (2**31 - 1) // 127**2  # a class's mass for one query is int32


def _dot(row_F, query_F):
    """Return the product of two vectors of whole numbers, exactly. Queries of int16 hold bytes, those of int32 sums."""


@overload(_dot)
def _dot_of_types(row_F, query_F):
    """Take int32 for sums of products of bytes: processors do several of them in one instruction."""

    def of_bytes(row_F, query_F):
        total = np.int32(0)
        for k in range(query_F.shape[0]):
            total = np.int32(total + np.int32(row_F[k]) * np.int32(query_F[k]))
        return np.int64(total)

    def of_sums(row_F, query_F):
        total = np.int64(0)
        for k in range(query_F.shape[0]):
            total += np.int64(row_F[k]) * np.int64(query_F[k])
        return total

    return of_bytes if (row_F.dtype, query_F.dtype) == (types.int8, types.int16) else of_sums


@njit(cache=True, parallel=True)
def _sum_blocks(features_NF, counts_V, nodes, deepest, num_blocks, block_size, sums_VF):
    for part in prange(CHUNKS):
        for i in range(part * nodes.shape[0] // CHUNKS, (part + 1) * nodes.shape[0] // CHUNKS):
            node = nodes[i]
            first = first_class(node, deepest, num_blocks, block_size)
            sums_VF[node, :] = 0
            for c in range(first, first + counts_V[node]):
                add(features_NF[c], sums_VF[node])


@njit(cache=True, parallel=True)
def sorted_uniforms(seed, step, num_rows, num_draws):
    """Return uniform numbers in [0, 1), (num_rows * num_draws,) float64, each row's in ascending order."""
    keys = np.empty(num_rows * num_draws, dtype=np.float64)
    for part in prange(CHUNKS):
        for row in range(part * num_rows // CHUNKS, (part + 1) * num_rows // CHUNKS):
            stream = rng.stream(seed, rng.SAMPLE, step, row)
            mine = keys[row * num_draws : (row + 1) * num_draws]
            for draw in range(num_draws):
                mine[draw] = rng.unit(rng.word(stream, draw))
            mine.sort()
    return keys


# An entry of a level has a query, a node, its first class and mass, and the range of the query's keys that reached it;
# also the probability that a draw reaches it, and the part of [0, 1) whose draws do.
_QUERY, _NODE, _FIRST, _MASS, _BEGIN, _END = range(6)
_PROBABILITY, _LOW, _HIGH = range(3)


_PANEL = 32  # queries that go down together: with more, the lists of a level take more memory and nothing is faster


@njit(cache=True, inline="always")
def _enter(whole, real, query, node, first, mass, begin, end, probability, low, high):
    whole[_QUERY], whole[_NODE], whole[_FIRST], whole[_MASS] = query, node, first, mass
    whole[_BEGIN], whole[_END] = begin, end
    real[_PROBABILITY], real[_LOW], real[_HIGH] = probability, low, high


@njit(cache=True, inline="always")
def _prefetch(features_NF, sums_VF, counts_V, num_blocks, whole):
    """Prefetch what an entry will read: its left child's sum, or its block of classes."""
    node = whole[_NODE]
    if node < num_blocks:
        prefetch_row(sums_VF, 2 * node)
    else:
        for c in range(whole[_FIRST], whole[_FIRST] + counts_V[node]):
            prefetch_row(features_NF, c)


@njit(cache=True)
def _choose_in_block(
    features_NF, count, floor, query_F, whole, real, weights, keys_X, drawing, ids_X, probability_X
):  # fmt: skip
    """Give each key of an entry one of the ``count`` classes of its block, and that class's probability."""
    first, key, end, low, high = whole[_FIRST], whole[_BEGIN], whole[_END], real[_LOW], real[_HIGH]
    total = np.int64(0)
    for c in range(count):
        weights[c] = max(_dot(features_NF[first + c], query_F), floor)
        total += weights[c]
    below = np.int64(0)
    for c in range(count):
        below += weights[c]
        bound = low + (high - low) * (below / total) if drawing else np.float64(first + c + 1)
        while key < end and (keys_X[key] < bound or c == count - 1):
            ids_X[key] = first + c
            probability_X[key] = real[_PROBABILITY] * (weights[c] / total)
            key += 1


@njit(cache=True, parallel=True)
def _descend(
    features_NF, sums_VF, counts_V, num_blocks, block_size, floor, queries_BF, keys_X, indptr_B1, drawing,
    ids_X, probability_X,
):  # fmt: skip
    """Send each query's ascending keys down the tree, level by level and from left to right.

    A query evaluates a node once, and a node is read once for all queries of a panel that reach it. drawing: keys are
    uniform numbers, and the ids of the classes that they fall on are written; otherwise keys are the class ids. Either
    way the probabilities of the classes are written, by the same arithmetic.
    """
    num_queries = queries_BF.shape[0]
    panel = max(1, min(_PANEL, -(-num_queries // CHUNKS)))
    widest = 0
    for query in range(num_queries):
        widest = max(widest, indptr_B1[query + 1] - indptr_B1[query])
    widest = min(widest, num_blocks) * panel  # nodes of a level have blocks of their own
    for part in prange(CHUNKS):
        wholes = np.empty((2, widest, 6), dtype=np.int64)
        reals = np.empty((2, widest, 3), dtype=np.float64)
        weights = np.empty(block_size, dtype=np.int64)
        last = (part + 1) * num_queries // CHUNKS
        for first_query in range(part * num_queries // CHUNKS, last, panel):
            now, size = 0, 0
            for query in range(first_query, min(first_query + panel, last)):
                if indptr_B1[query] < indptr_B1[query + 1]:
                    mass = _dot(sums_VF[1], queries_BF[query])
                    _enter(
                        wholes[0, size], reals[0, size], query, 1, 0, mass, indptr_B1[query], indptr_B1[query + 1],
                        1.0, 0.0, 1.0,
                    )  # fmt: skip
                    size += 1
            while size > 0:
                following, after, start = 1 - now, 0, 0
                while start < size:  # entries of a node stand together, from start to stop
                    node, stop = wholes[now, start, _NODE], start + 1
                    while stop < size and wholes[now, stop, _NODE] == node:
                        stop += 1
                    if stop < size:
                        _prefetch(features_NF, sums_VF, counts_V, num_blocks, wholes[now, stop])
                    if node >= num_blocks:
                        for entry in range(start, stop):
                            _choose_in_block(
                                features_NF, counts_V[node], floor, queries_BF[wholes[now, entry, _QUERY]],
                                wholes[now, entry], reals[now, entry], weights, keys_X, drawing, ids_X, probability_X,
                            )  # fmt: skip
                        start = stop
                        continue
                    left, right = 2 * node, 2 * node + 1
                    waiting = start  # the right child's entries wait in the places of those that were read
                    for entry in range(start, stop):
                        whole, real = wholes[now, entry], reals[now, entry]
                        query, first, begin, end = whole[_QUERY], whole[_FIRST], whole[_BEGIN], whole[_END]
                        probability, low, high = real[_PROBABILITY], real[_LOW], real[_HIGH]
                        left_mass = _dot(sums_VF[left], queries_BF[query])
                        right_mass = whole[_MASS] - left_mass
                        left_clamped = np.float64(max(left_mass, floor * counts_V[left]))
                        right_clamped = np.float64(max(right_mass, floor * counts_V[right]))
                        both = left_clamped + right_clamped
                        middle_class = first + counts_V[left]
                        middle = low + (high - low) * (left_clamped / both)
                        bound = middle if drawing else np.float64(middle_class)
                        split = begin
                        while split < end and keys_X[split] < bound:
                            split += 1
                        if split > begin:
                            _enter(
                                wholes[following, after], reals[following, after], query, left, first, left_mass,
                                begin, split, probability * (left_clamped / both), low, middle,
                            )  # fmt: skip
                            after += 1
                        if split < end:
                            _enter(
                                wholes[now, waiting], reals[now, waiting], query, right, middle_class, right_mass,
                                split, end, probability * (right_clamped / both), middle, high,
                            )  # fmt: skip
                            waiting += 1
                    for entry in range(start, waiting):
                        wholes[following, after] = wholes[now, entry]
                        reals[following, after] = reals[now, entry]
                        after += 1
                    start = stop
                now, size = following, after


class SumTree(BlockTree):
    """Hold the int8 feature vectors ``features_NF`` and the tree of their sums.

    The owner fills ``features_NF`` and then calls ``update`` or ``rebuild``.
    """

    def __init__(self, num_classes: int, num_features: int, block_size: int) -> None:
        assert num_classes <= MOST_CLASSES
        assert num_features <= MOST_FEATURES
        super().__init__(num_classes, block_size)
        self.features_NF = np.zeros((num_classes, num_features), dtype=np.int8)
        self.sums_VF = np.zeros((2 * self.num_blocks, num_features), dtype=np.int32)

    def sum_blocks(self, nodes: np.ndarray) -> None:
        _sum_blocks(
            self.features_NF, self.counts_V, nodes, self.deepest, self.num_blocks, self.block_size, self.sums_VF
        )

    def draw(
        self, queries_BF: np.ndarray, num_draws: int, floor: int, seed: int, step: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw ``num_draws`` classes for each query; return them and their probabilities.

        Both are (B * num_draws,), int32 and float64; a query's classes ascend. ``queries_BF`` is int16 if it holds
        bytes, which is faster, and int32 if it holds sums of them. ``floor``: the least mass of a class.
        """
        keys = sorted_uniforms(seed, step, len(queries_BF), num_draws)
        indptr = np.arange(len(queries_BF) + 1, dtype=np.int64) * num_draws
        ids = np.empty(len(keys), dtype=np.int32)
        return ids, self._descend(queries_BF, keys, indptr, floor, ids)

    def probability(self, queries_BF: np.ndarray, ids_X: np.ndarray, indptr_B1: np.ndarray, floor: int) -> np.ndarray:
        """Return the probability that a draw takes each class, (X,) float64.

        The classes of query b are ``ids_X[indptr_B1[b] : indptr_B1[b + 1]]``, ascending.
        """
        return self._descend(queries_BF, ids_X.astype(np.float64), indptr_B1, floor, None)

    def _descend(
        self, queries_BF: np.ndarray, keys_X: np.ndarray, indptr_B1: np.ndarray, floor: int, ids_X: np.ndarray | None
    ) -> np.ndarray:
        probability = np.empty(len(keys_X))
        drawing = ids_X is not None
        ids = ids_X if ids_X is not None else np.empty(len(keys_X), dtype=np.int32)
        _descend(
            self.features_NF, self.sums_VF, self.counts_V, self.num_blocks, self.block_size, floor, queries_BF,
            keys_X, indptr_B1, drawing, ids, probability,
        )  # fmt: skip
        return probability

    @property
    def nbytes(self) -> int:
        """Return the bytes that features, sums and counts take."""
        return self.features_NF.nbytes + self.sums_VF.nbytes + self.counts_V.nbytes

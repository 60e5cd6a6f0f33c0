"""Draw classes by the quadratic kernel alpha (w . h)^2 + 1 in O(d^2 log(n / d)), from a tree of sums of outer products.

The kernel is linear in the products w_i w_j. So the mass of all classes below a node for a query h is

    alpha sum_ij h_i h_j S_ij + count,    S = sum of w w' over these classes,

of which the tree holds the upper triangle of S at every node (Blanc and Rendle 2018, section 3.2). A leaf is a block of
classes, which are weighed one by one. With d classes a block, the tree takes as much memory as the class matrix, and a
block costs as much to weigh as two nodes.

Sums are float32, and the mass of a node can differ from that of its children by rounding. A draw goes left with
probability left / (left + right) by the children's own masses, which are at least their numbers of classes. So the
stated probabilities are those of the draws as made, and sum to 1. A sum is always made anew from what is below it, so
that a refreshed tree equals a rebuilt one.

@inproceedings{blanc2018adaptive, title={Adaptive Sampled Softmax with Kernel Based Sampling}, author={Blanc, Guy and
Rendle, Steffen}, booktitle={ICML}, year={2018}}

Legend: N classes, D hidden size, F = D (D + 1) / 2 products, V nodes, U distinct classes, B queries, X classes of all
queries.
"""

import numpy as np
from numba import njit, prange

from runner import rng
from runner.kernels.groups import CHUNKS
from runner.kernels.rows import FAST
from runner.structures.block_tree import BlockTree, first_class

_LEAST_BLOCK = 16  # classes; smaller vectors are weighed faster than a node of the tree is visited


@njit(cache=True)
def _add_products(vector_D, sum_F):
    """Add the products w_i w_j, i <= j."""
    place = 0
    for i in range(vector_D.shape[0]):
        for j in range(i, vector_D.shape[0]):
            sum_F[place + j - i] += vector_D[i] * vector_D[j]
        place += vector_D.shape[0] - i


@njit(cache=True, parallel=True)
def _sum_blocks(vectors_ND, counts_V, nodes, deepest, num_blocks, block_size, sums_VF):
    for part in prange(CHUNKS):
        for i in range(part * nodes.shape[0] // CHUNKS, (part + 1) * nodes.shape[0] // CHUNKS):
            node = nodes[i]
            first = first_class(node, deepest, num_blocks, block_size)
            sums_VF[node, :] = 0
            for c in range(first, first + counts_V[node]):
                _add_products(vectors_ND[c], sums_VF[node])


@njit(cache=True, fastmath=FAST)
def _dot(a, b):
    total = np.float32(0.0)
    for k in range(a.shape[0]):
        total += a[k] * b[k]
    return total


@njit(cache=True)
def _write_query(hidden_D, out_F):
    """Write h_i h_j, twice where i < j, because the triangle holds such products once."""
    place = 0
    for i in range(hidden_D.shape[0]):
        out_F[place] = hidden_D[i] * hidden_D[i]
        for j in range(i + 1, hidden_D.shape[0]):
            out_F[place + j - i] = np.float32(2.0) * hidden_D[i] * hidden_D[j]
        place += hidden_D.shape[0] - i


@njit(cache=True, inline="always")
def _mass(node, sums_VF, counts_V, alpha, query_F, row, row_V, mass_V):
    """Return a node's mass for the query of ``row``, which is computed once and kept."""
    if row_V[node] != row:
        count = np.float64(counts_V[node])
        row_V[node] = row
        # In this order of the arguments, max keeps a mass that is not a number.
        mass_V[node] = max(alpha * np.float64(_dot(sums_VF[node], query_F)), 0.0) + count
    return mass_V[node]


@njit(cache=True)
def _weigh_block(vectors_ND, first, count, alpha, hidden_D, weights):
    total = 0.0
    for c in range(count):
        logit = np.float64(_dot(vectors_ND[first + c], hidden_D))
        weights[c] = alpha * logit * logit + 1.0
        total += weights[c]
    return total


@njit(cache=True, parallel=True)
def _descend(
    vectors_ND, sums_VF, counts_V, deepest, num_blocks, block_size, alpha, hidden_BD, indptr_B1, drawing, seed, step,
    ids_X, probability_X,
):  # fmt: skip
    """Send each query's draws down the tree (``drawing``), or follow the given classes; write the probabilities."""
    rows, dim = hidden_BD.shape
    for part in prange(CHUNKS):
        query_F = np.empty(dim * (dim + 1) // 2, dtype=np.float32)
        row_V = np.full(counts_V.shape[0], -1, dtype=np.int64)
        mass_V = np.empty(counts_V.shape[0], dtype=np.float64)
        weights = np.empty(block_size, dtype=np.float64)
        for row in range(part * rows // CHUNKS, (part + 1) * rows // CHUNKS):
            hidden_D = hidden_BD[row]
            _write_query(hidden_D, query_F)
            stream = rng.stream(seed, rng.SAMPLE, step, row)
            for x in range(indptr_B1[row], indptr_B1[row + 1]):
                unit = rng.unit(rng.word(stream, x - indptr_B1[row]))
                goal, depth = 1, 0
                if not drawing:
                    goal = ids_X[x] // block_size + deepest
                    if goal >= 2 * num_blocks:
                        goal -= num_blocks
                    while goal >> (depth + 1) > 0:
                        depth += 1
                node, probability = 1, 1.0
                while node < num_blocks:
                    left = _mass(2 * node, sums_VF, counts_V, alpha, query_F, row, row_V, mass_V)
                    right = _mass(2 * node + 1, sums_VF, counts_V, alpha, query_F, row, row_V, mass_V)
                    share = left / (left + right)
                    depth -= 1
                    goes_left = unit < share if drawing else (goal >> depth) & 1 == 0
                    if goes_left:
                        unit /= share
                        probability *= share
                        node = 2 * node
                    else:
                        other = right / (left + right)
                        unit = (unit - share) / other
                        probability *= other
                        node = 2 * node + 1
                first = first_class(node, deepest, num_blocks, block_size)
                count = counts_V[node]
                total = _weigh_block(vectors_ND, first, count, alpha, hidden_D, weights)
                if drawing:
                    left_over = unit * total
                    place = 0
                    while place < count - 1 and left_over >= weights[place]:
                        left_over -= weights[place]
                        place += 1
                    ids_X[x] = first + place
                probability_X[x] = probability * (weights[ids_X[x] - first] / total)


class OuterTree(BlockTree):
    """Hold the class vectors ``vectors_ND`` and the tree of sums of their outer products.

    The owner fills ``vectors_ND`` and then calls ``update`` or ``rebuild``. ``alpha``: weight of the squared logit.
    """

    def __init__(self, num_classes: int, dim: int, alpha: float) -> None:
        super().__init__(num_classes, max(dim, _LEAST_BLOCK))
        self.alpha = alpha
        self.vectors_ND = np.zeros((num_classes, dim), dtype=np.float32)
        self.sums_VF = np.zeros((2 * self.num_blocks, dim * (dim + 1) // 2), dtype=np.float32)

    def sum_blocks(self, nodes: np.ndarray) -> None:
        _sum_blocks(self.vectors_ND, self.counts_V, nodes, self.deepest, self.num_blocks, self.block_size, self.sums_VF)

    def draw(self, hidden_BD: np.ndarray, num_draws: int, seed: int, step: int) -> tuple[np.ndarray, np.ndarray]:
        """Draw ``num_draws`` classes for each query; return them and their probabilities.

        Both are (B * num_draws,), int32 and float64. Probabilities are 0 or not finite where masses overflow.
        """
        indptr_B1 = np.arange(len(hidden_BD) + 1, dtype=np.int64) * num_draws
        ids_X = np.zeros(int(indptr_B1[-1]), dtype=np.int32)
        return ids_X, self._descend(hidden_BD, indptr_B1, ids_X, seed=seed, step=step, drawing=True)

    def probability(self, hidden_BD: np.ndarray, ids_X: np.ndarray, indptr_B1: np.ndarray) -> np.ndarray:
        """Return the probability that a draw takes each class, (X,) float64.

        The classes of query b are ``ids_X[indptr_B1[b] : indptr_B1[b + 1]]``.
        """
        return self._descend(hidden_BD, indptr_B1, ids_X.astype(np.int32), seed=0, step=0, drawing=False)

    def _descend(
        self, hidden_BD: np.ndarray, indptr_B1: np.ndarray, ids_X: np.ndarray, *, seed: int, step: int, drawing: bool
    ) -> np.ndarray:
        probability_X = np.empty(len(ids_X))
        _descend(
            self.vectors_ND, self.sums_VF, self.counts_V, self.deepest, self.num_blocks, self.block_size, self.alpha,
            np.ascontiguousarray(hidden_BD), indptr_B1, drawing, seed, step, ids_X, probability_X,
        )  # fmt: skip
        return probability_X

    @property
    def nbytes(self) -> int:
        """Return the bytes that vectors, sums and counts take."""
        return self.vectors_ND.nbytes + self.sums_VF.nbytes + self.counts_V.nbytes

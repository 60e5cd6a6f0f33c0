"""Number the nodes of a binary tree whose leaves are blocks of classes, and keep a sum of vectors at every node.

Nodes are numbered as in a heap: the children of v are 2 v and 2 v + 1, and the blocks are the nodes from ``num_blocks``
on. For any number of blocks this is a full binary tree without empty places. From left to right, its blocks are those
of the deepest level, then those of the level above.

Legend: V nodes, U distinct classes, F numbers of a sum.
"""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numba import njit, prange

from runner.kernels.groups import CHUNKS


@njit(cache=True, inline="always")
def first_class(node, deepest, num_blocks, block_size):
    """Return the first class of a block; ``deepest``: the first node of the deepest level."""
    return (node - deepest if node >= deepest else node - deepest + num_blocks) * block_size


@njit(cache=True)
def add(row_F, sum_F):
    """Add one row to a sum, in place."""
    for k in range(sum_F.shape[0]):
        sum_F[k] += row_F[k]


@njit(cache=True, parallel=True)
def _sum_children(nodes, sums_VF):
    for part in prange(CHUNKS):
        for i in range(part * nodes.shape[0] // CHUNKS, (part + 1) * nodes.shape[0] // CHUNKS):
            node = nodes[i]
            sums_VF[node, :] = sums_VF[2 * node]
            add(sums_VF[2 * node + 1], sums_VF[node])


class BlockTree(ABC):
    """Hold how many classes lie below each node, ``counts_V`` int32, and the sums over them, ``sums_VF``.

    A sum is always made anew from what is below it, so a tree that was updated equals one that was rebuilt.
    """

    sums_VF: Any

    def __init__(self, num_classes: int, block_size: int) -> None:
        self.num_classes = num_classes
        self.block_size = block_size
        self.num_blocks = num_blocks = -(-num_classes // block_size)
        height = (2 * num_blocks - 1).bit_length() - 1
        self.deepest = 1 << height
        self.counts_V = np.zeros(2 * num_blocks, dtype=np.int32)
        block = np.arange(num_blocks)
        self.counts_V[self._node(block)] = np.minimum(block_size, num_classes - block * block_size)
        for level in range(height - 1, -1, -1):
            inner = np.arange(1 << level, min(2 << level, num_blocks))
            self.counts_V[inner] = self.counts_V[2 * inner] + self.counts_V[2 * inner + 1]

    def _node(self, block: np.ndarray) -> np.ndarray:
        node = block + self.deepest
        return np.where(node < 2 * self.num_blocks, node, node - self.num_blocks)

    @abstractmethod
    def sum_blocks(self, nodes: np.ndarray) -> None:
        """Compute the sums of these blocks from their classes."""

    def sum_children(self, nodes: np.ndarray) -> None:
        """Compute the sums of these nodes from those of their children."""
        _sum_children(nodes, self.sums_VF)

    def rebuild(self) -> None:
        """Compute all sums."""
        self.update(np.arange(self.num_classes))

    def update(self, rows_U: np.ndarray) -> None:
        """Recompute the sums that contain these classes: blocks first, then upwards level by level."""
        level = self.deepest
        changed = np.unique(self._node(rows_U // self.block_size))
        self.sum_blocks(changed)
        while level > 1:
            deep = changed >= level
            parents = np.unique(changed[deep] >> 1)
            self.sum_children(parents)
            changed = np.union1d(parents, changed[~deep])
            level >>= 1

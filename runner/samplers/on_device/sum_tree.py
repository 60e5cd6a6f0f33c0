"""Compute random Fourier features and draw from a tree of their sums on a device, with the bits of ``structures``.

All draws go down the tree together, a level at a time.

Legend: R vectors, H their dimension, W that rounded up to a power of two, D frequencies, F features, V nodes, U chosen
nodes or rows, C classes of a block, B queries, X draws, or pairs of a query and a class, of all queries.
"""

import numpy as np
import torch
from torch import Tensor

from runner.kernels.math import SINE
from runner.output.torch.arrays import ids_of, tensor_of
from runner.samplers.on_device.hashing import hadamard
from runner.structures.block_tree import BlockTree
from runner.structures.features import RandomFourier

_ELEMENTS = 2**24  # numbers of nodes or of classes that are multiplied at a time


class TorchFourier:
    """Map vectors to the features of a ``RandomFourier``: sums are taken in its order."""

    def __init__(self, fourier: RandomFourier, device: torch.device) -> None:
        self.fourier, self.device = fourier, device
        if fourier.kind == "plain":
            self._frequencies_HD = tensor_of(fourier.frequencies_HD, device)
        else:
            self._flips = tensor_of(fourier.flips.transpose(1, 0, 2), device)  # (rounds, blocks, W)
            self._norms_D = tensor_of(fourier.norms_D, device)

    def features(self, vectors_RH: Tensor) -> Tensor:
        """Return the features of the directions of vectors, (R, F) int8 (``RandomFourier.features``)."""
        square_R1 = vectors_RH.double().square().sum(1, keepdim=True)
        inverse_R1 = (1 / square_R1.sqrt()).float()
        has_direction_R1 = (square_R1 > 1e-60) & (square_R1 < torch.inf)
        unit_RH = torch.where(has_direction_R1, vectors_RH * inverse_R1, 0)
        turns_RD = self._plain(unit_RH) if self.fourier.kind == "plain" else self._orthogonal(unit_RH)
        return torch.cat([_waves(turns_RD), _waves(turns_RD - 0.25)], dim=1)

    def _plain(self, unit_RH: Tensor) -> Tensor:
        # A product would add in another order, and a feature is the nearest of 255 numbers: it may be the next one.
        turns_RD = unit_RH.new_zeros((len(unit_RH), self.fourier.D))
        for unit_R, frequency_D in zip(unit_RH.t(), self._frequencies_HD, strict=True):
            turns_RD += unit_R[:, None] * frequency_D
        return turns_RD

    def _orthogonal(self, unit_RH: Tensor) -> Tensor:
        padded_RW = torch.nn.functional.pad(unit_RH, (0, self._flips.shape[2] - unit_RH.shape[1]))
        projections = padded_RW[:, None, :]
        for flips in self._flips:
            projections = hadamard(projections * flips)
        return projections.flatten(1)[:, : self.fourier.D] * self._norms_D


def _waves(turns_RD: Tensor) -> Tensor:
    """Return round(127 cos(2 pi turns)), int8 (``kernels.math.cos_of_turns``)."""
    y = 0.25 - (turns_RD - (turns_RD + 0.5).floor()).abs()
    z = y * y
    highest, *others = (float(factor) for factor in reversed(SINE))
    p = torch.full_like(z, highest)
    for factor in others:
        p = p * z + factor
    return (p * y * 127 + 0.5).floor().to(torch.int8)


class TorchSumTree(BlockTree):
    """Hold the features of all classes and the tree of their sums (``structures.sum_tree.SumTree``)."""

    def __init__(self, num_classes: int, num_features: int, block_size: int, device: torch.device) -> None:
        super().__init__(num_classes, block_size)
        self.device = device
        self.features_NF = torch.zeros((num_classes, num_features), dtype=torch.int8, device=device)
        self.sums_VF = torch.zeros((2 * self.num_blocks, num_features), dtype=torch.int32, device=device)
        self._held_V = ids_of(self.counts_V, device)
        self._class_C = torch.arange(block_size, device=device)

    def _first_class(self, node: Tensor) -> Tensor:
        block = torch.where(node >= self.deepest, node - self.deepest, node - self.deepest + self.num_blocks)
        return block * self.block_size

    def sum_blocks(self, nodes: np.ndarray) -> None:
        """Compute the sums of these blocks from their classes."""
        at_once = max(1, _ELEMENTS // (self.block_size * self.features_NF.shape[1]))
        for node_U in ids_of(nodes, self.device).split(at_once):
            class_UC = self._first_class(node_U)[:, None] + self._class_C
            is_held_UC = self._class_C < self._held_V[node_U, None]
            features_UCF = self.features_NF[class_UC.clamp_max_(self.num_classes - 1)] * is_held_UC[:, :, None]
            self.sums_VF[node_U] = features_UCF.sum(1, dtype=torch.int32)

    def sum_children(self, nodes: np.ndarray) -> None:
        """Compute the sums of these nodes from those of their children."""
        node_U = ids_of(nodes, self.device)
        self.sums_VF[node_U] = self.sums_VF[2 * node_U] + self.sums_VF[2 * node_U + 1]

    # ------------------------------------------------------------ walks down the tree

    def walk(
        self, queries_BF: Tensor, row_X: Tensor, key_X: Tensor, floor: int, *, draws: bool
    ) -> tuple[Tensor, Tensor]:
        """Return the class that each walk ends at, and the probability that a draw ends there, (X,) float64.

        ``queries_BF``: int64. ``draws``: keys are uniform numbers in [0, 1), else classes.
        """
        if self.num_blocks == 1:
            return self._choose(queries_BF, row_X, key_X, floor, draws=draws)
        at_once = max(1, _ELEMENTS // (self.block_size * queries_BF.shape[1]))
        parts = [
            self._walk(queries_BF[row_x], key_x, floor, draws=draws)
            for row_x, key_x in zip(row_X.split(at_once), key_X.split(at_once), strict=True)
        ]
        ids_X, probability_X = (torch.cat(kind) for kind in zip(*parts, strict=True))
        return ids_X, probability_X

    def _walk(self, query_xF: Tensor, key_x: Tensor, floor: int, *, draws: bool) -> tuple[Tensor, Tensor]:
        node_x = torch.ones_like(key_x, dtype=torch.int64)
        first_x = torch.zeros_like(node_x)
        probability_x, low_x, high_x = (torch.full_like(key_x, value, dtype=torch.float64) for value in (1, 0, 1))
        mass_x = (query_xF * self.sums_VF[1]).sum(1)
        for _ in range(self.deepest.bit_length() - 1):
            is_inner_x = node_x < self.num_blocks
            left_x = torch.where(is_inner_x, 2 * node_x, 0)
            left_mass_x = (query_xF * self.sums_VF[left_x]).sum(1)
            right_mass_x = mass_x - left_mass_x
            left_held_x, right_held_x = self._held_V[left_x], self._held_V[left_x + 1]
            left_share_x = torch.maximum(left_mass_x, floor * left_held_x).double()
            right_share_x = torch.maximum(right_mass_x, floor * right_held_x).double()
            both_x = left_share_x + right_share_x
            middle_class_x = first_x + left_held_x
            middle_x = low_x + (high_x - low_x) * (left_share_x / both_x)
            to_left_x = key_x < (middle_x if draws else middle_class_x)
            share_x = torch.where(to_left_x, left_share_x, right_share_x) / both_x
            probability_x = torch.where(is_inner_x, probability_x * share_x, probability_x)
            high_x = torch.where(is_inner_x & to_left_x, middle_x, high_x)
            low_x = torch.where(is_inner_x & ~to_left_x, middle_x, low_x)
            first_x = torch.where(is_inner_x & ~to_left_x, middle_class_x, first_x)
            mass_x = torch.where(to_left_x, left_mass_x, right_mass_x)
            node_x = torch.where(is_inner_x, left_x + (~to_left_x).long(), node_x)
        held_x1 = self._held_V[node_x, None]
        class_xC = (first_x[:, None] + self._class_C).clamp_max_(self.num_classes - 1)
        weight_xC = (self.features_NF[class_xC] * query_xF[:, None, :]).sum(2).clamp_min_(floor)
        weight_xC = torch.where(self._class_C < held_x1, weight_xC, 0).double()
        below_xC = weight_xC.cumsum(1)
        total_x1 = below_xC[:, -1:]
        if draws:
            bound_xC = low_x[:, None] + (high_x - low_x)[:, None] * (below_xC / total_x1)
            place_x = ((key_x[:, None] >= bound_xC) & (self._class_C < held_x1 - 1)).sum(1)
        else:
            place_x = key_x - first_x
        share_x = (weight_xC.gather(1, place_x[:, None]) / total_x1)[:, 0]
        return first_x + place_x, probability_x * share_x

    def _choose(
        self, queries_BF: Tensor, row_X: Tensor, key_X: Tensor, floor: int, *, draws: bool
    ) -> tuple[Tensor, Tensor]:
        """Choose among all classes of a tree that is one block, whose masses are computed once for each query."""
        queries_BF, width = queries_BF.double(), max(1, _ELEMENTS // queries_BF.shape[1])
        weight_BN = torch.cat([queries_BF @ part.double().t() for part in self.features_NF.split(width)], dim=1)
        below_BN = weight_BN.clamp_min_(floor).cumsum(1)
        place_X = key_X
        if draws:
            bound_BN = (below_BN / below_BN[:, -1:])[:, :-1].contiguous()
            key_BM = key_X.reshape(len(queries_BF), -1)  # each query has as many draws
            place_X = torch.searchsorted(bound_BN, key_BM, right=True).reshape(-1)
        return place_X, weight_BN[row_X, place_X] / below_BN[row_X, -1]

    @property
    def nbytes(self) -> int:
        """Return the bytes that features, sums and counts take."""
        return self.features_NF.nbytes + self.sums_VF.nbytes + self.counts_V.nbytes

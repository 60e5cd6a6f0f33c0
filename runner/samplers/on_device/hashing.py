"""Keep hash tables of the class vectors on a device; hash functions and their order within buckets are the CPU's.

A rebuild hashes all classes, centred by their mean at that moment: products with all of them cost less than to know
which ones moved.

Legend: R vectors, D their size, L tables, V buckets of a table, J hashes of all tables, U classes of a block.
"""

from collections.abc import Mapping
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from runner import rng
from runner.output.torch import words
from runner.output.torch.arrays import array_of, ids_of, tensor_of
from runner.output.torch.layer import TorchLayer
from runner.structures.dwta import MAX_BORROWS, Dwta
from runner.structures.hash_index import family_of
from runner.structures.simhash import SimHash
from runner.structures.tables import visiting_order

_ELEMENTS = 2**24  # numbers that are hashed at a time: 64 MB


class Hashes(Protocol):
    """Hash vectors; ``numbers``: how many are in memory for each."""

    numbers: int

    def codes(self, vectors_RD: Tensor, *, may_wait: bool) -> Tensor:
        """Return the bucket of each vector in each table, (L, R) int32."""


class TorchSimHash:
    """Take the signs of ``SimHash``'s projections by the same sums in the same order, so that each has the same bits.

    A product with the matrix of all projections would round otherwise. Where few coordinates are not 0, some
    projections are sums of nothing, and rounding decides their signs.
    """

    def __init__(self, family: SimHash, dim: int, device: torch.device) -> None:
        self._shape = family.L, family.K
        self._flips = tensor_of(family.flips.transpose(1, 0, 2), device)  # (rounds, blocks, width)
        self.numbers = self._flips[0].numel()
        self._place_K = ids_of(2 ** np.arange(family.K - 1, -1, -1), device).int()

    def codes(self, vectors_RD: Tensor, *, may_wait: bool) -> Tensor:
        width = self._flips.shape[2]
        padded_RW = torch.nn.functional.pad(vectors_RD, (0, width - vectors_RD.shape[1]))
        projections = padded_RW[:, None, :]
        for flips in self._flips:
            projections = hadamard(projections * flips)
        tables, bits = self._shape
        bits_RLK = (projections.flatten(1)[:, : tables * bits] > 0).unflatten(1, self._shape)
        return (bits_RLK * self._place_K).sum(2, dtype=torch.int32).t()


def hadamard(values: Tensor) -> Tensor:
    """Transform the last dimension, a power of two, as ``kernels.hadamard`` does; the argument is overwritten."""
    spare, half = torch.empty_like(values), 1
    while half < values.shape[-1]:
        pairs, sums = (tensor.unflatten(-1, (-1, 2, half)) for tensor in (values, spare))
        torch.add(pairs[..., 0, :], pairs[..., 1, :], out=sums[..., 0, :])
        torch.sub(pairs[..., 0, :], pairs[..., 1, :], out=sums[..., 1, :])
        values, spare, half = spare, values, 2 * half
    return values


class TorchDwta:
    """Find ``Dwta``'s winners by gathering the coordinates of all bins."""

    def __init__(self, family: Dwta, device: torch.device) -> None:
        self._family = family
        bins, size = family.coordinates.shape
        self.numbers = bins * size
        self._coordinates = ids_of(family.coordinates.reshape(-1), device)
        bin_J1 = torch.arange(bins, device=device)[:, None]
        attempt = torch.arange(MAX_BORROWS, device=device)
        key_J1 = words.stream(family.seed, rng.HASH, 1, bin_J1, device)
        self._lenders = words.below(words.word(key_J1, attempt), bins).t().contiguous()

    def codes(self, vectors_RD: Tensor, *, may_wait: bool) -> Tensor:
        family = self._family
        values = vectors_RD[:, self._coordinates].unflatten(1, family.coordinates.shape)
        own_RJ = torch.where((values != 0).any(2), values.argmax(2), -1)
        winner_RJ = own_RJ
        if not may_wait or bool((own_RJ < 0).any()):
            for lender_J in self._lenders:
                winner_RJ = torch.where(winner_RJ < 0, own_RJ[:, lender_J], winner_RJ)
        # A vector of zeros has no winner to borrow: all its bins take position 0.
        winner_RLK = winner_RJ.clamp_min(0).unflatten(1, (family.L, family.K))
        place_K = torch.arange(family.K - 1, -1, -1, device=winner_RJ.device) * family.bits
        code_RL = (winner_RLK << place_K).sum(2)
        if family.mask:
            code_RL = words.mix(code_RL) & int(family.mask)
        return code_RL.int().t()


class TablesOnDevice:
    """Hold the codes of all classes, and the classes of every bucket (``structures.tables.BucketTables``).

    ``codes`` and ``members`` (L, R), ``start`` (L, V + 1), all int32. ``largest``: the size of the largest bucket.
    """

    def __init__(self, codes: Tensor, code_bits: int, seed: int) -> None:
        self.codes = codes
        self.start = codes.new_zeros((len(codes), (1 << code_bits) + 1))
        self.members = torch.zeros_like(codes)
        self._visit_R = ids_of(visiting_order(codes.shape[1], seed), codes.device)
        self.largest = 0

    def build(self) -> None:
        """Sort all classes into buckets by their codes; this waits for the device, to learn the largest size."""
        visit_R = self._visit_R
        bucket_V1 = torch.arange(self.start.shape[1], dtype=torch.int32, device=self.codes.device)
        for codes_R, start_V1, members_R in zip(self.codes, self.start, self.members, strict=True):
            sorted_R, order_R = codes_R[visit_R].sort(stable=True)
            start_V1.copy_(torch.searchsorted(sorted_R, bucket_V1))
            members_R.copy_(visit_R[order_R])
        self.largest = int((self.start[:, 1:] - self.start[:, :-1]).max())

    @property
    def nbytes(self) -> int:
        """Return the bytes that codes and buckets take."""
        return self.codes.nbytes + self.start.nbytes + self.members.nbytes


class HashIndexOnDevice:
    """Hold the tables of all classes and keep them up to date (``structures.hash_index.HashIndex``)."""

    def __init__(
        self, layer: TorchLayer, *, family: str, K: int, L: int, bin_size: int, center: bool, seed: int
    ) -> None:
        self.layer, self._centers = layer, center
        rows, dim = layer.num_classes, layer.dim
        kind = family_of(family, rows=rows, dim=dim, K=K, L=L, bin_size=bin_size, seed=seed)
        self._hashes: Hashes
        if isinstance(kind, SimHash):
            self._hashes = TorchSimHash(kind, dim, layer.device)
        else:
            self._hashes = TorchDwta(kind, layer.device)
        self._code_dtype = np.uint16 if kind.code_bits <= 16 else np.uint32
        codes = torch.zeros((L, rows), dtype=torch.int32, device=layer.device)
        self.tables = TablesOnDevice(codes, kind.code_bits, seed)
        self.rehashed_rows = 0
        self.last_build = 0
        self._center_D = torch.zeros(dim, device=layer.device)
        self.rebuild(0)

    def codes_of(self, query_BD: Tensor) -> Tensor:
        """Return the bucket of each query in each table, (L, B) int64."""
        return self._hashes.codes(query_BD, may_wait=False).long()

    def rebuild(self, step: int) -> None:
        """Hash all classes, with their vectors at the end of ``step``, and sort them into buckets."""
        layer, rows = self.layer, self.layer.num_classes
        layer.read(None, step + 1)
        part = layer.part
        if self._centers:
            sums_D = part.rows_of(slice(part.hi - part.lo)).sum(0, dtype=torch.float64)
            self._center_D = (layer.across.sum(sums_D) / rows).float()

        codes_LR = layer.of_classes(None, self._codes_of_held, axis=1)
        if codes_LR is not self.tables.codes:
            self.tables.codes.copy_(codes_LR)
        self.rehashed_rows += rows
        self.tables.build()
        self.last_build = step

    def _codes_of_held(self, rows_U: None) -> Tensor:
        """Return the codes of all vectors that are held here, (L, R); those of all classes lie in the tables."""
        part, codes_LR = self.layer.part, self.tables.codes
        if not part.held.is_all:
            sent_as = torch.uint16 if self._code_dtype == np.uint16 else torch.int32
            codes_LR = codes_LR.new_empty((len(codes_LR), part.hi - part.lo), dtype=sent_as)
        for rows in part.blocks_of_rows(rows_U, max(1, _ELEMENTS // self._hashes.numbers)):
            codes_LR[:, rows] = self._hashes.codes(part.rows_of(rows) - self._center_D, may_wait=True)
        return codes_LR

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return the codes and their centre; buckets are rebuilt from the codes."""
        return {
            "codes": array_of(self.tables.codes).astype(self._code_dtype),
            "center": array_of(self._center_D),
            "built": np.array([self.rehashed_rows, self.last_build], dtype=np.int64),
        }

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore what ``state_dict`` returned."""
        self.tables.codes.copy_(torch.from_numpy(state["codes"].astype(np.int32)))
        self._center_D = torch.tensor(state["center"], device=self.layer.device)
        self.rehashed_rows, self.last_build = (int(number) for number in state["built"])
        self.tables.build()

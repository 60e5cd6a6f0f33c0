"""Hash vectors by densified winner-take-all (Chen & Shrivastava, UAI 2018; LNS paper, section 3.3 and appendix A).

Each hash looks at a bin of ``bin_size`` randomly chosen coordinates and returns the position of the largest
(3 bits for 8); K hashes make a table's code. A bin whose coordinates are all zero (common in sparse ReLU activations)
borrows the winner of another bin, chosen by a fixed random order of bins. This is the densification.

@inproceedings{chen2018densified, title={Densified Winner Take All (DWTA) Hashing for Sparse Datasets},
author={Chen, Beidi and Shrivastava, Anshumali}, booktitle={UAI}, year={2018}}

Legend: R vectors, D their size, U chosen rows; the setting ``L`` is the number of tables.
"""

import numpy as np
from numba import njit, prange

from runner import rng
from runner.errors import require
from runner.kernels.groups import CHUNKS

MAX_BORROWS = 64


@njit(cache=True, inline="always")
def _winner(vector, coordinates, bin_index):
    """Return the position of the bin's largest coordinate (the first of equals), or -1 if all are exactly zero."""
    best, best_value, occupied = 0, np.float32(-np.inf), False
    for position in range(coordinates.shape[1]):
        value = vector[coordinates[bin_index, position]]
        occupied |= value != np.float32(0.0)
        if value > best_value:
            best_value = value
            best = position
    return best if occupied else -1


@njit(cache=True, parallel=True)
def _dwta(vectors, rows, shift, coordinates, hashes_per_table, bits, code_mask, seed, codes):
    tables = codes.shape[0]
    num_bins = tables * hashes_per_table
    for part in prange(CHUNKS):
        lo, hi = part * rows.shape[0] // CHUNKS, (part + 1) * rows.shape[0] // CHUNKS
        winners = np.empty(num_bins, dtype=np.int8)
        vector = np.empty(vectors.shape[1], dtype=np.float32)
        for i in range(lo, hi):
            for k in range(vector.shape[0]):
                vector[k] = vectors[rows[i], k] - shift[k]
            for bin_index in range(num_bins):
                winners[bin_index] = _winner(vector, coordinates, bin_index)
            for table in range(tables):
                code = np.uint64(0)
                for k in range(hashes_per_table):
                    bin_index = table * hashes_per_table + k
                    winner = winners[bin_index]
                    attempt = 0
                    while winner < 0 and attempt < MAX_BORROWS:
                        lender = rng.below(rng.word(rng.stream(seed, rng.HASH, 1, bin_index), attempt), num_bins)
                        winner = winners[lender]
                        attempt += 1
                    # A vector of zeros has no winner to borrow: all its bins take position 0.
                    code = (code << np.uint64(bits)) | np.uint64(max(winner, 0))
                if code_mask != np.uint64(0):
                    # The code has more bits than the table: fold it by a mixer, so that every bucket can be reached.
                    code = rng.mix(code) & code_mask
                codes[table, i] = code


class Dwta:
    """Hash vectors to K winner positions for each of L tables.

    Codes have K log2(bin_size) bits, folded to ``max_bits`` when there are more.
    """

    @staticmethod
    def check(K: int, bin_size: int) -> None:
        """Raise ConfigError unless K winners of such bins make a code of at most 60 bits."""
        require(bin_size in (2, 4, 8, 16, 32), "sampler.bin_size must be 2, 4, 8, 16 or 32")
        most = 60 // (bin_size.bit_length() - 1)
        require(1 <= K <= most, f"sampler.K must lie in [1, {most}] for dwta with bins of {bin_size}")

    def __init__(self, *, dim: int, K: int, L: int, seed: int, bin_size: int = 8, max_bits: int = 18) -> None:
        self.check(K, bin_size)
        require(bin_size <= dim, f"sampler.bin_size must be at most the hidden size, {dim}")
        bits = bin_size.bit_length() - 1
        self.K, self.L = K, L
        self.bits = bits
        self.seed = seed
        self.code_bits = min(K * bits, max_bits)
        self.mask = np.uint64((1 << self.code_bits) - 1 if K * bits > self.code_bits else 0)
        generator = rng.generator(seed, rng.HASH, 1)
        bins_per_permutation = dim // bin_size
        permutations = [
            generator.permutation(dim)[: bins_per_permutation * bin_size].reshape(-1, bin_size)
            for _ in range(-(-K * L // bins_per_permutation))
        ]
        self.coordinates = np.concatenate(permutations)[: K * L].astype(np.int32)

    def hash(
        self,
        vectors_RD: np.ndarray,
        rows_U: np.ndarray,
        shift_D: np.ndarray | None = None,
        out: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return the codes (L, U) of the given rows, each minus ``shift_D`` (None: 0).

        They are written to ``out`` if it is given, else to a new uint32 array.
        """
        shift = np.zeros(vectors_RD.shape[1], dtype=np.float32) if shift_D is None else shift_D
        codes = np.empty((self.L, len(rows_U)), dtype=np.uint32) if out is None else out
        _dwta(vectors_RD, rows_U, shift, self.coordinates, self.K, self.bits, self.mask, self.seed, codes)
        return codes

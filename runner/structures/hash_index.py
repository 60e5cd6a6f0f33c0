"""Keep L hash tables, each keyed by K concatenated hashes, over vectors that move; they are updated on demand.

Class samplers index the class matrix, samplers of examples their stored representations (``contracts.Vectors``).
A rebuild hashes the vectors that moved (LNS paper, Algorithm 5), or all of them if most have moved, and the tables take
those whose codes changed to their new buckets: sorting all vectors again would cost more than anything else of a step
that the tables follow, and with millions of vectors most of a training.

Legend: R vectors, D their size, L tables, U distinct rows, B queries.
"""

from collections.abc import Mapping

import numpy as np

from runner.contracts import Vectors
from runner.structures.dwta import Dwta
from runner.structures.simhash import SimHash
from runner.structures.tables import BucketTables

HASH_FAMILIES: dict[str, type[Dwta] | type[SimHash]] = {"dwta": Dwta, "simhash": SimHash}
_LOOK = 4  # the mean is looked at once more than this part of the vectors has moved
_CENTER_TOLERANCE = 0.1  # how far the mean may move from the hashing's centre, as a fraction of the vectors' spread


def family_of(name: str, *, rows: int, dim: int, K: int, L: int, bin_size: int, seed: int) -> Dwta | SimHash:
    """Return the hash functions of an index over so many vectors of ``dim`` coordinates."""
    if name == "simhash":
        return SimHash(dim=dim, K=K, L=L, seed=seed)
    # Four buckets a vector are enough; more would be empty and cost memory.
    max_bits = min(18, max(4, int(rows).bit_length() + 1))
    return Dwta(dim=dim, K=K, L=L, seed=seed, bin_size=bin_size, max_bits=max_bits)


class HashIndex:
    """Hold the tables of all vectors and keep them up to date.

    ``center``: hash vectors minus their mean at the last time that all were hashed.
    """

    def __init__(
        self, vectors: Vectors, *, family: str, K: int, L: int, bin_size: int, center: bool, seed: int
    ) -> None:
        self.vectors = vectors
        self._centers = center
        rows, dim = vectors.shape
        self.num_rows = rows
        self.family = family_of(family, rows=rows, dim=dim, K=K, L=L, bin_size=bin_size, seed=seed)
        self.tables = BucketTables(L=L, num_rows=rows, code_bits=self.family.code_bits, seed=seed)
        self.rehashed_rows = 0
        self.last_build = 0
        self._moved = 0  # how many vectors moved since the mean was looked at
        self.center_D = np.zeros(dim, dtype=np.float32)
        self._rehash_all()
        self.tables.build()

    def codes_of(self, query_BD: np.ndarray) -> np.ndarray:
        """Return the bucket of each query in each table, (L, B) uint32."""
        return self.family.hash(query_BD, np.arange(len(query_BD), dtype=np.int32))

    def rebuild(self, step: int) -> None:
        """Hash the vectors that moved since the last rebuild, or all of them, and bring the buckets up to the codes.

        All are hashed if most have moved, as that is cheaper in bulk, or if the mean has moved away from the centre of
        the last full hashing. The vectors are those at the end of ``step``.
        """
        moved_U = self.vectors.changed_since(self.last_build)
        self.last_build = step
        if 2 * len(moved_U) > self.num_rows or not self._center_holds(len(moved_U)):
            self.vectors.bring_up(None, step)
            self._rehash_all()
            self.tables.build()
            return
        self.vectors.bring_up(moved_U, step)
        codes_LU = self.vectors.of_rows(moved_U, self._codes, axis=1)
        self.rehashed_rows += len(moved_U)
        self.tables.change(moved_U, codes_LU)

    def _rehash_all(self) -> None:
        if self._centers:
            self.center_D[...] = self.vectors.column_sums() / self.num_rows
        codes_LR = self.vectors.of_rows(None, self._codes, axis=1)
        if codes_LR is not self.tables.codes:
            self.tables.codes[...] = codes_LR
        self.rehashed_rows += self.num_rows
        self._moved = 0

    def _codes(self, matrix: np.ndarray, places_U: np.ndarray) -> np.ndarray:
        """Return codes (L, U); those of all vectors are written where they belong."""
        codes = self.tables.codes
        out = codes if len(places_U) == self.num_rows else np.empty((len(codes), len(places_U)), dtype=codes.dtype)
        return self.family.hash(matrix, places_U, self.center_D, out=out)

    def _center_holds(self, moved: int) -> bool:
        """Tell whether the mean is still near the centre of the last full hashing, in units of the vectors' spread.

        Reading all vectors for it costs more than hashing few, so it is done once more than a quarter of them may have
        moved. ``moved``: how many moved since the last call.
        """
        self._moved += moved
        if not self._centers or 0 < _LOOK * self._moved <= self.num_rows:
            return True
        self._moved = 0
        mean_D = (self.vectors.column_sums() / self.num_rows).astype(np.float32)
        some = self.vectors.rows(np.arange(0, self.num_rows, max(1, self.num_rows // 1000), dtype=np.int32))
        spread = np.square(some - mean_D).sum(axis=1).mean()
        return bool(np.square(mean_D - self.center_D).sum() <= _CENTER_TOLERANCE**2 * spread)

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return the codes, their centre and the state of the vectors; buckets follow from the codes."""
        return {
            "codes": self.tables.codes,
            "center": self.center_D,
            "built": np.array([self.rehashed_rows, self.last_build, self._moved], dtype=np.int64),
            **self.vectors.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore what ``state_dict`` returned."""
        self.tables.codes[...] = state["codes"]
        self.center_D[...] = state["center"]
        self.vectors.load_state_dict(state)
        self.rehashed_rows, self.last_build, self._moved = (int(number) for number in state["built"])
        self.tables.build()

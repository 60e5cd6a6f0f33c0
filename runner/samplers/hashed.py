"""Hash tables that follow the class matrix: what every LSH sampler stands on.

Class vectors lie in L tables keyed by K concatenated hashes (LNS paper, Algorithm 2). After a step the touched classes
are remembered; when a refresh is due, those that moved are hashed again (Algorithm 5) and all are sorted into buckets.

Legend: N classes, D hidden size, L tables, U distinct rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from numba import njit

from runner import rng
from runner.contracts import Query
from runner.errors import require
from runner.kernels.dense import column_sums
from runner.samplers.base import Sampler, SamplerConfig
from runner.structures import HASH_FAMILIES, BucketTables, Dwta, SimHash

if TYPE_CHECKING:
    from runner.heads.output_layer import OutputLayer

_CENTER_TOLERANCE = 0.1  # how far the mean may leave the hashing's centre, as a share of the vectors' distance from it


@njit(cache=True, inline="always")
def window_of_bucket(start, table, code, bucket_cap, key):
    """Begin and size of a bucket, and where in it to start reading.

    A full bucket is read as a window at a random place, so that each member is as likely.
    """
    begin = np.int64(start[table, code])
    size = np.int64(start[table, code + 1]) - begin
    offset = np.int64(0)
    if size > bucket_cap:
        offset = rng.below(rng.word(key, -1 - table), size)
    return begin, size, offset


@njit(cache=True, inline="always")
def draw_outside(ids, length, goal, num_classes, count, key):
    """Append classes drawn uniformly without replacement from those with count 0, until there are ``goal``.

    ``ids[:length]`` are those with a count; drawn ones get one, which the caller takes back. Returns goal.
    """
    draw = 0
    if 2 * goal > num_classes:
        # Rejection would be slow: walk the classes outside once, keeping a uniform subset.
        left = num_classes - length
        for candidate in range(num_classes):
            if count[candidate] == 0:
                if rng.unit(rng.word(key, draw)) * left < goal - length:
                    ids[length] = candidate
                    length += 1
                left -= 1
                draw += 1
    while length < goal:
        candidate = rng.below(rng.word(key, draw), num_classes)
        draw += 1
        if count[candidate] == 0:
            count[candidate] = 1
            ids[length] = candidate
            length += 1
    return length


@dataclass(frozen=True, kw_only=True)
class HashedConfig(SamplerConfig):
    """The tables and when they follow the weights.

    hash: ``simhash`` (K sign bits) or ``dwta`` (K winners among ``bin_size`` coordinates).
    center: hash class vectors minus their mean. The mean adds the same to every logit, so the softmax does not see it,
    but training makes it large and then all vectors look alike to a hash of angles. A normalised layer's logits are
    cosines, which the mean does change: there vectors are hashed as they are.
    refresh_period: steps until the tables are first rebuilt; each following interval is refresh_growth times longer.
    """

    random_tables: ClassVar[bool] = True
    K: int = 9
    L: int = 50
    hash: Literal["simhash", "dwta"] = "simhash"
    bin_size: int = 8
    center: bool = True
    refresh_period: int = 50
    refresh_growth: float = 1.1

    def __post_init__(self) -> None:
        HASH_FAMILIES[self.hash].check(self.K, self.bin_size)
        if self.hash == "simhash":  # dwta folds its codes to the number of classes, simhash does not
            require(self.L * 2**self.K <= 2**28, "sampler.L times 2^sampler.K must be at most 2^28 buckets (1 GB)")
        require(1 <= self.L <= 4096, "sampler.L must lie in [1, 4096]")
        require(self.refresh_period >= 1, "sampler.refresh_period must be at least 1 step")
        require(self.refresh_growth >= 1, "sampler.refresh_growth must be at least 1")


class Hashed(Sampler):
    """Tables of all class vectors and their maintenance; subclasses draw from them."""

    def __init__(self, config: HashedConfig, layer: "OutputLayer", seed: int) -> None:
        self.config = config
        self.layer = layer
        self.num_classes = num_classes = layer.num_classes
        self._centers = config.center and layer.scale is None
        self.seed = seed
        # Four buckets a class are plenty; more would be empty and cost memory.
        max_bits = min(18, max(4, int(num_classes).bit_length() + 1))
        family = HASH_FAMILIES[config.hash]
        options = {"max_bits": max_bits, "bin_size": config.bin_size} if family is Dwta else {}
        self.family: Dwta | SimHash = family(dim=layer.dim, K=config.K, L=config.L, seed=seed, **options)
        self.tables = BucketTables(L=config.L, num_rows=num_classes, code_bits=self.family.code_bits)
        self.refreshes = 0
        self.rehashed_rows = 0
        self.last_refresh = 0
        self.next_refresh = float(config.refresh_period)
        self._center_D = np.zeros(layer.dim, dtype=np.float32)
        self._touched_step = np.zeros(num_classes, dtype=np.int32)
        self._rehash_all()
        self._sort(0)

    def _sort(self, step: int) -> None:
        """All classes into buckets, in an order within a bucket that is fresh at every step that does so."""
        self.tables.build(self.seed, step)
        self.last_refresh = step

    def hidden_codes(self, query: Query) -> np.ndarray:
        """(L, B) uint32: the buckets that the hidden states fall into."""
        return self.family.hash(query.hidden_BD, np.arange(query.num_rows, dtype=np.int32))

    def note_touched(self, rows_U: np.ndarray, step: int) -> None:
        """Remember that a step updated these classes."""
        self._touched_step[rows_U] = step

    def refresh(self, query: Query, step: int, touched_U: np.ndarray) -> bool:
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
        self._sort(step)

    def _rehash_all(self) -> None:
        weights = self.layer.table.weights
        if self._centers:
            column_sums(weights, self._center_D)
            self._center_D /= np.float32(self.num_classes)
        rows = np.arange(self.num_classes, dtype=np.int32)
        self.family.hash(weights, rows, self._center_D, out=self.tables.codes)
        self.rehashed_rows += self.num_classes

    def _center_holds(self) -> bool:
        """Whether the mean is still near the centre of the last full hashing, in units of the vectors' spread."""
        if not self._centers:
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
        self.refreshes, self.rehashed_rows = int(refreshes), int(rehashed)
        # Members are a function of the codes and the step of the last build.
        self._sort(int(last))

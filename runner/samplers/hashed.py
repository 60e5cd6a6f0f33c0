"""Keep hash tables that follow the class matrix; every LSH sampler is built on them.

L tables, each keyed by K concatenated hashes, hold the class vectors (LNS paper, Algorithm 2;
``structures.hash_index``). The sampler remembers the classes that each step touched. When a refresh is due, it moves
those that changed to their new buckets (Algorithm 5).

Legend: L tables, B rows of a batch, D hidden size, U distinct classes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numba import njit

from runner import rng
from runner.contracts import Query
from runner.errors import require
from runner.options.fields import option
from runner.output.layer import Layer
from runner.samplers.base import Sampler, SamplerConfig
from runner.structures.class_rows import ClassRows
from runner.structures.hash_index import HASH_FAMILIES, HashIndex
from runner.structures.refresh_schedule import RefreshSchedule
from runner.structures.tables import BucketTables

_LEAST_IN_BUCKET = 20  # classes on average, where K is to suit their number


@njit(cache=True, inline="always")
def window_of_bucket(start, table, code, max_per_bucket, key):
    """Return a bucket's begin and size, and the offset in it at which to start reading.

    Of a bucket above the cap only a window is read. It starts at a random place, so every member is equally likely.
    """
    begin = np.int64(start[table, code])
    size = np.int64(start[table, code + 1]) - begin
    offset = np.int64(0)
    if size > max_per_bucket:
        offset = rng.below(rng.word(key, -1 - table), size)
    return begin, size, offset


@njit(cache=True, inline="always")
def draw_outside(ids, length, goal, num_classes, count, key):
    """Append classes drawn uniformly without replacement from those with count 0, until there are ``goal``.

    ``ids[:length]`` are the classes that have a count already. Drawn classes may get a count too; the caller resets
    the counts. Return ``goal``.
    """
    draw = 0
    if 2 * goal > num_classes:
        # Rejection would be slow: walk the classes with count 0 once and keep a uniform subset.
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


def log_count_outside(num_classes: int, inside_B: np.ndarray, tail: int) -> np.ndarray:
    """Return the log expected count of each class outside a row's retrieved set, (B,) float32; -inf if none is drawn.

    ``inside_B``: sizes of the retrieved sets. ``tail``: classes drawn from outside, by ``draw_outside``.
    """
    outside_B = num_classes - inside_B
    share_B = np.minimum(tail, outside_B) / np.maximum(outside_B, 1)
    with np.errstate(divide="ignore"):
        return np.log(share_B).astype(np.float32)


@dataclass(frozen=True, kw_only=True)
class HashedConfig(SamplerConfig):
    """Hold the options of the hash tables and of their refreshes.

    The mean of the class vectors adds the same number to every logit, so the softmax ignores it. But training makes the
    mean large, and a hash of angles then finds all vectors alike; ``center`` takes it away. In a normalised layer
    logits are cosines, which the mean does change: there vectors are hashed uncentred.
    """

    random_tables: ClassVar[bool] = True
    K: int | None = option(9, "hashes of a table", null="as many as leave 20 to 40 classes to a bucket (simhash)")
    L: int = option(50, "tables", low=1, high=4096)
    hash: Literal["simhash", "dwta"] = option(
        "simhash", "", choices={"simhash": "K signs of projections", "dwta": "K winners among bin_size coordinates"}
    )
    bin_size: int = option(8, "coordinates of a bin, for dwta")
    center: bool = option(True, "hash class vectors minus their mean, which the softmax ignores")
    refresh_every_steps: int = option(50, "steps until the first refresh of the tables", low=1)
    refresh_growth: float = option(1.1, "length of each interval between refreshes relative to the one before", low=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.K is None:
            require(self.hash == "simhash", "sampler.hash=dwta needs a number of hashes; sampler.K=null is for simhash")
        else:
            self._check_hashes(self.K)

    def _check_hashes(self, K: int) -> None:
        """Raise ConfigError unless tables of so many hashes can be built."""
        HASH_FAMILIES[self.hash].check(K, self.bin_size)
        if self.hash == "simhash":  # dwta folds its codes to fit the number of classes, simhash does not
            require(self.L * 2**K <= 2**28, "sampler.L times 2^sampler.K must be at most 2^28 buckets (1 GB)")

    def hashes_of(self, num_classes: int) -> int:
        """Return K, the hashes of a table over so many classes. Raises ConfigError if tables would be too large."""
        if self.K is not None:
            return self.K
        K = max(1, (num_classes // _LEAST_IN_BUCKET).bit_length() - 1)
        self._check_hashes(K)
        return K


class Hashed(Sampler):
    """Hold a hash index of the class matrix and its schedule of refreshes; subclasses draw from its tables."""

    def __init__(self, config: HashedConfig, layer: Layer, seed: int) -> None:
        self.config = config
        self.layer = layer
        self.seed = seed
        self.num_classes = layer.num_classes
        self.classes = ClassRows(layer)
        self.index = self._make_index()
        self.schedule = RefreshSchedule(config.refresh_every_steps, config.refresh_growth)

    def _make_index(self) -> HashIndex | Any:
        """Return the index of the class vectors as they stand, or one in tensors with its methods."""
        config = self.config
        return HashIndex(
            self.classes, family=config.hash, K=config.hashes_of(self.num_classes), L=config.L,
            bin_size=config.bin_size, center=self._centers, seed=self.seed,
        )  # fmt: skip

    @property
    def _centers(self) -> bool:
        """Tell whether vectors are hashed minus their mean."""
        return self.config.center and self.layer.scale is None

    @property
    def tables(self) -> BucketTables | Any:
        """Return the index's buckets, or tensors with their names."""
        return self.index.tables

    def hidden_codes(self, query: Query) -> np.ndarray:
        """Return the bucket of each hidden state in each table, (L, B) uint32."""
        return self.index.codes_of(query.hidden_BD)

    def note_touched(self, rows_U: np.ndarray, step: int) -> None:
        """Remember that a step updated these classes."""
        self.classes.note_touched(rows_U, step)

    def refresh(self, query: Query, step: int, touched_U: np.ndarray) -> bool:
        """Note the touched classes; rebuild the tables when the schedule says so."""
        self.note_touched(touched_U, step)
        if not self.schedule.comes_due(step):
            return False
        self.rebuild(step)
        return True

    def rebuild(self, step: int) -> None:
        """Bring the tables up to the class vectors at the end of ``step``."""
        self.index.rebuild(step)

    @property
    def statistics(self) -> dict[str, float]:
        return {
            "refreshes": self.schedule.count,
            "rehashed_rows": self.index.rehashed_rows,
            "table_mb": self.tables.nbytes / 2**20,
        }

    def state_dict(self) -> dict[str, np.ndarray]:
        schedule = np.array([self.schedule.count, self.schedule.next], dtype=np.float64)
        return {**self.index.state_dict(), "schedule": schedule}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        self.index.load_state_dict(state)
        count, self.schedule.next = state["schedule"].tolist()
        self.schedule.count = int(count)

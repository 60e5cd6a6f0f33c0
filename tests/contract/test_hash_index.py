"""A hash index works over vectors that are no class matrix: stored examples that change only on request."""

from collections.abc import Mapping

import numpy as np
import pytest

from runner.lgd.vectors import InMemory
from runner.structures.hash_index import HashIndex

R, D = 90, 12


class Stored(InMemory):
    """Stored vectors with the step of each one's last change, as a sampler of examples would keep them."""

    def __init__(self, seed: int = 0) -> None:
        self.matrix = np.random.default_rng(seed).standard_normal((R, D)).astype(np.float32)
        self.changed_R = np.zeros(R, dtype=np.int64)

    def change(self, rows_U: np.ndarray, step: int) -> None:
        self.matrix[rows_U] = np.random.default_rng(step).standard_normal((len(rows_U), D))
        self.changed_R[rows_U] = step

    def changed_since(self, step: int) -> np.ndarray:
        return np.flatnonzero(self.changed_R > step).astype(np.int32)

    def bring_up(self, rows_U: np.ndarray | None, step: int) -> None:
        """Do nothing, because stored vectors never lag."""

    def state_dict(self) -> dict[str, np.ndarray]:
        return {"changed": self.changed_R}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        self.changed_R[...] = state["changed"]


def index_of(vectors: Stored, family: str, center: bool = False) -> HashIndex:
    return HashIndex(vectors, family=family, K=4, L=5, bin_size=4, center=center, seed=7)


@pytest.mark.parametrize("family", ["simhash", "dwta"])
def test_rebuilding_what_changed_is_building_anew(family: str) -> None:
    vectors = Stored()
    index = index_of(vectors, family)
    few = np.array([3, 50, 89], dtype=np.int32)
    vectors.change(few, 4)
    index.rebuild(4)
    assert index.rehashed_rows == R + len(few), "only what changed is hashed again"
    whole = index_of(vectors, family)
    np.testing.assert_array_equal(index.tables.codes, whole.tables.codes)
    np.testing.assert_array_equal(index.tables.start, whole.tables.start)
    np.testing.assert_array_equal(index.tables.members, whole.tables.members)
    vectors.change(np.arange(60, dtype=np.int32), 9)
    index.rebuild(9)
    assert index.rehashed_rows == 2 * R + len(few), "most changed: all are hashed"
    fresh = index_of(vectors, family)
    np.testing.assert_array_equal(index.tables.codes, fresh.tables.codes)
    for table in range(5):
        for bucket in range(index.tables.start.shape[1] - 1):
            ours, theirs = (
                set(tables.members[table, tables.start[table, bucket] : tables.start[table, bucket + 1]].tolist())
                for tables in (index.tables, fresh.tables)
            )
            assert ours == theirs


def test_a_vector_finds_itself() -> None:
    vectors = Stored()
    index = index_of(vectors, "simhash")
    codes_LB = index.codes_of(vectors.matrix)
    np.testing.assert_array_equal(codes_LB, index.tables.codes)


def test_state_round_trip() -> None:
    vectors = Stored()
    index = index_of(vectors, "simhash", center=True)
    vectors.change(np.array([1, 2], dtype=np.int32), 3)
    index.rebuild(3)
    copy = Stored()
    copy.matrix[:] = vectors.matrix
    other = index_of(copy, "simhash", center=True)
    other.load_state_dict({name: array.copy() for name, array in index.state_dict().items()})
    np.testing.assert_array_equal(other.tables.members, index.tables.members)
    vectors.change(np.array([5], dtype=np.int32), 6)
    copy.change(np.array([5], dtype=np.int32), 6)
    for both in (index, other):
        both.rebuild(6)
    np.testing.assert_array_equal(other.tables.members, index.tables.members)
    assert other.rehashed_rows == index.rehashed_rows

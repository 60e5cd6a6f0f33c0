"""The generated log has the same bits for the same keys, and its next item follows from one of the last three."""

import dataclasses

import numpy as np
import pytest

from runner.data import SequencesDataset, SyntheticLogConfig
from runner.data.sequences.synthetic import USERS_AT_ONCE
from runner.errors import ConfigError

SMALL = SyntheticLogConfig(num_users=100, num_items=60, mean_length=12)


@pytest.fixture(scope="module")
def default(tmp_path_factory: pytest.TempPathFactory) -> SequencesDataset:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DATASETS_DIR", str(tmp_path_factory.mktemp("synthetic")))
        return SyntheticLogConfig().build()


def test_the_same_bits_on_every_machine(default: SequencesDataset) -> None:
    """If another configuration of processor or library changes this checksum, old and new runs do not compare."""
    assert default.checksum == "04d91a01c4300fe449b152d8cf038c58cd6e1d16f0ca9d9a265de20944588085"


def test_cached_and_changed_by_every_key(capsys: pytest.CaptureFixture[str]) -> None:
    first = SMALL.build()
    assert "generating" in capsys.readouterr().err
    named = dataclasses.replace(SMALL, name="mine", split="last_item").build()
    assert (named.name, named.checksum) == ("mine", first.checksum)
    assert (named.valid_end_U - named.train_end_U).tolist() == [1] * 100
    assert capsys.readouterr().err == "", "name and split do not change what is stored"
    changes = ({"num_users": 101}, {"num_items": 61}, {"mean_length": 13}, {"seed": 1})
    assert len({dataclasses.replace(SMALL, **change).build().checksum for change in changes} | {first.checksum}) == 5


def test_sizes(default: SequencesDataset) -> None:
    counts = np.diff(default.indptr_U1)
    assert (default.num_users, default.num_classes, len(default.item_names)) == (5000, 1000, 1000)
    assert (counts.min(), counts.max()) == (5, 45)
    assert counts.mean() == pytest.approx(25, abs=5 * 12 / np.sqrt(5000))  # five standard errors
    assert default.items_E.min() == 0
    assert default.items_E.max() < 1000
    assert (np.diff(np.unique(default.items_E, return_index=True)[1]) > 0).all(), "numbered by first appearance"
    assert len(set(default.item_names)) == 1000


def test_items_without_events_are_classes() -> None:
    dataset = SyntheticLogConfig(num_users=3, num_items=5000).build()
    assert dataset.num_classes == len(set(dataset.item_names)) == 5000
    assert dataset.items_E.max() + 1 == len(np.unique(dataset.items_E)) < 200


def test_more_users_than_a_chunk_keep_the_first() -> None:
    few = SyntheticLogConfig(num_users=USERS_AT_ONCE, num_items=60, mean_length=5).build()
    many = SyntheticLogConfig(num_users=USERS_AT_ONCE + 10, num_items=60, mean_length=5).build()
    assert many.num_users == USERS_AT_ONCE + 10
    assert np.array_equal(many.items_E[: len(few.items_E)], few.items_E)


def recall_at_10(dataset: SequencesDataset, lags: int) -> float:
    """Return how often a test item is among the ten that followed the user's last ``lags`` items most often.

    Item j back counts by what came j events later in training, with the share of steps that follow item j.
    """
    n, items = dataset.num_classes, dataset.items_E.astype(np.int64)
    begin_U, train_end_U, end_U = dataset.indptr_U1[:-1], dataset.train_end_U, dataset.indptr_U1[1:]
    trained = np.concatenate([np.arange(a, b) for a, b in zip(begin_U, train_end_U, strict=True)])
    user_E = np.repeat(np.arange(dataset.num_users), np.diff(dataset.indptr_U1))
    popularity_N = np.bincount(items[trained], minlength=n)
    tested = np.concatenate([np.arange(a, b) for a, b in zip(dataset.valid_end_U, end_U, strict=True)])
    score_BN = np.tile(1e-6 * popularity_N, (len(tested), 1))
    for lag, weight in zip(range(1, lags + 1), (0.5, 0.3, 0.2), strict=False):
        after = trained[trained >= lag]
        after = after[user_E[after] == user_E[after - lag]]
        followed_NN = np.bincount(items[after - lag] * n + items[after], minlength=n * n).reshape(n, n)
        score_BN += weight * followed_NN[items[tested - lag]]
    rank_B = (score_BN > score_BN[np.arange(len(tested)), items[tested]][:, None]).sum(axis=1)
    return float(np.mean(rank_B < 10))


def test_the_order_of_the_last_items_tells_more_than_the_last_and_that_more_than_popularity(
    default: SequencesDataset,
) -> None:
    popularity, last, three = (recall_at_10(default, lags) for lags in (0, 1, 3))
    assert popularity < 0.1
    assert last > popularity + 0.3
    assert three > last + 0.1


def test_users_seldom_take_an_item_twice(default: SequencesDataset) -> None:
    """Ranking leaves out the items that a user took before, so a test item of that kind could never be found."""
    user_E = np.repeat(np.arange(default.num_users), np.diff(default.indptr_U1))
    assert len(np.unique(user_E * 1000 + default.items_E)) > 0.999 * len(user_E)


@pytest.mark.parametrize(("keys", "says"), [
    ({"num_users": 0}, r"dataset\.num_users must lie in \[1, 100000000\]"),
    ({"num_items": 19}, r"dataset\.num_items must lie in \[20, 10000000\]"),
    ({"mean_length": 4}, r"dataset\.mean_length must lie in \[5, 10000\]"),
    ({"seed": -1}, r"dataset\.seed must lie in"),
])  # fmt: skip
def test_out_of_range_values(keys: dict, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        SyntheticLogConfig(**keys)

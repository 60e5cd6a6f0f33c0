"""The generated log has the same bits for the same keys, and its next item is known from the last two."""

import dataclasses

import numpy as np
import pytest

from runner.data import SequencesDataset, SyntheticLogConfig
from runner.data.synthetic_log import USERS_AT_ONCE
from runner.errors import ConfigError

SMALL = SyntheticLogConfig(num_users=100, num_items=60, mean_length=12)


@pytest.fixture(scope="module")
def default(tmp_path_factory: pytest.TempPathFactory) -> SequencesDataset:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DATASETS_DIR", str(tmp_path_factory.mktemp("synthetic")))
        return SyntheticLogConfig().build()


def test_the_same_bits_on_every_machine(default: SequencesDataset) -> None:
    """If another configuration of processor or library changes this checksum, old and new runs do not compare."""
    assert default.checksum == "d9896b5c4a4a4833ef69684e7b0298a81e452b900e92c1797ecd35339bb6abc9"


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
    assert (default.num_users, default.num_classes, len(default.item_names)) == (2000, 1000, 1000)
    assert (counts.min(), counts.max()) == (5, 45)
    assert counts.mean() == pytest.approx(25, abs=5 * 12 / np.sqrt(2000))  # five standard errors
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


def recall_at_10(dataset: SequencesDataset, context: int) -> float:
    """Return how often the next test item is among the ten that most often followed the last items in training.

    `context`: how many last items count; those with an unseen context are guessed from shorter ones.
    """
    n = dataset.num_classes
    counts: list[dict[tuple[int, ...], np.ndarray]] = [{} for _ in range(context + 1)]
    for start, end in zip(dataset.indptr_U1[:-1], dataset.train_end_U, strict=True):
        items = dataset.items_E[start:end].tolist()
        for i, item in enumerate(items):
            for length in range(min(context, i) + 1):
                counts[length].setdefault(tuple(items[i - length : i]), np.zeros(n, np.int32))[item] += 1
    hits = []
    for i in np.concatenate([np.arange(a, b) for a, b in zip(dataset.valid_end_U, dataset.indptr_U1[1:], strict=True)]):
        last = tuple(dataset.items_E[i - context : i].tolist())
        # Shorter contexts only break ties, as numbers below one.
        score = sum(counts[k].get(last[context - k :], np.zeros(n)) * 1e-4 ** (context - k) for k in range(context + 1))
        hits.append(int(dataset.items_E[i]) in np.argsort(-np.asarray(score), kind="stable")[:10])
    return float(np.mean(hits))


def test_a_chain_of_items_clearly_beats_popularity(default: SequencesDataset) -> None:
    popularity, chain = recall_at_10(default, 0), recall_at_10(default, 1)
    assert popularity < 0.1
    assert chain > 0.6


def test_the_item_before_the_last_matters(default: SequencesDataset) -> None:
    """After the same last item, the most frequent next item depends on the item before: a share of 0.8 * 0.75 and
    more of the steps follow the favourite's successor. By the last item alone, no successor has so large a share."""
    items = default.items_E.astype(np.int64)
    inside = np.ones(len(items), bool)
    inside[default.indptr_U1[:-1]] = inside[default.indptr_U1[:-1] + 1] = False
    after = np.flatnonzero(inside)
    shares = []
    for context in (items[after - 1], items[after - 1] * 1000 + items[after - 2]):
        contexts, number, size = np.unique(context, return_inverse=True, return_counts=True)
        pairs, count = np.unique(number * 1000 + items[after], return_counts=True)
        most = np.zeros(len(contexts), np.int64)
        np.maximum.at(most, pairs // 1000, count)
        shares.append(most[size >= 15].sum() / size[size >= 15].sum())
    by_last, by_both = shares
    assert by_both > 0.6
    assert by_last < 0.5


@pytest.mark.parametrize(("keys", "says"), [
    ({"num_users": 0}, r"dataset\.num_users must lie in \[1, 100000000\]"),
    ({"num_items": 19}, r"dataset\.num_items must lie in \[20, 10000000\]"),
    ({"mean_length": 4}, r"dataset\.mean_length must lie in \[5, 10000\]"),
    ({"seed": -1}, r"dataset\.seed must lie in"),
])  # fmt: skip
def test_out_of_range_values(keys: dict, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        SyntheticLogConfig(**keys)

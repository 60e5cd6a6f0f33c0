"""The generated set has the same bytes for the same keys and the stated statistics; siblings are hard to tell apart."""

import dataclasses
import itertools

import numpy as np
import pytest

from runner.data import LabelledRows, SyntheticXcConfig, XmcDataset
from runner.data.rows.synthetic import Generator
from runner.errors import ConfigError

SMALL = SyntheticXcConfig(num_classes=400, num_features=2000, num_train=6000, num_test=1500)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> XmcDataset:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DATASETS_DIR", str(tmp_path_factory.mktemp("synthetic")))
        return SMALL.build()


def dense(rows: LabelledRows, num_features: int) -> np.ndarray:
    out = np.zeros((rows.num_rows, num_features), np.float32)
    out[np.repeat(np.arange(rows.num_rows), np.diff(rows.indptr)), rows.indices] = rows.values
    return out


def label_matrix(rows: LabelledRows, num_classes: int) -> np.ndarray:
    out = np.zeros((rows.num_rows, num_classes), np.float32)
    out[np.repeat(np.arange(rows.num_rows), np.diff(rows.label_indptr)), rows.labels] = 1
    return out


def test_deterministic_and_cached(small: XmcDataset, capsys: pytest.CaptureFixture[str]) -> None:
    assert SMALL.build().checksum == small.checksum
    assert "generating" in capsys.readouterr().err
    named = dataclasses.replace(SMALL, name="mine").build()
    assert (named.name, named.checksum) == ("mine", small.checksum)
    assert capsys.readouterr().err == "", "the name does not change the data"
    assert dataclasses.replace(SMALL, seed=1).build().checksum != small.checksum
    keys = {c.key for c in (SMALL, dataclasses.replace(SMALL, num_test=1501), dataclasses.replace(SMALL, exponent=1.0))}
    assert len(keys) == 3


def test_rows_are_well_formed(small: XmcDataset) -> None:
    for rows, number in ((small.train, 6000), (small.test, 1500)):
        assert rows.num_rows == number
        assert rows.values.min() > 0
        assert rows.indices.min() >= 0
        assert rows.indices.max() < small.num_features
        assert rows.labels.min() >= 0
        assert rows.labels.max() < small.num_classes
        assert np.linalg.norm(dense(rows, 2000), axis=1) == pytest.approx(np.ones(number), rel=1e-5)
        for starts, entries in ((rows.indptr, rows.indices), (rows.label_indptr, rows.labels)):
            assert np.diff(starts).min() >= 1
            for a, b in itertools.pairwise(starts[:200]):
                assert (np.diff(entries[a:b]) > 0).all()
    assert not np.array_equal(small.train.labels[:1000], small.test.labels[:1000])


def test_means_are_as_configured(small: XmcDataset) -> None:
    """Labels and features per row are within 4 %: the pilot chunk that calibrates features has only 512 rows."""
    for rows in (small.train, small.test):
        assert len(rows.labels) / rows.num_rows == pytest.approx(3.0, rel=0.04)
        assert len(rows.indices) / rows.num_rows == pytest.approx(30.0, rel=0.04)


def test_power_law_and_uniform_frequencies(small: XmcDataset) -> None:
    counts = np.sort(np.bincount(small.train.labels, minlength=400))[::-1]
    assert counts[:40].sum() > 0.3 * counts.sum(), "a tenth of the classes holds far more than a tenth"
    assert counts[0] < 0.1 * counts.sum()
    flat = dataclasses.replace(SMALL, label_frequency="uniform").build()
    even = np.bincount(flat.train.labels, minlength=400)
    assert even.max() < 2 * even.mean()
    assert even.min() > even.mean() / 2


def test_main_class_follows_the_power_law() -> None:
    """The chi-square test of 100,000 draws over 50 classes against (rank + 10)^-s passes. False alarm < 1e-5."""
    generator = Generator(SyntheticXcConfig(num_classes=50, num_features=500, exponent=1.5))
    drawn = np.bincount(generator._draw(np.random.default_rng(0), 100_000), minlength=50)
    weights = np.sort((np.arange(50) + 10.0) ** -1.5)
    expected = 100_000 * weights / weights.sum()
    by_weight = drawn[np.argsort(generator.log_weight)]
    assert ((by_weight - expected) ** 2 / expected).sum() < 105


def test_ids_carry_no_frequency() -> None:
    """The correlation of ids and counts stays within four standard deviations of zero."""
    dataset = SyntheticXcConfig(num_classes=2000, num_train=20_000).build()
    counts = np.log1p(np.bincount(dataset.train.labels, minlength=2000))
    assert abs(np.corrcoef(np.arange(2000), counts)[0, 1]) < 4 / np.sqrt(2000)


def test_learnable_and_siblings_are_the_hard_negatives(small: XmcDataset) -> None:
    """A nearest-centroid classifier is far above chance, and most of its mistakes are siblings of a true class."""
    train, test = dense(small.train, 2000), dense(small.test, 2000)
    labels = label_matrix(small.train, 400)
    truth = label_matrix(small.test, 400)
    centroids = labels.T @ train / np.maximum(labels.sum(0), 1)[:, None]
    scores = test @ centroids.T - 0.5 * (centroids**2).sum(1)
    best = scores.argmax(1)
    hits = truth[np.arange(len(test)), best]
    most_frequent = truth[:, labels.sum(0).argmax()].mean()
    assert hits.mean() > 0.5
    assert most_frequent < 0.1
    leaf_of_class = np.argsort(Generator(SMALL).class_of_leaf)
    family = leaf_of_class // 16
    own = np.zeros((400, family.max() + 1), np.float32)
    own[np.arange(400), family] = 1
    in_family = (truth @ own > 0)[np.arange(len(test)), family[best]]
    assert in_family[hits == 0].mean() > 0.6
    assert (truth @ own > 0).mean() < 0.15, "by chance a mistake would rarely be in the family"


def test_extra_labels_are_siblings(small: XmcDataset) -> None:
    family = np.argsort(Generator(SMALL).class_of_leaf) // 16
    sizes = np.diff(small.train.label_indptr)
    pairs = [
        (small.train.labels[a], small.train.labels[a + 1])
        for a, size in zip(small.train.label_indptr, sizes, strict=False)
        if size == 2
    ]
    assert np.mean([family[a] == family[b] for a, b in pairs]) > 0.8


def test_test_classes_are_mostly_seen_at_the_size_of_amazon670k() -> None:
    config = SyntheticXcConfig(like="amazon670k", num_train=20_000, num_test=2000, features_per_row=10)
    dataset = config.build()
    assert (dataset.num_classes, dataset.num_features) == (670_091, 135_909)
    assert (dataset.propensity_a, dataset.propensity_b) == (0.6, 2.6)
    assert len(dataset.train.labels) / 20_000 == pytest.approx(5.45, rel=0.04)
    seen = np.zeros(dataset.num_classes, bool)
    seen[dataset.train.labels] = True
    assert seen[dataset.test.labels].mean() > 0.55


@pytest.mark.slow
def test_ten_million_classes_and_single_labels() -> None:
    dataset = SyntheticXcConfig(
        num_classes=10_000_000, num_features=100_000, num_train=3000, num_test=100, labels_per_row=1
    ).build()
    assert len(dataset.train.labels) == 3000
    assert dataset.train.labels.max() > 5_000_000


def test_many_labels_per_row() -> None:
    config = SyntheticXcConfig(like="delicious200k", num_train=500, num_test=50, num_classes=3000)
    dataset = config.build()
    assert len(dataset.train.labels) / 500 == pytest.approx(75.54, rel=0.06)
    tiny = SyntheticXcConfig(num_classes=2, num_features=100, num_train=50, num_test=5, labels_per_row=1).build()
    assert set(tiny.train.labels.tolist()) == {0, 1}


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"like": "amazon"}, r"dataset\.like: 'amazon' is not one of null, amazon670k"),
        ({"label_frequency": "zipf"}, r"dataset\.label_frequency: 'zipf' is not one of power_law, uniform"),
        ({"num_classes": 1}, r"dataset\.num_classes must be null .* or lie in \[2, 10000000\], got 1"),
        ({"num_classes": 10_000_001}, r"dataset\.num_classes"),
        ({"num_features": 10}, r"dataset\.num_features"),
        ({"num_train": 0}, r"dataset\.num_train"),
        ({"num_test": -1}, r"dataset\.num_test"),
        ({"labels_per_row": 0.5}, r"dataset\.labels_per_row"),
        ({"labels_per_row": 100.0, "num_classes": 50}, r"dataset\.labels_per_row: must be at most half"),
        ({"features_per_row": float("nan")}, r"dataset\.features_per_row"),
        ({"exponent": -1.0}, r"dataset\.exponent"),
        ({"branching": 1}, r"dataset\.branching"),
        ({"seed": -1}, r"dataset\.seed"),
    ],
)
def test_out_of_range_values(keys: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        SyntheticXcConfig(**keys)
    assert "\n" not in str(caught.value)

"""The rule of Amazon-Uniform gives the known answers on small data."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from runner.data import XmcDataset
from runner.data.rows.uniform import choose_classes, thin
from runner.data.shared.prepare import load_card_dataset, prepare_card
from runner.errors import DataError, DataNotPrepared

BASE_BODY = """
layouts:
  - {name: all, format: xmc, feature_start: 0, label_start: 0,
     train: train.txt, test: test.txt, label_names: labels.txt}
"""


def test_choose_classes_by_frequency_then_id() -> None:
    labels = np.array([5, 5, 5, 1, 1, 2, 2, 4, 4, 0], np.int32)
    ids, cap = choose_classes(labels, 6, 3)
    assert (ids.tolist(), cap) == ([1, 2, 5], 2)  # 4 ties with 1 and 2, the smaller ids win
    with pytest.raises(DataError, match="only 5 classes have training rows, but 6 are needed"):
        choose_classes(labels, 6, 6)


def test_thin_is_uniform_over_a_class() -> None:
    """With a cap of 2, each of a class's 8 pairs is kept for a quarter of the seeds. False alarm < 1e-5."""
    labels = np.array([0, 1] * 8 + [2], np.int32)
    new_ids = np.array([0, 1, -1], np.int32)
    survived = np.zeros(len(labels))
    for seed in range(800):
        keep = thin(labels, new_ids, 2, np.random.default_rng(seed))
        assert np.bincount(labels[keep], minlength=3).tolist() == [2, 2, 0]
        survived += keep
    expected = 800 / 4
    chi_square = ((survived[:-1] - expected) ** 2 / (expected * (1 - 1 / 4))).sum()
    assert chi_square < 60  # about 14 degrees of freedom
    assert not thin(labels, np.full(3, -1, np.int32), 2, np.random.default_rng(0)).any()


@pytest.fixture
def derived(make_card: Callable[..., Path], tmp_path: Path) -> XmcDataset:
    """Prepare a skewed base of 40 classes and the set that is derived from its 10 most frequent classes."""
    rng = np.random.default_rng(3)
    card = make_card(BASE_BODY, name="base") / "card.yaml"
    card.write_text(card.read_text().replace("num_classes: 4", "num_classes: 40"))
    make_card("derived: {base: base, num_classes: 10, seed: 7}\n", name="flat")
    for split, rows in (("train", 2000), ("test", 600)):
        lines = [f"{rows} 50 40"]
        for row in range(rows):
            labels = np.unique(np.minimum(rng.zipf(1.5, 3) - 1, 39))
            lines.append(",".join(map(str, labels)) + f" {row % 50}:{row + 1}")
        (tmp_path / f"{split}.txt").write_text("\n".join(lines) + "\n")
    (tmp_path / "labels.txt").write_text("".join(f"class {i}\n" for i in range(40)))
    with pytest.raises(DataNotPrepared, match="flat is derived from base: base is not prepared"):
        prepare_card("flat")
    prepare_card("base", given=tmp_path)
    prepare_card("flat")
    return load_card_dataset("flat")


def test_derived_set(derived: XmcDataset) -> None:
    base = load_card_dataset("base")
    ids, cap = choose_classes(base.train.labels, 40, 10)
    assert derived.num_classes == 10
    assert derived.num_features == 50
    counts = np.bincount(derived.train.labels, minlength=10)
    assert counts.tolist() == [cap] * 10, "training frequencies are exactly uniform"
    test_cap = round(cap * 600 / 2000)
    available = np.bincount(base.test.labels, minlength=40)[ids]
    assert np.bincount(derived.test.labels, minlength=10).tolist() == np.minimum(available, test_cap).tolist()
    assert np.diff(derived.train.label_indptr).min() >= 1
    assert derived.label_names() == [f"class {i}" for i in ids]
    # The one feature value of a row is its number in the base: labels must be a subset of that row's.
    for ours, whole in ((derived.train, base.train), (derived.test, base.test)):
        assert ours.num_rows < whole.num_rows
        for r in range(ours.num_rows):
            row = int(ours.values[ours.indptr[r]]) - 1
            labels = ids[ours.labels[ours.label_indptr[r] : ours.label_indptr[r + 1]]]
            assert set(labels) <= set(whole.labels[whole.label_indptr[row] : whole.label_indptr[row + 1]])
        assert (np.diff(ours.values) > 0).all(), "rows keep their order"
    assert base.left_out is None
    train, test = 2000 - derived.train.num_rows, 600 - derived.test.num_rows
    assert derived.left_out == (
        f"rows without a label in this set are left out: {train:,} of 2,000 training rows and {test:,} of 600 test rows"
    ), "they have labels in the base"


def test_derived_set_is_repeatable(derived: XmcDataset) -> None:
    assert prepare_card("flat", force=True).checksum == derived.checksum

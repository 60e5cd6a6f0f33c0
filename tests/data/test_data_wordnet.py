"""The two embedded sets are prepared on first use and have the counts that their cards state."""

import numpy as np
import pytest

from runner.data import CardConfig, LabelledRows
from runner.data.shared.places import prepared_dir
from runner.data.shared.store import read_manifest


def check_rows(rows: LabelledRows, num_features: int, num_classes: int) -> None:
    """Check that every row is sorted, unique and in range, and has a label and unit length."""
    assert rows.indices.min() >= 0
    assert rows.indices.max() < num_features
    assert rows.labels.min() >= 0
    assert rows.labels.max() < num_classes
    assert np.diff(rows.label_indptr).min() >= 1
    for starts, entries in ((rows.indptr, rows.indices), (rows.label_indptr, rows.labels)):
        inside = np.ones(len(entries) - 1, bool)
        inside[starts[(starts > 0) & (starts < len(entries))] - 1] = False  # steps into the next row
        assert (np.diff(entries)[inside] > 0).all()
    row = np.repeat(np.arange(rows.num_rows), np.diff(rows.indptr))
    norms = np.sqrt(np.bincount(row, rows.values.astype(np.float64) ** 2, minlength=rows.num_rows))
    assert np.abs(norms[np.diff(rows.indptr) > 0] - 1).max() < 2e-3  # four decimals in the file


@pytest.mark.parametrize(
    ("name", "train", "test", "features", "classes", "labels_per_row", "first_name"),
    [
        ("wordnet_hypernym", 75_780, 18_924, 42_124, 13_575, 4.768, "n:thing"),
        ("wordnet_related", 93_039, 23_173, 47_701, 89_599, 4.785, "a:able"),
    ],
)
def test_wordnet(
    name: str,
    train: int,
    test: int,
    features: int,
    classes: int,
    labels_per_row: float,
    first_name: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    dataset = CardConfig(name=name).build()
    assert f"preparing {name} (once)" in capsys.readouterr().err
    assert (dataset.train.num_rows, dataset.test.num_rows) == (train, test)
    assert (dataset.num_features, dataset.num_classes) == (features, classes)
    assert len(dataset.train.labels) / train == pytest.approx(labels_per_row, abs=5e-4)
    for rows in (dataset.train, dataset.test):
        check_rows(rows, features, classes)
    names = dataset.label_names()
    assert names is not None
    assert len(names) == classes
    assert names[0] == first_name
    manifest = read_manifest(prepared_dir(name))
    assert manifest is not None
    assert manifest.notes == []
    assert manifest.train.rows_dropped == manifest.test.rows_dropped == 0
    again = CardConfig(name=name).build()
    assert again.checksum == dataset.checksum
    assert capsys.readouterr().err == ""

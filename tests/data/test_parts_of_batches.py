"""Parts of batches, laid one after another, are the whole batch; what cannot be divided is refused in one line."""

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
import torch

from runner.config import compose
from runner.data.rows.batches import RowBatch
from runner.data.sequences.batches import SequenceBatch
from runner.data.text.batches import Windows
from runner.errors import ConfigError
from runner.models.parameters import draws_of
from runner.models.split_batch import bounds_of

ROWS = RowBatch(
    indptr=np.array([0, 2, 2, 5, 6, 9]),
    indices=np.arange(9, dtype=np.int32),
    values=np.linspace(0, 1, 9, dtype=np.float32),
    target_indptr=np.array([0, 1, 3, 4, 6, 7]),
    targets=np.arange(7, dtype=np.int32),
    weight_B=np.arange(5, dtype=np.float32),
)
TEXT = Windows(tokens_n=np.arange(41, dtype=np.int32), batch_size=5, length=4, cut="chunked").batch(
    np.array([3, 0, 5, 1, 7]), np.ones(5, dtype=np.float32)
)
LOG = SequenceBatch(
    items_X=np.arange(12, dtype=np.int32),
    length_S=np.array([5, 3, 2, 1, 1]),
    targets=np.arange(1, 13, dtype=np.int32),
    weight_B=np.arange(12, dtype=np.float32),
)
LAST = dataclasses.replace(LOG, targets=LOG.targets[:5], weight_B=None, only_last=True)
# Fields that hold numbers of examples, rows or items, which are those of the whole once they lie one after another.
FIELDS = {
    "rows": (ROWS, ("indices", "values", "targets", "weight_B")),
    "text": (TEXT, ("tokens_BT", "targets_BT", "weight_B", "targets")),
    "log": (LOG, ("items_X", "length_S", "targets", "weight_B")),
    "log-last": (LAST, ("items_X", "length_S", "targets")),
}


@pytest.mark.parametrize("kind", FIELDS)
@pytest.mark.parametrize("parts", [1, 2, 3, 5])
def test_parts_are_the_whole(kind: str, parts: int) -> None:
    batch, fields = FIELDS[kind]
    bounds = bounds_of(batch.first_row_E1, parts)
    cut: list[Any] = [batch.part(lo, hi) for lo, hi in itertools.pairwise(bounds)]
    assert [part.num_examples for part in cut] == np.diff(bounds).tolist()
    assert [part.num_rows for part in cut] == np.diff(batch.first_row_E1[bounds]).tolist()
    for field in fields:
        np.testing.assert_array_equal(np.concatenate([getattr(part, field) for part in cut]), getattr(batch, field))


def test_entries_of_rows_stay_theirs() -> None:
    part = ROWS.part(2, 4)
    assert part.indptr.tolist() == [0, 3, 4]
    assert part.indices.tolist() == [2, 3, 4, 5]
    assert part.target_indptr.tolist() == [0, 1, 3]


def test_parts_have_about_as_many_rows_and_may_be_empty() -> None:
    assert bounds_of(np.arange(8), 3).tolist() == [0, 3, 5, 7]
    assert bounds_of(np.array([0, 5, 8, 10, 11, 12]), 2).tolist() == [0, 2, 5]
    assert bounds_of(np.array([0, 4]), 3).tolist() == [0, 1, 1, 1]


def test_each_part_has_dropout_of_its_own() -> None:
    drawn = []
    for part in (0, 0, 1, 2):
        with draws_of(3, 11, 7, part):
            drawn.append(torch.rand(4).tolist())
    assert drawn[0] == drawn[1]
    assert len({*map(tuple, drawn)}) == 3
    with draws_of(3, 11, 7):
        assert torch.rand(4).tolist() == drawn[0]


@pytest.mark.parametrize(("words", "said"), [
    (["hardware.batch=split"], "add hardware.classes=split, or take hardware.batch=whole"),
    (["hardware.batch=split", "hardware.classes=split", "model=lstm", "dataset=python_topics"], "model.tied=true"),
])  # fmt: skip
def test_what_is_not_divided_is_refused(words: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        compose(["sampler=uniform", *words])


def test_a_model_that_does_not_divide_batches_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from runner.models.mlp import MlpConfig

    monkeypatch.setattr(MlpConfig, "divides_batches", False)
    with pytest.raises(ConfigError, match=r"parts of a batch; take hardware\.batch=whole"):
        compose(["sampler=uniform", "hardware.classes=split", "hardware.batch=split"])

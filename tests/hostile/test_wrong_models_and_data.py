"""Own models, data sets and tasks: every wrong type, shape, length, range and number is one line that names them."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from handed_over import DIM, FACTS, QUERY, ROWS, fuzz, refused, spoiled
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.check.cases import NUM_CLASSES
from runner.contracts import Examples, Measure
from runner.data import (
    DenseRows,
    LabelledRows,
    Pairs,
    PairsDataset,
    RegressionDataset,
    SequencesDataset,
    TextDataset,
    XmcDataset,
)
from runner.door.data import open_data
from runner.door.models import build_encoder, build_fitted, class_vectors
from runner.door.tasks import checked_task

# ---------------------------------------------------------------- models


class MyModel:
    name, dim = "mine", DIM

    def __init__(self, given: Any) -> None:
        self.given = given

    def class_vectors(self, lo: int, hi: int, seed: int) -> Any:
        return self.given

    def build(self, *_: Any, **__: Any) -> Any:
        return MyEncoder(self.given)


class MyEncoder:
    tables, dense = (), ()

    def __init__(self, given: Any) -> None:
        self.given = given

    def forward(self, batch: Any, step: int) -> Any:
        return self.given

    def encode(self, batch: Any) -> Any:
        return self.given

    def gradients(self, grad_hidden_BD: np.ndarray, step: int) -> Any:
        return self.given

    def backward(self, grad_hidden_BD: np.ndarray, step: int) -> None:
        raise ValueError("mine")

    def state_dict(self) -> Any:
        return {}

    def load_state_dict(self, state: Any) -> None:
        pass

    prepare = fit = is_sound = about = top = scores = encode

    def top(self, batch: Any, k: int) -> Any:  # noqa: F811
        return self.given


STATES = np.ones((ROWS, DIM), dtype=np.float32)
VECTORS = np.ones((5, DIM), dtype=np.float32)
TOP = np.arange(ROWS * 3, dtype=np.int32).reshape(ROWS, 3)
BATCH = SimpleNamespace(num_rows=ROWS)


@fuzz
@given(wrong=spoiled(STATES, finite="nan inf -inf"))
def test_hidden_states(wrong: Any) -> None:
    config: Any = SimpleNamespace(model=MyModel(wrong), optimizer=None, seed=0)
    encoder = build_encoder(config, num_features=3, classes=VECTORS)
    refused(lambda: encoder.forward(BATCH, 6), "model=mine", 6)
    refused(lambda: encoder.encode(BATCH), "model=mine")


@fuzz
@given(wrong=spoiled(VECTORS, finite="nan inf -inf"))
def test_class_vectors(wrong: Any) -> None:
    config: Any = SimpleNamespace(model=MyModel(wrong), optimizer=None, seed=0)
    refused(lambda: class_vectors(config, 0, len(VECTORS)), "model=mine")


@fuzz
@given(wrong=spoiled(TOP, below=50))
def test_ranked_classes(wrong: Any) -> None:
    fitted = build_fitted(MyModel(wrong), 50)
    refused(lambda: fitted.top(BATCH, 3), "model=mine")
    refused(lambda: fitted.scores(BATCH), "model=mine")


def test_other_things_of_models() -> None:
    config: Any = SimpleNamespace(model=MyModel([3]), optimizer=None, seed=0)
    encoder = build_encoder(config, num_features=3, classes=VECTORS)
    refused(lambda: encoder.gradients(STATES, 6), "model=mine", 6)
    assert "ValueError at" in refused(lambda: encoder.backward(STATES, 6), "model=mine", 6)
    config.model.build = lambda **_: None
    assert "lacks encode" in refused(lambda: build_encoder(config, num_features=3, classes=VECTORS), "model=mine")
    config.model.dim = 2.0
    refused(lambda: class_vectors(config, 0, 5), "model=mine")


# ---------------------------------------------------------------- data sets


class MyKind:
    kind = name = "mine"

    def __init__(self, family: str, given: Any) -> None:
        self.family, self.given = family, given

    def build(self) -> Any:
        return self.given


def data_sets(folder: Path) -> dict[str, Any]:
    (folder / "names.txt").write_text("a\nb\nc\n")
    common: Any = {"name": "mine", "checksum": "x", "variant": ""}
    rows = LabelledRows(
        indptr=np.array([0, 2, 3]), indices=np.array([0, 3, 1], dtype=np.int32), values=np.ones(3, dtype=np.float32),
        label_indptr=np.array([0, 1, 3]), labels=np.array([2, 0, 1], dtype=np.int32),
    )  # fmt: skip
    tokens = np.array([0, 1, 2], dtype=np.int32)
    dense = DenseRows(features_RF=np.ones((2, 3)), response_R=np.ones(2))
    pairs = Pairs(first=("a", "b"), second=("c", "d"), labels_R=np.array([0, 1], dtype=np.int32))
    return {
        "rows": XmcDataset(
            train=rows, test=rows, num_features=4, num_classes=3, propensity_a=0.5, propensity_b=1.5, **common
        ),
        "text": TextDataset(
            train_T=tokens, valid_T=tokens, test_T=tokens, num_classes=3, vocabulary_path=folder / "names.txt", **common
        ),
        "regression": RegressionDataset(train=dense, test=dense, num_features=3, **common),
        "pairs": PairsDataset(train=pairs, test=pairs, num_classes=2, class_names=("n", "y"), **common),
        "sequences": SequencesDataset(
            items_E=np.array([0, 1, 2, 2, 1], dtype=np.int32), indptr_U1=np.array([0, 3, 5]),
            train_end_U=np.array([1, 5]), valid_end_U=np.array([2, 5]), num_classes=3,
            items_path=folder / "names.txt", **common,
        ),
    }  # fmt: skip


LIMITS = {"labels": 3, "indices": 4, "train_T": 3, "valid_T": 3, "test_T": 3, "labels_R": 2, "items_E": 3}
OFFSETS = ("indptr", "label_indptr", "indptr_U1")
ANY_LENGTH = {"train_T", "valid_T", "test_T"}


def spoiled_field(holder: Any, key: str) -> st.SearchStrategy[Any]:
    good = getattr(holder, key)
    if not isinstance(good, np.ndarray):
        may_be_none = key in ("label_names_path", "feature_names_path")
        return st.sampled_from([*([] if may_be_none else [None]), object, ["x"], {}, b"a", Path("/none")])
    if key in OFFSETS:
        return spoiled(good) | st.just(good[::-1].copy()) | st.just(good + 1)
    finite = "nan inf -inf" if good.dtype.kind == "f" else ""
    return spoiled(good, below=LIMITS.get(key), finite=finite, any_length=key in ANY_LENGTH)


@pytest.mark.parametrize("family", ["rows", "text", "regression", "pairs", "sequences"])
def test_data_sets(family: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    right = data_sets(tmp_path_factory.mktemp("data"))[family]
    assert open_data(MyKind(family, right)) is right
    optional = {"rows_dropped"}
    inner = [name for name in ("train", "test") if hasattr(right, name)]
    keys = [(name, field.name) for name in inner for field in dataclasses.fields(getattr(right, name))]
    keys = [pair for pair in keys if pair[1] not in optional]
    keys += [("", field.name) for field in dataclasses.fields(right) if field.name not in optional]

    @settings(max_examples=100)
    @given(st.data())
    def spoil(data: st.DataObject) -> None:
        name, key = data.draw(st.sampled_from(keys))
        if name:
            part = getattr(right, name)
            spoilt = dataclasses.replace(part, **{key: data.draw(spoiled_field(part, key))})
            wrong = dataclasses.replace(right, **{name: spoilt})
        else:
            wrong = dataclasses.replace(right, **{key: data.draw(spoiled_field(right, key))})
        refused(lambda: open_data(MyKind(family, wrong)), "dataset=mine")

    spoil()
    for nothing in (None, 3, {}, right.__class__):
        refused(lambda nothing=nothing: open_data(MyKind(family, nothing)), "dataset=mine")


def test_what_is_said_of_a_data_set(tmp_path: Path) -> None:
    right = data_sets(tmp_path)["rows"]

    def said(**fields: Any) -> str:
        wrong = dataclasses.replace(right, train=dataclasses.replace(right.train, **fields))
        return refused(lambda: open_data(MyKind("rows", wrong)), "dataset=mine").partition(";")[0]

    assert said(labels=np.array([3, 0, 1], dtype=np.int32)) == "train has a label 3, but num_classes is 3"
    assert said(indices=np.array([0, 4, 1], dtype=np.int32)) == "train has a feature 4, but num_features is 4"
    assert said(labels=np.array([2, 1, 0], dtype=np.int32)) == "the labels of train row 1 do not ascend, or repeat one"
    assert said(label_indptr=np.array([0, 3, 3])) == "train has row 1 without a label"


# ---------------------------------------------------------------- tasks

POINTS = Measure(key="p", label="P", unit="", scale=1.0, decimals=2, higher_is_better=True, headline=True)
RIGHT_BATCH = {
    "num_rows": ROWS, "targets": QUERY.targets_P, "target_indptr": QUERY.target_indptr_B1,
    "weight_B": np.ones(ROWS, dtype=np.float32),
}  # fmt: skip


class MyTask:
    config = None

    def __init__(self, **given: Any) -> None:
        self.examples, self.training, self.measures = Examples(count=9), FACTS, (POINTS,)
        self.num_features, self.rows_per_step, self.rows_per_epoch = 3, 2, 9
        self.batch = self.probe = self.glance = lambda *_: SimpleNamespace(**RIGHT_BATCH)
        self.evaluate_subset = self.evaluate_final = lambda *_: {"valid/p": 0.5}
        self.about_data = lambda: {"name": "mine"}
        self.__dict__ |= given

    def watched(self, config: Any) -> str:
        return "valid"

    def headline(self) -> Measure:
        return POINTS


def task_with(**given: Any) -> Any:
    return checked_task(lambda: MyTask(**given), MyTask, "mine")


@fuzz
@given(st.data())
def test_batches(data: st.DataObject) -> None:
    ways = {
        "num_rows": st.sampled_from([None, 0, -1, 2.0, "6", ROWS + 1]),
        "targets": spoiled(QUERY.targets_P, below=NUM_CLASSES),
        "target_indptr": spoiled(QUERY.target_indptr_B1) | st.just(QUERY.target_indptr_B1[::-1].copy()),
        "weight_B": spoiled(RIGHT_BATCH["weight_B"], finite="nan inf -inf").filter(lambda it: it is not None),
    }
    key = data.draw(st.sampled_from(list(ways)))
    wrong = SimpleNamespace(**RIGHT_BATCH | {key: data.draw(ways[key])})
    refused(lambda: task_with(batch=lambda draw: wrong).batch(None), "task of family=mine")


def test_facts_and_measures_of_tasks() -> None:
    assert task_with().batch(None).num_rows == ROWS
    assert task_with().evaluate_subset(None) == {"valid/p": 0.5}
    counts = FACTS.label_counts_N
    for wrong in (
        {"examples": None}, {"examples": Examples(count=0)}, {"training": 3}, {"measures": ()}, {"measures": 3},
        {"training": dataclasses.replace(FACTS, label_counts_N=counts.astype(float))},
        {"training": dataclasses.replace(FACTS, label_counts_N=counts - 2)},
        {"training": dataclasses.replace(FACTS, steps_per_epoch=0)},
        {"num_features": -1}, {"rows_per_step": 0}, {"rows_per_epoch": 1.5}, {"measures": (POINTS, POINTS)},
    ):  # fmt: skip
        refused(lambda wrong=wrong: task_with(**wrong), "task of family=mine")
    for metrics in (None, {}, {"test/p": 1.0}, {"valid/p": "high"}, {"valid/p": np.float32(1)}):
        task = task_with(evaluate_subset=lambda _, metrics=metrics: metrics)
        refused(lambda task=task: task.evaluate_subset(None), "task of family=mine")

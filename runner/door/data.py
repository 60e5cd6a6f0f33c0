"""Check the data sets that people's own kinds of them return. Files are checked where they are opened.

Legend: R rows of a split, U users, E events, T tokens.
"""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

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
from runner.door.arrays import (
    Wrong,
    check_array,
    check_count,
    check_finite,
    check_offsets,
    demand,
    is_number,
    row_out_of_order,
    shown,
)
from runner.door.guard import Guard, is_from_outside


def open_data(config: Any) -> Any:
    """Return the data set of a configuration's ``dataset``; one from outside is checked. Raises PluginError."""
    if not is_from_outside(config):
        return config.build()
    guard = Guard.of(config, "dataset", config.kind)
    data = guard.made(config.build)
    guard.check(lambda: check_data(data, config.family))
    return data


def check_data(data: Any, family: str) -> None:
    """Raise Wrong unless this is a data set of the family that training can take; of new families nothing is known."""
    for name in ("name", "checksum"):
        value = getattr(data, name, None)
        demand(isinstance(value, str), f"{shown(data)} must have the text '{name}', not {shown(value)}")
    if family not in _CHECKS:
        return
    cls, check = _CHECKS[family]
    demand(isinstance(data, cls), f"build must return a {cls.__name__} for the family {family}, not {shown(data)}")
    demand(isinstance(data.variant, str), f"variant must be a text, not {shown(data.variant)}")
    for name in ("label_names_path", "feature_names_path", "vectorizer_path"):  # none of them is a must
        if getattr(data, name, None) is not None:
            _check_file(getattr(data, name), name)
    check(data)


def _check_ids(ids: np.ndarray, what: str, below: int, limit: str) -> None:
    if len(ids) and (ids.min() < 0 or ids.max() >= below):
        wrong = ids[(ids < 0) | (ids >= below)][0]
        raise Wrong(f"{what} {wrong}, but {limit} is {below}")


# ---------------------------------------------------------------- families


def _rows(data: XmcDataset) -> None:
    check_count(data.num_features, "num_features")
    check_count(data.num_classes, "num_classes")
    for name in ("propensity_a", "propensity_b"):
        demand(is_number(getattr(data, name)), f"{name} must be a number, not {shown(getattr(data, name))}")
    for name in ("train", "test"):
        split = getattr(data, name)
        demand(isinstance(split, LabelledRows), f"{name} must be LabelledRows, not {shown(split)}")
        check_array(split.indices, f"{name}.indices", "int32", None)
        check_array(split.values, f"{name}.values", "float32", len(split.indices))
        check_array(split.labels, f"{name}.labels", "int32", None)
        check_offsets(split.indptr, f"{name}.indptr", None, len(split.indices))
        check_offsets(split.label_indptr, f"{name}.label_indptr", split.num_rows, len(split.labels))
        _check_ids(split.labels, f"{name} has a label", data.num_classes, "num_classes")
        _check_ids(split.indices, f"{name} has a feature", data.num_features, "num_features")
        check_finite(split.values, f"{name}.values")
        empty_R = split.label_indptr[1:] == split.label_indptr[:-1]
        demand(not empty_R.any(), f"{name} has row {int(np.argmax(empty_R))} without a label")
        if (row := row_out_of_order(split.labels, split.label_indptr)) >= 0:
            raise Wrong(f"the labels of {name} row {row} do not ascend, or repeat one")


def _text(data: TextDataset) -> None:
    check_count(data.num_classes, "num_classes")
    for name in ("train_T", "valid_T", "test_T"):
        tokens = getattr(data, name)
        check_array(tokens, name, "int32", None)
        demand(len(tokens) > 0, f"{name} has no token")
        _check_ids(tokens, f"{name} has the word", data.num_classes, "num_classes")
    _check_file(data.vocabulary_path, "vocabulary_path")
    demand(len(data.vocabulary) == data.num_classes, f"{len(data.vocabulary)} words for {data.num_classes} classes")


def _regression(data: RegressionDataset) -> None:
    check_count(data.num_features, "num_features")
    for name in ("train", "test"):
        split = getattr(data, name)
        demand(isinstance(split, DenseRows), f"{name} must be DenseRows, not {shown(split)}")
        check_array(split.response_R, f"{name}.response_R", "float64", None)
        demand(split.num_rows > 0, f"{name} has no row")
        check_array(split.features_RF, f"{name}.features_RF", "float64", split.num_rows, data.num_features)
        check_finite(split.response_R, f"{name}.response_R")
        check_finite(split.features_RF, f"{name}.features_RF")


def _pairs(data: PairsDataset) -> None:
    check_count(data.num_classes, "num_classes")
    names = data.class_names
    is_named = isinstance(names, tuple | list) and all(isinstance(name, str) for name in names)
    demand(is_named and len(names) == data.num_classes, f"class_names must be {data.num_classes} texts")
    for name in ("train", "test"):
        split = getattr(data, name)
        demand(isinstance(split, Pairs), f"{name} must be Pairs, not {shown(split)}")
        check_array(split.labels_R, f"{name}.labels_R", "int32", None)
        demand(split.num_pairs > 0, f"{name} has no pair")
        _check_ids(split.labels_R, f"{name} has a label", data.num_classes, "num_classes")
        for side in ("first", "second"):
            texts = getattr(split, side)
            is_long = isinstance(texts, tuple | list) and len(texts) == split.num_pairs
            demand(is_long and all(isinstance(text, str) for text in texts),
                   f"{name}.{side} must be {split.num_pairs} texts, one a label")  # fmt: skip


def _sequences(data: SequencesDataset) -> None:
    check_count(data.num_classes, "num_classes")
    check_array(data.items_E, "items_E", "int32", None)
    check_offsets(data.indptr_U1, "indptr_U1", None, len(data.items_E))
    _check_ids(data.items_E, "items_E has the item", data.num_classes, "num_classes")
    for name in ("train_end_U", "valid_end_U"):
        check_array(getattr(data, name), name, "int64", data.num_users)
    cuts = (data.indptr_U1[:-1], data.train_end_U, data.valid_end_U, data.indptr_U1[1:])
    for before, after in pairwise(cuts):
        wrong_U = after < before
        if wrong_U.any():
            user = int(np.argmax(wrong_U))
            raise Wrong(f"train_end_U and valid_end_U of user {user} must ascend within its events")
    _check_file(data.items_path, "items_path")
    demand(len(data.item_names) == data.num_classes, f"{len(data.item_names)} names for {data.num_classes} items")


def _check_file(path: Any, name: str) -> None:
    demand(isinstance(path, Path), f"{name} must be a Path, not {shown(path)}")
    demand(path.is_file(), f"{name} is no file: {path}")


_CHECKS: dict[str, tuple[type, Callable[[Any], None]]] = {
    "rows": (XmcDataset, _rows),
    "text": (TextDataset, _text),
    "regression": (RegressionDataset, _regression),
    "pairs": (PairsDataset, _pairs),
    "sequences": (SequencesDataset, _sequences),
}

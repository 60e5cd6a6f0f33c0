"""Dense rows are split, standardised and stored for training; scikit-learn and float64 NumPy say what is expected.

Legend: R rows, F features.
"""

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression as SklearnLinear
from sklearn.linear_model import LogisticRegression as SklearnLogistic
from sklearn.metrics import accuracy_score, log_loss, mean_squared_error, r2_score
from sklearn.preprocessing import StandardScaler

from runner.config import compose
from runner.data.regression import batches as dense_batches
from runner.data.regression.batches import StoredExamples, store
from runner.data.regression.dataset import DenseRows, RegressionDataset
from runner.data.shared.splits import hold_out
from runner.errors import ConfigError, DataError
from runner.lgd.task import LinearRegression, LogisticRegression
from runner.network import Network

LATITUDE = 4_864_900.0  # metres, with a range of 270 m


def dataset(features_RF: np.ndarray, response_R: np.ndarray, *, test: int = 30, name: str = "toy") -> RegressionDataset:
    """Return the rows as a data set whose last ``test`` rows are the test rows; nobody may write to its arrays."""
    parts = []
    for rows in (slice(None, -test), slice(-test, None)):
        arrays = [np.array(array[rows], dtype=np.float64) for array in (features_RF, response_R)]
        for array in arrays:
            array.setflags(write=False)  # prepared data are memory-mapped and read-only
        parts.append(DenseRows(features_RF=arrays[0], response_R=arrays[1]))
    return RegressionDataset(
        name=name, train=parts[0], test=parts[1], num_features=features_RF.shape[1], checksum="", variant=""
    )


def toy(rows: int = 230) -> tuple[np.ndarray, np.ndarray]:
    """Return a latitude, a skewed column, a constant and a small column, and a response far from 0."""
    generator = np.random.default_rng(0)
    features_RF = np.column_stack([
        LATITUDE + 270 * generator.random(rows),
        generator.lognormal(0, 1, rows),
        np.full(rows, 0.1),
        1e-9 * generator.standard_normal(rows),
    ])  # fmt: skip
    signal = (features_RF[:, 0] - LATITUDE) / 270 - 0.2 * features_RF[:, 1] + 3e8 * features_RF[:, 3]
    return features_RF, 1900 + 10 * (signal + generator.standard_normal(rows) / 4)


def stored(features_RF: np.ndarray, response_R: np.ndarray, **settings: Any) -> StoredExamples:
    return store(
        dataset(features_RF, response_R), **{"valid_share": 0.2, "threshold": None, "logistic": False, **settings}
    )


# ---------------------------------------------------------------- splits


def test_split_is_fixed_and_disjoint() -> None:
    train, valid = hold_out(200, 0.2)
    assert sorted([*train, *valid]) == list(range(200))
    assert len(valid) == 40
    assert (np.diff(train) > 0).all()
    assert (np.diff(valid) > 0).all()
    again = hold_out(200, 0.2)
    assert all(np.array_equal(one, other) for one, other in zip((train, valid), again, strict=True))
    assert valid.tolist()[:4] != list(range(160, 164)), "rows are shuffled"
    # The split must never change: results on the same data would no longer compare.
    assert hold_out(10, 0.3)[1].tolist() == sorted(np.random.Generator(
        np.random.Philox(key=[0, 7 << 40])
    ).permutation(10)[:3].tolist())  # fmt: skip


@pytest.mark.parametrize(("rows", "share"), [(1, 0.5), (3, 0.1), (2, 0.0), (1, 0.1)])
def test_too_few_rows(rows: int, share: float) -> None:
    with pytest.raises(
        DataError, match=rf"{rows} training rows cannot be split: dataset\.valid_share={share:g}"
    ) as told:
        hold_out(rows, share)
    assert "\n" not in str(told.value)


# ---------------------------------------------------------------- scales


@pytest.mark.parametrize("block", [1 << 16, 17])
def test_standardised_like_scikit_learn(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are centred in float64 before they become float32, whose step at a latitude is half a metre."""
    monkeypatch.setattr(dense_batches, "_ROWS_AT_ONCE", block)
    features_RF, response_R = toy()
    held = stored(features_RF, response_R)
    train, valid = hold_out(200, 0.2)
    scaler = StandardScaler().fit(features_RF[train])
    mean, deviation = response_R[train].mean(), response_R[train].std()
    assert held.scale.response_mean == pytest.approx(mean)
    assert held.scale.response_deviation == pytest.approx(deviation)
    tests = np.arange(200, 230)
    parts = {
        "train": (held.vectors_XD[:, :-1], held.vectors_XD[:, -1], train),
        "valid": (held.valid.features_RF, held.valid.response_R, valid),
        "test": (held.test.features_RF, held.test.response_R, tests),
    }
    for features, response, rows in parts.values():
        assert features.dtype == response.dtype == np.float32
        np.testing.assert_allclose(features, scaler.transform(features_RF[rows]), atol=2e-6)
        np.testing.assert_allclose(response, (response_R[rows] - mean) / deviation, atol=2e-6)
        assert not features[:, 2].any(), "a constant column becomes 0"
    np.testing.assert_allclose(held.vectors_XD[:, [0, 1, 3, 4]].std(axis=0), 1, rtol=1e-5)
    assert held.num_features == 4
    np.testing.assert_allclose(held.feature_norm_X, np.linalg.norm(parts["train"][0], axis=1), rtol=1e-6)


@pytest.mark.parametrize("constant", [0.1, LATITUDE + 0.3, 1 / 3, -1e300, 0.0])
def test_constant_columns_of_long_tables_become_zero(constant: float) -> None:
    """Summing a constant 300,000 times rounds by more than the constant's own precision."""
    features_RF = np.column_stack([np.full(300_000, constant), np.arange(300_000.0)])
    held = stored(features_RF, np.arange(300_000.0))
    assert not held.vectors_XD[:, 0].any()
    assert not held.test.features_RF[:, 0].any()
    assert held.vectors_XD[:, 1].std() == pytest.approx(1, rel=1e-5)


def test_a_column_that_is_constant_in_training_rows_only_says_nothing() -> None:
    features_RF, response_R = toy()
    features_RF[200:, 2] = 5
    held = stored(features_RF, response_R)
    assert not held.test.features_RF[:, 2].any()


# ---------------------------------------------------------------- classes


@pytest.mark.parametrize("low", [0.0, -1.0])
def test_two_classes_are_stored_by_sign(low: float) -> None:
    """The classes may be written 0 and 1 or -1 and 1; the data set itself stays as it is."""
    features_RF, response_R = toy()
    is_one_R = response_R > 1902
    data = dataset(features_RF, np.where(is_one_R, 1.0, low))
    held = store(data, valid_share=0.2, threshold=None, logistic=True)
    assert set(data.train.response_R.tolist()) == {low, 1.0}
    train, valid = hold_out(200, 0.2)
    assert held.sign_X is not None
    assert np.array_equal(held.sign_X, np.where(is_one_R[train], 1, -1))
    scaled = StandardScaler().fit(features_RF[train]).transform(features_RF[train])
    expected = held.sign_X[:, None] * np.column_stack([scaled, np.ones(len(train))])
    np.testing.assert_allclose(held.vectors_XD, expected, atol=2e-6)
    assert held.num_features == 5, "with the coordinate of 1"
    assert (held.test.features_RF[:, -1] == 1).all()
    assert np.array_equal(held.valid.response_R, is_one_R[valid])
    assert np.array_equal(held.test.response_R, is_one_R[200:])
    rows_B = np.array([3, 3, 0, 159])
    batch = held.batch(rows_B, None)
    np.testing.assert_allclose(batch.features_BF[:, :-1], scaled[rows_B], atol=2e-6)
    assert np.array_equal(batch.response_B, is_one_R[train][rows_B])


def test_classes_of_the_splits_are_read_alike() -> None:
    """A test split that holds one class only is read like the training rows, not by itself."""
    features_RF, response_R = toy()
    for low in (0.0, -1.0):
        classes_R = np.where(response_R > 1902, 1.0, low)
        classes_R[200:] = low
        held = stored(features_RF, classes_R, logistic=True)
        assert not held.test.response_R.any()
        classes_R[200:] = 1
        assert stored(features_RF, classes_R, logistic=True).test.response_R.all()


def test_threshold_makes_classes() -> None:
    """A response at the threshold is class 0."""
    features_RF, response_R = toy()
    threshold = float(response_R[7])
    held = stored(features_RF, response_R, threshold=threshold, logistic=True)
    train = hold_out(200, 0.2)[0]
    assert held.sign_X is not None
    assert np.array_equal(held.sign_X > 0, response_R[train] > threshold)
    assert np.array_equal(held.test.response_R > 0, response_R[200:] > threshold)
    linear = stored(features_RF, response_R, threshold=threshold)
    share = (response_R[train] > threshold).mean()
    assert linear.scale.response_mean == pytest.approx(share), "squared loss may fit classes too"


@pytest.mark.parametrize(("change", "settings", "error", "message"), [
    (lambda y: y, {"logistic": True}, ConfigError, r"dataset=toy has responses such as 19\d\d.*needs 0 and 1.*set da"),
    (lambda y: np.arange(len(y)) % 3, {"logistic": True}, ConfigError, r"such as 2, but .*dataset\.threshold"),
    (lambda y: np.arange(len(y)) % 3 - 1, {"logistic": True}, ConfigError, r"such as -1, but .*dataset\.threshold"),
    (lambda y: np.full(len(y), 7.0), {}, DataError, "toy: the response is 7 in every training row"),
    (lambda y: np.ones(len(y)), {"logistic": True}, DataError, "toy: the response is 1 in every training row"),
    (lambda y: y, {"logistic": True, "threshold": 1e4}, DataError, r"is 0 in every.*dataset\.threshold=10000 does not"),
    (lambda y: y, {"valid_share": 0.001}, DataError, r"dataset\.valid_share=0\.001 holds 0 of them out"),
])  # fmt: skip
def test_mistakes_are_one_line(change: Any, settings: dict[str, Any], error: type, message: str) -> None:
    features_RF, response_R = toy()
    with pytest.raises(error, match=message) as told:
        stored(features_RF, change(response_R), **settings)
    assert "\n" not in str(told.value)


# ---------------------------------------------------------------- measures


def test_regression_is_measured_as_by_scikit_learn_on_raw_numbers() -> None:
    """Predictions of the least-squares weights are taken back to the file's units before scikit-learn sees them."""
    features_RF, response_R = toy()
    features_RF = features_RF[:, [0, 1, 3]]
    task = LinearRegression(compose(["model=regression", "dataset.valid_share=0.2"]), dataset(features_RF, response_R))
    network = Network.of(task.config, task.build_head(), num_features=task.num_features)
    vectors = task.stored.vectors_XD.astype(np.float64)
    network.head.table.weights[0] = np.linalg.lstsq(vectors[:, :-1], vectors[:, -1], rcond=None)[0]
    metrics = task.evaluate_final(network)
    train, valid = hold_out(200, 0.2)
    model = SklearnLinear().fit(
        StandardScaler().fit(features_RF[train]).transform(features_RF[train]), response_R[train]
    )
    scaler = StandardScaler().fit(features_RF[train])
    for split, rows in (("train", train), ("valid", valid), ("test", np.arange(200, 230))):
        predicted = model.predict(scaler.transform(features_RF[rows]))
        assert metrics[f"{split}/mse"] == pytest.approx(mean_squared_error(response_R[rows], predicted), rel=1e-4)
        assert metrics[f"{split}/r2"] == pytest.approx(r2_score(response_R[rows], predicted), rel=1e-4)
    assert 0.5 < metrics["test/r2"] < 0.99
    assert task.evaluate_subset(network) == metrics
    network.head.table.weights[0] = 0
    zero = task.evaluate_final(network)
    assert zero["train/r2"] == pytest.approx(0, abs=1e-6)
    assert zero["train/mse"] == pytest.approx(response_R[train].var(), rel=1e-5)


def test_constant_responses_of_a_test_split() -> None:
    """R^2 is scikit-learn's there too: 1 if they are met, else 0."""
    features_RF, response_R = toy()
    response_R[200:] = 1900.0
    task = LinearRegression(compose(["model=regression", "dataset.valid_share=0.2"]), dataset(features_RF, response_R))
    truth_R = task.stored.test.response_R
    for predicted_R in (truth_R, truth_R + np.float32(0.5)):
        assert task.measured(predicted_R, truth_R)["r2"] == r2_score(truth_R, predicted_R)


def test_logistic_regression_is_measured_as_by_scikit_learn() -> None:
    features_RF, response_R = toy()
    features_RF = features_RF[:, [0, 1, 3]]
    config = compose(["model=logistic", "dataset.valid_share=0.2", "dataset.threshold=1902"])
    task = LogisticRegression(config, dataset(features_RF, response_R))
    network = Network.of(task.config, task.build_head(), num_features=task.num_features)
    train, valid = hold_out(200, 0.2)
    scaler, is_one_R = StandardScaler().fit(features_RF[train]), response_R > 1902
    model = SklearnLogistic().fit(scaler.transform(features_RF[train]), is_one_R[train])
    network.head.table.weights[0] = [*model.coef_[0], model.intercept_[0]]
    metrics = task.evaluate_final(network)
    for split, rows in (("train", train), ("valid", valid), ("test", np.arange(200, 230))):
        scaled = scaler.transform(features_RF[rows])
        assert metrics[f"{split}/accuracy"] == accuracy_score(is_one_R[rows], model.predict(scaled))
        assert metrics[f"{split}/loss"] == pytest.approx(
            log_loss(is_one_R[rows], model.predict_proba(scaled)), rel=1e-4
        )
    assert metrics["test/accuracy"] > 0.7

"""Split, standardise and store dense rows for training, and gather batches of them.

Every column is centred and divided by its standard deviation over the rows that are trained on; constant columns become
0. For linear regression the response is treated in the same way, so that the best intercept is 0, and an example is
stored as v = [x, y]. For logistic regression a coordinate of 1 is appended to the features, and an example of class
s = +-1 is stored as v = s [x, 1].

Legend: X training examples, R rows of a split, F features of the model (with the appended 1, if any), B rows of a
batch, D size of stored vectors.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from runner.data.regression.dataset import DenseRows, RegressionDataset
from runner.data.shared.splits import hold_out
from runner.errors import ConfigError, DataError
from runner.kernels.norms import row_norms

_ROWS_AT_ONCE = 1 << 16


@dataclass(frozen=True, kw_only=True)
class DenseBatch:
    """Hold the rows of a batch, float32; ``weight_B``: factors of the rows' losses, None: 1 / B each."""

    features_BF: np.ndarray
    response_B: np.ndarray
    weight_B: np.ndarray | None = None

    @property
    def num_rows(self) -> int:
        """Return the number of rows, B."""
        return len(self.response_B)


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Hold what the training rows say of their columns, in the file's units: mean and standard deviation."""

    mean_F: np.ndarray
    deviation_F: np.ndarray
    response_mean: float
    response_deviation: float


@dataclass(frozen=True, kw_only=True)
class Split:
    """Hold standardised rows: ``features_RF`` and ``response_R`` float32."""

    features_RF: np.ndarray
    response_R: np.ndarray


@dataclass(frozen=True, kw_only=True)
class StoredExamples:
    """Hold the standardised training examples as vectors (X, D) float32, and the other splits as rows.

    ``sign_X``: the class of each example, +-1, for logistic regression; None for linear.
    """

    scale: Scale
    vectors_XD: np.ndarray
    sign_X: np.ndarray | None
    valid: Split
    test: Split

    @cached_property
    def feature_norm_X(self) -> np.ndarray:
        """Return the norms of the features of each training example, (X,) float64."""
        return row_norms(self.vectors_XD, self.num_features)

    @property
    def num_features(self) -> int:
        """Return F, the number of the model's weights."""
        return self.vectors_XD.shape[1] - (1 if self.sign_X is None else 0)

    def batch(self, rows_B: np.ndarray, weight_B: np.ndarray | None) -> DenseBatch:
        """Return the batch of these training examples."""
        vectors_BD = self.vectors_XD[rows_B]
        if self.sign_X is None:
            return DenseBatch(features_BF=vectors_BD[:, :-1], response_B=vectors_BD[:, -1], weight_B=weight_B)
        sign_B = self.sign_X[rows_B]
        return DenseBatch(features_BF=vectors_BD * sign_B[:, None], response_B=(sign_B + 1) / 2, weight_B=weight_B)


def store(data: RegressionDataset, *, valid_share: float, threshold: float | None, logistic: bool) -> StoredExamples:
    """Standardise a data set by the rows that are trained on.

    ``threshold``: a response above it becomes 1, others 0; None: responses stay. Raises ConfigError if responses are
    not two classes where they must be, DataError if there are too few rows or the response is constant.
    """
    train, valid = hold_out(data.train.num_rows, valid_share)
    response = {name: _response(getattr(data, name), threshold) for name in ("train", "test")}
    if logistic:
        response = _two_classes(data.name, response)
    chosen = response["train"][train]
    if np.ptp(chosen) == 0:
        way_out = "" if threshold is None else f"; dataset.threshold={threshold:g} does not lie between the responses"
        raise DataError(
            f"{data.name}: the response is {chosen[0]:g} in every training row, so there is nothing to fit{way_out}"
        )
    mean_F, deviation_F = _moments(data.train.features_RF, train)
    mean, deviation = (0.0, 1.0) if logistic else (float(chosen.mean()), float(chosen.std()))
    scale = Scale(mean_F=mean_F, deviation_F=deviation_F, response_mean=mean, response_deviation=deviation)
    extra = np.ones(len(train)) if logistic else (chosen - mean) / deviation
    vectors = _standardised(data.train.features_RF, train, scale, extra)
    sign_X = None
    if logistic:
        sign_X = (2 * chosen - 1).astype(np.float32)
        vectors *= sign_X[:, None]

    def rows_of(rows: DenseRows, name: str, which: np.ndarray) -> Split:
        standard = (response[name][which] - mean) / deviation
        padded = _standardised(rows.features_RF, which, scale, np.ones(len(which)))
        features = padded if logistic else padded[:, :-1]
        return Split(features_RF=features, response_R=standard.astype(np.float32))

    return StoredExamples(
        scale=scale,
        vectors_XD=vectors,
        sign_X=sign_X,
        valid=rows_of(data.train, "train", valid),
        test=rows_of(data.test, "test", np.arange(data.test.num_rows)),
    )


def _response(rows: DenseRows, threshold: float | None) -> np.ndarray:
    response = np.asarray(rows.response_R)
    return response if threshold is None else (response > threshold).astype(np.float64)


def _two_classes(name: str, response: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the responses of the splits as 0 and 1; they may be given as -1 and 1."""
    found = np.unique(np.concatenate(list(response.values())))
    if set(found.tolist()) <= {-1.0, 1.0} and -1.0 in found:
        return {split: (response_R + 1) / 2 for split, response_R in response.items()}
    others = found[~np.isin(found, (0.0, 1.0))]
    if len(others) > 0:
        raise ConfigError(
            f"dataset={name} has responses such as {others[len(others) // 2]:g}, but logistic regression needs 0 and 1"
            " (or -1 and 1); set dataset.threshold, above which a response counts as 1"
        )
    return response


def _moments(features_RF: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation of the columns over some rows, computed in blocks; infinite if constant."""
    # Sums of differences from one row are exactly 0 in a constant column, and small where all numbers are alike.
    first_F = features_RF[rows[0]]
    total = np.zeros(features_RF.shape[1])
    for begin in range(0, len(rows), _ROWS_AT_ONCE):
        total += (features_RF[rows[begin : begin + _ROWS_AT_ONCE]] - first_F).sum(axis=0)
    mean_F = first_F + total / len(rows)
    squares = np.zeros_like(total)
    for begin in range(0, len(rows), _ROWS_AT_ONCE):
        squares += np.square(features_RF[rows[begin : begin + _ROWS_AT_ONCE]] - mean_F).sum(axis=0)
    deviation_F = np.sqrt(squares / len(rows))
    # A column that differs by rounding only counts as constant.
    deviation_F[deviation_F <= 1e-12 * np.maximum(np.abs(mean_F), 1e-300)] = np.inf
    return mean_F, deviation_F


def _standardised(features_RF: np.ndarray, rows: np.ndarray, scale: Scale, extra: np.ndarray) -> np.ndarray:
    """Return the standardised features of some rows with one more column, float32, made in blocks."""
    out = np.empty((len(rows), features_RF.shape[1] + 1), dtype=np.float32)
    for begin in range(0, len(rows), _ROWS_AT_ONCE):
        here = slice(begin, begin + _ROWS_AT_ONCE)
        out[here, :-1] = (features_RF[rows[here]] - scale.mean_F) / scale.deviation_F
    out[:, -1] = extra
    return out

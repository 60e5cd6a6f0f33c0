"""Define the tasks of linear and logistic regression: dense rows with one response each.

Training works on standardised rows (``runner.data.regression.batches``), measures are in the units of the file. Test
rows are measured during training too, for curves of the test loss, but every choice is made on validation rows.

Legend: X training examples, B rows of a batch, F features, D size of stored vectors, R rows of a split.
"""

from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numba import njit, prange

from runner.contracts import ExampleDraw, Examples, Measure, TrainingFacts, steps_per_epoch
from runner.data.regression.batches import DenseBatch, Split, StoredExamples, store
from runner.data.regression.dataset import DenseRows, RegressionDataset
from runner.kernels.groups import CHUNKS, PRANGE
from runner.lgd import steps as kernel
from runner.lgd.hashed import Lgd
from runner.lgd.head import LOSSES, ScalarHead, ScalarLoss
from runner.lgd.projections import dot
from runner.lgd.vectors import InMemory
from runner.optimizers import AdaGradConfig, AdamConfig
from runner.options.settings import RunConfig
from runner.tasks.base import Task

if TYPE_CHECKING:
    from runner.lgd import ExampleSampler
    from runner.network import Network

_KERNEL_LOSS = {"squared": kernel.SQUARED, "logistic": kernel.LOGISTIC}


@njit(cache=True, parallel=PRANGE, fastmath={"reassoc", "contract", "arcp", "nsz"})
def _slopes(loss, vectors, query, rows, slopes):
    """Set slopes[m] to |slope(z)| of the example rows[m], or of example m if there are no rows."""
    for part in prange(CHUNKS):
        for m in range(part * len(slopes) // CHUNKS, (part + 1) * len(slopes) // CHUNKS):
            z = dot(query, vectors[rows[m] if len(rows) > 0 else m])
            slopes[m] = abs(kernel.loss_and_slope(loss, z)[1])


class FixedVectors(InMemory):
    """Hold vectors that never move."""

    def __init__(self, matrix: np.ndarray) -> None:
        self.matrix = matrix

    def changed_since(self, step: int) -> np.ndarray:
        """Return nothing."""
        return np.zeros(0, dtype=np.int32)

    def bring_up(self, rows_U: np.ndarray | None, step: int) -> None:
        """Do nothing."""

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return nothing: the data are the state."""
        return {}

    def load_state_dict(self, state: Any) -> None:
        """Do nothing."""


class RegressionView:
    """Show the stored examples, and the weights as a query of the same size.

    With squared loss the query is [theta, -1], so that query . [x, y] is the residual, and gradients grow with its
    magnitude. With logistic loss it is -theta, so that query . s [x, 1] is minus the margin, with which gradients grow.
    """

    def __init__(self, head: ScalarHead, stored: StoredExamples) -> None:
        self.head, self.examples = head, FixedVectors(stored.vectors_XD)
        self.stored = stored
        self.by_magnitude = head.loss == "squared"

    @property
    def feature_norm_X(self) -> np.ndarray:
        """Return the norms of the features of each example, (X,) float64, computed when they are first asked for."""
        return self.stored.feature_norm_X

    @property
    def query_D(self) -> np.ndarray:
        """Return a copy of the query, (D,) float32."""
        weights_F = self.head.table.rows()[0]
        return np.append(weights_F, np.float32(-1)) if self.by_magnitude else -weights_F

    def take_back(self, query_D: np.ndarray) -> None:
        """Set the weights to those of a query."""
        query_F = query_D[:-1] if self.by_magnitude else -query_D
        self.head.table.write(None, vectors=query_F)

    def gradient_norms(self, rows_M: np.ndarray | None = None) -> np.ndarray:
        """Return the norms of these examples' gradients (None: of all) by the weights, (M,) float64."""
        if rows_M is not None and len(rows_M) == 0:
            return np.zeros(0)
        norms_M = np.empty(len(self.examples.matrix) if rows_M is None else len(rows_M))
        chosen = np.zeros(0, dtype=np.int64) if rows_M is None else rows_M
        _slopes(_KERNEL_LOSS[self.head.loss], self.examples.matrix, self.query_D, chosen, norms_M)
        norms_M *= self.feature_norm_X if rows_M is None else self.feature_norm_X[rows_M]
        return norms_M


class CompiledSteps:
    """Take many steps at a time in compiled code; their results are those of single steps up to rounding."""

    def __init__(self, view: RegressionView, sampler: "ExampleSampler", batch_size: int) -> None:
        self.view, self.sampler, self.batch_size = view, sampler, batch_size
        config = view.head.table.config
        self._loss = _KERNEL_LOSS[view.head.loss]
        self._optimizer, self._constants = kernel.SGD, (0.0, 0.0, 0.0)
        if isinstance(config, AdaGradConfig):
            self._optimizer, self._constants = kernel.ADAGRAD, (0.0, 0.0, config.epsilon)
        elif isinstance(config, AdamConfig):
            self._optimizer = kernel.ADAM
            self._constants = (config.beta1, config.beta2, config.epsilon)

    def take(self, first_step: int, steps: int, loss_sum: float = 0.0) -> tuple[float, int, int]:
        """Take steps; return ``loss_sum`` plus their losses, how many were taken, and their rows.

        Fewer are taken if the sampler's tables must be brought up before, or if a loss is not finite.
        """
        sampler, table = self.sampler, self.view.head.table
        vectors_XD, free = self.view.examples.rows(), table.shape[1]
        query_D = self.view.query_D
        nothing = np.zeros(0, dtype=np.float32)
        first = table.first[0] if self._optimizer == kernel.ADAM else nothing
        second = nothing if self._optimizer == kernel.SGD else table.second[0]
        if self._optimizer == kernel.ADAM and not self.view.by_magnitude:
            first *= -1  # the query is minus the weights
        optimizer = (self._optimizer, table.lr, self._constants, first, second)
        if isinstance(sampler, Lgd):
            steps = min(steps, sampler.steps_without_rebuild(first_step))
            loss, taken = kernel.take_hashed_steps(
                loss_sum, self._loss, vectors_XD, query_D, free, sampler.prefix, sampler.buckets, sampler.query_D,
                sampler.config.query_every_steps, self.batch_size, first_step, steps, *optimizer,
            )  # fmt: skip
            rows = taken * self.batch_size
        else:
            steps = min(steps, sampler.steps_without_refresh(first_step))
            draws = sampler.draws(first_step, steps, self.view)
            counts_M = np.zeros(0) if draws.count_M is None else draws.count_M
            slopes_M = np.empty(len(draws.rows_M))
            loss, taken = kernel.take_given_steps(
                loss_sum, self.batch_size == 1, self._loss, vectors_XD, query_D, free, draws.rows_M, draws.begin_S1,
                counts_M, slopes_M, first_step, *optimizer,
            )  # fmt: skip
            rows = int(draws.begin_S1[taken])
            if sampler.learns_norms:
                drawn_M = draws.rows_M[:rows]
                sampler.observe(drawn_M, np.abs(slopes_M[:rows]) * self.view.feature_norm_X[drawn_M])
        if self._optimizer == kernel.ADAM:
            table.last_step[0] = first_step + taken - 1
            if not self.view.by_magnitude:
                first *= -1
        self.view.take_back(query_D)
        return loss, taken, rows


class _Regression(Task):
    """Train one row of weights on dense rows."""

    unit = "row"
    shows_examples = True
    sections = frozenset()
    loss: ScalarLoss

    def __init__(self, config: RunConfig, data: RegressionDataset) -> None:
        self.config, self.data = config, data
        self.stored: StoredExamples = store(
            data,
            valid_share=config.dataset.valid_share,
            threshold=config.dataset.threshold,
            logistic=self.loss == "logistic",
        )
        self.num_features = self.stored.num_features
        count = len(self.stored.vectors_XD)
        self.examples = Examples(count=count)
        self.training = TrainingFacts(
            label_counts_N=np.zeros(0, dtype=np.int64),
            num_rows=count,
            steps_per_epoch=steps_per_epoch(count, config.batch_size),
        )
        self.rows_per_step, self.rows_per_epoch = config.batch_size, count

    @classmethod
    def rehearsal(cls, config: RunConfig) -> Self:
        generator = np.random.default_rng(0)
        features = generator.standard_normal((40, 3))
        response = features @ np.array([1.0, -1.0, 0.5])
        rows = DenseRows(features_RF=features, response_R=(response > 0).astype(np.float64))
        data = RegressionDataset(name="rehearsal", train=rows, test=rows, num_features=3, checksum="", variant="")
        dataset = replace(config.dataset, valid_share=0.2, threshold=None)
        return cls(replace(config, dataset=dataset, batch_size=min(config.batch_size, 4)), data)

    # ------------------------------------------------------------ training

    def build_head(self) -> ScalarHead:
        """Return one row of weights, without a bias: the stored examples are centred or have a coordinate of 1."""
        return ScalarHead(dim=self.num_features, loss=self.loss, optimizer=self.config.optimizer, bias=False)

    def notices(self) -> list[str]:
        return []

    def batch(self, draw: ExampleDraw) -> DenseBatch:
        """Return the drawn training examples."""
        return self.stored.batch(draw.rows_B, draw.weight_B(self.examples.count))

    def view(self, network: "Network[Any]") -> RegressionView:
        return RegressionView(network.head, self.stored)

    def compiled_steps(self, network: "Network[Any]", sampler: "ExampleSampler") -> CompiledSteps | None:
        """Return steps in compiled code, unless gradients are clipped."""
        if self.config.training.clip is not None:
            return None
        return CompiledSteps(self.view(network), sampler, self.config.batch_size)

    def probe(self, rows: int, split: Literal["train", "test"] = "test") -> DenseBatch:
        if split == "train":
            return self.stored.batch(np.arange(min(rows, self.examples.count)), None)
        test = self.stored.test
        return DenseBatch(features_BF=test.features_RF[:rows], response_B=test.response_R[:rows])

    def glance(self) -> DenseBatch:
        return self.probe(32)

    # ------------------------------------------------------------ measures

    def evaluate_subset(self, network: "Network[Any]") -> dict[str, Any]:
        """Measure all rows of all splits."""
        return self.evaluate_final(network)

    def evaluate_final(self, network: "Network[Any]") -> dict[str, Any]:
        head: ScalarHead = network.head
        vectors_XD, sign_X = self.stored.vectors_XD, self.stored.sign_X
        if sign_X is None:
            train = Split(features_RF=vectors_XD[:, :-1], response_R=vectors_XD[:, -1])
            predicted_X = head.predict(train.features_RF)
        else:
            train = Split(features_RF=vectors_XD, response_R=(sign_X + 1) / 2)
            predicted_X = head.predict(vectors_XD) * sign_X
        metrics: dict[str, Any] = {}
        splits = {"train": (train, predicted_X)}
        for name in ("valid", "test"):
            split: Split = getattr(self.stored, name)
            splits[name] = (split, head.predict(split.features_RF))
        for name, (split, predicted_R) in splits.items():
            metrics |= {f"{name}/{key}": value for key, value in self.measured(predicted_R, split.response_R).items()}
        return metrics

    @abstractmethod
    def measured(self, predicted_R: np.ndarray, response_R: np.ndarray) -> dict[str, float]:
        """Return the measures of standardised predictions (R,) float32, without their split's name."""

    # ------------------------------------------------------------ words

    @property
    def description(self) -> str:
        held = self.stored
        return (
            f"{self.examples.count:,} training rows, {len(held.valid.response_R):,} for validation,"
            f" {len(held.test.response_R):,} to test, {self.data.num_features:,} features"
        )

    def about_data(self) -> dict[str, Any]:
        held = self.stored
        return {
            "name": self.data.name,
            "variant": self.data.variant,
            "num_features": self.data.num_features,
            "num_train": self.examples.count,
            "num_valid": len(held.valid.response_R),
            "num_test": len(held.test.response_R),
        }


class LinearRegression(_Regression):
    """Fit by squared loss; measure the mean squared error, in squared units of the response, and R^2."""

    loss = "squared"
    measures = (
        Measure(key="mse", label="MSE", unit="", scale=1, decimals=4, higher_is_better=False, headline=True),
        Measure(key="r2", label="R²", unit="", scale=1, decimals=4, higher_is_better=True, headline=False),
    )

    def measured(self, predicted_R: np.ndarray, response_R: np.ndarray) -> dict[str, float]:
        """Return MSE and R^2 = 1 - MSE / variance of the split's responses (0 if they are constant and not met)."""
        truth_R = response_R.astype(np.float64)
        mse = float(np.square(predicted_R - truth_R).mean())
        variance = float(truth_R.var())
        r2 = 1 - mse / variance if variance > 0 else float(mse == 0)
        return {"mse": mse * self.stored.scale.response_deviation**2, "r2": r2}


class LogisticRegression(_Regression):
    """Fit by logistic loss; measure how many classes are predicted right, and the mean loss in nats."""

    loss = "logistic"
    measures = (
        Measure(
            key="accuracy", label="accuracy", unit="%", scale=100, decimals=2, higher_is_better=True, headline=True
        ),
        Measure(key="loss", label="loss", unit="", scale=1, decimals=4, higher_is_better=False, headline=False),
    )

    def measured(self, predicted_R: np.ndarray, response_R: np.ndarray) -> dict[str, float]:
        """Return accuracy (log odds of exactly 0 predict class 0) and loss."""
        right = (predicted_R > 0) == (response_R > 0.5)
        return {"accuracy": float(right.mean()), "loss": float(LOSSES["logistic"](predicted_R, response_R)[0].mean())}

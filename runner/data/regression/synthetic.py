"""Generate tables for regression: skewed, correlated features and heavy-tailed noise whose scale depends on them.

They are like tables of house prices (California housing) in what matters to sampling examples: a few rows have far
larger residuals and norms than the others, and so far larger gradients.

Model. For each row r, independently, with F features j = 0 .. F-1:

- z_r0 = e_r0 and z_rj = 0.6 z_r,j-1 + 0.8 e_rj, with e_rj standard normal: neighbours have the correlation 0.6 and
  every z_rj has the variance 1.
- x_rj = exp(s_j z_rj), with s_j = 0.25 + 0.75 j / (F-1): the first feature is nearly symmetric, the last has a
  skewness of 6.2 and a heavy right tail.
- u_rj = (x_rj - m_j) / d_j, with m_j and d_j the mean exp(s_j²/2) and the standard deviation m_j sqrt(exp(s_j²) - 1).
- y_r = sum over j of w_j u_rj + 0.5 a_r t_r, with w_j = (-1)^j / (j + 1), a_r the mean over j of x_rj / m_j (a number
  around 1, the "size" of the row), and t_r Student noise with `tail` degrees of freedom.

The features are x_r, the response is y_r. Rows are independent, so the last round(test_share * num_rows) of them are
the test rows. Each chunk of rows is drawn from a generator keyed by (seed, chunk), so the same configuration gives the
same numbers.

Legend: r rows of a chunk, F features.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from runner.data.regression.dataset import RegressionDataset
from runner.data.regression.settings import RegressionConfig
from runner.data.shared.base import seed_of, share_for_test
from runner.options.fields import option

GENERATOR_VERSION = 1  # part of the folder's hash; raise it when the same configuration gives other data than before
ROWS_AT_ONCE = 4096
CORRELATION = 0.6
LEAST_SPREAD, MOST_SPREAD = 0.25, 1.0  # standard deviation of the logarithm of the first and of the last feature
NOISE = 0.5


@dataclass(frozen=True, kw_only=True)
class SyntheticRegressionConfig(RegressionConfig):
    """Generate a table with skewed, correlated features and heavy-tailed noise whose scale depends on the features."""

    kind: str = "synthetic_regression"
    name: str = "synthetic_regression"
    num_rows: int = option(20_000, "training and test rows together", low=10, high=100_000_000)
    num_features: int = option(8, "number of features", low=2, high=10_000)
    tail: float = option(
        3.0, "degrees of freedom of the Student noise; smaller numbers make a heavier tail", above=2, high=1e6
    )
    test_share: float = share_for_test(0.5)
    seed: int = seed_of("the data, which do not depend on the run's seed")

    def build(self) -> RegressionDataset:
        """Generate the table and open it; a configuration that was generated before is only opened."""
        from runner.data.regression.dataset import RegressionManifest
        from runner.data.regression.write import write_dense
        from runner.data.shared.manifests import Origin, combine
        from runner.data.shared.places import prepared_dir
        from runner.data.shared.store import load_once_filled

        sizes = (self.num_rows, self.num_features, self.tail, self.test_share, self.seed)
        key = combine(GENERATOR_VERSION, *sizes)[:16]

        def fill(folder: Path) -> RegressionManifest:
            cut = self.num_rows - max(1, round(self.test_share * self.num_rows))
            return write_dense(
                folder,
                {"train": self._rows(0, cut), "test": self._rows(cut, self.num_rows)},
                num_features=self.num_features,
                origin=Origin(name="synthetic_regression", variant=f"generated-seed-{self.seed}", sources={}),
            )

        folder = prepared_dir("synthetic_regression", key)
        return load_once_filled(folder, RegressionDataset, self.name, fill, says=f"generating {self.name} {key}")

    def _rows(self, start: int, stop: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the rows from `start` to before `stop`, chunk by chunk."""
        for chunk in range(start // ROWS_AT_ONCE, -(-stop // ROWS_AT_ONCE)):
            first = chunk * ROWS_AT_ONCE
            inside = slice(max(start - first, 0), min(stop - first, ROWS_AT_ONCE))
            features_rF, response_r = self._chunk(chunk)
            yield features_rF[inside], response_r[inside]

    def _chunk(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Draw a whole chunk: features (r, F) and response (r)."""
        rng = np.random.default_rng([self.seed, number])
        z_rF = rng.standard_normal((ROWS_AT_ONCE, self.num_features))
        for j in range(1, self.num_features):
            z_rF[:, j] = CORRELATION * z_rF[:, j - 1] + np.sqrt(1 - CORRELATION**2) * z_rF[:, j]
        spread_F = np.linspace(LEAST_SPREAD, MOST_SPREAD, self.num_features)
        features_rF = np.exp(spread_F * z_rF)
        mean_F = np.exp(spread_F**2 / 2)
        deviation_F = mean_F * np.sqrt(np.expm1(spread_F**2))
        position_F = np.arange(self.num_features)
        weight_F = np.where(position_F % 2, -1.0, 1.0) / (position_F + 1)
        # Sums along rows, not matrix products: their order does not depend on the number of threads.
        signal_r = (weight_F * (features_rF - mean_F) / deviation_F).sum(axis=1)
        scale_r = (features_rF / mean_F).mean(axis=1)
        return features_rF, signal_r + NOISE * scale_r * rng.standard_t(self.tail, ROWS_AT_ONCE)

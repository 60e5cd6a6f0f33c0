"""Make samplers of examples, the vectors that they look at, and sets of odd input.

Legend: X training examples, D size of the vectors, M chosen examples, B examples of a step, S steps.
"""

from typing import Any

import numpy as np

from runner.contracts import Examples
from runner.lgd import BATCH_SAMPLERS, ExampleSampler
from runner.lgd.task import FixedVectors

COUNT, DIM, BATCH = 37, 5, 8
NAMES = sorted(BATCH_SAMPLERS)
# Every sampler as it is, and settings that leave empty buckets, limit no weight, and bring tables and queries up often.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in NAMES},
    "norm_oracle, old norms": ("norm_oracle", {"refresh_every_steps": 3, "uniform_share": 0.2}),
    "lgd_strata": ("lgd_strata", {"refresh_every_steps": 2}),
    "lgd_strata, norms only": ("lgd_strata", {"K": 0, "norm_levels": 3, "refresh_every_steps": 3}),
    "lgd": ("lgd", {"L": 10}),
    "lgd, old query": ("lgd", {"K": 3, "L": 4, "query_every_steps": 4, "max_weight": None}),
    "lgd, rebuilt": ("lgd", {"K": 7, "L": 3, "refresh_every_steps": 3, "when_empty": "redraw"}),
    "lgd, sparse": ("lgd", {"L": 5, "projections": "sparse", "density": 0.5}),
    "lgd, quadratic": ("lgd", {"L": 5, "projections": "sparse", "density": 0.5, "absolute": "quadratic"}),
    "lgd, hadamard": ("lgd", {"L": 5, "projections": "hadamard"}),
}
# Those whose counts hold with the tables at hand. Of the others, epoch states none, and test_lgd_counts.py tests lgd's.
EXACT = [variant for variant, (name, _) in VARIANTS.items() if name not in ("epoch", "lgd")]


class ToyView:
    """Show vectors and a query that a test sets; gradients are those of squared or logistic loss at query . vector."""

    def __init__(self, matrix_XD: np.ndarray, query_D: np.ndarray, *, by_magnitude: bool = True) -> None:
        self.examples = FixedVectors(np.ascontiguousarray(matrix_XD, dtype=np.float32))
        self.query_D = query_D.astype(np.float32)
        self.by_magnitude = by_magnitude

    def gradients(self, rows_M: np.ndarray | None = None) -> np.ndarray:
        """Return the gradients of these examples (None: of all), (M, D - 1) or (M, D) float64, by plain formulas."""
        vectors = self.examples.matrix if rows_M is None else self.examples.matrix[rows_M]
        z_M = vectors.astype(np.float64) @ self.query_D.astype(np.float64)
        if self.by_magnitude:
            return 2 * z_M[:, None] * vectors[:, :-1]
        return vectors / (1 + np.exp(-z_M))[:, None]

    def gradient_norms(self, rows_M: np.ndarray | None = None) -> np.ndarray:
        return np.linalg.norm(self.gradients(rows_M), axis=1)


def toy_view(count: int = COUNT, dim: int = DIM, *, seed: int = 0, by_magnitude: bool = True) -> ToyView:
    """Return vectors of unlike norms and directions, and a query [theta, -1]."""
    generator = np.random.default_rng(seed)
    matrix_XD = generator.standard_normal((count, dim)) * generator.uniform(0.3, 2, (count, 1))
    return ToyView(matrix_XD, np.append(generator.standard_normal(dim - 1), -1), by_magnitude=by_magnitude)


def build(
    name: str, view: ToyView | None = None, *, seed: int = 3, count: int = COUNT, batch: int = BATCH, **settings: Any
) -> ExampleSampler:
    """Return the sampler with its tables, or without them if there is no view."""
    examples = Examples(count=count if view is None else len(view.examples.matrix))
    sampler = BATCH_SAMPLERS[name](name=name, **settings).build(examples=examples, batch_size=batch, seed=seed)
    if view is not None:
        sampler.refresh(0, view)
    return sampler


def walk(sampler: ExampleSampler, view: ToyView, first: int, last: int) -> list[tuple[list[int], list[float]]]:
    """Take steps with a query that turns; return the rows of each draw and the logs of their expected counts."""
    made = []
    for step in range(first, last + 1):
        draw = sampler.draw(step, view)
        logs = draw.log_expected_count_B
        made.append((draw.rows_B.tolist(), [] if logs is None else logs.tolist()))
        if sampler.learns_norms:
            sampler.observe(draw.rows_B, view.gradient_norms(draw.rows_B))
        turn(view, step)
        sampler.refresh(step, view)
    return made


def turn(view: ToyView, step: int) -> None:
    """Set the query that the model has after a step."""
    view.query_D = np.append(np.random.default_rng(step).standard_normal(len(view.query_D) - 1), -1).astype(np.float32)

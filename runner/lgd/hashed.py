"""Draw examples whose gradients are large from hash tables, at nearly the cost of a uniform draw (LGD).

The norm of an example's gradient grows with query . vector (see ``View``), so the examples in the query's bucket are
those of large gradients, and a draw costs K projections whatever the number of examples.

The stated chance is that over the draw of the hash functions (Algorithm 1 of the paper). With the tables of one run,
the estimate of the gradient is therefore biased; docs/deviations.md tells by how much.

@inproceedings{chen2019fast, title={Fast and Accurate Stochastic Gradient Estimation},
author={Chen, Beidi and Xu, Yingchen and Shrivastava, Anshumali}, booktitle={NeurIPS}, year={2019}}

Legend: X all training examples, B examples of a step, M examples of several steps, D size of the vectors, L tables.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from runner import rng
from runner.contracts import Examples, Vectors, View
from runner.errors import require
from runner.kernels.norms import row_norms
from runner.lgd import buckets as kernel
from runner.lgd.base import BulkSampler, Draws, ExampleSamplerConfig
from runner.lgd.projections import MOST_BITS, Kind, SignProjections
from runner.options.fields import option
from runner.structures.tables import BucketTables

_LARGEST_WEIGHT = 1e30


@dataclass(frozen=True, kw_only=True)
class LgdConfig(ExampleSamplerConfig):
    """Draw examples whose gradients are large, by locality-sensitive hashing; ``preset=lgd`` has the paper's settings.

    ``when_empty=redraw`` has the paper's factor (1 - P)^(l - 1), the chance that one example, not all, misses l - 1
    buckets. So estimates with many empty buckets are biased; skipping is not, over the draw of the hash functions. A
    limit of weights that binds biases the estimate too. With q and -q joined it cannot bind for K up to 7; with
    one-sided queries it can.
    """

    needs_view: ClassVar[bool] = True
    name: str = "lgd"
    K: int = option(5, "bits of a table", low=1, high=MOST_BITS)
    L: int = option(100, "tables", low=1, high=10_000)
    projections: Kind = option("gaussian", "", choices={"gaussian": "", "sparse": "the paper's", "hadamard": ""})
    density: float = option(1 / 30, "share of the entries of a sparse projection that are not 0", above=0, high=1)
    absolute: Literal["both_signs", "quadratic"] = option(
        "both_signs",
        "how |query . vector| is asked for",
        choices={"both_signs": "query q and -q", "quadratic": "hash products of pairs"},
    )
    when_empty: Literal["skip", "redraw"] = option(
        "skip",
        "what to do if the query's bucket is empty",
        choices={"skip": "learn nothing, unbiased", "redraw": "the paper's"},
    )
    query_every_steps: int = option(
        1, "steps that share one query; above 1, memory reads of several draws overlap", low=1
    )
    max_weight: float | None = option(
        100.0, "largest weight of a draw, that of a uniform draw being 1", null="no limit", low=1
    )
    refresh_every_steps: int | None = option(
        None, "steps between two rebuilds of the tables, for vectors that move", null="never", low=1
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.projections == "sparse" or self.density == LgdConfig.density,
            f"batch_sampler.density has no effect on projections={self.projections}; set"
            " batch_sampler.projections=sparse too",
        )
        require(
            self.absolute != "quadratic" or self.projections == "sparse",
            "batch_sampler.absolute=quadratic hashes products of pairs by sparse projections; set"
            " batch_sampler.projections=sparse too",
        )

    def table_bytes(self, num_examples: int) -> int:
        """Return the memory of the tables, and of the codes that they are built from."""
        return self.L * (6 * num_examples + (4 << self.K))

    def build(self, *, examples: Examples, batch_size: int, seed: int) -> "Lgd":
        """Make the sampler."""
        return Lgd(self, examples, batch_size, seed)


class Lgd(BulkSampler):
    """Draw from tables of the examples' stored vectors; ``buckets`` and ``query_D`` are what draws read."""

    buckets: kernel.Buckets
    query_D: np.ndarray

    def __init__(self, config: LgdConfig, examples: Examples, batch_size: int, seed: int) -> None:
        self.config, self.examples, self.batch_size, self.seed = config, examples, batch_size, seed
        self.prefix = np.uint64(kernel.seed_prefix(seed, rng.EXAMPLES))
        self.vectors: Vectors | None = None
        self._built = 0  # the step at whose end the tables were built
        self._restored: Mapping[str, np.ndarray] | None = None

    # ------------------------------------------------------------ tables

    def refresh(self, step: int, view: View | None = None) -> bool:
        """Rebuild the tables and take a new query where that is due."""
        self.make_tables(view)
        assert view is not None, "the task shows this sampler its examples"
        every = self.config.refresh_every_steps
        is_due = self._built < step and every is not None and step % every == 0
        if is_due:
            assert self.vectors is not None
            self.vectors.bring_up(None, step)
            self._build(view, step)
        if step % self.config.query_every_steps == 0:
            self.query_D = np.array(view.query_D, dtype=np.float32)
        return is_due

    def check_view(self, view: View) -> None:
        """Ask for a query, which a model with more than two classes refuses."""
        _ = view.query_D

    def make_tables(self, view: View | None) -> None:
        """Build the tables if there are none: at the start of a run, or when it is resumed."""
        if self.vectors is not None:
            return
        assert view is not None, "the task shows this sampler its examples"
        self.vectors = view.examples
        if self._restored is None:
            self.vectors.bring_up(None, 0)
            self._build(view, 0)
            self.query_D = np.array(view.query_D, dtype=np.float32)
            return
        self.vectors.load_state_dict(self._restored)
        self._build(view, int(self._restored["built"][0]))
        self.query_D = np.array(self._restored["query"])

    def _build(self, view: View, step: int) -> None:
        config, matrix_XD = self.config, view.examples.rows()
        quadratic = view.by_magnitude and config.absolute == "quadratic"
        family = SignProjections(
            dim=matrix_XD.shape[1], K=config.K, L=config.L, seed=self.seed, kind=config.projections,
            density=config.density, quadratic=quadratic,
        )  # fmt: skip
        tables = BucketTables(L=config.L, num_rows=len(matrix_XD), code_bits=config.K, seed=self.seed)
        tables.codes = family.hash_all(matrix_XD)
        tables.build()
        norm_X = row_norms(matrix_XD)
        inverse_norm = np.where(norm_X > 0, 1 / np.maximum(norm_X, 1e-300), 0).astype(np.float32)
        sides = kernel.ONE_SIDED
        if view.by_magnitude:
            sides = kernel.SQUARED if quadratic else kernel.BOTH_SIGNS
        self.buckets = kernel.Buckets(
            projections=family.arrays,
            bits=config.K,
            start=tables.start,
            members=tables.members,
            inverse_norm=inverse_norm,
            sides=sides,
            redraws=config.when_empty == "redraw",
            # Without a limit, a weight still has to be a finite float32.
            least_count=1 / (self.examples.count * (config.max_weight or _LARGEST_WEIGHT)),
        )
        self._built = step

    # ------------------------------------------------------------ draws

    def draws(self, first_step: int, steps: int, view: View | None = None) -> Draws:
        """Return the draws of several steps with the present query."""
        self.make_tables(view)
        assert self.vectors is not None
        rows_M = np.empty(steps * self.batch_size, dtype=np.int64)
        count_M = np.empty(len(rows_M), dtype=np.float64)
        kernel.draw_examples(
            self.prefix, first_step, self.batch_size, self.vectors.rows(), self.query_D, self.buckets, rows_M, count_M
        )
        return Draws(
            rows_M=rows_M,
            begin_S1=np.arange(steps + 1) * self.batch_size,
            count_M=self.batch_size * count_M,
        )

    def steps_without_refresh(self, step: int) -> int:
        """Return the number of steps to the next query or the next rebuild of the tables."""
        every = self.config.refresh_every_steps or 2**62
        return min(number - (step - 1) % number for number in (self.config.query_every_steps, every))

    def steps_without_rebuild(self, step: int) -> int:
        """Return the number of steps to the next rebuild of the tables."""
        every = self.config.refresh_every_steps or 2**62
        return every - (step - 1) % every

    # ------------------------------------------------------------ state

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return the query, when the tables were built, and the state of the vectors; tables are built from these."""
        if self.vectors is None:
            return dict(self._restored or {})  # a resumed run may stop before its first step
        return {"query": self.query_D, "built": np.array([self._built]), **self.vectors.state_dict()}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore what ``state_dict`` returned; the tables are built when the sampler next gets a view."""
        self.vectors = None
        self._restored = {name: np.array(array) for name, array in state.items()} or None

"""Time training steps of linear regression with each sampler of examples, side by side.

A step draws, computes the chance of what it drew, and descends; hash functions of the query are part of it. Building
tables is timed apart. Data are random, because the time of a step depends on their shape alone.

Legend: X examples, D size of stored vectors.
"""

import time
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numba import njit, prange

from runner import rng
from runner.bench.arithmetic import Spread
from runner.bench.machine import shortage
from runner.bench.measure import say
from runner.bench.output_layer import limits_before_and_after
from runner.bench.settings import ExampleSteps
from runner.contracts import Examples
from runner.data.regression.batches import Scale, Split, StoredExamples
from runner.kernels.groups import CHUNKS
from runner.lgd import BATCH_SAMPLERS, ExampleSampler
from runner.lgd.hashed import Lgd
from runner.lgd.head import ScalarHead
from runner.lgd.task import CompiledSteps, RegressionView
from runner.optimizers import SgdConfig

NUM_FEATURES = 90  # as YearPredictionMSD has
_MOST_QUADRATIC = 1_000_000  # examples of which tables of products are built
_SECONDS = 0.3  # of one repetition of one method
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "uniform": ("uniform", {}),
    "epoch": ("epoch", {}),
    "lgd, sparse, query every step": ("lgd", {"projections": "sparse", "when_empty": "redraw"}),
    "lgd, sparse, query every 8 steps": ("lgd", {"projections": "sparse", "query_every_steps": 8}),
    "lgd, sparse, query every 32 steps": ("lgd", {"projections": "sparse", "query_every_steps": 32}),
    "lgd, gaussian, query every step": ("lgd", {}),
    "lgd, gaussian, query every 8 steps": ("lgd", {"query_every_steps": 8}),
    "lgd, gaussian, query every 32 steps": ("lgd", {"query_every_steps": 32}),
    "lgd, hadamard, query every 32 steps": ("lgd", {"projections": "hadamard", "query_every_steps": 32}),
    "lgd, quadratic, query every 32 steps": (
        "lgd", {"projections": "sparse", "absolute": "quadratic", "query_every_steps": 32},
    ),
    "lgd_strata": ("lgd_strata", {}),
    "norm_oracle, every step": ("norm_oracle", {}),
}  # fmt: skip
NOTES = (
    "Nanoseconds of one training step for each example of a batch: medians of repetitions that take turns, lowest and "
    "highest beside them. Ratios are to uniform draws at the same batch size. Steps of one example depend on each "
    "other through the weights, so a method that reads memory at a place which the weights decide waits for it in every"
    " step; if several steps share a query, such reads overlap.",
    "Build: seconds of making the tables, with all threads; everything else runs on one. Methods that differ in the "
    "query alone share one set of tables. Steps are plain SGD.",
)


@njit(parallel=True, cache=True)
def _fill(vectors, seed):
    """Fill with uniform numbers of mean 0 and variance 1; the bits do not depend on the number of threads."""
    for part in prange(CHUNKS):
        for i in range(part * len(vectors) // CHUNKS, (part + 1) * len(vectors) // CHUNKS):
            key = rng.stream(seed, rng.FEATURE_INIT, 0, i)
            for k in range(vectors.shape[1]):
                vectors[i, k] = (rng.unit(rng.word(key, k)) - 0.5) * np.sqrt(12.0)


@dataclass
class _Entrant:
    """A method's network, sampler and timings; ``seconds`` has one item per repetition, for each example of a step."""

    steps: CompiledSteps
    sampler: ExampleSampler
    build_seconds: float
    step: int = 0
    at_once: int = 1
    seconds: list[float] = field(default_factory=list)

    def run(self, seconds: float) -> float:
        """Take steps for about so long; return the seconds of a step."""
        begin, taken = time.perf_counter(), 0
        while True:
            _, count, _ = self.steps.take(self.step + 1, self.at_once)
            self.step += count
            taken += count
            self.sampler.refresh(self.step, self.steps.view)
            spent = time.perf_counter() - begin
            if spent >= seconds:
                return spent / taken
            self.at_once = max(1, min(2 * self.at_once, int(taken * (seconds - spent) / spent) + 1))


def stored(num_examples: int) -> StoredExamples:
    """Return random examples of the bench's shape."""
    vectors_XD = np.empty((num_examples, NUM_FEATURES + 1), dtype=np.float32)
    _fill(vectors_XD, 0)
    nothing = Split(features_RF=vectors_XD[:0, :-1], response_R=vectors_XD[:0, -1])
    ones = np.ones(NUM_FEATURES)
    scale = Scale(mean_F=ones, deviation_F=ones, response_mean=0.0, response_deviation=1.0)
    return StoredExamples(scale=scale, vectors_XD=vectors_XD, sign_X=None, valid=nothing, test=nothing)


def _entrant(examples: StoredExamples, method: str, batch_size: int, built: "_Built | None" = None) -> _Entrant:
    """Make a method's network and sampler; ``built``: tables of the same hash functions, which are not built again."""
    name, settings = METHODS[method]
    head = ScalarHead(dim=NUM_FEATURES, loss="squared", optimizer=SgdConfig(lr=1e-6), bias=False)
    weights_F = rng.generator(0, rng.CLASS_INIT).standard_normal(NUM_FEATURES) / 10
    head.table.write(None, vectors=weights_F)
    view = RegressionView(head, examples)
    sampler = BATCH_SAMPLERS[name](name=name, **settings).build(
        examples=Examples(count=len(examples.vectors_XD)), batch_size=batch_size, seed=0
    )
    if isinstance(sampler, Lgd) and built is not None and built.key == _hashing(method):
        sampler.vectors, sampler.query_D = view.examples, view.query_D
        redraws = settings.get("when_empty") == "redraw"
        sampler.buckets = built.sampler.buckets._replace(redraws=redraws)
        return _Entrant(CompiledSteps(view, sampler, batch_size), sampler, built.seconds)
    begin = time.perf_counter()
    sampler.refresh(0, view)
    return _Entrant(CompiledSteps(view, sampler, batch_size), sampler, time.perf_counter() - begin)


def _hashing(method: str) -> tuple[str, str]:
    """Return what decides a method's tables: its projections, and how it asks for magnitudes."""
    settings = METHODS[method][1]
    return settings.get("projections", "gaussian"), settings.get("absolute", "both_signs")


@dataclass(frozen=True, kw_only=True)
class _Built:
    """Hold the tables that were built last, and how long that took."""

    key: tuple[str, str]
    sampler: Lgd
    seconds: float


def needed_bytes(num_examples: int) -> int:
    """Return the memory of the examples and of the largest tables, with the codes that they are built from."""
    tables = 100 * num_examples * (4 + 2)
    return num_examples * (4 * (NUM_FEATURES + 1) + 8) + tables


def one_size(num_examples: int, asked: ExampleSteps) -> dict[str, Any]:
    """Measure every method at one number of examples; return its part of the report.

    Methods are measured in pairs with uniform draws, so that tables of only one method are in memory at a time.
    """
    batch_sizes, repetitions = asked.batches, asked.repetitions
    part: dict[str, Any] = {
        "examples": num_examples,
        "dim": NUM_FEATURES,
        "matrix_mb": num_examples * 4 * (NUM_FEATURES + 1) / 2**20,
    }
    if status := shortage(needed_bytes(num_examples)):
        return {**part, "results": [{"method": name, "status": status} for name in METHODS]}
    few = stored(300)
    for method in METHODS:  # so that no time of a table holds that of compiling
        _entrant(few, method, batch_sizes[0]).run(0.0)
    examples = stored(num_examples)
    results: list[dict[str, Any]] = []

    def run() -> list[dict[str, Any]]:
        built: _Built | None = None
        for method in METHODS:
            if _hashing(method)[1] == "quadratic" and num_examples > _MOST_QUADRATIC:
                results.append({"method": method, "status": "skipped: tables of products take too long to build"})
                continue
            for batch_size in batch_sizes:
                say(f"{num_examples:,} examples: {method}, batches of {batch_size}")
                if built is not None and METHODS[method][0] == "lgd" and built.key != _hashing(method):
                    built = None  # so that two sets of tables are never in memory at a time
                ours, uniform = _entrant(examples, method, batch_size, built), _entrant(examples, "uniform", batch_size)
                if isinstance(ours.sampler, Lgd):
                    built = _Built(key=_hashing(method), sampler=ours.sampler, seconds=ours.build_seconds)
                for repetition in range(repetitions + 1):
                    for entrant in (ours, uniform):
                        seconds = entrant.run(_SECONDS if repetition else _SECONDS / 3)
                        if repetition > 0:  # the first one compiles and touches memory
                            entrant.seconds.append(seconds / batch_size)
                ratios = [a / b for a, b in zip(ours.seconds, uniform.seconds, strict=True)]
                results.append(
                    {
                        "method": method,
                        "status": "measured",
                        "batch_size": batch_size,
                        "ns_per_example": asdict(Spread.of([1e9 * seconds for seconds in ours.seconds])),
                        "times_uniform": asdict(Spread.of(ratios)),
                        "build_seconds": ours.build_seconds,
                    }
                )
        return results

    _, _, machine = limits_before_and_after(run)
    return {**part, **machine, "results": results}

"""Make what a sampler is checked on: a case of its settings, a class matrix of 120 vectors and a batch of six rows.

Legend: B rows, D hidden size, N classes, P targets of the batch.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from runner.contracts import Everything, Proposal, Query, TrainingFacts
from runner.errors import ConfigError
from runner.optimizers import AdamConfig
from runner.output.engines import layer_of, make_rows
from runner.output.layer import Layer
from runner.samplers import SAMPLERS, Sampler, SamplerConfig
from runner.samplers.building import build_sampler

NUM_CLASSES, DIM, ROWS = 120, 16, 6
BOUND = 5.0
"""A comparison may be off by this many standard deviations, which gives a false alarm for 6e-7 of all seeds."""
NOBODY = np.zeros(0, dtype=np.int32)
_MOST_BY_DEFAULT = NUM_CLASSES // 3


class Broken(AssertionError):
    """Report that a sampler breaks its contract; the message says how."""


def demand(holds: bool | np.bool_, message: str) -> None:
    """Raise Broken(message) unless the condition holds."""
    if not holds:
        raise Broken(message)


@dataclasses.dataclass(frozen=True)
class Case:
    """Hold a sampler's config, small enough for 120 classes; ``name`` tells the cases of one sampler apart."""

    name: str
    config: SamplerConfig
    engine: str = "numba"
    device: str | None = None

    def layer(self, num_classes: int = NUM_CLASSES, **options: Any) -> Layer:
        """Return a fresh class matrix of the case's engine (``random_layer``)."""
        return random_layer(num_classes, engine=self.engine, device=self.device, **options)

    def build(self, layer: Layer, *, seed: int = 3, **changes: Any) -> Sampler:
        """Make the sampler for a class matrix; ``changes`` replace settings of the config."""
        training = TrainingFacts.one_label_a_row(label_counts(layer.num_classes))
        config = dataclasses.replace(self.config, **changes)
        return build_sampler(config, layer=layer, training=training, seed=seed)

    def on_the_usual(self) -> tuple[Sampler, Layer, Query]:
        """Return the sampler built for a fresh class matrix, that matrix, and a batch."""
        layer = self.layer()
        return self.build(layer), layer, random_query()


def cases_of(name: str, engine: str = "numba", device: str | None = None) -> dict[str, Case]:
    """Return the cases of a registered sampler by name: its config class's, or one of its defaults, cut down to size.

    ``engine``: what holds the class matrix. ``device``: torch's name of where it lies; None: the CPU.

    Raise ConfigError if a case does not make a valid config.
    """
    cls = SAMPLERS[name]
    stated = cls.contract_cases or {"defaults": _small_defaults(name, cls)}
    return {case: Case(case, _config(name, cls, case, settings), engine, device) for case, settings in stated.items()}


def small_options(name: str) -> list[str]:
    """Return the settings of the sampler's first case as command-line words, for runs on fifty classes or more."""
    config = next(iter(cases_of(name).values())).config
    changed = {
        field.name: getattr(config, field.name)
        for field in dataclasses.fields(config)
        if field.name != "name" and getattr(config, field.name) != field.default
    }
    return [f"sampler.{key}={'null' if value is None else value}" for key, value in changed.items()]


def _config(name: str, cls: type[SamplerConfig], case: str, settings: Mapping[str, Any]) -> SamplerConfig:
    try:
        return cls(name=name, **settings)
    except (ConfigError, TypeError) as error:
        way_out = "" if cls.contract_cases else f"; set {cls.__name__}.contract_cases"
        raise ConfigError(f"sampler={name}, case '{case}' of contract_cases: {error}{way_out}") from None


def _small_defaults(name: str, cls: type[SamplerConfig]) -> dict[str, Any]:
    """Cut integers above a third of the classes down to that. Raise ConfigError for a field without a default."""
    small: dict[str, Any] = {}
    for field in dataclasses.fields(cls):
        if field.name == "name":
            continue
        if field.default is field.default_factory is dataclasses.MISSING:
            raise ConfigError(
                f"sampler={name} can not be checked: sampler.{field.name} has no default; set "
                f"{cls.__name__}.contract_cases"
            )
        if isinstance(field.default, int) and field.default > _MOST_BY_DEFAULT:
            small[field.name] = _MOST_BY_DEFAULT
    return small


# ---------------------------------------------------------------- class matrix and batch


def label_counts(num_classes: int) -> np.ndarray:
    """Return frequencies of classes in random order, (N,) int64; some are zero."""
    counts = np.random.default_rng(7).permutation((200 / np.arange(1, num_classes + 1)).astype(np.int64))
    counts[num_classes // 2] = 0
    return counts


def random_layer(
    num_classes: int = NUM_CLASSES,
    dim: int = DIM,
    *,
    seed: int = 0,
    norm: float = 2.0,
    rows: str = "catch_up",
    scale: float | None = None,
    engine: str = "numba",
    device: str | None = None,
) -> Layer:
    """Make a class matrix of random vectors of about the given norm; biases have standard deviation 0.3 times that."""
    generator = np.random.default_rng(seed)
    weights = generator.standard_normal((num_classes, dim)).astype(np.float32) * np.float32(norm / np.sqrt(dim))
    optimizer = AdamConfig(lr=0.05, rows=rows)  # type: ignore[arg-type]
    table = make_rows(engine, optimizer, weights, device=device)
    table.write(None, biases=(norm * 0.3 * generator.standard_normal(num_classes)).astype(np.float32))
    return layer_of(table, scale)


def random_query(num_rows: int = ROWS, dim: int = DIM, num_classes: int = NUM_CLASSES, *, seed: int = 1) -> Query:
    """Make a batch of ReLU-like hidden states, with one to three distinct ascending targets a row."""
    generator = np.random.default_rng(seed)
    hidden_BD = np.maximum(generator.standard_normal((num_rows, dim)), 0).astype(np.float32)
    sizes = generator.integers(1, min(3, num_classes) + 1, num_rows)
    targets = [np.sort(generator.choice(num_classes, size, replace=False)) for size in sizes]
    return Query(
        hidden_BD=hidden_BD,
        target_indptr_B1=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        targets_P=np.concatenate(targets).astype(np.int32),
    )


def move_rows(layer: Layer, ids: list[int], step: int, *, seed: int) -> np.ndarray:
    """Take an optimizer step on some class rows, large enough to change their codes; return their distinct ids."""
    from runner.kernels.groups import group_by_id

    chosen = np.array(ids, dtype=np.int32)
    groups = group_by_id(chosen, layer.num_classes)
    layer.table.before_step(step)
    layer.read(groups[1], step)
    grad = np.random.default_rng(seed).standard_normal((len(ids), layer.dim)).astype(np.float32)
    pairs = np.arange(len(ids), dtype=np.int32)
    ones = np.ones(len(ids), dtype=np.float32)
    nobody = np.zeros((0, layer.dim), dtype=np.float32)
    layer.table.gradients_of_groups(groups, grad, pairs, ones, nobody, step).apply(step)
    return groups[1]


# ---------------------------------------------------------------- reading proposals


def rows_of(proposal: Proposal | Everything, num_rows: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return each row's ids and log expected counts."""
    if isinstance(proposal, Everything):
        everything = np.arange(proposal.num_classes), np.zeros(proposal.num_classes)
        return [everything] * num_rows
    if proposal.indptr_B1 is None:
        return [(proposal.ids_N, proposal.log_expected_count_N)] * num_rows
    cuts = proposal.indptr_B1[1:-1]
    return list(zip(np.split(proposal.ids_N, cuts), np.split(proposal.log_expected_count_N, cuts), strict=True))


def same(a: Proposal | Everything, b: Proposal | Everything) -> bool:
    """Tell whether two proposals have the same bits."""
    if isinstance(a, Everything) or isinstance(b, Everything):
        return a == b
    if a.indptr_B1 is None or b.indptr_B1 is None:
        same_cuts = a.indptr_B1 is b.indptr_B1
    else:
        same_cuts = np.array_equal(a.indptr_B1, b.indptr_B1)
    same_ids = np.array_equal(a.ids_N, b.ids_N)
    return same_cuts and same_ids and np.array_equal(a.log_expected_count_N, b.log_expected_count_N)


def is_distinct(proposal: Proposal | Everything) -> bool:
    """Tell whether the proposal says that no row has a class twice."""
    return isinstance(proposal, Everything) or proposal.distinct


def stated_counts(sampler: Sampler, query: Query, step: int, num_classes: int = NUM_CLASSES) -> np.ndarray:
    """Return the expected counts that the sampler states for all classes, (B, N) float64."""
    everyone = np.arange(num_classes, dtype=np.int32)
    return np.exp(sampler.log_expected_count(query, everyone, step).astype(np.float64))

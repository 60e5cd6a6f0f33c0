"""A diagnosis is recorded as one entry for each sampler, with the run and what it was measured on."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Entry:
    """An entry holds one sampler's settings and measures.

    ``measures`` is ``Divergence.record()`` and ``cumulative`` is ``Divergence.curves()``.
    """

    name: str
    loss: str
    settings: Mapping[str, Any]
    loss_settings: Mapping[str, Any]
    tables: str  # says whether it has hash tables or an index, and from which run they are
    avoids_targets: bool
    measures: Mapping[str, Any]
    cumulative: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class ExampleEntry:
    """An entry holds what a sampler of training examples draws; see ``runner.diagnosis.examples``."""

    name: str
    settings: Mapping[str, Any]
    measures: Mapping[str, Any]
    course: Mapping[str, Any]  # by number of samples


@dataclass(frozen=True, kw_only=True)
class ExampleDiagnosis:
    """A diagnosis of samplers of examples as it is stored; ``made`` is as in ``Diagnosis``."""

    made: Mapping[str, Any]
    entries: tuple[ExampleEntry, ...]


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """A diagnosis as it is stored; ``made`` says how it was made (run id, step, probe, command, commit, machine)."""

    made: Mapping[str, Any]
    entries: tuple[Entry, ...]

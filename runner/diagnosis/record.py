"""What a diagnosis found: one entry for each sampler, and where it was measured."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One sampler: its settings, ``Divergence.record()``, ``Divergence.curves()``, ``proposal_against_truth``."""

    name: str
    loss: str
    settings: Mapping[str, Any]
    loss_settings: Mapping[str, Any]
    tables: str  # how its tables came about
    avoids_targets: bool
    measures: Mapping[str, Any]
    cumulative: Mapping[str, Any]
    distribution: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """What is written: ``made`` says where from (run id, step, probe, command, commit, machine)."""

    made: Mapping[str, Any]
    entries: tuple[Entry, ...]

"""Hold cases for samplers with hash tables, and compute their tables' contents by brute force over codes.

Legend: B rows, N classes, L tables, P targets of the batch.
"""

from typing import Any

import numpy as np
import pytest

from runner.check.cases import NUM_CLASSES, ROWS, cases_of
from runner.contracts import Query
from runner.output.numba.layer import NumbaLayer
from runner.samplers import SAMPLERS, Sampler
from runner.samplers.hashed import HashedConfig
from runner.samplers.lsh import LshConfig

N = NUM_CLASSES


def _params(base: type) -> list[Any]:
    names = [name for name, cls in SAMPLERS.items() if issubclass(cls, base)]
    return [pytest.param(name, case, id=f"{name}-{case}") for name in names for case in cases_of(name)]


HASHED = _params(HashedConfig)
LNS = _params(LshConfig)
LNS_NAMES = [name for name, cls in SAMPLERS.items() if issubclass(cls, LshConfig)]


def build(name: str, case: str, layer: NumbaLayer, **changes: Any) -> Sampler:
    return cases_of(name)[case].build(layer, **changes)


def full_hashing(sampler: Any, layer: NumbaLayer) -> np.ndarray:
    """Return the codes of all class vectors, hashed around the same centre as the sampler's codes."""
    return sampler.index.family.hash(
        layer.table.weights, np.arange(layer.num_classes, dtype=np.int32), sampler.index.center_D
    )


def collisions(sampler: Any, layer: NumbaLayer, query: Query) -> np.ndarray:
    """Return, (B, N), how many of the row's buckets contain a class; there is one bucket per table and query."""
    code_LN = full_hashing(sampler, layer)
    if sampler.config.queries_with_label:
        asked_LP, row_P = code_LN[:, query.targets_P], query.row_P
    else:
        asked_LP = sampler.index.family.hash(query.hidden_BD, np.arange(ROWS, dtype=np.int32))
        row_P = np.arange(ROWS)
    met_BN = np.zeros((ROWS, N), dtype=np.int64)
    np.add.at(met_BN, row_P, (code_LN[:, :, None] == asked_LP[:, None, :]).sum(0).T)
    return met_BN

"""Every check of ``runner.check`` runs on every case of every sampler; no sampler is named here.

Statistics run with few draws by default and with a million under the marker ``slow``.
"""

import pytest
import yaml

from runner.check.cases import cases_of
from runner.check.checks import CHECKS, STATISTICS
from runner.config import CONF
from runner.samplers import SAMPLERS

EVERY = [pytest.param(name, case, id=f"{name}-{case}") for name in SAMPLERS for case in cases_of(name)]
DRAWN = [param for param in EVERY if not SAMPLERS[param.values[0]].is_the_batch]  # see test_in_batch.py for the rest
ON_DEVICE = ("uniform", "unigram", "log_uniform", "in_batch", "topk", "exact", "quadratic", "midx_pq", "midx_rq")
"""Samplers that draw where a torch engine holds the class matrix; ``slow`` checks the others there, too."""
IN_TENSORS = [
    pytest.param(*param.values, id=param.id, marks=() if param.values[0] in ON_DEVICE else pytest.mark.slow)
    for param in EVERY
]
FEW, MANY = 20_000, 1_000_000


def test_every_yaml_is_a_sampler_and_every_sampler_has_a_yaml() -> None:
    names = {path.stem: yaml.safe_load(path.read_text())["name"] for path in (CONF / "sampler").glob("*.yaml")}
    assert set(names) == set(SAMPLERS)
    assert all(stem == name for stem, name in names.items())


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize(("name", "case"), EVERY)
def test_keeps_its_contract(name: str, case: str, check: str) -> None:
    CHECKS[check](cases_of(name)[case])


@pytest.mark.parametrize("check", STATISTICS)
@pytest.mark.parametrize(("name", "case"), DRAWN)
def test_states_true_counts(name: str, case: str, check: str) -> None:
    STATISTICS[check](cases_of(name)[case], FEW)


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize(("name", "case"), IN_TENSORS)
def test_keeps_its_contract_in_tensors(name: str, case: str, check: str) -> None:
    CHECKS[check](cases_of(name, "torch")[case])


@pytest.mark.parametrize("check", STATISTICS)
@pytest.mark.parametrize(
    ("name", "case"), [param for param in IN_TENSORS if not SAMPLERS[param.values[0]].is_the_batch]
)
def test_states_true_counts_in_tensors(name: str, case: str, check: str) -> None:
    STATISTICS[check](cases_of(name, "torch")[case], FEW)


@pytest.mark.slow
@pytest.mark.parametrize("check", STATISTICS)
@pytest.mark.parametrize(("name", "case"), DRAWN)
def test_states_true_counts_to_a_million_draws(name: str, case: str, check: str) -> None:
    STATISTICS[check](cases_of(name)[case], MANY)

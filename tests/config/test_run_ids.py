"""A new option with a default changes no id, neither of a run nor of the seconds that are recorded for it."""

import dataclasses
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import pytest

from runner.config import compose, compose_one_of_many
from runner.data import KINDS
from runner.lgd import BATCH_SAMPLERS
from runner.optimizers import OPTIMIZERS
from runner.options import settings
from runner.options.settings import RunConfig
from runner.output.losses import LOSSES
from runner.parts import MODELS
from runner.report.plan.reference_seconds import _digest
from runner.report.spec import grids
from runner.report.spec.grids import PlannedRun, expand, load_grid
from runner.report.spec.yaml_files import TABLES
from runner.samplers import SAMPLERS

REGISTRIES: dict[str, MutableMapping[str, Any]] = {
    "sampler": SAMPLERS,
    "loss": LOSSES,
    "dataset": KINDS,
    "model": MODELS,
    "optimizer": OPTIMIZERS,
    "batch_sampler": BATCH_SAMPLERS,
}
PLANNED = ["lns", "midx_lm", "midx_recommendation", "lgd_regression"]  # a grid for each family of data


def extended(cls: type) -> type:
    """Return the class with an option more."""
    option = ("newer", float, dataclasses.field(default=0.5))
    return dataclasses.make_dataclass(cls.__name__, [option], bases=(cls,), frozen=True, kw_only=True)


def planned(name: str) -> list[PlannedRun]:
    return expand(load_grid(name, TABLES), "small", Path("results"))


@pytest.fixture
def with_options(monkeypatch: pytest.MonkeyPatch) -> None:
    for registry in REGISTRIES.values():
        for name, cls in list(registry.items()):
            monkeypatch.setitem(registry, name, extended(cls))


@pytest.mark.parametrize("grid", PLANNED)
def test_a_new_option_changes_no_id(grid: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    before = planned(grid)
    monkeypatch.setattr(grids, "compose_one_of_many", compose_one_of_many.__wrapped__)
    request.getfixturevalue("with_options")
    after = planned(grid)
    assert [run.run_id for run in after] == [run.run_id for run in before]
    assert [_digest(run) for run in after] == [_digest(run) for run in before]
    for run in after:
        written = run.config.as_dict()
        assert all(written[group]["newer"] == 0.5 for group in REGISTRIES if group in written)


@pytest.mark.parametrize("group", REGISTRIES)
def test_a_new_option_that_is_set_changes_the_id(group: str, with_options: None) -> None:
    assert compose([f"+{group}.newer=0.5"]).run_id == compose([]).run_id
    assert compose([f"+{group}.newer=0.6"]).run_id != compose([]).run_id


def test_an_option_may_have_options() -> None:
    """A plugin's option may be a dataclass itself. Then its own options count by the same rule."""
    inner = dataclasses.make_dataclass("Inner", [("one", int, 1), ("two", int, 2)], frozen=True, kw_only=True)
    option = ("inner", inner, dataclasses.field(default=inner()))
    outer: Any = dataclasses.make_dataclass("Outer", [option], bases=(SAMPLERS["uniform"],), frozen=True, kw_only=True)
    config = compose(["sampler=uniform"])
    kept = dataclasses.asdict(config.sampler)
    same, other = (dataclasses.replace(config, sampler=outer(**kept, inner=inner(two=two))) for two in (2, 3))
    assert same.run_id == config.run_id
    assert other.identity["sampler"]["inner"] == {"two": 3}
    assert other.run_id != config.run_id


def test_a_new_section_changes_no_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as another engine, which has a name, as options of a group have."""
    engine = dataclasses.make_dataclass("Engine", [("name", str, "numba")], frozen=True, kw_only=True)
    option = ("engine", Any, dataclasses.field(default=engine()))
    later: Any = dataclasses.make_dataclass("Later", [option], bases=(RunConfig,), frozen=True, kw_only=True)
    config = compose([])
    values = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    assert later(**values).run_id == config.run_id
    assert later(**values, engine=engine(name="torch")).run_id != config.run_id


def test_options_of_the_command_line_that_change_nothing_have_no_id_of_their_own() -> None:
    """Two methods of a grid with equal settings are refused, for which equal settings must have equal ids."""
    one = compose(["sampler=uniform", "optimizer.lr=1"])
    other = compose(["optimizer.lr=1.0", "hardware.threads=1", "sampler=uniform", "output.bias=true"])
    assert one.run_id == other.run_id
    assert settings.digest_of(one.identity) == one.run_id.rpartition("-")[2]

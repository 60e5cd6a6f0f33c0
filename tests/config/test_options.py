"""An option says once what it means and which values it may have; checks, files and texts follow from that."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args, get_origin, get_type_hints

import pytest
import yaml

from runner.config import registries
from runner.errors import ConfigError
from runner.options.conversion import convert
from runner.options.fields import Option, Options, described, option, options_of
from runner.options.files import MADE, meanings_of, option_file, option_files
from runner.options.settings import RunConfig

CLASSES = {cls.__name__: cls for _, registry in registries().values() for cls in registry.values()}
SECTIONS = {name: type(value) for name, value in vars(RunConfig).items() if isinstance(value, Options)}


@dataclass(frozen=True, kw_only=True)
class Base(Options):
    """Hold a few options.

    Nobody uses them.
    """

    section: ClassVar[str] = "toy"
    selects: ClassVar[Mapping[str, Any]] = {"loss": "nce"}
    name: str = "toy"
    size: int = option(3, "how large", low=1, high=9)
    rate: float | None = option(None, "how fast", above=0, null="not at all")
    way: Literal["up", "down"] = option("up", "where to")
    part: str = option("a", "", choices={"a": "the first", "b": ""})
    plain: int = 1


@dataclass(frozen=True, kw_only=True)
class Other(Base):
    """Have another default."""

    size: int = 5


@dataclass(frozen=True, kw_only=True)
class Alone:
    """Be a class of somebody who did not know the base."""

    size: int = option(3, "how large", low=1)


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        ({"low": 1, "high": 24}, "must lie in [1, 24]"),
        ({"above": 0, "below": 1}, "must lie in (0, 1)"),
        ({"low": 1e-6, "high": 1e6}, "must lie in [1e-6, 1e6]"),
        ({"low": 0, "below": 1}, "must lie in [0, 1)"),
        ({"low": 1}, "must be at least 1"),
        ({"low": 0}, "must be 0 or more"),
        ({"above": 0}, "must be above 0"),
        ({"high": 4}, "must be at most 4"),
        ({"below": 4}, "must be below 4"),
        ({"low": 1, "takes_null": True}, "must be null or at least 1"),
        ({"above": 0, "high": 1, "takes_null": True, "null": "never"}, "must be null (never) or lie in (0, 1]"),
    ],
)
def test_a_range_in_words(bounds: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Option(meaning="", **bounds).check(math.nan, "key")
    assert str(caught.value) == f"key {words}, got nan"


def test_values_in_range_pass() -> None:
    Base(size=9, rate=0.1, way="down", part="b")
    Option(meaning="", low=1, takes_null=True).check(None, "key")


@pytest.mark.parametrize("cls", [Base, Other])
def test_values_out_of_range_do_not(cls: type[Base]) -> None:
    with pytest.raises(ConfigError, match=r"^toy\.size must lie in \[1, 9\], got 10$"):
        cls(size=10)
    with pytest.raises(ConfigError, match=r"^toy\.rate must be null \(not at all\) or above 0, got 0\.0$"):
        cls(rate=0.0)
    with pytest.raises(ConfigError, match=r"^toy\.part: 'c' is not one of a, b$"):
        cls(part="c")


def test_a_class_without_the_base_is_checked_at_the_door() -> None:
    with pytest.raises(ConfigError, match=r"^toy\.size must be at least 1, got 0$"):
        convert(Alone, {"size": 0}, "toy.")


def test_meanings() -> None:
    assert meanings_of(Other) == {
        "size": "how large",
        "rate": "how fast; null: not at all",
        "way": "up | down: where to",
        "part": "a: the first | b",
        "plain": "",
    }
    assert described(Other)["size"].values == "[1, 9]"
    assert described(Other)["rate"].values == "null or above 0"
    assert Option(meaning="what", choices={"a": "first", "b": "second"}).text == "what; a: first | b: second"


def test_a_file_of_an_option() -> None:
    file = option_file("sampler", "toy", Other)
    assert file.text == (
        f"# Have another default.\n{MADE}\ndefaults:\n  - override /loss@_global_.loss: nce\nname: toy\n"
        "size: 5 # how large\n"
        "rate: null # how fast; null: not at all\nway: up # up | down: where to\npart: a # a: the first | b\nplain: 1\n"
    )
    assert yaml.safe_load(file.text) == file.node


@pytest.mark.parametrize("name", sorted({*CLASSES, *SECTIONS}))
def test_every_option_of_a_built_in_class_is_declared(name: str) -> None:
    cls = CLASSES.get(name) or SECTIONS[name]
    assert {*meanings_of(cls)} == {*options_of(cls)} - {"name", "kind"} | ({"kind"} & {*options_of(cls)})


def test_files_of_built_in_options_are_the_values_that_hydra_gets() -> None:
    for group, (_, registry) in registries().items():
        for name, cls in registry.items():
            for option_name, file in option_files(group, name, cls).items():
                assert yaml.safe_load(file.text) == file.node, f"{group}={option_name}"


@pytest.mark.parametrize("name", sorted({*CLASSES, *SECTIONS}))
def test_every_range_is_checked_when_a_class_is_built(name: str) -> None:
    cls: Any = CLASSES.get(name) or SECTIONS[name]
    needed = {} if hasattr(cls, "name") or name in SECTIONS else {"name": "rte" if name == "CardConfig" else "any"}
    for key, facts in options_of(cls).items():
        if facts.range:
            with pytest.raises(ConfigError, match=rf"^{cls.section}\.{key} must .*, got nan$"):
                cls(**needed, **{key: math.nan})


@pytest.mark.parametrize("name", sorted({*CLASSES, *SECTIONS}))
def test_choices_that_are_explained_are_those_of_the_type(name: str) -> None:
    cls = CLASSES.get(name) or SECTIONS[name]
    for key, hint in get_type_hints(cls).items():
        if get_origin(hint) is Literal and key in options_of(cls):
            assert tuple(described(cls)[key].choices) == get_args(hint), key

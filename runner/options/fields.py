"""Say once of each option what it means and which values it may have: in the field of its dataclass.

From there come the range checks, the files of conf/, docs/options.md and what ``--help`` says. A subclass that gives an
option another default by plain assignment keeps the rest.
"""

import dataclasses
import functools
import math
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from runner.errors import require

_METADATA = "option"
PLACE = {"place": True}
"""Metadata of a field that says where and how a run happens, never what it computes: it is not part of the run's id."""
PLACE_ONLY: set[str] = set()
"""The keys of all such options, those of plugins too, such as ``hardware.threads``."""


@dataclass(frozen=True, kw_only=True)
class Option:
    """Hold what an option means, and its range.

    ``low``, ``high``: the least and the largest value. ``above``, ``below``: bounds that no value reaches.
    ``null``: what null means, and ``takes_null``: whether it is a value at all.
    ``choices``: all values, each with what it means, or with "" where the names say it.
    """

    meaning: str
    low: float | None = None
    high: float | None = None
    above: float | None = None
    below: float | None = None
    null: str = ""
    takes_null: bool = False
    choices: Mapping[Any, str] = dataclasses.field(default_factory=dict)

    @property
    def text(self) -> str:
        """Return the meaning with those of null and of the choices."""
        names = " | ".join(map(str, self.choices))
        explained = " | ".join(f"{name}: {about}" if about else str(name) for name, about in self.choices.items())
        said = explained != names
        text = f"{names}: {self.meaning}" if names and not said and self.meaning else self.meaning or explained
        more = [explained] if said and self.meaning else []
        return "; ".join([text, *more, *([f"null: {self.null}"] if self.null else [])])

    @property
    def range(self) -> str:
        """Return the range in words, as they follow "must"; empty if there is none."""
        begin, end = self.above if self.low is None else self.low, self.below if self.high is None else self.high
        if begin is not None and end is not None:
            closed = "(" if self.low is None else "[", ")" if self.high is None else "]"
            return f"lie in {closed[0]}{_plain(begin)}, {_plain(end)}{closed[1]}"
        if begin is not None:
            return f"be above {_plain(begin)}" if self.low is None else _at_least(begin)
        if end is not None:
            return f"be {'below' if self.high is None else 'at most'} {_plain(end)}"
        return ""

    @property
    def values(self) -> str:
        """Return the range as a page shows it: ``[1, 24]``, ``at least 1``, ``null or above 0``."""
        words = self.range.removeprefix("be ").removeprefix("lie in ")
        return f"null or {words}" if words and self.takes_null else words

    def check(self, value: Any, key: str) -> None:
        """Raise ConfigError if the value is out of range; no range has NaN."""
        if value is None and self.takes_null:
            return
        if self.choices:
            names = [*(["null"] if self.takes_null else []), *map(str, self.choices)]
            require(value in self.choices, f"{key}: {value!r} is not one of {', '.join(names)}")
        fits = (
            (self.low is None or value >= self.low)
            and (self.high is None or value <= self.high)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )
        null = f"null{f' ({self.null})' if self.null else ''} or " if self.takes_null else ""
        words = self.range.removeprefix("be ") if null else self.range
        require(fits, f"{key} must {'be ' if null else ''}{null}{words}, got {value}")


def option(
    default: Any,
    meaning: str,
    *,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    below: float | None = None,
    null: str = "",
    choices: Mapping[Any, str] | tuple[Any, ...] = (),
    place: bool = False,
) -> Any:
    """Declare a dataclass's field as an option; see ``Option``. Names of a ``Literal`` are choices by themselves.

    ``place``: it says where and how a run happens (``PLACE``).
    """
    named = choices if isinstance(choices, Mapping) else dict.fromkeys(choices, "")
    facts = Option(
        meaning=meaning, low=low, high=high, above=above, below=below,
        null=null, takes_null=default is None or bool(null), choices=named,
    )  # fmt: skip
    return dataclasses.field(default=default, metadata={_METADATA: facts, **(PLACE if place else {})})


@functools.cache
def options_of(cls: type) -> dict[str, Option]:
    """Return the options that a dataclass declares, in order; an inherited one keeps what its base says of it."""
    found = {}
    for field in dataclasses.fields(cls):
        for each in cls.__mro__:
            declared = each.__dict__.get("__dataclass_fields__", {}).get(field.name)
            if declared is not None and _METADATA in declared.metadata:
                found[field.name] = declared.metadata[_METADATA]
                break
    return found


@functools.cache
def described(cls: type) -> dict[str, Option]:
    """Return every field of a dataclass as an option: the names of a ``Literal`` are choices, and no meaning is ""."""
    hints = typing.get_type_hints(cls)
    found = {}
    for field in dataclasses.fields(cls):
        facts = options_of(cls).get(field.name, Option(meaning=""))
        if typing.get_origin(hints[field.name]) is typing.Literal and not facts.choices:
            facts = dataclasses.replace(facts, choices=dict.fromkeys(typing.get_args(hints[field.name]), ""))
        found[field.name] = facts
    return found


def check(config: Any, prefix: str) -> None:
    """Raise ConfigError if an option is out of its range; ``prefix``, such as ``sampler.``, is put before its name."""
    cls: type = type(config)
    for name, facts in options_of(cls).items():
        facts.check(getattr(config, name), prefix + name)


@dataclass(frozen=True, kw_only=True)
class Variant:
    """Describe an option of a group: what is said of it, and the keys that its file sets, if not all of its class."""

    about: str = ""
    keys: Mapping[str, Any] | None = None


ALL_KEYS = Variant()


class Options:
    """Serve as the base of dataclasses whose fields are options of a group or section; ranges are checked at once.

    ``section``: the name of the group or section, with which the keys of its options begin.
    ``selects``: settings beside its own that an option of a group chooses: options of other groups by their group, and
    other keys by their path, such as ``training.patience``. Its file in conf/ sets them.
    """

    section: ClassVar[str] = ""
    selects: ClassVar[Mapping[str, Any]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        before = f"{cls.section}." if cls.section else ""
        for name, value in vars(cls).items():
            if isinstance(value, dataclasses.Field) and value.metadata.get("place"):
                PLACE_ONLY.add(before + name)

    def __post_init__(self) -> None:
        check(self, f"{self.section}." if self.section else "")

    @classmethod
    def selected(cls) -> Mapping[str, Any]:
        """Return ``selects``, and what else follows from the class."""
        return cls.selects

    @classmethod
    def variants(cls, name: str) -> Mapping[str, Variant]:
        """Return the options of the group that the class stands for, by name; ``name`` is what it is registered as."""
        return {name: ALL_KEYS}


def _at_least(bound: float) -> str:
    return "be 0 or more" if bound == 0 else f"be at least {_plain(bound)}"


def _plain(bound: float) -> str:
    """Return a bound as people write it: 1e-6, not 1e-06."""
    if isinstance(bound, int):
        return str(bound)
    digits, _, exponent = f"{bound:g}".partition("e")
    return f"{digits}e{int(exponent)}" if exponent else digits if math.isfinite(bound) else str(bound)

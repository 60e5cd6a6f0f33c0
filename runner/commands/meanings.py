"""Find what keys mean: in conf/meanings.json, which ``scripts/make_options.py`` writes, and what a preset says."""

import functools
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from runner.errors import RunnerError
from runner.home import CONF

MEANINGS = CONF / "meanings.json"
RUN = "run"  # the section of the keys that belong to no group


class Preset(NamedTuple):
    """Hold what a file of conf/preset says: its first comments, keys by path, and the options that it chooses."""

    about: str
    keys: dict[str, Any]
    chooses: dict[str, str]


@functools.cache
def written_meanings() -> dict[str, dict[str, dict[str, str]]]:
    """Return the meaning of each key by section and option; what belongs to no group is the option ``run`` of ``run``.

    To read them takes less time than to import the config classes with the kernels beside them. Raises RunnerError.
    """
    try:
        found: dict[str, dict[str, dict[str, str]]] = json.loads(MEANINGS.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunnerError(f"{MEANINGS} cannot be read ({error}); make generated writes it anew") from None
    return found


def read_preset(path: Path) -> Preset:
    """Read a file of conf/preset."""
    text = path.read_text(encoding="utf-8")
    values = yaml.safe_load(text) or {}
    lines = [line.lstrip("# ").rstrip() for line in re.match(r"(#.*\n)*", text)[0].splitlines()]  # type: ignore[index]
    about = " ".join(line for line in lines if not line.startswith("@package")).strip()
    own = {key: value for key, value in values.items() if key not in ("defaults", "hydra")}
    return Preset(about, dict(_paths(own)), dict(_choices(values.get("defaults", []))))


def _paths(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _paths(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _choices(defaults: list[Any]) -> Iterator[tuple[str, str]]:
    """Yield the (group, name) pairs of a defaults list; another file of the same group is a pair with the group ''."""
    for entry in defaults:
        if isinstance(entry, str) and entry != "_self_":
            yield "", entry
        elif isinstance(entry, Mapping):
            for key, name in entry.items():
                yield re.sub(r"^override /(\w+).*", r"\1", key), shown(name)


def shown(value: Any) -> str:
    """Return a value as a command line has it."""
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)

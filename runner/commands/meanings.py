"""This module finds what a key of the configuration means: by its comment in conf/, or by its config's docstring."""

import inspect
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import yaml

from runner.config import CONF

_KEY = re.compile(r"^(?P<indent> *)(?P<key>\w+):(?: +(?P<value>[^#\s].*?))?(?: +# *(?P<comment>.*))?$")
_HEAD = re.compile(r"(?:^|(?<=[.;] ))(?P<keys>`+\w+`+(?:, `+\w+`+)*|(?<![^\n])\w+(?:, \w+)*):\s", flags=re.M)


class Entry(NamedTuple):
    """A key of a YAML file with its path, as on the command line, and the comments beside it and above it."""

    path: str
    value: Any
    comment: str


class ConfFile(NamedTuple):
    """A file of conf/: the comments at its beginning, its keys, and the options of other groups that it chooses."""

    about: str
    entries: list[Entry]
    chooses: dict[str, str]


def read(path: Path) -> ConfFile:
    """Read a file of conf/ with its comments."""
    values = yaml.safe_load(path.read_text()) or {}
    about: list[str] = []
    above: list[str] = []
    entries: list[Entry] = []
    parents: list[tuple[int, str]] = []
    for line in path.read_text().splitlines():
        if line.lstrip().startswith("#"):
            above.append(line.lstrip("# ").rstrip())
        elif found := _KEY.match(line):
            if not entries and not about:  # what stands before the first key is about the file
                about, above = above or [""], []
            indent = len(found["indent"])
            parents = [*(each for each in parents if each[0] < indent), (indent, found["key"])]
            names = [name for _, name in parents]
            value: Any = values
            for name in names:
                value = value.get(name) if isinstance(value, Mapping) else None
            if names[0] not in ("defaults", "hydra") and not isinstance(value, Mapping):
                entries.append(Entry(".".join(names), value, " ".join([*above, found["comment"] or ""]).strip()))
            above = []
    about = [line for line in about if not line.startswith("@package")]
    return ConfFile(" ".join(about).strip(), entries, dict(_choices(values.get("defaults", []))))


def read_option(group: str, name: str) -> ConfFile:
    """Read conf/GROUP/NAME.yaml, with the keys of the file of the same group that it builds on."""
    file = read(CONF / group / f"{name}.yaml")
    if "" not in file.chooses:
        return file
    base = read_option(group, file.chooses.pop(""))
    entries = {entry.path: entry for entry in base.entries}
    for entry in file.entries:
        above = entries.get(entry.path)
        entries[entry.path] = entry._replace(comment=entry.comment or (above.comment if above else ""))
    return file._replace(entries=list(entries.values()), chooses=base.chooses | file.chooses)


def _choices(defaults: list[Any]) -> Iterator[tuple[str, str]]:
    """Yield the (group, name) pairs of a defaults list; another file of the same group is a pair with that group ''."""
    for entry in defaults:
        if isinstance(entry, str) and entry != "_self_":
            yield "", entry
        elif isinstance(entry, Mapping):
            for key, name in entry.items():
                yield re.sub(r"^override /(\w+).*", r"\1", key), shown(name)


def meaning_in_docstrings(cls: type, key: str) -> str:
    """Return what the docstrings of a dataclass and its bases say of a key: what follows ``key``: there."""
    for each in cls.__mro__[:-1]:
        for paragraph in inspect.cleandoc(each.__dict__.get("__doc__") or "").split("\n\n"):
            heads = list(_HEAD.finditer(paragraph))
            ends = [*(head.start() for head in heads[1:]), len(paragraph)]
            for head, end in zip(heads, ends, strict=False):
                if key in re.findall(r"\w+", head["keys"]):
                    return " ".join(paragraph[head.end() : end].split()).rstrip(".;,")
    return ""


def shown(value: Any) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def meaning(entry: Entry, cls: type) -> str:
    """Return what a key means: its comment, or what the docstring of the config dataclass that has it says."""
    section, _, key = entry.path.rpartition(".")
    owner = get_type_hints(cls)[section] if section else cls
    return entry.comment or meaning_in_docstrings(owner, key)

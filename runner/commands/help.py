"""This module writes the part of ``python -m runner --help`` that says what groups and keys mean.

Meanings are those of docs/options.md, which is made from conf/ and the config dataclasses: to read that page takes less
time than to import the dataclasses with the kernels beside them. Options of plugins have their dataclass at hand.
"""

import re
import shutil
from collections.abc import Mapping
from textwrap import fill
from typing import Any

from runner.commands.meanings import meaning_in_docstrings, read, shown
from runner.config import CONF, GROUPS
from runner.home import FILES
from runner.registry import FROM_OUTSIDE

_INDENT = " " * 6
PAGE = FILES / "docs" / "options.md"
_KEY, _VALUE = 34, 16
_WIDEST, _BESIDE = 120, 100  # characters of a line, and from how many on meanings are beside their keys
_ROW = re.compile(r"^\| `(?P<key>\S+)` \| .*? \| (?P<says>.*) \|$", flags=re.M)
OF_GROUPS = {
    "dataset": "what is learnt; its family decides which models fit",
    "model": "the encoder; it reads one family of data sets",
    "sampler": "which classes are candidates; each selects its customary loss",
    "loss": "what is minimised; not every loss goes with every sampler",
    "optimizer": "how weights follow the gradient",
    "batch_sampler": "which training examples a step takes",
    "hardware": "where it runs, and with how many threads",
    "method": "what is compared, by one name: sampler, loss and settings, or a model",
    "preset": "a paper's settings or a switch, which may set any other key",
}


def meanings(config: Mapping[str, Any]) -> str:
    """Return a clause for each group and each key; ``config`` is the composed configuration, not yet resolved."""
    return "\n\n".join([_groups(), _keys_of_run(config), *_keys_of_groups(config)])


def _groups() -> str:
    lines = ["Choose one of each group, GROUP=NAME:"]
    for group, about in OF_GROUPS.items():
        names = {path.stem for path in (CONF / group).glob("*.yaml")}
        names |= {name for of_group, name in FROM_OUTSIDE if of_group == group}
        listed = ", ".join(sorted(names))
        lines += [f"  {group}: {about}", fill(listed, _width(), initial_indent=_INDENT, subsequent_indent=_INDENT)]
    return "\n".join(lines)


def _keys_of_run(config: Mapping[str, Any]) -> str:
    says = written_meanings("Keys of every run")
    lines = ["Set any key, KEY=VALUE (the values are those of this command line):"]
    for entry in read(CONF / "config.yaml").entries:
        lines.append(_line(entry.path, _value(config, entry.path), says.get(entry.path, "")))
    return "\n".join(lines)


def _keys_of_groups(config: Mapping[str, Any]) -> list[str]:
    parts = []
    for group in GROUPS:
        chosen = config.get(group)
        if not isinstance(chosen, Mapping):
            continue  # a model without classes takes sampler and loss away
        name = str(chosen.get("name"))
        name = str(chosen.get("kind")) if name in ("None", "???") else name
        says = written_meanings(group, name)
        outside = FROM_OUTSIDE.get((group, str(chosen.get("kind", name))))
        lines = [f"The keys of {group}={name}:"]
        for key in chosen:
            if key not in ("name", "kind"):
                about = meaning_in_docstrings(outside, key) if outside else says.get(f"{group}.{key}", "")
                lines.append(_line(f"{group}.{key}", _value(chosen, key), about))
        parts += ["\n".join(lines)] if len(lines) > 1 else []
    return parts


def written_meanings(section: str, option: str = "") -> dict[str, str]:
    """Return what docs/options.md says of the keys of an option of a group, or of a section without options."""
    text = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    _, _, body = text.partition(f"\n## {section}\n")
    body = body.partition("\n## ")[0]
    if option:
        parts = re.split(r"^### ", body, flags=re.M)
        body = next((part for part in parts if f"`{option}`" in part.partition("\n")[0]), "")
    return {row["key"]: row["says"].replace("\\|", "|").replace("`", "") for row in _ROW.finditer(body)}


def _value(config: Mapping[str, Any], path: str) -> str:
    value: Any = config
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return shown(value)


def _line(key: str, value: str, says: str) -> str:
    """Return a key, its value and its meaning, which goes on below; in a narrow terminal it begins there."""
    head = f"  {key:<{_KEY}}{value:<{_VALUE}}"
    says = " ".join(says.replace("`", "").split())
    if not says:
        return head
    if _width() < _BESIDE:
        return f"{head.rstrip()}\n{fill(says, _width(), initial_indent=_INDENT, subsequent_indent=_INDENT)}"
    return fill(says, _width(), initial_indent=head + " ", subsequent_indent=" " * (_KEY + _VALUE + 3))


def _width() -> int:
    """Return the width of the terminal, or of the variable COLUMNS, up to the widest that is read with ease."""
    return min(_WIDEST, shutil.get_terminal_size((_WIDEST, 24)).columns)

"""Write the part of ``python -m runner --help`` that says what groups and keys mean.

Those of built-in options are read from conf/meanings.json, those of plugins from their classes; both come from the
fields of the classes.
"""

import shutil
from collections.abc import Mapping
from textwrap import fill
from typing import Any

from runner.commands.meanings import RUN, shown, written_meanings
from runner.config import CONF, GROUPS
from runner.options.files import meanings_of
from runner.registry import FROM_OUTSIDE

_INDENT = " " * 6
_KEY, _VALUE = 34, 16
_WIDEST, _BESIDE = 120, 100  # characters of a line, and from how many on meanings are beside their keys
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
    lines = ["Set any key, KEY=VALUE (the values are those of this command line):"]
    lines += [_line(path, _value(config, path), says) for path, says in written_meanings()[RUN][RUN].items()]
    return "\n".join(lines)


def _keys_of_groups(config: Mapping[str, Any]) -> list[str]:
    parts = []
    for group in GROUPS:
        chosen = config.get(group)
        if not isinstance(chosen, Mapping):
            continue  # a model without classes takes sampler and loss away
        name = str(chosen.get("name"))
        name = str(chosen.get("kind")) if name in ("None", "???") else name
        outside = FROM_OUTSIDE.get((group, str(chosen.get("kind", name))))
        says = meanings_of(outside) if outside else written_meanings()[group].get(name, {})
        lines = [f"The keys of {group}={name}:"]
        for key in chosen:
            if key not in ("name", "kind"):
                lines.append(_line(f"{group}.{key}", _value(chosen, key), says.get(key, "")))
        parts += ["\n".join(lines)] if len(lines) > 1 else []
    return parts


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

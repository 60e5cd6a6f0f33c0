"""Write docs/options.md: every option of every group with its keys, their defaults and what they mean.

Defaults are those of conf/*.yaml. A key means what the comment beside or above it says there; where there is none, what
the docstring of its config dataclass says.
"""

import argparse
import inspect
import re
import sys
from collections.abc import Mapping
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that it runs from a plain clone

from runner import REPOSITORY
from runner.commands.meanings import Entry, meaning, read, read_option, shown
from runner.config import CHOICES, CONF, _registries
from runner.settings import RunConfig

PAGE = REPOSITORY / "docs" / "options.md"
HEAD = """# Options

<!-- Made by scripts/make_options.py from conf/ and the config dataclasses; do not edit it. -->

`GROUP=NAME` on the command line chooses an option of a group, and `GROUP.KEY=VALUE` sets one of its keys
([Running](running.md)). `null` is no value. This page is made by `.venv/bin/python scripts/make_options.py`.
"""
TITLES = {
    "sampler": "Which classes are candidates. Each sampler selects its customary loss.",
    "loss": "What is minimised. Not every loss goes with every sampler; an error lists those that do.",
    "model": "The encoder. It reads one family of data sets, and may select a data set and other settings.",
    "optimizer": "",
    "batch_sampler": (
        "Which training examples a step takes. `lgd`, `lgd_strata` and `norm_oracle` are for `model=regression`,"
        " `logistic` and (not `lgd_strata`) `bert`."
    ),
    "dataset": "[Data](data.md) describes the families and the formats of own files.",
    "hardware": "",
    "method": (
        "What is compared, by one name: a sampler, a loss and settings, or a model. `-m method=full,nce` makes a run of"
        " each. A run stores the name, which tables and figures show as the method's label."
    ),
    "preset": "A preset may set any other key. Values on the command line take the place of a preset's.",
}
_SELECTORS = ("name", "kind")  # they say which option it is, and are not set


def first_sentences(cls: type) -> str:
    """Return the first paragraph of a dataclass's docstring."""
    return " ".join(inspect.cleandoc(cls.__doc__ or "").split("\n\n")[0].split())


def markdown(text: str) -> str:
    """Return text as the cell of a table."""
    return prose(text).replace("|", r"\|")


def prose(text: str) -> str:
    """Return text of a comment or docstring as Markdown, in which <eos> would be a tag of HTML."""
    return re.sub(r"(?<!`)<(\w+)>(?!`)", r"`<\1>`", text.replace("``", "`"))


def table(entries: list[Entry], cls: type, prefix: str) -> str:
    """Return the table of keys; ``prefix`` is that of the keys on the command line."""
    lines = ["| key | default | meaning |", "|---|---|---|"]
    for entry in entries:
        says = markdown(meaning(entry, cls))
        lines.append(f"| `{prefix}{entry.path}` | {markdown(shown(entry.value))} | {says} |")
    return "\n".join(lines) if entries else "There is nothing to set."


def settings(entries: list[Entry], chooses: Mapping[str, str]) -> str:
    """Return what a file sets beside its own keys, as it would be written on the command line."""
    words = [f"`{group}={name}`" if group else f"all of `{name}`" for group, name in chooses.items()]
    words += [f"`{entry.path}={shown(entry.value)}`" for entry in entries]
    return f"It sets {', '.join(words)}." if words else ""


def of_group(group: str, registry: Mapping[str, type], selector: str) -> str:
    """Return the section of a group. Options that differ by name alone share one table."""
    names_of: dict[str, list[str]] = {}
    for path in sorted((CONF / group).glob("*.yaml")):
        file = read_option(group, path.stem)
        # A file that sets more than its own group has the group's keys below its name.
        own_prefix = f"{group}." if any(entry.path.startswith(f"{group}.") for entry in file.entries) else ""
        own, other, name = [], [], path.stem
        for entry in file.entries:
            key = entry.path.removeprefix(own_prefix)
            if not entry.path.startswith(own_prefix):
                other.append(entry)
            elif key not in _SELECTORS:
                own.append(entry._replace(path=key))
            elif key == selector:
                name = str(entry.value)
        cls = registry[name]
        about = prose(file.about or first_sentences(cls))
        body = "\n\n".join(filter(None, [about, settings(other, file.chooses),
                                         table(own, cls, f"{group}.")]))  # fmt: skip
        names_of.setdefault(body, []).append(path.stem)
    sections = [f"### {', '.join(f'`{name}`' for name in names)}\n\n{body}" for body, names in names_of.items()]
    return "\n\n".join([f"## {group}", *filter(None, [TITLES[group]]), *sections])


def of_files(group: str) -> str:
    """Return the section of a group whose files set keys of other groups: methods and presets."""
    sections = [f"## {group}\n\n{TITLES[group]}"]
    for path in sorted((CONF / group).glob("*.yaml")):
        file = read(path)
        if file.entries or file.chooses:
            raw = yaml.safe_load(path.read_text())
            swept = (raw.get("hydra") or {}).get("sweeper", {}).get("params", {})
            sweeps = ", ".join(f"`{key}={values}`" for key, values in swept.items())
            look = raw.get("method")
            label = f"{look['label']}: {look['caveat']}." if look else ""
            entries = [entry for entry in file.entries if not entry.path.startswith("method.")]
            body = [prose(label), prose(file.about), settings(entries, file.chooses), sweeps and f"It sweeps {sweeps}."]
            sections.append(f"### `{path.stem}`\n\n" + "\n\n".join(filter(None, body)))
    return "\n\n".join(sections)


def of_run() -> str:
    """Return the section of the keys that belong to no group, and of the default of each group."""
    file = read(CONF / "config.yaml")
    chosen = [f"`{group}={name}`" for group, name in file.chooses.items() if group in CHOICES]
    lines = ["## Keys of every run", f"By default {', '.join(chosen)}.", table(file.entries, RunConfig, "")]
    return "\n\n".join(lines)


def page() -> str:
    """Return docs/options.md."""
    registries = _registries()
    sections = [HEAD.strip(), of_run()]
    for group in TITLES:
        if group in registries:
            selector, registry = registries[group]
            sections.append(of_group(group, registry, selector))
    return "\n\n".join([*sections, of_files("method"), of_files("preset")]) + "\n"


def main() -> int:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    PAGE.write_text(page())
    print(PAGE.relative_to(REPOSITORY))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Write what is made from the config classes: the files of conf/, docs/options.md, and the meanings that --help shows.

An option is declared once, in the dataclass beside the class that it configures (``runner/options/fields.py``). Files
of conf/ that say more than that are written by hand: presets, tables, and the beginning and end of conf/config.yaml.
"""

import argparse
import inspect
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that it runs from a plain clone

from runner import REPOSITORY
from runner.commands.meanings import MEANINGS, RUN, read_preset, shown
from runner.config import CHOICES, CONF, registries
from runner.options.fields import described
from runner.options.files import OptionFile, about, meanings_of, option_files, run_keys, yaml_lines
from runner.options.settings import RunConfig

PAGE = REPOSITORY / "docs" / "options.md"
BEGIN, END = "# ---- made by scripts/make_options.py", "# ---- end of what is made"
HEAD = """# Options

<!-- Made by scripts/make_options.py from the config classes; do not edit it. -->

`GROUP=NAME` on the command line chooses an option of a group, and `GROUP.KEY=VALUE` sets one of its keys
([Running](running.md)). `null` is no value.
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


# ---------------------------------------------------------------- what is written


def files() -> dict[str, dict[str, tuple[type, OptionFile]]]:
    """Return the class and the file of every built-in option, by group and name."""
    return {
        group: {
            option: (cls, file)
            for name, cls in registry.items()
            for option, file in option_files(group, name, cls).items()
        }
        for group, (_, registry) in registries().items()
    }


def written() -> dict[Path, str]:
    """Return all that this script writes, by path."""
    made = files()
    texts = {CONF / group / f"{name}.yaml": file.text for group in made for name, (_, file) in made[group].items()}
    meanings = {RUN: {RUN: {path: says for path, value, says in run_keys(RunConfig) if value != {}}}}
    meanings |= {group: {name: meanings_of(cls) for name, (cls, _) in made[group].items()} for group in made}
    config = CONF / "config.yaml"
    return {
        **texts,
        config: with_keys_of_run(config.read_text()),
        MEANINGS: json.dumps(meanings, indent=1, ensure_ascii=False) + "\n",
        PAGE: page(made),
    }


def with_keys_of_run(text: str) -> str:
    """Return conf/config.yaml with the keys of every run between its marks."""
    values: dict[str, Any] = {}
    for path, value, _ in run_keys(RunConfig):
        section, _, key = path.rpartition(".")
        (values[section] if section else values)[key] = value
    lines = yaml_lines(values, {path: says for path, _, says in run_keys(RunConfig)})
    return re.sub(f"(?<={BEGIN}\n).*?(?={END}\n)", lambda _: "\n".join(lines) + "\n", text, flags=re.S)


# ---------------------------------------------------------------- docs/options.md


def markdown(text: str) -> str:
    """Return text as the cell of a table."""
    return prose(text).replace("|", r"\|")


def prose(text: str) -> str:
    """Return text of a docstring or comment as Markdown, in which <eos> would be a tag of HTML."""
    return re.sub(r"(?<!`)<(\w+)>(?!`)", r"`<\1>`", text.replace("``", "`"))


def table(rows: list[tuple[str, Any, str, str]]) -> str:
    """Return the table of keys: each with its default, its range and its meaning."""
    lines = ["| key | default | range | meaning |", "|---|---|---|---|"]
    for key, default, values, says in rows:
        lines.append(f"| `{key}` | {markdown(shown(default))} | {markdown(values)} | {markdown(says)} |")
    return "\n".join(lines) if rows else "There is nothing to set."


def sets(keys: Mapping[str, Any], chooses: Mapping[str, Any]) -> str:
    """Return what a file sets beside its own keys, as it would be written on the command line."""
    words = [f"`{group}={shown(name)}`" if group else f"all of `{name}`" for group, name in chooses.items()]
    words += [f"`{path}={shown(value)}`" for path, value in keys.items()]
    return f"It sets {', '.join(words)}." if words else ""


def of_group(group: str, options: Mapping[str, tuple[type, OptionFile]]) -> str:
    """Return the section of a group. Options that differ by name and title alone share one table."""
    named: dict[str, dict[str, str]] = {}
    for name, (cls, file) in sorted(options.items()):
        facts = described(cls)
        rows = [(f"{group}.{key}", value, facts[key].values, facts[key].text)
                for key, value in file.keys.items() if key in meanings_of(cls)]  # fmt: skip
        body = "\n\n".join(filter(None, [sets(file.sets, file.chooses), table(rows)]))
        named.setdefault("\n\n".join(filter(None, [prose(about(cls)), "{titles}", body])), {})[name] = file.about
    sections = []
    for body, names in named.items():
        titles = [f"- `{name}`: {prose(title)}" for name, title in names.items() if prose(title) not in body]
        heading = ", ".join(f"`{name}`" for name in names)
        body = body.replace("{titles}", "\n".join(titles)).replace("\n\n\n\n", "\n\n")
        sections.append(f"### {heading}\n\n{body}")
    return "\n\n".join([f"## {group}", *filter(None, [TITLES[group]]), *sections])


def of_files(group: str) -> str:
    """Return the section of a group whose files are written by hand: methods and presets."""
    sections = [f"## {group}\n\n{TITLES[group]}"]
    for path in sorted((CONF / group).glob("*.yaml")):
        file = read_preset(path)
        if file.keys or file.chooses:
            raw = yaml.safe_load(path.read_text())
            swept = (raw.get("hydra") or {}).get("sweeper", {}).get("params", {})
            sweeps = ", ".join(f"`{key}={values}`" for key, values in swept.items())
            look = raw.get("method")
            label = f"{look['label']}: {look['caveat']}." if look else ""
            keys = {path: value for path, value in file.keys.items() if not path.startswith("method.")}
            body = [prose(label), prose(file.about), sets(keys, file.chooses), sweeps and f"It sweeps {sweeps}."]
            sections.append(f"### `{path.stem}`\n\n" + "\n\n".join(filter(None, body)))
    return "\n\n".join(sections)


def of_run() -> str:
    """Return the section of the keys that belong to no group, and of the default of each group."""
    chosen = read_preset(CONF / "config.yaml").chooses
    defaults = [f"`{group}={name}`" for group, name in chosen.items() if group in CHOICES]
    rows = []
    for path, value, says in run_keys(RunConfig):
        section, _, key = path.rpartition(".")
        owner: type = type(getattr(RunConfig, section)) if section else RunConfig
        if value != {}:
            rows.append((path, list(value) if isinstance(value, tuple) else value, described(owner)[key].values, says))
    return "\n\n".join(["## Keys of every run", f"By default {', '.join(defaults)}.", table(rows)])


def page(made: Mapping[str, Mapping[str, tuple[type, OptionFile]]]) -> str:
    """Return docs/options.md."""
    groups = [of_group(group, made[group]) for group in TITLES if group in made]
    return "\n\n".join([HEAD.strip(), of_run(), *groups, of_files("method"), of_files("preset")]) + "\n"


def main() -> int:
    argparse.ArgumentParser(
        description=inspect.cleandoc(__doc__ or ""), formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    for path, text in written().items():
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            print(path.relative_to(REPOSITORY))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Make of a config class what a file of conf/ says: its keys with their defaults and meanings, and what it selects.

Hydra reads the files of built-in classes, which ``scripts/make_options.py`` writes. It gets the options of plugins as
plain values.
"""

import dataclasses
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from runner.options.fields import ALL_KEYS, Variant, described, options_of

WIDTH = 120
MADE = "# Made by scripts/make_options.py from the config class; edit that instead."
GROUPS = ("dataset", "model", "loss", "optimizer", "batch_sampler", "sampler", "hardware")
REQUIRED = "???"  # a key that has no default, as Hydra has it


@dataclass(frozen=True, kw_only=True)
class OptionFile:
    """Hold what a file of conf/ says.

    ``keys``: the option's own, with the names that say which option it is. ``chooses``: options of other groups.
    ``sets``: keys elsewhere, by their path.
    """

    group: str
    about: str
    keys: Mapping[str, Any]
    meanings: Mapping[str, str]
    chooses: Mapping[str, str | None]
    sets: Mapping[str, Any]

    @property
    def package(self) -> str | None:
        """Return the package of the file: Hydra puts its keys at the top if it sets keys elsewhere."""
        return "_global_" if self.sets else None

    @property
    def defaults(self) -> list[dict[str, str | None]]:
        """Return Hydra's defaults list."""
        place = "" if self.sets else "@_global_.{}"
        return [{f"override /{group}{place.format(group)}": name} for group, name in self.chooses.items()]

    @property
    def node(self) -> dict[str, Any]:
        """Return the file's values, for Hydra."""
        node: dict[str, Any] = {"defaults": self.defaults} if self.chooses else {}
        if not self.sets:
            return {**node, **self.keys}
        for path, value in self.sets.items():
            *sections, key = path.split(".")
            place = node
            for section in sections:
                place = place.setdefault(section, {})
            place[key] = value
        return {**node, self.group: dict(self.keys)}

    @property
    def text(self) -> str:
        """Return the file as YAML, with meanings as comments."""
        lines = [f"# @package {self.package}"] if self.package else []
        lines += [f"# {line}" for line in textwrap.wrap(self.about, WIDTH - 2, break_on_hyphens=False)]
        lines.append(MADE)
        lines += yaml_lines(self.node, {f"{self.group}.{key}" if self.sets else key: says
                                        for key, says in self.meanings.items()})  # fmt: skip
        return "\n".join(lines) + "\n"


def option_file(group: str, name: str, cls: type, *, data: str = "", variant: Variant = ALL_KEYS) -> OptionFile:
    """Return the file of the class that is registered under ``name``, or of a variant of it.

    ``data``: for a data set its name, which is not that of its kind; without one the class says it.
    """
    fields = {field.name: _default(field) for field in dataclasses.fields(cls)}
    selectors = {"name": name}
    if group == "dataset":
        says = fields.get("name", REQUIRED)
        selectors = {"kind": name, "name": data or (name if says == REQUIRED else says)}
    own = variant.keys
    if own is None:
        own = {key: value for key, value in fields.items() if key not in ("kind", "name")}
    selected: Mapping[str, Any] = getattr(cls, "selected", dict)()
    chooses = {key: value for key, value in selected.items() if key in GROUPS}
    return OptionFile(
        group=group,
        about=variant.about or about(cls),
        keys=selectors | dict(own),
        meanings=meanings_of(cls),
        chooses=chooses,
        sets={key: value for key, value in selected.items() if key not in chooses},
    )


def option_files(group: str, name: str, cls: type) -> dict[str, OptionFile]:
    """Return the files of all options that a built-in class stands for, by the option's name."""
    variants: Mapping[str, Variant] = cls.variants(name)  # type: ignore[attr-defined]
    return {option: option_file(group, name, cls, data=option, variant=variant) for option, variant in variants.items()}


def about(cls: type) -> str:
    """Return the first paragraph of a class's docstring: what its option is."""
    return " ".join((cls.__doc__ or "").split("\n\n")[0].split())


def meanings_of(cls: type) -> dict[str, str]:
    """Return what the options of a class mean, by key."""
    options = {*described(cls)} - ({"name", "kind"} - {*options_of(cls)})
    return {name: facts.text for name, facts in described(cls).items() if name in options}


def run_keys(cls: type) -> Iterator[tuple[str, Any, str]]:
    """Yield path, default and meaning of the keys of a run and of its sections, which have no value."""
    for field in dataclasses.fields(cls):
        if field.name not in options_of(cls):
            continue
        default, says = _default(field), described(cls)[field.name].text
        if not dataclasses.is_dataclass(default):
            yield field.name, default, says
            continue
        yield field.name, {}, says
        for key, text in meanings_of(type(default)).items():
            yield f"{field.name}.{key}", getattr(default, key), text


def yaml_lines(values: Mapping[str, Any], meanings: Mapping[str, str], prefix: str = "") -> list[str]:
    """Return nested values as lines of YAML, each key with its meaning: beside it, or above it if that is too long."""
    lines: list[str] = []
    indent = "  " * prefix.count(".")
    for key, value in values.items():
        says = meanings.get(f"{prefix}{key}", "")
        if isinstance(value, Mapping):
            lines.append(f"{indent}{key}:{f' # {says}' if says else ''}")
            lines += yaml_lines(value, meanings, f"{prefix}{key}.")
        elif key == "defaults" and not prefix:
            lines += ["defaults:", *(f"  - {_scalar(entry)[1:-1]}" for entry in value)]
        else:
            line = f"{indent}{key}: {_scalar(value)}"
            beside = f"{line} # {says}" if says else line
            if len(beside) > WIDTH:
                wrapped = textwrap.wrap(says, WIDTH - 2 - len(indent), break_on_hyphens=False, break_long_words=False)
                lines += [f"{indent}# {part}" for part in wrapped]
                beside = line
            lines.append(beside)
    return lines


def _scalar(value: Any) -> str:
    """Return a value as YAML in one line."""
    plain = list(value) if isinstance(value, tuple) else value
    text: str = yaml.safe_dump(plain, default_flow_style=True, width=1_000_000)
    return text.removesuffix("...\n").strip()


def _default(field: "dataclasses.Field[Any]") -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return REQUIRED if field.default is dataclasses.MISSING else field.default

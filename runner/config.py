"""Convert what Hydra composed to a frozen RunConfig. Of what runs, only this module, ``runner.options.words``,
``runner.sweeps`` and ``__main__`` import hydra and omegaconf.

Hydra chooses files and applies command-line overrides; everything after that is typed. The dataclass of each group
is defined beside the class that it configures. ``runner.options`` checks names, types and ranges. Every error is a
single line that lists the valid names.
"""

import copy
import dataclasses
import functools
import os
import re
import sys
import traceback
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runner.errors import ConfigError, Diverged, RunnerError, require
from runner.home import CONF
from runner.machine.disk import explained
from runner.machine.group import speaking
from runner.machine.terminal import fitted
from runner.methods.catalogue import known_method, method_names, sets_model
from runner.options.conversion import as_path, convert, did_you_mean, number_in, shown
from runner.options.files import GROUPS, option_file
from runner.options.settings import EVERY_EXAMPLE_ONCE, GpuConfig, HardwareConfig, RunConfig
from runner.options.words import readable
from runner.registry import FROM_OUTSIDE, load_plugins

if TYPE_CHECKING:
    from omegaconf import DictConfig

OF_CLASSES = ("loss", "sampler")  # groups that networks without classes do not have
CHOICES = (*GROUPS, "method", "preset")  # all folders of conf/ of which a command line chooses one file

USUAL_MODELS = {"text": "lstm", "regression": "regression", "pairs": "bert", "sequences": "sasrec"}
"""The model of a family of data sets where none is named; for rows it is that of conf/config.yaml."""

_TABLE_HINT = "a table is many runs: render one by `make reproduce TABLE=NAME` in a checkout (names are in conf/table)"


def registries() -> dict[str, tuple[str, Mapping[str, type]]]:
    """Return, for each group, the key that selects its class and the config dataclasses by name."""
    from runner.data import KINDS
    from runner.lgd import BATCH_SAMPLERS
    from runner.optimizers import OPTIMIZERS
    from runner.output.losses import LOSSES
    from runner.parts import MODELS
    from runner.samplers import SAMPLERS

    return {
        "dataset": ("kind", KINDS),
        "model": ("name", MODELS),
        "loss": ("name", LOSSES),
        "optimizer": ("name", OPTIMIZERS),
        "batch_sampler": ("name", BATCH_SAMPLERS),
        "sampler": ("name", SAMPLERS),
        "hardware": ("name", {"cpu": HardwareConfig, "gpu": GpuConfig}),
    }


def to_run_config(cfg: Any) -> RunConfig:
    """Convert a composed Hydra config (or a plain mapping) to a RunConfig. Raises ConfigError (one line)."""
    from omegaconf import DictConfig, OmegaConf
    from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

    if isinstance(cfg, DictConfig):
        try:
            cfg = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
        except MissingMandatoryValue as error:
            key = getattr(error, "full_key", None) or str(error)
            raise ConfigError(f"{key} is required: set it on the command line, e.g. {key}=VALUE") from None
        except OmegaConfBaseException as error:
            raise ConfigError(explain(error)) from None
    if "table" in cfg:
        raise ConfigError(_TABLE_HINT)
    values = {key: value for key, value in cfg.items() if key not in ("preset", "hydra")}
    method = values.pop("method", None)
    values.setdefault("batch_sampler", EVERY_EXAMPLE_ONCE)
    values["plugins"] = _plugins(values.get("plugins") or [])
    load_plugins(values["plugins"])
    for group, (selector, registry) in registries().items():
        section = values.get(group)
        if section is None and group in OF_CLASSES:
            continue
        if not isinstance(section, Mapping):
            options = [file.stem for file in (CONF / group).glob("*.yaml")]
            options += [name for of_group, name in FROM_OUTSIDE if of_group == group]
            raise ConfigError(f"{group} must name a file of conf/{group}{did_you_mean(str(section), options)}")
        name = str(section.get(selector))
        if name not in registry:
            raise ConfigError(f"unknown {group}.{selector} '{name}'{did_you_mean(name, registry)}")
        _check_keys(group, name, section, registry)
        values[group] = convert(registry[name], section, f"{group}.")
    config = convert(RunConfig, values, "")
    config = dataclasses.replace(config, unused=_sections_of_other_tasks(config), method=_method_of(config, method))
    for group in OF_CLASSES:
        if group not in config.unused and getattr(config, group) is None:
            check_model_reads_dataset(config)  # a model without classes takes both groups away
            options = sorted(file.stem for file in (CONF / group).glob("*.yaml"))
            raise ConfigError(f"{group} is missing; name a file of conf/{group}: {', '.join(options)}")
    return config


def _method_of(config: RunConfig, chosen: Any) -> str | None:
    """Return the name of the method that was chosen, or None if the run is not what its file says.

    ``chosen`` is the section ``method`` that Hydra composed, or the name that a run folder stores. Raises ConfigError
    for a key of the section that was changed, and for another model than the method's.
    """
    if not chosen:
        return None  # conf/method/none.yaml is an empty section
    if not isinstance(chosen, Mapping):
        require(isinstance(chosen, str), f"method: expected str or null, got {shown(chosen)}")
        return str(chosen)
    known = known_method(str(chosen.get("name")))
    changed = [key for key, value in chosen.items() if value != known.section.get(key)]
    require(not changed, f"method.{', method.'.join(changed)} cannot be set: a method is a file of conf/method")
    model = known.choices.get("model", config.model.name)
    require(
        model == config.model.name,
        f"method={known.name} is model={model}, but model={config.model.name} was chosen too, by hand or by a preset;"
        " leave one of them out",
    )
    return known.name if known.describes(config) else None


def _sections_of_other_tasks(config: RunConfig) -> frozenset[str]:
    """Return the names of the sections that only other tasks than this run's use."""
    from runner.parts import TASKS, task_class

    return frozenset().union(*(task.sections for task in TASKS.values())) - task_class(config).sections


def check_model_reads_dataset(config: RunConfig) -> None:
    """Check that model, data set and task go together.

    Raises ConfigError in five cases: the model reads another family of data (rows, text) than the data set holds; a
    section is set that only another task uses; the sampler of examples needs to see them and the task does not show
    them; a setting needs a validation set and the data set has none; or the task refuses a setting.
    """
    from runner.parts import MODELS, task_class

    family, reads = config.dataset.family, config.model.reads
    fitting = ", ".join(name for name, model in MODELS.items() if model.reads == family)
    require(
        reads == family,
        f"dataset={config.dataset.name} holds {family}, but model={config.model.name} reads {reads};"
        f" models that read {family}: {fitting}",
    )
    usual = {field.name: field.default for field in dataclasses.fields(config)}
    for section in sorted(config.unused):
        require(
            getattr(config, section) == usual[section],
            f"{section} has no effect on training model={config.model.name} on dataset={config.dataset.name}, which"
            f" holds {family}; leave {section} out",
        )
    require(
        task_class(config).shows_examples or not config.batch_sampler.needs_view,
        f"batch_sampler={config.batch_sampler.name} looks at stored examples and the model's weights, which"
        f" model={config.model.name} does not show; use batch_sampler=epoch or uniform",
    )
    require(
        not (task_class(config).moves_vectors and config.batch_sampler.needs_fixed_vectors),
        f"batch_sampler={config.batch_sampler.name} makes its cells once, but training model={config.model.name} moves"
        " the vectors of the examples; use batch_sampler=lgd or norm_oracle",
    )
    for key in ("anneal", "patience"):
        require(
            task_class(config).validates(config) or getattr(config.training, key) is None,
            f"training.{key} needs a validation set, but dataset={config.dataset.name} has none;"
            f" set training.{key}=null, or hold some rows out: dataset.valid_share=0.1",
        )
    task_class(config).check_config(config)


def _check_keys(group: str, name: str, section: Mapping[str, Any], registry: Mapping[str, type]) -> None:
    """Raise ConfigError for a key that only other options of the group have; a preset may have set it."""
    valid = {field.name for field in dataclasses.fields(registry[name])}
    others = {field.name for option in registry.values() for field in dataclasses.fields(option)} - valid
    for key in section:
        if key in others:
            raise ConfigError(
                f"{group}={section.get('name', name)} has no key '{key}'; valid: {', '.join(sorted(valid))}. If you"
                f" did not set it, the method or the preset did: it is made for another {group}"
            )


def compose(overrides: Iterable[str]) -> RunConfig:
    """Return the RunConfig that ``python -m runner OVERRIDES`` would run. Raises ConfigError (one line)."""
    return to_run_config(_compose_unchecked(overrides))


@functools.cache
def compose_one_of_many(overrides: tuple[str, ...]) -> RunConfig:
    """Return what ``compose`` does, sooner where many overrides differ in numbers alone, as those of a table do.

    Hydra takes a tenth of a second. So it composes the words (such as ``sampler=uniform``) once, and numbers are set in
    what it composed. Raises ConfigError (one line).
    """
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    if any(re.match(r"[+~]|[^=]*=\s*\{", override) for override in overrides):
        return compose(overrides)  # such a word may change a key again that a number sets
    words: list[str] = []
    numbers: dict[str, int | float] = {}
    for override in overrides:
        key, _, text = override.partition("=")
        numbers.pop(key, None)  # the last one counts
        value = number_in(text)
        if value is None or key in CHOICES or not re.fullmatch(r"\w+(\.\w+)*", key):
            words.append(override)
        else:
            numbers[key] = value
    with suppress(ConfigError, OmegaConfBaseException):
        config = copy.deepcopy(_composed_words(tuple(words)))
        for key, value in numbers.items():
            OmegaConf.update(config, key, value)
        return to_run_config(config)
    return compose(overrides)  # it says what is wrong


@functools.cache
def _composed_words(overrides: tuple[str, ...]) -> "DictConfig":
    return _compose_unchecked(overrides)


def _compose_unchecked(overrides: Iterable[str]) -> "DictConfig":
    """Return what Hydra composes for the overrides, whether it can run or not. Raises ConfigError (one line)."""
    import hydra

    overrides = with_usual_model(readable(overrides))
    with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        try:
            prepare_plugins(overrides)
            return hydra.compose("config", overrides)
        except RunnerError:
            raise
        except Exception as error:
            raise ConfigError(explain(error)) from None


def defaults_of(choices: Mapping[str, str]) -> dict[str, Any]:
    """Return what is composed for some options (``{"sampler": "uniform", ...}``) if no key is set; ??? is required.

    Raises ConfigError for an option that there is none of.
    """
    import hydra
    from omegaconf import OmegaConf

    words = [f"{group}={name}" for group, name in choices.items()]
    with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        try:
            prepare_plugins([])
            found: Any = OmegaConf.to_container(hydra.compose("config", words), resolve=False)
        except RunnerError:
            raise
        except Exception as error:
            raise ConfigError(explain(error)) from None
    return dict(found)


# ---------------------------------------------------------------- plugins


def prepare_plugins(overrides: Iterable[str]) -> None:
    """Load the plugins that ``plugins=[...]`` names, and tell Hydra about every class that they register.

    Call it before Hydra composes: otherwise Hydra does not know ``sampler=NAME``. Hydra gets of each class what a file
    of conf/ would say. Raises ConfigError (one line).
    """
    from hydra.core.config_store import ConfigStore
    from hydra.core.override_parser.overrides_parser import OverridesParser

    parser = OverridesParser.create()
    for word in overrides:
        check_text(word)
        if word.startswith("-") or "=" not in word:
            continue  # an option of the command or its value; Hydra tells of anything else
        try:
            (override,) = parser.parse_overrides([word])
        except ValueError:  # Python reads no number of more than 4300 digits
            raise ConfigError(f"cannot read {shown(word)}: a number has too many digits") from None
        except Exception as error:
            raise ConfigError(explain(error)) from None
        group, value = override.key_or_group, override.value()
        if group == "plugins":
            load_plugins(_plugins(value))
        names = value if isinstance(value, list) else [value]
        is_set = not override.is_delete() and not override.is_sweep_override()
        if group in (*CHOICES, "") and is_set and not all(isinstance(name, str | dict) for name in names):
            place = f"; NAME is a file of conf/{group}" if group else ""
            raise ConfigError(f"cannot read {shown(word)}: write {group or 'GROUP'}=NAME{place}")
    load_plugins([])  # installed plugins are loaded even if none is named
    for (group, name), cls in FROM_OUTSIDE.items():
        file = option_file(group, name, cls)
        ConfigStore.instance().store(group=group, name=name, node=file.node, package=file.package)


def with_usual_model(overrides: Iterable[str]) -> list[str]:
    """Return the words of a command line, with the usual model for the data set that they name if they name no model.

    A preset and some methods set the model, so none is added beside them. Words that cannot be read are left for others
    to explain.
    """
    words = list(overrides)
    values = dict(word.split("=", 1) for word in words if "=" in word)
    names = values.get("dataset", "").split(",")
    has_model = "model" in values or values.get("preset", "none") != "none"
    if has_model or any(map(sets_model, values.get("method", "").split(","))):
        return words
    models = {USUAL_MODELS.get(_family(name)) for name in names}
    model = models.pop() if len(models) == 1 else None
    return words if model is None else [*words, f"model={model}"]


def _family(dataset: str) -> str:
    """Return the family of a file of conf/dataset; empty if there is none or its kind is unknown."""
    from runner.data import KINDS
    from runner.data.shared.cards import card_names, load_card
    from runner.options.yaml_files import parsed

    file = CONF / "dataset" / f"{dataset}.yaml"
    if not dataset.isidentifier() or not file.is_file():
        return ""
    try:
        written = parsed(file.read_text(encoding="utf-8"))
    except ValueError:  # Hydra tells what is wrong with the file
        return ""
    written = written if isinstance(written, dict) else {}
    kind, name = str(written.get("kind")), str(written.get("name"))
    if kind == "card":  # a file of your own may give a card another name
        return load_card(name).family if name in card_names() else ""
    return getattr(KINDS.get(kind), "family", "")


def check_text(word: str) -> None:
    """Raise ConfigError if a word of the command line is not UTF-8, in which every file of a run is written."""
    try:
        word.encode()
    except UnicodeEncodeError:
        with suppress(UnicodeError):
            os.fsencode(word).decode("utf-8")
            raise ConfigError(
                f"cannot read {word!a}: it is UTF-8, but the locale, {_locale()}, is not; choose one that is, such as"
                " LC_ALL=C.UTF-8, or set PYTHONUTF8=1"
            ) from None
        raise ConfigError(f"cannot read {word!a}: it is not UTF-8; give names and paths in UTF-8") from None


def _locale() -> str:
    """Return the variable that decides the encoding of the command line, with its value."""
    name = next((name for name in ("LC_ALL", "LC_CTYPE", "LANG") if os.environ.get(name)), None)
    return f"{name}={os.environ[name]}" if name else "in which no LANG is set"


def _plugins(value: Any) -> list[str]:
    """Return the entries of ``plugins`` with absolute paths of files. Raises ConfigError if it is no list of names."""
    if not isinstance(value, list | tuple) or not all(isinstance(entry, str) and entry for entry in value):
        raise ConfigError(
            "plugins must be a list of modules or files: write plugins=[my_module] or plugins=[./my_file.py]"
        )
    return [str(as_path(entry, "plugins")) if entry.endswith(".py") else entry for entry in value]


# ---------------------------------------------------------------- errors as one line

_OF_THE_USER = (RunnerError, OSError, MemoryError)  # they are told in one line, without a traceback


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Hold why a run failed, in one line. ``is_mistake``: the user can mend it; it is no error of the program."""

    reason: str
    is_mistake: bool


_failures: list[Failure] = []


def is_of_the_user(error: BaseException) -> bool:
    """Return whether an error is told in one line: what the user can mend, such as too little memory."""
    return isinstance(error, _OF_THE_USER) or _lacks_memory(error)


def _lacks_memory(error: BaseException) -> bool:
    """Return whether memory is lacking; torch has errors of its own for that."""
    of_torch = isinstance(error, RuntimeError) and _TORCH_LACKS_MEMORY.search(str(error)) is not None
    return isinstance(error, MemoryError) or of_torch


_TORCH_LACKS_MEMORY = re.compile(r"can't allocate memory|not enough memory|out of memory|Cannot allocate memory")


def register_failure(error: Exception) -> Failure:
    """Print the error as one line, and remember that the command failed; an error of the program prints a traceback."""
    failure = Failure(reason=explain(error), is_mistake=is_of_the_user(error))
    with speaking(failure.reason, diverged=isinstance(error, Diverged)) as rank:
        if not failure.is_mistake:
            traceback.print_exception(error, file=sys.stderr)
        print(fitted(f"error: {rank}{failure.reason}", sys.stderr), file=sys.stderr, flush=True)
    remember_failure(failure)
    return failure


def remember_failure(failure: Failure) -> None:
    """Let ``exit_code`` tell of the failure, which may have happened in another process."""
    _failures.append(failure)


def forget_failures() -> None:
    """Let ``exit_code`` tell of the commands from now on."""
    _failures.clear()


def exit_code() -> int:
    """Return 0 for success, 2 for a user's mistake, 1 for a failure of the program."""
    if not _failures:
        return 0
    return 2 if all(failure.is_mistake for failure in _failures) else 1


def explain(error: BaseException) -> str:
    """Return any error of the command line, Hydra's own included, as one line that lists the valid names."""
    if isinstance(error, RunnerError):
        return " ".join(str(error).split())
    from omegaconf.errors import InterpolationResolutionError, UnsupportedInterpolationType

    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in chain:
        chain.append(link)
        link = link.__cause__ or link.__context__
    for link in chain:
        missing = getattr(link, "missing_cfg_file", None)
        if missing and "/" in str(missing):
            group, _, name = str(missing).rpartition("/")
            more = "; others come with pip install '.[sweep]'" if group == "hydra/launcher" else ""
            if group == "preset" and name in method_names():
                return f"unknown option 'preset={name}'; it is a method: write method={name}"
            return f"unknown option '{group}={name}'{did_you_mean(name, getattr(link, 'options', None) or [])}{more}"
        if isinstance(link, InterpolationResolutionError | UnsupportedInterpolationType):
            reason = "it refers to itself" if "ecursi" in str(link) else str(link).strip().splitlines()[0]
            return f"{getattr(link, 'full_key', None) or 'a setting'}: cannot insert its value: {reason}"
        parent = getattr(link, "parent_node", None)
        key = getattr(link, "full_key", None)
        if parent is not None and key and hasattr(parent, "keys"):
            names = [str(name) for name in parent if str(name) not in ("hydra", "method", "preset")]
            return f"unknown key '{key}'{did_you_mean(str(key).rpartition('.')[2], names)}"
    if any(isinstance(link, RecursionError) for link in chain):
        return "a setting refers to itself; give it a value"
    text = str(error).strip()
    if type(error).__name__ == "OverrideParseException":
        read, reason = (shown(part)[1:-1] for part in (getattr(error, "override", ""), text.splitlines()[0]))
        quotes = "a VALUE with odd characters in two pairs of quotes, 'KEY=\"VALUE\"'"
        return f"cannot read '{read}': {reason}; write KEY=VALUE or GROUP=NAME, {quotes}"
    if several := re.match(r"(?:Ambiguous value for argument|Sweep parameters) '(.*?=(.*))'", text):
        comma = ", or write one value with a comma in two pairs of quotes, 'KEY=\"VALUE\"'" if "," in several[2] else ""
        return f"{shown(several[1])[1:-1]} are several values: add -m to sweep over them{comma}"
    group_error = re.match(r"Could not override '([\w/.@]+)'", text)
    if group_error and group_error[1].split("/")[0] == "table":
        return _TABLE_HINT
    if group_error:
        keys = [*CHOICES, *(field.name for field in dataclasses.fields(RunConfig) if field.name != "unused")]
        return f"unknown key '{group_error[1]}'{did_you_mean(group_error[1], set(keys))}"
    first = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    if _lacks_memory(error):
        return f"the memory does not suffice ({first}); choose a smaller model, batch or number of candidates"
    if isinstance(error, OSError):
        return explained(error) or first
    return f"{type(error).__name__}: {first}"

"""DictConfig -> frozen RunConfig. With ``__main__`` the only importer of hydra and omegaconf.

Hydra chooses files and applies command-line overrides; everything after that is typed. Each group's
dataclass stands beside the class it configures; ``runner.conversion`` checks names and types, ``__post_init__`` of the
dataclass checks ranges. All errors are single lines that list what is valid.
"""

import dataclasses
import hashlib
import json
import os
import re
import sys
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from runner import REPOSITORY
from runner.conversion import convert, did_you_mean
from runner.errors import ConfigError, RunnerError, require
from runner.registry import FROM_OUTSIDE, load_plugins, module_name

CONF = REPOSITORY / "conf"
GROUPS = ("dataset", "model", "loss", "optimizer", "sampler", "hardware")
PLACE_ONLY = (
    "hardware",
    "results_dir",
    "force",
    "checkpoint_seconds",
    "keep_weights",
)  # where and how, never what: not in run_id

_TABLE_HINT = "a table is many runs: render one by `make reproduce TABLE=NAME` (names are in conf/table)"


@dataclass(frozen=True, kw_only=True)
class HardwareConfig:
    """Where a run executes. ``name``: cpu, or gpu for what can run on one (see ``runner.machine.device``).

    ``threads``: compute threads of Numba and torch; 0 means all cores of this process.
    """

    name: str
    threads: int = 0

    def __post_init__(self) -> None:
        require(self.threads >= 0, "hardware.threads must be 0 (all cores) or more")


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """When and on how many test rows P@k is measured during training; the end always takes every row.

    ``per_epoch``: evaluations in each epoch, evenly spaced, the last at its end.
    ``rows``: size of the fixed, seed-independent subset of test rows used during training. A validation text is always
    measured whole.
    """

    per_epoch: int = 4
    rows: int = 2000

    def __post_init__(self) -> None:
        require(self.per_epoch >= 1, "evaluation.per_epoch must be at least 1")
        require(self.rows >= 1, "evaluation.rows must be at least 1")


@dataclass(frozen=True, kw_only=True)
class OutputConfig:
    """How the output layer scores a class.

    ``normalize``: cos(h, w) / ``temperature`` ** 2 without a bias (RF-softmax, whose temperature T = 1 / sqrt(tau) it
    is; 0.3 was best for its full softmax) instead of h . w + b. ``bias`` false: b = 0, as in the linear models of
    RF-softmax and MIDX, whose samplers do not see biases.
    """

    bias: bool = True
    normalize: bool = False
    temperature: float = 0.3

    def __post_init__(self) -> None:
        require(0 < self.temperature <= 1e6, "output.temperature must lie in (0, 1e6]")
        require(
            self.normalize or self.temperature == OutputConfig.temperature,
            "output.temperature is that of a normalised layer: set output.normalize=true too",
        )

    @property
    def scale(self) -> float | None:
        """Factor of the cosine; None where logits are plain inner products."""
        return self.temperature**-2 if self.normalize else None


@dataclass(frozen=True, kw_only=True)
class DiagnosticsConfig:
    """How far the sampler is from the softmax, measured at the ends of epochs (see ``runner.diagnosis.measures``).

    ``every_epochs``: after every so many epochs and at the end; None: never. ``rows``: test rows of the probe.
    ``draws``: proposals that gradients are averaged over.
    """

    every_epochs: int | None = None
    rows: int = 64
    draws: int = 16

    def __post_init__(self) -> None:
        require(
            self.every_epochs is None or self.every_epochs >= 1,
            "diagnostics.every_epochs must be null (never) or at least 1",
        )
        require(self.rows >= 1, "diagnostics.rows must be at least 1")
        require(self.draws >= 2, "diagnostics.draws must be at least 2: one has no variance")
        changed = [name for name in ("rows", "draws") if getattr(self, name) != getattr(DiagnosticsConfig, name)]
        require(
            self.every_epochs is not None or not changed,
            f"diagnostics.{changed[0] if changed else ''} is of diagnostics that are not made: set "
            "diagnostics.every_epochs too",
        )


@dataclass(frozen=True, kw_only=True)
class WindowsConfig:
    """How a text becomes rows of batches (see ``runner.data.text_batches``); data of rows have none.

    ``length``: tokens of a window. ``cut``: contiguous (streams whose state is carried from batch to batch) or chunked
    (independent windows, shuffled).
    """

    length: int = 35
    cut: Literal["contiguous", "chunked"] = "contiguous"

    def __post_init__(self) -> None:
        require(1 <= self.length <= 65536, "windows.length must lie in [1, 65536]")


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """What may be done to a step, and what follows from the validation set.

    ``clip``: largest norm of the gradient of all weights together; None: any. ``anneal``: the learning rate is
    multiplied by it after every epoch in which validation did not improve; None: it stays. ``decay``: the share of the
    learning rate that the last of ``epochs`` has, to which it falls linearly from epoch to epoch; None: it does not.
    ``patience``: training stops after so many epochs in a row without improvement; None: it does not.
    """

    clip: float | None = None
    anneal: float | None = None
    decay: float | None = None
    patience: int | None = None

    def __post_init__(self) -> None:
        require(self.clip is None or self.clip > 0, "training.clip must be null or above 0")
        require(self.anneal is None or 0 < self.anneal < 1, "training.anneal must be null or lie in (0, 1)")
        require(self.decay is None or 0 < self.decay < 1, "training.decay must be null or lie in (0, 1)")
        require(self.patience is None or self.patience >= 1, "training.patience must be null or at least 1 epoch")


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Everything that decides the numbers of a run, and (``hardware``, ``results_dir``...) where it happens.

    ``plugins``: modules or Python files that register what this package lacks (see ``runner.registry``).
    """

    dataset: Any
    model: Any
    loss: Any
    optimizer: Any
    sampler: Any
    hardware: HardwareConfig
    evaluation: EvaluationConfig
    seed: int
    epochs: int
    batch_size: int
    max_steps: int | None = None
    output: OutputConfig = OutputConfig()
    diagnostics: DiagnosticsConfig = DiagnosticsConfig()
    windows: WindowsConfig = WindowsConfig()
    training: TrainingConfig = TrainingConfig()
    plugins: tuple[str, ...] = ()
    results_dir: str = "results"
    force: bool = False
    checkpoint_seconds: float = 60.0
    keep_weights: bool | None = None

    def __post_init__(self) -> None:
        require(0 <= self.seed < 2**31, "seed must lie in [0, 2147483647]")
        require(self.epochs >= 1, "epochs must be at least 1")
        require(self.batch_size >= 1, "batch_size must be at least 1")
        require(self.max_steps is None or self.max_steps >= 1, "max_steps must be null or at least 1")
        require(
            self.training.decay is None or self.epochs >= 2,
            "training.decay lowers the learning rate from epoch to epoch: epochs must be at least 2",
        )
        require(self.checkpoint_seconds > 0, "checkpoint_seconds must be above 0")
        require(bool(self.results_dir), "results_dir must not be empty")
        self.sampler.check_loss(self.loss)
        require(
            self.diagnostics.every_epochs is None or not self.sampler.is_the_batch,
            f"diagnostics.every_epochs: with sampler={self.sampler.name} the batch is the draw, so that over one probe "
            "there is nothing to average; measure another sampler",
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain nested dict, as written to the run folder's config.yaml.

        Sections that change nothing are left out, so that they do not tell runs apart: ``diagnostics`` where there are
        none, ``output`` where logits are h . w + b, ``windows`` where nothing is text, ``training`` where no part of it
        is asked for, ``plugins`` where there are none.
        """
        out = dataclasses.asdict(self)
        out["plugins"] = list(self.plugins)
        if not self.plugins:
            del out["plugins"]
        if self.diagnostics.every_epochs is None:
            del out["diagnostics"]
        if self.output == OutputConfig():
            del out["output"]
        if self.dataset.family != "text":
            del out["windows"]
        if self.training == TrainingConfig():
            del out["training"]
        return out

    def check_model_reads_dataset(self) -> None:
        """ConfigError where the model reads another family of data (rows, text) than the data set is of.

        Or where something is asked of a validation set and there is none.
        """
        from runner.models import MODELS

        family, reads = self.dataset.family, self.model.reads
        fitting = ", ".join(name for name, model in MODELS.items() if model.reads == family)
        require(
            reads == family,
            f"dataset={self.dataset.name} is of {family} and model={self.model.name} reads {reads};"
            f" models that read {family}: {fitting}",
        )
        require(
            family == "text" or self.windows == WindowsConfig(),
            f"windows are of texts, and dataset={self.dataset.name} is of {family}; leave windows as it is",
        )
        for key in ("anneal", "patience"):
            require(
                family == "text" or getattr(self.training, key) is None,
                f"training.{key} goes by a validation set, and dataset={self.dataset.name} has none; leave it null",
            )

    @property
    def run_id(self) -> str:
        """Readable name plus a hash of every setting that can change a number; of a plugin's file, its name alone."""
        what = {key: value for key, value in self.as_dict().items() if key not in PLACE_ONLY}
        if self.plugins:
            what["plugins"] = [module_name(plugin) for plugin in self.plugins]
        digest = hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:10]
        return f"{self.dataset.name}-{self.model.name}-{self.sampler.name}-{digest}"

    @property
    def run_dir(self) -> Path:
        return Path(self.results_dir).expanduser().absolute() / "runs" / self.run_id


def _registries() -> dict[str, tuple[str, Mapping[str, type]]]:
    """Group -> (key that selects the class, name -> config dataclass)."""
    from runner.data import KINDS
    from runner.losses import LOSSES
    from runner.models import MODELS
    from runner.optimizers import OPTIMIZERS
    from runner.samplers import SAMPLERS

    return {
        "dataset": ("kind", KINDS),
        "model": ("name", MODELS),
        "loss": ("name", LOSSES),
        "optimizer": ("name", OPTIMIZERS),
        "sampler": ("name", SAMPLERS),
        "hardware": ("name", {"cpu": HardwareConfig, "gpu": HardwareConfig}),
    }


def to_run_config(cfg: Any) -> RunConfig:
    """Convert a composed Hydra config (or a plain mapping) to a RunConfig; raises ConfigError with one line."""
    from omegaconf import DictConfig, OmegaConf
    from omegaconf.errors import MissingMandatoryValue

    if isinstance(cfg, DictConfig):
        try:
            cfg = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
        except MissingMandatoryValue as error:
            key = getattr(error, "full_key", None) or str(error)
            raise ConfigError(f"{key} is required: set it on the command line, e.g. {key}=VALUE") from None
    if "table" in cfg:
        raise ConfigError(_TABLE_HINT)
    values = {key: value for key, value in cfg.items() if key not in ("preset", "hydra")}
    values["plugins"] = _plugins(values.get("plugins") or [])
    load_plugins(values["plugins"])
    for group, (selector, registry) in _registries().items():
        section = values.get(group)
        if not isinstance(section, Mapping):
            options = [file.stem for file in (CONF / group).glob("*.yaml")]
            options += [name for of_group, name in FROM_OUTSIDE if of_group == group]
            raise ConfigError(f"{group} must name a file of conf/{group}{did_you_mean(str(section), options)}")
        name = str(section.get(selector))
        if name not in registry:
            raise ConfigError(f"unknown {group}.{selector} '{name}'{did_you_mean(name, registry)}")
        _check_keys(group, name, section, registry)
        values[group] = convert(registry[name], section, f"{group}.")
    return convert(RunConfig, values, "")


def _check_keys(group: str, name: str, section: Mapping[str, Any], registry: Mapping[str, type]) -> None:
    """ConfigError for a key that other options of the group have and this one has not, as presets may set."""
    valid = {field.name for field in dataclasses.fields(registry[name])}
    others = {field.name for option in registry.values() for field in dataclasses.fields(option)} - valid
    for key in section:
        if key in others:
            raise ConfigError(
                f"{group}={section.get('name', name)} has no key '{key}'; valid: {', '.join(sorted(valid))}. If you"
                f" did not set it, the preset did, which is made for another {group}"
            )


def compose(overrides: Iterable[str]) -> RunConfig:
    """The RunConfig that ``python -m runner OVERRIDES`` would run; ConfigError (one line) when it would not."""
    import hydra

    overrides = list(overrides)
    with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        try:
            prepare_plugins(overrides)
            return to_run_config(hydra.compose("config", overrides))
        except RunnerError:
            raise
        except Exception as error:
            raise ConfigError(explain(error)) from None


# ---------------------------------------------------------------- plugins


def prepare_plugins(overrides: Iterable[str]) -> None:
    """Load what ``plugins=[...]`` among the overrides names, and give Hydra an option for each thing registered.

    To be called before Hydra composes, which would not know ``sampler=NAME`` otherwise. The option has the defaults of
    the config class, as a file of conf/ would write them. Raises ConfigError (one line).
    """
    from hydra.core.config_store import ConfigStore
    from hydra.core.override_parser.overrides_parser import OverridesParser

    words = [word for word in overrides if re.match(r"\+{0,2}plugins=", word)]
    for override in OverridesParser.create().parse_overrides(words) if words else ():
        load_plugins(_plugins(override.value()))
    load_plugins([])  # what is installed, if nothing is named
    for (group, name), cls in FROM_OUTSIDE.items():
        ConfigStore.instance().store(group=group, name=name, node=_as_option(group, name, cls))


def _plugins(value: Any) -> list[str]:
    """The entries of ``plugins``, files as absolute paths; ConfigError unless they are a list of names."""
    if not isinstance(value, list | tuple) or not all(isinstance(entry, str) and entry for entry in value):
        raise ConfigError("plugins is a list of modules or files: write plugins=[my_module] or plugins=[./my_file.py]")
    return [str(Path(entry).expanduser().absolute()) if entry.endswith(".py") else entry for entry in value]


def _as_option(group: str, name: str, cls: type) -> dict[str, Any]:
    """What a file of conf/ for the class would hold: defaults of fields, ??? for those without, a customary loss."""
    option: dict[str, Any] = {}
    if group == "sampler":
        option["defaults"] = [{"override /loss@_global_.loss": cls.losses[0]}]  # type: ignore[attr-defined]
    for field in dataclasses.fields(cls):
        default = field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        option[field.name] = "???" if default is dataclasses.MISSING else default
    option["kind" if group == "dataset" else "name"] = name
    if group == "dataset" and option["name"] == "???":
        option["name"] = name
    return option


# ---------------------------------------------------------------- errors as one line

_failures: list[Exception] = []


def register_failure(error: Exception) -> None:
    """Print one line (and a traceback where the error is ours to fix) and remember that the command failed."""
    _failures.append(error)
    if not isinstance(error, RunnerError | OSError):
        traceback.print_exception(error, file=sys.stderr)
    print(f"error: {explain(error)}", file=sys.stderr, flush=True)


def exit_code() -> int:
    """0, or 2 for a user's mistake, or 1 for a failure of the program."""
    if not _failures:
        return 0
    return 2 if all(isinstance(error, RunnerError | OSError) for error in _failures) else 1


def explain(error: BaseException) -> str:
    """One line for any error of the command line, Hydra's own included, with the names that are valid."""
    if isinstance(error, RunnerError):
        return " ".join(str(error).split())
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in chain:
        chain.append(link)
        link = link.__cause__ or link.__context__
    for link in chain:
        missing = getattr(link, "missing_cfg_file", None)
        if missing and "/" in str(missing):
            group, _, name = str(missing).rpartition("/")
            return f"unknown option '{group}={name}'{did_you_mean(name, getattr(link, 'options', None) or [])}"
        parent = getattr(link, "parent_node", None)
        key = getattr(link, "full_key", None)
        if parent is not None and key and hasattr(parent, "keys"):
            names = [str(name) for name in parent if str(name) not in ("hydra", "preset")]
            return f"unknown key '{key}'{did_you_mean(str(key).rpartition('.')[2], names)}"
    text = str(error).strip()
    if type(error).__name__ == "OverrideParseException":
        read, reason = getattr(error, "override", ""), text.splitlines()[0]
        quotes = "a VALUE with odd characters in two pairs of quotes, 'KEY=\"VALUE\"'"
        return f"cannot read '{read}': {reason}; write KEY=VALUE or GROUP=NAME, {quotes}"
    group_error = re.match(r"Could not override '([\w/.@]+)'", text)
    if group_error and group_error[1].split("/")[0] == "table":
        return _TABLE_HINT
    if group_error:
        keys = [*GROUPS, "preset", *(field.name for field in dataclasses.fields(RunConfig))]
        return f"unknown key '{group_error[1]}'{did_you_mean(group_error[1], set(keys))}"
    first = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    return first if isinstance(error, OSError) else f"{type(error).__name__}: {first}"


def set_threads(threads: int) -> int:
    """Give the pools of Numba and of torch (whose BLAS does all products) one size and return it; 0: all cores."""
    import numba
    import torch

    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    count = threads or allowed
    require(
        count <= numba.config.NUMBA_NUM_THREADS,
        f"hardware.threads={count} is more than the {numba.config.NUMBA_NUM_THREADS} cores of this process",
    )
    numba.set_num_threads(count)
    torch.set_num_threads(count)
    return count

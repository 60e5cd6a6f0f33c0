"""Define the settings of a run: one frozen dataclass for each section, and ``RunConfig`` for all of them.

The dataclasses of the groups (data set, model, loss, optimizer, samplers) are defined beside the classes that they
configure. ``runner.config`` makes a ``RunConfig`` from what Hydra composed. Ranges are checked here.
"""

import dataclasses
import hashlib
import itertools
import json
import math
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from runner.conversion import as_path
from runner.errors import require

PLACE = {"place": True}
"""The metadata of a field that says where and how a run happens, never what it computes: it is not part of its id."""
_FIRST_SECONDS = 0.25  # the first moment of evaluation.seconds_factor
ADAPTIVE = "adaptive_softmax"  # the method of runs with output.kind=adaptive
CPU = "cpu"  # the device that is meant if none is named
EVERY_EXAMPLE_ONCE = {"name": "epoch"}  # the default sampler of examples; older run folders leave it out


def module_name(plugin: str) -> str:
    """Return the name of the module that a plugin is imported as."""
    return Path(plugin).stem if plugin.endswith(".py") else plugin


def digest_of(identity: Mapping[str, Any]) -> str:
    """Return the end of the id of a run with this identity (see ``RunConfig.identity``)."""
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:10]


def default_of(option: dataclasses.Field[Any]) -> Any:
    """Return the default of a field, MISSING if it has none."""
    factory = option.default_factory
    return option.default if factory is dataclasses.MISSING else factory()


def _distinct(section: Any, selector: str = "") -> dict[str, Any]:
    """Return the settings of a section that differ from their defaults, and the ``selector``, which always counts."""
    found = {}
    for option in dataclasses.fields(section):
        value = getattr(section, option.name)
        if option.metadata.get("place") or (value == default_of(option) and option.name != selector):
            continue
        found[option.name] = _distinct(value) if dataclasses.is_dataclass(value) else value
    return found


@dataclass(frozen=True, kw_only=True)
class HardwareConfig:
    """Say where a run executes.

    ``name``: cpu, or gpu for the parts that can run on one (see ``runner.machine.device``).
    ``threads``: compute threads of Numba and torch; 0 means all cores of this process, shared by the parallel jobs.
    ``parallel_jobs``: runs that share the machine; a sweep's launcher sets it, and their seconds are marked.
    """

    name: str = CPU
    threads: int = field(default=0, metadata=PLACE)
    parallel_jobs: int = field(default=1, metadata=PLACE)

    def __post_init__(self) -> None:
        require(self.threads >= 0, "hardware.threads must be 0 (all cores) or more")
        require(self.parallel_jobs >= 1, "hardware.parallel_jobs must be at least 1")


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """Say when, and on how many rows, metrics are measured during training.

    The final evaluation always takes every row.

    ``every_epochs``: fraction of an epoch between two evaluations, at most 1; every epoch ends with an evaluation.
    ``seconds_factor``: None, or a number above 1: metrics are also measured each time the seconds of training have
    grown by this factor, from a quarter of a second on, so that curves against seconds are as fine for fast methods as
    for slow ones. What is measured then is shown and has no other effect: the weights to keep, annealing and patience
    go by the evaluations of ``every_epochs`` alone. So these moments, which are the clock's, change nothing else.
    ``rows``: for classification, how many of the rows held out for validation are measured during training or, if none
    are held out, of the test rows; they are the same for every seed. Other tasks measure their validation set whole.
    """

    every_epochs: float = 0.25
    seconds_factor: float | None = None
    rows: int = 2000

    @property
    def per_epoch(self) -> int:
        """Return the number of evaluations in each epoch."""
        return math.ceil(1 / self.every_epochs - 1e-6)

    def turn(self, train_seconds: float) -> int:
        """Return how many moments of ``seconds_factor`` have come after so many seconds of training."""
        if self.seconds_factor is None or train_seconds < _FIRST_SECONDS:
            return 0
        return 1 + int(math.log(train_seconds / _FIRST_SECONDS) / math.log(self.seconds_factor))

    def __post_init__(self) -> None:
        require(0 < self.every_epochs <= 1, "evaluation.every_epochs must lie in (0, 1]")
        require(
            self.seconds_factor is None or self.seconds_factor >= 1.001,
            "evaluation.seconds_factor must be null (no evaluations by the clock) or at least 1.001",
        )
        require(self.rows >= 1, "evaluation.rows must be at least 1")


@dataclass(frozen=True, kw_only=True)
class OutputConfig:
    """Say how the output layer scores a class: by h . w + b, by the cosine of h and w, or by frequency bands.

    ``bias``: false means b = 0, as in the linear models of RF-softmax and MIDX, whose samplers do not see biases.
    ``normalize``: the logit is cos(h, w) / ``temperature`` ** 2, without a bias, as in RF-softmax.
    ``temperature``: the RF-softmax paper's T = 1 / sqrt(tau); that paper finds 0.3 best for full softmax.
    ``kind``: ``classes`` is a matrix of class vectors, trained with a sampler and a loss. ``adaptive`` is PyTorch's
    adaptive softmax for texts (``runner.heads.adaptive``), which has neither; ``bias`` is then that of its head.
    ``cutoffs``: how many of the most frequent classes the bands of ``adaptive`` end after, ascending; None: a tenth and
    a half of all classes.
    ``div_value``: each band's vectors are so many times shorter than those of the band before it.
    """

    bias: bool = True
    normalize: bool = False
    temperature: float = 0.3
    kind: Literal["classes", "adaptive"] = "classes"
    cutoffs: tuple[int, ...] | None = None
    div_value: float = 4.0

    def __post_init__(self) -> None:
        require(1e-6 <= self.temperature <= 1e6, "output.temperature must lie in [1e-6, 1e6]")
        require(
            self.normalize or self.temperature == OutputConfig.temperature,
            "output.temperature has no effect unless the layer is normalised: set output.normalize=true too",
        )
        adaptive = self.kind == "adaptive"
        for key in ("cutoffs", "div_value"):
            is_usual = getattr(self, key) == getattr(OutputConfig, key)
            require(adaptive or is_usual, f"output.{key} has no effect unless output.kind=adaptive")
        require(not (adaptive and self.normalize), "output.kind=adaptive has no cosines: leave output.normalize out")
        cutoffs = self.cutoffs or (1,)
        require(
            cutoffs[0] >= 1 and all(low < high for low, high in itertools.pairwise(cutoffs)),
            "output.cutoffs must be null or ascending numbers of classes, such as [2000,10000]",
        )
        require(self.cutoffs is None or len(self.cutoffs) > 0, "output.cutoffs must be null or name at least one")
        require(1 <= self.div_value <= 1000, "output.div_value must lie in [1, 1000]")

    @property
    def scale(self) -> float | None:
        """Return the factor of the cosine, 1 / T ** 2; None if logits are plain inner products."""
        return self.temperature**-2 if self.normalize else None


@dataclass(frozen=True, kw_only=True)
class DiagnosticsConfig:
    """Say how often to measure how far the sampler is from the softmax (see ``runner.diagnosis.divergence``).

    ``every_epochs``: number of epochs between two measurements, with a last one at the end; None: never.
    ``rows``: number of test rows to measure on.
    ``draws``: number of proposals that gradients are averaged over.
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
        require(self.draws >= 2, "diagnostics.draws must be at least 2: a single draw has no variance")
        changed = [name for name in ("rows", "draws") if getattr(self, name) != getattr(DiagnosticsConfig, name)]
        require(
            self.every_epochs is not None or not changed,
            f"diagnostics.{changed[0] if changed else ''} has no effect while diagnostics.every_epochs is null: set "
            "diagnostics.every_epochs too",
        )


@dataclass(frozen=True, kw_only=True)
class WindowsConfig:
    """Say how a text is cut into windows (see ``runner.data.text_batches``). Data sets of rows have no windows.

    ``length``: tokens of a window.
    ``cut``: contiguous (streams whose state is carried from batch to batch) or chunked (independent windows, shuffled).
    """

    length: int = 35
    cut: Literal["contiguous", "chunked"] = "contiguous"

    def __post_init__(self) -> None:
        require(1 <= self.length <= 65536, "windows.length must lie in [1, 65536]")


@dataclass(frozen=True, kw_only=True)
class RankingConfig:
    """Say which items are ranked when recommendations are measured.

    ``exclude_seen``: the items that a user took before the event to predict are not ranked, as in RecStudio, which made
    MIDX's numbers. A target that the user took before then counts as a miss.
    """

    exclude_seen: bool = True


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """Say how gradients are clipped, how the learning rate changes, and when training stops early.

    ``clip``: largest norm of the gradient of all weights together; None: no limit.
    ``anneal``: factor of the learning rate after every epoch in which validation did not improve; None: no change.
    ``decay``: final rate as a fraction of the initial one, reached linearly over ``epochs``; None: no decay.
    ``patience``: training stops after this many epochs in a row without improvement; None: it never stops early.
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
    """Hold all settings of a run: those that decide its numbers, and those that say where it happens (``PLACE``).

    ``seed``: of all random numbers of the run.
    ``epochs``: how often the training rows are gone through.
    ``batch_size``: training rows of a step; of a text or a log, its windows.
    ``sampler``, ``loss``: None where the network has no classes. ``plugins``: modules or Python files that register
    what this package lacks (see ``runner.registry``).
    ``unused``: names of the sections that only other tasks use; they are not part of the run's identity.
    ``results_dir``: folder in which the folder ``runs`` holds a folder for each run.
    ``checkpoint_every_seconds``: seconds between two checkpoints, from which an interrupted run continues.
    ``tracker``: where observations are shown beside metrics.jsonl, which always has them.
    """

    dataset: Any
    model: Any
    optimizer: Any
    batch_sampler: Any
    hardware: HardwareConfig = HardwareConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    seed: int = 0
    epochs: int = 4
    batch_size: int = 256
    sampler: Any = None
    loss: Any = None
    max_steps: int | None = None
    output: OutputConfig = OutputConfig()
    diagnostics: DiagnosticsConfig = DiagnosticsConfig()
    windows: WindowsConfig = WindowsConfig()
    ranking: RankingConfig = RankingConfig()
    training: TrainingConfig = TrainingConfig()
    plugins: tuple[str, ...] = ()
    unused: frozenset[str] = field(default=frozenset(), metadata=PLACE)
    results_dir: str = field(default="results", metadata=PLACE)
    force: bool = field(default=False, metadata=PLACE)
    checkpoint_every_seconds: float = field(default=60.0, metadata=PLACE)
    keep_weights: bool | None = field(default=None, metadata=PLACE)
    tracker: Literal["none", "tensorboard", "mlflow", "both"] = field(default="none", metadata=PLACE)

    def __post_init__(self) -> None:
        require(0 <= self.seed < 2**31, "seed must lie in [0, 2147483647]")
        require(self.epochs >= 1, "epochs must be at least 1")
        require(self.batch_size >= 1, "batch_size must be at least 1")
        require(self.max_steps is None or self.max_steps >= 1, "max_steps must be null or at least 1")
        require(
            self.training.decay is None or self.epochs >= 2,
            "training.decay lowers the learning rate from epoch to epoch: epochs must be at least 2",
        )
        require(self.checkpoint_every_seconds > 0, "checkpoint_every_seconds must be above 0")
        require(bool(self.results_dir), "results_dir must not be empty")
        as_path(self.results_dir, "results_dir")  # raises ConfigError
        require(
            self.output.kind == "classes" or (self.sampler is None and self.loss is None),
            "output.kind=adaptive has a loss of its own and samples no classes: add '~sampler' '~loss', or take"
            " preset=adaptive_softmax",
        )
        if self.sampler is None or self.loss is None:
            return
        self.sampler.check_loss(self.loss)
        require(
            self.diagnostics.every_epochs is None or not self.sampler.is_the_batch,
            f"diagnostics.every_epochs does not work with sampler={self.sampler.name}, whose draw is the batch itself: "
            "one probe gives nothing to average over; set it to null or choose another sampler",
        )

    def as_dict(self) -> dict[str, Any]:
        """Return all settings as a plain nested dict, as written to the run folder's config.yaml.

        Sections that only other tasks use are left out.
        """
        out = dataclasses.asdict(self)
        for section in ("unused", *self.unused):
            del out[section]
        return {**out, "plugins": list(self.plugins)}

    @property
    def identity(self) -> dict[str, Any]:
        """Return what makes this run another than others: the settings that differ from their defaults.

        So a new option with a default changes no identity. The chosen data set, model and so on always count, as does
        whatever has no default. A plugin's file counts by its name alone.
        """
        found = {}
        for part in dataclasses.fields(self):
            value, usual = getattr(self, part.name), default_of(part)
            if part.metadata.get("place") or part.name in self.unused:
                continue
            if dataclasses.is_dataclass(value):
                selector = "kind" if part.name == "dataset" else "name"
                usual = _distinct(usual, selector) if dataclasses.is_dataclass(usual) else usual
                value = _distinct(value, selector)
            if value != usual:
                found[part.name] = value
        if self.plugins:
            found["plugins"] = [module_name(plugin) for plugin in self.plugins]
        return found

    @cached_property
    def run_id(self) -> str:
        """Return a readable name, the devices if they are not the usual ones, and a hash of ``identity``."""
        device = () if self.hardware.name == CPU else (self.hardware.name,)
        names = (self.dataset.name, self.model.name, self.method_name, *device)
        return "-".join([*map(str, names), digest_of(self.identity)])

    @property
    def method(self) -> Any:
        """Return what is compared: the sampler of classes or, in a network without classes, that of examples."""
        return self.batch_sampler if self.sampler is None else self.sampler

    @property
    def method_name(self) -> str:
        """Return the name of ``method``, or that of an output layer that takes the place of a sampler."""
        return ADAPTIVE if self.output.kind == "adaptive" else str(self.method.name)

    @property
    def run_dir(self) -> Path:
        """Return the absolute path of the run folder."""
        return as_path(self.results_dir, "results_dir") / "runs" / self.run_id


def _places(config_class: type, prefix: str = "") -> Iterator[str]:
    hints = typing.get_type_hints(config_class)
    for option in dataclasses.fields(config_class):
        if option.metadata.get("place"):
            yield f"{prefix}{option.name}"
        elif dataclasses.is_dataclass(hints[option.name]):
            yield from _places(hints[option.name], f"{prefix}{option.name}.")


PLACE_ONLY = frozenset(_places(RunConfig))
"""The keys of settings that say where and how a run happens, such as ``hardware.threads``."""


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested settings to ``{"sampler.K": 9, ...}``, without those that say where a run happens."""
    out: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            out |= flat(value, f"{prefix}{key}.")
        elif f"{prefix}{key}" not in PLACE_ONLY:
            out[f"{prefix}{key}"] = value
    return out

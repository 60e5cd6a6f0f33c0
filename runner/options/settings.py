"""Define the settings of a run: one frozen dataclass for each section, and ``RunConfig`` for all of them.

The dataclasses of the groups (data set, model, loss, optimizer, samplers) are defined beside the classes that they
configure. ``runner.config`` makes a ``RunConfig`` from what Hydra composed. Ranges are checked here.
"""

import dataclasses
import hashlib
import itertools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

from runner.errors import require
from runner.options.conversion import as_path
from runner.options.fields import PLACE, PLACE_ONLY, Options, option

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


def default_of(part: dataclasses.Field[Any]) -> Any:
    """Return the default of a field, MISSING if it has none."""
    factory = part.default_factory
    return part.default if factory is dataclasses.MISSING else factory()


def _distinct(section: Any, selector: str = "") -> dict[str, Any]:
    """Return the settings of a section that differ from their defaults, and the ``selector``, which always counts."""
    found = {}
    for part in dataclasses.fields(section):
        value = getattr(section, part.name)
        if part.metadata.get("place") or (value == default_of(part) and part.name != selector):
            continue
        found[part.name] = _distinct(value) if dataclasses.is_dataclass(value) else value
    return found


@dataclass(frozen=True, kw_only=True)
class HardwareConfig(Options):
    """Run on the CPU."""

    section: ClassVar[str] = "hardware"

    name: str = CPU
    engine: Literal["numba", "torch"] = option(
        "numba",
        "",
        choices={
            "numba": "kernels of our own for CPUs, the fastest there",
            "torch": "PyTorch, as on a GPU; for trying on a CPU what a GPU will do",
        },
    )
    threads: int = option(
        0, "compute threads; 0: all cores of this process, divided among the parallel jobs", low=0, place=True
    )
    parallel_jobs: int = option(
        1, "runs that share this machine, whose seconds are marked; launchers of sweeps set it", low=1, place=True
    )
    classes: Literal["whole", "split"] = option(
        "whole",
        "",
        choices={
            "whole": "one process holds the class matrix",
            "split": "the processes that torchrun starts hold a part each",
        },
    )
    batch: Literal["whole", "split"] = option(
        "whole",
        "",
        choices={
            "whole": "each process of a split run encodes the whole batch",
            "split": "each encodes a part of it, and they send each other hidden states and gradients",
        },
    )
    timeout: float = option(
        300.0, "seconds after which a process of a split run is given up that does not answer", above=0, place=True
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.batch == "whole" or self.classes == "split",
            "hardware.batch=split divides the batches of a split run: add hardware.classes=split, or take"
            " hardware.batch=whole",
        )


@dataclass(frozen=True, kw_only=True)
class GpuConfig(HardwareConfig):
    """Run encoder, class matrix and optimizer on the GPU, by PyTorch; data and some samplers stay on the CPU.

    Without a GPU the whole run uses the CPU (``runner.machine.device``).
    """

    engine: Literal["numba", "torch"] = "torch"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.engine == "torch", "hardware=gpu computes by hardware.engine=torch; numba is for CPUs")


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig(Options):
    """Say when, and on how many rows, metrics are measured during training.

    Every epoch ends with an evaluation, and the final one always takes every row. The moments of ``seconds_factor``
    begin at a quarter of a second, so that curves against seconds are as fine for fast methods as for slow ones. What
    is measured then is shown and has no other effect: the weights to keep, annealing and patience go by the evaluations
    of ``every_epochs`` alone. So these moments, which are the clock's, change nothing else. ``rows`` are the same for
    every seed; other tasks than classification measure their validation set whole.
    """

    section: ClassVar[str] = "evaluation"

    every_epochs: float = option(0.25, "fraction of an epoch between two evaluations", low=1e-6, high=1)
    seconds_factor: float | None = option(
        None,
        "measure also each time the seconds of training have grown by this factor",
        null="no evaluations by the clock",
        low=1.001,
    )
    rows: int = option(
        2000, "rows of classification that are measured meanwhile, of those held out or else of the test rows", low=1
    )

    @property
    def per_epoch(self) -> int:
        """Return the number of evaluations in each epoch."""
        return math.ceil(1 / self.every_epochs - 1e-6)

    def turn(self, train_seconds: float) -> int:
        """Return how many moments of ``seconds_factor`` have come after so many seconds of training."""
        if self.seconds_factor is None or train_seconds < _FIRST_SECONDS:
            return 0
        return 1 + int(math.log(train_seconds / _FIRST_SECONDS) / math.log(self.seconds_factor))


@dataclass(frozen=True, kw_only=True)
class OutputConfig(Options):
    """Say how the output layer scores a class: by h . w + b, by the cosine of h and w, or by frequency bands.

    The linear models of RF-softmax and MIDX have no biases, which their samplers do not see. The RF-softmax paper's
    temperature is T = 1 / sqrt(tau); it finds 0.3 best for full softmax. With ``kind=adaptive``, ``bias`` is that of
    the head (``runner.baselines.adaptive``).
    """

    section: ClassVar[str] = "output"

    bias: bool = option(True, "logits have a bias for each class")
    normalize: bool = option(
        False, "true: logits are cos(h, w) / temperature^2 without bias (RF-softmax) instead of h.w + b"
    )
    temperature: float = option(0.3, "of a normalised layer", low=1e-6, high=1e6)
    kind: Literal["classes", "adaptive"] = option(
        "classes",
        "",
        choices={
            "classes": "a matrix of class vectors, trained with a sampler and a loss",
            "adaptive": "PyTorch's adaptive softmax for texts, a baseline without either",
        },
    )
    cutoffs: tuple[int, ...] | None = option(
        None,
        "numbers of the most frequent classes after which the bands of adaptive end",
        null="a tenth and a half of all",
    )
    div_value: float = option(
        4.0,
        "factor by which the vectors of each band of adaptive are shorter than those of the band before",
        low=1,
        high=1000,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
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

    @property
    def scale(self) -> float | None:
        """Return the factor of the cosine, 1 / T ** 2; None if logits are plain inner products."""
        return self.temperature**-2 if self.normalize else None


@dataclass(frozen=True, kw_only=True)
class DiagnosticsConfig(Options):
    """Say how often to measure how far the sampler is from the softmax (see ``runner.measures.divergence``)."""

    section: ClassVar[str] = "diagnostics"

    every_epochs: int | None = option(
        None, "number of epochs between two measurements, with a last one at the end", null="never", low=1
    )
    rows: int = option(64, "test rows to measure on", low=1)
    draws: int = option(16, "proposals that gradients are averaged over; a single draw has no variance", low=2)

    def __post_init__(self) -> None:
        super().__post_init__()
        changed = [name for name in ("rows", "draws") if getattr(self, name) != getattr(DiagnosticsConfig, name)]
        require(
            self.every_epochs is not None or not changed,
            f"diagnostics.{changed[0] if changed else ''} has no effect while diagnostics.every_epochs is null: set "
            "diagnostics.every_epochs too",
        )


@dataclass(frozen=True, kw_only=True)
class WindowsConfig(Options):
    """Say how a text is cut into windows (see ``runner.data.text.batches``)."""

    section: ClassVar[str] = "windows"

    length: int = option(35, "tokens of a window", low=1, high=65536)
    cut: Literal["contiguous", "chunked"] = option(
        "contiguous",
        "",
        choices={
            "contiguous": "streams whose state goes on in the next batch",
            "chunked": "independent windows, shuffled",
        },
    )


@dataclass(frozen=True, kw_only=True)
class RankingConfig(Options):
    """Say which items are ranked when recommendations are measured.

    RecStudio, which made MIDX's numbers, excludes seen items. A target that the user took before then counts as a miss.
    """

    section: ClassVar[str] = "ranking"

    exclude_seen: bool = option(True, "items that a user took before the event to predict are not ranked")


@dataclass(frozen=True, kw_only=True)
class TrainingConfig(Options):
    """Say how gradients are clipped, how the learning rate changes, and when training stops early."""

    section: ClassVar[str] = "training"

    clip: float | None = option(None, "largest norm of the gradient of all weights together", null="no limit", above=0)
    anneal: float | None = option(
        None,
        "factor of the learning rate after every epoch in which validation did not improve",
        null="no change",
        above=0,
        below=1,
    )
    decay: float | None = option(
        None,
        "final learning rate as a fraction of the initial one, reached linearly over the epochs",
        null="no decay",
        above=0,
        below=1,
    )
    patience: int | None = option(
        None, "stop after this many epochs in a row in which validation did not improve", null="never", low=1
    )


@dataclass(frozen=True, kw_only=True)
class RunConfig(Options):
    """Hold all settings of a run: those that decide its numbers, and those that say where it happens (``PLACE_ONLY``).

    ``sampler``, ``loss``: None where the network has no classes.
    ``method``: the name of the method in conf/method that the run is of, if one was chosen. It changes no number.
    ``unused``: names of the sections that only other tasks use; they are not part of the run's identity.
    """

    dataset: Any
    model: Any
    optimizer: Any
    batch_sampler: Any
    hardware: HardwareConfig = HardwareConfig()
    sampler: Any = None
    loss: Any = None
    seed: int = option(0, "seed of all random numbers", low=0, high=2**31 - 1)
    epochs: int = option(4, "how often the training rows are gone through", low=1)
    batch_size: int = option(256, "training rows of a step; of a text or a log, its windows", low=1)
    max_steps: int | None = option(None, "stop after this many steps, before the last epoch ends", low=1)
    output: OutputConfig = option(OutputConfig(), "how classes are scored")
    evaluation: EvaluationConfig = option(EvaluationConfig(), "when metrics are measured during training")
    windows: WindowsConfig = option(WindowsConfig(), "how a text is cut; a batch has batch_size windows")
    ranking: RankingConfig = option(RankingConfig(), "how recommendations are measured")
    training: TrainingConfig = option(TrainingConfig(), "learning rate and early stopping")
    diagnostics: DiagnosticsConfig = option(
        DiagnosticsConfig(), "how far the sampler is from the softmax; runner.diagnose measures finished runs"
    )
    plugins: tuple[str, ...] = option(
        (), "modules or files that register your own samplers, losses, models...: plugins=[./my_sampler.py]"
    )
    method: str | None = field(default=None, metadata=PLACE)
    unused: frozenset[str] = field(default=frozenset(), metadata=PLACE)
    results_dir: str = option("results", "folder of runs/, which holds a folder for each run", place=True)
    force: bool = option(False, "true: start again, even if the run is finished", place=True)
    checkpoint_every_seconds: float = option(
        60.0, "seconds between two checkpoints, from which an interrupted run continues", above=0, place=True
    )
    tracker: Literal["none", "tensorboard", "mlflow", "both"] = option(
        "none", "shows observations elsewhere, too (extra trackers)", place=True
    )
    keep_weights: bool | None = option(
        None, "keep the final weights in the run folder", null="if they take at most 64 MB", place=True
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.training.decay is None or self.epochs >= 2,
            "training.decay lowers the learning rate from epoch to epoch: epochs must be at least 2",
        )
        require(bool(self.results_dir), "results_dir must not be empty")
        as_path(self.results_dir, "results_dir")  # raises ConfigError
        require(
            self.output.kind == "classes" or (self.sampler is None and self.loss is None),
            "output.kind=adaptive has a loss of its own and samples no classes: add '~sampler' '~loss', or take"
            " method=adaptive_softmax",
        )
        require(
            self.hardware.engine == "numba" or self.hardware.name != CPU or self.has_classes,
            f"hardware.engine=torch holds class matrices, and model={self.model.name} has none",
        )
        if self.sampler is None and self.output.kind == "classes":
            for key in ("second_moment", "first_moment"):
                usual = getattr(self.optimizer, key, None) in (None, "full", "float32")
                require(
                    usual, f"optimizer.{key} is of class vectors, which model={self.model.name} lacks; leave it out"
                )
        if self.hardware.classes == "split":
            self._check_split()
        if self.sampler is None or self.loss is None:
            return
        self.sampler.check_loss(self.loss)
        self.sampler.check_engine(self.hardware.engine)
        require(
            self.diagnostics.every_epochs is None or not self.sampler.is_the_batch,
            f"diagnostics.every_epochs does not work with sampler={self.sampler.name}, whose draw is the batch itself: "
            "one probe gives nothing to average over; set it to null or choose another sampler",
        )

    def _check_split(self) -> None:
        """Raise ConfigError for what needs the whole class matrix in one process."""
        split = "hardware.classes=split"
        require(self.has_classes, f"{split} splits a class matrix, and model={self.model.name} has none to sample from")
        tied = getattr(self.model, "tied", False)
        require(not tied, f"{split} does not go with model.tied=true, whose input reads all classes; set it to false")
        require(
            self.hardware.batch == "whole" or self.model.divides_batches,
            f"hardware.batch=split does not know how model={self.model.name} adds up the gradients of parts of a batch;"
            " take hardware.batch=whole",
        )
        examples = self.batch_sampler.name
        require(examples == "epoch", f"{split} does not go with batch_sampler={examples}; take batch_sampler=epoch")

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
        names = (self.dataset.name, self.model.name, self.sampler_name, *device)
        return "-".join([*map(str, names), digest_of(self.identity)])

    def check_processor(self) -> None:
        """Raise ``ProcessorLacks`` if the run needs instructions that this processor does not have."""
        if self.sampler is not None and self.hardware.engine == "numba":
            self.sampler.check_processor()

    @property
    def has_classes(self) -> bool:
        """Tell whether the network has a class matrix with a sampler."""
        return self.sampler is not None

    @property
    def sampler_name(self) -> str:
        """Return the name of the sampler of classes, or of what takes its place: an output layer, or the sampler of
        examples of a network without classes."""
        if self.output.kind == "adaptive":
            return ADAPTIVE
        return str((self.batch_sampler if self.sampler is None else self.sampler).name)

    @property
    def method_name(self) -> str:
        """Return the name of the method, or of the sampler if no method was chosen."""
        return self.method or self.sampler_name

    @property
    def run_dir(self) -> Path:
        """Return the absolute path of the run folder."""
        return as_path(self.results_dir, "results_dir") / "runs" / self.run_id


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested settings to ``{"sampler.K": 9, ...}``, without those that say where a run happens."""
    out: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            out |= flat(value, f"{prefix}{key}.")
        elif f"{prefix}{key}" not in PLACE_ONLY:
            out[f"{prefix}{key}"] = value
    return out

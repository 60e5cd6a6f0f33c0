"""What a run may be told: one frozen dataclass for each section of the configuration, ``RunConfig`` for all.

The groups' dataclasses (data set, model, loss, optimizer, samplers) stand beside the classes that they configure;
``runner.config`` makes a ``RunConfig`` of what Hydra composed. Ranges are checked here.
"""

import dataclasses
import hashlib
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from runner.errors import require

# Where and how a run happens, never what it computes: not part of its run_id.
PLACE_ONLY = ("hardware", "results_dir", "force", "checkpoint_every_seconds", "keep_weights")
EVERY_EXAMPLE_ONCE = {"name": "epoch"}  # the sampler of examples that config.yaml leaves out


def module_name(plugin: str) -> str:
    """Name of the module that a plugin is imported as."""
    return Path(plugin).stem if plugin.endswith(".py") else plugin


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

    ``every_epochs``: part of an epoch between two evaluations, at most 1; an epoch always ends with one.
    ``rows``: size of the fixed, seed-independent subset of test rows used during training. A validation text is always
    measured whole.
    """

    every_epochs: float = 0.25
    rows: int = 2000

    @property
    def per_epoch(self) -> int:
        """Evaluations in each epoch."""
        return math.ceil(1 / self.every_epochs - 1e-6)

    def __post_init__(self) -> None:
        require(0 < self.every_epochs <= 1, "evaluation.every_epochs must lie in (0, 1]")
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
    """How far the sampler is from the softmax, measured at the ends of epochs (see ``runner.diagnosis.divergence``).

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

    ``plugins``: modules or Python files that register what this package lacks (see ``runner.registry``). ``unused``:
    names of the sections that other tasks use and this run's does not, which are no part of what it is.
    """

    dataset: Any
    model: Any
    loss: Any
    optimizer: Any
    sampler: Any
    batch_sampler: Any
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
    unused: frozenset[str] = frozenset()
    results_dir: str = "results"
    force: bool = False
    checkpoint_every_seconds: float = 60.0
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
        require(self.checkpoint_every_seconds > 0, "checkpoint_every_seconds must be above 0")
        require(bool(self.results_dir), "results_dir must not be empty")
        self.sampler.check_loss(self.loss)
        require(
            self.diagnostics.every_epochs is None or not self.sampler.is_the_batch,
            f"diagnostics.every_epochs: with sampler={self.sampler.name} the batch is the draw, so that over one probe "
            "there is nothing to average; measure another sampler",
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain nested dict, as written to the run folder's config.yaml.

        What changes nothing is left out, so that it does not tell runs apart: ``diagnostics`` where there are none,
        ``output`` where logits are h . w + b, ``training`` where no part of it is asked for, ``plugins`` where there
        are none, ``batch_sampler`` where every example comes once an epoch, ``sampler.stored_logits`` where none are;
        and so are sections of other tasks, such as ``windows`` where nothing is text.
        """
        out = dataclasses.asdict(self)
        out["plugins"] = list(self.plugins)
        if not self.plugins:
            del out["plugins"]
        if self.diagnostics.every_epochs is None:
            del out["diagnostics"]
        if self.output == OutputConfig():
            del out["output"]
        del out["unused"]
        for section in self.unused:
            del out[section]
        if self.training == TrainingConfig():
            del out["training"]
        if out["batch_sampler"] == EVERY_EXAMPLE_ONCE:
            del out["batch_sampler"]
        if out["sampler"].get("stored_logits") == "none":
            del out["sampler"]["stored_logits"]
        return out

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

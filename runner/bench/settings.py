"""Say what each kind of measurement can be told: typed settings, of a command line or of a file of conf/table/bench.

This module imports nothing heavy, as the command line lists the settings.
"""

import typing
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from runner.bench.methods import (
    ALL_METHODS,
    DEFAULT_LANGUAGE_METHODS,
    DEFAULT_METHODS,
    DEFAULT_SAMPLERS,
    GPU_METHODS,
    LANGUAGE_METHODS,
    METHODS,
    SAMPLERS,
)
from runner.bench.scale_model import METHODS as SPLIT_METHODS
from runner.errors import ConfigError, require
from runner.options.conversion import convert, did_you_mean
from runner.options.fields import Options, option, options_of

NUM_IMAGES = 1797  # scikit-learn's digits


@dataclass(frozen=True, kw_only=True)
class Settings(Options):
    """The base of all kinds.

    ``module``: the one of this package that measures. ``size_key``: the setting of which every value is measured for
    itself, and ``least``: the least of its values. ``names``: those that a setting may have.
    """

    module: ClassVar[str]
    size_key: ClassVar[str]
    least: ClassVar[int] = 16
    names: ClassVar[Mapping[str, Collection[str]]] = {}

    threads: int = option(0, "0: all cores of this process", low=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(bool(self.sizes), f"{self.size_key}: give at least one")
        lowest = min((size for size in self.sizes if isinstance(size, int)), default=self.least)
        require(lowest >= self.least, f"{self.size_key} must be at least {self.least}, got {lowest}")
        for key, known in self.names.items():
            given = getattr(self, key)
            for name in given if isinstance(given, tuple) else (given,):
                require(name in known, f"{key}: unknown '{name}'{did_you_mean(name, known)}")

    @property
    def sizes(self) -> Sequence[Any]:
        """What is measured one after the other."""
        found = getattr(self, self.size_key)
        return found if isinstance(found, tuple) else (found,)


@dataclass(frozen=True, kw_only=True)
class Timed(Settings):
    """Of kinds that repeat what they time."""

    repetitions: int = option(5, "of which medians, lowest and highest are shown", low=1)


@dataclass(frozen=True, kw_only=True)
class OfMethods(Timed):
    """Of kinds whose methods are composed as those of a run."""

    overrides: tuple[str, ...] = option((), "settings of the runner for every method; sampler.K=4 alone is one too")


@dataclass(frozen=True, kw_only=True)
class OfClasses(OfMethods):
    """Of kinds that are measured at numbers of classes."""

    size_key = "classes"

    classes: tuple[int, ...] = option((670_091,), "numbers of classes")


@dataclass(frozen=True, kw_only=True)
class OfSteps(OfClasses):
    """Of kinds that time training steps of the output layer."""

    batch: int = option(1024, "rows of a batch", low=1)
    steps: int = option(20, "steps in a repetition; methods that read every class take a tenth as many", low=1)
    schedule_steps: int = option(
        1000, "training steps over which refreshes are counted and spread evenly over their rows", low=1
    )


@dataclass(frozen=True, kw_only=True)
class OutputLayer(OfSteps):
    """The training step of every method, side by side."""

    module = "output_layer"
    names: ClassVar = {"methods": (*ALL_METHODS, *GPU_METHODS), "label_frequency": ("zipf", "uniform")}

    methods: tuple[str, ...] = option(
        DEFAULT_METHODS, f"some of {', '.join(ALL_METHODS)}; on a GPU also {', '.join(GPU_METHODS)}"
    )
    label_frequency: str = option("zipf", "zipf: the class of rank r has 1 / r of the targets; uniform: all as many")


@dataclass(frozen=True, kw_only=True)
class Rows(OfSteps):
    """One method under every row policy of the optimizer."""

    module = "rows"
    names: ClassVar = {"method": METHODS}

    method: str = option("lsh_embedding", f"one of {', '.join(METHODS)}")


@dataclass(frozen=True, kw_only=True)
class Refresh(OfClasses):
    """Rebuilding hash tables."""

    module = "refresh"


@dataclass(frozen=True, kw_only=True)
class Sampling(OfClasses):
    """How long each sampler takes to draw; with three numbers of classes, or methods by codewords, also a figure."""

    module = "sampling"
    names: ClassVar = {"methods": SAMPLERS}

    batch: int = option(256, "rows of a batch", low=1)
    draws: int = option(100, "draws per row", low=1)
    dim: int = option(64, "size of a class vector", low=1)
    methods: tuple[str, ...] = option(DEFAULT_SAMPLERS, f"some of {', '.join(SAMPLERS)}")
    published: bool = option(False, "put the numbers of RF-softmax Table 2 beside")


@dataclass(frozen=True, kw_only=True)
class LanguageStep(OfMethods):
    """Whole training steps of a language model."""

    module = "language_step"
    names: ClassVar = {"methods": LANGUAGE_METHODS}
    size_key = "texts"

    texts: tuple[int | str, ...] = option(
        ("ptb",), "names of prepared texts, or numbers of classes whose tokens follow Zipf's law"
    )
    methods: tuple[str, ...] = option(DEFAULT_LANGUAGE_METHODS, f"some of {', '.join(LANGUAGE_METHODS)}")
    preset: str = option("midx_lm_full", "of the model and its training")
    draws: int | None = option(20, "draws per token", low=1, null="no method asks")
    steps: int = option(20, "most steps in a repetition", low=1)
    schedule_steps: int = option(1000, "training steps in which refreshes are counted where intervals grow", low=1)
    published: bool = option(False, "put the numbers of LSH Softmax Table 2 beside")


@dataclass(frozen=True, kw_only=True)
class Kernels(Settings):
    """RF-softmax Table 1: errors of approximations of the softmax's kernel, no times."""

    module = "kernel_error"
    size_key = "images"
    least = 2
    names: ClassVar = {"data": ("digits", "usps")}

    images: int = option(NUM_IMAGES, "number of digits", high=NUM_IMAGES)
    data: str = option("digits", "digits: scikit-learn's; usps: the paper's, once their card is prepared")
    draws: int = option(5, "draws of the features; one has no deviation", low=2)


@dataclass(frozen=True, kw_only=True)
class ExampleSteps(Timed):
    """Steps of linear regression by sampler of examples."""

    module = "example_steps"
    size_key = "examples"

    examples: tuple[int, ...] = option((100_000, 1_000_000, 10_000_000), "numbers of training examples")
    batches: tuple[int, ...] = option((1, 32), "sizes of batches")

    def __post_init__(self) -> None:
        super().__post_init__()
        require(min(self.batches, default=0) >= 1, f"batches must be at least 1, got {list(self.batches)}")


@dataclass(frozen=True, kw_only=True)
class ReadLog(Settings):
    """Preparing a log of events, and the memory that it takes."""

    module = "read_log"
    size_key = "events"
    least = 100

    threads: int = option(1, "the preparation has one", low=1, high=1)
    events: tuple[int, ...] = option((100_000, 1_000_000, 10_000_000), "numbers of events")


@dataclass(frozen=True, kw_only=True)
class Ranks(Settings):
    """Steps of split runs on this machine, a thread a rank, beside one process with as many threads."""

    module = "ranks"
    size_key = "methods"
    names: ClassVar = {"methods": SPLIT_METHODS}

    threads: int = option(1, "of each rank", low=1, high=1)
    methods: tuple[str, ...] = option(SPLIT_METHODS, f"some of {', '.join(SPLIT_METHODS)}")
    ranks: tuple[int, ...] = option((2,), "numbers of ranks, beside one")
    full_classes: int = option(100_000, "classes a rank of full softmax", low=16)
    uniform_classes: int = option(500_000, "classes a rank of log_uniform", low=16)
    lsh_classes: int = option(300_000, "classes a rank of lsh_embedding_shared", low=16)
    batch: int = option(1024, "rows of a batch", low=16)
    dim: int = option(128, "size of a class vector", low=1)
    tries: int = option(
        2, "runs, of which the one that others disturbed least counts, if others disturb the first", low=1
    )
    steps: int = option(60, "steps of a run, of which a third is not timed; full softmax takes a tenth", low=3)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(min(self.ranks, default=0) >= 2, f"ranks must be at least 2, got {list(self.ranks)}")


@dataclass(frozen=True, kw_only=True)
class Scale(Settings):
    """Steps of split runs as a model predicts them from the report of kind ranks, and a figure."""

    module = "scale"
    size_key = "classes"

    classes: tuple[int, ...] = option((100_000_000, 1_000_000_000), "numbers of classes")
    ranks: tuple[int, ...] = option((1, 8, 64, 512), "numbers of ranks")
    batch: int = option(1024, "rows of a batch: in all, and a rank", low=16)
    dim: int = option(128, "size of a class vector", low=1)
    speed: float = option(1.0, "how many times as fast as the measured machine a rank computes", above=0)
    latency_us: float = option(20.0, "microseconds of a message between two ranks", low=0)
    encoder: int = option(
        10_000_000, "parameters of the encoder whose gradients are summed where a batch is divided", low=0
    )
    measured: str = option("results/bench/ranks.json", "the report whose rates are taken")


KINDS: Mapping[str, type[Settings]] = {
    "output_layer": OutputLayer,
    "rows": Rows,
    "refresh": Refresh,
    "sampling": Sampling,
    "kernels": Kernels,
    "example_steps": ExampleSteps,
    "read_log": ReadLog,
    "language_step": LanguageStep,
    "ranks": Ranks,
    "scale": Scale,
}


def settings_of(kind: str, words: Sequence[str]) -> Settings:
    """Return the settings of words KEY=VALUE, whose values are as Hydra reads them; commas separate several.

    A key with a dot is a setting of the runner. Raises ConfigError (one line) for a mistake.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    cls: type = KINDS[kind]
    hints = typing.get_type_hints(cls)
    values: dict[str, Any] = {}
    more: list[str] = []
    for word in words:
        key, equals, text = word.partition("=")
        require(bool(equals), f"{word}: give KEY=VALUE with a setting{did_you_mean(word, options_of(cls))}")
        if "." in key:
            more.append(word)
            continue
        try:
            read = OverridesParser.create().parse_override(word)
            if read.is_sweep_override():  # several values
                read = OverridesParser.create().parse_override(f"{key}=[{text}]")
            value: Any = read.value()
        except HydraException:
            raise ConfigError(f"{word}: the value cannot be read") from None
        several = typing.get_origin(hints.get(key)) is tuple
        values[key] = [value] if several and not isinstance(value, list) else value
    if more:
        values["overrides"] = [*values.get("overrides", []), *more]
    made: Settings = convert(cls, values, "")
    return made


def about(kind: str) -> str:
    """Return what ``--help`` says of a kind: what it measures, and its settings with their defaults."""
    cls: type = KINDS[kind]
    default = {key: getattr(cls, key) for key in options_of(cls)}
    shown = {key: ",".join(map(str, value)) if isinstance(value, tuple) else value for key, value in default.items()}
    lines = [f"{kind}: {(cls.__doc__ or '').strip()}"]
    for key, facts in options_of(cls).items():
        usual = f" (default: {shown[key]})" if len(str(shown[key])) in range(1, 40) else ""
        lines.append(f"  {key}: {facts.text}{usual}")
    return "\n".join(lines)

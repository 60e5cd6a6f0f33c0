"""Compare the memory that a run needs with what there is, before any of it is taken.

Legend: N classes, D hidden size, F features, B rows of a batch (of a text, its tokens), M candidates.
"""

from dataclasses import dataclass
from typing import Any

from runner.errors import require
from runner.machine.group import Place
from runner.machine.memory import available_bytes, gpu_bytes
from runner.optimizers import AdaGradConfig, AdamConfig, OptimizerConfig
from runner.options.settings import CPU, RunConfig


def check_memory(config: RunConfig, data: Any) -> None:
    """Raise ConfigError, with the numbers, if the run on this data set needs more memory than is free."""
    needs = needed_bytes(config, Sizes.of(config, data))
    where, free = ("memory", available_bytes()) if config.hardware.name == CPU else ("the GPU's memory", gpu_bytes())
    needed = sum(needs.values())
    if needed > free:
        largest = max(needs, key=needs.__getitem__)
        require(
            False,
            f"this run needs at least {_size(needed)} of {where}, but {_size(free)} are free: {largest} alone take"
            f" {_size(needs[largest])}; choose a smaller size, or free memory",
        )


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Hold the sizes of a data set that decide a run's memory.

    ``features``: of sparse rows, else 0. ``rows``: tokens of a text, users of a log, else rows; only to train on.
    """

    classes: int
    features: int
    rows: int

    @classmethod
    def of(cls, config: RunConfig, data: Any) -> "Sizes":
        """Return the sizes of an opened data set."""
        if config.model.reads == "text":
            rows = len(data.train_T)
        elif config.model.reads == "sequences":
            rows = data.num_users
        else:
            rows = getattr(getattr(data, "train", None), "num_rows", config.batch_size)
        return cls(classes=getattr(data, "num_classes", 0), features=getattr(data, "num_features", 0), rows=int(rows))


def needed_bytes(config: RunConfig, sizes: Sizes) -> dict[str, int]:
    """Return a lower bound of the memory that the large parts of a run take, by what they are.

    Weights and their moments are counted, and the candidates of a step.
    """
    if config.sampler is None:  # no classes: what there is, is as large as the data
        return {}
    model, classes = config.model, sizes.classes
    place = Place.of_environment()
    sharing = (
        place.here if config.hardware.name == CPU else 1
    )  # ranks that share this memory: each has a GPU of its own
    held = min(classes, sharing * -(-classes // place.size))
    numbers = 3 if isinstance(config.optimizer, AdamConfig) else 2 if isinstance(config.optimizer, AdaGradConfig) else 1
    row = _row_bytes(config.optimizer, model.dim)
    needs = {
        f"the vectors of {classes:,} classes (model size {model.dim}, {row / model.dim:.3g} bytes a weight)":
            held * (row + 16),
    }  # fmt: skip
    if model.reads == "rows":
        needs[f"the input rows of {sizes.features:,} features (model size {model.dim})"] = sizes.features * (row + 4)
    elif model.reads in ("text", "sequences") and not model.tied:
        width = getattr(model, "embedding", 0)
        row = _row_bytes(config.optimizer, width)
        needs[f"the input rows of {classes:,} classes (model.embedding={width})"] = classes * (row + 4)
    layers = getattr(model, "layers", 0)  # each has at least three square matrices
    needs[f"the layers of model={model.name} (model size {model.dim})"] = 3 * layers * model.dim**2 * 4 * numbers
    if config.evaluation.seconds_factor is not None and config.optimizer.rows == "catch_up":
        rows = classes + (sizes.features if model.reads == "rows" else 0)
        needs["the copies of rows that lag (evaluation.seconds_factor)"] = rows * model.dim * 4
    needs.update(_candidates(config, sizes))
    return needs


def _row_bytes(optimizer: OptimizerConfig, columns: int) -> int:
    """Return what a row of so many weights takes with its moments."""
    if isinstance(optimizer, AdamConfig):
        return 4 * columns + optimizer.moment_bytes(columns)
    return 4 * columns * (2 if isinstance(optimizer, AdaGradConfig) else 1)


def _candidates(config: RunConfig, sizes: Sizes) -> dict[str, int]:
    """Return what the candidates of a step take: an id, and for each row that has it a logit and a count.

    On a device, candidates of each row have places for the gradients of their vectors, too.
    """
    sampler, rows = config.sampler, _rows_of_a_step(config, sizes)
    drawn = getattr(sampler, "num_samples", None) or 0
    if getattr(sampler, "shared", False):
        scored = min(drawn, sizes.classes) if getattr(sampler, "unique", False) else drawn
        size = 4 * drawn + 4 * rows * scored
    else:
        size = 8 * rows * drawn
    tail = getattr(sampler, "num_tail", None) or 0
    places = 0
    if config.hardware.engine == "torch" and not getattr(sampler, "shared", False):
        places = min(rows * drawn, sizes.classes + 1)  # distinct or not: no size depends on what is drawn
    return {
        f"the candidates of a step (sampler.num_samples={drawn} for {rows:,} rows)": size,
        f"the gradients of the candidates of a step (sampler.num_samples={drawn} for {rows:,} rows)":
            places * config.model.dim * 4,
        f"the candidates of the tail (sampler.num_tail={tail})": 4 * tail,
    }  # fmt: skip


def _rows_of_a_step(config: RunConfig, sizes: Sizes) -> int:
    """Return the rows of a step; a row of a log may have many events, or one."""
    length = config.windows.length if config.model.reads == "text" else 1
    return min(config.batch_size * length, sizes.rows)


def _size(count: float) -> str:
    return f"{count / 2**30:,.1f} GiB"

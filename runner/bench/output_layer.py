"""Time every method's step, side by side on one class matrix, at one or several numbers of classes."""

import gc
import os
from collections.abc import Callable
from typing import Any

from runner.bench.contenders import Contender, RunnerMethod, configuration, out_of_reach, sampler_bytes
from runner.bench.machine import Limits, shortage
from runner.bench.measure import Entrant, measure, say
from runner.bench.methods import FULL_METHODS, METHODS
from runner.bench.settings import OutputLayer
from runner.bench.tensorflow_baseline import TENSORFLOW, is_installed
from runner.bench.torch_baselines import ON_GPU, TORCH, bytes_needed
from runner.bench.workload import Workload, matrix_bytes
from runner.machine.company import Company
from runner.options.settings import HardwareConfig

NOTES = (
    "Seconds are per 1,000 training rows and cover the output layer's step (sample, score, loss, update): the encoder "
    "is left out. Medians of the repetitions, lowest and highest beside them.",
    "All methods of one number of classes train the same class matrix under one step counter (PyTorch's have their "
    "own), take the same batches, and are interleaved repetition by repetition. Targets follow Zipf's law, or are as "
    "frequent as each other (label_frequency); hidden states lie near their class's vector. The learning rate is 1e-6, "
    "so that the matrix stays as drawn. Compilation and first touches of memory are excluded.",
    "Refresh: seconds of one refresh after as many steps as the schedule's first interval has (the repetition's, and "
    "draws without training for the rest), times the refreshes that the method's schedule has in the schedule's "
    "steps, spread over their rows. A refresh hashes the classes that moved, or all of them when that is cheaper; "
    "later intervals of a schedule are longer, so that more refreshes of a training hash all.",
    "Times full: against the fastest full softmax of the same run.",
    "Memory % and products %: what the least traffic to and from memory (at the bandwidth of a stream triad) and the "
    "least products (at the rate of torch's square float32 product, which our tiles and bf16 can exceed), each "
    "measured in the same run, would take of the stage's time. Under catch_up the score reads both moments too. "
    "Scattered rows: the bandwidth at which a random half of the rows of three matrices is read and written, which no "
    "update of scattered rows can exceed by much.",
    "Peak: growth of resident memory during one step off the clock, beside buffers that earlier steps left for it.",
    "PyTorch's and TensorFlow's baselines are float32. PyTorch's full softmax takes the block size that was fastest at "
    "20,000 classes; TensorFlow's (`pip install tensorflow-cpu`, optional) is one graph with all logits in memory and "
    "its fused Adam. Its sampled softmax has an Adam that touches the drawn rows alone, as Keras' touches all.",
    "full_stored and full_bf16_stored keep the batch's logits as bf16, rows x classes x 2 bytes, in a buffer that is "
    "among those that earlier steps left.",
)


def limits_before_and_after(
    work: Callable[[], Any], hardware: HardwareConfig | None = None
) -> tuple[Any, Limits, dict[str, Any]]:
    """Run ``work`` between two measurements of the machine.

    Returns the result of ``work``, the better of the two as limits, and a record of both for the report.
    """
    load, company = os.getloadavg()[0], Company()
    first = Limits.measure(hardware or HardwareConfig())
    result = work()
    gc.collect()
    second = Limits.measure(hardware or HardwareConfig())
    best = Limits(
        bytes_per_second=max(first.bytes_per_second, second.bytes_per_second),
        row_bytes_per_second=max(first.row_bytes_per_second, second.row_bytes_per_second),
        flops_per_second=max(first.flops_per_second, second.flops_per_second),
    )
    return (
        result,
        best,
        {
            "load_average": [load, os.getloadavg()[0]],
            "cores_busy_with_others": company.cores(),
            "bandwidth_gb_s": [limits.bytes_per_second / 1e9 for limits in (first, second)],
            "row_bandwidth_gb_s": [limits.row_bytes_per_second / 1e9 for limits in (first, second)],
            "products_gflop_s": [limits.flops_per_second / 1e9 for limits in (first, second)],
        },
    )


def one_size(num_classes: int, plan: OutputLayer) -> dict[str, Any]:
    """Measure all methods at one number of classes and return its part of the report."""
    methods = plan.methods
    configs = {name: configuration(name, plan.overrides) for name in methods if name in METHODS}
    any_config = next(iter(configs.values())) if configs else configuration("full", plan.overrides)
    dim = any_config.model.hidden
    part: dict[str, Any] = {"classes": num_classes, "dim": dim, "matrix_mb": matrix_bytes(num_classes, dim) / 2**20}
    hardware = any_config.hardware
    if status := shortage(matrix_bytes(num_classes, dim), hardware=hardware):
        return {**part, "results": [{"method": name, "status": status} for name in methods]}

    def run() -> tuple[list[Entrant], dict[str, str]]:
        say(f"{num_classes:,} classes: building")
        workload = Workload(
            any_config.optimizer, num_classes=num_classes, dim=dim, hardware=hardware,
            uniform_labels=plan.label_frequency == "uniform",
        )  # fmt: skip
        entrants, skipped = [], {}
        promised = 0.0  # bytes to come: libraries allocate moments and gradients only in the first step
        for name in methods:
            if name in LIBRARIES:
                needed = bytes_needed(name, num_classes, dim, plan.batch)
                unable = _unable(name, hardware)
            else:
                needed = sampler_bytes(configs[name].sampler, num_classes, plan.batch)
                unable = out_of_reach(configs[name])
            if status := unable or shortage(needed, promised, hardware):
                skipped[name] = status
                continue
            contender: Contender
            if name in LIBRARIES:
                promised += needed
                contender = LIBRARIES[name](workload)
            else:
                contender = RunnerMethod(name, configs[name], workload.table, workload.label_counts_N)
            entrants.append(Entrant(contender, workload))
        measure(entrants, plan, f"{num_classes:,} classes")
        return entrants, skipped

    (entrants, skipped), limits, machine = limits_before_and_after(run, hardware)
    measured = {entrant.contender.name: entrant.summary(plan, limits) for entrant in entrants}
    results = [measured.get(name, {"method": name, "status": skipped.get(name, "")}) for name in methods]
    add_times_full(results)
    return {**part, **machine, "results": results}


LIBRARIES: dict[str, Callable[[Workload], Contender]] = {**TORCH, **ON_GPU, **TENSORFLOW}


def _unable(name: str, hardware: HardwareConfig) -> str | None:
    """Return a status if a library's method cannot run here, else None."""
    if name in ON_GPU:
        return ON_GPU[name].unable(hardware)
    return None if name in TORCH or is_installed() else "skipped: not installed"


def add_times_full(
    results: list[dict[str, Any]],
    name: str = "times_full",
    time_of: Callable[[dict[str, Any]], float] = lambda row: row["s_per_1k_rows"],
) -> None:
    """Set each measured row's ``name`` to its speed relative to the fastest full softmax; None if none was measured."""
    measured = [row for row in results if row["status"] == "measured"]
    full = [time_of(row) for row in measured if row["method"] in FULL_METHODS]
    for row in measured:
        row[name] = min(full) / time_of(row) if full else None

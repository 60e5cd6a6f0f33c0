"""Predict steps of split runs on many machines by ``scale_model``, from what kind ``ranks`` measured on this one."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from runner.bench.methods import METHODS, NUM_SAMPLES
from runner.bench.scale_model import (
    FULL,
    LOG_UNIFORM,
    LSH,
    Network,
    Rates,
    Split,
    full_is_as_fast_from,
    on,
    talks_half_from,
)
from runner.bench.scale_model import METHODS as SPLIT_METHODS
from runner.bench.settings import Scale
from runner.config import compose
from runner.errors import ConfigError, DataError
from runner.options.conversion import convert
from runner.options.fields import options_of
from runner.report.pages.bench_tables import GIGABITS
from runner.structures.refresh_schedule import RefreshSchedule

SAME, DIVIDED = "same", "divided"  # the batch: all rows on every rank, or a part on each
_BATCHES = (SAME, DIVIDED)
_SCHEDULE = 1000  # steps whose refreshes are counted
_GIB = 2**30


def notes(asked: Scale) -> tuple[str, ...]:
    """Return what is assumed."""
    return (
        "Nothing here is measured but the rates, which are those of the report named under `measured`: seconds of the "
        f"output layer on all cores of that machine, times `speed` ({asked.speed:g}), and the seconds of a collective "
        "without those of its bytes. The formulas are runner/bench/scale_model.py.",
        f"The batch: the same {asked.batch:,} rows on every rank (same), or {asked.batch:,} rows on each that only it "
        f"encodes (divided). In the second, gradients of an encoder of {asked.encoder:,} parameters are summed. The "
        "time of encoders is left out.",
        f"Networks: what a rank sends in a second, and {asked.latency_us:g} µs for each message. An all_reduce has "
        "2 (R - 1) messages one after the other, as gloo's ring; by a tree it would have 2 log2 R. Nothing overlaps.",
        "Candidates and targets are shared out evenly, as when ids have nothing to do with frequencies.",
        "Memory is the peak: vectors, moments and biases of a rank's classes (rows), what it keeps of all classes, and "
        "the larger of the copies of all codes from which hash tables are built and of two copies of its rows while "
        "it writes a checkpoint. Data, batches and the program are left out.",
    )


@dataclass(frozen=True)
class Measured:
    """Hold the rates of each method, its candidates a batch, and the seconds of a collective, from a report."""

    rates: Mapping[str, Rates]
    candidates: Mapping[str, float]
    overhead: float

    @classmethod
    def of(cls, path: Path, speed: float) -> "Measured":
        """Read a report of kind ``ranks``. Raises ConfigError if a method is missing, DataError if damaged."""
        if not path.is_file():
            raise ConfigError(f"measured: {path} is missing; scripts/bench.py ranks writes it")
        try:
            sizes = {size["method"]: size for size in json.loads(path.read_text())["sizes"]}
            rates = {
                method: Rates(
                    **{name: value * speed if name == "flops" else value / speed for name, value in found.items()}
                )
                for method, size in sizes.items()
                for found in [size["machine_rates"]]
            }
            small = [found["small_us"] for size in sizes.values() for found in list(size["collectives"].values())[:1]]
            candidates = {method: size["candidates"] for method, size in sizes.items()}
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"{path} is no report of kind ranks ({type(error).__name__}: {error})") from None
        if missing := [method for method in SPLIT_METHODS if method not in rates]:
            raise ConfigError(f"measured: {path} has no {missing[0]}; scripts/bench.py ranks measures all methods")
        return cls(rates, candidates, min(small) / 1e6)


def distinct_draws(classes: int, draws: int) -> float:
    """Return how many distinct classes so many log-uniform draws have on average."""
    edges = np.unique(np.round(np.geomspace(1, classes + 1, 20_000)))  # ranks + 1, each alone at the beginning
    width, middle = np.diff(edges), np.sqrt(edges[1:] * edges[:-1])
    chance = np.log1p(1 / middle) / math.log(classes + 1)
    return float((width * -np.expm1(draws * np.log1p(-chance))).sum())


def split_of(method: str, classes: int, batch: str, measured: Measured, asked: Scale) -> Split:
    """Return a method's step on one rank; ``scale_model.on`` puts it on more."""
    split = Split(
        method=method, classes=classes, ranks=1, rows=asked.batch, dim=asked.dim, parallel=batch == DIVIDED,
        encoder=asked.encoder,
    )  # fmt: skip
    if method == LOG_UNIFORM:
        return replace(split, candidates=distinct_draws(classes, NUM_SAMPLES))
    if method == LSH:
        config: Any = compose(METHODS[method]).sampler
        times = RefreshSchedule(config.refresh_every_steps, config.refresh_growth).times_within(_SCHEDULE)
        hashes = config.hashes_of(classes)
        split = replace(split, candidates=measured.candidates[method], tables=config.L, hashes=hashes)
        return split.refreshed(_SCHEDULE / times)
    return split


def network_of(gigabits: str, measured: Measured, asked: Scale) -> Network:
    """Return a network of so many gigabits a second."""
    return Network(bytes_per_second=float(gigabits) / 8e-9, latency=asked.latency_us / 1e6, overhead=measured.overhead)


def one_size(classes: int, asked: Scale) -> dict[str, Any]:
    """Predict all methods at one number of classes; return the report's part."""
    measured = Measured.of(Path(asked.measured), asked.speed)
    networks = {gigabits: network_of(gigabits, measured, asked) for gigabits in GIGABITS}
    trees = {gigabits: replace(network, tree=True) for gigabits, network in networks.items()}
    rows = []
    for batch in _BATCHES:
        full = split_of(FULL, classes, batch, measured, asked)
        for method in SPLIT_METHODS:
            split = split_of(method, classes, batch, measured, asked)
            rates = measured.rates[method]
            half = {name: talks_half_from(split, rates, network) for name, network in networks.items()}
            as_fast = {
                name: None if method == FULL else full_is_as_fast_from(full, split, measured.rates, network)
                for name, network in networks.items()
            }
            for ranks in asked.ranks:
                there = on(split, ranks)
                memory = there.memory()
                rows.append({
                    "method": method, "batch": batch, "ranks": ranks, "status": "predicted",
                    "candidates": there.candidates, "rows": there.rows,
                    "memory_gib": there.peak() / _GIB, "rows_gib": memory["rows"] / _GIB,
                    "compute_seconds": there.computation(rates),
                    "seconds": {name: there.seconds(rates, network) for name, network in networks.items()},
                    "tree_seconds": {name: there.seconds(rates, network) for name, network in trees.items()},
                    "communication_percent": {
                        name: 100 * there.communication(network) / there.seconds(rates, network)
                        for name, network in networks.items()
                    },
                    "half_from": half, "full_as_fast_from": as_fast,
                })  # fmt: skip
    return {"classes": classes, "dim": asked.dim, "results": rows}


def draw(report: Mapping[str, Any], stem: Path) -> Path | None:
    """Draw what a rank computes in a step and what its networks take, against the ranks, as STEM.png and STEM.svg.

    Where two lines cross, half of the step is communication.
    """
    from runner.methods.catalogue import label_of
    from runner.report.figures.panels import Line, Panel, figure_of
    from runner.report.figures.panels import Scale as Axis
    from runner.report.figures.style import look_of_value, looks_of, save, styled

    asked: Scale = convert(Scale, {key: report[key] for key in options_of(Scale)}, "")
    measured = Measured.of(Path(asked.measured), asked.speed)
    rank_P = np.array([2**k for k in range(1, 15)])
    grid = []
    for batch, said in ((SAME, f"{asked.batch:,} rows in all"), (DIVIDED, f"{asked.batch:,} rows a rank")):
        row = []
        for classes in asked.classes:
            lines = []
            for method, look in looks_of(SPLIT_METHODS).items():
                split = split_of(method, classes, batch, measured, asked)
                y_P = np.array([on(split, int(ranks)).computation(measured.rates[method]) for ranks in rank_P])
                lines.append(Line(label=label_of(method), look=look, x_P=rank_P, y_P=y_P))
            sampled = split_of(LOG_UNIFORM, classes, batch, measured, asked)
            for place, gigabits in enumerate(GIGABITS):
                network = network_of(gigabits, measured, asked)
                y_P = np.array([on(sampled, int(ranks)).communication(network) for ranks in rank_P])
                look = look_of_value(place, len(GIGABITS))._replace(linestyle=":")
                lines.append(Line(label=f"network, {gigabits} Gbit/s", look=look, x_P=rank_P, y_P=y_P))
            x, y = Axis(label="ranks", is_log=True), Axis(label="predicted seconds of a step", is_log=True)
            row.append(Panel(title=f"{classes:,} classes, {said}", lines=tuple(lines), x=x, y=y))
        grid.append(row)
    with styled():
        return save(figure_of(grid), stem)

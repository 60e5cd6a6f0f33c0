"""Time drawing, sampler by sampler: a batch's draws and loss, and building the sampler.

RF-softmax Table 2 (10 rows, 10 draws, the sampled loss of a normalised layer) and the sampling-time figure of the MIDX
paper (256 rows, 100 draws) are the same measurement at those sizes.
"""

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tqdm import tqdm

from runner.bench.arithmetic import Spread
from runner.bench.contenders import sampler_bytes
from runner.bench.machine import shortage
from runner.bench.measure import BAR, say
from runner.bench.methods import BY_CODEWORDS, SAMPLERS
from runner.bench.output_layer import limits_before_and_after
from runner.bench.settings import Sampling
from runner.bench.workload import Workload, matrix_bytes
from runner.config import compose
from runner.contracts import Query, TrainingFacts
from runner.heads.classes import estimate
from runner.machine import memory
from runner.machine.clock import StageClock
from runner.options.settings import RunConfig
from runner.output.engines import layer_of
from runner.report.numbers.cells import published_numbers
from runner.report.spec.tables import Published
from runner.samplers import Sampler

NOTES = (
    "Draws: milliseconds to draw every row's candidates of a batch and state their expected counts. Loss: the same, "
    "their logits and each sampler's customary loss, without its gradient's way back. Medians of the repetitions, "
    "interleaved in an order that rotates, lowest and highest beside them; compilation is excluded.",
    "Build: seconds to make the sampler for a class matrix, once, after one for a small matrix has compiled all of it. "
    "Held: growth of this process's resident memory by it, beside the class matrix.",
    "Every sampler draws with replacement for each row by itself; lsh_topk takes the k nearest and a uniform tail "
    "instead, as many as its column of candidates says. Class vectors are Gaussian, hidden states lie near their "
    "target's vector. sphere and exact score every class.",
)
RF_SOFTMAX_NOTES = (
    "Published: RF-softmax Table 2, on the authors' machine and by their code. Its quadratic kernel draws by a tree, "
    "as quadratic_tree does; sphere draws from the same kernel and scores every class in one dense pass. The ratios "
    "between methods compare, not the milliseconds.",
)
_WARM_UP_CLASSES = 2000

# Methods and their names in RF-softmax Table 2.
_PRINTED = {"exact": "exp", "quadratic_tree": "quadratic"}


def notes(asked: Sampling) -> tuple[str, ...]:
    return NOTES + RF_SOFTMAX_NOTES if asked.published else NOTES


def configuration(method: str, asked: Sampling) -> RunConfig:
    """Return the method's configuration. Raises ConfigError when it does not compose.

    Under optimizer.rows=touched rows never lag, so losses can be computed without updates.
    """
    chosen = [text.format(draws=asked.draws) for text in SAMPLERS[method]]
    sizes = [f"batch_size={asked.batch}", f"model.hidden={asked.dim}"]
    return compose(["optimizer.rows=touched", *sizes, *chosen, *asked.overrides])


class _Entrant:
    """A sampler over the shared class matrix, and its timings."""

    def __init__(self, config: RunConfig, workload: Workload) -> None:
        self.config = config
        self.layer = layer_of(workload.table, config.output.scale)
        self.training = TrainingFacts.one_label_a_row(workload.label_counts_N)
        before, begin = memory.resident_mb(), time.perf_counter()
        self.sampler: Sampler = config.sampler.build(layer=self.layer, training=self.training, seed=0)
        self.build_seconds = time.perf_counter() - begin
        after = memory.resident_mb()
        self.held_mb = None if before is None or after is None else max(0.0, after - before)
        self.candidates = 0.0
        self.draw_ms: list[float] = []
        self.loss_ms: list[float] = []

    def repetition(self, query: Query, step: int, *, record: bool) -> None:
        clock = StageClock()
        made = estimate(self.layer, self.sampler, self.config.loss, query, step, clock)
        self.candidates = made.proposal.candidates_per_row(query.num_rows)
        if record:
            self.draw_ms.append(1000 * clock.seconds["sample"])
            self.loss_ms.append(1000 * sum(clock.seconds.values()))

    def summary(self, name: str) -> dict[str, Any]:
        return {
            "method": name,
            "status": "measured",
            "candidates": self.candidates,
            "settings": asdict(self.config.sampler),
            "loss": self.config.loss.name,
            "draw_ms": asdict(Spread.of(self.draw_ms)),
            "loss_ms": asdict(Spread.of(self.loss_ms)),
            "build_seconds": self.build_seconds,
            "held_mb": self.held_mb,
        }


def one_size(num_classes: int, asked: Sampling) -> dict[str, Any]:
    """Measure all methods at one number of classes and return its part of the report."""
    methods, batch, dim, repetitions = asked.methods, asked.batch, asked.dim, asked.repetitions
    configs = {name: configuration(name, asked) for name in methods}
    optimizer = next(iter(configs.values())).optimizer
    part: dict[str, Any] = {"classes": num_classes, "dim": dim, "matrix_mb": matrix_bytes(num_classes, dim) / 2**20}

    if status := shortage(matrix_bytes(num_classes, dim)):
        return {**part, "results": [{"method": name, "status": status} for name in methods]}

    def run() -> list[dict[str, Any]]:
        small = Workload(optimizer, num_classes=min(num_classes, _WARM_UP_CLASSES), dim=dim)
        (query,) = small.queries(1, batch, seed=0)
        for name, config in configs.items():
            say(f"{num_classes:,} classes: warming up {name}")
            _Entrant(config, small).repetition(query, 1, record=False)
        workload = Workload(optimizer, num_classes=num_classes, dim=dim)
        entrants: dict[str, _Entrant] = {}
        skipped: dict[str, str] = {}
        for name, config in configs.items():
            if status := shortage(sampler_bytes(config.sampler, num_classes, batch)):
                skipped[name] = status
                continue
            say(f"{num_classes:,} classes: building {name}")
            entrants[name] = _Entrant(config, workload)
        with tqdm(total=(repetitions + 1) * len(entrants), unit="batch", **BAR) as bar:
            for repetition in range(repetitions + 1):
                (query,) = workload.queries(1, batch, seed=repetition)
                workload.step += 1
                turn = repetition % max(1, len(entrants))
                order = [*entrants.items()]
                for name, entrant in order[turn:] + order[:turn]:
                    bar.set_description(f"{num_classes:,} classes {name}")
                    entrant.repetition(query, workload.step, record=repetition > 0)
                    bar.update()
        return [
            entrants[name].summary(name) if name in entrants else {"method": name, "status": skipped[name]}
            for name in methods
        ]

    results, _, machine = limits_before_and_after(run)
    if asked.published:
        printed = _published_ms(num_classes)
        for row in results:
            row["published_ms"] = printed.get(_PRINTED.get(row["method"], row["method"]))
    return {**part, **machine, "results": results}


def _published_ms(num_classes: int) -> dict[str, float]:
    """Return each method's printed milliseconds, from RF-softmax Table 2."""
    frame = published_numbers(Published(csv="rf_softmax.csv", table="table2"))
    here = frame[frame["dataset"] == f"n={num_classes}"]
    return {str(method): float(value) for method, value in zip(here["method"], here["value"], strict=True)}


def _draws_as_many(row: dict[str, Any], report: dict[str, Any]) -> bool:
    """Return True if the method drew as many candidates as the axis of the figure says."""
    return bool(row["candidates"] == report["draws"])


def draw(report: dict[str, Any], stem: Path) -> Path | None:
    """Draw the milliseconds of a batch's draws as STEM.png and STEM.svg, against the number of classes or of codewords.

    Codewords are the axis if methods by their codewords were measured at one number of classes. Otherwise fewer than
    three numbers of classes are no figure, and the answer is None. Samplers whose number of candidates differs from
    the number asked for are in the table only.
    """
    import numpy as np

    from runner.methods.catalogue import label_of
    from runner.report.figures.panels import Line, Panel, Scale, figure_of
    from runner.report.figures.style import looks_of, save, styled

    by_codewords = len(report["sizes"]) == 1 and set(report["methods"]) <= set(BY_CODEWORDS)
    if not by_codewords and len(report["sizes"]) < 3:
        return None
    points: dict[str, list[tuple[int, float]]] = {}
    for size in report["sizes"]:
        for row in size["results"]:
            name, codewords = BY_CODEWORDS.get(row["method"], (row["method"], 0))
            at = points.setdefault(name, [])
            if row["status"] == "measured" and _draws_as_many(row, report):
                at.append((codewords if by_codewords else size["classes"], row["draw_ms"]["median"]))
    lines = []
    for name, look in looks_of(points).items():
        if points[name]:
            x_P, median_P = np.array(points[name], dtype=float).T
            lines.append(Line(label=label_of(name), look=look, x_P=x_P, y_P=median_P))
    what = f"ms to draw {report['draws']} classes\nfor each of {report['batch']} rows"
    x, y = (
        Scale(label="codewords of a codebook" if by_codewords else "classes", is_log=True),
        Scale(label=what, is_log=True),
    )
    with styled():
        figure = figure_of([[Panel(title="time of drawing", lines=tuple(lines), x=x, y=y)]])
        return save(figure, stem)

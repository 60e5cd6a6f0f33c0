"""Time whole training steps of a language model, sampler by sampler, to see what drawing costs in a real step.

Each method trains a network of its own (``runner.network.Network``) from the same weights on the same batches. The
default is the MIDX paper's language model and samplers at 20 draws a token. LSH Softmax Table 2 (speed-up of the
softmax layer, CPU, batch 1) is the same measurement at that paper's sizes.

A text is either the name of a prepared text data set or a number of classes. Tokens of the latter follow Zipf's law and
need no data.

Legend: N classes (n in formulas), T tokens of a text.
"""

import functools
import gc
import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from runner.bench.arithmetic import Spread
from runner.bench.contenders import out_of_reach, sampler_bytes
from runner.bench.machine import shortage
from runner.bench.measure import BAR, say
from runner.bench.methods import LABELS, LANGUAGE_METHODS
from runner.bench.output_layer import add_times_full, limits_before_and_after
from runner.bench.settings import LanguageStep
from runner.bench.torch_head import torch_full_head
from runner.config import check_model_reads_dataset, compose
from runner.contracts import TrainingFacts
from runner.data.shared.cards import dataset_title
from runner.data.text.batches import TextBatch
from runner.data.text.dataset import TextDataset
from runner.errors import Diverged, require
from runner.heads.classes import ClassesHead
from runner.machine.clock import STAGES, StageClock
from runner.machine.memory import available_bytes
from runner.network import Network
from runner.optimizers import AdamConfig
from runner.options.settings import RunConfig
from runner.report.numbers.cells import published_numbers
from runner.report.pages.bench_tables import title_of
from runner.report.spec.tables import Published
from runner.samplers.lsh_topk import usual_sizes
from runner.structures.refresh_schedule import RefreshSchedule
from runner.tasks import LanguageModelling

NOTES = (
    "Milliseconds of whole training steps as `python -m runner` takes them, batch assembly and evaluation left out. "
    "Medians of the repetitions, lowest and highest beside them. Every method has a network of its own, from the same "
    "weights, and takes the same batches; repetitions are interleaved in an order that rotates. Steps in which memory "
    "is first touched and code compiled are not timed. Where a repetition would be longer than {longest:.0f} s it has "
    "fewer steps.",
    "Softmax layer: the step without encode, which is the encoder's way there and back. Sample holds the expected "
    "counts of targets where the loss corrects them. Times full: against the fastest full softmax of the same run.",
    "Refresh: one refresh as often as the method's schedule has it, and the notes that steps without one take. Tables "
    "whose first interval is longer than a repetition are refreshed once in each here; steps a refresh are those of "
    "the schedule: its period, an epoch where that is the period, or the mean of the first {schedule_steps:,} steps "
    "where intervals grow. Over so few steps class vectors move less than between real refreshes.",
    "torch_full: the exact softmax by torch's products, every logit stored; SGD's step is added in place by the one "
    "that makes the gradient.",
    "Networks are as they start, so that buckets and cells are those of random class vectors.",
)
LSH_SOFTMAX_NOTES = (
    "Published: LSH Softmax Table 2, on the authors' machine and by their code; lsh_topk_lazy, with this runner's own "
    "schedule of refreshes, has no printed counterpart. lsh_topk and lsh_topk_uncentred are refreshed after every "
    "step, as the paper's: the first looks at all class vectors for their mean now and then, the second hashes those "
    "alone that a step moved. Ours are training steps of one token with k = 10 sqrt(n) and "
    "l = sqrt(n), and tables of the number and bits that the settings say (the paper has log2(n) bits). Tokens follow "
    "Zipf's law over as many classes as the text has. The learning rate is one that needs no clipping.",
)
_SETTLING = 20  # least number of steps, unless they take too long
_LONGEST = 10.0  # most seconds of a repetition
_FEWEST = 3  # least number of steps of a repetition, however long they take
_ZIPF_TOKENS = 1_000_000  # about as many as PTB has

# LSH Softmax Table 2: number of classes -> printed name of the text.
LSH_SOFTMAX_TEXTS = {10_000: "ptb", 33_278: "wikitext2", 44_000: "text8", 793_471: "billion_word"}


def notes(plan: LanguageStep) -> list[str]:
    """Return the notes that the report's reader needs."""
    chosen = NOTES + LSH_SOFTMAX_NOTES if plan.published else NOTES
    return [note.format(longest=_LONGEST, schedule_steps=plan.schedule_steps) for note in chosen]


# ---------------------------------------------------------------- texts and configurations


@dataclass(frozen=True, kw_only=True)
class Text:
    """A text to train on; ``chosen`` holds the setting that names it if it is a prepared one."""

    name: str
    data: TextDataset
    chosen: list[str]


@functools.cache
def open_text(name: int | str, plan: LanguageStep) -> Text:
    """Open the prepared text called ``name`` or, if it is a number of classes, draw one by Zipf's law.

    Raises ConfigError, DataNotPrepared.
    """
    chosen = [] if isinstance(name, int) else [f"dataset={name}"]
    config = compose([f"preset={plan.preset}", *chosen, *plan.overrides])
    check_model_reads_dataset(config)
    require(config.dataset.family == "text", f"preset={plan.preset}: its model reads no text")
    if isinstance(name, str):
        return Text(name=name, data=config.dataset.build(), chosen=chosen)
    require(name < 2**31, f"texts: a number of classes must be at most 2147483647, got {name}")
    needed, free = 24 * name, available_bytes()  # three arrays of the classes' shares
    require(
        needed <= free,
        f"texts={name}: a text of so many classes takes {needed / 2**30:.1f} GiB, but {free / 2**30:.1f} GiB are"
        " free; give fewer",
    )
    return Text(name=str(name), data=zipf_text(name), chosen=chosen)


def zipf_text(num_classes: int, num_tokens: int = _ZIPF_TOKENS) -> TextDataset:
    """Draw independent tokens, where class i has probability proportional to 1 / (i + 1)."""
    cumulative_N = np.cumsum(1 / np.arange(1, num_classes + 1))
    unit_T = np.random.default_rng(num_classes).random(num_tokens)
    tokens_T = np.searchsorted(cumulative_N, unit_T * cumulative_N[-1]).astype(np.int32)
    np.minimum(tokens_T, num_classes - 1, out=tokens_T)
    return TextDataset(
        name="zipf", train_T=tokens_T, valid_T=tokens_T[:2], test_T=tokens_T[:2], num_classes=num_classes,
        vocabulary_path=Path(), checksum="", variant="zipf",
    )  # fmt: skip


def configuration(method: str, text: Text, plan: LanguageStep) -> RunConfig:
    """Return the method's configuration on the text. Raises ConfigError (one line) when it does not compose."""
    nearest_and_tail = min(text.data.num_classes, sum(usual_sizes(text.data.num_classes)))
    settings = [
        setting.format(draws=plan.draws, nearest_and_tail=nearest_and_tail) for setting in LANGUAGE_METHODS[method]
    ]
    return compose([f"preset={plan.preset}", *text.chosen, *settings, *plan.overrides])


def check(plan: LanguageStep) -> None:
    """Open all texts, so that what is wrong with one is known before the first is measured."""
    for name in plan.texts:
        open_text(name, plan)


def batches_of(task: LanguageModelling, count: int) -> list[TextBatch]:
    """Return the first ``count`` training batches, epoch after epoch."""
    config = task.config
    sampler = config.batch_sampler.build(examples=task.examples, batch_size=config.batch_size, seed=config.seed)
    return [task.batch(sampler.draw(step)) for step in range(1, count + 1)]


# ---------------------------------------------------------------- refreshes and memory


def refresh_schedule(sampler: Any, training: TrainingFacts) -> RefreshSchedule | None:
    """Return the schedule of a sampler's configuration, or None for samplers without tables to refresh."""
    if not hasattr(sampler, "refresh_every_steps"):
        return None
    period = sampler.refresh_every_steps or max(1, training.steps_per_epoch)
    return RefreshSchedule(period, getattr(sampler, "refresh_growth", 1.0))


def refreshed_within(sampler: Any, training: TrainingFacts, steps: int) -> Any:
    """Return the sampler's configuration, changed so that any ``steps`` steps hold at least one refresh."""
    schedule = refresh_schedule(sampler, training)
    if schedule is None:
        return sampler
    steady = {"refresh_growth": 1.0} if hasattr(sampler, "refresh_growth") else {}
    return replace(sampler, refresh_every_steps=min(schedule.period, steps), **steady)


def refreshes_a_step(schedule: RefreshSchedule | None, schedule_steps: int) -> float:
    """Return the mean number of refreshes per training step."""
    if schedule is None:
        return 0.0
    return 1 / schedule.period if schedule.growth == 1 else schedule.times_within(schedule_steps) / schedule_steps


def updates_together(config: RunConfig) -> bool:
    """Return True if ``Network.train_step`` updates all weights at once, the encoder's included."""
    return config.model.tied or config.training.clip is not None


def table_bytes(config: RunConfig, num_classes: int) -> float:
    """Return the bytes of the class and word vectors with what the optimizer keeps for them."""
    total = 0
    for columns in (config.model.dim, 0 if config.model.tied else config.model.embedding):
        moments = config.optimizer.moment_bytes(columns) if isinstance(config.optimizer, AdamConfig) and columns else 0
        total += num_classes * (4 * columns + moments)
    return float(total)


def network_bytes(config: RunConfig, num_classes: int) -> float:
    """Estimate the bytes of a network in training: its tables, gradients kept for every class, and the sampler."""
    keeps_gradients = updates_together(config) or not isinstance(config.optimizer, AdamConfig)
    kept = 4.0 * num_classes * config.model.dim if config.sampler.name == "full" and keeps_gradients else 0.0
    return (
        table_bytes(config, num_classes)
        + kept
        + sampler_bytes(config.sampler, num_classes, config.batch_size * config.windows.length)
    )


def building_bytes(config: RunConfig, num_classes: int) -> float:
    """Return the bytes that drawing the first weights takes besides the network."""
    return 4.0 * num_classes * max(config.model.dim, config.model.embedding)


# ---------------------------------------------------------------- measuring


@dataclass(frozen=True, kw_only=True)
class Repetition:
    """Hold a repetition's seconds: of its steps in total and by stage (``clock``), of each refresh (``due``)."""

    steps: int
    clock: StageClock
    due: list[float]

    def stages_ms(self, refreshes_a_step: float, usual_refresh: float) -> dict[str, float]:
        """Return the milliseconds per step of each stage, with refreshes at their scheduled rate.

        ``usual_refresh``: seconds of one refresh, used where none was due in this repetition.
        """
        seconds = {stage: total / self.steps for stage, total in self.clock.seconds.items()}
        notes = seconds["refresh"] - sum(self.due) / self.steps
        one = statistics.median(self.due) if self.due else usual_refresh
        return {stage: 1000 * each for stage, each in (seconds | {"refresh": notes + one * refreshes_a_step}).items()}

    def step_ms(self, refreshes_a_step: float, usual_refresh: float) -> float:
        """Return the milliseconds of a whole step, with refreshes at their scheduled rate, not those that were due."""
        without = 1000 * (self.clock.total - self.clock.seconds["refresh"]) / self.steps
        return without + self.stages_ms(refreshes_a_step, usual_refresh)["refresh"]


class _Entrant:
    """A method's network in training and its timings; ``repetitions`` has an item for each repetition."""

    def __init__(self, name: str, config: RunConfig, task: LanguageModelling, plan: LanguageStep) -> None:
        self.name, self.config = name, config
        self.tokens_per_step = config.batch_size * config.windows.length
        self.schedule = refresh_schedule(config.sampler, task.training)
        self.refreshes_a_step = refreshes_a_step(self.schedule, plan.schedule_steps)
        often = replace(config, sampler=refreshed_within(config.sampler, task.training, plan.steps))
        head = (torch_full_head if name == "torch_full" else ClassesHead.of)(often, task.training)
        self.network = Network.of(often, head, num_features=task.num_features)
        self.steps = plan.steps  # steps of a repetition
        self.step = 0
        self.candidates = 0.0  # the latest step's candidates per row
        self.repetitions: list[Repetition] = []

    def settle(self, batches: Sequence[TextBatch]) -> None:
        """Take untimed steps until memory is touched and all code compiled, then set the steps of a repetition."""
        begin, latest = time.perf_counter(), []
        for batch in batches:
            before = time.perf_counter()
            self._train([batch])
            latest.append(time.perf_counter() - before)
            if len(latest) >= _FEWEST and time.perf_counter() - begin > _LONGEST:
                break
        usual = statistics.median(latest[-_FEWEST:])
        self.steps = min(self.steps, max(_FEWEST, int(_LONGEST / usual)))

    def repetition(self, batches: Sequence[TextBatch]) -> None:
        self.repetitions.append(self._train(batches[: self.steps]))

    def _train(self, batches: Sequence[TextBatch]) -> Repetition:
        clock, due = StageClock(), []
        for batch in batches:
            self.step += 1
            refreshes, refreshing = self._refreshes(), clock.seconds["refresh"]
            begin = time.perf_counter()
            scores = self.network.train_step(batch, self.step, clock)
            self.candidates = scores.candidates_per_row
            clock.total += time.perf_counter() - begin
            if not math.isfinite(scores.loss):
                raise Diverged(
                    f"{self.name}: the loss became {scores.loss} at step {self.step}; try a smaller optimizer.lr"
                )
            if self._refreshes() > refreshes:
                due.append(clock.seconds["refresh"] - refreshing)
        return Repetition(steps=len(batches), clock=clock, due=due)

    def _refreshes(self) -> float:
        return self.network.head.sampler.statistics.get("refreshes", 0)

    def summary(self) -> dict[str, Any]:
        """Return the method's row of the report. Milliseconds are per step unless the key says otherwise."""
        due = [seconds for repetition in self.repetitions for seconds in repetition.due]
        share = (self.refreshes_a_step, statistics.median(due) if due else 0.0)
        stages = [repetition.stages_ms(*share) for repetition in self.repetitions]
        step = Spread.of([repetition.step_ms(*share) for repetition in self.repetitions])
        layer = Spread.of([sum(ms.values()) - ms["encode"] for ms in stages])
        return {
            "method": self.name,
            "status": "measured",
            "step_ms": asdict(step),
            "softmax_ms": asdict(layer),
            "stages_ms": {stage: statistics.median(ms[stage] for ms in stages) for stage in STAGES},
            "tokens_per_second": 1000 * self.tokens_per_step / step.median,
            "candidates_per_row": self.candidates,
            "steps_timed": sum(repetition.steps for repetition in self.repetitions),
            "refresh": None if self.schedule is None else {
                "ms": asdict(Spread.of([1000 * seconds for seconds in due])) if due else None,
                "steps": 1 / self.refreshes_a_step if self.refreshes_a_step else None,
            },
            "settings": asdict(self.config.sampler),
            "loss": asdict(self.config.loss),
        }  # fmt: skip


def one_size(name: int | str, plan: LanguageStep) -> dict[str, Any]:
    """Measure all methods on one text and return its part of the report."""
    text, methods = open_text(name, plan), plan.methods
    printed = LSH_SOFTMAX_TEXTS.get(name) if plan.published and isinstance(name, int) else None
    every = {name: configuration(name, text, plan) for name in methods}
    some = next(iter(every.values()))
    skipped = {name: status for name, config in every.items() if (status := out_of_reach(config))}
    configs = {name: config for name, config in every.items() if name not in skipped}
    task = LanguageModelling(some, text.data)
    num_classes = text.data.num_classes
    needed = {name: network_bytes(config, num_classes) for name, config in configs.items()}
    building = building_bytes(some, num_classes)
    one_by_one = len(configs) > 1 and shortage(sum(needed.values()) + building) is not None

    def run() -> dict[str, dict[str, Any]]:
        rows: dict[str, dict[str, Any]] = {name: {"method": name, "status": status} for name, status in skipped.items()}
        for group in [[name] for name in configs] if one_by_one else [list(configs)]:
            status = shortage(sum(needed[name] for name in group) + building)
            if status is not None:
                rows |= {name: {"method": name, "status": status} for name in group}
                continue
            rows |= _measure({name: configs[name] for name in group}, task, plan, title_of(shown))
            gc.collect()  # networks are in reference cycles, and the next one needs their memory
        return rows

    shown = {
        "text": text.name,
        "classes": num_classes,
        "dim": some.model.dim,
        "matrix_mb": table_bytes(some, num_classes) / 2**20,
        "batch": [some.batch_size, some.windows.length],
        "printed": printed,
        "one_by_one": one_by_one,
        "update_holds_encoder": updates_together(some),
        "data_checksum": text.data.checksum,
    }
    rows, _, machine = limits_before_and_after(run)
    results = [rows[name] for name in methods]
    add_times_full(results, "times_full", lambda row: row["step_ms"]["median"])
    add_times_full(results, "softmax_times_full", lambda row: row["softmax_ms"]["median"])
    if printed:
        speedups = published_speedups(printed)
        for row in results:
            row["published_speedup"] = speedups.get(row["method"])
    return {**shown, **machine, "results": results}


def _measure(
    configs: dict[str, RunConfig], task: LanguageModelling, plan: LanguageStep, label: str
) -> dict[str, dict[str, Any]]:
    """Measure methods whose networks are in memory together; return each method's row of the report."""
    settling = max(_SETTLING, plan.steps)
    batches = batches_of(task, settling + plan.repetitions * plan.steps)
    entrants: dict[str, _Entrant] = {}
    for name, config in configs.items():
        say(f"{label}: building and settling {name}")
        entrants[name] = _Entrant(name, config, task, plan)
        entrants[name].settle(batches[:settling])
    order = list(entrants)
    with tqdm(total=plan.repetitions * len(order), unit="group", **BAR) as bar:
        for number in range(plan.repetitions):
            begin = settling + number * plan.steps
            turn = number % len(order)
            for name in order[turn:] + order[:turn]:
                bar.set_description(f"{label} {name}")
                entrants[name].repetition(batches[begin : begin + plan.steps])
                bar.update()
    return {name: entrant.summary() for name, entrant in entrants.items()}


def published_speedups(text: str) -> dict[str, float]:
    """Return each method's printed speed-up of the softmax layer, from LSH Softmax Table 2."""
    frame = published_numbers(Published(csv="lsh_softmax.csv", table="table2"))
    here = frame[(frame["dataset"] == text) & (frame["metric"] == "speedup")]
    return {str(method): float(value) for method, value in zip(here["method"], here["value"], strict=True)}


# ---------------------------------------------------------------- the figure

STAGE_COLOURS = {
    "encode": "#D8D8D8",
    "sample": "#D55E00",
    "score": "#56B4E9",
    "loss": "#003B2F",
    "update": "#0072B2",
    "refresh": "#E69F00",
}

_HATCHES = {"sample": "xxx", "score": "...", "refresh": "///"}  # tell colours apart in grey
_MOST_ABREAST = 2


def draw(report: dict[str, Any], stem: Path) -> Path | None:
    """Draw the milliseconds of a step by stage, with a bar per method and a panel per text.

    Saves STEM.png and STEM.svg. Returns None where no method was measured.
    """

    from runner.report.figures.panels import shared_out
    from runner.report.figures.style import new_figure, save, styled

    parts = [(size, [row for row in size["results"] if row["status"] == "measured"]) for size in report["sizes"]]
    parts = [(size, rows) for size, rows in parts if rows]
    if not parts:
        return None
    most = max(len(rows) for _, rows in parts)
    with styled():
        lines = shared_out(parts, _MOST_ABREAST)
        figure, axes = new_figure(len(lines), max(map(len, lines)), width=5.2, height=0.9 + 0.34 * most)
        for axis in axes.flat[len(parts) :]:
            axis.set_axis_off()
        for axis, (size, rows) in zip(axes.flat, parts, strict=False):
            _draw_bars(axis, size, rows)
        handles, labels = axes[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, fontsize=8, ncols=len(STAGES), loc="outside lower center")
        return save(figure, stem)


def _draw_bars(axis: Any, size: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    from runner.methods.catalogue import label_of
    from runner.report.figures.style import plain_ticks

    names = [LABELS.get(row["method"]) or label_of(row["method"]) for row in rows]
    left = np.zeros(len(rows))
    for stage in STAGES:
        width = np.array([row["stages_ms"][stage] for row in rows])
        axis.barh(
            names, width, left=left, label=stage, color=STAGE_COLOURS[stage], height=0.7, hatch=_HATCHES.get(stage),
            edgecolor="white", linewidth=0.5,
        )  # fmt: skip
        left += width
    for place, (row, end) in enumerate(zip(rows, left, strict=True)):
        faster = f" ({row['times_full']:.1f}x)" if row["times_full"] is not None else ""
        median = row["step_ms"]["median"]
        shown = f"{median:,.0f}" if median >= 100 else f"{median:.3g}"
        axis.annotate(
            f"{shown}{faster}", (end, place), xytext=(3, 0), textcoords="offset points",
            va="center", fontsize=8,
        )  # fmt: skip
    axis.set_xlim(0, 1.3 * left.max())
    axis.invert_yaxis()
    axis.grid(axis="y", visible=False)
    axis.set_title(title_of({**size, "text": dataset_title(size.get("text", ""))}))
    axis.set_xlabel("ms a training step")
    plain_ticks(axis.xaxis)

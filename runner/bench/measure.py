"""Time the contenders' steps and refreshes in interleaved repetitions, and summarise them for each method."""

import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tqdm import tqdm

from runner.bench.arithmetic import Spread, amortised_refresh, least_work
from runner.bench.contenders import Contender
from runner.bench.machine import Limits, growth_bytes
from runner.bench.settings import OfSteps
from runner.bench.workload import Workload, matrix_bytes
from runner.machine.clock import StageClock
from runner.machine.device import clock_of
from runner.report.pages.bench_tables import LAYER_STAGES as STAGES

BAR: dict[str, Any] = {"dynamic_ncols": True, "mininterval": 0.1 if sys.stderr.isatty() else 10}
_WHOLE_MATRIX_SHARE = 10  # methods that read every class take a tenth of the steps


def steps_of(plan: OfSteps, contender: Contender) -> int:
    """Return the steps that the contender takes per repetition, at least 1."""
    return max(1, plan.steps // _WHOLE_MATRIX_SHARE) if contender.whole_matrix else plan.steps


@dataclass
class Entrant:
    """A contender, the workload it trains on, and its timings; lists have one item per repetition unless noted."""

    contender: Contender
    workload: Workload
    stages: list[dict[str, float]] = field(default_factory=list)  # seconds of all steps of the repetition
    refresh_seconds: list[float] = field(default_factory=list)
    candidates: list[float] = field(default_factory=list)  # one item per step
    distinct_rows: list[float] = field(default_factory=list)
    step_growth_bytes: float | None = None

    def warm_up(self, plan: OfSteps) -> float:
        """Compile everything and touch all memory untimed, then measure a step's memory; return that step's seconds."""
        first, second = self.workload.queries(2, plan.batch, seed=0)
        if self.contender.refreshes:
            self.contender.refresh(self.workload.step)
        self.workload.step += 1
        hardware = self.workload.hardware
        self.contender.step(first, self.workload.step, StageClock())
        self.workload.step += 1
        begin = time.perf_counter()
        self.step_growth_bytes = growth_bytes(
            lambda: self.contender.step(second, self.workload.step, StageClock()), hardware
        )
        return time.perf_counter() - begin

    def repetition(self, plan: OfSteps, number: int) -> None:
        """Time the steps of repetition ``number``, then one refresh separately."""
        contender, workload = self.contender, self.workload
        queries = workload.queries(steps_of(plan, contender), plan.batch, seed=number)
        if contender.refreshes:
            contender.refresh(workload.step)  # the refresh timed below then follows this repetition's steps only
        workload.skip_step()
        clock, drawn = clock_of(workload.hardware), []
        for query in queries:
            workload.step += 1
            drawn.append(contender.step(query, workload.step, clock))
        self.candidates += [of_step.per_row for of_step in drawn]
        self.distinct_rows.append(workload.distinct_rows(queries[-1], drawn[-1].ids_N))
        self.stages.append({stage: clock.seconds[stage] for stage in STAGES})
        if schedule := contender.refreshes:
            # Draw for the rest of the schedule's first interval without training, so that the refresh has a full
            # interval's classes to hash.
            rest = max(0, schedule.period - len(queries))
            for query in workload.queries(rest, plan.batch, seed=1000 + number):
                workload.step += 1
                contender.touch(query, workload.step)
            begin = time.perf_counter()
            contender.refresh(workload.step)
            self.refresh_seconds.append(time.perf_counter() - begin)

    def summary(self, plan: OfSteps, limits: Limits) -> dict[str, Any]:
        """Return the method's row of the report. Seconds are per 1,000 training rows unless the key says otherwise."""
        contender, workload = self.contender, self.workload
        rows = steps_of(plan, contender) * plan.batch
        step = Spread.of([sum(seconds.values()) / rows * 1000 for seconds in self.stages])
        stages = {name: Spread.of([seconds[name] / rows * 1000 for seconds in self.stages]).median for name in STAGES}
        candidates = sum(self.candidates) / len(self.candidates)
        touched = sum(self.distinct_rows) / len(self.distinct_rows)
        held = matrix_bytes(workload.num_classes, workload.dim)
        refresh, growth = self._refresh(plan), self.step_growth_bytes
        total = step.median + (refresh["s_per_1k_rows"] if refresh else 0.0)
        return {
            "method": contender.name,
            "status": "measured",
            "s_per_1k_rows": total,
            "step_s_per_1k_rows": asdict(step),
            "refresh": refresh,
            "refresh_percent": 100 * refresh["s_per_1k_rows"] / total if refresh else 0.0,
            "steps_timed": steps_of(plan, contender) * plan.repetitions,
            "candidates_per_row": candidates,
            "class_rows_per_step": touched,
            "stages_s_per_1k_rows": stages,
            "limits": self._limits(plan, limits, stages, candidates, touched),
            "tables_mb": contender.table_bytes / 2**20,
            "tables_percent": 100 * contender.table_bytes / held,
            "step_growth_mb": None if growth is None else growth / 2**20,
            "step_growth_percent": None if growth is None else 100 * growth / held,
        }

    def _refresh(self, plan: OfSteps) -> dict[str, Any] | None:
        schedule = self.contender.refreshes
        if schedule is None:
            return None
        seconds = Spread.of(self.refresh_seconds)
        number = schedule.times_within(plan.schedule_steps)
        per_1k = amortised_refresh(seconds.median, number, steps=plan.schedule_steps, batch=plan.batch)
        return {
            "seconds": asdict(seconds),
            "interval_steps": max(steps_of(plan, self.contender), schedule.period),
            "refreshes_in_schedule": number,
            "schedule_steps": plan.schedule_steps,
            "s_per_1k_rows": per_1k,
        }

    def _limits(
        self, plan: OfSteps, limits: Limits, stages: dict[str, float], candidates: float, touched: float
    ) -> dict[str, dict[str, float]] | None:
        if not self.contender.stages_compare:
            return None
        least = least_work(
            touched_rows=touched,
            pairs=plan.batch * (candidates if self.contender.everything else candidates + 1),
            num_classes=self.workload.num_classes,
            dim=self.workload.dim,
            rows=self.contender.rows_policy,
            everything=self.contender.everything,
        )
        return {
            stage: {
                "least_mb": work.bytes / 1e6,
                "least_gflop": work.flops / 1e9,
                **work.shares(
                    stages[stage] * plan.batch / 1000,
                    bytes_per_second=limits.bytes_per_second,
                    flops_per_second=limits.flops_per_second,
                ),
            }
            for stage, work in least.items()
        }


def measure(entrants: Sequence[Entrant], plan: OfSteps, label: str) -> None:
    """Warm up every entrant; then, in each repetition, let the entrants take their steps in turn."""
    expected = 0.0
    for entrant in entrants:
        say(f"{label}: warming up {entrant.contender.name}")
        expected += entrant.warm_up(plan) * steps_of(plan, entrant.contender) * plan.repetitions
    say(f"{label}: {plan.repetitions} repetitions, about {expected:,.0f} s of steps, refreshes apart")
    with tqdm(total=plan.repetitions * len(entrants), unit="group", file=sys.stderr, **BAR) as bar:
        for number in range(1, plan.repetitions + 1):
            for entrant in entrants:
                bar.set_description(f"{label} {entrant.contender.name}")
                entrant.repetition(plan, number)
                bar.update()


def say(line: str) -> None:
    """Print a line of progress on standard error."""
    print(line, file=sys.stderr, flush=True)

"""Measure training steps side by side: ``make bench`` or ``python scripts/bench.py output_layer --classes 131000``.

Every method runs on the same random model and batches; repetitions are interleaved, so that drift of the machine
falls on all alike; warm-up (compilation, first touches of memory) is excluded; means, which carry every refresh that
fell due, and ranges are reported.
Seconds are per 1,000 training rows and cover sample, score, loss, update and the refreshes that fell in the
measured steps' share of the schedule; the encoder is left out.
"""

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from runner.clock import STAGES, StageClock
from runner.config import RunConfig, compose, set_threads
from runner.errors import RunnerError
from runner.losses import LossConfig
from runner.optimizers import RowTable
from runner.output_layer import OutputLayer
from runner.samplers import Query, Sampler

# 3,351 shared negatives are half a percent of Amazon-670K's classes, a size published comparisons use.
METHODS: dict[str, list[str]] = {
    "full": ["sampler=full"],
    "topk": ["sampler=topk"],
    "uniform": ["sampler=uniform", "sampler.num_samples=3351"],
    "log_uniform": ["sampler=log_uniform", "sampler.num_samples=3351"],
    "unigram": ["sampler=unigram", "sampler.num_samples=3351"],
    "nce": ["sampler=log_uniform", "sampler.num_samples=3351", "loss=nce"],
    "lsh_label": ["sampler=lsh_label"],
    "lsh_embedding": ["sampler=lsh_embedding"],
}


class Bench:
    """One method's output layer and sampler, stepping on random hidden states and Zipf-distributed targets."""

    def __init__(self, name: str, config: RunConfig, *, classes: int, batch: int) -> None:
        self.name, self.batch = name, batch
        self.loss: LossConfig = config.loss
        generator = np.random.default_rng(0)
        weights = generator.standard_normal((classes, config.model.hidden), dtype=np.float32) * np.float32(0.1)
        self.layer = OutputLayer(RowTable(config.optimizer, weights, bias=True))
        counts = np.maximum(1, (classes / np.arange(1, classes + 1)).astype(np.int64))
        self.sampler: Sampler = config.sampler.build(
            num_classes=classes, label_counts_N=counts, layer=self.layer, seed=0
        )
        self.generator = generator
        self.cumulative = np.cumsum(counts) / counts.sum()
        self.step = 0
        self.clock = StageClock()
        self.candidates: list[float] = []

    def one_step(self) -> float:
        """Seconds of one step; query and targets are made before the clock starts."""
        self.step += 1
        targets = np.searchsorted(self.cumulative, self.generator.random(self.batch)).astype(np.int32)
        # Hidden states near their class's vector, as in a trained network, so that buckets are hit as they would be.
        noise = self.generator.standard_normal((self.batch, self.layer.dim), dtype=np.float32) * np.float32(0.1)
        hidden = np.maximum(self.layer.table.weights[targets] + noise, 0)
        query = Query(hidden_BD=hidden, target_indptr_B1=np.arange(self.batch + 1, dtype=np.int64), targets_P=targets)
        log_count = None
        begin = time.perf_counter()
        with self.clock.stage("sample"):
            proposal = self.sampler.sample(query, self.step)
            if self.loss.corrects_targets:
                log_count = self.sampler.log_expected_count_of_targets(query, self.step)
        with self.clock.stage("score"):
            scores = self.layer.score(query, proposal, self.step)
        with self.clock.stage("loss"):
            scores.loss(self.loss, log_count)
        with self.clock.stage("update"):
            scores.update()
        with self.clock.stage("refresh"):
            self.sampler.refresh(self.step)
        self.candidates.append(proposal.candidates_per_row(self.batch))
        return time.perf_counter() - begin


def output_layer(arguments: argparse.Namespace) -> dict[str, Any]:
    """Time the output layer's step of every chosen method."""
    threads = set_threads(arguments.threads)
    rows = []
    # All methods' models at once would not fit beside each other at millions of classes.
    together = arguments.classes <= 200_000
    groups = [arguments.methods] if together else [[method] for method in arguments.methods]
    for group in groups:
        benches = []
        for name in group:
            config = compose([*METHODS[name], *arguments.overrides])
            benches.append(Bench(name, config, classes=arguments.classes, batch=arguments.batch))
            print(f"warming up {name}", file=sys.stderr)
            benches[-1].one_step()
            benches[-1].one_step()
            benches[-1].clock = StageClock()
            benches[-1].candidates.clear()
        seconds: dict[str, list[float]] = {bench.name: [] for bench in benches}
        for _ in range(arguments.repetitions):
            for bench in benches:
                steps = arguments.steps if bench.name not in ("full", "topk") else max(1, arguments.steps // 10)
                total = sum(bench.one_step() for _ in range(steps))
                seconds[bench.name].append(total / (steps * arguments.batch) * 1000)
        for bench in benches:
            per_1k = seconds[bench.name]
            total_rows = len(bench.candidates) * arguments.batch
            rows.append(
                {
                    "method": bench.name,
                    "s_per_1k_rows": statistics.fmean(per_1k),
                    "lowest": min(per_1k),
                    "highest": max(per_1k),
                    "candidates_per_row": statistics.fmean(bench.candidates),
                    "stages_s_per_1k": {s: bench.clock.seconds[s] / total_rows * 1000 for s in STAGES if s != "encode"},
                    "sampler": bench.sampler.statistics,
                }
            )
        del benches
    return {
        "name": "output_layer",
        "classes": arguments.classes,
        "batch": arguments.batch,
        "threads": threads,
        "overrides": arguments.overrides,
        "interleaved": together,
        "results": rows,
    }


def refresh(arguments: argparse.Namespace) -> dict[str, Any]:
    """Time a bulk re-hash of all classes and rebuild of the tables, for both hash families."""
    threads = set_threads(arguments.threads)
    rows = []
    for family, extra in (("simhash", []), ("dwta", ["sampler.K=4"])):
        config = compose(["sampler=lsh_embedding", f"sampler.hash={family}", *extra, *arguments.overrides])
        bench = Bench(family, config, classes=arguments.classes, batch=8)
        times = []
        for repetition in range(arguments.repetitions + 1):
            bench.layer.table.last_step[:] = repetition + 1
            begin = time.perf_counter()
            bench.sampler.rebuild(repetition + 1)  # type: ignore[attr-defined]
            times.append(time.perf_counter() - begin)
        times = times[1:]
        rows.append(
            {
                "method": f"{family} K={config.sampler.K} L={config.sampler.L}",
                "seconds": statistics.median(times),
                "lowest": min(times),
                "highest": max(times),
                "table_mb": bench.sampler.statistics["table_mb"],
            }
        )
    return {"name": "refresh", "classes": arguments.classes, "threads": threads, "results": rows}


def render(report: dict[str, Any]) -> str:
    """The report as a Markdown table."""
    head = f"{report['name']}: {report['classes']:,} classes, {report['threads']} threads"
    head += f", batch {report['batch']}" if "batch" in report else ""
    head += f"; load average {report['load_average'][0]:.2f} before, {report['load_average'][1]:.2f} after"
    if report["name"] == "refresh":
        lines = ["| tables | seconds | range | tables MB |", "|---|---|---|---|"]
        for row in report["results"]:
            span = f"{row['lowest']:.3f}-{row['highest']:.3f}"
            lines.append(f"| {row['method']} | {row['seconds']:.3f} | {span} | {row['table_mb']:.0f} |")
        return "\n".join([head, "", *lines, ""])
    stages = [stage for stage in STAGES if stage != "encode"]
    base = next((row["s_per_1k_rows"] for row in report["results"] if row["method"] == "full"), None)
    lines = [
        "| method | s / 1,000 rows | range | times full | candidates a row | " + " | ".join(stages) + " |",
        "|---|---|---|---|---|" + "---|" * len(stages),
    ]
    for row in report["results"]:
        span = f"{row['lowest']:.4f}-{row['highest']:.4f}"
        ratio = f"{base / row['s_per_1k_rows']:.1f}" if base else ""
        split = " | ".join(f"{row['stages_s_per_1k'][stage]:.4f}" for stage in stages)
        cells = [row["method"], f"{row['s_per_1k_rows']:.4f}", span, ratio, f"{row['candidates_per_row']:,.0f}", split]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([head, "", *lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["output_layer", "refresh"])
    parser.add_argument("--classes", type=int, default=131_000)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--threads", type=int, default=0, help="0: all cores")
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS), metavar="METHOD")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20, help="steps per repetition (a tenth for full and topk)")
    parser.add_argument("--overrides", nargs="*", default=[], help="Hydra overrides for every method")
    parser.add_argument("--json", type=Path, default=None, help="default: results/bench/<what>.json")
    arguments = parser.parse_args()
    before = os.getloadavg()[0]
    if before > 0.5:
        print(f"warning: load average {before:.2f} before the start; timings will be noisy", file=sys.stderr)
    try:
        report = {"output_layer": output_layer, "refresh": refresh}[arguments.what](arguments)
    except RunnerError as error:
        sys.exit(f"error: {error}")
    report["load_average"] = [before, os.getloadavg()[0]]
    path = arguments.json or Path("results/bench") / f"{arguments.what}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1) + "\n")
    path.with_suffix(".md").write_text(render(report))
    print(render(report))
    print(path)


if __name__ == "__main__":
    main()

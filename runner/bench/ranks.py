"""Time steps of split runs: real runs, started by torchrun on this machine with a thread for each rank.

One rank's stages give the rates of ``scale_model``, which then predicts the steps of more ranks. Beside the ranks, one
process trains as many classes with as many threads.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from runner.bench.collectives import LARGE, SMALL
from runner.bench.measure import say
from runner.bench.methods import METHODS
from runner.bench.scale_model import FULL, LOG_UNIFORM, LSH, ROWS, Network, Rates, Split
from runner.bench.settings import Ranks
from runner.config import compose
from runner.errors import RunnerError, require
from runner.structures.refresh_schedule import RefreshSchedule

NOTES = (
    "Each line is a run of `python -m runner` on generated data, whole steps with encoder and batch, without the "
    "first third of them. Seconds are rank 0's, which waits for the others. The classes of a rank are the same for all "
    "numbers of ranks (weak scaling), and all ranks have the whole batch.",
    "Predicted by runner/bench/scale_model.py: one rank of a thread gives the rates, so that its own line only shows "
    "that they add up; two ranks give the seconds of an all_reduce over the loopback. What is not the output layer's "
    "(encoder, batch) is taken over from one rank.",
    "Threads: one process with as many threads, on as many classes as the ranks hold together.",
    "More ranks than cores share them: their seconds do not show what splitting costs.",
    "Of each rank, peak memory and seconds of a processor from start to end are those of /usr/bin/time. The peak "
    "includes data and evaluations, which predicted memory does not, nor the program itself.",
)
_TIME = "/usr/bin/time"
_FORMAT = '{"seconds": %e, "cpu_seconds": %U, "peak_kb": %M}'
_QUIET = 3.0  # per cent of the machine that others may take
_OF_LAYER = ("sample", "score", "loss", "update", "refresh")
_ALONE = Network(bytes_per_second=1.0, latency=0.0, overhead=0.0)  # of one rank, which sends nothing


def check(settings: Ranks) -> None:
    """Raise ConfigError if this machine has no GNU time."""
    require(Path(_TIME).exists(), f"{_TIME} is missing, which measures each rank; install GNU time (apt install time)")


def one_size(method: str, settings: Ranks) -> dict[str, Any]:
    """Measure a method on one rank, on more, and on one process with as many threads; return the report's part."""
    each = {FULL: settings.full_classes, LOG_UNIFORM: settings.uniform_classes, LSH: settings.lsh_classes}[method]
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    alone = _run(method, each, 1, 1, settings)
    rates, outside = rates_of(alone, settings), _outside(alone)
    rows = [_row(alone, rates, outside, _ALONE, settings)]
    collectives: dict[int, dict[str, float]] = {}
    for ranks in settings.ranks:
        collectives[ranks] = _collectives(ranks)
        network = network_of(collectives[settings.ranks[0]])
        rows.append(_row(_run(method, ranks * each, ranks, 1, settings), rates, outside, network, settings))
        if ranks <= cores:
            rows.append(_row(_run(method, ranks * each, 1, ranks, settings), None, outside, network, settings))
    whole = rates if cores == 1 else rates_of(_run(method, each, 1, cores, settings), settings)
    return {
        "method": method,
        "classes_a_rank": each,
        "cores": cores,
        "load_average": [load, os.getloadavg()[0]],
        "rates": asdict(rates),
        "machine_rates": asdict(whole),
        "candidates": alone["candidates"],
        "collectives": {str(ranks): found for ranks, found in collectives.items()},
        "results": rows,
    }


def _run(method: str, classes: int, ranks: int, threads: int, settings: Ranks) -> dict[str, Any]:
    """Return the quietest of some runs, or the first one that others hardly disturbed."""
    found: list[dict[str, Any]] = []
    while len(found) < settings.tries and not (found and found[-1]["others_percent"] < _QUIET):
        found.append(_run_once(method, classes, ranks, threads, settings))
    return min(found, key=lambda run: float(run["others_percent"]))


def _run_once(method: str, classes: int, ranks: int, threads: int, settings: Ranks) -> dict[str, Any]:
    """Train for some steps; return what rank 0 measured and what the system says of each rank."""
    steps = max(3, settings.steps // 10 if method == FULL else settings.steps)
    say(f"{method}: {classes:,} classes, {ranks} x {threads} threads, {steps} steps")
    with tempfile.TemporaryDirectory(prefix="ranks-") as name:
        folder = Path(name)
        words = [
            "-m", "runner", *METHODS[method], "dataset=synthetic_xc", f"dataset.num_classes={classes}",
            f"dataset.num_train={steps * settings.batch}", "dataset.num_test=64", "evaluation.rows=16", "epochs=1",
            f"evaluation.every_epochs={1 / 3:.6f}", f"model.hidden={settings.dim}", f"batch_size={settings.batch}",
            f"hardware.threads={threads}", "keep_weights=false", "checkpoint_every_seconds=100000",
            f"results_dir={folder / 'results'}", *(["hardware.classes=split"] if ranks > 1 else []),
        ]  # fmt: skip
        script = 'exec "$0" -f "$1" -o "$2-${RANK:-0}" "${@:3}"'
        timed = ["bash", "-c", script, _TIME, _FORMAT, str(folder / "time"), sys.executable, *words]
        _call([*_torchrun(ranks), "--no-python", *timed] if ranks > 1 else timed)
        of_ranks = [json.loads((folder / f"time-{rank}").read_text()) for rank in range(ranks)]
        (run,) = (folder / "results" / "runs").iterdir()
        records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        summary = json.loads((run / "summary.json").read_text())
    looked = [record for record in records if record["kind"] == "evaluation"]
    first, last = looked[0], looked[-1]
    taken = last["step"] - first["step"]
    before, after = first["stage_seconds"], last["stage_seconds"]
    return {
        "method": method,
        "classes": classes,
        "ranks": ranks,
        "threads": threads,
        "steps_timed": taken,
        "step_seconds": (last["train_seconds"] - first["train_seconds"]) / taken,
        "stages": {stage: (after[stage] - before.get(stage, 0.0)) / taken for stage in after},
        "candidates": summary["candidates_per_row"],
        "refreshes": _refreshes(method, last["step"]) - _refreshes(method, first["step"]),
        "of_ranks": of_ranks,
        "others_percent": 100 * summary.get("others_share", 0.0),
    }


def _refreshes(method: str, steps: int) -> int:
    if method != LSH:
        return 0
    config: Any = compose(METHODS[method]).sampler
    return RefreshSchedule(config.refresh_every_steps, config.refresh_growth).times_within(steps)


def _torchrun(ranks: int) -> list[str]:
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]


def _call(command: Sequence[str]) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        raise RunnerError(f"a run ended: {(said or done.stderr.splitlines() or ['without a word'])[-1]}")


def _collectives(ranks: int) -> dict[str, float]:
    """Measure all_reduces of the ranks over this machine's loopback."""
    with tempfile.TemporaryDirectory(prefix="ranks-") as folder:
        out = Path(folder) / "seconds.json"
        _call([*_torchrun(ranks), "-m", "runner.bench.collectives", str(out)])
        seconds = json.loads(out.read_text())
    small, large = seconds[str(SMALL)], seconds[str(LARGE)]
    sent = 2 * (ranks - 1) / ranks * (LARGE - SMALL)
    return {"small_us": 1e6 * small, "large_ms": 1e3 * large, "gigabits": 8e-9 * sent / (large - small)}


def rates_of(run: Mapping[str, Any], settings: Ranks) -> Rates:
    """Return the rates that the stages of a run on one process show."""
    stages, method = run["stages"], run["method"]
    products = stages["score"] + stages["update"]
    if method == FULL:
        return Rates(flops=8 * settings.batch * run["classes"] * settings.dim / products)
    pairs = settings.batch * (run["candidates"] + 1)
    every = run["steps_timed"] / run["refreshes"] if run["refreshes"] else 0.0
    return Rates(
        flops=6 * pairs * settings.dim / products,
        pair_seconds=stages["loss"] / pairs,
        draw_seconds=stages["sample"] * (ROWS / settings.batch if method == LSH else 1),
        index_seconds=stages["refresh"] * every / run["classes"],
    )


def network_of(collectives: Mapping[str, float]) -> Network:
    """Return the network of ranks on this machine: their messages have no latency but that of a whole collective."""
    return Network(bytes_per_second=collectives["gigabits"] / 8e-9, latency=0.0, overhead=collectives["small_us"] / 1e6)


def split_of(run: Mapping[str, Any], settings: Ranks) -> Split:
    """Return the step of a run as the model describes it."""
    every = run["steps_timed"] / run["refreshes"] if run["refreshes"] else 0.0
    split = Split(
        method=run["method"], classes=run["classes"], ranks=run["ranks"], rows=settings.batch, dim=settings.dim,
        candidates=run["candidates"], threads=run["threads"],
    )  # fmt: skip
    return split.refreshed(every) if every else split


def _row(
    run: Mapping[str, Any], rates: Rates | None, outside: float, network: Network, settings: Ranks
) -> dict[str, Any]:
    """Return a run's row of the report, with what the model predicts from the rates of a thread (None: of no use)."""
    row = {**run, "status": "measured", "step_ms": 1e3 * run["step_seconds"]}
    row["peak_mb"] = [rank["peak_kb"] / 1024 for rank in run["of_ranks"]]
    row["highest_peak_mb"] = max(row["peak_mb"])
    row |= {"outside_ms": 1e3 * _outside(run), "predicted_ms": None, "of_predicted": None, "communication_ms": None}
    split = split_of(run, settings)
    row["predicted_mb"] = split.peak() / 2**20
    if rates is not None:
        communication = split.communication(network)
        predicted = split.computation(rates) + communication + outside
        row |= {"predicted_ms": 1e3 * predicted, "communication_ms": 1e3 * communication}
        row["of_predicted"] = run["step_seconds"] / predicted
    return row


def _outside(run: Mapping[str, Any]) -> float:
    """Return the seconds of a step that are not the output layer's."""
    return float(run["step_seconds"] - sum(run["stages"][stage] for stage in _OF_LAYER))

"""Time refreshes of hash tables: of all classes, and of the share of classes that training touched.

Legend: U distinct class rows.
"""

import time
from dataclasses import asdict
from typing import Any

import numpy as np

from runner.bench.arithmetic import Spread
from runner.bench.contenders import RunnerMethod, configuration, sampler_bytes
from runner.bench.machine import shortage
from runner.bench.measure import say
from runner.bench.output_layer import limits_before_and_after
from runner.bench.settings import Refresh
from runner.bench.workload import Workload, matrix_bytes
from runner.output.numba.row_table import RowTable
from runner.samplers.lsh import Lsh

FAMILIES = {"simhash": ["sampler.K=9", "sampler.L=50"], "dwta": ["sampler.K=4", "sampler.L=50"]}
SHARES = (0.01, 0.1, 0.5)

# Under these settings only touched classes move, so the share alone determines how many are hashed. Under catch_up,
# classes touched earlier keep moving until their momentum is spent.
INCREMENTAL = ["optimizer.rows=touched"]

NOTES = (
    "Seconds of one refresh (hash, then sort all classes into buckets); medians of the repetitions, lowest and highest "
    "beside them. All: default settings, every class has moved. Shares: so many classes drawn uniformly have moved, "
    f"with {' '.join(INCREMENTAL)}, so that the others' codes stay; the last column is what was in fact re-hashed. "
    "No row lags behind the optimizer here; the refreshes of the output_layer report include catching up.",
)


def one_size(num_classes: int, asked: Refresh) -> dict[str, Any]:
    """Measure both hash families at one number of classes and return its part of the report."""
    dim = configuration("lsh_embedding", asked.overrides).model.hidden
    part: dict[str, Any] = {"classes": num_classes, "dim": dim, "matrix_mb": matrix_bytes(num_classes, dim) / 2**20}

    def run() -> list[dict[str, Any]]:
        found = []
        for family, options in FAMILIES.items():
            settings = [f"sampler.hash={family}", *options, *asked.overrides]
            for shares, extra in (((1.0,), []), (SHARES, INCREMENTAL)):
                found += _rows(num_classes, family, [*settings, *extra], shares, asked.repetitions)
        return found

    results, _, machine = limits_before_and_after(run)
    return {**part, **machine, "results": results}


def _rows(
    num_classes: int, family: str, overrides: list[str], shares: tuple[float, ...], repetitions: int
) -> list[dict[str, Any]]:
    config = configuration("lsh_embedding", overrides)
    settings: Any = config.sampler
    name = f"{family} K={settings.K} L={settings.L}"
    needed = matrix_bytes(num_classes, config.model.hidden) + sampler_bytes(settings, num_classes, batch=0)
    if status := shortage(needed):
        return [{"tables": name, "share": share, "status": status} for share in shares]
    say(f"{num_classes:,} classes: {name}, {', '.join(f'{share:.0%}' for share in shares)} touched")
    workload = Workload(config.optimizer, num_classes=num_classes, dim=config.model.hidden)
    method = RunnerMethod("lsh_embedding", config, workload.table, workload.label_counts_N)
    table, sampler = workload.table, method.sampler
    assert isinstance(table, RowTable)
    assert isinstance(sampler, Lsh)
    generator = np.random.default_rng(1)
    seconds: dict[float, list[float]] = {share: [] for share in shares}
    rehashed: dict[float, float] = {}
    method.refresh(workload.step)
    for repetition in range(repetitions + 1):
        for share in shares:
            touched_U = generator.choice(num_classes, round(share * num_classes), replace=False)
            workload.step += 1
            table.last_step[touched_U] = workload.step
            sampler.note_touched(touched_U, workload.step)
            before = method.sampler.statistics["rehashed_rows"]
            begin = time.perf_counter()
            method.refresh(workload.step)
            if repetition > 0:  # the first repetition compiles and touches memory
                seconds[share].append(time.perf_counter() - begin)
            rehashed[share] = method.sampler.statistics["rehashed_rows"] - before
    return [
        {
            "tables": name,
            "share": share,
            "status": "measured",
            "overrides": overrides,
            "seconds": asdict(Spread.of(seconds[share])),
            "rehashed_rows": rehashed[share],
            "tables_mb": method.table_bytes / 2**20,
        }
        for share in shares
    ]

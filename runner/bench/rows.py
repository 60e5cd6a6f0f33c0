"""Time one method under each row policy of the optimizer, side by side, each on a class matrix of its own."""

from typing import Any

from runner.bench.contenders import RunnerMethod, configuration, out_of_reach, sampler_bytes
from runner.bench.machine import shortage
from runner.bench.measure import Entrant, measure, say
from runner.bench.output_layer import limits_before_and_after
from runner.bench.settings import Rows
from runner.bench.workload import Workload, matrix_bytes

POLICIES = ("touched", "catch_up", "dense")
BASELINE = "touched"
_MOST_CLASSES_DENSE = 200_000

NOTES = (
    "Seconds are per 1,000 training rows; medians of the repetitions, lowest and highest beside them. Each policy "
    "trains a class matrix of its own from the same start on batches of the same kind, interleaved repetition by "
    "repetition.",
    "Under catch_up the step applies to each row it reads the zero-gradient steps that the row missed; under dense "
    "every row takes every step; under touched those steps are never taken.",
)


def one_size(num_classes: int, plan: Rows) -> dict[str, Any]:
    """Measure the method under every policy at one number of classes and return its part of the report."""
    method = plan.method
    configs = {policy: configuration(method, [*plan.overrides, f"optimizer.rows={policy}"]) for policy in POLICIES}
    dim = configs[BASELINE].model.hidden
    part: dict[str, Any] = {"classes": num_classes, "dim": dim, "matrix_mb": matrix_bytes(num_classes, dim) / 2**20}

    def run() -> tuple[dict[str, Entrant], dict[str, str]]:
        say(f"{num_classes:,} classes: building")
        entrants: dict[str, Entrant] = {}
        skipped: dict[str, str] = {}
        for policy, config in configs.items():
            needed = matrix_bytes(num_classes, dim) + sampler_bytes(config.sampler, num_classes, plan.batch)
            if status := out_of_reach(config):
                skipped[policy] = status
            elif policy == "dense" and num_classes > _MOST_CLASSES_DENSE:
                skipped[policy] = (
                    f"skipped: moves every row every step, not tried above {_MOST_CLASSES_DENSE:,} classes"
                )
            elif status := shortage(needed):
                skipped[policy] = status
            else:
                workload = Workload(config.optimizer, num_classes=num_classes, dim=dim)
                contender = RunnerMethod(method, config, workload.table, workload.label_counts_N)
                contender.name = policy
                entrants[policy] = Entrant(contender, workload)
        measure(list(entrants.values()), plan, f"{num_classes:,} classes {method}")
        return entrants, skipped

    (entrants, skipped), limits, machine = limits_before_and_after(run)
    results = []
    for policy in POLICIES:
        if policy in skipped:
            results.append({"method": policy, "status": skipped[policy]})
            continue
        row = entrants[policy].summary(plan, limits)
        row["times_touched"] = None
        if BASELINE in entrants:
            first = entrants[BASELINE].summary(plan, limits)
            row["times_touched"] = row["step_s_per_1k_rows"]["median"] / first["step_s_per_1k_rows"]["median"]
        results.append(row)
    return {**part, **machine, "trained": method, "results": results}

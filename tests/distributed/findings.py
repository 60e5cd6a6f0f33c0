"""Bring together what the ranks of a test found, and sum it up."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from runner.machine.group import Group
from runner.output.ranks import Ranks


def write_all(found: Mapping[str, Any], group: Group, across: Ranks, out: Path) -> None:
    """Let rank 0 write what all ranks found, by case, and part."""
    group.store.set(f"found/{across.place}", json.dumps(found))
    across.wait()
    if across.leads:
        of_all: dict[str, Any] = {}
        for rank in range(across.size):
            of_all |= json.loads(group.store.get(f"found/{rank}"))
        out.write_text(json.dumps(of_all, indent=1))
    across.end()


def is_equal(case: Mapping[str, Any]) -> bool:
    """Tell whether the ranks' numbers are those of one process within 1e-5, and the same classes are the best.

    Expected counts may be steep in logits, as those of the quadratic kernel are, or have steps, as rff's have: there a
    last bit is more, and losses have it too before it turns a draw into another.
    """
    turned = case["other_draws"] is not None
    return case["same_top"] and all(
        far <= (1e-4 if turned or key == "counts" else 1e-5) for key, far in case["far"].items()
    )


def summary(found: Mapping[str, Any]) -> str:
    """Return in a few lines how far pairs of a sampler and a loss are from those of one process, by sampler."""
    of_sampler: dict[str, list[tuple[str, Any]]] = {}
    for name, case in found.items():
        of_sampler.setdefault(name.split("-")[0], []).append((name, case))
    lines = [f"{'sampler':16} {'pairs':>5} {'largest difference':>18} {'other draws':>11} {'other top':>9}"]
    for sampler, pairs in {**of_sampler, "all": list(found.items())}.items():
        cases = [case for _, case in pairs]
        largest = max(np.max([*case["far"].values()]) for case in cases)
        counts = [sum(case["other_draws_from"] is not None for case in cases), sum(not c["same_top"] for c in cases)]
        lines.append(f"{sampler:16} {len(cases):5} {largest:18.1e} {counts[0]:11} {counts[1]:9}")
    for name, case in found.items():
        if case["other_draws_from"] is not None:
            lines.append(f"{name}: {case['other_draws']} draws are others at step {case['other_draws_from']}")
        elif not is_equal(case):
            lines.append(f"{name}: {case['far']}, same top: {case['same_top']}")
    return "\n".join(lines)

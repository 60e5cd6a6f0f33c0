"""Write reports to disk: results/bench/<name>.json and its Markdown, each replaced atomically."""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from runner.kernels.target import target
from runner.options.settings import RunConfig
from runner.report.pages.bench_tables import document
from runner.report.pages.layout import to_markdown
from runner.training.files import write_atomically
from runner.training.run_folder import provenance

Size = TypeVar("Size")


def origin_of(config: RunConfig, threads: int) -> dict[str, Any]:
    """Return where a report's numbers come from: a run's provenance without the fields that only runs have."""
    import torch

    origin = provenance(config, threads, data_checksum="")
    kept = {key: value for key, value in origin.items() if key not in ("data_checksum", "run_id")}
    compiled_for = {"kernels": target().description, "torch": torch.backends.cpu.get_cpu_capability()}
    return {**kept, "compiled_for": compiled_for}


def write_report(
    path: Path,
    head: dict[str, Any],
    one_size: Callable[[Size], dict[str, Any]],
    *,
    sizes: Sequence[Size],
    config: RunConfig,
    threads: int,
    size_key: str = "classes",
) -> str:
    """Measure every size and return the Markdown. Write the report after each size, so that an aborted run keeps some.

    What was measured to its end has ``seconds``, those of the measurement. ``head``: the report's name, settings and
    notes. ``size_key``: the report's key for its sizes, where they are not
    numbers of classes.
    """
    origin, begin = origin_of(config, threads), time.perf_counter()
    path.parent.mkdir(parents=True, exist_ok=True)
    report = {**head, size_key: list(sizes), "provenance": origin, "sizes": []}
    text = ""
    for size in sizes:
        report["sizes"].append(one_size(size))
        if len(report["sizes"]) == len(sizes):
            report["seconds"] = round(time.perf_counter() - begin, 1)
        text = to_markdown(document(report))
        write_atomically(path, json.dumps(report, indent=1) + "\n")
        write_atomically(path.with_suffix(".md"), text)
    return text

"""Reports on disk: results/bench/<name>.json and its Markdown, replaced only by whole ones."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from runner.bench.render import render
from runner.config import RunConfig
from runner.run_folder import provenance, write_atomically


def origin_of(config: RunConfig, threads: int) -> dict[str, Any]:
    """Where a report's numbers come from: a run's provenance without what only a run has."""
    origin = provenance(config, threads, data_checksum="")
    return {key: value for key, value in origin.items() if key not in ("data_checksum", "run_id")}


def write_report(
    path: Path,
    head: dict[str, Any],
    one_size: Callable[[int], dict[str, Any]],
    *,
    classes: Sequence[int],
    config: RunConfig,
    threads: int,
) -> str:
    """Measure every number of classes and write the report after each, so that a long run's first ones are kept.

    ``head``: the report's name, settings and notes. Returns the Markdown.
    """
    origin = origin_of(config, threads)
    path.parent.mkdir(parents=True, exist_ok=True)
    report = {**head, "classes": list(classes), "provenance": origin, "sizes": []}
    text = ""
    for num_classes in classes:
        report["sizes"].append(one_size(num_classes))
        text = render(report)
        write_atomically(path, json.dumps(report, indent=1) + "\n")
        write_atomically(path.with_suffix(".md"), text)
    return text

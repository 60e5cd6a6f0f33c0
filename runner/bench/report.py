"""Measure what settings ask for, one size after the other, and write the report: JSON, Markdown, perhaps a figure."""

import importlib
import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from runner.bench.settings import Settings
from runner.config import compose
from runner.kernels.target import target
from runner.machine.threads import set_threads
from runner.options.settings import RunConfig
from runner.report.pages.bench_tables import document
from runner.report.pages.layout import to_markdown
from runner.training.files import write_atomically
from runner.training.run_folder import provenance

_OF_THE_MACHINE = ("hardware", "plugins")  # settings of the runner that a report's origin tells


def origin_of(config: RunConfig, threads: int) -> dict[str, Any]:
    """Return where a report's numbers come from: a run's provenance without the fields that only runs have."""
    import torch

    origin = provenance(config, threads, data_checksum="")
    kept = {key: value for key, value in origin.items() if key not in ("data_checksum", "run_id")}
    compiled_for = {"kernels": target().description, "torch": torch.backends.cpu.get_cpu_capability()}
    return {**kept, "compiled_for": compiled_for}


def measure(kind: str, settings: Settings, path: Path) -> str:
    """Measure every size, write ``path`` (JSON), its Markdown and its figure; return the Markdown and the paths.

    The report is written after each size, so that an aborted run keeps some. What was measured to its end has
    ``seconds``, those of the measurement. Raises ConfigError and DataNotPrepared.

    The module of a kind has ``one_size(size, settings)``, which returns a size's part of the report; ``NOTES``, or
    ``notes(settings)``; if something can be wrong that the settings do not show, ``check(settings)``; and if there is a
    figure, ``draw(report, stem)``, which returns its path or None.
    """
    module = importlib.import_module(f"runner.bench.{settings.module}")
    chosen = asdict(settings)
    config = compose([word for word in chosen.get("overrides", []) if word.startswith(_OF_THE_MACHINE)])
    threads = set_threads(settings.threads or config.hardware.threads)
    if hasattr(module, "check"):
        module.check(settings)
    notes = module.notes(settings) if hasattr(module, "notes") else module.NOTES
    report = {"name": kind, "kind": kind, "overrides": [], **chosen, "notes": notes}
    report |= {settings.size_key: [*settings.sizes], "provenance": origin_of(config, threads), "sizes": []}
    begin, text = time.perf_counter(), ""
    path.parent.mkdir(parents=True, exist_ok=True)
    for size in settings.sizes:
        report["sizes"].append(module.one_size(size, settings))
        if len(report["sizes"]) == len(settings.sizes):
            report["seconds"] = round(time.perf_counter() - begin, 1)
        text = to_markdown(document(report))
        write_atomically(path, json.dumps(report, indent=1) + "\n")
        write_atomically(path.with_suffix(".md"), text)
    picture = module.draw(report, path.with_suffix("")) if hasattr(module, "draw") else None
    return "\n".join([text, *([str(picture)] if picture else []), str(path)])

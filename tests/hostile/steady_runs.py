"""Runs of a tiny language model that are the same every time, clock and checkpoints included, and what they end with.

They start from nothing: the preparation of their data is a part of them.
"""

import itertools
import json
import types
from pathlib import Path
from typing import Any

import pytest
from hostile_runs import RATE, content, settings

from runner.options.settings import RunConfig
from runner.training import loop, run_folder

SECONDS = ("train_seconds", "stage_seconds")
TIMED = (*SECONDS, "warm_up_seconds", "peak_rss_mb", "units_per_second", "others_share", "stolen_share")


def make_steady(patch: pytest.MonkeyPatch, data: Path) -> None:
    """Let the loop's clock tick when it is read, prepare data in a folder, compile nothing, and ask git nothing."""
    ticks = itertools.count()
    patch.setattr(loop, "time", types.SimpleNamespace(perf_counter=lambda: float(next(ticks))))
    patch.setattr(loop, "warm_up", lambda config: None)
    patch.setattr(run_folder, "_git", lambda *arguments: None)
    patch.setenv("DATASETS_DIR", str(data))


def steady_run(sentences: Path, results: Path) -> RunConfig:
    """SGD keeps no moments, so that a checkpoint is of few files."""
    return settings(sentences, results, RATE, "optimizer=sgd", "checkpoint_every_seconds=20")


def bits(folder: Path) -> dict[str, Any]:
    """Return what a run says and keeps, without times."""
    summary = json.loads((folder / "summary.json").read_text())
    del summary["config"]["results_dir"]
    observed = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return {
        "summary": {key: value for key, value in summary.items() if key not in TIMED},
        "observed": [{key: value for key, value in entry.items() if key not in SECONDS} for entry in observed],
        "files": sorted(path.name for path in folder.iterdir()),
        "weights": content(folder / "weights"),
    }

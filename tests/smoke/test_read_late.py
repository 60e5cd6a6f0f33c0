"""Where steps begin before the loss of the one before is read, as on a GPU, results are those of reading at once."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runner.config import compose
from runner.errors import Diverged
from runner.heads.classes import ClassScores
from runner.options.settings import RunConfig
from runner.training import loop
from runner.training.run import run

SMALL = [
    "model.hidden=16", "batch_size=32", "optimizer.lr=0.02", "evaluation.rows=20", "evaluation.every_epochs=0.3",
    "max_steps=13", "sampler=uniform", "sampler.num_samples=10", "hardware.threads=1",
]  # fmt: skip

Configure = Callable[..., RunConfig]


@pytest.fixture
def configure(toy_folder: Path, own_data_dir: Path, tmp_path: Path) -> Configure:
    data = ["dataset=xmc", f"dataset.path={toy_folder}"]
    return lambda name, *more: compose([*data, f"results_dir={tmp_path / name}", *SMALL, *more])


def observed(config: RunConfig) -> list[dict[str, Any]]:
    """Return what a run observed, except seconds; and at last the means of its summary."""
    folder = run(config)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    summary = json.loads((folder / "summary.json").read_text())
    kept = ("steps", "candidates_per_row", "metrics")
    return [
        *({key: value for key, value in line.items() if "seconds" not in key} for line in lines),
        {key: summary[key] for key in kept},
    ]


def test_late_losses_are_those_of_their_steps(configure: Configure, monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = observed(configure("at_once"))
    assert len([line for line in at_once if line.get("kind") == "evaluation"]) > 2
    monkeypatch.setitem(loop.STEPS_AHEAD, "cpu", 1)
    assert observed(configure("late")) == at_once


def test_a_late_loss_that_is_lost_names_its_step(configure: Configure, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[float] = []

    def loss(scores: ClassScores) -> float:
        read.append(np.nan if len(read) == 2 else 1.0)
        return read[-1]

    monkeypatch.setitem(loop.STEPS_AHEAD, "cpu", 1)
    monkeypatch.setattr(ClassScores, "loss", property(loss))
    config = configure("late")
    with pytest.raises(Diverged, match="the loss became nan at step 3"):
        run(config)
    assert json.loads((config.run_dir / "summary.json").read_text())["status"] == "diverged"

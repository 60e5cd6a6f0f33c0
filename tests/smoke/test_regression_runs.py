"""Whole runs of linear and logistic regression under every sampler of examples and every optimizer."""

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runner.batch_samplers import BATCH_SAMPLERS
from runner.config import compose
from runner.optimizers import OPTIMIZERS
from runner.settings import RunConfig
from runner.tasks.regression import CompiledSteps
from runner.training import loop
from runner.training.run import run

MODELS = {
    "regression": ["model=regression", "dataset=diabetes"],
    "logistic": ["model=logistic", "dataset=diabetes", "dataset.threshold=140"],
}
RATE = {"sgd": "0.01", "adagrad": "0.1", "adam": "0.01"}
COMMON = ["epochs=2", "batch_size=4", "evaluation.every_epochs=0.5", "hardware.threads=1"]
# Tables and queries are brought up in the middle of epochs, and runs stop between two of these times.
OPTIONS = {
    "lgd": ["batch_sampler.L=10", "batch_sampler.query_every_steps=7", "batch_sampler.refresh_every_steps=11"],
    "lgd_strata": ["batch_sampler.K=3", "batch_sampler.norm_levels=2", "batch_sampler.refresh_every_steps=5"],
    "norm_oracle": ["batch_sampler.refresh_every_steps=5", "batch_sampler.uniform_share=0.1"],
}
Configure = Callable[..., RunConfig]


@pytest.fixture
def configure(own_data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Configure:
    """Compose a configuration; kernels are compiled by the first run itself, so no run warms them up."""
    monkeypatch.setattr(loop, "warm_up", lambda config: None)
    return lambda *words, place="results": compose([*COMMON, *words, f"results_dir={tmp_path / place}"])


def summary_of(folder: Path) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return summary


def weights_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "weights").rglob("*.npy"))}


# Every sampler under every optimizer with one of the models; the other half is slow.
PRODUCT = [
    pytest.param(model, sampler, optimizer, marks=[pytest.mark.slow] if (i + j + k) % 2 else [])
    for i, model in enumerate(sorted(MODELS))
    for j, sampler in enumerate(sorted(BATCH_SAMPLERS))
    for k, optimizer in enumerate(sorted(OPTIMIZERS))
]


@pytest.mark.parametrize(("model", "sampler", "optimizer"), PRODUCT)
def test_a_run_learns_and_resumes_with_the_same_bits(
    model: str, sampler: str, optimizer: str, configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [
        *MODELS[model], f"batch_sampler={sampler}", *OPTIONS.get(sampler, []),
        f"optimizer={optimizer}", f"optimizer.lr={RATE[optimizer]}",
    ]  # fmt: skip
    whole = run(configure(*words))
    summary = summary_of(whole)
    assert summary["status"] == "finished"
    metrics = summary["metrics"]
    keys = ("mse", "r2") if model == "regression" else ("accuracy", "loss")
    assert set(metrics) == {f"{split}/{key}" for split in ("train", "valid", "test") for key in keys}
    if model == "regression":
        assert metrics["test/r2"] > 0.3, "least squares reach about 0.5"
    else:
        assert metrics["test/accuracy"] > 0.65
        assert metrics["test/loss"] < np.log(2), "chance"
    needs_view = BATCH_SAMPLERS[sampler].needs_view
    assert (summary["stage_seconds"].get("build", 0) > 0) == needs_view
    assert sum(summary["stage_seconds"].values()) < summary["train_seconds"]

    config = configure(*words, place="stopped")
    real, stopped = CompiledSteps.take, [20, 95]

    def interrupted(self: CompiledSteps, first_step: int, steps: int) -> tuple[float, int, int]:
        if stopped and first_step + steps > stopped[0]:
            steps = stopped.pop(0) - first_step + 1
            signal.raise_signal(signal.SIGINT)
        return real(self, first_step, steps)

    with monkeypatch.context() as patch:
        patch.setattr(CompiledSteps, "take", interrupted)
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                run(config)
            assert summary_of(config.run_dir)["status"] == "interrupted"
    assert not stopped
    assert run(config) == config.run_dir
    assert summary_of(config.run_dir)["metrics"] == metrics
    assert weights_of(whole)
    assert weights_of(config.run_dir) == weights_of(whole)

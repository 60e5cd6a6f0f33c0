"""Whole runs of linear and logistic regression under every sampler of examples and every optimizer."""

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runner.config import compose
from runner.errors import ConfigError, Diverged
from runner.lgd import BATCH_SAMPLERS
from runner.lgd.task import CompiledSteps
from runner.optimizers import OPTIMIZERS
from runner.options.settings import RunConfig
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
        assert metrics["train/accuracy"] > 0.65, "44 test rows say little"
        assert metrics["test/loss"] < np.log(2), "chance"
    needs_view = BATCH_SAMPLERS[sampler].needs_view
    assert (summary["stage_seconds"]["build"] > 0) == needs_view
    assert sum(summary["stage_seconds"].values()) < summary["train_seconds"]

    config = configure(*words, place="stopped")
    real, stopped = CompiledSteps.take, [20, 95]

    def interrupted(self: CompiledSteps, first_step: int, steps: int, loss_sum: float = 0.0) -> tuple[float, int, int]:
        if stopped and first_step + steps > stopped[0]:
            steps = stopped.pop(0) - first_step + 1
            signal.raise_signal(signal.SIGINT)
        return real(self, first_step, steps, loss_sum)

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


@pytest.mark.parametrize("model", sorted(MODELS))
def test_a_table_of_ones_own(model: str, configure: Configure, tmp_path: Path) -> None:
    """A CSV with a header, whose response is exactly linear, is fitted exactly; classes are told apart."""
    generator = np.random.default_rng(0)
    x = generator.standard_normal((400, 2))
    y = 50 + 4 * x[:, 0] - 3 * x[:, 1]
    lines = [f"{a:.6f},{b:.6f},{c:.6f}" for (a, b), c in zip(x, y, strict=True)]
    (tmp_path / "mine.csv").write_text("\n".join(["left,right,y", *lines]) + "\n")
    words = [
        f"model={model}", "dataset=regression", f"dataset.path={tmp_path / 'mine.csv'}", "batch_sampler=lgd",
        "batch_sampler.L=500", "optimizer=sgd", "optimizer.lr=0.05", "epochs=30",
    ]  # fmt: skip
    if model == "logistic":
        words.append("dataset.threshold=50")
    metrics = summary_of(run(configure(*words)))["metrics"]
    if model == "regression":
        assert metrics["test/r2"] > 0.9999
        assert metrics["test/mse"] < 1e-4 * y.var()
    else:
        assert metrics["test/accuracy"] > 0.9


def test_one_thread_and_two_give_the_same_weights(configure: Configure) -> None:
    made = []
    for threads in (1, 2):
        words = [*MODELS["regression"], "batch_sampler=lgd", *OPTIONS["lgd"], "optimizer=adagrad"]
        folder = run(configure(*words, f"hardware.threads={threads}", place=f"{threads}"))
        made.append((summary_of(folder)["metrics"], weights_of(folder)))
    assert made[0] == made[1]


@pytest.mark.parametrize("sampler", sorted(BATCH_SAMPLERS))
@pytest.mark.parametrize("clip", [[], ["training.clip=1e30"]], ids=["compiled", "single steps"])
def test_too_large_a_rate_diverges(sampler: str, clip: list[str], configure: Configure) -> None:
    words = [*MODELS["regression"], f"batch_sampler={sampler}", *OPTIONS.get(sampler, []), *clip]
    config = configure(*words, "optimizer=sgd", "optimizer.lr=1e9")
    with pytest.raises(Diverged, match=r"loss became (inf|nan) at step \d+; try a smaller optimizer\.lr"):
        run(config)
    summary = summary_of(config.run_dir)
    assert summary["status"] == "diverged"
    assert "metrics" not in summary


@pytest.mark.parametrize(("words", "message"), [
    (["model=regression", "sampler=uniform"], "sampler.*model=regression"),
    (["model=logistic", "sampler=lsh_label"], "sampler.*model=logistic"),
    (["model=regression", "loss=full"], "loss.*model=regression"),
    (["dataset=wordnet_hypernym", "batch_sampler=lgd"], "batch_sampler=lgd .*batch_sampler=epoch"),
    (["dataset=wordnet_hypernym", "batch_sampler=lgd_strata"], "batch_sampler=lgd_strata .*batch_sampler=epoch"),
    (["dataset=ptb", "model=lstm", "batch_sampler=norm_oracle", "windows.cut=chunked"], "batch_sampler=norm_oracle"),
    (["dataset=ptb", "model=lstm", "batch_sampler=lgd"], "batch_sampler=lgd"),
    (["model=regression", "dataset=wordnet_hypernym"], "model=regression reads regression"),
    (["model=mlp", "dataset=diabetes"], "dataset=diabetes holds regression"),
])  # fmt: skip
def test_what_does_not_go_together_is_one_line(words: list[str], message: str, configure: Configure) -> None:
    with pytest.raises(ConfigError, match=message) as told:
        run(configure(*words))
    assert "\n" not in str(told.value)

"""Whole runs on sentence pairs go through the real entry point, with a tiny BERT of random weights."""

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_runs import numbers, observations, summary_of

from runner.config import compose
from runner.errors import ConfigError, Diverged
from runner.lgd import BATCH_SAMPLERS
from runner.lgd.pairs import encoder as pair_encoder
from runner.lgd.pairs import task as task_module
from runner.options.settings import RunConfig
from runner.training import loop
from runner.training.run import load_trained, run
from runner.training.run_folder import RunFolder

SMALL = ["model=bert", "model.max_length=40", "batch_size=8", "optimizer.lr=0.01", "hardware.threads=1"]
SAMPLERS = {
    "epoch": [],
    "uniform": [],
    "lgd": ["batch_sampler.K=3", "batch_sampler.L=8", "batch_sampler.refresh_every_steps=3"],
    "norm_oracle": ["batch_sampler.refresh_every_steps=2", "batch_sampler.uniform_share=0.2"],
}
Configure = Callable[..., RunConfig]
WritePairs = Callable[..., None]


@pytest.fixture
def configure(pairs_file: Path, tiny_bert: Path, own_data_dir: Path, tmp_path: Path) -> Configure:
    given = [f"dataset.path={pairs_file}", f"model.checkpoint={tiny_bert}", f"results_dir={tmp_path / 'results'}"]
    return lambda *more: compose([*SMALL, "dataset=pairs", *given, *more])


def test_every_sampler_of_examples_has_small_options() -> None:
    assert set(SAMPLERS) == {name for name, sampler in BATCH_SAMPLERS.items() if not sampler.needs_fixed_vectors}


def test_cells_that_are_made_once_are_refused(configure: Configure) -> None:
    with pytest.raises(ConfigError, match="batch_sampler=lgd_strata makes its cells once"):
        run(configure("batch_sampler=lgd_strata"))


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_few_steps(sampler: str, configure: Configure) -> None:
    config = configure(
        f"batch_sampler={sampler}", *SAMPLERS[sampler], "max_steps=7", "evaluation.every_epochs=0.5"
    )  # fmt: skip
    folder = run(config)
    summary = summary_of(folder)
    assert summary["status"] == "finished"
    assert summary["steps"] == 7
    assert folder.name.startswith("pairs-bert-full-")
    metrics = summary["metrics"]
    assert set(metrics) == {"test/accuracy", "test/loss", "valid/accuracy", "valid/loss"}
    assert all(0 <= metrics[f"{split}/accuracy"] <= 1 and metrics[f"{split}/loss"] > 0 for split in ("test", "valid"))
    evaluations = observations(folder, "evaluation")
    assert [line["step"] for line in evaluations] == [4, 7]
    assert all(set(metrics) <= set(line) for line in evaluations), "test metrics are recorded for curves"
    assert {key: summary["dataset"][key] for key in ("name", "num_train", "num_valid", "num_test", "num_classes")} == {
        "name": "pairs", "num_train": 49, "num_valid": 5, "num_test": 6, "num_classes": 2,
    }  # fmt: skip
    assert summary["dataset"]["encoder"] == "tiny-bert (2 layers, hidden size 16)"
    assert summary["dataset"]["largest_class_of_test"] >= 0.5
    assert summary["unit"] == "pair"
    assert summary["watched"] == "valid"
    assert summary["stage_seconds"]["build"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("choice", [
    "batch_sampler=epoch model.pooling=mean",
    "batch_sampler=epoch training.clip=1",
    "batch_sampler=lgd batch_sampler.K=1 batch_sampler.L=8 batch_sampler.refresh_every_steps=4",
])  # fmt: skip
def test_training_learns(choice: str, configure: Configure, write_pairs: WritePairs, tmp_path: Path) -> None:
    """A word of the second sentence tells the class."""
    path = tmp_path / "more.tsv"
    write_pairs(path, count=160)
    config = configure(*choice.split(), f"dataset.path={path}", "epochs=8", "evaluation.every_epochs=1")
    folder = run(config)
    metrics = summary_of(folder)["metrics"]
    assert metrics["test/accuracy"] >= 0.9
    assert metrics["test/loss"] < 0.4
    seen = [line["valid/accuracy"] for line in observations(folder, "evaluation")]
    assert metrics["valid/accuracy"] == max(seen), "the weights that were best in validation are measured"


def test_choices_never_see_the_test_pairs(configure: Configure, monkeypatch: pytest.MonkeyPatch) -> None:
    """With other test results, training stops at the same step and keeps the same weights."""
    options = ["epochs=5", "training.patience=2", "evaluation.every_epochs=1"]
    first = summary_of(run(configure(*options)))
    real = task_module.evaluate

    def turned(network: Any, batch: Any, split: str) -> dict[str, float]:
        metrics = real(network, batch, split)
        return {key: -value if split == "test" else value for key, value in metrics.items()}

    monkeypatch.setattr(task_module, "evaluate", turned)
    second = summary_of(run(configure(*options, "force=true")))
    assert second["selection"] == first["selection"]
    assert second["steps"] == first["steps"]
    assert second["metrics"]["valid/loss"] == first["metrics"]["valid/loss"]
    assert second["metrics"]["test/loss"] == -first["metrics"]["test/loss"]


# ---------------------------------------------------------------- stopping and resuming


@pytest.mark.parametrize("sampler", ["epoch", "lgd", "norm_oracle"])
def test_a_stopped_run_ends_with_the_same_numbers(
    sampler: str, configure: Configure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stops two steps after the hash tables were rebuilt, so their vectors are those of another step."""
    options = [f"batch_sampler={sampler}", *SAMPLERS[sampler], "max_steps=11", "model.dropout=0.2"]
    monkeypatch.setattr(loop, "warm_up", lambda config: None)
    whole = run(configure(*options, f"results_dir={tmp_path / 'whole'}"))
    real = loop.Network.train_step

    def interrupted(self: Any, batch: Any, step: int, clock: Any) -> Any:
        out = real(self, batch, step, clock)
        if step == 8:
            signal.raise_signal(signal.SIGINT)
        return out

    config = configure(*options)
    with monkeypatch.context() as patch:
        patch.setattr(loop.Network, "train_step", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(config)
    assert json.loads((config.run_dir / "summary.json").read_text())["status"] == "interrupted"
    resumed = run(config)
    assert numbers(resumed) == numbers(whole)


def test_trained_weights_are_found_again(configure: Configure) -> None:
    config = configure("max_steps=5", "keep_weights=true")
    folder = run(config)
    network, task, step = load_trained(config, RunFolder(folder))
    assert step == summary_of(folder)["selection"]["step"]
    again = task.evaluate_final(network)
    metrics = summary_of(folder)["metrics"]
    assert again == pytest.approx({key: metrics[key] for key in again}, rel=1e-9)


def test_the_same_numbers_whatever_is_around(configure: Configure, tmp_path: Path) -> None:
    """A run before it in the same process, and torch's generator, have no influence."""
    import torch

    first = numbers(run(configure("max_steps=4")))
    torch.manual_seed(5)
    run(configure("max_steps=3", "model.max_length=12", f"results_dir={tmp_path / 'other'}"))
    assert numbers(run(configure("max_steps=4", "force=true"))) == first


# ---------------------------------------------------------------- what cannot work


def test_rehearsals_load_no_checkpoint(configure: Configure, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair_encoder, "load_bert", lambda *_: pytest.fail("a checkpoint was loaded"))
    monkeypatch.setattr(pair_encoder, "HubTokenizer", lambda *_: pytest.fail("a vocabulary was loaded"))
    for sampler in ("epoch", "lgd"):
        loop.warm_up(configure(f"batch_sampler={sampler}", *SAMPLERS[sampler]))
    loop.warm_up(configure("model.pooling=mean", "diagnostics.every_epochs=1"))


def test_three_classes_are_trained_but_not_by_lgd(
    configure: Configure, write_pairs: WritePairs, tmp_path: Path
) -> None:
    path = tmp_path / "three.tsv"
    write_pairs(path, count=60, classes=3)
    for sampler in ("epoch", "norm_oracle"):
        config = configure(f"dataset.path={path}", f"batch_sampler={sampler}", *SAMPLERS[sampler], "max_steps=3")
        assert summary_of(run(config))["dataset"]["num_classes"] == 3
    with pytest.raises(ConfigError, match=r"needs two classes.*batch_sampler=uniform") as caught:
        run(configure(f"dataset.path={path}", "batch_sampler=lgd", *SAMPLERS["lgd"], "max_steps=3"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("more", "says"), [
    (["model.checkpoint=/nowhere/at/all"], "is not a folder"),
    (["model.max_length=41"], "exceeds the 40 positions"),
    (["dataset=wordnet_hypernym"], "models that read rows"),
    (["model=mlp"], "models that read pairs: bert"),
])  # fmt: skip
def test_mistakes_leave_no_run_folder_behind(more: list[str], says: str, configure: Configure) -> None:
    if more[0].startswith("dataset="):
        config = compose([*SMALL, *more])
    elif more == ["model=mlp"]:
        config = compose(["dataset=mrpc", "model=mlp"])
    else:
        config = configure(*more)
    with pytest.raises(ConfigError, match=says) as caught:
        run(config)
    assert "\n" not in str(caught.value)
    assert not (config.run_dir / "summary.json").exists()


def test_a_rate_that_is_far_too_high_diverges(configure: Configure) -> None:
    config = configure("optimizer=sgd", "optimizer.lr=1e30", "max_steps=4")
    with np.errstate(all="ignore"), pytest.raises(Diverged):
        run(config)
    assert json.loads((config.run_dir / "summary.json").read_text())["status"] == "diverged"

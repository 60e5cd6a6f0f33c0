"""What may go wrong when everything seems done, and combinations that can not work."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from runner.config import RunConfig, compose
from runner.contracts import TrainingFacts
from runner.errors import ConfigError, RunnerError
from runner.heads.classes import ClassesHead
from runner.network import Network
from runner.tasks import classification
from runner.training.run import run

SMALL = [
    "model.hidden=16", "batch_size=32", "optimizer.lr=0.02", "evaluation.rows=20", "evaluation.every_epochs=1",
    "hardware.threads=1",
]  # fmt: skip


@pytest.fixture
def configure(toy_folder: Path, own_data_dir: Path, tmp_path: Path) -> Callable[..., RunConfig]:
    data = ["dataset=xmc", f"dataset.path={toy_folder}", f"results_dir={tmp_path / 'results'}"]
    return lambda *more: compose([*data, *SMALL, *more])


@pytest.mark.parametrize("sampler", ["full", "uniform", "lsh_label"])
def test_a_last_step_that_blows_up_is_not_finished(sampler: str, configure: Callable[..., RunConfig]) -> None:
    """The loss is measured before the update, so the weights may be lost although every loss was finite."""
    config = configure(f"sampler={sampler}", "optimizer.lr=1e30", "max_steps=1")
    with np.errstate(all="ignore"), pytest.raises(RunnerError):
        run(config)
    summary = json.loads((config.run_dir / "summary.json").read_text())
    assert summary["status"] == "diverged"
    assert "metrics" not in summary


def test_an_interrupt_during_the_final_evaluation_keeps_the_training(
    configure: Callable[..., RunConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configure("sampler=uniform", "sampler.num_samples=5", "max_steps=7")
    real = classification.evaluate

    def interrupted(*arguments: object, label: str) -> dict[str, float]:
        if label == "final evaluation":
            raise KeyboardInterrupt
        return real(*arguments, label=label)  # type: ignore[arg-type]

    monkeypatch.setattr(classification, "evaluate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(config)
    assert [path.name for path in (config.run_dir / "checkpoint").glob("step-*")] == ["step-000000007"]


@pytest.mark.parametrize("choice", [
    ["sampler=topk", "sampler.num_nearest=10", "loss=nce"],
    ["sampler=topk", "sampler.num_nearest=10", "loss=sampled_softmax", "loss.correct_target=true"],
    ["sampler=lsh_embedding", "sampler.min_candidates=1", "sampler.K=6", "sampler.L=1", "loss=nce"],
    ["sampler=lsh_embedding", "sampler.min_candidates=1", "sampler.K=6", "sampler.L=1",
    "loss=sampled_softmax", "loss.correct_target=true"],
], ids=["topk-nce", "topk-corrected", "lsh-nce", "lsh-corrected"])  # fmt: skip
def test_a_target_that_can_not_be_drawn_is_trained_or_the_pair_is_refused(choice: list[str]) -> None:
    """A target outside the proposal has expected count 0: corrected by it, its logit is +inf and its gradient
    0 (nce) or not a number (softmax). Either the configuration says so, or targets get a gradient."""
    try:
        config = compose(["model.hidden=16", *choice])
    except ConfigError:
        return
    from runner.data.batches import RowBatch
    from runner.machine.clock import StageClock

    rows, classes = 20, 200
    targets = np.arange(rows, dtype=np.int32) * 9
    indptr = np.arange(rows + 1, dtype=np.int64)
    facts = TrainingFacts.one_label_a_row(np.ones(classes, dtype=np.int64))
    network = Network.of(config, ClassesHead.of(config, facts), num_features=rows)
    batch = RowBatch(indptr=indptr, indices=np.arange(rows, dtype=np.int32), values=np.ones(rows, np.float32),
                  target_indptr=indptr, targets=targets)  # fmt: skip
    loss = network.train_step(batch, 1, StageClock()).loss
    assert np.isfinite(loss)
    assert network.head.layer.table.bias_first is not None
    assert (network.head.layer.table.bias_first[targets, 0] < -1e-6).all(), "every target is pulled up"

"""Tests of failures at the very end of a run, and combinations that cannot work."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from runner.config import compose
from runner.contracts import TrainingFacts
from runner.data.rows.batches import RowBatch
from runner.errors import ConfigError, RunnerError
from runner.heads.classes import ClassesHead
from runner.machine.clock import StageClock
from runner.network import Network
from runner.options.settings import RunConfig
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


@pytest.mark.parametrize(("sampler", "lr", "steps"), [
    ("full", "1e30", 1), ("uniform", "1e30", 1), ("lsh_label", "1e30", 1), ("full", "1e9", 16), ("uniform", "1e9", 1),
])  # fmt: skip
def test_lost_weights_are_not_finished(sampler: str, lr: str, steps: int, configure: Callable[..., RunConfig]) -> None:
    """The loss is measured before the update, so the weights may be lost although every loss was finite.

    At a rate of 1e9 nothing overflows: losses of 1e18 are finite, but no difference of logits is left.
    """
    config = configure(f"sampler={sampler}", f"optimizer.lr={lr}", f"max_steps={steps}")
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


TOPK = ["sampler=topk", "sampler.num_nearest=10"]
LSH = ["sampler=lsh_embedding", "sampler.min_candidates=1", "sampler.K=6", "sampler.L=1"]
CORRECTED = ["loss=sampled_softmax", "loss.correct_target=true"]


@pytest.mark.parametrize("choice", [
    [*TOPK, "loss=nce"], [*TOPK, *CORRECTED], [*LSH, "loss=nce"], [*LSH, *CORRECTED],
    [*LSH, "loss=partition_estimate"],
], ids=["topk-nce", "topk-corrected", "lsh-nce", "lsh-corrected", "lsh-partition"])  # fmt: skip
def test_a_target_that_can_not_be_drawn_is_refused_where_the_loss_needs_its_count(choice: list[str]) -> None:
    """A target outside the proposal has expected count 0.

    Corrected by it, its logit is +inf, and its gradient is 0 (nce) or not a number (softmax).
    """
    with pytest.raises(ConfigError, match=r"can not draw them|loss=nce does not go with sampler=topk"):
        compose(["model.hidden=16", *choice])


@pytest.mark.parametrize("choice", [
    [*TOPK, "loss=sampled_softmax"], [*TOPK, "loss=active_set"], [*LSH, "loss=active_set"],
    [*LSH, "sampler.num_tail=1", "loss=nce"], [*LSH, "sampler.num_tail=1", *CORRECTED],
], ids=["topk-uncorrected", "topk-active", "lsh-active", "lsh-tail-nce", "lsh-tail-corrected"])  # fmt: skip
def test_the_way_out_trains_every_target(choice: list[str]) -> None:
    """After a step each target's bias has a gradient that pulls it up, whether or not it was a candidate."""
    rows, classes = 20, 200
    targets = np.arange(rows, dtype=np.int32) * 9
    indptr = np.arange(rows + 1, dtype=np.int64)
    config = compose(["model.hidden=16", *choice])
    facts = TrainingFacts.one_label_a_row(np.ones(classes, dtype=np.int64))
    network = Network.of(config, ClassesHead.of(config, facts), num_features=rows)
    batch = RowBatch(indptr=indptr, indices=np.arange(rows, dtype=np.int32), values=np.ones(rows, np.float32),
                  target_indptr=indptr, targets=targets)  # fmt: skip
    loss = network.train_step(batch, 1, StageClock()).loss
    assert np.isfinite(loss)
    assert network.head.layer.table.bias_first is not None
    assert (network.head.layer.table.bias_first[targets, 0] < -1e-6).all(), "every target is pulled up"

"""PyTorch's adaptive softmax as an output layer: probabilities by hand, steps against torch, whole runs of a text.

Legend: N classes, D hidden size, B rows of a batch.
"""

import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from runner.baselines.adaptive import AdaptiveHead, usual_cutoffs
from runner.config import check_model_reads_dataset, compose
from runner.data.text.batches import TextBatch
from runner.errors import ConfigError
from runner.generate import main as generate_main
from runner.machine.clock import StageClock
from runner.options.settings import OutputConfig, RunConfig
from runner.parts import task_class
from runner.report.numbers.records import RunRecord
from runner.tasks import LanguageModelling
from runner.training import loop
from runner.training.run import run

N, D, B = 40, 16, 12
CHOSEN = ["method=adaptive_softmax", "dataset=python_topics", f"model.hidden={D}", f"model.embedding={D}"]
COUNTS_N = np.random.default_rng(3).integers(0, 9, N)  # many ties, and no order

MODELS = {
    "lstm": ["model=lstm", "model.hidden=16", "model.embedding=16"],
    "transformer": ["model=transformer", "model.embedding=16", "model.heads=2", "model.feed_forward=24"],
}


def head_of(*words: str) -> AdaptiveHead:
    return AdaptiveHead(compose([*CHOSEN, *words]), COUNTS_N)


def hidden_of(rows: int = B) -> np.ndarray:
    return np.random.default_rng(1).standard_normal((rows, D)).astype(np.float32)


def batch_of(weight_B: np.ndarray | None = None) -> TextBatch:
    draw = np.random.default_rng(2)
    tokens_BT, targets_BT = draw.integers(0, N, (2, 3, B // 3)).astype(np.int32)
    return TextBatch(tokens_BT=tokens_BT, targets_BT=targets_BT, starts_anew=True, weight_B=weight_B)


def by_hand(head: AdaptiveHead, hidden_BD: np.ndarray) -> np.ndarray:
    """Return the probabilities of all classes, (B, N) float64, from the weights: head first, then band by band."""
    weights = {name: value.detach().numpy().astype(np.float64) for name, value in head.module.named_parameters()}
    hidden = hidden_BD.astype(np.float64)

    def softmax(logits: np.ndarray) -> np.ndarray:
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(powers / powers.sum(axis=1, keepdims=True))

    first = softmax(hidden @ weights["head.weight"].T + weights.get("head.bias", 0.0))
    bands = len(head.module.tail)
    kept = first.shape[1] - bands
    parts = [first[:, :kept]]
    for band in range(bands):
        inside = softmax(hidden @ weights[f"tail.{band}.0.weight"].T @ weights[f"tail.{band}.1.weight"].T)
        parts.append(first[:, kept + band, None] * inside)
    by_frequency = sorted(range(N), key=lambda number: (-COUNTS_N[number], number))
    out = np.empty((len(hidden), N))
    out[:, by_frequency] = np.concatenate(parts, axis=1)
    return out


# ---------------------------------------------------------------- probabilities


@pytest.mark.parametrize("words", [[], ["output.bias=false"], ["output.cutoffs=[5,12,30]", "output.div_value=2"]])
def test_probabilities_are_those_of_the_bands_and_sum_to_one(words: list[str]) -> None:
    head, hidden_BD = head_of(*words), hidden_of()
    with torch.no_grad():
        for parameter in head.module.parameters():
            parameter.mul_(3)  # the untrained softmax is nearly flat
    probabilities = np.exp(head.log_probabilities(hidden_BD).astype(np.float64))
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(probabilities, by_hand(head, hidden_BD), rtol=1e-4)
    for target in range(N):
        losses_B = head.cross_entropy(hidden_BD, np.full(B, target, dtype=np.int32))
        np.testing.assert_allclose(losses_B, -np.log(probabilities[:, target]), rtol=1e-4)


def test_the_head_holds_the_most_frequent_classes() -> None:
    head = head_of("output.cutoffs=[7]")
    best = np.sort(COUNTS_N)[::-1]
    np.testing.assert_array_equal(COUNTS_N[np.argsort(head.rank_N)], best)
    assert head.module.head.weight.shape == (7 + 1, D)


@pytest.mark.parametrize(("classes", "dim", "cutoffs"), [
    (2, 100, [1]), (3, 100, [1, 2]), (10, 100, [1, 5]), (3316, 100, [332, 1658]), (3316, 16, [332, 1658]),
    (3316, 15, [332]),
])  # fmt: skip
def test_usual_cutoffs(classes: int, dim: int, cutoffs: list[int]) -> None:
    assert usual_cutoffs(classes, dim, 4.0) == cutoffs


# ---------------------------------------------------------------- a step


@pytest.mark.parametrize("weighted", [False, True])
def test_a_step_is_torchs(weighted: bool) -> None:
    head, hidden_BD = head_of("optimizer.lr=0.01"), hidden_of()
    weight_B = np.random.default_rng(4).random(B).astype(np.float32) if weighted else None
    batch = batch_of(weight_B)
    twin = nn.AdaptiveLogSoftmaxWithLoss(D, N, head.module.cutoffs[:-1], div_value=4.0, head_bias=True)
    twin.load_state_dict({name: value.clone() for name, value in head.module.state_dict().items()})
    adam = torch.optim.Adam(twin.parameters(), lr=0.01)
    hidden = torch.from_numpy(hidden_BD.copy()).requires_grad_()
    losses_B = -twin(hidden, torch.from_numpy(head.rank_N[batch.targets])).output
    loss = losses_B.mean() if weight_B is None else (losses_B * torch.from_numpy(weight_B)).sum()
    loss.backward()
    adam.step()

    scores = head.score(hidden_BD, batch, 1, StageClock())
    assert scores.loss == pytest.approx(float(loss.detach()), rel=1e-5)
    grad_hidden_BD = scores.update()
    assert hidden.grad is not None
    np.testing.assert_allclose(grad_hidden_BD, hidden.grad.numpy(), rtol=1e-4, atol=1e-7)
    for ours, torchs in zip(head.module.parameters(), twin.parameters(), strict=True):
        np.testing.assert_allclose(ours.detach().numpy(), torchs.detach().numpy(), atol=2e-5)


def test_candidates_are_the_logits_that_a_row_needs() -> None:
    head, batch = head_of("output.cutoffs=[5,12]"), batch_of()
    expected = [7 if rank < 5 else 7 + 7 if rank < 12 else 7 + 28 for rank in head.rank_N[batch.targets]]
    scores = head.score(hidden_of(), batch, 1, StageClock())
    assert scores.candidates_per_row == pytest.approx(np.mean(expected))


def test_the_state_holds_all_weights() -> None:
    head, other = head_of(), head_of("seed=1")
    head.score(hidden_of(), batch_of(), 1, StageClock()).update()
    other.load_state_dict({name: array.copy() for name, array in head.state_dict().items()})
    np.testing.assert_array_equal(head.log_probabilities(hidden_of()), other.log_probabilities(hidden_of()))
    for number, one in enumerate((head, other), 2):
        assert one.is_sound(hidden_of()), number
        one.score(hidden_of(), batch_of(), 2, StageClock()).update()
    np.testing.assert_array_equal(head.log_probabilities(hidden_of()), other.log_probabilities(hidden_of()))


def test_lost_weights_are_not_sound() -> None:
    head = head_of()
    head.parameters.table.weights[0, 0] = np.nan
    assert not head.is_sound(hidden_of())


# ---------------------------------------------------------------- runs


def config_of(text_folder: Path, place: Path, *words: str, model: str = "lstm") -> RunConfig:
    return compose([
        "method=adaptive_softmax", "dataset=text", f"dataset.path={text_folder}", *MODELS[model], "batch_size=4",
        "windows.length=8", "optimizer.lr=0.02", "evaluation.every_epochs=0.5", "hardware.threads=1",
        f"results_dir={place}", *words,
    ])  # fmt: skip


def numbers(folder: Path) -> list[Any]:
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [{key: value for key, value in line.items() if "seconds" not in key} for line in lines]


@pytest.mark.usefixtures("own_data_dir")
@pytest.mark.parametrize("model", ["lstm", pytest.param("transformer", marks=pytest.mark.slow)])
def test_a_run_learns_and_says_its_bands(model: str, text_folder: Path, tmp_path: Path) -> None:
    config = config_of(text_folder, tmp_path, "epochs=12", "model.dropout=0", model=model)
    folder = run(config)
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["status"] == "finished"
    assert summary["metrics"]["test/ppl"] < 30  # of 62 words
    assert summary["cutoffs"] == [6, 31]
    assert 0 < summary["candidates_per_row"] < 62
    assert config.method_name in config.run_id
    assert RunRecord(folder).method_name == "adaptive_softmax"


@pytest.mark.usefixtures("own_data_dir")
def test_resumed_with_the_same_bits(text_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["epochs=3", "model.dropout=0.3", "training.decay=0.1", "training.clip=1"]
    whole = numbers(run(config_of(text_folder, tmp_path / "whole", *words)))
    real, calls = LanguageModelling.evaluate_subset, []

    def interrupted(self: LanguageModelling, network: Any) -> dict[str, Any]:
        calls.append(1)
        if len(calls) == 3:
            signal.raise_signal(signal.SIGINT)
        return real(self, network)

    config = config_of(text_folder, tmp_path / "parts", *words)
    with monkeypatch.context() as patch:
        patch.setattr(loop, "warm_up", lambda config: None)
        patch.setattr(LanguageModelling, "evaluate_subset", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(config)
    assert list((config.run_dir / "checkpoint").glob("step-*"))
    assert numbers(run(config)) == whole


@pytest.mark.usefixtures("own_data_dir")
def test_generate_says_why_it_cannot(
    text_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run(config_of(text_folder, tmp_path, "epochs=1", "keep_weights=true"))
    monkeypatch.setattr("sys.argv", ["generate", str(folder)])
    assert generate_main() == 2
    assert "its output layer is adaptive_softmax" in capsys.readouterr().err


# ---------------------------------------------------------------- settings


@pytest.mark.parametrize(("words", "says"), [
    (["dataset=python_topics", "output.kind=adaptive"], "add '~sampler' '~loss', or take method=adaptive_softmax"),
    ([*CHOSEN, "model.tied=true"], "set model.tied=false"),
    ([*CHOSEN, "output.normalize=true"], "leave output.normalize out"),
    ([*CHOSEN, "output.cutoffs=[5,3]"], "output.cutoffs must be null or ascending"),
    ([*CHOSEN, "output.cutoffs=[]"], "output.cutoffs must be null or"),
    ([*CHOSEN, "output.div_value=0.5"], r"output.div_value must lie in \[1, 1000\]"),
    (["output.div_value=2"], "output.div_value has no effect unless output.kind=adaptive"),
    (["~sampler", "~loss", "output.kind=adaptive"], "output.kind=adaptive is for texts"),
    ([*CHOSEN, "diagnostics.every_epochs=1"], "diagnostics has no effect"),
])  # fmt: skip
def test_mistakes_are_one_line(words: list[str], says: str) -> None:
    with pytest.raises(ConfigError, match=says) as error:
        check_model_reads_dataset(compose(words))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("cutoffs", "says"), [
    ("[5,40]", "the last must be below the 40 classes"),
    ("[5,6,7]", "leaves the last band no dimension"),
])  # fmt: skip
def test_cutoffs_that_do_not_fit_the_data_are_one_line(cutoffs: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        head_of(f"output.cutoffs={cutoffs}")


def test_other_runs_keep_their_ids() -> None:
    """Keys that change nothing are not part of a run's identity."""
    config = compose(["sampler=full", "output.normalize=true"])
    assert config.identity["output"] == {"normalize": True}
    assert "output" not in compose(["sampler=full"]).identity
    assert compose(CHOSEN).as_dict()["output"] == {**vars(OutputConfig()), "kind": "adaptive"}
    assert task_class(compose(CHOSEN)) is not task_class(compose(["dataset=python_topics"]))

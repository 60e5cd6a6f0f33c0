"""Whole runs of language models go through the real entry point, on a text of 61 words that can be learnt."""

import itertools
import json
import math
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_runs import FEW, OPTIONS, numbers, observations, summary_of

from runner import diagnose, generate
from runner.config import compose
from runner.errors import ConfigError, DataError, Diverged, RunnerError
from runner.options.settings import RunConfig
from runner.parts import MODELS
from runner.tasks import LanguageModelling
from runner.training import loop
from runner.training.run import load_trained, run
from runner.training.run_folder import RunFolder

MODEL = {
    "lstm": ["model=lstm", "model.hidden=16", "model.embedding=16"],
    "transformer": ["model=transformer", "model.embedding=16", "model.heads=2", "model.feed_forward=24"],
}
SMALL = ["batch_size=4", "windows.length=8", "optimizer.lr=0.02", "evaluation.every_epochs=0.5", "hardware.threads=1"]

WORDS = 60  # of the text that ``write_text`` writes

WriteText = Callable[..., None]
Configure = Callable[..., RunConfig]


@pytest.fixture
def configure(text_folder: Path, own_data_dir: Path, tmp_path: Path) -> Configure:
    data = ["dataset=text", f"dataset.path={text_folder}", f"results_dir={tmp_path / 'results'}", *SMALL]
    return lambda *more: compose([*data, *MODEL["lstm"], *more])


# ---------------------------------------------------------------- every sampler and model


def test_every_text_model_has_small_options() -> None:
    assert set(MODEL) == {name for name, model in MODELS.items() if model.reads == "text"}


# Every sampler under one model and every model under a few samplers, which see of a model its hidden states alone.
PRODUCT = [
    (sampler, model) for model in sorted(MODEL) for sampler in sorted(OPTIONS) if model == "lstm" or sampler in FEW
]


@pytest.mark.parametrize(("sampler", "model"), PRODUCT)
def test_a_few_steps(sampler: str, model: str, text_folder: Path, own_data_dir: Path, tmp_path: Path) -> None:
    config = compose([
        "dataset=text", f"dataset.path={text_folder}", f"results_dir={tmp_path}", *SMALL, *MODEL[model],
        f"sampler={sampler}", *OPTIONS[sampler], "max_steps=4",
    ])  # fmt: skip
    folder = run(config)
    summary = summary_of(folder)
    assert summary["status"] == "finished"
    assert summary["config"] == json.loads(json.dumps(config.as_dict()))
    assert summary["steps"] == 4
    metrics = summary["metrics"]
    assert set(metrics) == {"test/ppl", "valid/ppl", "train/ppl"}
    assert all(1 < value < 200 for value in metrics.values())
    assert summary["units_per_second"] > 0
    assert summary["selection"]["step"] == 4
    assert summary["dataset"]["num_classes"] == 62
    (evaluation,) = observations(folder, "evaluation")
    assert evaluation["valid/ppl"] == pytest.approx(metrics["valid/ppl"], rel=1e-9)
    assert evaluation["lr"] == 0.02
    assert len(observations(folder, "distribution")) == 3
    assert not (folder / "best").exists()
    assert not (folder / "checkpoint").exists()


@pytest.mark.parametrize("choice", [
    pytest.param("model.tied=false", marks=pytest.mark.slow),
    "model.tied=false optimizer.rows=touched training.clip=1",
    pytest.param("windows.cut=chunked", marks=pytest.mark.slow),
    pytest.param("optimizer=sgd optimizer.lr=20 training.clip=1 training.anneal=0.25 model.init=0.1",
                 marks=pytest.mark.slow),
    pytest.param("output.normalize=true sampler=rff sampler.num_samples=20 sampler.D=32", marks=pytest.mark.slow),
    "sampler=uniform sampler.num_samples=20 sampler.shared=false",
    pytest.param("sampler=uniform sampler.num_samples=20", marks=pytest.mark.slow),
    pytest.param("sampler=unigram loss=nce sampler.num_samples=30", marks=pytest.mark.slow),
    "model=transformer model.embedding=16 model.heads=2",
])  # fmt: skip
def test_training_learns(choice: str, configure: Configure) -> None:
    """Unigram frequencies have a perplexity near 55, and the best prediction of the next word one near 4."""
    arguments = ["sampler=full", *choice.split(), "epochs=16", "evaluation.every_epochs=1", "model.dropout=0.1"]
    if "model=transformer" in choice:
        arguments = [*MODEL["transformer"], "sampler=full", "epochs=12", "model.dropout=0.1"]
        config = compose([
            *(f"{key}={value}" for key, value in (("dataset", "text"), ("dataset.path", configure().dataset.path))),
            f"results_dir={configure().results_dir}", *SMALL, *arguments,
        ])  # fmt: skip
    else:
        config = configure(*arguments)
    folder = run(config)
    assert summary_of(folder)["metrics"]["test/ppl"] < 30
    perplexities = [line["valid/ppl"] for line in observations(folder, "evaluation")]
    assert min(perplexities) == pytest.approx(summary_of(folder)["metrics"]["valid/ppl"], rel=1e-6)


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_rows_train_with_sgd_and_clipping_too(
    optimizer: str, toy_folder: Path, own_data_dir: Path, tmp_path: Path
) -> None:
    """Extreme classification is tested too, because its encoder and full softmax update in their own ways."""
    lr = {"adam": 0.02, "sgd": 5}[optimizer]
    losses = []
    for sampler in ("full", "uniform"):
        config = compose([
            "dataset=xmc", f"dataset.path={toy_folder}", f"results_dir={tmp_path}", "model.hidden=16", "batch_size=32",
            f"optimizer={optimizer}", f"optimizer.lr={lr}", "training.clip=2", f"sampler={sampler}", "epochs=8",
            *OPTIONS[sampler], "evaluation.every_epochs=1", "hardware.threads=1",
        ])  # fmt: skip
        folder = run(config)
        losses = [line["loss"] for line in observations(folder, "evaluation")]
        assert losses[-1] < 0.95 * losses[0]
        assert "selection" not in summary_of(folder)


# ---------------------------------------------------------------- validation decides


def test_the_best_weights_are_measured_and_training_stops(configure: Configure) -> None:
    """The rate is far too high, so perplexity rises after a few epochs."""
    config = configure(
        "sampler=uniform", "sampler.num_samples=20", "epochs=40", "training.patience=2", "training.decay=0.9",
        "optimizer.lr=0.1", "evaluation.every_epochs=1", "diagnostics.every_epochs=50", "diagnostics.rows=8",
    )  # fmt: skip
    folder = run(config)
    summary = summary_of(folder)
    perplexities = [line["valid/ppl"] for line in observations(folder, "evaluation")]
    best = int(np.argmin(perplexities)) + 1
    assert len(perplexities) == best + 2 == summary["epochs"] < 40
    assert summary["selection"] == {
        "step": best * summary["steps"] // summary["epochs"], "epoch": best, "stopped_early": True,
        "lr": pytest.approx(0.1 * (1 - 0.1 * (best - 1) / 39)),
    }  # fmt: skip
    assert summary["diagnostics"]["step"] == summary["steps"], "the end is measured wherever it is"
    assert summary["metrics"]["valid/ppl"] == pytest.approx(min(perplexities), rel=1e-9)
    network, task, step = load_trained(config, RunFolder(folder))
    assert step == summary["selection"]["step"]
    again = task.evaluate_final(network)
    assert again == pytest.approx({key: summary["metrics"][key] for key in again}, rel=1e-9)


@pytest.mark.parametrize("cut", ["contiguous", "chunked"])
def test_tokens_are_counted_one_by_one(cut: str, configure: Configure) -> None:
    """The last batch of an epoch may be a smaller one."""
    config = configure("sampler=full", f"windows.cut={cut}", "batch_size=7", "epochs=2")
    summary = summary_of(run(config))
    task = LanguageModelling(config, config.dataset.build())
    sampler = config.batch_sampler.build(examples=task.examples, batch_size=7, seed=config.seed)
    draws = [sampler.draw(step) for step in range(1, summary["steps"] // 2 + 1)]
    trained = 2 * sum(task.batch(draw).num_rows for draw in draws)
    assert summary["units_per_second"] * summary["train_seconds"] == pytest.approx(trained)
    assert trained == 2 * task.rows_per_epoch


def test_weights_of_a_checkpoint_are_brought_up_to_date(configure: Configure, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that no step touched lately lag; a checkpoint that is measured has them where dense Adam would have them.

    The rate of the missed steps is that of their epoch, here far from the first one.
    """
    config = configure(
        "sampler=uniform", "sampler.num_samples=5", "model.tied=false", "optimizer.rows=catch_up", "windows.length=30",
        "epochs=2", "evaluation.every_epochs=1", "training.decay=0.1",
    )  # fmt: skip
    states: list[dict[str, np.ndarray]] = []
    real = loop.Network.train_step

    def interrupted(self: Any, batch: Any, step: int, clock: Any) -> Any:
        out = real(self, batch, step, clock)
        if step == 16:
            states.append({name: array.copy() for name, array in self.state_dict().items()})
            signal.raise_signal(signal.SIGINT)
        return out

    with monkeypatch.context() as patch:
        patch.setattr(loop, "warm_up", lambda config: None)
        patch.setattr(loop.Network, "train_step", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(config)
    network, task, step = load_trained(config, RunFolder(config.run_dir))
    assert task.training.steps_per_epoch < step == 16, "the second epoch has begun"
    whole = loop.Network.of(config, task.build_head(), num_features=task.num_features)
    whole.load_state_dict(states[0])
    whole.set_lr(0.1 * config.optimizer.lr)
    lagging = whole.head.layer.table.weights.copy()
    whole.read_all(17)
    assert not np.array_equal(lagging, whole.head.layer.table.weights)
    assert np.array_equal(network.head.layer.table.weights, whole.head.layer.table.weights)
    assert np.array_equal(network.encoder.words.weights, whole.encoder.words.weights)


def test_the_rate_falls_when_validation_does_not_improve(configure: Configure) -> None:
    config = configure(
        "sampler=full", "epochs=9", "training.anneal=0.25", "optimizer.lr=0.1", "evaluation.every_epochs=1"
    )
    seen = observations(run(config), "evaluation")
    best, lr = math.inf, 0.1
    for line in seen:
        assert line["lr"] == pytest.approx(lr)
        if line["valid/ppl"] >= best:
            lr *= 0.25
        best = min(best, line["valid/ppl"])
    assert lr < 0.1, "the test would say nothing"


def test_the_rate_decays_to_its_last_share(configure: Configure) -> None:
    config = configure(
        "sampler=full", "epochs=5", "training.decay=0.2", "optimizer.lr=0.1", "evaluation.every_epochs=1"
    )
    seen = [line["lr"] for line in observations(run(config), "evaluation")]
    assert seen == pytest.approx([0.1, 0.08, 0.06, 0.04, 0.02])


RESUMED = [
    "sampler=full training.anneal=0.5 optimizer.lr=0.1 training.decay=0.1",
    "sampler=midx_rq sampler.num_samples=20 sampler.codewords=4",
    "sampler=uniform sampler.num_samples=20 sampler.shared=false model.tied=false windows.cut=chunked",
    "sampler=unigram sampler.num_samples=20 optimizer.rows=catch_up training.decay=0.1",
    "sampler=full optimizer=sgd optimizer.lr=5 training.clip=0.25",
    "sampler=log_uniform sampler.num_samples=20 hardware.engine=torch training.decay=0.1",
]
CALLS = (3, 8)


@pytest.mark.parametrize(("call", "choice"), [
    pytest.param(call, choice, marks=[] if index in (1, 5) and CALLS[index % 2] == call else pytest.mark.slow)
    for index, choice in enumerate(RESUMED)
    for call in CALLS
])  # fmt: skip
def test_resumed_with_the_same_bits(
    call: int, choice: str, configure: Configure, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Runs are interrupted at an evaluation within an epoch and at one at its end."""
    arguments = [*choice.split(), "epochs=6", "model.dropout=0.3", "training.patience=4"]
    whole = numbers(run(configure(*arguments, f"results_dir={tmp_path / 'whole'}")))
    real, calls = LanguageModelling.evaluate_subset, []

    def interrupted(self: LanguageModelling, network: Any) -> dict[str, Any]:
        calls.append(1)
        if len(calls) == call:
            signal.raise_signal(signal.SIGINT)
        return real(self, network)

    config = configure(*arguments)
    with monkeypatch.context() as patch:
        patch.setattr(loop, "warm_up", lambda config: None)
        patch.setattr(LanguageModelling, "evaluate_subset", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(config)
    assert list((config.run_dir / "checkpoint").glob("step-*"))
    assert numbers(run(config)) == whole


# ---------------------------------------------------------------- what goes wrong


@pytest.mark.parametrize("arguments", [["model=mlp", "dataset=ptb"], ["model=lstm", "dataset=wordnet_hypernym"]])
def test_models_and_data_that_do_not_go_together(arguments: list[str], tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"dataset=\w+ holds \w+, but model=\w+ reads \w+; models that read \w+: \w+(, \w+)+$"
    ):
        run(compose([*arguments, f"results_dir={tmp_path}"]))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("key", ["anneal=0.5", "patience=3"])
def test_rows_have_no_validation_set(key: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"needs a validation set, but dataset=wordnet_hypernym has none"):
        run(compose([f"training.{key}", f"results_dir={tmp_path}"]))


def test_rows_have_no_windows(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match="windows has no effect on training model=mlp on dataset=wordnet_hypernym, which holds rows"
    ):
        run(compose(["windows.length=9", f"results_dir={tmp_path}"]))


@pytest.mark.parametrize("split", ["valid", "test"])
def test_a_text_with_nothing_to_predict(split: str, write_text: WriteText, own_data_dir: Path, tmp_path: Path) -> None:
    """The error comes before training, not after it."""
    write_text(tmp_path, lines={"train": 150, "valid": 30, "test": 30})
    (tmp_path / f"{split}.txt").write_text("\n")
    data = ["dataset=text", f"dataset.path={tmp_path}", f"results_dir={tmp_path / 'results'}"]
    with pytest.raises(DataError):
        run(compose([*data, *SMALL, *MODEL["lstm"], "sampler=full"]))


def test_a_text_too_short_for_a_batch(configure: Configure) -> None:
    with pytest.raises(ConfigError, match=r"make batch_size or windows\.length smaller"):
        run(configure("batch_size=500"))


@pytest.mark.parametrize(
    "choice", ["sampler=full", "sampler=uniform sampler.num_samples=20", "optimizer=sgd training.clip=1e30"]
)
def test_a_run_that_blows_up_is_diverged(choice: str, configure: Configure) -> None:
    config = configure(*choice.split(), "optimizer.lr=1e30", "epochs=3")
    with np.errstate(all="ignore"), pytest.raises(RunnerError) as caught:
        run(config)
    assert isinstance(caught.value, Diverged)
    summary = summary_of(config.run_dir)
    assert summary["status"] == "diverged"
    assert "metrics" not in summary


def test_windows_are_part_of_what_names_a_text_run_only(configure: Configure) -> None:
    assert configure("windows.length=9").run_id != configure().run_id
    assert configure("windows.cut=chunked").run_id != configure().run_id
    assert configure("training.clip=1").run_id != configure().run_id
    assert compose(["windows.length=9"]).run_id == compose([]).run_id
    assert compose(["training.clip=1"]).run_id != compose([]).run_id


# ---------------------------------------------------------------- diagnosis


@pytest.mark.slow
def test_diagnostics_and_diagnosis(
    configure: Configure, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run(configure("sampler=uniform", "sampler.num_samples=20", "epochs=2", "diagnostics.every_epochs=1",
                           "diagnostics.rows=12", "diagnostics.draws=3"))  # fmt: skip
    measured = observations(folder, "diagnostics")
    assert [line["epoch"] for line in measured] == [1, 2]
    assert all(line["rows"] == 16 for line in measured), "whole windows of 8 tokens"
    monkeypatch.setattr(
        "sys.argv", ["diagnose", str(folder), "--sampler", "uniform", "exact", "--rows", "12", "--draws", "2"]
    )
    assert diagnose.main() == 0
    assert "exact" in capsys.readouterr().out


# ---------------------------------------------------------------- generating


@pytest.mark.parametrize("model", ["lstm", pytest.param("transformer", marks=pytest.mark.slow)])
def test_generated_text_follows_the_training_text(
    model: str, text_folder: Path, own_data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    folder = run(compose([
        "dataset=text", f"dataset.path={text_folder}", f"results_dir={tmp_path}", *SMALL, *MODEL[model],
        "sampler=full", "epochs=15", "model.dropout=0",
    ]))  # fmt: skip
    capsys.readouterr()

    def texts(*more: str) -> tuple[list[str], str]:
        monkeypatch.setattr("sys.argv", ["generate", str(folder), "--words", "150", *more])
        assert generate.main() == 0
        out, err = capsys.readouterr()
        return out.split("\n"), err

    for more in (["--texts", "1000000000"], ["--texts", str(10**9), "--by", "gumbel"], ["--words", "9" * 30]):
        monkeypatch.setattr("sys.argv", ["generate", str(folder), *more])
        assert generate.main() == 2
        assert " GiB of memory, of which " in capsys.readouterr().err
    for by in ("exact", "gumbel"):
        lines, err = texts("--prompt", "w5 w38 nobody", "--by", by)
        assert lines[0].startswith("w5 w38 nobody")
        assert "read as <unk>: nobody" in err
        assert "a second" in err
        assert "the run is" not in err
        assert texts("--prompt", "w5 w38 nobody", "--by", by)[0] == lines
        assert texts("--prompt", "w5 w38 nobody", "--by", by, "--seed", "1")[0] != lines
        steps, right = 0, 0
        for line in lines[1:]:
            ids = [int(word[1:]) for word in line.split() if word != "<unk>"]
            for one, other in itertools.pairwise(ids):
                steps += 1
                right += (other - 7 * one - 3) % WORDS in (0, 1)
        assert steps > 30
        assert right > 0.4 * steps, "by chance 1 in 30"
    assert len(texts("--texts", "2")[0]) > 3
    assert [line for line in texts("--texts", "2")[0] if line.startswith("---")] == [
        "--- text 1 of 2",
        "--- text 2 of 2",
    ]
    assert texts("--prompt", "w5\nw38")[0][0] == "w5"
    assert texts("--prompt", "w5\nw38")[0][1].startswith("w38")


def test_ends_of_sentences_are_line_ends() -> None:
    assert generate._written(["a", "<eos>", "<eos>", "b", "c", "<eos>"]) == "a\n\nb c"


def test_what_can_not_be_generated_from(
    configure: Configure, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    kept = run(configure("sampler=uniform", "sampler.num_samples=5", "max_steps=2", "loss=absolute_softmax"))
    lost = run(configure("sampler=uniform", "sampler.num_samples=5", "max_steps=1", "keep_weights=false"))
    for arguments, says in [
        ([kept], "trains the softmax of the logits"), ([lost], "weights were not kept"),
        ([tmp_path], "is not a run folder"), ([kept, "--words", "0"], "--words must be at least 1"),
    ]:  # fmt: skip
        capsys.readouterr()
        monkeypatch.setattr("sys.argv", ["generate", *map(str, arguments)])
        assert generate.main() == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("error: ")
        assert err.count("\n") == 1
        assert says in err

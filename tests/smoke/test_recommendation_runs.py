"""Whole runs of sequential recommendation through the real entry point, on a small generated log that can be learnt."""

import json
import math
import os
import re
import runpy
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_runs import OPTIONS, numbers, observations, start, summary_of, wait_for_checkpoint

from runner.config import CONF, compose, forget_failures
from runner.errors import ConfigError, Diverged, RunnerError
from runner.options.settings import RunConfig
from runner.output.losses import LOSSES
from runner.parts import MODELS, task_of
from runner.samplers import SAMPLERS
from runner.tasks import Recommendation
from runner.training import compilation, loop
from runner.training.run import load_trained, run
from runner.training.run_folder import RunFolder

LOG = ["dataset=synthetic_log", "dataset.num_users=150", "dataset.num_items=80", "dataset.mean_length=14"]
SMALL = ["batch_size=16", "optimizer.lr=0.01", "hardware.threads=1"]
SIZES = ["model.embedding=16", "model.length=8", "model.dropout=0.1"]
MODEL = {
    "sasrec": ["model=sasrec", *SIZES, "model.feed_forward=16", "model.layers=1"],
    "gru4rec": ["model=gru4rec", *SIZES, "model.hidden=16"],
}
BASELINES = ["item_knn", "markov", "popularity"]
MEASURES = {f"{key}@{k}" for key in ("ndcg", "recall", "mrr") for k in (10, 20, 50)}
METRICS = {f"{split}/{measure}" for split in ("valid", "test") for measure in MEASURES}

Configure = Callable[..., RunConfig]


@pytest.fixture
def configure(own_data_dir: Path, tmp_path: Path) -> Configure:
    """Compose a run of one of the models or baselines."""

    def made(model: str, *more: str, place: str = "results") -> RunConfig:
        # A model sets its own data set, so the data's keys come after it.
        words = [*MODEL.get(model, [f"model={model}"]), *LOG, *(SMALL if model in MODEL else ["hardware.threads=1"])]
        return compose([*words, *more, f"results_dir={tmp_path / place}"])

    return made


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the warm-up of runs that do not test it; their kernels are compiled on the way."""
    monkeypatch.setattr(loop, "warm_up", lambda config: None)


def weights_of(folder: Path) -> dict[str, bytes]:
    kept = RunFolder(folder).load_weights()
    assert kept is not None
    return {name: array.tobytes() for name, array in kept.arrays.items()}


# ---------------------------------------------------------------- every sampler, loss and model


def test_every_model_of_sequences_has_small_options() -> None:
    assert {*MODEL, *BASELINES} == {name for name, model in MODELS.items() if model.reads == "sequences"}


# Both models under a few samplers, one under all in slow tests; the other has every sampler with every loss below.
FEW = {"sasrec": ("full", "uniform"), "gru4rec": ("full", "unigram")}
PRODUCT = [
    pytest.param(sampler, model, marks=[] if sampler in FEW[model] else pytest.mark.slow)
    for model in sorted(MODEL)
    for sampler in sorted(OPTIONS)
    if sampler in FEW[model] or model != "sasrec"
]


@pytest.mark.parametrize(("sampler", "model"), PRODUCT)
def test_a_few_steps(sampler: str, model: str, configure: Configure) -> None:
    config = configure(model, f"sampler={sampler}", *OPTIONS[sampler], "max_steps=4")
    folder = run(config)
    summary = summary_of(folder)
    assert folder.name == config.run_id
    assert folder.name.startswith(f"synthetic_log-{model}-{sampler}-")
    assert summary["status"] == "finished"
    assert summary["config"] == json.loads(json.dumps(config.as_dict()))
    assert "windows" not in summary["config"], "it is of other tasks"
    assert summary["steps"] == 4
    metrics = summary["metrics"]
    assert set(metrics) == METRICS
    for split in ("valid", "test"):
        for key in ("ndcg", "recall", "mrr"):
            values = [metrics[f"{split}/{key}@{k}"] for k in (10, 20, 50)]
            assert 0 <= values[0] <= values[1] <= values[2] <= 1
        assert metrics[f"{split}/mrr@10"] <= metrics[f"{split}/ndcg@10"] <= metrics[f"{split}/recall@10"]
    assert summary["watched"] == "valid"
    assert summary["unit"] == "item"
    assert [m["key"] for m in summary["measures"] if m["headline"]] == ["ndcg@10"]
    assert {m["key"] for m in summary["measures"]} == MEASURES
    assert summary["units_per_second"] > 0
    assert summary["selection"]["step"] == 4
    (evaluation,) = observations(folder, "evaluation")
    assert evaluation["valid/ndcg@10"] == metrics["valid/ndcg@10"]
    assert math.isfinite(evaluation["loss"])
    assert len(observations(folder, "distribution")) == 3
    assert not (folder / "best").exists()
    assert not (folder / "checkpoint").exists()


# Every sampler with every loss. What a sampler cannot do is refused before the run; these pairs stand here, so that
# none is left out without a word.
_OWN_TARGETS = {"partition_estimate", "nce", "blackout"}  # they need the expected counts of targets, or their draws
REFUSED = {
    **{sampler: {"full"} for sampler in SAMPLERS},
    "full": set(LOSSES) - {"full"},
    "topk": set(LOSSES) - {"active_set", "sampled_softmax"},
    "in_batch": {"full", "partition_estimate"},
    "exact": {"full"} | _OWN_TARGETS,
    "sce": {"full"} | _OWN_TARGETS,
}


@pytest.mark.slow
@pytest.mark.parametrize("loss", sorted(LOSSES))
@pytest.mark.parametrize("sampler", sorted(SAMPLERS))
@pytest.mark.usefixtures("cold")
def test_every_sampler_with_every_loss(sampler: str, loss: str, configure: Configure) -> None:
    choice = [f"sampler={sampler}", *OPTIONS[sampler], f"loss={loss}"]
    if loss in REFUSED[sampler]:
        with pytest.raises(ConfigError, match=f"loss={loss} .*sampler={sampler}"):
            configure("sasrec", *choice)
        return
    first, last = (run(configure("sasrec", *choice, f"max_steps={steps}")) for steps in (1, 6))
    (evaluation,) = observations(last, "evaluation")
    assert math.isfinite(evaluation["loss"])
    start, end = weights_of(first), weights_of(last)
    assert {name for name in start if start[name] == end[name]} <= {"layer.bias"}, "all is trained but biases, if off"


def test_what_the_summary_tells_of_the_log(configure: Configure, capsys: pytest.CaptureFixture[str]) -> None:
    config = configure("sasrec", "max_steps=1")
    summary, data = summary_of(run(config)), config.dataset.build()
    told = summary["dataset"]
    counts_U = np.diff(data.indptr_U1)
    assert (told["users"], told["num_classes"], told["events"]) == (150, 80, counts_U.sum())
    assert told["train_targets"] == np.maximum(data.train_end_U - data.indptr_U1[:-1] - 1, 0).sum()
    assert told["valid_events"] == told["test_events"] == np.maximum(1, (counts_U + 5) // 10).sum()
    taken = [
        data.items_E[place] in data.items_E[begin:place]
        for begin, first, end in zip(data.indptr_U1[:-1], data.valid_end_U, data.indptr_U1[1:], strict=True)
        for place in range(first, end)
    ]
    assert told["taken_before"] == pytest.approx(np.mean(taken))
    err = capsys.readouterr().err
    assert (
        f"150 users, 80 items, {told['train_targets']:,} targets to train on, {told['valid_events']} for valid" in err
    )
    assert told["taken_before"] < 0.01
    assert "taken before" not in err, "too few to tell"
    assert "NDCG@10 test 0." in err


@pytest.mark.parametrize("loss", [
    "negative_sampling", "gbce", "nce", "sampled_softmax", "active_set", "blackout", "absolute_softmax",
    "partition_estimate",
])  # fmt: skip
@pytest.mark.usefixtures("cold")
def test_every_loss_takes_steps(loss: str, configure: Configure) -> None:
    folder = run(configure("sasrec", "sampler=uniform", "sampler.num_samples=20", f"loss={loss}", "max_steps=10"))
    first, last = observations(folder, "distribution")[0], observations(folder, "evaluation")[-1]
    assert first["step"] == 0
    assert math.isfinite(last["loss"])
    assert summary_of(folder)["config"]["loss"]["name"] == loss


# The most popular items reach an nDCG@10 below 0.1 on this log. Losses of binary problems first have to learn the odds
# of a candidate, which takes few steps if items have biases.
UNIFORM = "sampler=uniform sampler.num_samples=20"
LEARNS = [("sasrec", "sampler=full epochs=8"), ("gru4rec", "sampler=in_batch loss.correct_target=true epochs=8")]
LEARNS_TOO = [
    ("gru4rec", "sampler=full"),
    ("sasrec", "sampler=in_batch loss.correct_target=true"),
    ("sasrec", f"{UNIFORM} loss=negative_sampling output.bias=true epochs=30"),
    ("sasrec", "sampler=full model.tied=false training.clip=1"),
    ("sasrec", "sampler=full batch_sampler=uniform"),
    ("sasrec", UNIFORM),
    ("sasrec", f"{UNIFORM} loss.correct_target=true"),
    ("sasrec", f"{UNIFORM} loss=gbce output.bias=true"),
    ("sasrec", "method=gsasrec sampler.num_samples=20"),
    ("sasrec", f"{UNIFORM} loss=nce output.bias=true"),
    ("sasrec", f"{UNIFORM} loss=blackout"),
    ("sasrec", f"{UNIFORM} loss=active_set"),
    ("sasrec", f"{UNIFORM} loss=partition_estimate"),
    ("sasrec", f"{UNIFORM} loss=absolute_softmax epochs=30 loss.correct_target=true"),
    ("sasrec", "sampler=uniform sampler.num_samples=5 sampler.shared=false loss=negative_sampling"),
    ("sasrec", "sampler=in_batch"),
    ("gru4rec", f"{UNIFORM} loss=nce output.bias=true"),
    ("gru4rec", "sampler=full model.tied=false training.clip=1"),
]


@pytest.mark.parametrize(
    ("model", "choice"), [*LEARNS, *(pytest.param(*case, marks=pytest.mark.slow) for case in LEARNS_TOO)]
)
@pytest.mark.usefixtures("cold")
def test_training_learns(model: str, choice: str, configure: Configure) -> None:
    folder = run(configure(model, "epochs=12", "optimizer.lr=0.02", "training.patience=null", *choice.split()))
    assert summary_of(folder)["metrics"]["test/ndcg@10"] > 0.2
    losses = [line["loss"] for line in observations(folder, "evaluation")]
    assert losses[-1] < 0.95 * losses[0]


# ---------------------------------------------------------------- baselines


@pytest.mark.parametrize("model", BASELINES)
def test_a_baseline_is_one_pass(model: str, configure: Configure) -> None:
    config = configure(model)
    folder = run(config)
    summary = summary_of(folder)
    assert folder.name.startswith(f"synthetic_log-{model}-epoch-")
    assert summary["status"] == "finished"
    assert set(summary["metrics"]) == METRICS
    assert (summary["steps"], summary["epochs"]) == (1, 1)
    assert not {"sampler", "loss", "output", "diagnostics"} & set(summary["config"])
    (evaluation,) = observations(folder, "evaluation")
    assert evaluation["valid/ndcg@10"] == summary["metrics"]["valid/ndcg@10"]
    assert (summary["similar_pairs"] > 0) == (model != "popularity")
    network, task, step = load_trained(config, RunFolder(folder))
    assert step == 1
    assert task.evaluate_final(network) == summary["metrics"], "the weights that were kept"


def test_a_chain_of_items_beats_popularity(configure: Configure) -> None:
    scores = {model: summary_of(run(configure(model)))["metrics"]["test/ndcg@10"] for model in BASELINES}
    assert scores["markov"] > 3 * scores["popularity"]
    assert scores["markov"] > scores["item_knn"] > scores["popularity"] > 0


def test_baselines_have_the_same_bits_with_one_thread_and_two(configure: Configure) -> None:
    one, two = (
        summary_of(run(configure("item_knn", f"hardware.threads={n}", place=f"{n}")))["metrics"] for n in (1, 2)
    )
    assert one == two


# ---------------------------------------------------------------- the same bits, the same numbers


RESUMED = [
    ("sasrec", "sampler=full training.decay=0.1", 3),
    ("sasrec", "sampler=midx_rq sampler.num_samples=10 sampler.codewords=4 model.tied=false", 4),
    ("gru4rec", "sampler=uniform sampler.num_samples=20 sampler.shared=false", 4),
    ("gru4rec", "sampler=full batch_sampler=uniform training.anneal=0.5 model.layers=2", 3),
]


@pytest.mark.parametrize(("model", "choice", "call"), [
    pytest.param(*case, marks=[pytest.mark.slow] if index % 2 else []) for index, case in enumerate(RESUMED)
])  # fmt: skip
@pytest.mark.usefixtures("cold")
def test_resumed_with_the_same_bits(
    model: str, choice: str, call: int, configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs are interrupted at an evaluation within an epoch or at one at its end."""
    words = [*choice.split(), "epochs=3", "model.dropout=0.3", "evaluation.every_epochs=0.5"]
    whole = run(configure(model, *words, place="whole"))
    real, calls = Recommendation.evaluate_subset, []

    def interrupted(self: Recommendation, network: Any) -> dict[str, Any]:
        calls.append(1)
        if len(calls) == call:
            signal.raise_signal(signal.SIGINT)
        return real(self, network)

    config = configure(model, *words)
    with monkeypatch.context() as patch:
        patch.setattr(Recommendation, "evaluate_subset", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(config)
    assert summary_of(config.run_dir)["status"] == "interrupted"
    assert list((config.run_dir / "checkpoint").glob("step-*"))
    assert numbers(run(config)) == numbers(whole)
    assert weights_of(config.run_dir) == weights_of(whole)


@pytest.mark.slow
@pytest.mark.parametrize("model", sorted(MODEL))
def test_killed_and_resumed_with_the_same_bits(model: str, configure: Configure, tmp_path: Path) -> None:
    """A process of its own is killed by kill -9 after a checkpoint; this process runs it to the end."""
    words = ["sampler=uniform", "sampler.num_samples=20", "epochs=60", "training.patience=null"]
    often = [*words, "checkpoint_every_seconds=0.01"]
    config = configure(model, *often, place="killed")
    process = start(
        [*MODEL[model], *LOG, *SMALL, *often, f"results_dir={tmp_path / 'killed'}"],
        {**os.environ, "PYTHONPATH": str(CONF.parent)}, tmp_path,
    )  # fmt: skip
    wait_for_checkpoint(config.run_dir, process)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert summary_of(config.run_dir)["status"] == "running"
    assert numbers(run(config)) == numbers(run(configure(model, *words)))


@pytest.mark.parametrize("model", ["sasrec", pytest.param("gru4rec", marks=pytest.mark.slow)])
@pytest.mark.usefixtures("cold")
def test_one_thread_and_two_agree_up_to_rounding(model: str, configure: Configure) -> None:
    """BLAS computes an encoder's products, and it may add in another order with more threads."""
    losses, weights = [], []
    for threads in (1, 2):
        words = ["sampler=uniform", "sampler.num_samples=20", "max_steps=4", "keep_weights=true"]
        folder = run(configure(model, *words, f"hardware.threads={threads}", place=f"{threads}"))
        losses.append([line["loss"] for line in observations(folder, "evaluation")])
        kept = RunFolder(folder).load_weights()
        assert kept is not None
        weights.append(kept.arrays)
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    for name in ("layer.weights", "encoder.module.weights"):
        difference = np.abs(weights[0][name] - weights[1][name])
        assert np.quantile(difference, 0.99) < 1e-3, "Adam divides by gradients that may be rounding noise"


# ---------------------------------------------------------------- validation and what is ranked


@pytest.mark.usefixtures("cold")
def test_the_best_weights_are_measured_and_training_stops(configure: Configure) -> None:
    """The rate is far too high, so validation falls after a few epochs."""
    config = configure("sasrec", "sampler=full", "epochs=40", "training.patience=2", "optimizer.lr=0.1")
    folder = run(config)
    summary = summary_of(folder)
    scores = [line["valid/ndcg@10"] for line in observations(folder, "evaluation")]
    best = int(np.argmax(scores)) + 1
    assert len(scores) == best + 2 == summary["epochs"] < 40
    assert summary["selection"] == {
        "step": best * summary["steps"] // summary["epochs"], "epoch": best, "stopped_early": True, "lr": 0.1,
    }  # fmt: skip
    assert summary["metrics"]["valid/ndcg@10"] == max(scores)
    network, task, step = load_trained(config, RunFolder(folder))
    assert step == summary["selection"]["step"]
    assert task.evaluate_final(network) == summary["metrics"]


def test_seen_items_may_be_ranked_too(configure: Configure, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every user takes the same five items in a circle, so every test item was taken before."""
    lines = [f"u{user},i{(user + event) % 5},{event}" for user in range(8) for event in range(12)]
    log = tmp_path / "log.csv"
    log.write_text("\n".join(["user,item,time", *lines, "u8,i5,0", "u8,i6,1", "u8,i7,2", "u8,i8,3", ""]))

    def of_log(*more: str) -> RunConfig:
        return compose(
            ["model=markov", "dataset=interactions", f"dataset.path={log}", *more, f"results_dir={tmp_path}"]
        )

    hidden, ranked = of_log(), of_log("ranking.exclude_seen=false")
    assert hidden.run_id != ranked.run_id
    assert hidden.run_id == of_log("ranking.exclude_seen=true").run_id
    summaries = [summary_of(run(hidden))]
    told = summaries[0]["dataset"]["taken_before"]
    assert 0.8 < told < 1, "the last user takes every item once"
    assert f"{100 * told:.0f} % of the test items were taken before by the same user" in capsys.readouterr().err
    summaries.append(summary_of(run(ranked)))
    assert "taken before" not in capsys.readouterr().err
    assert summaries[0]["config"]["ranking"] == {"exclude_seen": True}
    assert summaries[1]["config"]["ranking"] == {"exclude_seen": False}
    recall, of_all = (summary["metrics"]["test/recall@50"] for summary in summaries)
    assert recall <= 1 - summaries[0]["dataset"]["taken_before"], "items taken before count as misses"
    assert of_all > recall


@pytest.mark.parametrize("words", [
    ["dataset=wordnet_hypernym"], ["model=lstm", "dataset=ptb"],
])  # fmt: skip
def test_other_tasks_rank_no_items(words: list[str], tmp_path: Path) -> None:
    config = compose([*words, "ranking.exclude_seen=false", f"results_dir={tmp_path}"])
    with pytest.raises(ConfigError, match=r"^ranking has no effect on training .*; leave ranking out$"):
        run(config)
    assert not list(tmp_path.iterdir())
    assert config.run_id == compose(words).run_id


@pytest.mark.parametrize("model", sorted(MODEL))
@pytest.mark.usefixtures("cold")
def test_too_large_a_rate_diverges(model: str, configure: Configure) -> None:
    config = configure(model, "sampler=full", "optimizer=sgd", "optimizer.lr=1e30", "epochs=2")
    with np.errstate(all="ignore"), pytest.raises(RunnerError, match=r"try a smaller optimizer\.lr") as caught:
        run(config)
    assert isinstance(caught.value, Diverged)
    summary = summary_of(config.run_dir)
    assert summary["status"] == "diverged"
    assert "metrics" not in summary


# ---------------------------------------------------------------- mistakes


MISTAKES = [
    (
        ["model=popularity", "sampler=uniform"],
        "sampler has no effect on training model=popularity .*; leave sampler out",
    ),
    (["model=markov", "loss=nce"], "loss has no effect on training model=markov .*; leave loss out"),
    (["model=markov", "epochs=2"], "model=markov counts the training events once; leave epochs at 1"),
    (["model=item_knn", "training.clip=1"], "model=item_knn learns nothing by steps; leave training at its defaults"),
    (["model=item_knn", "batch_sampler=uniform"], "counts all training events; batch_sampler=uniform has no effect"),
    (["model=sasrec", "windows.length=9"], "windows has no effect on training model=sasrec .*; leave windows out"),
    (
        ["model=sasrec", "dataset=wordnet_hypernym"],
        "dataset=wordnet_hypernym holds rows, but model=sasrec reads sequences; models that read rows: mlp, linear",
    ),
    (
        ["model=mlp", "dataset=synthetic_log"],
        "model=mlp reads rows; models that read sequences: sasrec, gru4rec, popularity, markov, item_knn",
    ),
    (["model=sasrec", "model.heads=3"], r"model\.embedding \(64\) must be a multiple of model\.heads \(3\)"),
]
Command = Callable[[list[str]], tuple[Any, str, str]]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], own_data_dir: Path) -> Command:
    """Run ``python -m runner`` in this process; return its exit status, standard output and standard error."""

    def execute(words: list[str]) -> tuple[Any, str, str]:
        monkeypatch.setattr(sys, "argv", ["runner", *words])
        monkeypatch.setattr(compilation, "compile_first", lambda config: None)
        monkeypatch.setenv("HYDRA_FULL_ERROR", "1")  # the command sets this, and it must not stay
        forget_failures()
        with pytest.raises(SystemExit) as stop:
            runpy.run_module("runner", run_name="__main__")
        forget_failures()
        return stop.value.code, *capfd.readouterr()

    return execute


@pytest.mark.parametrize(("words", "says"), MISTAKES)
def test_a_mistake_is_one_line(words: list[str], says: str, command: Command, tmp_path: Path) -> None:
    code, out, err = command([*words, f"results_dir={tmp_path / 'results'}"])
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert re.match(f"error: .*{says}", err), err
    assert not list(tmp_path.iterdir()), "a mistake leaves nothing behind"


@pytest.mark.parametrize(("events", "split", "what"), [
    (1, "ratio", "train on"), (2, "ratio", "validate on"), (3, "ratio", "train on"), (3, "last_item", "train on"),
])  # fmt: skip
def test_a_log_too_short_to_train_on(events: int, split: str, what: str, command: Command, tmp_path: Path) -> None:
    """Of three events two are held out, and the first of a user is never predicted."""
    lines = [f"u{user},i{user + time},{time}" for user in range(9) for time in range(events)]
    (tmp_path / "log.csv").write_text("\n".join(["user,item,time", *lines]) + "\n")
    code, out, err = command([
        "model=sasrec", "dataset=interactions", f"dataset.path={tmp_path / 'log.csv'}", f"dataset.split={split}",
        f"results_dir={tmp_path}",
    ])  # fmt: skip
    assert (code, out) == (2, "")
    (error,) = [line for line in err.splitlines() if not line.startswith("preparing")]
    assert error == (
        f"error: interactions has no event to {what}: users need at least four events, because two are held out and the"
        " first of the others is never predicted"
    )


def test_the_command_prints_the_run_folder(command: Command, tmp_path: Path) -> None:
    code, out, err = command(["model=markov", *LOG, "hardware.threads=1", f"results_dir={tmp_path}"])
    assert code == 0, err
    assert summary_of(Path(out.splitlines()[-1]))["status"] == "finished"


# ---------------------------------------------------------------- hints


@pytest.mark.parametrize(("output", "hints"), [([], True), (["output.bias=true"], False)])
def test_binary_problems_without_biases_are_told(
    output: list[str], hints: bool, configure: Configure, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["sampler=uniform", "sampler.num_samples=4", "sampler.shared=false", "sampler.unique=false", "loss=gbce"]
    config = configure("sasrec", *words, *output)
    notices = task_of(config, config.dataset.build()).notices()
    assert any("output.bias=true" in notice for notice in notices) == hints

"""Whole runs go through the real entry points, in this process unless the test is about processes."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from runner.check.cases import small_options
from runner.config import CONF, compose
from runner.errors import ConfigError, DataNotPrepared, RunLocked, RunnerError
from runner.machine.clock import BUILD, STAGES, StageClock
from runner.network import Network
from runner.options.settings import RunConfig
from runner.parts import MODELS
from runner.samplers import SAMPLERS, static
from runner.training import loop
from runner.training.run import run
from runner.training.run_folder import RunFolder, description

ROOT = CONF.parent
SMALL = [
    "model.hidden=16", "batch_size=32", "optimizer.lr=0.02", "evaluation.rows=20", "evaluation.every_epochs=0.5",
    "hardware.threads=1",
]  # fmt: skip
LSH = ["sampler.K=4", "sampler.L=6", "sampler.min_candidates=15", "sampler.refresh_every_steps=2"]
OPTIONS: dict[str, list[str]] = {name: small_options(name) for name in SAMPLERS}

Configure = Callable[..., RunConfig]


@pytest.fixture
def arguments(toy_folder: Path, own_data_dir: Path, tmp_path: Path) -> list[str]:
    return ["dataset=xmc", f"dataset.path={toy_folder}", f"results_dir={tmp_path / 'results'}", *SMALL]


@pytest.fixture
def configure(arguments: list[str]) -> Configure:
    return lambda *more: compose([*arguments, *more])


def summary_of(folder: Path) -> dict[str, Any]:
    summary = json.loads((folder / "summary.json").read_text())
    assert isinstance(summary, dict)
    return summary


def observations(folder: Path, kind: str) -> list[dict[str, Any]]:
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if line["kind"] == kind]


def numbers(folder: Path) -> tuple[Any, ...]:
    """Return everything that a run measured except times."""
    evaluations = [
        {key: value for key, value in line.items() if "seconds" not in key}
        for line in observations(folder, "evaluation")
    ]
    summary = summary_of(folder)
    return (
        summary["metrics"], summary["steps"], summary["candidates_per_row"], evaluations,
        observations(folder, "distribution"),
        dict(summary["sampler_statistics"]),
    )  # fmt: skip


# ---------------------------------------------------------------- every sampler and model


# Every sampler under one model and every model under a few samplers, which see of a model its hidden states alone.
FEW = ("full", "uniform", "lsh_label")
PRODUCT = [
    (sampler, model)
    for model in sorted(name for name, model in MODELS.items() if model.reads == "rows" and model.task is None)
    for sampler in sorted(OPTIONS)
    if model == "mlp" or sampler in FEW
]


@pytest.mark.parametrize(("sampler", "model"), PRODUCT)
def test_a_few_steps(sampler: str, model: str, configure: Configure, capsys: pytest.CaptureFixture[str]) -> None:
    config = configure(f"sampler={sampler}", f"model={model}", *OPTIONS[sampler], "max_steps=5")
    folder = run(config)
    assert folder == config.run_dir
    summary = summary_of(folder)
    assert summary["status"] == "finished"
    assert summary["run_id"] == config.run_id == folder.name
    assert summary["config"] == json.loads(json.dumps(config.as_dict()))
    assert yaml.safe_load((folder / "config.yaml").read_text()) == summary["config"]
    assert summary["steps"] == 5
    assert summary["epochs"] == pytest.approx(5 / 8)  # 240 rows in batches of 32 make 8 steps
    for metric in ("p", "psp", "ndcg"):
        for k in (1, 3, 5):
            assert 0 <= summary["metrics"][f"test/{metric}@{k}"] <= 1
    assert set(summary["stage_seconds"]) == {BUILD, *STAGES}
    assert all(seconds >= 0 for seconds in summary["stage_seconds"].values())
    assert 0 < sum(summary["stage_seconds"].values()) <= summary["train_seconds"]
    assert (summary["others_share"], summary["stolen_share"]) == (0, 0), "as conftest.py feigns"
    assert summary["peak_rss_mb"] > 10
    wanted = {"full": 50, "topk": 25}.get(sampler)
    if wanted:
        assert summary["candidates_per_row"] == wanted
    else:
        assert 5 < summary["candidates_per_row"] <= 50
    evaluations = observations(folder, "evaluation")
    assert [line["step"] for line in evaluations] == [4, 5]
    assert all(math.isfinite(line["loss"]) and line["loss"] > 0 for line in evaluations)
    provenance = json.loads((folder / "provenance.json").read_text())
    assert provenance["run_id"] == config.run_id
    assert {"commit", "command", "versions", "threads", "cpu", "data_checksum"} <= set(provenance)
    assert not (folder / "checkpoint").exists(), "a finished run needs none"
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err


def test_building_tables_is_training_time_once(configure: Configure, monkeypatch: pytest.MonkeyPatch) -> None:
    """A resumed run makes its sampler again, which is no part of the training that was interrupted."""
    config = configure("sampler=uniform", *OPTIONS["uniform"], "max_steps=8", "evaluation.every_epochs=0.5")
    real_table, real_step = static.alias_table, Network.train_step

    def slow_table(q_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        time.sleep(0.3)
        return real_table(q_N)

    def interrupted(self: Network[Any], batch: Any, step: int, clock: StageClock) -> Any:
        if step == 5:
            signal.raise_signal(signal.SIGINT)
        return real_step(self, batch, step, clock)

    monkeypatch.setattr(loop, "warm_up", lambda config: None)
    monkeypatch.setattr(static, "alias_table", slow_table)
    with monkeypatch.context() as patch:
        patch.setattr(Network, "train_step", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(config)
    before, after = observations(run(config), "evaluation")
    assert before["stage_seconds"][BUILD] >= 0.3
    assert before["train_seconds"] >= sum(before["stage_seconds"].values())
    assert after["stage_seconds"][BUILD] == before["stage_seconds"][BUILD]


PAIRS = [
    ("uniform", "nce"), ("uniform", "active_set"), ("unigram", "nce"), ("lsh_label", "sampled_softmax"),
    ("lsh_embedding", "active_set"), ("topk", "sampled_softmax"), ("midx_rq", "nce"), ("midx_learn_pq", "nce"),
    ("midx_exact", "active_set"), ("uniform", "absolute_softmax"), ("quadratic", "absolute_softmax"),
    ("unigram", "partition_estimate"), ("lsh_topk", "partition_estimate"), ("uniform", "negative_sampling"),
    ("uniform", "gbce"), ("unigram", "blackout"),
]  # fmt: skip
ROWS = ("dense", "touched")


@pytest.mark.parametrize(("sampler", "loss", "rows"), [
    pytest.param(*pair, rows, marks=[] if ROWS[index % 2] == rows else pytest.mark.slow)
    for index, pair in enumerate(PAIRS)
    for rows in ROWS
])  # fmt: skip
def test_other_losses_and_row_policies(sampler: str, loss: str, rows: str, configure: Configure) -> None:
    extra = ["max_steps=3", f"loss={loss}", f"optimizer.rows={rows}", "evaluation.every_epochs=1"]
    options = [option for option in OPTIONS[sampler] if not option.startswith("loss")]
    folder = run(configure(f"sampler={sampler}", *options, *extra))
    summary = summary_of(folder)
    assert summary["status"] == "finished"
    assert (summary["config"]["loss"]["name"], summary["config"]["optimizer"]["rows"]) == (loss, rows)
    (evaluation,) = observations(folder, "evaluation")
    assert math.isfinite(evaluation["loss"])
    assert evaluation["loss"] > 0


@pytest.mark.parametrize("sampler", ["full", "uniform", "lsh_label"])
def test_training_learns(sampler: str, configure: Configure) -> None:
    """Chance is at most the most frequent class's share, .25; each class shows itself in the features."""
    folder = run(configure(f"sampler={sampler}", *OPTIONS[sampler], "epochs=12", "evaluation.every_epochs=1"))
    assert summary_of(folder)["metrics"]["test/p@1"] > 0.6
    losses = [line["loss"] for line in observations(folder, "evaluation")]
    assert losses[-1] < 0.7 * losses[0]


@pytest.mark.parametrize("loss", [
    "absolute_softmax", "partition_estimate", "negative_sampling", "gbce", "blackout",
])  # fmt: skip
def test_training_learns_under_every_loss(loss: str, configure: Configure) -> None:
    """Training learns under every loss; the bar is twice chance, as some losses learn more slowly."""
    options = ["sampler=uniform", f"loss={loss}", *OPTIONS["uniform"], "epochs=12", "evaluation.every_epochs=1"]
    assert summary_of(run(configure(*options)))["metrics"]["test/p@1"] > 0.5


@pytest.mark.parametrize("sampler", ["full", "uniform", "unigram", "topk", "lsh_label"])
def test_a_normalised_output_layer_learns(sampler: str, configure: Configure) -> None:
    """Shared and own candidates work, and classes are ranked by the same logits that were trained."""
    choices = [
        f"sampler={sampler}",
        *OPTIONS[sampler],
        "output.normalize=true",
        "epochs=12",
        "evaluation.every_epochs=1",
    ]
    assert summary_of(run(configure(*choices)))["metrics"]["test/p@1"] > 0.5


def test_synthetic_data_through_the_entry_point(own_data_dir: Path, tmp_path: Path) -> None:
    shape = {"num_classes": 90, "num_features": 100, "num_train": 120, "num_test": 30, "features_per_row": 8}
    choices = [f"dataset.{key}={value}" for key, value in shape.items()]
    config = compose(["dataset=synthetic_xc", *choices, *SMALL, "max_steps=2", f"results_dir={tmp_path}"])
    summary = summary_of(run(config))
    assert summary["status"] == "finished"
    assert summary["dataset"]["num_classes"] == 90
    assert sum(summary["dataset"]["label_frequency"]["count"]) > 0


def test_fewer_classes_than_ranks(own_data_dir: Path, tmp_path: Path) -> None:
    """With two classes there is only P@1. That every sampler takes so few classes, the contract says."""
    for split in ("train", "test"):
        (tmp_path / f"{split}.txt").write_text("4 3 2\n0 0:1\n1 1:1\n0 0:1 2:1\n0,1 2:1\n")
    for sampler in (*FEW, "midx_rq"):
        config = compose(["dataset=xmc", f"dataset.path={tmp_path}", f"results_dir={tmp_path / 'r'}", *SMALL,
                          f"sampler={sampler}", *OPTIONS[sampler], "max_steps=2"])  # fmt: skip
        summary = summary_of(run(config))
        assert summary["status"] == "finished", sampler
        assert set(summary["metrics"]) == {"test/p@1", "test/psp@1", "test/ndcg@1", "test/loss"}


# ---------------------------------------------------------------- finished, failed, locked


def test_finished_run_is_skipped_and_force_repeats_it(configure: Configure, capsys: pytest.CaptureFixture[str]) -> None:
    folder = run(configure("sampler=uniform", *OPTIONS["uniform"], "max_steps=2"))
    first, stamp = numbers(folder), (folder / "summary.json").stat().st_mtime_ns
    capsys.readouterr()
    assert run(configure("sampler=uniform", *OPTIONS["uniform"], "max_steps=2")) == folder
    assert "already finished" in capsys.readouterr().err
    assert (folder / "summary.json").stat().st_mtime_ns == stamp
    run(configure("sampler=uniform", *OPTIONS["uniform"], "max_steps=2", "force=true"))
    assert (folder / "summary.json").stat().st_mtime_ns > stamp
    assert numbers(folder) == first, "again with the same bits, and no observation twice"


@pytest.mark.parametrize("sampler", ["lsh_label", "lsh_embedding", "midx_rq", "midx_learn_pq"])
def test_one_thread_and_two_give_the_same_numbers(sampler: str, configure: Configure, tmp_path: Path) -> None:
    results = []
    for threads in (1, 2):
        more = [
            f"sampler={sampler}",
            *OPTIONS[sampler],
            f"hardware.threads={threads}",
            f"results_dir={tmp_path}/{threads}",
        ]
        results.append(numbers(run(configure(*more, "epochs=2"))))
    assert results[0] == results[1]


def test_a_folder_in_use_is_locked(configure: Configure) -> None:
    config = configure("sampler=uniform", "max_steps=1")
    with RunFolder(config.run_dir).locked(), pytest.raises(RunLocked, match="another process is running"):
        run(config)
    assert not (config.run_dir / "summary.json").exists()
    assert summary_of(run(config))["status"] == "finished"


@pytest.mark.parametrize("force", [False, True])
def test_data_that_are_not_there_leave_no_folder(force: bool, own_data_dir: Path, tmp_path: Path) -> None:
    config = compose(["dataset=wiki325k", f"force={force}", f"results_dir={tmp_path}"])
    with pytest.raises(DataNotPrepared):
        run(config)
    assert not config.run_dir.exists()


def test_a_results_folder_that_cannot_be_made_is_named_by_its_key(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    config = compose([f"results_dir={tmp_path / 'file' / 'x'}"])
    with pytest.raises(
        ConfigError, match=rf"results_dir: no folder can be made in {tmp_path}/file/x: Not a directory; "
    ):
        run(config)


def test_an_interrupted_run_stays_one_while_its_data_are_not_there(own_data_dir: Path, tmp_path: Path) -> None:
    config = compose(["dataset=wiki325k", f"results_dir={tmp_path}"])
    folder = RunFolder(config.run_dir)
    with folder.locked():
        folder.write_summary({"status": "interrupted", **description(config)})
    before = (config.run_dir / "summary.json").read_text()
    with pytest.raises(DataNotPrepared):
        run(config)
    assert (config.run_dir / "summary.json").read_text() == before


@pytest.mark.parametrize(
    "sampler",
    ["full", "uniform", "lsh_label", "lsh_embedding", "topk", "rff", "midx_rq", "midx_exact", "midx_learn_pq"],
)
@pytest.mark.parametrize("lr", ["1e30", "3e38"])
def test_a_run_that_blows_up_is_never_finished(sampler: str, lr: str, configure: Configure) -> None:
    config = configure(f"sampler={sampler}", *OPTIONS[sampler], f"optimizer.lr={lr}", "epochs=3")
    with np.errstate(all="ignore"), pytest.raises(RunnerError, match=r"step \d+"):
        run(config)
    summary = summary_of(config.run_dir)
    assert summary["status"] == "diverged"
    assert "metrics" not in summary
    with np.errstate(all="ignore"), pytest.raises(RunnerError):
        run(config)  # not taken for finished


# ---------------------------------------------------------------- the command, killed and continued

# With sums over a thousand candidates, code just compiled and code loaded from the cache differ in last bits even in so
# few steps.
MANY_CANDIDATES = [
    "dataset=synthetic_xc", "dataset.num_classes=5000", "dataset.num_features=2000", "dataset.num_train=4000",
    "dataset.num_test=100", "evaluation.every_epochs=1", "evaluation.rows=50", "sampler=uniform",
    "sampler.num_samples=1000", "max_steps=12", "hardware.threads=1", "keep_weights=true",
]  # fmt: skip


@pytest.mark.slow
def test_the_run_that_compiles_has_the_bits_of_its_repetition(environment: dict[str, str], tmp_path: Path) -> None:
    weights = []
    for place in ("first", "second"):
        done = subprocess.run(
            [sys.executable, "-m", "runner", *MANY_CANDIDATES, f"results_dir={tmp_path / place}"],
            env={**environment, "NUMBA_CACHE_DIR": str(tmp_path / "cache")},
            cwd=tmp_path, capture_output=True, text=True, check=True, timeout=300,
        )  # fmt: skip
        assert ("compiling kernels" in done.stderr) == (place == "first")
        kept = RunFolder(Path(done.stdout.splitlines()[-1])).load_weights()
        assert kept is not None
        weights.append(kept.arrays)
    one, two = weights
    assert one.keys() == two.keys()
    for name, value in one.items():
        np.testing.assert_array_equal(value, two[name], err_msg=name)


# 2,400 steps, a second or two: the first checkpoint comes after 10 ms, so a signal finds it far from the end.
LONG = ["sampler=lsh_label", *LSH, "epochs=300", "evaluation.every_epochs=1", "hardware.threads=1"]


@pytest.fixture
def environment(own_data_dir: Path) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "DATASETS_DIR": str(own_data_dir),
        "PYTHONWARNINGS": "default",
    }


def start(arguments: list[str], environment: dict[str, str], cwd: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "runner", *arguments], env=environment, cwd=cwd, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def wait_for_checkpoint(folder: Path, process: "subprocess.Popen[str]", after: str = "") -> str:
    """Return the name of the first complete checkpoint later than ``after``."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        names = sorted(path.parent.name for path in folder.glob("checkpoint/step-*/state.json"))
        if names and names[-1] > after:
            return names[-1]
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)
    raise AssertionError("no checkpoint within two minutes")


@pytest.fixture(scope="module")
def uninterrupted(toy_folder: Path, prepared_root: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, ...]:
    place = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DATASETS_DIR", str(prepared_root))
        data = ["dataset=xmc", f"dataset.path={toy_folder}", f"results_dir={place}"]
        return numbers(run(compose([*data, *SMALL, *LONG])))


@pytest.mark.slow
def test_killed_twice_ends_with_the_same_bits(
    configure: Configure, arguments: list[str], environment: dict[str, str], tmp_path: Path,
    uninterrupted: tuple[Any, ...],
) -> None:  # fmt: skip
    """The run is killed by kill -9 twice, the second time after it resumed; then this process runs it to the end."""
    fast = [*LONG, "checkpoint_every_seconds=0.01"]
    folder = configure(*fast).run_dir
    latest = ""
    for _ in range(2):
        process = start([*arguments, *fast], environment, tmp_path)
        latest = wait_for_checkpoint(folder, process, after=latest)
        process.kill()
        out, _ = process.communicate()
        assert process.returncode == -signal.SIGKILL
        assert out == ""
        assert summary_of(folder)["status"] == "running"
    assert int(latest.removeprefix("step-")) > 2
    run(configure(*fast))
    assert numbers(folder) == uninterrupted


def test_interrupted_run_leaves_a_checkpoint_and_exits_with_130(
    configure: Configure, arguments: list[str], environment: dict[str, str], tmp_path: Path,
    uninterrupted: tuple[Any, ...],
) -> None:  # fmt: skip
    folder = configure(*LONG).run_dir
    process = start([*arguments, *LONG, "checkpoint_every_seconds=0.01"], environment, tmp_path)
    latest = wait_for_checkpoint(folder, process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert out == ""
    assert "the same command continues" in err
    assert "Traceback" not in err
    assert summary_of(folder)["status"] == "interrupted"
    (left,) = folder.glob("checkpoint/step-*")
    assert left.name >= latest
    run(configure(*LONG))
    assert numbers(folder) == uninterrupted


@pytest.mark.slow
def test_a_failing_job_does_not_hide_the_others(
    arguments: list[str], environment: dict[str, str], tmp_path: Path
) -> None:
    """A sweep with one bad value says why in its plan, finishes both good runs and prints each run's folder."""
    sweep = ["-m", "sampler=uniform", "sampler.num_samples=5,-1,7", "max_steps=2"]
    process = start([*sweep, *arguments], environment, tmp_path)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 2, err
    assert "[2/3] sampler.num_samples=-1: cannot run: sampler.num_samples must be at least 1, got -1\n" in err
    assert "Traceback" not in err
    folders = [Path(line) for line in out.splitlines()]
    assert len(folders) == 2
    assert [summary_of(folder)["config"]["sampler"]["num_samples"] for folder in folders] == [5, 7]
    assert all(summary_of(folder)["status"] == "finished" for folder in folders)
    assert {path.name for path in tmp_path.iterdir()} == {"results"}, "nothing else is left in the folder"


def test_a_folder_that_another_process_holds_is_one_line(
    arguments: list[str], configure: Configure, environment: dict[str, str], tmp_path: Path
) -> None:
    words = ["sampler=uniform", "sampler.num_samples=5", "max_steps=2"]
    with RunFolder(configure(*words).run_dir).locked():
        held = start([*arguments, *words], environment, tmp_path)
        out, err = held.communicate(timeout=120)
    assert held.returncode == 2
    assert out == ""
    assert [line for line in err.splitlines() if line][-1].startswith("error: another process is running")

"""Whole runs are diagnosed during training, and finished run folders by the command."""

import csv
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from runner import diagnose
from runner.config import CONF, compose
from runner.errors import RunnerError
from runner.options.settings import RunConfig
from runner.report.diagnoses import figures
from runner.report.diagnoses.folder import read
from runner.report.diagnoses.record import Entry
from runner.samplers import SAMPLERS
from runner.tasks import Classification, classification
from runner.training import loop
from runner.training.run import load_trained, run
from runner.training.run_folder import RunFolder

ROOT = CONF.parent
SMALL = [
    "model.hidden=16", "batch_size=32", "optimizer.lr=0.02", "evaluation.rows=20", "evaluation.every_epochs=1",
    "hardware.threads=1",
]  # fmt: skip
LSH = [
    "sampler=lsh_label", "sampler.K=3", "sampler.L=4", "sampler.min_candidates=15", "sampler.refresh_every_steps=2",
    "sampler.num_tail=3",
]  # fmt: skip
MEASURED = ["diagnostics.every_epochs=2", "diagnostics.rows=12", "diagnostics.draws=3"]

Configure = Callable[..., RunConfig]
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def configure(toy_folder: Path, own_data_dir: Path, tmp_path: Path) -> Configure:
    data = ["dataset=xmc", f"dataset.path={toy_folder}", f"results_dir={tmp_path / 'results'}"]
    return lambda *more: compose([*data, *SMALL, *more])


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run the command in this process; return exit code, standard output and standard error."""

    def call(*arguments: str | Path) -> tuple[int, str, str]:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["diagnose", *map(str, arguments)])
        code = diagnose.main()
        return (code, *capsys.readouterr())

    return call


def json_of(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def observed(folder: Path, kind: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{key: v for key, v in line.items() if "seconds" not in key} for line in lines if line["kind"] == kind]


# ---------------------------------------------------------------- during training


def test_observations_at_epoch_ends_change_nothing_else(configure: Configure) -> None:
    """240 rows in batches of 32 make 8 steps per epoch; after three epochs the end is measured, although 3 is odd."""
    plain, measured = run(configure(*LSH, "epochs=3")), run(configure(*LSH, "epochs=3", *MEASURED))
    assert plain != measured
    found = observed(measured, "diagnostics")
    assert [line["step"] for line in found] == [16, 24]
    assert [line["epoch"] for line in found] == [2, 3]
    for line in found:
        assert line["rows"] == 12
        assert line["draws"] == 3
        assert line["loss"] == "active_set"
        assert line["hidden_bias"] > 0
        assert line["fresh_hidden_bias"] > 0
        assert 0 < line["covered_mass"] <= 1
    summaries = [json.loads((folder / "summary.json").read_text()) for folder in (plain, measured)]
    last = {key: value for key, value in found[-1].items() if key != "kind"}
    assert summaries[1]["diagnostics"] == last
    assert "diagnostics" not in summaries[0]
    assert not observed(plain, "diagnostics")
    assert summaries[0]["metrics"] == summaries[1]["metrics"]
    for kind in ("evaluation", "distribution"):
        assert observed(plain, kind) == observed(measured, kind)


def test_a_resumed_run_observes_the_same(configure: Configure, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The run stops in the first epoch after a measured one, and by a kill between measuring and the checkpoint."""
    chosen = [*LSH, "epochs=4", *MEASURED]
    whole = run(configure(*chosen, f"results_dir={tmp_path / 'whole'}"))
    real_evaluate, real_diagnose = classification.evaluate, loop.divergence_of
    calls = []

    def interrupted(*arguments: Any, **options: Any) -> dict[str, float]:
        calls.append(1)
        if len(calls) == 3:
            signal.raise_signal(signal.SIGINT)
        return real_evaluate(*arguments, **options)

    config = configure(*chosen)
    with monkeypatch.context() as patch:
        patch.setattr(loop, "warm_up", lambda config: None)
        patch.setattr(classification, "evaluate", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(config)
    assert [line["step"] for line in observed(config.run_dir, "diagnostics")] == [16]

    def killed(*arguments: Any, **options: Any) -> Any:
        real_diagnose(*arguments, **options)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(loop, "warm_up", lambda config: None)
        patch.setattr(loop, "divergence_of", killed)
        with pytest.raises(KeyboardInterrupt):
            run(config)
    run(config)
    assert observed(config.run_dir, "diagnostics") == observed(whole, "diagnostics")
    assert len(observed(whole, "diagnostics")) == 2


# ---------------------------------------------------------------- weights that stay


def test_small_weights_are_kept_and_predict_the_same(configure: Configure) -> None:
    config = configure(*LSH, "max_steps=9")
    folder = RunFolder(run(config))
    network, task, step = load_trained(config, folder)
    assert step == 9
    assert task.evaluate_final(network) == (folder.summary() or {})["metrics"]
    assert not any("first" in name or "last_step" in name for name in network.final_weights())


@pytest.mark.parametrize(("keep", "limit", "kept"), [
    ("null", 2**26, True), ("null", 100, False), ("true", 100, True), ("false", 2**26, False),
])  # fmt: skip
def test_which_weights_are_kept(
    keep: str, limit: int, kept: bool, configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "_KEPT_BYTES", limit)
    folder = RunFolder(run(configure("sampler=uniform", "max_steps=2", f"keep_weights={keep}")))
    assert folder.has_weights == kept
    assert (folder.load_weights() is not None) == kept
    assert not list(folder.path.glob(".*partial"))


def test_force_forgets_weights_and_diagnostics(configure: Configure, command: Command) -> None:
    folder = run(configure("sampler=uniform", "max_steps=2"))
    assert command(folder, "--rows", "5", "--draws", "2")[0] == 0
    run(configure("sampler=uniform", "max_steps=2", "force=true", "keep_weights=false"))
    assert not (folder / "weights").exists()
    assert not (folder / "diagnostics").exists()


# ---------------------------------------------------------------- the command


@pytest.fixture(scope="module")
def finished(toy_folder: Path, prepared_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a finished run of LSH Label, which tests must only read."""
    place = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DATASETS_DIR", str(prepared_root))
        chosen = ["dataset=xmc", f"dataset.path={toy_folder}", f"results_dir={place}", *SMALL, *LSH, "epochs=2"]
        return run(compose([*chosen, *MEASURED]))


@pytest.fixture
def folder(finished: Path, tmp_path: Path, own_data_dir: Path) -> Path:
    """Return a copy of the finished run that a test may change."""
    return Path(shutil.copytree(finished, tmp_path / finished.name))


@pytest.mark.slow
def test_the_command_by_itself(folder: Path, own_data_dir: Path) -> None:
    """The command measures every sampler in a process: it prints tables and, last, the folder with complete files."""
    done = subprocess.run(
        [sys.executable, "-m", "runner.diagnose", str(folder), "--sampler", "all", "sampler.num_samples=15",
         "sampler.num_nearest=10", "--rows", "10", "--draws", "3"],
        cwd=ROOT, env={**os.environ, "DATASETS_DIR": str(own_data_dir)}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    place = folder / "diagnostics"
    assert done.stdout.splitlines()[-1] == str(place)
    markdown = (place / "diagnostics.md").read_text()
    assert markdown in done.stdout
    for text in ("KL(p‖q)", "Bias, fixed tables", "Bias over fresh tables", "inf", "num_samples=15", folder.name):
        assert text in markdown
    with open(place / "diagnostics.csv") as file:
        rows = {row["sampler"]: row for row in csv.DictReader(file)}
    left_out = [line.split(": ")[1] for line in done.stderr.splitlines() if line.startswith("left out: ")]
    assert set(rows) | set(left_out) == set(SAMPLERS)
    assert rows["topk"]["kl"] == "inf"
    assert float(rows["uniform"]["candidates"]) <= 15
    assert rows["full"]["kl"] == ""
    everything = json.loads((place / "diagnostics.json").read_text())
    assert everything["run_id"] == folder.name
    assert everything["step"] == 16
    assert everything["num_classes"] == 50
    assert "xmc: softmax (grey), proposal (colour)" in (place / "proposal_by_rank.svg").read_text()
    for name in ("cumulative", "proposal_by_rank"):
        assert (place / f"{name}.png").stat().st_size > 10_000
        assert (place / f"{name}.svg").read_text().rstrip().endswith("</svg>")
    assert not list(folder.glob(".*partial"))


def test_by_default_the_runs_own_sampler_with_its_tables(folder: Path, command: Command) -> None:
    """The probe, draws and tables are those of the end of training, so the numbers are the same."""
    code, _, err = command(folder, "--rows", "12", "--draws", "3")
    assert code == 0, err
    everything = json.loads((folder / "diagnostics" / "diagnostics.json").read_text())
    (entry,) = everything["samplers"]
    assert entry["name"] == "lsh_label"
    assert entry["tables"] == "with the tables of the run"
    assert entry["settings"]["K"] == 3
    summary = json.loads((folder / "summary.json").read_text())["diagnostics"]
    for name, value in entry["measures"].items():
        assert value == pytest.approx(summary[name], rel=1e-6), name


def test_learnt_codebooks_have_learnt(folder: Path, command: Command) -> None:
    names = ["midx_rq", "midx_learn_rq"]
    code, _, err = command(folder, "--rows", "6", "--draws", "2", "sampler.codewords=4", "--sampler", *names)
    assert code == 0, err
    plain, learnt = json.loads((folder / "diagnostics" / "diagnostics.json").read_text())["samplers"]
    assert [plain["name"], learnt["name"]] == names
    assert learnt["measures"]["kl"] != plain["measures"]["kl"]


def test_settings_of_named_samplers(folder: Path, command: Command) -> None:
    code, _, err = command(
        folder, "--rows", "6", "sampler.unique=false", "loss=sampled_softmax", "--draws", "2",
        "--sampler", "uniform", "lsh_label", "sampler.K=4", "sampler.num_samples=7",
    )  # fmt: skip
    assert code == 0, err
    uniform, lsh = json.loads((folder / "diagnostics" / "diagnostics.json").read_text())["samplers"]
    assert uniform["measures"]["candidates"] == 7
    assert uniform["loss"] == lsh["loss"] == "sampled_softmax"
    assert (lsh["settings"]["K"], lsh["settings"]["L"]) == (4, 4)
    assert lsh["tables"] == "built anew on the final weights"
    assert isinstance(lsh["measures"]["kl"], float)


def test_a_sampler_that_the_runs_loss_does_not_fit_takes_its_own(folder: Path, command: Command) -> None:
    assert command(folder, "--rows", "6", "--draws", "2", "--sampler", "full", "uniform")[0] == 0
    entries = json.loads((folder / "diagnostics" / "diagnostics.json").read_text())["samplers"]
    assert [entry["loss"] for entry in entries] == ["full", "active_set"]


@pytest.mark.parametrize(("arguments", "says"), [
    (["--sampler", "unifrom"], "unknown sampler 'unifrom'; did you mean 'uniform'? valid: all, exact, full"),
    (["--rows", "0"], "--rows must be at least 1"),
    (["--draws", "1"], "--draws must be at least 2"),
    (["sampler.KK=3"], "unknown key 'sampler.KK'; did you mean 'K'? valid: "),
    (["sampler.K=none"], "sampler.K: expected int or null, got 'none'"),
    (["sampler.K=0"], "sampler.K must lie in [1, 24]"),
    (["--sampler", "uniform", "sampler.K=3"], "unknown key 'sampler.K'"),
    (["model.hidden=3"], "'model.hidden' cannot be set here"),
    (["sampler=uniform"], "'sampler' cannot be set here: name the sampler by --sampler uniform"),
    (["sampler.name=uniform"], "'sampler.name' cannot be set here: name the sampler by --sampler uniform"),
    (["loss.name=nce"], "'loss.name' cannot be set here: name the loss by loss=nce"),
    (["sampler.K=[3"], "cannot read 'sampler.K=[3'"),
    (["--sampler", "in_batch"], "sampler in_batch: its draw is the batch itself"),
    (["uniform"], "cannot read 'uniform': write KEY=VALUE, or --sampler NAME"),
    (["loss=ful"], "unknown option 'loss=ful'; did you mean 'full'?"),
    (["loss=full"], "loss=full does not go with sampler=lsh_label; valid: "),
    (["loss.t=1"], "unknown key 'loss.t'"),
    (["hardware.threads=many"], "hardware.threads: expected int, got 'many'"),
    (["hardware.threads=-1"], "hardware.threads must be 0 or more"),
])  # fmt: skip
def test_a_mistake_is_one_line(arguments: list[str], says: str, folder: Path, command: Command) -> None:
    code, out, err = command(folder, *arguments)
    assert code == 2
    assert out == ""
    assert err.count("\n") == 1, err
    assert err.startswith("error: ")
    assert says in err
    assert not (folder / "diagnostics").exists()


def test_folders_that_can_not_be_measured(folder: Path, tmp_path: Path, command: Command) -> None:
    def line(path: Path) -> str:
        code, out, err = command(path)
        assert (code, out, err.count("\n")) == (2, "", 1), err
        return err

    assert "is not a run folder: it has no summary.json" in line(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()
    assert "is not a run folder" in line(tmp_path)
    shutil.move(folder / "weights", folder / "moved")
    assert "weights were not kept" in line(folder)
    assert "force=true keep_weights=true" in line(folder)
    shutil.move(folder / "moved", folder / "weights")

    summary = json.loads((folder / "summary.json").read_text())
    changes: list[tuple[dict[str, Any], str]] = [
        ({"dataset": {"kind": "card", "name": "wiki325k"}}, "prepare_dataset.py wiki325k"),
        ({"epoch": 3}, "config.yaml: unknown key 'epoch'"),
    ]
    del summary["identity"]  # as if an older version had written it
    for change, says in changes:
        other = {**summary["config"], **change}
        moved = shutil.copytree(folder, tmp_path / str(len(says)) / folder.name)
        (moved / "config.yaml").write_text(yaml.safe_dump(other))
        (moved / "summary.json").write_text(json.dumps({**summary, "config": other}))
        assert says in line(moved)

    (folder / "summary.json").write_text(json.dumps({**summary, "status": "interrupted"}))
    shutil.rmtree(folder / "weights")
    assert "the run is 'interrupted' and left no checkpoint" in line(folder)


def test_an_interrupted_run_is_measured_at_its_checkpoint(
    configure: Configure, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configure(*LSH, "epochs=2")
    real = Classification.evaluate_subset

    def interrupted(*arguments: Any, **options: Any) -> dict[str, float]:
        signal.raise_signal(signal.SIGINT)
        return real(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "warm_up", lambda config: None)
        patch.setattr(Classification, "evaluate_subset", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(config)
    folder = config.run_dir
    before = (folder / "metrics.jsonl").read_bytes()
    code, _, err = command(folder, "--rows", "6", "--draws", "2")
    assert code == 0, err
    everything = json.loads((folder / "diagnostics" / "diagnostics.json").read_text())
    assert 0 < everything["step"] < 16
    assert f"step-{everything['step']:09d}" in os.listdir(folder / "checkpoint")
    assert everything["samplers"][0]["tables"] == "with the tables of the run"
    assert (folder / "metrics.jsonl").read_bytes() == before
    assert run(config) == folder


def test_data_that_changed_are_refused(folder: Path, command: Command) -> None:
    provenance = json.loads((folder / "provenance.json").read_text())
    (folder / "provenance.json").write_text(json.dumps({**provenance, "data_checksum": "other"}))
    code, _, err = command(folder)
    assert code == 2
    assert "the data changed since" in err


def test_a_failure_leaves_the_earlier_diagnostics(
    folder: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert command(folder, "--rows", "5", "--draws", "2")[0] == 0
    before = (folder / "diagnostics" / "diagnostics.json").read_bytes()

    def fail(*arguments: Any) -> None:
        raise RunnerError("no ink")

    monkeypatch.setattr("runner.report.diagnoses.figures.draw", fail)
    assert command(folder, "--rows", "4", "--draws", "2")[0] == 2
    assert (folder / "diagnostics" / "diagnostics.json").read_bytes() == before
    assert not list(folder.glob(".*partial"))


_HELP = """
import runpy, sys
sys.argv = ["diagnose", "--help"]
try:
    runpy.run_module("runner.diagnose", run_name="__main__", alter_sys=True)
except SystemExit as stop:
    assert not stop.code, stop.code
heavy = sorted({"torch", "numba", "sklearn", "scipy", "pandas", "matplotlib", "hydra"} & set(sys.modules))
assert not heavy, heavy
"""


def test_help_imports_nothing_heavy(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _HELP], capture_output=True, text=True, cwd=tmp_path, timeout=60,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for word in ("--sampler", *SAMPLERS, "RUN", "--results-dir", "--draws", "sampler.num_samples=100"):
        assert word in done.stdout


def test_masses_by_rank_follow_from_stated_counts() -> None:
    ends = [1, 2, 4, 8, 16, 50]
    curves = {"rank_end": ends, "truth": [0.9, 0.95, *[1.0] * 4], "proposal": [end / 50 for end in ends]}
    masses = figures._mass_of_groups(curves)
    assert masses["rank_end"].tolist() == [1, 8, 50], "every third group, and the last"
    np.testing.assert_allclose(masses["truth"], [0.9, 0.1, 0.0], atol=1e-12)
    np.testing.assert_allclose(masses["proposal"] / np.diff(masses["rank_end"], prepend=0), 1 / 50)


def test_a_diagnosis_that_an_earlier_version_stored_is_read(tmp_path: Path) -> None:
    fields = dict.fromkeys(field.name for field in dataclasses.fields(Entry))
    stored = {"asked": {}, "samplers": [{**fields, "name": "uniform", "distribution": {}}]}
    (tmp_path / "diagnostics.json").write_text(json.dumps(stored))
    found = read(tmp_path)
    assert found is not None
    assert [entry.name for entry in found.entries] == ["uniform"]

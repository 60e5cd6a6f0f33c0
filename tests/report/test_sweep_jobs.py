"""A sweep plans its jobs before any runs, goes on after one that fails, and compares its runs at the end."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hydra.core.plugins import Plugins
from omegaconf import OmegaConf

import runner.report.plan.plan
import runner.training.run
from runner.config import exit_code, forget_failures
from runner.errors import Diverged
from runner.options.settings import RunConfig
from runner.report.numbers.records import RunRecord
from runner.report.spec.grids import PlannedRun
from runner.sweeps.launchers import at_once
from runner.sweeps.sweep import sweep

Write = Callable[..., Path]
Command = Callable[..., str]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Do not measure this machine's speed, and leave no failure to other tests."""
    for module in ("plan", "estimate"):
        monkeypatch.setattr(f"runner.report.plan.{module}.slowness", lambda: 1.0)
    yield
    forget_failures()


@pytest.fixture
def made(write_run: Write, monkeypatch: pytest.MonkeyPatch) -> list[RunConfig]:
    """Put a run that writes its folder in place of training; it diverges at a high rate. Return what it ran."""
    ran: list[RunConfig] = []

    def run(config: RunConfig, *, compiles_apart: bool) -> Path:
        ran.append(config)
        planned = PlannedRun(dataset="d", method="m", seed=0, overrides=(), config=config)
        if RunRecord(config.run_dir).finished:
            return config.run_dir
        if config.optimizer.lr > 1:
            write_run(planned, [0.1], status="diverged")
            raise Diverged("the loss became nan at step 2")
        return write_run(planned, [config.optimizer.lr])

    monkeypatch.setattr(runner.training.run, "run", run)
    return ran


@pytest.fixture
def command(results_dir: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """Call ``python -m runner -m WORDS`` in this process; return what it writes to standard error."""

    def call(*words: str, flags: tuple[str, ...] = ("-m",)) -> str:
        assert sweep([*flags, *words, f"results_dir={results_dir}"])
        return capsys.readouterr().err

    return call


def test_the_plan_comes_first_and_bad_combinations_do_not_stop_the_others(
    command: Command, made: list[RunConfig]
) -> None:
    """K goes with LSH alone, and x is no number: the plan says so before anything runs, and the others run."""
    said = command("sampler=full,lsh_label", "sampler.K=7,x", "epochs=2").splitlines()
    assert said[0].startswith("[1/4] sampler=full sampler.K=7: cannot run: unknown key 'sampler.K'")
    assert said[2].startswith("[3/4] sampler=lsh_label sampler.K=7: to run, for how long is not known")
    assert said[3] == "[4/4] sampler=lsh_label sampler.K=x: cannot run: sampler.K: expected int or null, got 'x'"
    assert said[4].startswith("1 runs: 0 finished, 1 to run")
    assert said[5] == "[3/4] sampler=lsh_label sampler.K=7"
    assert [(config.sampler.name, config.sampler.K, config.epochs) for config in made] == [("lsh_label", 7, 2)]
    assert said[-4] == "3 of 4 jobs did not finish:"
    assert exit_code() == 2


def test_settings_of_a_swept_sampler_need_not_fit_the_default_one(command: Command, made: list[RunConfig]) -> None:
    command("sampler=uniform,unigram", "sampler.num_samples=50")
    assert [config.sampler.name for config in made] == ["uniform", "unigram"]
    assert exit_code() == 0


def test_a_job_that_fails_is_named_at_the_end_and_the_next_ones_run(command: Command, made: list[RunConfig]) -> None:
    said = command("optimizer.lr=0.1,5,0.3")
    assert [config.optimizer.lr for config in made] == [0.1, 5, 0.3]
    assert "\n## wordnet_hypernym\n" in said
    rows = [line for line in said.splitlines() if line.startswith("| LSH Label")]
    assert [row.split("|")[2].strip() for row in rows] == [f"optimizer.lr={rate}" for rate in ("0.3", "0.1", "5")]
    assert said.splitlines()[-2:] == [
        "1 of 3 jobs did not finish:", "[2/3] optimizer.lr=5: the loss became nan at step 2",
    ]  # fmt: skip
    assert exit_code() == 2


@pytest.mark.slow
def test_what_is_finished_is_no_work_and_the_time_left_falls(command: Command, made: list[RunConfig]) -> None:
    command("optimizer.lr=0.1")
    said = command("optimizer.lr=0.1,0.2,0.3,0.2", "epochs=4").splitlines()
    assert said[0] == "[1/4] optimizer.lr=0.1: finished"
    assert said[1].startswith("[2/4] optimizer.lr=0.2: to run, about "), "as measured in the run before"
    assert said[3] == "[4/4] optimizer.lr=0.2: the same run as [2]"
    left = [line.rpartition("about ")[2] for line in said if line.startswith("[") and line.endswith(" left")]
    assert left[0] == left[1] != left[2], "the first is finished already"
    assert len(made) == 1 + 3, "the fourth is not launched"
    again = command("optimizer.lr=0.1", "force=true").splitlines()
    assert again[0].startswith("[1/1] ")
    assert ": to run, about " in again[0]


def test_a_launcher_that_breaks_leaves_what_is_there(
    command: Command, made: list[RunConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher: Any = Plugins.instance().class_name_to_class["hydra._internal.core_plugins.basic_launcher.BasicLauncher"]
    launch = launcher.launch

    def broken(self: Any, words: list[list[str]], initial_job_idx: int) -> None:
        launch(self, words[:1], initial_job_idx)
        raise RuntimeError("a worker was killed")

    monkeypatch.setattr(launcher, "launch", broken)
    said = command("optimizer.lr=0.1,0.2")
    assert "error: RuntimeError: a worker was killed" in said
    assert said.splitlines()[-2:] == ["1 of 2 jobs did not finish:", "[2/2] optimizer.lr=0.2: not run"]
    assert exit_code() == 1


def test_a_data_set_that_is_not_prepared_is_named_and_leaves_no_folder(
    command: Command, own_data_dir: Path, results_dir: Path
) -> None:
    said = command("dataset=wiki325k", "optimizer.lr=0.1,0.2").splitlines()
    assert said[-3] == "2 of 2 jobs did not finish:"
    assert said[-2].startswith("[1/2] optimizer.lr=0.1: wiki325k is not prepared: run `")
    assert not list((results_dir / "runs").iterdir())
    assert exit_code() == 2


def test_nothing_is_left_behind_if_no_combination_can_run(command: Command, results_dir: Path) -> None:
    command("sampler.K=0,x")
    assert exit_code() == 2
    assert not results_dir.exists()


@pytest.mark.slow
@pytest.mark.parametrize(("preset", "words", "swept"), [
    ("sweep_lsh", ["sampler.L=150,300"], [("K", "L"), (5, 150), (5, 300), (6, 150), (6, 300)]),
    ("sweep_rff", [], [("D",), (128,), (256,), (512,), (1024,)]),
    ("sweep_midx", ["sampler.num_samples=20"],
     [("codewords", "num_samples"), (8, 20), (16, 20), (32, 20), (64, 20), (128, 20)]),
])  # fmt: skip
def test_presets_of_ablations_sweep_by_themselves(
    preset: str, words: list[str], swept: list[tuple[Any, ...]], command: Command, made: list[RunConfig]
) -> None:
    """Values on the command line take the place of the preset's."""
    said = command(f"preset={preset}", *words, flags=())
    keys, *values = swept
    assert [tuple(getattr(config.sampler, key) for key in keys) for config in made] == values
    assert said.startswith(f"[1/{len(values)}] ")


@pytest.mark.parametrize("words", [
    ["sampler.K=4"], ["preset=smoke", "sampler.K=4"], ["-m", "--help"], ["-m", "--cfg", "job"], ["--hydra-help"],
])  # fmt: skip
def test_other_commands_are_left_to_hydra(words: list[str]) -> None:
    assert not sweep(words)


@pytest.mark.parametrize(("options", "shared"), [
    ({}, 4), ({"array_parallelism": 3}, 3), ({"additional_parameters": {"exclusive": True}}, 1),
])  # fmt: skip
def test_jobs_of_slurm_count_as_alone_if_they_ask_for_whole_nodes(options: dict[str, Any], shared: int) -> None:
    launcher = {"_target_": "a.SlurmLauncher", "array_parallelism": 256, "additional_parameters": {}, **options}
    assert at_once(OmegaConf.create(launcher), 4) == shared

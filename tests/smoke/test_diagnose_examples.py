"""Regression runs are diagnosed by the command: samplers of examples, their settings, and mistakes."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from runner import diagnose
from runner.config import compose
from runner.report.diagnoses import example_tables, tables
from runner.report.diagnoses.record import Diagnosis, Entry, ExampleDiagnosis, ExampleEntry
from runner.training.run import run

Command = Callable[..., tuple[int, str, str]]
SHORT = ["optimizer=sgd", "optimizer.lr=0.01", "batch_size=1", "epochs=1", "max_steps=60", "evaluation.every_epochs=1"]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run the command in this process; return exit code, standard output and standard error."""

    def call(*arguments: str | Path) -> tuple[int, str, str]:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["diagnose", *map(str, arguments)])
        code = diagnose.main()
        return (code, *capsys.readouterr())

    return call


@pytest.fixture
def trained(own_data_dir: Path, tmp_path: Path) -> Callable[..., Path]:
    def train(*settings: str) -> Path:
        return run(compose([*settings, *SHORT, "hardware.threads=1", f"results_dir={tmp_path / 'results'}"]))

    return train


def test_settings_are_listed_as_hydra_takes_them() -> None:
    settings = {"name": "lgd", "K": 5, "density": 1 / 30, "max_weight": None, "center": True}
    listed = "K=5, density=0.03333333333333333, max_weight=null, center=true"
    entry = ExampleEntry(name="lgd", settings=settings, measures={}, course={})
    said = example_tables.settings(ExampleDiagnosis(made={}, entries=(entry,)))
    assert said == f"- LGD: `batch_sampler=lgd`, {listed}"
    of_classes = Entry(
        name="x", loss="nce", settings=settings, loss_settings={"name": "nce", "correct_target": False},
        tables="as trained", avoids_targets=False, measures={}, cumulative={},
    )  # fmt: skip
    said = tables.settings(Diagnosis(made={}, entries=(of_classes,)))
    assert said == f"- `x`: {listed}, loss.correct_target=false (as trained)"


@pytest.mark.slow
def test_a_regression_run_is_diagnosed(trained: Callable[..., Path], command: Command) -> None:
    folder = trained("model=regression")
    code, out, err = command(folder, "--draws", "3", "batch_sampler.L=20")
    assert code == 0, err
    for label in ("Uniform examples", "LGD as printed", "LGD", "LGD strata", "Norm oracle (bound)"):
        assert f"| {label} " in out
    assert out.splitlines()[-1] == str(folder / "diagnostics")
    assert {path.name for path in (folder / "diagnostics").iterdir()} == {
        "diagnostics.md", "diagnostics.csv", "diagnostics.json", "samples.png", "samples.svg",
    }  # fmt: skip
    found = json.loads((folder / "diagnostics" / "diagnostics.json").read_text())
    entries = {entry["name"]: entry for entry in found["example_samplers"]}
    assert (found["step"], found["num_examples"], found["repeats"]) == (60, 358, 3)
    assert [entries[name]["settings"]["L"] for name in ("lgd", "lgd_printed")] == [20, 20]
    uniform, oracle = entries["uniform"]["measures"], entries["norm_oracle"]["measures"]
    assert uniform["gradient_norm"] == uniform["variance"] == 1
    others = [entries[name]["measures"]["variance"] for name in ("uniform", "lgd_strata")]
    assert oracle["variance"] < min(others), "no chances have less variance"
    assert oracle["variance"] < 1 < oracle["gradient_norm"]
    assert entries["lgd"]["measures"]["lemma_left"] == entries["lgd_printed"]["measures"]["lemma_left"]
    again = command(folder, "--draws", "3", "batch_sampler.L=20", "hardware.threads=2", "--name", "two")
    assert again[0] == 0
    two = json.loads((folder / "diagnostics-two" / "diagnostics.json").read_text())
    assert two["example_samplers"] == found["example_samplers"], "the same bits with two threads"


@pytest.mark.slow
def test_logistic_regression_and_a_choice_of_samplers(trained: Callable[..., Path], command: Command) -> None:
    folder = trained("model=logistic", "dataset=breast_cancer")
    code, out, err = command(folder, "--sampler", "lgd", "norm_oracle", "--draws", "2", "batch_sampler.K=2")
    assert code == 0, err
    assert "LGD strata" not in out
    assert "K=2" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--sampler", "lgb"], "unknown sampler 'lgb'; did you mean 'lgd'"),
        (["--rows", "5"], "--rows: only for runs that sample classes"),
        (["batch_sampler.M=3"], "unknown key 'batch_sampler.M'"),
        (["sampler.K=3"], "'sampler.K' cannot be set here"),
        (["batch_sampler.K=0"], "batch_sampler.K must lie in"),
        (["--draws", "1"], "--draws must be at least 2"),
    ],
)
def test_a_mistake_is_one_line(
    arguments: list[str], message: str, trained: Callable[..., Path], command: Command
) -> None:
    code, out, err = command(trained("model=regression"), *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1 + err.count("regression-")  # the line of the run that the test made, if it made one

"""Evaluations that the clock asks for show more of a run and change nothing else in it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runner.config import compose
from runner.errors import ConfigError
from runner.optimizers import AdamConfig
from runner.options import settings
from runner.options.settings import EvaluationConfig, RunConfig
from runner.output.numba.row_table import RowTable
from runner.training import loop
from runner.training.run import run
from runner.training.run_folder import RunFolder

OFTEN = "evaluation.seconds_factor=1.001"
SMALL = [
    "model.hidden=16", "batch_size=32", "optimizer.lr=0.02", "evaluation.rows=20", "evaluation.every_epochs=1",
    "epochs=3", "hardware.threads=1", "dataset.valid_share=0.2", "keep_weights=true",
]  # fmt: skip
LSH = ["sampler=lsh_embedding", "sampler.K=4", "sampler.L=6", "sampler.min_candidates=15"]
METHODS = {
    "few rows lag": ["sampler=full"],
    "most rows lag": ["sampler=uniform", "sampler.num_samples=3"],
    "tables": [*LSH, "sampler.refresh_every_steps=2"],
    "normalised": ["sampler=rff", "sampler.D=8", "sampler.num_samples=5", "output.normalize=true", "output.bias=false"],
    "annealed": ["sampler=uniform", "sampler.num_samples=3", "training.anneal=0.5", "training.patience=1"],
}

Configure = Callable[..., RunConfig]


@pytest.fixture
def configure(toy_folder: Path, own_data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Configure:
    """Compose a run that the clock evaluates from its first step on, if it does so at all."""
    monkeypatch.setattr(settings, "_FIRST_SECONDS", 1e-9)
    data = ["dataset=xmc", f"dataset.path={toy_folder}", f"results_dir={tmp_path / 'results'}"]
    return lambda *more: compose([*data, *SMALL, *more])


def evaluations(folder: Path) -> list[dict[str, Any]]:
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [
        {key: value for key, value in line.items() if "seconds" not in key}
        for line in lines
        if line["kind"] == "evaluation"
    ]


def left(folder: Path) -> tuple[Any, ...]:
    """Return what a run leaves, bit by bit, except seconds and evaluations."""
    summary = json.loads((folder / "summary.json").read_text())
    kept = RunFolder(folder).load_weights()
    assert kept is not None
    weights = {name: array.tobytes() for name, array in kept.arrays.items()}
    return summary["metrics"], summary["steps"], summary["selection"], summary["candidates_per_row"], weights


@pytest.mark.parametrize("method", METHODS)
def test_the_clock_adds_evaluations_and_nothing_else(method: str, configure: Configure) -> None:
    words = METHODS[method]
    alone, watched = run(configure(*words)), run(configure(*words, OFTEN))
    assert left(alone) == left(watched)
    planned = evaluations(alone)
    by_step = {line["step"]: line for line in evaluations(watched)}
    assert [by_step[line["step"]] for line in planned] == planned, "the planned ones are the same, losses included"
    assert len(by_step) >= 2 * len(planned)
    assert all(line.keys() == planned[0].keys() for line in by_step.values())


def test_what_is_measured_is_the_network_at_that_step(configure: Configure) -> None:
    """Rows lag, so an evaluation of the stored weights alone would give other numbers than that of a planned step."""
    words = METHODS["most rows lag"]
    by_clock = {line["step"]: line for line in evaluations(run(configure(*words, OFTEN)))}
    often = evaluations(run(configure(*words, "evaluation.every_epochs=0.2")))
    first = often[0]["step"]
    assert first in by_clock
    assert by_clock[first]["valid/p@1"] == often[0]["valid/p@1"]
    assert by_clock[first]["valid/ndcg@5"] == pytest.approx(often[0]["valid/ndcg@5"])


def test_an_interrupted_run_goes_on_to_the_same_end(configure: Configure, monkeypatch: pytest.MonkeyPatch) -> None:
    words = [*METHODS["tables"], OFTEN]
    expected = left(run(configure(*words)))
    config = configure(*words, "results_dir=" + str(configure().run_dir.parents[1] / "again"))
    look = loop.Training._look

    def stopped(training: loop.Training) -> None:
        look(training)
        if training.progress.step == 7:
            training._save()
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(loop.Training, "_look", stopped)
        with pytest.raises(KeyboardInterrupt):
            run(config)
    before = evaluations(config.run_dir)
    assert before[-1]["step"] == 7
    run(config)
    assert left(config.run_dir) == expected
    steps = [line["step"] for line in evaluations(config.run_dir)]
    assert steps[: len(before)] == [line["step"] for line in before]
    assert steps == sorted(set(steps)), "nothing is shown twice"


# ---------------------------------------------------------------- parts


@pytest.mark.parametrize("bias", [True, False])
def test_a_table_is_caught_up_for_a_while(bias: bool) -> None:
    generator = np.random.default_rng(0)
    tables = [RowTable(AdamConfig(lr=0.1), np.ones((6, 3), dtype=np.float32), bias=bias) for _ in range(2)]
    for step in (1, 2, 3):
        rows_U = np.array([step - 1, step], dtype=np.int32)
        gradient = generator.standard_normal((2, 3)).astype(np.float32)
        for table in tables:
            table.read(rows_U, step)
            table.apply(rows_U, gradient, np.ones(2, dtype=np.float32), step)
    looked, plain = tables
    before = {name: array.copy() for name, array in looked.state_dict().items() if name != "drift"}
    with looked.caught_up(9):
        looked.read(None, 9)
        within = looked.weights.copy()
    for name, array in before.items():
        assert np.array_equal(looked.state_dict()[name], array), name
    plain.read(None, 9)
    assert np.array_equal(within, plain.weights)
    assert not np.array_equal(within, looked.weights)


def test_moments_are_a_factor_apart() -> None:
    evaluation = EvaluationConfig(seconds_factor=2.0)
    assert [evaluation.turn(seconds) for seconds in (0.0, 0.2, 0.25, 0.4, 0.6, 1.1, 100.0)] == [0, 0, 1, 1, 2, 3, 9]
    assert EvaluationConfig().turn(100.0) == 0
    assert compose([OFTEN]).run_id != compose([]).run_id


@pytest.mark.parametrize("factor", ["1", "0.5", "-2", "nan"])
def test_a_factor_that_does_not_grow_is_refused(factor: str) -> None:
    with pytest.raises(ConfigError, match=r"evaluation\.seconds_factor"):
        compose([f"evaluation.seconds_factor={factor}"])

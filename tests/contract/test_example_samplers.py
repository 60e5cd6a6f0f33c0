"""Samplers of training examples state true counts, and their draws are functions of seed and step.

Bounds are 5 standard deviations over fixed seeds: each comparison is a false alarm for 6e-7 of seeds.
"""

import json
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from runner.batch_samplers import BATCH_SAMPLERS, ExampleSampler, ExampleSamplerConfig
from runner.config import CONF, compose, prepare_plugins
from runner.contracts import ExampleDraw, Examples
from runner.errors import ConfigError
from runner.network import Network
from runner.registry import register_batch_sampler
from runner.training import loop
from runner.training.run import run

COUNT, BATCH, STEPS = 37, 8, 4_000
NAMES = sorted(BATCH_SAMPLERS)


def build(name: str, *, seed: int = 3, count: int = COUNT, exchangeable: bool = True) -> ExampleSampler:
    examples = Examples(count=count, exchangeable=exchangeable)
    return BATCH_SAMPLERS[name](name=name).build(examples=examples, batch_size=BATCH, seed=seed)


def test_every_yaml_is_a_sampler_and_every_sampler_has_a_yaml() -> None:
    names = {path.stem: yaml.safe_load(path.read_text())["name"] for path in (CONF / "batch_sampler").glob("*.yaml")}
    assert names == {name: name for name in BATCH_SAMPLERS}


@pytest.mark.parametrize("name", NAMES)
def test_draws_are_functions_of_seed_and_step(name: str) -> None:
    sampler = build(name)
    first = sampler.draw(5).rows_B
    sampler.draw(600)
    assert first.tolist() == sampler.draw(5).rows_B.tolist() == build(name).draw(5).rows_B.tolist()
    assert first.tolist() != sampler.draw(6).rows_B.tolist()
    assert first.tolist() != build(name, seed=4).draw(5).rows_B.tolist()
    assert first.min() >= 0
    assert first.max() < COUNT
    assert 1 <= len(first) <= BATCH


@pytest.mark.parametrize("name", NAMES)
def test_counts_and_weighted_means(name: str) -> None:
    """Every example is drawn as often as stated, and the weighted sum of a value estimates its mean without bias."""
    sampler, value_X = build(name), np.random.default_rng(1).standard_normal(COUNT)
    seen_X, estimates = np.zeros(COUNT), []
    for step in range(1, STEPS + 1):
        draw = sampler.draw(step)
        np.add.at(seen_X, draw.rows_B, 1)
        weight_B = draw.weight_B(COUNT)
        if weight_B is None:
            weight_B = np.full(len(draw.rows_B), 1 / len(draw.rows_B))
        else:
            assert draw.log_expected_count_B is not None
            np.testing.assert_allclose(np.exp(draw.log_expected_count_B), BATCH / COUNT)
        estimates.append(float(weight_B @ value_X[draw.rows_B]))
    if name == "epoch":
        steps = -(-COUNT // BATCH)
        epochs = [estimates[begin : begin + steps] for begin in range(0, STEPS, steps)]
        assert np.ptp(seen_X) == 0, "4,000 steps are whole epochs"
        sizes = np.array([BATCH] * (steps - 1) + [COUNT - BATCH * (steps - 1)])
        for epoch in epochs:
            assert sizes @ epoch / COUNT == pytest.approx(value_X.mean(), rel=1e-6)
        return
    expected = STEPS * BATCH / COUNT
    assert np.abs(seen_X - expected).max() < 5 * np.sqrt(expected)
    assert abs(np.mean(estimates) - value_X.mean()) < 5 * np.std(estimates) / np.sqrt(STEPS)


@pytest.mark.parametrize("name", NAMES)
def test_state_round_trip(name: str) -> None:
    sampler, other = build(name), build(name)
    for step in range(1, 9):
        sampler.draw(step)
        sampler.refresh(step)
    other.load_state_dict(sampler.state_dict())
    assert sampler.draw(9).rows_B.tolist() == other.draw(9).rows_B.tolist()


@pytest.mark.parametrize("count", [1, 2, BATCH, BATCH + 1])
@pytest.mark.parametrize("name", NAMES)
def test_few_examples(name: str, count: int) -> None:
    sampler = build(name, count=count)
    for step in (1, 2, 3):
        assert 1 <= len(sampler.draw(step).rows_B) <= BATCH


def test_examples_in_order_come_in_order() -> None:
    sampler = build("epoch", count=3 * BATCH, exchangeable=False)
    drawn = [sampler.draw(step).rows_B for step in (1, 2, 3, 4)]
    assert np.concatenate(drawn[:3]).tolist() == list(range(3 * BATCH))
    assert drawn[3].tolist() == drawn[0].tolist()


def test_a_sampler_that_shuffles_refuses_a_carried_state(tmp_path: Path) -> None:
    words = "the cat sat on the mat and the dog sat on the cat\n" * 30
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.txt").write_text(words)
    overrides = [
        "dataset=text", f"dataset.path={tmp_path}", "model=lstm", "batch_sampler=uniform", "batch_size=4",
        "windows.length=5", "model.hidden=8", "model.embedding=8", "sampler=full",
        f"results_dir={tmp_path / 'results'}",
    ]  # fmt: skip
    with pytest.raises(ConfigError, match=r"batch_sampler=uniform .* set windows\.cut=chunked"):
        run(compose(overrides))
    assert not list(tmp_path.rglob("summary.json"))


# ---------------------------------------------------------------- whole runs


@dataclass(frozen=True, kw_only=True)
class LeastSeenConfig(ExampleSamplerConfig):
    """Draw the examples that were drawn least often: a sampler whose table decides what comes next."""

    name: str = "least_seen"

    def build(self, *, examples: Examples, batch_size: int, seed: int) -> "LeastSeen":
        return LeastSeen(examples.count, batch_size)


class LeastSeen(ExampleSampler):
    def __init__(self, count: int, batch_size: int) -> None:
        self.batch_size = batch_size
        self.seen_X = np.arange(count) % 3

    def draw(self, step: int, view: object = None) -> ExampleDraw:
        return ExampleDraw(rows_B=np.argsort(self.seen_X, kind="stable")[: self.batch_size])

    def refresh(self, step: int, view: object = None) -> bool:
        self.seen_X[self.draw(step).rows_B] += 1 + step % 2
        return True

    def state_dict(self) -> dict[str, np.ndarray]:
        return {"seen": self.seen_X}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        self.seen_X[...] = state["seen"]


def metrics_of(folder: Path) -> dict[str, float]:
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["status"] == "finished"
    return summary["metrics"]


@pytest.mark.usefixtures("registrations_stay_here")
@pytest.mark.parametrize("name", ["least_seen", "uniform"])
def test_an_interrupted_run_draws_what_an_undisturbed_one_draws(
    name: str, toy_folder: Path, own_data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    register_batch_sampler("least_seen", LeastSeenConfig)
    overrides = [
        "dataset=xmc", f"dataset.path={toy_folder}", "model.hidden=16", "batch_size=32", "optimizer.lr=0.02",
        "evaluation.every_epochs=1", "epochs=3", "sampler=uniform", "sampler.num_samples=20", "hardware.threads=1",
        f"batch_sampler={name}",
    ]  # fmt: skip
    prepare_plugins([])  # so that Hydra knows the option
    whole = run(compose([*overrides, f"results_dir={tmp_path / 'whole'}"]))
    config = compose([*overrides, f"results_dir={tmp_path / 'stopped'}"])
    assert config.as_dict()["batch_sampler"] == {"name": name}
    real = Network.train_step

    def interrupted(self: Any, batch: Any, step: int, clock: Any) -> Any:
        if step == 11:
            signal.raise_signal(signal.SIGINT)
        return real(self, batch, step, clock)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "warm_up", lambda config: None)
        patch.setattr(Network, "train_step", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(config)
    assert metrics_of(run(config)) == metrics_of(whole)
    plain = run(compose([*overrides[:-1], f"results_dir={tmp_path / 'plain'}"]))
    assert metrics_of(plain) != metrics_of(whole), "the sampler of examples makes a difference"

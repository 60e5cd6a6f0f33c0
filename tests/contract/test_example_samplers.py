"""Samplers of training examples state true counts, and their draws are functions of seed and step.

Bounds are 5 standard deviations over fixed seeds: each comparison is a false alarm for 6e-7 of seeds.
"""

import json
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
import yaml
from example_cases import BATCH, COUNT, EXACT, NAMES, VARIANTS, ToyView, build, toy_view, turn, walk
from scipy.stats import chisquare

from runner.config import CONF, compose, prepare_plugins
from runner.contracts import ExampleDraw, Examples
from runner.errors import ConfigError
from runner.lgd import BATCH_SAMPLERS, ExampleSampler, ExampleSamplerConfig
from runner.network import Network
from runner.registry import register_batch_sampler
from runner.training import loop
from runner.training.run import run

STEPS = 4_000


def make(variant: str, view: ToyView | None = None, **keys: Any) -> ExampleSampler:
    name, settings = VARIANTS[variant]
    return build(name, view, **settings, **keys)


def test_every_yaml_is_a_sampler_and_every_sampler_has_a_yaml() -> None:
    names = {path.stem: yaml.safe_load(path.read_text())["name"] for path in (CONF / "batch_sampler").glob("*.yaml")}
    assert names == {name: name for name in BATCH_SAMPLERS}


@pytest.mark.parametrize("variant", VARIANTS)
def test_draws_are_functions_of_seed_and_step(variant: str) -> None:
    view = toy_view()
    sampler = make(variant, view)
    first = sampler.draw(5, view).rows_B
    sampler.draw(600, view)
    again = make(variant, view)
    assert first.tolist() == sampler.draw(5, view).rows_B.tolist() == again.draw(5, view).rows_B.tolist()
    assert first.tolist() != sampler.draw(6, view).rows_B.tolist()
    assert first.tolist() != make(variant, view, seed=4).draw(5, view).rows_B.tolist()
    assert first.min() >= 0
    assert first.max() < COUNT
    assert 1 <= len(first) <= BATCH


@pytest.mark.parametrize("variant", VARIANTS)
def test_draws_of_many_steps_are_those_of_each(variant: str) -> None:
    """Rows and counts are the same bits, however the steps are cut into calls."""
    view = toy_view()
    sampler = make(variant, view)
    single = [sampler.draw(step, view) for step in range(3, 33)]
    rows_M = np.concatenate([draw.rows_B for draw in single])
    for size in (1, 7, 30):
        parts = [sampler.draws(first, min(size, 33 - first), view) for first in range(3, 33, size)]
        assert np.concatenate([part.rows_M for part in parts]).tolist() == rows_M.tolist()
        sizes = np.concatenate([np.diff(part.begin_S1) for part in parts])
        assert sizes.tolist() == [len(draw.rows_B) for draw in single]
        assert all(part.begin_S1[0] == 0 and part.begin_S1[-1] == len(part.rows_M) for part in parts)
        if single[0].log_expected_count_B is None:
            assert all(part.count_M is None for part in parts)
            continue
        logs_M = np.concatenate([draw.log_expected_count_B for draw in single])
        assert np.log(np.concatenate([part.count_M for part in parts])).tolist() == logs_M.tolist()


@pytest.mark.parametrize("variant", VARIANTS)
def test_steps_without_refresh_say_when_draws_change(variant: str) -> None:
    """Between two refreshes that are due, ``refresh`` changes no draw, although the query turns in every step."""
    view = toy_view()
    sampler = make(variant, view)
    due, step = set(), 1
    while step <= 24:
        ahead = sampler.steps_without_refresh(step)
        assert ahead >= 1
        due.add(step + ahead - 1)
        step += ahead
    for step in range(1, 25):
        before = sampler.draws(500, 40, view)
        if sampler.learns_norms:
            drawn = sampler.draw(step, view).rows_B
            sampler.observe(drawn, view.gradient_norms(drawn))
        turn(view, step)
        sampler.refresh(step, view)
        after = sampler.draws(500, 40, view)
        if step not in due:
            assert before.rows_M.tolist() == after.rows_M.tolist()
            assert before.count_M is None or np.array_equal(before.count_M, after.count_M)


@pytest.mark.parametrize("variant", ["epoch", *EXACT])
def test_counts_and_weighted_means(variant: str) -> None:
    """Every example is drawn as often as stated, and the weighted sum of a value estimates its mean without bias."""
    check_counts_and_means(variant, STEPS)


@pytest.mark.slow
@pytest.mark.parametrize("variant", EXACT)
def test_counts_of_a_million_draws(variant: str) -> None:
    check_counts_and_means(variant, 125_000)


def check_counts_and_means(variant: str, steps: int) -> None:
    """Compare frequencies with stated counts by chi-square (a false alarm for 1e-7 of seeds), and estimates with means.

    The values are a column of random numbers and the gradients' coordinates.
    """
    view = toy_view()
    view.examples.matrix[2] = 0  # an example without a gradient
    sampler = make(variant, view)
    value_XV = np.column_stack([np.random.default_rng(1).standard_normal(COUNT), view.gradients()])
    if variant == "norm_oracle":
        value_XV[2] = 0  # it is never drawn
    draws = sampler.draws(1, steps, view)
    seen_X = np.bincount(draws.rows_M, minlength=COUNT)
    number_M = np.repeat(np.arange(steps), np.diff(draws.begin_S1))
    if draws.count_M is None:
        per_epoch = -(-COUNT // BATCH)
        assert np.ptp(seen_X) == 0, "4,000 steps are whole epochs"
        for begin in range(0, len(draws.rows_M), COUNT):
            assert sorted(draws.rows_M[begin : begin + COUNT]) == list(range(COUNT))
        assert np.diff(draws.begin_S1).tolist() == ([BATCH] * (per_epoch - 1) + [COUNT % BATCH]) * (steps // per_epoch)
        return
    stated_X = np.zeros(COUNT)
    stated_X[draws.rows_M] = draws.count_M
    assert np.array_equal(stated_X[draws.rows_M], draws.count_M), "an example has one count"
    assert (seen_X > 0).sum() == COUNT - (variant == "norm_oracle")
    assert stated_X.sum() == pytest.approx(BATCH, rel=1e-6)
    if variant == "uniform":
        np.testing.assert_allclose(stated_X, BATCH / COUNT)
    drawn = stated_X > 0
    expected_X = steps * stated_X[drawn] / stated_X.sum() * BATCH
    assert chisquare(seen_X[drawn], expected_X).pvalue > 1e-7
    estimate_SV = np.zeros((steps, value_XV.shape[1]))
    np.add.at(estimate_SV, number_M, value_XV[draws.rows_M] / (COUNT * draws.count_M)[:, None])
    error_V = np.std(estimate_SV, axis=0) / np.sqrt(steps)
    # Estimates by exact norms have a deviation of 0 in one dimension; rounding stays.
    assert (np.abs(estimate_SV.mean(axis=0) - value_XV.mean(axis=0)) < 5 * error_V + 1e-6).all()
    draw = sampler.draw(1, view)
    np.testing.assert_allclose(draw.weight_B(COUNT), 1 / (COUNT * stated_X[draw.rows_B]), rtol=1e-6)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("stop", [1, 6, 9])
def test_state_round_trip(variant: str, stop: int) -> None:
    """A fresh sampler that gets the state, and only later a view, goes on with the same bits.

    Six steps end in the middle of ``query_every_steps``; the fresh sampler must use the old query and chances.
    """
    view = toy_view()
    whole = walk(make(variant, view), view, 1, 2 * stop + 3)
    view, other = toy_view(), toy_view()
    sampler = make(variant, view)
    assert walk(sampler, view, 1, stop) == whole[:stop]
    state = {name: array.copy() for name, array in sampler.state_dict().items()}
    resumed = make(variant)
    resumed.load_state_dict(state)
    kept = resumed.state_dict()
    assert kept.keys() == state.keys(), "a run that is stopped again before its first step keeps its state"
    assert all(np.array_equal(kept[name], state[name]) for name in state)
    turn(other, stop)  # the model as it was when the state was saved
    assert walk(resumed, other, stop + 1, 2 * stop + 3) == whole[stop:]


@pytest.mark.parametrize("variant", VARIANTS)
def test_one_thread_and_two_give_the_same_bits(variant: str) -> None:
    made = []
    for threads in (1, 2):
        numba.set_num_threads(threads)
        view = toy_view(count=3000)
        sampler = make(variant, view)
        tables = getattr(sampler, "buckets", None)
        arrays = [] if tables is None else [tables.start.copy(), tables.members.copy(), tables.inverse_norm.copy()]
        if variant.startswith("lgd_strata"):
            arrays = [array.copy() for array in sampler.state_dict().values()]
        made.append((arrays, walk(sampler, view, 1, 12)))
    assert bool(made[0][0]) == variant.startswith("lgd"), "tables and cells were compared"
    for one, other in zip(made[0][0], made[1][0], strict=True):
        assert np.array_equal(one, other)
    assert made[0][1] == made[1][1]


@pytest.mark.parametrize("count", [1, 2, BATCH, BATCH + 1])
@pytest.mark.parametrize("variant", VARIANTS)
def test_few_examples(variant: str, count: int) -> None:
    view = toy_view(count=count)
    for rows, logs in walk(make(variant, view), view, 1, 7):
        assert 1 <= len(rows) <= BATCH
        assert all(0 <= row < count for row in rows)
        assert not np.isnan(logs).any()


@pytest.mark.parametrize("name", NAMES)
def test_samplers_that_need_a_view_say_so(name: str) -> None:
    """Those that say they need none work without one."""
    sampler = build(name)
    if BATCH_SAMPLERS[name].needs_view:
        with pytest.raises(AssertionError, match="the task shows this sampler its examples"):
            sampler.refresh(0)
        return
    sampler.refresh(0)
    assert len(sampler.draw(1).rows_B) == BATCH


def test_a_sampler_with_a_refresh_of_its_own_is_refreshed_after_every_step() -> None:
    """Unless it says otherwise: compiled steps would pass over refreshes without a word."""
    assert LeastSeen(COUNT, BATCH).steps_without_refresh(5) == 1
    for name in ("epoch", "uniform"):
        assert build(name).steps_without_refresh(5) > 10**9


def test_examples_in_order_come_in_order() -> None:
    examples = Examples(count=3 * BATCH, exchangeable=False)
    sampler = BATCH_SAMPLERS["epoch"](name="epoch").build(examples=examples, batch_size=BATCH, seed=3)
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

"""Steps in compiled code against a plain loop in float64, against single steps, and against themselves in other chunks.

Legend: X training examples, D size of vectors and query, F free coordinates, B examples of a step, M all examples.
"""

import itertools
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from runner.config import compose
from runner.data.regression.dataset import DenseRows, RegressionDataset
from runner.lgd import BATCH_SAMPLERS
from runner.lgd import steps as kernel
from runner.lgd.task import CompiledSteps, LinearRegression, LogisticRegression, RegressionView
from runner.machine.clock import StageClock
from runner.network import Network
from runner.optimizers import OPTIMIZERS as CONFIGS
from runner.options.settings import RunConfig
from runner.parts import MODELS

ROWS, STEPS = 152, 40  # 137 rows are trained on
LOSSES = {"squared": kernel.SQUARED, "logistic": kernel.LOGISTIC}
OPTIMIZERS = {"sgd": kernel.SGD, "adagrad": kernel.ADAGRAD, "adam": kernel.ADAM}
RATE = {"sgd": 0.02, "adagrad": 0.1, "adam": 0.02}
BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8
NOTHING = np.zeros(0, dtype=np.float32)


def state_of(optimizer: str, free: int) -> tuple[np.ndarray, np.ndarray]:
    first = np.zeros(free if optimizer == "adam" else 0, dtype=np.float32)
    return first, np.zeros(0 if optimizer == "sgd" else free, dtype=np.float32)


def take(
    loss: str, optimizer: str, vectors_XD: np.ndarray, query_D: np.ndarray, free: int, rows_M: np.ndarray,
    counts_M: np.ndarray, batch: int, lr: float = 0.0,
) -> tuple[float, int, np.ndarray]:  # fmt: skip
    """Take the given steps in place; return the sum of losses, how many steps were taken, and the slopes."""
    slopes_M = np.empty(len(rows_M))
    first, second = state_of(optimizer, free)
    loss_sum, taken = kernel.take_given_steps(
        0.0, batch == 1, LOSSES[loss], vectors_XD, query_D, free, rows_M, np.arange(len(rows_M) // batch + 1) * batch,
        counts_M, slopes_M, 1, OPTIMIZERS[optimizer], lr or RATE[optimizer], (BETA1, BETA2, EPSILON), first, second,
    )  # fmt: skip
    return loss_sum, taken, slopes_M


def plain(
    loss: str, optimizer: str, vectors_XD: np.ndarray, query_D: np.ndarray, free: int, rows_M: np.ndarray,
    weight_M: np.ndarray, batch: int,
) -> tuple[float, np.ndarray, np.ndarray]:  # fmt: skip
    """Return the sum of losses, the query after the steps, and the slopes, by the textbook's formulas in float64."""
    vectors, query = vectors_XD.astype(np.float64), query_D.astype(np.float64)
    first, second, total, slopes = np.zeros(free), np.zeros(free), 0.0, []
    for step in range(1, len(rows_M) // batch + 1):
        here = slice((step - 1) * batch, step * batch)
        v_BD, weight_B = vectors[rows_M[here]], weight_M[here]
        z_B = v_BD @ query
        slope_B = 2 * z_B if loss == "squared" else 1 / (1 + np.exp(-z_B))
        total += weight_B @ (z_B**2 if loss == "squared" else np.log(1 + np.exp(z_B)))
        slopes.extend(slope_B)
        gradient = (weight_B * slope_B) @ v_BD[:, :free]
        if optimizer == "sgd":
            query[:free] -= RATE["sgd"] * gradient
        elif optimizer == "adagrad":
            second += gradient**2
            query[:free] -= RATE["adagrad"] * gradient / (np.sqrt(second) + EPSILON)
        else:
            first = BETA1 * first + (1 - BETA1) * gradient
            second = BETA2 * second + (1 - BETA2) * gradient**2
            root = np.sqrt(second / (1 - BETA2**step)) + EPSILON
            query[:free] -= RATE["adam"] * first / (1 - BETA1**step) / root
    return total, query, np.array(slopes)


@pytest.mark.parametrize("weights", ["equal", "unequal", "some zero"])
@pytest.mark.parametrize("batch", [1, 8])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("loss", LOSSES)
def test_steps_are_those_of_a_plain_loop(loss: str, optimizer: str, batch: int, weights: str) -> None:
    generator = np.random.default_rng(0)
    dim = 9
    vectors_XD = generator.standard_normal((ROWS, dim)).astype(np.float32)
    query_D = np.append(generator.standard_normal(dim - 1), -1).astype(np.float32)
    free = dim - 1 if loss == "squared" else dim
    rows_M = generator.integers(0, ROWS, STEPS * batch)
    counts_M = batch * generator.uniform(0.3, 3, STEPS * batch) / ROWS
    if weights == "some zero":
        counts_M[::3] = np.inf
    weight_M = 1 / (counts_M * ROWS)
    if weights == "equal":
        counts_M, weight_M = np.zeros(0), np.full(STEPS * batch, 1 / batch)
    expected_sum, expected_D, expected_slopes = plain(
        loss, optimizer, vectors_XD, query_D, free, rows_M, weight_M, batch
    )  # fmt: skip
    start_D = query_D.copy()
    loss_sum, taken, slopes_M = take(loss, optimizer, vectors_XD, query_D, free, rows_M, counts_M, batch)
    assert taken == STEPS
    np.testing.assert_allclose(query_D, expected_D, atol=2e-5)
    assert loss_sum == pytest.approx(expected_sum, rel=2e-5)
    np.testing.assert_allclose(slopes_M, expected_slopes, atol=1e-4)
    assert np.abs(query_D - start_D)[:free].max() > 0.01, "the steps are not nothing"
    assert np.array_equal(query_D[free:], start_D[free:]), "the last coordinate of a residual's query stays -1"


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("loss", LOSSES)
def test_a_weight_of_zero_silences_an_infinite_loss(loss: str, optimizer: str, batch: int) -> None:
    """Weights and moments stay finite although the skipped example's prediction overflows; with a weight it tells."""
    vectors_XD = np.array([[1, 2, 0.5], [3e38, 3e38, 1]], dtype=np.float32)
    query_D = np.array([2, 2, -1], dtype=np.float32)
    rows_M = np.zeros(2 * batch, dtype=np.int64)
    rows_M[batch - 1] = 1
    counts_M = np.full(2 * batch, 0.5)
    counts_M[batch - 1] = np.inf
    loss_sum, taken, _ = take(loss, optimizer, vectors_XD, query_D, 2, rows_M, counts_M, batch)
    assert taken == 2
    assert np.isfinite(loss_sum)
    assert np.isfinite(query_D).all()
    assert query_D[0] != 2, "the other examples still teach"
    query_D = np.array([2, 2, -1], dtype=np.float32)
    counts_M[batch - 1] = 0.5
    loss_sum, taken, _ = take(loss, optimizer, vectors_XD, query_D, 2, rows_M, counts_M, batch)
    assert taken == 1, "the last step taken is the one whose loss is not finite"
    assert not np.isfinite(loss_sum)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("loss", LOSSES)
def test_numbers_that_are_not_finite_reach_the_loss(loss: str, optimizer: str, batch: int, value: float) -> None:
    vectors_XD = np.array([[1, 2, 0.5], [value, 1, 1]], dtype=np.float32)
    query_D = np.array([2, 2, -1], dtype=np.float32)
    rows_M = np.zeros(4 * batch, dtype=np.int64)
    rows_M[2 * batch - 1] = 1
    loss_sum, taken, _ = take(loss, optimizer, vectors_XD, query_D, 2, rows_M, np.zeros(0), batch)
    assert taken == 2
    assert not np.isfinite(loss_sum)


# ---------------------------------------------------------------- whole tasks

SAMPLERS: dict[str, dict[str, Any]] = {
    **{name: {} for name in BATCH_SAMPLERS},
    "lgd_strata": {"refresh_every_steps": 7, "K": 3},
    "lgd": {"L": 20, "query_every_steps": 5, "refresh_every_steps": 12},
}


@cache
def data() -> RegressionDataset:
    generator = np.random.default_rng(4)
    features_RF = generator.lognormal(0, 1, (ROWS, 5))
    response_R = features_RF @ generator.standard_normal(5) + generator.standard_normal(ROWS)
    rows = DenseRows(features_RF=features_RF, response_R=(response_R > np.median(response_R)).astype(np.float64))
    return RegressionDataset(name="toy", train=rows, test=rows, num_features=5, checksum="", variant="")


@cache
def configured(loss: str, optimizer: str, sampler: str) -> RunConfig:
    """Return a configuration; only one is composed, because that takes longer than the steps."""
    if (loss, optimizer, sampler) == ("squared", "sgd", "epoch"):
        return compose(["model=regression", "optimizer=sgd", f"optimizer.lr={RATE['sgd']}", "dataset.valid_share=0.1"])
    return replace(
        configured("squared", "sgd", "epoch"),
        model=MODELS["regression" if loss == "squared" else "logistic"](),
        optimizer=CONFIGS[optimizer](lr=RATE[optimizer]),
        batch_sampler=BATCH_SAMPLERS[sampler](name=sampler, **SAMPLERS[sampler]),
    )


def parts(loss: str, optimizer: str, sampler: str, batch: int) -> tuple[Any, Any, Any, Any]:
    """Return task, network, sampler with tables, and view."""
    config = replace(configured(loss, optimizer, sampler), batch_size=batch)
    task = (LinearRegression if loss == "squared" else LogisticRegression)(config, data())
    network: Network[Any] = Network.of(config, task.build_head(), num_features=task.num_features)
    built = config.batch_sampler.build(examples=task.examples, batch_size=batch, seed=5)
    view = task.view(network)
    built.refresh(0, view)
    return task, network, built, view


def take_compiled(
    task: Any, network: Any, sampler: Any, view: RegressionView, ends: list[int]
) -> tuple[float, dict[str, np.ndarray]]:
    """Take steps in calls that end at ``ends`` or before; return the sum of losses and all state."""
    compiled, step, total = task.compiled_steps(network, sampler), 0, 0.0
    assert isinstance(compiled, CompiledSteps)
    for end in ends:
        while step < end:
            total, taken, _ = compiled.take(step + 1, end - step, total)
            assert 1 <= taken <= end - step
            step += taken
            sampler.refresh(step, view)
    return total, {**network.state_dict(), **{f"examples.{n}": a.copy() for n, a in sampler.state_dict().items()}}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("what", ["weights", "weights before the tables", "examples", "moments"])
@pytest.mark.parametrize("batch", [1, 8])
@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("loss", LOSSES)
def test_an_overflow_is_told_by_the_loss(loss: str, sampler: str, batch: int, what: str) -> None:
    """A draw from an empty bucket has no loss, so that it may take a few steps.

    Vectors that are not numbers all have code 0, so one bit makes sure that a query comes upon them.
    """
    task, network, built, view = parts(loss, "adam", sampler, batch)
    if what == "examples":
        task.stored.vectors_XD[:, 1] = np.nan
    elif what == "moments":
        network.head.table.second[:, 1] = np.nan
    else:
        network.head.table.weights[:, 1] = np.nan
    if what in ("weights before the tables", "examples"):
        config = task.config.batch_sampler
        config = replace(config, K=1) if sampler == "lgd" else config
        built = config.build(examples=task.examples, batch_size=batch, seed=5)
        built.refresh(0, view)
    compiled = task.compiled_steps(network, built)
    step = 0
    while step < 60:
        total, taken, _ = compiled.take(step + 1, 60 - step)
        step += taken
        if not np.isfinite(total):
            break
        built.refresh(step, view)
    assert step < 60


CASES = list(itertools.product(LOSSES, OPTIMIZERS, sorted(SAMPLERS)))


@pytest.mark.parametrize("batch", [1, 8])
@pytest.mark.parametrize(("loss", "optimizer", "sampler"), CASES)
def test_compiled_steps_are_those_of_the_network(loss: str, optimizer: str, sampler: str, batch: int) -> None:
    task, network, built, view = parts(loss, optimizer, sampler, batch)
    total, state = take_compiled(task, network, built, view, [STEPS])
    task, single, other, view = parts(loss, optimizer, sampler, batch)
    losses = 0.0
    for step in range(1, STEPS + 1):
        draw = other.draw(step, view)
        norms_B = view.gradient_norms(draw.rows_B)
        losses += single.train_step(task.batch(draw), step, StageClock()).loss
        if other.learns_norms:
            other.observe(draw.rows_B, norms_B)
        other.refresh(step, view)
    assert total == pytest.approx(losses, rel=2e-4)
    expected = {**single.state_dict(), **{f"examples.{n}": a for n, a in other.state_dict().items()}}
    assert state.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_allclose(state[name], array, rtol=2e-3, atol=2e-5, err_msg=name)
    assert np.abs(network.head.table.weights).max() > 0.01


@pytest.mark.parametrize("batch", [1, 8])
@pytest.mark.parametrize(("loss", "optimizer", "sampler"), CASES)
def test_chunks_do_not_change_bits(loss: str, optimizer: str, sampler: str, batch: int) -> None:
    """Calls of 100 steps, of 13 and the rest, and of single steps end with the same bits in every array and the loss.

    An epoch's last batch may have one example, where others have eight.
    """
    made = []
    for ends in ([100], [13, 14, 57, 100], list(range(1, 101))):
        total, state = take_compiled(*parts(loss, optimizer, sampler, batch), ends)
        made.append({name: array.copy() for name, array in state.items()} | {"total": np.array(total)})
    for other in made[1:]:
        assert other.keys() == made[0].keys()
        assert all(np.array_equal(other[name], made[0][name]) for name in other)

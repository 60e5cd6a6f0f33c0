"""Adam with one second moment a row and with first moments of bfloat16, in every row policy and by both engines.

The reference is NumPy in float64 with the same random words. A rounding may go the other way where float32 and float64
differ in the last bit, which happens a few times in a run; the tolerance is for these.

Legend: R rows, D columns, U rows of a step, B rows of a batch, N classes.
"""

from typing import Any

import numba
import numpy as np
import pytest
import torch

from runner import rng
from runner.contracts import Query, TrainingFacts
from runner.kernels.groups import group_by_id
from runner.kernels.moments import held
from runner.kernels.products import HAS_BF16
from runner.optimizers import AdamConfig, of_parameters
from runner.output.losses import LOSSES
from runner.output.numba.layer import NumbaLayer
from runner.output.numba.row_table import RowTable
from runner.output.torch.row_table import TorchRowTable
from runner.samplers import SAMPLERS

needs_bf16 = pytest.mark.skipif(not HAS_BF16, reason="needs AVX512_BF16")
R, D, STEPS, SEED = 24, 6, 300, 5
# Each pair has kernels of its own. The last uses both settings at once, so that the others alone are slow tests.
SMALLER = [
    pytest.param("row", "float32", marks=pytest.mark.slow),
    pytest.param("full", "bf16", marks=pytest.mark.slow),
    ("row", "bf16"),
]
POLICIES = ["dense", "touched", "catch_up"]


def configuration(rows: str, second: str, first: str, **others: Any) -> AdamConfig:
    return AdamConfig(lr=0.01, rows=rows, second_moment=second, first_moment=first, **others)  # type: ignore[arg-type]


def problem(steps: int = STEPS) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Start, goals and the rows of each step; row r is touched at a rate of 2^-(r/4), the last one never."""
    generator = np.random.default_rng(3)
    start_RD = generator.standard_normal((R, D)).astype(np.float32)
    chance_R = 2.0 ** (-np.arange(R) / 4)
    chance_R[-1] = 0
    rows = [np.flatnonzero(generator.random(R) < chance_R).astype(np.int32) for _ in range(steps)]
    return start_RD, 3 * generator.standard_normal((R, D)), rows


def by_numpy(config: AdamConfig, steps: int = STEPS) -> np.ndarray:
    """Return the weights after all steps, one after another; missed steps of catch_up are dense Adam's."""
    start_RD, goal_RD, schedule = problem(steps)
    w, m, v = start_RD.astype(np.float64), np.zeros((R, D)), np.zeros((R, D))
    for step, rows_U in enumerate(schedule, start=1):
        grad_RD = np.zeros((R, D))
        grad_RD[rows_U] = w[rows_U] - goal_RD[rows_U]
        moving = rows_U if config.rows == "touched" else np.arange(R)
        square = grad_RD**2
        if config.second_moment == "row":
            square = np.repeat(square.mean(1, keepdims=True), D, axis=1)
        m[moving] = config.beta1 * m[moving] + (1 - config.beta1) * grad_RD[moving]
        v[moving] = config.beta2 * v[moving] + (1 - config.beta2) * square[moving]
        root = np.sqrt(v[moving] / (1 - config.beta2**step)) + config.epsilon
        w[moving] -= config.lr / (1 - config.beta1**step) * m[moving] / root
        if config.first_moment == "bf16":
            for row in range(R) if config.rows == "dense" else rows_U:
                m[row] = rounded(m[row], step, int(row))
    return w


def rounded(values_D: np.ndarray, step: int, row: int) -> np.ndarray:
    """Return numbers as bfloat16, by the words of the seed, the step, the row and the column."""
    key = rng.word(np.uint64(rng.stream(SEED, rng.ROUND, step, 0)), row)
    words_D = np.array([int(rng.word(np.uint64(key), column)) for column in range(D)], dtype=np.uint64)
    bits_D = values_D.astype(np.float32).view(np.uint32) + (words_D >> np.uint64(48)).astype(np.uint32)
    return (bits_D & np.uint32(0xFFFF0000)).view(np.float32).astype(np.float64)


def table_of(engine: str, config: AdamConfig, start_RD: np.ndarray) -> Any:
    kind = {"numba": RowTable, "torch": TorchRowTable}[engine]
    return kind(config, start_RD.copy(), bias=True, seed=SEED)


def advance(table: Any, first: int, last: int, *, keeps: bool = False) -> None:
    """Take steps, either at once or by gradients that are kept."""
    _, goal_RD, schedule = problem()
    for step in range(first, last + 1):
        rows_U = schedule[step - 1]
        table.before_step(step)
        table.read_for_update(rows_U, step)
        grad_UD = (table.rows(rows_U) - goal_RD[rows_U]).astype(np.float32)
        place_U, one_U = np.arange(len(rows_U), dtype=np.int32), np.ones(len(rows_U), np.float32)
        pairs = (group_by_id(rows_U, R), grad_UD, place_U, one_U, np.zeros((0, D), np.float32), step)
        if keeps:
            table.gradients_of_groups(*pairs).apply(step)
        else:
            table.update_groups(*pairs)


def relative_error(ours_RD: np.ndarray, theirs_RD: np.ndarray) -> float:
    """Return the largest error in units of the mean distance that weights have travelled."""
    travelled = np.abs(theirs_RD - problem()[0])[:-1].mean()
    return float(np.abs(ours_RD - theirs_RD).max() / travelled)


@pytest.mark.parametrize(("second", "first"), SMALLER)
@pytest.mark.parametrize("rows", POLICIES)
@pytest.mark.parametrize(
    ("engine", "keeps"), [("numba", False), pytest.param("numba", True, marks=pytest.mark.slow), ("torch", True)]
)
def test_like_numpy(engine: str, keeps: bool, rows: str, second: str, first: str) -> None:
    config = configuration(rows, second, first)
    table = table_of(engine, config, problem()[0])
    advance(table, 1, STEPS, keeps=keeps)
    table.read(None, STEPS + 1)
    error = relative_error(table.rows(), by_numpy(config))
    print(f"{error:.2e}")
    assert error < (2e-3 if first == "bf16" else 1e-4)
    np.testing.assert_array_equal(table.rows()[-1], problem()[0][-1])


def test_the_reference_tells_the_settings_apart() -> None:
    """The tolerances above would not let one setting pass for another."""
    full, row = (by_numpy(configuration("catch_up", second, "float32")) for second in ("full", "row"))
    bf16 = by_numpy(configuration("catch_up", "full", "bf16"))
    assert relative_error(row, full) > 0.1
    assert relative_error(bf16, full) > 4e-3


@pytest.mark.parametrize(("second", "first"), SMALLER)
@pytest.mark.parametrize("engine", ["numba", "torch"])
def test_catch_up_is_dense(engine: str, second: str, first: str) -> None:
    """With one second moment a row, as closely as with many; with bfloat16, as closely as its rounding lets it."""
    ends = []
    for rows in ("catch_up", "dense"):
        table = table_of(engine, configuration(rows, second, first), problem()[0])
        advance(table, 1, STEPS, keeps=True)
        table.read(None, STEPS + 1)
        ends.append(table.rows().copy())
    assert relative_error(*ends) < (3e-2 if first == "bf16" else 1e-4)


@pytest.mark.parametrize("value", [1.001953125, -3.0053e-7, 1e30, 0.7])
def test_rounding_is_right_on_average(value: float) -> None:
    """The mean of 40,000 roundings is within five deviations of the number; the nearest bfloat16 is not."""
    generator = np.random.default_rng(0)
    keys = generator.integers(0, 2**64, 40_000, dtype=np.uint64)
    bits = np.array([held(np.float32(value), key, 3) for key in keys], dtype=np.uint32)
    numbers = (bits << np.uint32(16)).view(np.float32).astype(np.float64)
    assert len(np.unique(numbers)) == 2, "the two neighbours"
    deviation = numbers.std() / np.sqrt(len(numbers))
    assert abs(numbers.mean() - np.float32(value)) < 5 * deviation
    nearest = float(torch.tensor(value).bfloat16())
    assert abs(nearest - np.float32(value)) > 5 * deviation


@pytest.mark.parametrize("number", [0.0, -0.0, 1.5, np.inf, -np.inf, np.nan])
def test_what_bfloat16_holds_stays(number: float) -> None:
    for key in np.random.default_rng(0).integers(0, 2**64, 100, dtype=np.uint64):
        bits = np.array([held(np.float32(number), key, 0)], dtype=np.uint32)
        np.testing.assert_array_equal((bits << np.uint32(16)).view(np.float32)[0], np.float32(number))


@pytest.mark.parametrize("engine", ["numba", "torch"])
def test_a_mean_that_rounding_to_the_nearest_would_stop(engine: str) -> None:
    """Under one gradient for ever, 2,000 moments come to it on average; rounded to the nearest, they stop short."""
    grad, rows = np.float32(1.003), 2000
    table: Any = {"numba": RowTable, "torch": TorchRowTable}[engine](
        configuration("touched", "row", "bf16"), np.zeros((rows, 1), dtype=np.float32), bias=False
    )
    ids_R, one_R = np.arange(rows, dtype=np.int32), np.ones(rows, np.float32)
    grad_RD, nobody = np.full((rows, 1), grad), np.zeros((0, 1), np.float32)
    nearest = torch.zeros(1, dtype=torch.bfloat16)
    for step in range(1, 151):
        table.gradients_of_groups(group_by_id(ids_R, rows), grad_RD, ids_R, one_R, nobody, step).apply(step)
        nearest = (0.9 * nearest.float() + 0.1 * float(grad)).bfloat16()
    means = (table.state_dict()["first"].astype(np.uint32) << np.uint32(16)).view(np.float32)
    assert abs(means.mean(dtype=np.float64) - grad) < 1e-3
    assert float(nearest) < grad - 0.01


@pytest.mark.parametrize(("second", "first"), SMALLER)
@pytest.mark.parametrize("products", ["float32", pytest.param("bf16", marks=[needs_bf16, pytest.mark.slow])])
def test_full_softmax_takes_the_step_of_its_gradients(products: str, second: str, first: str) -> None:
    """Where it computes gradients it also steps the rows, as ``RowTable.apply`` does by the same gradients."""
    ends = []
    for together in (True, False):
        query, layer, sampler = problem_of(configuration("catch_up", second, first), "full", products=products)
        for step in range(1, 4):
            scores = layer.score(query, sampler.sample(query, step), step)
            scores.loss(LOSSES["full"](name="full"))
            if together and step == 3:  # before, both go the same way, so that gradients are the same
                scores.update()
            else:
                scores.gradients()[0].apply(step)
        ends.append(layer.table.state_dict())
    one, other = ends
    np.testing.assert_allclose(one["weights"], other["weights"], atol=1e-5)
    np.testing.assert_allclose(one["second"], other["second"], rtol=1e-3, atol=1e-17)
    if first == "bf16":
        differ = np.abs(one["first"].astype(int) - other["first"].astype(int))
        assert differ.max() <= 1, "neighbours"
        assert (differ > 0).mean() < 1e-3
    else:
        np.testing.assert_allclose(one["first"], other["first"], rtol=1e-3, atol=1e-7)


def problem_of(config: AdamConfig, kind: str, **options: Any) -> tuple[Query, NumbaLayer, Any]:
    """Return a query of 60 rows, a layer of 3,000 classes and the sampler of this kind."""
    generator = np.random.default_rng(0)
    batch, dim, n = 60, 24, 3000
    weights_ND = generator.standard_normal((n, dim)).astype(np.float32)
    hidden_BD = generator.standard_normal((batch, dim)).astype(np.float32)
    targets_P = generator.integers(0, n, batch).astype(np.int32)
    query = Query(hidden_BD=hidden_BD, target_indptr_B1=np.arange(batch + 1), targets_P=targets_P)
    layer = NumbaLayer(RowTable(config, weights_ND, bias=True, seed=1))
    training = TrainingFacts.one_label_a_row(np.ones(n))
    return query, layer, SAMPLERS[kind](name=kind, **options).build(layer=layer, training=training, seed=1)


@pytest.mark.parametrize(("second", "first"), SMALLER)
@pytest.mark.parametrize("kind", ["full", "uniform"])
def test_one_thread_and_two_give_the_same_bits(kind: str, second: str, first: str) -> None:
    """Whole steps of full softmax, which steps rows where it computes gradients, and of sampled candidates."""
    options = {} if kind == "full" else {"num_samples": 200}
    states = []
    for threads in (1, 2):
        numba.set_num_threads(threads)
        query, layer, sampler = problem_of(configuration("catch_up", second, first), kind, **options)
        for step in range(1, 5):
            scores = layer.score(query, sampler.sample(query, step), step)
            name = "full" if kind == "full" else "sampled_softmax"
            scores.loss(LOSSES[name](name=name))
            scores.update()
        layer.table.read(None, 5)
        states.append(layer.table.state_dict())
    assert states[0]["first"].dtype == (np.uint16 if first == "bf16" else np.float32)
    assert states[0]["second"].shape == (3000, 1 if second == "row" else 24)
    for name, array in states[0].items():
        np.testing.assert_array_equal(array, states[1][name], err_msg=name)


@pytest.mark.parametrize(("second", "first"), SMALLER)
@pytest.mark.parametrize("rows", POLICIES)
@pytest.mark.parametrize(("engine", "resumed_by"), [("numba", "numba"), ("torch", "torch"), ("numba", "torch")])
def test_a_table_goes_on_from_its_state(engine: str, resumed_by: str, rows: str, second: str, first: str) -> None:
    """With the same bits; by the other engine with the same state."""
    config = configuration(rows, second, first)
    whole, half = (table_of(engine, config, problem()[0]) for _ in range(2))
    advance(whole, 1, 60, keeps=True)
    advance(half, 1, 30, keeps=True)
    resumed = table_of(resumed_by, config, np.zeros((R, D), np.float32))
    state = {name: array.copy() for name, array in half.state_dict().items()}
    resumed.load_state_dict(state)
    for name, array in state.items():
        np.testing.assert_array_equal(array, resumed.state_dict()[name], err_msg=name)
    if engine == resumed_by:
        advance(resumed, 31, 60, keeps=True)
        for name, array in whole.state_dict().items():
            np.testing.assert_array_equal(array, resumed.state_dict()[name], err_msg=name)


def test_tables_of_a_network_and_other_seeds_round_differently() -> None:
    keys = []
    for table in (
        RowTable(configuration("touched", "row", "bf16"), np.zeros((1, 1)), bias=True, seed=s) for s in (1, 2)
    ):
        keys += [table.rounding(7), table.another(np.zeros((1, 1))).rounding(7), table.rounding(8)]
    assert len(set(keys)) == 6


def test_parameters_that_are_no_vectors_keep_their_moments() -> None:
    config = configuration("touched", "row", "bf16")
    table = RowTable(config, np.zeros((3, 2)), bias=True).of_parameters(np.zeros((4, 5)))
    assert table.first.dtype == np.float32
    assert table.second.shape == (4, 5)
    assert of_parameters(config) == AdamConfig(lr=0.01, rows="touched")
    assert config.moment_bytes(128) == 128 * 2 + 4
    assert AdamConfig().moment_bytes(128) == 1024


@pytest.mark.parametrize("engine", ["numba", "torch"])
def test_a_part_rounds_as_the_whole(engine: str) -> None:
    """The rows from 10 on, held alone, take the steps that they take in the whole matrix."""
    config, lo = configuration("catch_up", "row", "bf16"), 10
    start_RD = problem()[0]
    whole, part = table_of(engine, config, start_RD), table_of(engine, config, start_RD[lo:])
    part.first_row = lo
    one_D = np.ones(D, dtype=np.float32)
    for step in range(1, 40):
        rows_U = np.arange(lo + step % 5, R, 3, dtype=np.int32)
        for table, rows in ((whole, rows_U), (part, rows_U - np.int32(lo))):
            table.before_step(step)
            table.read_for_update(rows, step)
            grad_UD = np.outer(1 + rows_U % 7, one_D).astype(np.float32) / step
            place_U, one_U = np.arange(len(rows), dtype=np.int32), np.ones(len(rows), np.float32)
            groups = group_by_id(rows, table.shape[0])
            table.gradients_of_groups(groups, grad_UD, place_U, one_U, np.zeros((0, D), np.float32), step).apply(step)
    for name, array in part.state_dict().items():
        np.testing.assert_array_equal(array, whole.state_dict()[name][lo:] if name in whole.by_row else array)

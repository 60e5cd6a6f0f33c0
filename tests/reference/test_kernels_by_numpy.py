"""Compiled kernels against plain NumPy on drawn shapes, empty and ragged ones included.

Legend: R rows of a matrix, D columns, N pairs, U distinct rows, S sources, B batch rows.
"""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit
from scipy.linalg import hadamard

from runner import rng
from runner.contracts import Examples, steps_per_epoch
from runner.data import LabelledRows
from runner.data.rows.batches import take
from runner.kernels import topk
from runner.kernels.groups import group_by_id
from runner.kernels.hadamard import LANES
from runner.kernels.hadamard import hadamard as walsh_hadamard
from runner.lgd.epoch import EpochConfig
from runner.optimizers import AdamConfig
from runner.output.numba import layer as output_layer
from runner.output.numba.layer import NumbaLayer
from runner.output.numba.row_table import RowTable
from runner.samplers import SAMPLERS
from runner.samplers.static import StaticConfig
from runner.structures.alias_table import alias_table
from runner.structures.dwta import Dwta
from runner.structures.simhash import SimHash
from runner.structures.tables import BucketTables

few = settings(max_examples=60)
seeds = st.integers(0, 2**32 - 1)

# ---------------------------------------------------------------- grouping


@few
@given(
    seed=seeds,
    num_pairs=st.integers(0, 400),
    num_ids=st.sampled_from([1, 2, 63, 64, 65, 127, 129, 5000, 70_000]),
    few_ids=st.booleans(),
)
def test_group_by_id_is_a_stable_sort(seed: int, num_pairs: int, num_ids: int, few_ids: bool) -> None:
    generator = np.random.default_rng(seed)
    ids = generator.integers(0, num_ids, num_pairs).astype(np.int32)
    if few_ids and num_pairs:
        ids = generator.choice(ids[:3], num_pairs)
    order, unique, start = group_by_id(ids, num_ids)
    assert (order.dtype, unique.dtype, start.dtype) == (np.int32, np.int32, np.int64)
    np.testing.assert_array_equal(order, np.argsort(ids, kind="stable"))
    expected, counts = np.unique(ids, return_counts=True)
    np.testing.assert_array_equal(unique, expected)
    np.testing.assert_array_equal(start, np.concatenate([[0], np.cumsum(counts)]))


def test_group_by_id_at_the_highest_id() -> None:
    order, unique, start = group_by_id(np.array([99, 0, 99], dtype=np.int32), 100)
    assert order.tolist() == [1, 0, 2]
    assert unique.tolist() == [0, 99]
    assert start.tolist() == [0, 1, 3]


# ---------------------------------------------------------------- row kernels


def random_pairs(generator: np.random.Generator, rows: int, sources: int, pairs: int) -> tuple[np.ndarray, np.ndarray]:
    return (
        generator.integers(0, rows, pairs).astype(np.int32),
        generator.integers(0, sources, pairs).astype(np.int32),
    )


@few
@given(seed=seeds, rows=st.integers(1, 90), columns=st.integers(1, 20), sources=st.integers(1, 6),
       pairs=st.integers(0, 150))  # fmt: skip
def test_score_pairs(seed: int, rows: int, columns: int, sources: int, pairs: int) -> None:
    generator = np.random.default_rng(seed)
    weights = generator.standard_normal((rows, columns)).astype(np.float32)
    bias = generator.standard_normal((rows, 1)).astype(np.float32)
    hidden = generator.standard_normal((sources, columns)).astype(np.float32)
    ids, source = random_pairs(generator, rows, sources, pairs)
    logits = np.full(pairs, np.nan, dtype=np.float32)
    table = RowTable(AdamConfig(), weights, bias=True)
    table.bias[:] = bias
    table.score(group_by_id(ids, rows), hidden, source, logits)
    expected = (weights[ids].astype(np.float64) * hidden[source]).sum(1) + bias[ids, 0]
    np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-5)


@few
@given(seed=seeds, rows=st.integers(1, 60), columns=st.integers(1, 12), batch=st.integers(0, 5),
       extra=st.integers(0, 4), pairs=st.integers(0, 80), bias=st.booleans())  # fmt: skip
def test_update_groups(seed: int, rows: int, columns: int, batch: int, extra: int, pairs: int, bias: bool) -> None:
    """Gradient, hidden gradient and Adam; the first ``batch`` sources get gradients."""
    generator = np.random.default_rng(seed)
    sources = batch + extra
    if sources == 0:
        sources = extra = 1
    config = AdamConfig(lr=0.1, rows="touched")
    table = RowTable(config, generator.standard_normal((rows, columns)).astype(np.float32), bias=bias)
    table.first[:] = generator.standard_normal(table.first.shape)
    table.second[:] = generator.uniform(0.5, 1, table.second.shape)
    before = {name: value.astype(np.float64) for name, value in table.state_dict().items()}
    values = generator.standard_normal((sources, columns)).astype(np.float32)
    ids, source = random_pairs(generator, rows, sources, pairs)
    grad = generator.standard_normal(pairs).astype(np.float32)
    source_grad = generator.standard_normal((batch, columns)).astype(np.float32)
    expected_source = source_grad.astype(np.float64)
    table.update_groups(group_by_id(ids, rows), values, source, grad, source_grad, 7)

    dense = np.zeros((rows, columns))
    np.add.at(dense, ids, grad[:, None].astype(np.float64) * values[source])
    known = source < batch
    np.add.at(expected_source, source[known], grad[known, None] * before["weights"][ids[known]])
    touched = np.unique(ids)
    first = 0.9 * before["first"] + 0.1 * dense
    second = 0.999 * before["second"] + 0.001 * dense**2
    step = 0.1 / (1 - 0.9**7) * first / (np.sqrt(second / (1 - 0.999**7)) + 1e-8)
    for name, expected in (("first", first), ("second", second), ("weights", before["weights"] - step)):
        ours = getattr(table, name)
        np.testing.assert_allclose(ours[touched], expected[touched], rtol=1e-4, atol=2e-5, err_msg=name)
        rest = np.setdiff1d(np.arange(rows), touched)
        np.testing.assert_array_equal(ours[rest], before[name][rest].astype(np.float32))
    np.testing.assert_allclose(source_grad, expected_source, rtol=1e-4, atol=2e-5)
    np.testing.assert_array_equal(table.last_step, np.where(np.isin(np.arange(rows), touched), 7, 0))
    if bias:
        assert table.bias_first is not None
        sums = np.bincount(ids, weights=grad, minlength=rows)
        np.testing.assert_allclose(table.bias_first[touched, 0], 0.1 * sums[touched], rtol=1e-4, atol=1e-5)


@few
@given(seed=seeds, last=st.integers(1, 40), missed=st.integers(0, 500), log_scale=st.integers(-12, 2))
def test_catch_up_is_a_loop_of_zero_gradient_steps(seed: int, last: int, missed: int, log_scale: int) -> None:
    """Where gradients are near epsilon (1e-8) and bias corrections still change, the closed form errs most:
    by 4.5 % of the drift after step 1, 1 % after step 10, 5e-4 after step 100 (largest over all gaps and
    scales)."""
    generator = np.random.default_rng(seed)
    config = AdamConfig(lr=0.01)
    weights = np.zeros((3, 4), dtype=np.float32)
    table = RowTable(config, weights, bias=False)
    grad = (10.0**log_scale * generator.standard_normal((3, 4))).astype(np.float32)
    table.first[:] = 0.1 * grad
    table.second[:] = 0.001 * grad * grad * generator.uniform(1, 50, (3, 4)).astype(np.float32)
    table.last_step[:] = [last, 0, last]
    first, second = table.first[0].astype(np.float64), table.second[0].astype(np.float64)
    moved = np.zeros(4)
    for step in range(last + 1, last + missed + 1):
        first, second = 0.9 * first, 0.999 * second
        moved -= 0.01 / (1 - 0.9**step) * first / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
    kept = table.first[2].copy()
    table.read(np.array([0, 1], dtype=np.int32), last + missed + 1)
    np.testing.assert_allclose(table.weights[0], moved, rtol=0.13 / (last + 1), atol=1e-9)
    np.testing.assert_allclose(table.first[0], first, rtol=1e-4, atol=1e-37)
    np.testing.assert_allclose(table.second[0], second, rtol=1e-4, atol=1e-37)
    assert (table.weights[1] == 0).all(), "a row never updated has no momentum, whatever its memory holds"
    np.testing.assert_array_equal(table.first[2], kept)
    assert table.last_step.tolist() == [last + missed, 0, last]


# ---------------------------------------------------------------- ranking


@few
@given(seed=seeds, n=st.integers(1, 700), rows=st.integers(1, 4), levels=st.integers(1, 50), data=st.data())
def test_largest_is_lexsort(seed: int, n: int, rows: int, levels: int, data: st.DataObject) -> None:
    """Few distinct logits make ties; blocks of 256 classes make boundaries."""
    k = data.draw(st.integers(1, min(n, 40)) | st.just(n), label="k")
    generator = np.random.default_rng(seed)
    table = RowTable(AdamConfig(), generator.integers(-levels, levels, (n, 1)).astype(np.float32), bias=True)
    hidden = np.array([1, -1, 2, 0][:rows], dtype=np.float32)[:, None]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(output_layer, "_BLOCK_ELEMENTS", 1)
        ours = NumbaLayer(table).largest(hidden, k).ids_BK
    for row in range(rows):
        logits = hidden[row, 0] * table.weights[:, 0]
        np.testing.assert_array_equal(ours[row], np.lexsort((np.arange(n), -logits))[:k])


def ranked(logits: np.ndarray, k: int, block: int) -> np.ndarray:
    """(B, k) ids of the k largest logits by the kernels, block by block."""
    rows, n = logits.shape
    values, ids = np.empty((rows, 2 * k + 5), np.float32), np.full((rows, 2 * k + 5), 2**31 - 1, np.int32)
    count, bar = np.zeros(rows, np.int64), np.full(rows, -np.inf, np.float32)
    for lo in range(0, n, block):
        topk.fold_block(np.ascontiguousarray(logits[:, lo : lo + block]), lo, k, values, ids, count, bar)
    out = np.empty((rows, k), np.int32)
    topk.finish(values, ids, count, k, True, out)
    return out


@few
@given(
    seed=seeds, n=st.integers(1, 2000), k=st.integers(1, 60), block=st.integers(1, 2500), levels=st.integers(1, 1000),
    rising=st.booleans(),
)  # fmt: skip
def test_ranking_of_long_rows(seed: int, n: int, k: int, block: int, levels: int, rising: bool) -> None:
    """The first block is long enough for a bar from its maxima, or not; infinite logits rank as others do."""
    generator = np.random.default_rng(seed)
    logits = generator.integers(-levels, levels, (3, n)).astype(np.float32)
    logits += np.arange(n, dtype=np.float32) if rising else 0
    logits[1, generator.random(n) < 0.3] = -np.inf
    logits[2, generator.random(n) < 0.02] = np.inf
    k = min(k, n)
    expected = [np.lexsort((np.arange(n), -row))[:k] for row in logits]
    np.testing.assert_array_equal(ranked(logits, k, block), expected)


@few
@given(seed=seeds, n=st.integers(1, 1200), k=st.integers(1, 30), block=st.integers(1, 1500), share=st.floats(0, 1))
def test_ranking_of_what_is_not_a_number_gives_ids_in_range(
    seed: int, n: int, k: int, block: int, share: float
) -> None:
    generator = np.random.default_rng(seed)
    logits = generator.standard_normal((3, n)).astype(np.float32)
    logits[generator.random((3, n)) < share] = np.nan
    found = ranked(logits, min(k, n), block)
    assert found.min() >= 0
    assert found.max() < n


@few
@given(values=st.lists(st.sampled_from([0, 1, 0.5, -math.inf, math.inf, math.nan]), min_size=1), data=st.data())
def test_kth_largest_is_numpys_and_with_nan_one_of_the_values(values: list[float], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(values)), label="k")
    found = topk.kth_largest(np.array(values, dtype=np.float32), k)
    has_nan = np.isnan(values).any()
    assert (found in values or math.isnan(found)) if has_nan else found == sorted(values)[-k]


# ---------------------------------------------------------------- batches


def random_rows(generator: np.random.Generator, rows: int) -> LabelledRows:
    sizes, label_sizes = generator.integers(0, 5, rows), generator.integers(0, 3, rows)
    arrays = LabelledRows(
        indptr=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        indices=generator.integers(0, 99, sizes.sum()).astype(np.int32),
        values=generator.standard_normal(sizes.sum()).astype(np.float32),
        label_indptr=np.concatenate([[0], np.cumsum(label_sizes)]).astype(np.int64),
        labels=generator.integers(0, 99, label_sizes.sum()).astype(np.int32),
    )
    for array in (arrays.indptr, arrays.indices, arrays.values, arrays.label_indptr, arrays.labels):
        array.flags.writeable = False  # as memory-mapped data are
    return arrays


@few
@given(seed=seeds, rows=st.integers(1, 30), wanted=st.integers(0, 40))
def test_take(seed: int, rows: int, wanted: int) -> None:
    generator = np.random.default_rng(seed)
    data = random_rows(generator, rows)
    chosen = generator.integers(0, rows, wanted)
    batch = take(data, chosen)
    assert batch.num_rows == wanted
    for i, row in enumerate(chosen):
        here, there = slice(*batch.indptr[i : i + 2]), slice(*data.indptr[row : row + 2])
        np.testing.assert_array_equal(batch.indices[here], data.indices[there])
        np.testing.assert_array_equal(batch.values[here], data.values[there])
        here, there = slice(*batch.target_indptr[i : i + 2]), slice(*data.label_indptr[row : row + 2])
        np.testing.assert_array_equal(batch.targets[here], data.labels[there])
    assert len(batch.indices) == batch.indptr[-1]
    assert len(batch.targets) == batch.target_indptr[-1]


@pytest.mark.parametrize(("rows", "batch_size"), [(10, 3), (9, 3), (2, 5), (1, 1)])
def test_an_epoch_takes_each_row_once_and_can_begin_in_the_middle(rows: int, batch_size: int) -> None:
    def epoch_batches(epoch: int, first: int = 0) -> list[list[int]]:
        sampler = EpochConfig().build(examples=Examples(count=rows), batch_size=batch_size, seed=5)
        return [sampler.draw(epoch * steps + number + 1).rows_B.tolist() for number in range(first, steps)]

    steps = steps_per_epoch(rows, batch_size)
    whole = epoch_batches(0)
    assert sorted(itertools.chain.from_iterable(whole)) == list(range(rows))
    assert [len(batch) for batch in whole[:-1]] == [batch_size] * (len(whole) - 1)
    assert epoch_batches(0, first=1) == whole[1:]
    if rows > 5:
        assert epoch_batches(1) != whole


# ---------------------------------------------------------------- distributions


@few
@given(seed=seeds, n=st.integers(1, 300), kind=st.sampled_from(["flat", "power", "spike", "zeros"]))
def test_alias_table_reproduces_q(seed: int, n: int, kind: str) -> None:
    generator = np.random.default_rng(seed)
    weight = {
        "flat": np.ones(n),
        "power": (np.arange(n) + 1.0) ** -1.5,
        "spike": np.where(np.arange(n) == n // 2, 1e6, generator.random(n)),
        "zeros": np.where(generator.random(n) < 0.5, 0.0, generator.random(n)) + (np.arange(n) == 0),
    }[kind]
    q = weight / weight.sum()
    accept, alias = alias_table(q)
    assert alias.min() >= 0
    assert alias.max() < n
    drawn = accept.astype(np.float64)
    np.add.at(drawn, alias, 1 - accept.astype(np.float64))
    np.testing.assert_allclose(drawn / n, q, rtol=1e-6, atol=2e-7)
    if kind == "zeros":
        never = q == 0
        assert (accept[never] == 0).all()
        assert not np.isin(alias[accept < 1], np.flatnonzero(never)).any()


def test_stated_distributions() -> None:
    counts = np.array([3, 100, 0, 20, 20])
    n = len(counts)

    def q(name: str, **options: Any) -> np.ndarray:
        config = SAMPLERS[name](name=name, **options)
        assert isinstance(config, StaticConfig)
        return config.distribution(counts)

    np.testing.assert_allclose(q("uniform"), np.full(n, 1 / n))
    rank = np.array([3, 0, 4, 1, 2])  # equal counts by id
    np.testing.assert_allclose(q("log_uniform"), np.log((rank + 2) / (rank + 1)) / np.log(n + 1))
    by_id = np.log((np.arange(n) + 2) / (np.arange(n) + 1)) / np.log(n + 1)
    np.testing.assert_allclose(q("log_uniform", rank="label"), by_id)
    np.testing.assert_allclose(q("unigram"), np.array([3, 100, 1, 20, 20]) / 144)
    root = np.sqrt([3, 100, 1, 20, 20])
    np.testing.assert_allclose(q("unigram", exponent=0.5), root / root.sum())
    np.testing.assert_allclose(q("unigram", exponent=0), np.full(n, 1 / n))
    assert q("log_uniform").sum() == pytest.approx(1)


# ---------------------------------------------------------------- randomness

_WORD = 2**64


def splitmix(state: int) -> int:
    z = (state + 0x9E3779B97F4A7C15) % _WORD
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % _WORD
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % _WORD
    return z ^ (z >> 31)


def test_mixer_gives_the_published_sequence() -> None:
    """First outputs of SplitMix64 seeded with 0."""
    published = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert [int(rng.word(np.uint64(0), counter)) for counter in range(3)] == published
    assert [splitmix(c * 0x9E3779B97F4A7C15 % _WORD) for c in range(3)] == published


def test_streams_of_rows_steps_purposes_and_seeds_are_apart() -> None:
    keys = {
        int(rng.stream(seed, purpose, step, row))
        for seed in range(4) for purpose in range(1, 5) for step in range(8) for row in range(8)
    }  # fmt: skip
    assert len(keys) == 4 * 4 * 8 * 8


@pytest.mark.parametrize("bound", [2**20, 10**7, 2**31 - 1])
def test_below_takes_the_whole_word_for_many(bound: int) -> None:
    """floor(word * bound / 2^64) to within the lost lowest bits: no class is favoured by bound / 2^32."""
    words = np.random.default_rng(0).integers(0, 2**64, 1000, dtype=np.uint64)
    for word in [*words, np.uint64(0), np.uint64(2**64 - 1)]:
        assert rng.below(word, bound) == (int(word) * bound) >> 64


def test_below_and_unit_stay_in_range() -> None:
    words = [np.uint64(w) for w in (0, 1, 2**32 - 1, 2**32, 2**63, 2**64 - 1)]
    for bound in (1, 2, 3, 2**31 - 1):
        assert all(0 <= rng.below(w, bound) < bound for w in words)
        assert rng.below(words[-1], bound) == bound - 1
    assert all(0 <= rng.unit(w) < 1 for w in words)


# ---------------------------------------------------------------- hashing


@njit
def transform(x: np.ndarray) -> None:
    """x: (W, lanes), flattened."""
    walsh_hadamard(x)


@pytest.mark.parametrize("width", [1, 2, 8, 64, 128])
def test_hadamard_transform(width: int) -> None:
    x = np.random.default_rng(width).standard_normal((width, LANES)).astype(np.float32)
    expected = hadamard(width) @ x.astype(np.float64)
    flat = x.reshape(-1).copy()
    transform(flat)
    np.testing.assert_allclose(flat.reshape(width, LANES), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dim", [1, 5, 8, 20, 128])
def test_simhash_bits_are_signs_of_three_rounds(dim: int) -> None:
    family = SimHash(dim=dim, K=5, L=7, seed=2)
    vectors = np.random.default_rng(1).standard_normal((9, dim)).astype(np.float32)
    rows = np.array([8, 0, 3, 3], dtype=np.int32)
    codes = family.hash(vectors, rows)
    assert codes.shape == (7, 4)
    assert codes.dtype == np.uint32
    all_signs = family._signs[:, :, ::LANES]  # they stand once for each lane
    width = all_signs.shape[2]
    matrix = hadamard(width).astype(np.float64)
    compared = 0
    for column, row in enumerate(rows):
        padded = np.zeros(width)
        padded[:dim] = vectors[row]
        projections = []
        for block in all_signs:
            x = padded
            for signs in block:
                x = matrix @ (signs * x)
            projections.append(x / width**1.5)
        flat = np.concatenate(projections)[: 5 * 7].reshape(7, 5)
        sure = np.abs(flat) > 1e-5  # nearer to zero the sign is rounding's
        bits = codes[:, column, None] >> np.arange(4, -1, -1, dtype=np.uint32) & 1
        np.testing.assert_array_equal(bits[sure], (flat > 0)[sure])
        compared += sure.sum()
    assert compared > 0.4 * 4 * 35


def dwta_by_hand(family: Dwta, vector: np.ndarray, bits: int) -> list[int]:
    """Codes of a vector without empty bins, before folding."""
    winners = [int(np.argmax(vector[coordinates])) for coordinates in family.coordinates]
    codes = []
    for table in range(family.L):
        code = 0
        for winner in winners[table * family.K : (table + 1) * family.K]:
            code = code << bits | winner
        codes.append(code)
    return codes


@pytest.mark.parametrize(("dim", "bin_size", "K"), [(16, 8, 2), (20, 8, 3), (8, 4, 5), (128, 8, 6), (5, 2, 1)])
def test_dwta_codes_are_arg_max_positions(dim: int, bin_size: int, K: int) -> None:
    family = Dwta(dim=dim, K=K, L=6, seed=4, bin_size=bin_size, max_bits=18)
    bits = bin_size.bit_length() - 1
    assert family.code_bits == K * bits, "these cases are not folded"
    vectors = np.random.default_rng(0).standard_normal((7, dim)).astype(np.float32)
    codes = family.hash(vectors, np.arange(7, dtype=np.int32))
    for row in range(7):
        assert codes[:, row].tolist() == dwta_by_hand(family, vectors[row], bits)


def test_dwta_bins_are_permutations() -> None:
    """No coordinate stands twice in a bin; over a permutation's bins each stands once."""
    family = Dwta(dim=20, K=3, L=9, seed=4, bin_size=4)
    coordinates = family.coordinates
    assert coordinates.shape == (27, 4)
    assert all(len(set(bin_.tolist())) == 4 for bin_ in coordinates)
    for first in range(0, 25, 5):
        assert sorted(coordinates[first : first + 5].ravel().tolist()) == list(range(20))


@pytest.mark.parametrize("code_bits", [1, 4, 16, 17])
def test_bucket_tables(code_bits: int) -> None:
    generator = np.random.default_rng(code_bits)
    tables, other = (BucketTables(L=3, num_rows=50, code_bits=code_bits, seed=seed) for seed in (1, 3))
    tables.codes[:] = generator.integers(0, 2**code_bits, (3, 50))
    tables.codes[0, :5] = 2**code_bits - 1  # the last bucket
    tables.build()
    assert math.log2(tables.start.shape[1] - 1) == code_bits
    for table in range(3):
        assert tables.start[table, 0] == 0
        assert tables.start[table, -1] == 50
        for code in np.unique(tables.codes[table]):
            here = slice(tables.start[table, code], tables.start[table, int(code) + 1])
            expected = np.flatnonzero(tables.codes[table] == code)
            np.testing.assert_array_equal(np.sort(tables.members[table, here]), expected)
    other.codes[:] = tables.codes
    other.build()
    np.testing.assert_array_equal(tables.start, other.start)
    assert not np.array_equal(tables.members, other.members), "order within buckets is random"


@pytest.mark.parametrize("code_bits", [1, 4, 16, 17])
@pytest.mark.parametrize("moved", [0, 1, 7, 125, 2000])
def test_changed_rows_lie_where_sorting_all_rows_puts_them(code_bits: int, moved: int) -> None:
    """Few of them are moved, and for many of them all are sorted."""
    generator = np.random.default_rng(code_bits)
    tables, sorted_again = (BucketTables(L=3, num_rows=2000, code_bits=code_bits, seed=1) for _ in range(2))
    tables.codes[:] = generator.integers(0, 2**code_bits, (3, 2000))
    tables.build()
    before = tables.members.copy()
    for _ in range(3):  # a move begins where the last one ended
        rows_U = np.sort(generator.permutation(2000)[:moved]).astype(np.int32)
        codes_LU = generator.integers(0, 2**code_bits, (3, moved)).astype(np.uint32)
        codes_LU[0] = tables.codes[0, rows_U]  # no code of this table changes
        codes_LU[1, : moved // 2] = 2**code_bits - 1  # many come to one bucket
        tables.change(rows_U, codes_LU)
        sorted_again.codes[:] = tables.codes
        np.testing.assert_array_equal(tables.codes[:, rows_U], codes_LU)
        sorted_again.build()
        np.testing.assert_array_equal(tables.start, sorted_again.start)
        np.testing.assert_array_equal(tables.members, sorted_again.members)
    np.testing.assert_array_equal(tables.members[0], before[0])
    assert (moved == 0) == np.array_equal(tables.members, before)

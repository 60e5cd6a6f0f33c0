"""Windows of a token stream hold every target once, in its place, and the same arguments give the same batches."""

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.contracts import steps_per_epoch
from runner.data.text.batches import Cut, TextBatch, Windows, evaluation_batches
from runner.errors import ConfigError
from runner.lgd.epoch import EpochConfig

CUTS: tuple[Cut, ...] = ("contiguous", "chunked")
shapes = st.tuples(st.integers(2, 300), st.integers(1, 9), st.integers(1, 11))


def stream(size: int) -> np.ndarray:
    """Return a text whose token i is i, so that a token tells its place."""
    tokens = np.arange(size, dtype=np.int32)
    tokens.flags.writeable = False
    return tokens


def epoch_batches(
    tokens_n: np.ndarray, batch_size: int, length: int, cut: Cut, *, seed: int, epoch: int, first: int = 0
) -> Iterator[TextBatch]:
    """Return the training batches of an epoch (0-based), beginning with number ``first``."""
    windows = Windows(tokens_n=tokens_n, batch_size=batch_size, length=length, cut=cut)
    sampler = EpochConfig().build(examples=windows.examples, batch_size=batch_size, seed=seed)
    steps = steps_per_epoch(windows.examples.count, batch_size)
    for number in range(first, steps):
        yield windows.batch(sampler.draw(epoch * steps + number + 1).rows_B)


def check(batch: TextBatch, length: int) -> None:
    assert batch.tokens_BT.shape == batch.targets_BT.shape
    assert batch.tokens_BT.dtype == batch.targets_BT.dtype == np.int32
    assert batch.tokens_BT.flags.c_contiguous
    assert batch.tokens_BT.flags.writeable, "one type for compiled kernels, whatever the batch"
    assert batch.num_targets == batch.tokens_BT.size > 0
    assert (batch.targets_BT == batch.tokens_BT + 1).all()
    assert (np.diff(batch.tokens_BT, axis=1) == 1).all()
    assert batch.tokens_BT.shape[1] <= length


def one_epoch(size: int, batch_size: int, length: int, cut: Cut, epoch: int = 0, first: int = 0) -> list[TextBatch]:
    return list(epoch_batches(stream(size), batch_size, length, cut, seed=1, epoch=epoch, first=first))


def test_by_hand() -> None:
    batches = one_epoch(12, 2, 2, "contiguous")  # 11 targets: two windows of each of two rows, three left out
    assert [b.tokens_BT.tolist() for b in batches] == [[[0, 1], [4, 5]], [[2, 3], [6, 7]]]
    assert [b.targets_BT.tolist() for b in batches] == [[[1, 2], [5, 6]], [[3, 4], [7, 8]]]
    assert [b.starts_anew for b in batches] == [True, False]
    whole = list(evaluation_batches(stream(12), 2, 2, "contiguous"))
    assert [b.tokens_BT.tolist() for b in whole] == [[[0, 1], [6, 7]], [[2, 3], [8, 9]], [[4], [10]], [[5]]]
    assert [b.starts_anew for b in whole] == [True, False, False, False]
    chunks = list(evaluation_batches(stream(12), 2, 4, "chunked"))
    assert [b.tokens_BT.tolist() for b in chunks] == [[[0, 1, 2, 3], [4, 5, 6, 7]], [[8, 9, 10]]]
    assert all(b.starts_anew for b in chunks)


@settings(max_examples=150)
@given(shape=shapes)
def test_contiguous_rows_go_on_where_they_were(shape: tuple[int, int, int]) -> None:
    size, batch_size, length = shape
    if size < batch_size * length + 1:
        with pytest.raises(ConfigError, match=r"make batch_size or windows\.length smaller"):
            Windows(tokens_n=stream(size), batch_size=batch_size, length=length, cut="contiguous")
        return
    batches = one_epoch(size, batch_size, length, "contiguous")
    assert len(batches) == (size - 1) // (batch_size * length)
    for batch in batches:
        check(batch, length)
        assert batch.tokens_BT.shape == (batch_size, length)
    for before, after in itertools.pairwise(batches):
        assert (before.targets_BT[:, -1] == after.tokens_BT[:, 0]).all()
    assert [batch.starts_anew for batch in batches] == [True] + [False] * (len(batches) - 1)
    seen = np.sort(np.concatenate([batch.targets_BT.ravel() for batch in batches]))
    assert (seen == np.arange(1, len(seen) + 1)).all(), "no gap, none twice"
    assert size - 1 - len(seen) < batch_size * length, "less than a batch is left out"


@settings(max_examples=150)
@given(shape=shapes, epoch=st.integers(0, 5))
def test_chunked_takes_every_sequence_once(shape: tuple[int, int, int], epoch: int) -> None:
    size, batch_size, length = shape
    if size < length + 1:
        with pytest.raises(ConfigError, match="one window of"):
            Windows(tokens_n=stream(size), batch_size=batch_size, length=length, cut="chunked")
        return
    batches = one_epoch(size, batch_size, length, "chunked", epoch)
    assert len(batches) == -(-((size - 1) // length) // batch_size)
    for batch in batches:
        check(batch, length)
        assert batch.starts_anew
        assert (batch.tokens_BT[:, 0] % length == 0).all()
    assert {len(batch.tokens_BT) for batch in batches[:-1]} <= {batch_size}
    seen = np.sort(np.concatenate([batch.targets_BT.ravel() for batch in batches]))
    assert (seen == np.arange(1, len(seen) + 1)).all()
    assert size - 1 - len(seen) < length


def test_chunked_is_shuffled_by_seed_and_epoch() -> None:
    def firsts(seed: int, epoch: int) -> list[int]:
        batches = epoch_batches(stream(1000), 4, 5, "chunked", seed=seed, epoch=epoch)
        return [int(i) for batch in batches for i in batch.tokens_BT[:, 0]]

    assert firsts(0, 0) == firsts(0, 0)
    assert firsts(0, 0) != firsts(0, 1) != firsts(1, 1)
    assert firsts(0, 0) != sorted(firsts(0, 0)) == sorted(firsts(1, 1))


@pytest.mark.parametrize("cut", CUTS)
def test_an_epoch_can_be_entered_anywhere(cut: Cut) -> None:
    whole = one_epoch(500, 3, 7, cut, epoch=2)
    for first in (1, 5, len(whole) - 1, len(whole)):
        rest = one_epoch(500, 3, 7, cut, epoch=2, first=first)
        assert len(rest) == len(whole) - first
        for ours, theirs in zip(rest, whole[first:], strict=True):
            assert (ours.tokens_BT == theirs.tokens_BT).all()
            assert ours.starts_anew == theirs.starts_anew


@settings(max_examples=150)
@given(shape=shapes, cut=st.sampled_from(CUTS))
def test_evaluation_counts_every_target_once(shape: tuple[int, int, int], cut: Cut) -> None:
    size, batch_size, length = shape
    batches = list(evaluation_batches(stream(size), batch_size, length, cut))
    for batch in batches:
        check(batch, length)
        assert len(batch.tokens_BT) <= batch_size
    seen = np.sort(np.concatenate([batch.targets_BT.ravel() for batch in batches]))
    assert (seen == np.arange(1, size)).all()
    if cut == "chunked":
        assert all(batch.starts_anew for batch in batches)
        return
    assert [batch.starts_anew for batch in batches] == [True] + [False] * (len(batches) - 1)
    for before, after in itertools.pairwise(batches):
        rows = len(after.tokens_BT)
        assert rows <= len(before.tokens_BT)
        assert (before.targets_BT[:rows, -1] == after.tokens_BT[:, 0]).all()


@pytest.mark.parametrize("cut", CUTS)
def test_the_text_may_hold_any_ids(cut: Cut) -> None:
    tokens = np.random.default_rng(0).integers(0, 10_000, 997).astype(np.int32)
    places = one_epoch(997, 4, 10, cut, epoch=3)
    batches = list(epoch_batches(tokens, 4, 10, cut, seed=1, epoch=3))
    assert len(batches) == -(-Windows(tokens_n=tokens, batch_size=4, length=10, cut=cut).examples.count // 4) > 20
    for place, batch in zip(places, batches, strict=True):
        assert (batch.tokens_BT == tokens[place.tokens_BT]).all()
        assert (batch.targets_BT == tokens[place.targets_BT]).all()


def test_mistakes() -> None:
    for (size, batch_size, length, cut), message in [
        ((100, 0, 5, "chunked"), "batch_size must be at least 1"),
        ((100, 5, 0, "chunked"), "length of a window must be at least 1"),
        ((100, 5, 5, "stream"), "must be one of contiguous, chunked"),
        (
            (100, 20, 5, "contiguous"),
            "batch_size=20 windows of 5 tokens need 101 tokens of training text, but there are 100",
        ),
    ]:
        with pytest.raises(ConfigError, match=message):
            Windows(tokens_n=stream(size), batch_size=batch_size, length=length, cut=cut)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="a text of 1 tokens has nothing to predict"):
        list(evaluation_batches(stream(1), 1, 1, "chunked"))

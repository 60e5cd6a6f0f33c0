"""Nothing of the future reaches training or a prediction; and each check catches the leak that it looks for.

Every check is called twice: with the project's own part, which passes, and with the same part with a leak put in, which
must fail. Where a check follows events, item i is event i, so that an item tells its place in the log.

Legend: E events of all users, U users, S windows, X items of a batch's windows, B rows of a batch, N items.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from runner.baselines.tasks import FittedRecommendation
from runner.config import compose
from runner.data.sequences.batches import Grid, SequenceBatch, SequenceWindows, windows_before
from runner.data.sequences.dataset import SequencesDataset, Split, split_events
from runner.machine.clock import StageClock
from runner.models import sequence_encoder
from runner.models.sequence_encoder import Gru, Module, SelfAttention, SequenceEncoder
from runner.network import Network
from runner.options.settings import RunConfig
from runner.tasks import Recommendation, recommendation

LENGTH = 5


Outcome = Callable[[], AbstractContextManager[Any]]


def leaks(says: str) -> Outcome:
    """Expect that a check fails because of the leak, as its message says."""
    return lambda: pytest.raises(AssertionError, match=says)


def log_of(items_E: np.ndarray, indptr_U1: np.ndarray, num_items: int, how: Split = "ratio") -> SequencesDataset:
    train_end_U, valid_end_U = split_events(indptr_U1, how)
    return SequencesDataset(
        name="log", items_E=items_E.astype(np.int32), indptr_U1=indptr_U1, train_end_U=train_end_U,
        valid_end_U=valid_end_U, num_classes=num_items, items_path=None, checksum="", variant="",  # type: ignore[arg-type]
    )  # fmt: skip


def users() -> np.ndarray:
    """Return the bounds of 30 users with 2 to 40 events each."""
    return np.concatenate([[0], np.cumsum(np.random.default_rng(0).integers(2, 41, 30))]).astype(np.int64)


def log_of_places(how: Split = "ratio") -> SequencesDataset:
    """Return a log in which item i is event i."""
    indptr_U1 = users()
    return log_of(np.arange(indptr_U1[-1]), indptr_U1, int(indptr_U1[-1]), how)


def is_training_event(data: SequencesDataset) -> np.ndarray:
    """Return for each event whether it may be trained on, (E,)."""
    user_E = np.repeat(np.arange(data.num_users), np.diff(data.indptr_U1))
    return np.arange(len(data.items_E)) < data.train_end_U[user_E]


def config_of(*overrides: str) -> RunConfig:
    return compose(["model=sasrec", f"model.length={LENGTH}", "model.embedding=8", "batch_size=16", *overrides])


# ---------------------------------------------------------------- training windows


class TrainsOnEverything(Recommendation):
    """Cut windows from all events."""

    def __init__(self, config: RunConfig, data: SequencesDataset) -> None:
        super().__init__(config, data)
        self.windows = replace(self.windows, end_U=data.indptr_U1[1:])
        self.examples = self.windows.examples


class TrainsOnValidation(Recommendation):
    """Cut windows from the validation events too."""

    def __init__(self, config: RunConfig, data: SequencesDataset) -> None:
        super().__init__(config, data)
        self.windows = replace(self.windows, end_U=data.valid_end_U)
        self.examples = self.windows.examples


class OneTargetTooMany(Recommendation):
    """Take one more event as a target of each user: the first that is held out."""

    def __init__(self, config: RunConfig, data: SequencesDataset) -> None:
        super().__init__(config, data)
        self.windows = replace(self.windows, end_U=np.minimum(data.train_end_U + 1, data.indptr_U1[1:]))
        self.examples = self.windows.examples


def check_training_batches(task: Recommendation) -> None:
    may_train_E = is_training_event(task.data)
    sampler = task.config.batch_sampler.build(examples=task.examples, batch_size=16, seed=0)
    steps = -(-task.examples.count // 16)
    batches = [task.batch(sampler.draw(step)) for step in range(1, steps + 1)]
    batches.append(task.probe(40, "train"))
    for batch in batches:
        assert may_train_E[batch.targets].all(), "a held-out event is a target"
        assert may_train_E[batch.items_X].all(), "a held-out event is in a window"


@pytest.mark.parametrize("how", ["ratio", "last_item"])
@pytest.mark.parametrize(("task", "outcome"), [
    (Recommendation, nullcontext),
    (TrainsOnEverything, leaks("is a target")), (TrainsOnValidation, leaks("is a target")),
    (OneTargetTooMany, leaks("is a target")),
])  # fmt: skip
def test_no_held_out_event_is_trained_on(task: type[Recommendation], outcome: Outcome, how: Split) -> None:
    made = task(config_of(), log_of_places(how))
    with outcome():
        check_training_batches(made)


# ---------------------------------------------------------------- windows of an evaluation


def shifted_by(events: int) -> Any:
    """Cut windows that end so many events too late; item i is event i."""

    def cut(items_E: np.ndarray, begin_B: np.ndarray, place_B: np.ndarray, length: int) -> SequenceBatch:
        batch = windows_before(items_E, begin_B, place_B, length)
        return replace(batch, items_X=batch.items_X + np.int32(events))

    return cut


def from_the_first_user_on(items_E: np.ndarray, begin_B: np.ndarray, place_B: np.ndarray, length: int) -> SequenceBatch:
    return windows_before(items_E, np.zeros_like(begin_B), place_B, 60)


def check_evaluation_windows(task: Recommendation, monkeypatch: pytest.MonkeyPatch) -> None:
    batches: list[SequenceBatch] = [task.probe(20), task.glance()]

    def logits(network: Any, batch: SequenceBatch) -> np.ndarray:
        batches.append(batch)
        return np.zeros((batch.num_rows, task.data.num_classes), dtype=np.float32)

    with monkeypatch.context() as patch:
        patch.setattr(task, "logits", logits)
        for split in task.held:
            task.ranks(None, split, label="")  # type: ignore[arg-type]
    user_E = np.repeat(np.arange(task.data.num_users), np.diff(task.data.indptr_U1))
    predicted = np.concatenate([batch.targets for batch in batches[2:]])
    assert np.array_equal(np.sort(predicted), np.flatnonzero(~is_training_event(task.data)))
    for batch in batches:
        assert batch.only_last
        target_X = np.repeat(batch.targets, batch.length_S)
        assert (batch.items_X < target_X).all(), "neither the event to predict nor a later one"
        assert (user_E[batch.items_X] == user_E[target_X]).all(), "no other user's events"


@pytest.mark.parametrize(("cut", "outcome"), [
    (windows_before, nullcontext), (shifted_by(1), leaks("neither the event")), (shifted_by(2), leaks("nor a later")),
    (from_the_first_user_on, leaks("other user")),
])  # fmt: skip
def test_no_window_holds_the_event_to_predict(cut: Any, outcome: Outcome, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recommendation, "windows_before", cut)
    task = Recommendation(config_of(), log_of_places())
    with outcome():
        check_evaluation_windows(task, monkeypatch)


def hides_the_future(logits_BN: np.ndarray, items_E: np.ndarray, begin_B: np.ndarray, end_B: np.ndarray) -> None:
    """Hide what the user takes later too, which makes the ranks of all but the last event better."""
    ends = users()[1:]
    for row, begin, place in zip(logits_BN, begin_B, end_B, strict=True):
        later = np.arange(begin, ends[np.searchsorted(ends, place, side="right")])
        row[later[later != place]] = -np.inf


def check_hidden_items(task: Recommendation, monkeypatch: pytest.MonkeyPatch) -> None:
    """Later items have higher scores, so a rank tells how many of the items after the target were left."""

    def logits(network: Any, batch: SequenceBatch) -> np.ndarray:
        return np.tile(np.arange(task.data.num_classes, dtype=np.float32), (batch.num_rows, 1))

    with monkeypatch.context() as patch:
        patch.setattr(task, "logits", logits)
        for split, (_, place_R) in task.held.items():
            ranks = task.ranks(None, split, label="")  # type: ignore[arg-type]
            assert np.array_equal(ranks, task.data.num_classes - place_R), "an item is hidden that comes later"


@pytest.mark.parametrize(
    ("hide", "outcome"), [(recommendation.hide_seen, nullcontext), (hides_the_future, leaks("comes later"))]
)
def test_what_a_user_takes_later_stays_ranked(hide: Any, outcome: Outcome, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recommendation, "hide_seen", hide)
    task = Recommendation(config_of(), log_of_places())
    with outcome():
        check_hidden_items(task, monkeypatch)


# ---------------------------------------------------------------- attention and recurrence


class SeesBothWays(Gru):
    """Run one layer forwards and one backwards."""

    def __init__(self, **sizes: Any) -> None:
        super().__init__(**sizes)
        self.gru = nn.GRU(sizes["size"], sizes["hidden"] // 2, sizes["layers"], bidirectional=True)


class CarriesOver(Gru):
    """Go on from window to window with the same state."""

    def forward(self, x_XE: Tensor, batch: SequenceBatch) -> Tensor:
        whole = np.array([len(batch.items_X)])
        return super().forward(x_XE, SequenceBatch(items_X=batch.items_X, length_S=whole, targets=batch.targets))


class AcrossWindows(SelfAttention):
    """Attend over all windows as if they were one."""

    def forward(self, x_XE: Tensor, batch: SequenceBatch) -> Tensor:
        merged = Merged(
            items_X=batch.items_X, length_S=batch.length_S, targets=batch.targets, only_last=batch.only_last
        )
        return super().forward(x_XE, merged)


class Merged(SequenceBatch):
    @property
    def grids(self) -> list[Grid]:  # type: ignore[override]
        count = len(self.items_X)
        return [Grid(windows=1, places=count, begin=0, cell_X=np.arange(count))]


_RNN = {"size": 8, "hidden": 12, "layers": 1, "dropout": 0.5}
_ATTENTION = {"length": LENGTH, "size": 8, "heads": 2, "feed_forward": 8, "layers": 2, "dropout": 0.5, "init": 1.0}


def encoder_of(module: type[Module]) -> SequenceEncoder:
    """Return an encoder of 40 items with large random vectors."""
    sizes = _ATTENTION if issubclass(module, SelfAttention) else _RNN
    config = config_of("model.init=1")
    task = Recommendation(config, log_of(np.arange(users()[-1]) % 40, users(), 40))
    encoder = Network.of(config, task.build_head(), num_features=40).encoder
    return SequenceEncoder(
        lambda: module(**sizes),  # type: ignore[arg-type]
        dim=8, words=encoder.words, owns_words=False, seed=0,
    )  # fmt: skip


def attends_to_everything(query: Tensor, key: Tensor, value: Tensor, *, dropped: float) -> Tensor:
    return torch.nn.functional.scaled_dot_product_attention(query, key, value, dropout_p=dropped)


LENGTHS = np.array([5, 5, 5, 3, 2, 2, 1])
ITEMS = np.random.default_rng(1).integers(0, 40, LENGTHS.sum()).astype(np.int32)


def hidden_of(encoder: SequenceEncoder, items_X: np.ndarray) -> list[np.ndarray]:
    """Return the hidden states of each window at test time, and behind them those of a training step."""
    batch = SequenceBatch(items_X=items_X, length_S=LENGTHS, targets=items_X)
    both = np.concatenate([encoder.encode(batch), encoder.forward(batch, 1)], axis=1)
    return np.split(both, np.cumsum(LENGTHS)[:-1])


def check_past_only(encoder: SequenceEncoder) -> None:
    """Change each item in turn: states before it keep their bits, and its own and those after it change."""
    usual = hidden_of(encoder, ITEMS)
    start_S = np.cumsum(LENGTHS) - LENGTHS
    for window, length in enumerate(LENGTHS):
        for place in range(length):
            changed = ITEMS.copy()
            changed[start_S[window] + place] = (changed[start_S[window] + place] + 1) % 40
            now = hidden_of(encoder, changed)[window]
            assert np.array_equal(now[:place], usual[window][:place]), "the future is seen"
            assert (now[place:, :8] != usual[window][place:, :8]).any(axis=1).all(), "the past is not seen"


def check_windows_apart(encoder: SequenceEncoder) -> None:
    """Change all items of each window in turn: states of the others keep their bits."""
    usual = hidden_of(encoder, ITEMS)
    start_S = np.cumsum(LENGTHS) - LENGTHS
    for window, length in enumerate(LENGTHS):
        changed = ITEMS.copy()
        changed[start_S[window] : start_S[window] + length] += 1
        now = hidden_of(encoder, changed % 40)
        for other in set(range(len(LENGTHS))) - {window}:
            assert np.array_equal(now[other], usual[other]), "another window is seen"


@pytest.mark.parametrize(("module", "attention", "outcome"), [
    (SelfAttention, None, nullcontext), (Gru, None, nullcontext),
    (SelfAttention, attends_to_everything, leaks("the future is seen")),
    (SeesBothWays, None, leaks("the future is seen")),
])  # fmt: skip
def test_no_position_sees_later_ones(
    module: type[Module], attention: Any, outcome: Outcome,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    if attention is not None:
        monkeypatch.setattr(sequence_encoder, "causal_attention", attention)
    encoder = encoder_of(module)
    with outcome():
        check_past_only(encoder)


@pytest.mark.parametrize(("module", "outcome"), [
    (SelfAttention, nullcontext), (Gru, nullcontext),
    (AcrossWindows, leaks("another window")), (CarriesOver, leaks("another window")),
])  # fmt: skip
def test_windows_of_a_batch_do_not_see_each_other(module: type[Module], outcome: Outcome) -> None:
    encoder = encoder_of(module)
    with outcome():
        check_windows_apart(encoder)


# ---------------------------------------------------------------- statistics


class CountsEverything(Recommendation):
    """Tell samplers how often each item occurs in the whole log."""

    def __init__(self, config: RunConfig, data: SequencesDataset) -> None:
        super().__init__(config, data)
        counts_N = np.bincount(data.items_E, minlength=data.num_classes)
        self.training = replace(self.training, label_counts_N=counts_N)


class BaselineOfEverything(FittedRecommendation):
    """Count all events."""

    def __init__(self, config: RunConfig, data: SequencesDataset) -> None:
        super().__init__(config, data)
        self.windows = replace(self.windows, end_U=data.indptr_U1[1:])


def two_logs() -> tuple[SequencesDataset, SequencesDataset]:
    """Return a log of 60 items, and the same one with other items in place of all that is held out."""
    indptr_U1 = users()
    generator = np.random.default_rng(2)
    log = log_of(generator.integers(0, 60, indptr_U1[-1]), indptr_U1, 60)
    other = np.where(is_training_event(log), log.items_E, generator.integers(0, 60, indptr_U1[-1])).astype(np.int32)
    assert np.count_nonzero(other != log.items_E) > 50
    return log, replace(log, items_E=other)


def state_after(task: Recommendation, steps: int) -> dict[str, np.ndarray]:
    """Return what a few training steps leave: weights, moments and the sampler's tables; and the facts before them."""
    config = task.config
    network = task.build_network()
    sampler = config.batch_sampler.build(examples=task.examples, batch_size=config.batch_size, seed=0)
    compiled = task.compiled_steps(network, sampler)
    if compiled is not None:
        compiled.take(1, 1)
    else:
        for step in range(1, steps + 1):
            network.train_step(task.batch(sampler.draw(step)), step, StageClock())
    facts = task.training
    sizes = np.array([facts.num_rows, facts.steps_per_epoch, task.examples.count, task.rows_per_step])
    head = getattr(network, "head", None)
    drawn_from = getattr(getattr(head, "sampler", None), "log_count_N", np.zeros(0))
    return {**network.state_dict(), "counts": facts.label_counts_N, "sizes": sizes, "drawn from": drawn_from}


MIDX = [
    "sampler=midx_rq", "sampler.codewords=4", "sampler.num_samples=10", "sampler.within=popularity",
    "sampler.refresh_every_steps=2",
]  # fmt: skip
UNIGRAM = ["sampler=unigram", "sampler.num_samples=10"]
BASELINE = {name: [f"model={name}", "batch_sampler=epoch"] for name in ("popularity", "markov", "item_knn")}


def changed_by_held_out_items(task: type[Recommendation], words: list[str]) -> set[str]:
    """Return the names of what a few training steps leave that is not the same with other held-out items."""
    config = compose(words) if "model=" in words[0] else config_of(*words)
    one, other = (state_after(task(config, data), 5) for data in two_logs())
    assert one.keys() == other.keys()
    return {name for name, array in one.items() if not np.array_equal(array, other[name])}


@pytest.mark.parametrize(("task", "words"), [
    (Recommendation, UNIGRAM), (Recommendation, MIDX), *((FittedRecommendation, words) for words in BASELINE.values()),
])  # fmt: skip
def test_nothing_held_out_is_counted(task: type[Recommendation], words: list[str]) -> None:
    """Other held-out items change neither a statistic of the training set nor a bit of what is trained with it."""
    assert changed_by_held_out_items(task, words) == set()


@pytest.mark.parametrize(("task", "words", "shows_in"), [
    (CountsEverything, UNIGRAM, {"counts", "drawn from", "layer.weights"}),
    (CountsEverything, MIDX, {"counts", "sampler.codebooks", "layer.weights"}),
    (TrainsOnEverything, UNIGRAM, {"layer.weights", "encoder.module.weights"}),
    (BaselineOfEverything, BASELINE["popularity"], {"counts.weights"}),
    (BaselineOfEverything, BASELINE["markov"], {"counts.weights", "similarity.indices"}),
    (BaselineOfEverything, BASELINE["item_knn"], {"counts.weights", "similarity.data"}),
])  # fmt: skip
def test_what_is_counted_of_held_out_items_shows(
    task: type[Recommendation], words: list[str], shows_in: set[str]
) -> None:
    assert shows_in <= changed_by_held_out_items(task, words)


def test_what_is_compared_depends_on_training_events() -> None:
    """The comparisons above would say nothing otherwise."""
    log, _ = two_logs()
    assert np.ptp(state_after(Recommendation(config_of(*UNIGRAM), log), 1)["drawn from"]) > 0
    first, later = (state_after(Recommendation(config_of(*MIDX), log), steps) for steps in (1, 2))
    assert not np.array_equal(first["sampler.codebooks"], later["sampler.codebooks"]), "the index follows training"
    counted = state_after(FittedRecommendation(compose(BASELINE["item_knn"]), log), 1)
    assert counted["similarity.data"].size > 100
    assert counted["counts.weights"].sum() == is_training_event(log).sum()


# ---------------------------------------------------------------- which weights are kept


class ValidatesOnTest(FittedRecommendation):
    """Decide by the test events when training stops."""

    def evaluate_subset(self, network: Any) -> dict[str, Any]:
        return {key.replace("test/", "valid/"): value for key, value in self._metrics(network, "test").items()}


@pytest.mark.parametrize(
    ("task", "outcome"), [(FittedRecommendation, nullcontext), (ValidatesOnTest, leaks("test events"))]
)
def test_test_events_do_not_decide_when_training_stops(task: type[FittedRecommendation], outcome: Outcome) -> None:
    log, _ = two_logs()
    user_E = np.repeat(np.arange(log.num_users), np.diff(log.indptr_U1))
    is_test_E = np.arange(len(user_E)) >= log.valid_end_U[user_E]
    changed = np.where(is_test_E, (log.items_E + 7) % 60, log.items_E).astype(np.int32)
    scores = []
    for data in (log, replace(log, items_E=changed)):
        made = task(compose(BASELINE["markov"]), data)
        network = made.build_network()
        made.compiled_steps(network, None).take(1, 1)
        scores.append(made.validation_score(made.evaluate_subset(network)))
    with outcome():
        assert scores[0] == scores[1], "the score depends on test events"


def test_windows_of_training_are_those_of_the_split() -> None:
    """What the checks above compare with, said once more without the code under test."""
    data = log_of_places()
    task = Recommendation(config_of(), data)
    assert isinstance(task.windows, SequenceWindows)
    count_U = np.diff(data.indptr_U1)
    held_U = np.where(count_U < 3, 0, np.maximum(1, np.floor(count_U / 10 + 0.5))).astype(int)
    assert np.array_equal(task.windows.end_U, data.indptr_U1[1:] - 2 * held_U)
    assert is_training_event(data).sum() == (count_U - 2 * held_U).sum()

"""Popularity, the last item's successors and item-kNN against counts in plain Python and scikit-learn.

Legend: E events of all users, U users, N items, B rows of a batch.
"""

from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.metrics.pairwise import cosine_similarity

from runner.baselines import counts as models
from runner.baselines.counted import Counts
from runner.baselines.counts import nearest_items
from runner.baselines.tasks import FittedRecommendation
from runner.config import compose
from runner.data.sequences.batches import windows_before
from runner.data.sequences.dataset import SequencesDataset, split_events

N = 30


def log_of() -> SequencesDataset:
    """Return 40 users with 2 to 25 events each; low ids are frequent, and the last two ids have no event."""
    generator = np.random.default_rng(5)
    indptr_U1 = np.concatenate([[0], np.cumsum(generator.integers(2, 26, 40))]).astype(np.int64)
    items_E = ((N - 2) * generator.random(indptr_U1[-1]) ** 2).astype(np.int32)
    train_end_U, valid_end_U = split_events(indptr_U1, "ratio")
    return SequencesDataset(
        name="log", items_E=items_E, indptr_U1=indptr_U1, train_end_U=train_end_U, valid_end_U=valid_end_U,
        num_classes=N, items_path=None, checksum="", variant="",  # type: ignore[arg-type]
    )  # fmt: skip


def training_of(data: SequencesDataset) -> list[list[int]]:
    return [data.items_E[a:b].tolist() for a, b in zip(data.indptr_U1[:-1], data.train_end_U, strict=True)]


def counted(*words: str) -> tuple[FittedRecommendation, Any]:
    """Return the task and the model after its only step."""
    task = FittedRecommendation(compose([*words]), log_of())
    network = task.build_network()
    taken = task.compiled_steps(network, None).take(1, 1)
    assert taken == (0.0, 1, task.rows_per_epoch), "the loss, a step, and its rows"
    return task, network


def ranking_of(scores_N: Any, hidden: set[int]) -> list[int]:
    """Return the items that are not hidden, best first; of equal scores the lower id is better."""
    return sorted((item for item in range(N) if item not in hidden), key=lambda item: (-scores_N[item], item))


def check_ranks(task: FittedRecommendation, network: Any, scores_of: Any) -> None:
    """Compare the ranks of all test events with those by ``scores_of``, a function of the items before the event."""
    data = task.data
    expected = []
    for begin, first, end in zip(data.indptr_U1[:-1], data.valid_end_U, data.indptr_U1[1:], strict=True):
        for place in range(first, end):
            before, target = data.items_E[begin:place].tolist(), int(data.items_E[place])
            ranking = ranking_of(scores_of(before), set(before))
            expected.append(ranking.index(target) + 1 if target in ranking else 0)
    assert task.ranks(network, "test", label="").tolist() == expected
    assert len(set(expected)) > 10


def test_popularity_counts_training_events() -> None:
    task, network = counted("model=popularity")
    count = Counter(item for items in training_of(task.data) for item in items)
    assert network.counts_N.tolist() == [count[item] for item in range(N)]
    assert network.similarity.nnz == 0
    check_ranks(task, network, lambda before: [count[item] for item in range(N)])


def test_markov_counts_what_came_next() -> None:
    """Of items that followed equally often, the more popular one is better."""
    task, network = counted("model=markov")
    count = Counter(item for items in training_of(task.data) for item in items)
    follows = Counter(pair for items in training_of(task.data) for pair in pairwise(items))
    found = network.similarity.toarray()
    assert found.tolist() == [[follows[before, after] for after in range(N)] for before in range(N)]
    assert found.max() > 1
    check_ranks(task, network, lambda before: [follows[before[-1], i] + 1e-6 * count[i] for i in range(N)])


def similarities(taken_UN: np.ndarray, neighbours: int, shrink: float) -> np.ndarray:
    """Return the kept similarities, (N, N), one pair at a time."""
    num_items = taken_UN.shape[1]
    out = np.zeros((num_items, num_items))
    users = taken_UN.sum(axis=0)
    for one in range(num_items):
        near = []
        for other in range(num_items):
            both = int((taken_UN[:, one] * taken_UN[:, other]).sum())
            if other != one and both:
                near.append((-both / (np.sqrt(users[one] * users[other]) + shrink), other))
        for value, other in sorted(near)[:neighbours]:
            out[one, other] = -value
    return out


@pytest.mark.parametrize(("length", "neighbours", "shrink"), [(20, 100, 10.0), (3, 4, 0.0)])
def test_item_knn_adds_up_similarities(length: int, neighbours: int, shrink: float) -> None:
    task, network = counted(
        "model=item_knn", f"model.length={length}", f"model.neighbours={neighbours}", f"model.shrink={shrink}"
    )
    training = training_of(task.data)
    taken_UN = np.array([[float(item in items) for item in range(N)] for items in training])
    near = similarities(taken_UN, neighbours, shrink)
    np.testing.assert_allclose(network.similarity.toarray(), near, rtol=1e-12)
    count = Counter(item for items in training for item in items)
    popular_N = 1e-9 * np.array([count[item] for item in range(N)])
    check_ranks(task, network, lambda before: near[before[-length:]].sum(axis=0) + popular_N)


taken = st.integers(1, 7).flatmap(
    lambda items: st.lists(st.lists(st.booleans(), min_size=items, max_size=items), min_size=1, max_size=6)
)


@settings(max_examples=60)
@given(taken=taken, neighbours=st.integers(1, 8), shrink=st.sampled_from([0.0, 1.5]))
def test_nearest_items_by_brute_force(taken: list[list[bool]], neighbours: int, shrink: float) -> None:
    """Ties are the rule here: lower ids stay, and the block size does not matter."""
    taken_UN = np.array(taken, dtype=np.float64)
    expected = similarities(taken_UN, neighbours, shrink)
    with pytest.MonkeyPatch.context() as patch:
        for at_once in (1024, 2):
            patch.setattr(models, "_ITEMS_AT_ONCE", at_once)
            found = nearest_items(csr_array(taken_UN), neighbours, shrink)
            assert found.shape == expected.shape
            np.testing.assert_allclose(found.toarray(), expected, rtol=1e-12)


def test_nearest_items_are_those_of_the_cosine() -> None:
    taken_UN = (np.random.default_rng(0).random((50, 12)) < 0.3).astype(np.float64)
    found = nearest_items(csr_array(taken_UN), 100, 0.0).toarray()
    expected = cosine_similarity(taken_UN.T)
    np.fill_diagonal(expected, 0)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_scores_are_those_of_the_windows() -> None:
    """Rows come longest window first; an item that occurs twice in a window counts twice."""
    similarity = csr_array(np.array([[0, 1, 0, 2], [0] * 4, [0, 0.5, 0, 0], [0] * 4], dtype=float))
    model = Counts(4, lambda task: (np.array([5, 0, 2, 1]), similarity))
    model.fit(None)
    items_E = np.array([0, 2, 0, 1, 2, 3], dtype=np.int32)
    batch = windows_before(items_E, np.array([4, 0]), np.array([5, 3]), 3)
    assert batch.length_S.tolist() == [3, 1]
    np.testing.assert_allclose(model.scores(batch), [[0, 2.5, 0, 4], [0, 0.5, 0, 0]], atol=1e-7)
    assert (model.scores(batch)[:, [0, 2]] > 0).all(), "popularity decides between equal sums"


def test_state_round_trip() -> None:
    task, network = counted("model=item_knn")
    fresh = task.build_network()
    fresh.load_state_dict({name: array.copy() for name, array in network.state_dict().items()})
    assert task.evaluate_final(fresh) == task.evaluate_final(network)
    kept = task.build_network()
    kept.load_final_weights(network.final_weights())
    assert task.evaluate_final(kept) == task.evaluate_final(network)
    assert fresh.is_sound(None)
    network.similarity.data[0] = np.nan
    assert not network.is_sound(None)

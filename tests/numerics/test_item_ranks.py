"""Ranks of items against brute force, and their metrics against hand values, scikit-learn and RecBole's formulae.

Legend: R rows, B rows of a batch, N items, E events of all users.
"""

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import ndcg_score

from runner.config import compose
from runner.data.sequences.dataset import SequencesDataset, split_events
from runner.errors import Diverged
from runner.kernels.ranks import hide_seen, target_ranks
from runner.metrics import ITEM_RANKS, target_metrics
from runner.network import Network
from runner.parts import task_of
from runner.tasks import Recommendation, recommendation

# ---------------------------------------------------------------- ranks


def ranks_of(scores_BN: np.ndarray, target_B: np.ndarray) -> list[int]:
    rank_B = np.full(len(target_B), 99, dtype=np.int64)
    target_ranks(scores_BN, target_B.astype(np.int32), rank_B)
    return rank_B.tolist()


def rank_by_sorting(scores_N: np.ndarray, target: int) -> int:
    if np.isnan(scores_N).any():
        return -1
    if scores_N[target] == -np.inf:
        return 0
    return sorted(range(len(scores_N)), key=lambda item: (-scores_N[item], item)).index(target) + 1


def test_ranks_by_hand() -> None:
    row = [2.0, 5.0, 2.0, -np.inf, np.inf, 2.0]
    scores_BN = np.array([row] * 6, dtype=np.float32)
    assert ranks_of(scores_BN, np.arange(6)) == [3, 2, 4, 0, 1, 5], "of equal scores the lower id is better"
    scores_BN[2, 0] = np.nan
    assert ranks_of(scores_BN, np.full(6, 2)) == [4, 4, -1, 4, 4, 4], "what is not a number spoils its own row only"
    assert ranks_of(np.full((1, 1), 7, dtype=np.float32), np.zeros(1)) == [1]
    assert ranks_of(np.full((1, 1), -np.inf, dtype=np.float32), np.zeros(1)) == [0]
    hidden = np.array([[-np.inf, np.nan, 1.0], [np.nan, 1.0, 0.0]], dtype=np.float32)
    assert ranks_of(hidden, np.zeros(2)) == [-1, -1], "also if the target is hidden, or is itself not a number"


# Few distinct values, so that ties are the rule.
values = st.sampled_from([-np.inf, -2.0, -0.5, 0.0, 0.5, 0.5, 3.0, np.inf, np.nan])
numbers = st.sampled_from([-np.inf, -2.0, -0.5, 0.0, -0.0, 0.5, 3.0])


@settings(max_examples=150)
@given(data=st.data(), rows=st.integers(1, 6), items=st.integers(1, 12), kind=st.sampled_from(["f4", "f8"]))
def test_ranks_are_places_in_a_sorted_list(data: st.DataObject, rows: int, items: int, kind: str) -> None:
    scores_BN = np.array(
        [data.draw(st.lists(data.draw(st.sampled_from([values, numbers])), min_size=items, max_size=items))
         for _ in range(rows)],
        dtype=kind,
    )  # fmt: skip
    target_B = np.array(data.draw(st.lists(st.integers(0, items - 1), min_size=rows, max_size=rows)))
    expected = [rank_by_sorting(row, target) for row, target in zip(scores_BN, target_B, strict=True)]
    assert ranks_of(scores_BN, target_B) == expected


@settings(max_examples=80)
@given(data=st.data(), kind=st.sampled_from(["f4", "f8"]))
def test_seen_items_are_hidden_and_no_others(data: st.DataObject, kind: str) -> None:
    items_E = np.array(data.draw(st.lists(st.integers(0, 7), min_size=1, max_size=15)), dtype=np.int32)
    items_E.flags.writeable = False
    bounds = st.tuples(st.integers(0, len(items_E)), st.integers(0, len(items_E))).map(sorted)
    begin_B, end_B = np.array(data.draw(st.lists(bounds, min_size=1, max_size=5)), dtype=np.int64).T.copy()
    scores_BN = np.random.default_rng(0).standard_normal((len(begin_B), 8)).astype(kind)
    expected_BN = scores_BN.copy()
    for row, begin, end in zip(expected_BN, begin_B, end_B, strict=True):
        row[list(set(items_E[begin:end].tolist()))] = -np.inf
    hide_seen(scores_BN, items_E, begin_B, end_B)
    np.testing.assert_array_equal(scores_BN, expected_BN)


def test_the_same_with_one_thread_and_two() -> None:
    scores_BN = np.random.default_rng(0).integers(0, 9, (200, 50)).astype(np.float32)
    target_B = np.random.default_rng(1).integers(0, 50, 200)
    seen = np.random.default_rng(2).integers(0, 50, 400).astype(np.int32)
    begin_B = np.arange(200) * 2
    made = []
    for threads in (1, 2):
        numba.set_num_threads(threads)
        own_BN = scores_BN.copy()
        hide_seen(own_BN, seen, begin_B, begin_B + 2)
        made.append((own_BN.tolist(), ranks_of(own_BN, target_B)))
    assert made[0] == made[1]


# ---------------------------------------------------------------- metrics


def test_metrics_by_hand() -> None:
    """Of five targets one is first, one tenth, one eleventh, one fiftieth, and one is not ranked."""
    found = target_metrics(np.array([1, 10, 11, 50, 0]))
    assert set(found) == {f"{key}@{k}" for key in ("ndcg", "recall", "mrr") for k in (10, 20, 50)}
    assert [found[f"recall@{k}"] for k in (10, 20, 50)] == [2 / 5, 3 / 5, 4 / 5]
    tenth, eleventh, fiftieth = 1 / np.log2(11), 1 / np.log2(12), 1 / np.log2(51)
    assert found["ndcg@10"] == pytest.approx((1 + tenth) / 5)
    assert found["ndcg@20"] == pytest.approx((1 + tenth + eleventh) / 5)
    assert found["ndcg@50"] == pytest.approx((1 + tenth + eleventh + fiftieth) / 5)
    assert found["mrr@10"] == pytest.approx((1 + 1 / 10) / 5)
    assert found["mrr@20"] == pytest.approx((1 + 1 / 10 + 1 / 11) / 5)
    assert found["mrr@50"] == pytest.approx((1 + 1 / 10 + 1 / 11 + 1 / 50) / 5)
    assert set(target_metrics(np.array([0, 51, 10**6])).values()) == {0.0}
    assert set(target_metrics(np.ones(3, dtype=np.int64)).values()) == {1.0}
    third = target_metrics(np.array([3]))
    assert (third["ndcg@10"], third["mrr@10"]) == (0.5, pytest.approx(1 / 3))


def stored_ranking(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return distinct scores (300, 80) and a target of each row, which often scores well."""
    generator = np.random.default_rng(seed)
    scores_RN = generator.permuted(np.tile(np.arange(80.0), (300, 1)), axis=1)
    target_R = generator.integers(0, 80, 300)
    better = generator.random(300) < 0.5
    scores_RN[better, target_R[better]] += 70.5
    return scores_RN, target_R


@pytest.mark.parametrize("seed", range(2))
def test_ndcg_is_scikit_learns(seed: int) -> None:
    scores_RN, target_R = stored_ranking(seed)
    truth_RN = np.zeros(scores_RN.shape)
    truth_RN[np.arange(300), target_R] = 1
    found = target_metrics(np.array(ranks_of(scores_RN, target_R)))
    for k in ITEM_RANKS:
        assert found[f"ndcg@{k}"] == pytest.approx(ndcg_score(truth_RN, scores_RN, k=k))


def by_recboles_formulae(ranked_RN: np.ndarray, relevant: list[set[int]], k: int) -> dict[str, float]:
    """Return NDCG@k, Recall@k and MRR@k as the documentation of recbole.evaluator.metrics (1.x) defines them.

    They are means over users, whose ranked lists are cut off at k. NDCG: the sum of 1 / log2(i + 1) over the ranks i
    of relevant items, by that sum over the first min(k, number of relevant items) ranks. Recall: the share of the
    relevant items that are in the list. MRR: 1 / rank of the first relevant item in the list, 0 if there is none.
    """
    ndcg, recall, mrr = [], [], []
    for ranked_N, wanted in zip(ranked_RN, relevant, strict=True):
        top = ranked_N[:k].tolist()
        hits = [rank for rank, item in enumerate(top, start=1) if item in wanted]
        ideal = sum(1 / np.log2(rank + 1) for rank in range(1, min(len(wanted), k) + 1))
        ndcg.append(sum(1 / np.log2(rank + 1) for rank in hits) / ideal)
        recall.append(len(set(top) & wanted) / len(wanted))
        mrr.append(1 / hits[0] if hits else 0.0)
    return {f"ndcg@{k}": np.mean(ndcg), f"recall@{k}": np.mean(recall), f"mrr@{k}": np.mean(mrr)}  # type: ignore[dict-item]


@pytest.mark.parametrize("seed", range(2))
def test_metrics_are_recboles(seed: int) -> None:
    scores_RN, target_R = stored_ranking(seed)
    found = target_metrics(np.array(ranks_of(scores_RN, target_R)))
    ranked_RN = np.argsort(-scores_RN, axis=1)
    for k in ITEM_RANKS:
        theirs = by_recboles_formulae(ranked_RN, [{int(target)} for target in target_R], k)
        assert {key: found[key] for key in theirs} == pytest.approx(theirs)


# ---------------------------------------------------------------- of a task


ITEMS = 70


def log_of_repeats() -> SequencesDataset:
    """Return 40 users with 3 to 30 events each, of 70 items that users take again and again."""
    generator = np.random.default_rng(3)
    count_U = generator.integers(3, 31, 40)
    indptr_U1 = np.concatenate([[0], np.cumsum(count_U)]).astype(np.int64)
    items_E = (ITEMS * generator.random(indptr_U1[-1]) ** 2).astype(np.int32)
    train_end_U, valid_end_U = split_events(indptr_U1, "ratio")
    return SequencesDataset(
        name="repeats", items_E=items_E, indptr_U1=indptr_U1, train_end_U=train_end_U, valid_end_U=valid_end_U,
        num_classes=ITEMS, items_path=None, checksum="", variant="",  # type: ignore[arg-type]
    )  # fmt: skip


class Tabled(Recommendation):
    """Score items by a table of small integers, so that scores are exact and ties are the rule."""

    table_NN = np.random.default_rng(0).integers(0, 9, (ITEMS, ITEMS)).astype(np.float32)

    def logits(self, network: Any, batch: Any) -> np.ndarray:
        """The row of the table that belongs to the window's last item, plus that of its first."""
        last_B = batch.items_X[batch.start_S + batch.length_S - 1]
        return self.table_NN[last_B] + self.table_NN[batch.items_X[batch.start_S]]


def tabled(*overrides: str) -> Tabled:
    return Tabled(compose(["model=sasrec", "model.length=5", *overrides]), log_of_repeats())


def ranks_by_brute_force(task: Tabled, split: str) -> list[int]:
    data, found = task.data, []
    for user, begin in enumerate(data.indptr_U1[:-1]):
        train, valid, end = data.train_end_U[user], data.valid_end_U[user], data.indptr_U1[user + 1]
        for place in range(train, valid) if split == "valid" else range(valid, end):
            before = data.items_E[begin:place].tolist()
            scores_N = task.table_NN[before[-1]] + task.table_NN[before[-5:][0]]
            if task.config.ranking.exclude_seen:
                scores_N[before] = -np.inf
            found.append(rank_by_sorting(scores_N, int(data.items_E[place])))
    return found


@pytest.mark.parametrize("split", ["valid", "test"])
@pytest.mark.parametrize("seen", ["true", "false"])
def test_ranks_of_held_out_events(split: str, seen: str) -> None:
    task = tabled(f"ranking.exclude_seen={seen}")
    ranks = task.ranks(None, split, label="").tolist()  # type: ignore[arg-type]
    assert ranks == ranks_by_brute_force(task, split), "in the order of users and time"
    assert (0 in ranks) == (seen == "true"), "items taken before are misses if they are hidden"
    assert len(ranks) > 60


@pytest.mark.parametrize(("rows", "logits"), [(1, 2**24), (7, 2**24), (2048, 1), (2048, ITEMS * 10 + 3)])
def test_how_many_rows_are_ranked_together_does_not_matter(
    rows: int, logits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are more items than logits at once, or few rows to a chunk."""
    whole = tabled().ranks(None, "test", label="")  # type: ignore[arg-type]
    monkeypatch.setattr(recommendation, "_MOST_ROWS", rows)
    monkeypatch.setattr(recommendation, "_LOGITS_AT_ONCE", logits)
    sizes: list[int] = []
    real = Tabled.logits

    def counted(self: Tabled, network: Any, batch: Any) -> np.ndarray:
        sizes.append(batch.num_rows)
        return real(self, network, batch)

    monkeypatch.setattr(Tabled, "logits", counted)
    np.testing.assert_array_equal(tabled().ranks(None, "test", label=""), whole)  # type: ignore[arg-type]
    at_once = max(1, min(rows, logits // ITEMS))
    assert sizes[0] == at_once
    assert len(sizes) == -(-len(whole) // at_once)


def test_share_of_test_items_taken_before() -> None:
    task = tabled("ranking.exclude_seen=true")
    ranks = task.ranks(None, "test", label="")  # type: ignore[arg-type]
    assert task.share_taken_before == pytest.approx(np.mean(ranks == 0))
    assert 0 < task.share_taken_before < 1
    assert f"{100 * task.share_taken_before:.0f} % of the test items were taken before" in task.description
    assert "taken before" not in tabled("ranking.exclude_seen=false").description


@pytest.mark.parametrize(("loss", "transform"), [
    ("sampled_softmax", np.positive), ("absolute_softmax", np.abs),
])  # fmt: skip
def test_scores_are_the_logits_that_the_loss_trains(loss: str, transform: Callable[[np.ndarray], np.ndarray]) -> None:
    """A loss of magnitudes ranks by magnitudes."""
    config = compose(["model=sasrec", "model.length=5", "model.init=1", "sampler=uniform", f"loss={loss}"])
    task = task_of(config, log_of_repeats())
    assert isinstance(task, Recommendation)
    network = Network.of(config, task.build_head(), num_features=task.num_features)
    batch = task.probe(20)
    scores_BN = task.logits(network, batch)
    exact_BN = network.encoder.encode(batch) @ network.head.layer.table.weights.T
    np.testing.assert_allclose(scores_BN, transform(exact_BN), atol=1e-4)
    assert (exact_BN < 0).any()


def test_scores_that_are_not_numbers_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    task = tabled()
    table_NN = Tabled.table_NN.copy()
    table_NN[task.data.items_E[task.held["test"][1][4] - 1], 0] = np.nan
    monkeypatch.setattr(Tabled, "table_NN", table_NN)
    with pytest.raises(Diverged, match=r"a score of the test events is not a number; try a smaller optimizer\.lr$"):
        task.ranks(None, "test", label="")  # type: ignore[arg-type]

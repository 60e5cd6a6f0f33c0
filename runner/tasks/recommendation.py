"""Define sequential recommendation: predict a user's next item from those before, measured by the target's rank.

Every held-out event is predicted from the events before it, ``model.length`` of them at most, whatever part of the
split these belong to: a user's earlier test events are known when the next one is predicted. Training sees training
events only, and so do all statistics of items, such as a sampler's. All items are ranked; no measure samples them.

Legend: B rows, E events of all users, U users, N classes (items).
"""

from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from tqdm import tqdm

from runner import rng
from runner.contracts import ExampleDraw, Measure, TrainingFacts, steps_per_epoch
from runner.data.sequences.batches import SequenceBatch, SequenceWindows, order_by_length, windows_before
from runner.data.sequences.dataset import SequencesDataset, split_events
from runner.errors import DataError, Diverged
from runner.kernels.ranks import hide_seen, target_ranks
from runner.metrics import ITEM_RANKS, target_metrics
from runner.options.settings import RunConfig
from runner.tasks.base import OF_CLASSES, PROGRESS_BAR, Task, label_frequency

if TYPE_CHECKING:
    from runner.network import ClassNetwork

_LOGITS_AT_ONCE = 2**24  # 64 MiB of float32 scores, 128 MiB of the baselines' float64
_MOST_ROWS = 2048
_GLANCE_ROWS = 32
_WORTH_TELLING = 0.01  # share of targets that cannot be found, from which a run says so

Held = Literal["test", "valid"]
_HELD: tuple[Held, Held] = ("test", "valid")


class Recommendation(Task):
    """Train on users' sequences and measure nDCG@k, recall@k and MRR@k over all items.

    Raises DataError if there is nothing to train on, to validate on or to test on.
    """

    unit = "item"
    sections = OF_CLASSES | {"ranking"}
    measures = tuple(
        Measure(
            key=f"{key}@{k}", label=f"{label}@{k}", unit="", scale=1, decimals=4, higher_is_better=True,
            headline=(key, k) == ("ndcg", 10),
        )
        for key, label in (("ndcg", "NDCG"), ("recall", "Recall"), ("mrr", "MRR"))
        for k in ITEM_RANKS
    )  # fmt: skip

    def __init__(self, config: RunConfig, data: SequencesDataset) -> None:
        self.config, self.data = config, data
        begin_U = data.indptr_U1[:-1]
        self.windows = SequenceWindows(
            items_E=data.items_E, begin_U=begin_U, end_U=data.train_end_U, length=config.model.length
        )
        self.examples = self.windows.examples
        targets = data.items_E[self.windows.target_places]
        ends = {"valid": (data.train_end_U, data.valid_end_U), "test": (data.valid_end_U, data.indptr_U1[1:])}
        self.held = {split: _events(begin_U, *bounds) for split, bounds in ends.items()}
        for what, count in (("train", len(targets)), *((split, len(place)) for split, (_, place) in self.held.items())):
            if not count:
                raise DataError(
                    f"{data.name} has no event to {_VERBS[what]}: users need at least four events, because two are held"
                    " out and the first of the others is never predicted"
                )
        self.training = TrainingFacts(
            label_counts_N=np.bincount(targets, minlength=data.num_classes),
            num_rows=len(targets),
            steps_per_epoch=steps_per_epoch(self.examples.count, config.batch_size),
            num_examples=self.examples.count,
            count_examples=partial(self.windows.count_examples, data.num_classes),
        )
        self.num_features = data.num_classes
        self.rows_per_epoch = len(targets)
        self.rows_per_step = -(-len(targets) // self.training.steps_per_epoch)

    @classmethod
    def rehearsal(cls, config: RunConfig) -> Self:
        items_E = np.random.default_rng(0).integers(0, 80, 72).astype(np.int32)
        indptr_U1 = np.arange(10, dtype=np.int64) * 8
        train_end_U, valid_end_U = split_events(indptr_U1, "ratio")
        for array in (items_E, indptr_U1):
            array.flags.writeable = False  # memory-mapped data are read-only, and kernels are compiled for that
        data = SequencesDataset(
            name="rehearsal", items_E=items_E, indptr_U1=indptr_U1, train_end_U=train_end_U, valid_end_U=valid_end_U,
            num_classes=80, items_path=Path(), checksum="", variant="",
        )  # fmt: skip
        return cls(replace(config, batch_size=4), data)

    # ------------------------------------------------------------ batches

    def batch(self, draw: ExampleDraw) -> SequenceBatch:
        """Return the drawn windows."""
        return self.windows.batch(draw.rows_B, draw.weight_B(self.examples.count))

    def probe(self, rows: int, split: Literal["train", "test"] = "test") -> SequenceBatch:
        if split == "train":
            windows = -(-rows * self.examples.count // self.rows_per_epoch)
            return self.windows.batch(_some(self.examples.count, windows))
        begin, place = self.held["test"]
        chosen = _some(len(place), rows)
        return windows_before(self.data.items_E, begin[chosen], place[chosen], self.config.model.length)

    def glance(self) -> SequenceBatch:
        return self.probe(_GLANCE_ROWS)

    # ------------------------------------------------------------ measures

    def logits(self, network: "ClassNetwork", batch: SequenceBatch) -> np.ndarray:
        """Return the score of every item in every row, (B, N) float32."""
        hidden_BD, layer = network.encoder.encode(batch), network.head.layer
        logits_BN = np.empty((len(hidden_BD), layer.num_classes), dtype=np.float32)
        layer.block_logits(hidden_BD, 0, layer.num_classes, logits_BN)
        return np.abs(logits_BN, out=logits_BN) if network.head.loss.by_magnitude else logits_BN

    def ranks(self, network: "ClassNetwork", split: Held, *, label: str) -> np.ndarray:
        """Return the rank of every held-out event's item among all items, (B,) int64, 0 if it is not ranked.

        Rows are in the order of users and time. ``label``: text of the progress bar. Raises Diverged if a score is not
        a number.
        """
        items_E, length = self.data.items_E, self.config.model.length
        begin_R, place_R = self.held[split]
        rank_R = np.empty(len(place_R), dtype=np.int64)
        at_once = max(1, min(_MOST_ROWS, _LOGITS_AT_ONCE // self.data.num_classes))
        chunks = range(0, len(place_R), at_once)
        for first in tqdm(chunks, desc=label, leave=False, disable=len(chunks) < 8, **PROGRESS_BAR):
            begin_B, place_B = begin_R[first : first + at_once], place_R[first : first + at_once]
            batch = windows_before(items_E, begin_B, place_B, length)
            order_B = order_by_length(begin_B, place_B, length)
            logits_BN = self.logits(network, batch)
            if self.config.ranking.exclude_seen:
                hide_seen(logits_BN, items_E, begin_B[order_B], place_B[order_B])
            rank_B = np.empty(len(order_B), dtype=np.int64)
            target_ranks(logits_BN, batch.targets, rank_B)
            if rank_B.min() < 0:
                raise Diverged(f"a score of the {split} events is not a number; try a smaller optimizer.lr")
            rank_R[first + order_B] = rank_B
        return rank_R

    def evaluate_subset(self, network: "ClassNetwork") -> dict[str, Any]:
        """Measure all validation events."""
        return self._metrics(network, "valid", "evaluating")

    def evaluate_final(self, network: "ClassNetwork") -> dict[str, Any]:
        """Measure all test and validation events."""
        return {name: value for held in _HELD for name, value in self._metrics(network, held).items()}

    def _metrics(self, network: "ClassNetwork", split: Held, label: str = "final evaluation") -> dict[str, float]:
        metrics = target_metrics(self.ranks(network, split, label=label))
        return {f"{split}/{key}": value for key, value in metrics.items()}

    # ------------------------------------------------------------ words

    @cached_property
    def share_taken_before(self) -> float:
        """Return the share of test events whose item the user took before."""
        data = self.data
        user_E = np.repeat(np.arange(data.num_users, dtype=np.int64), np.diff(data.indptr_U1))
        is_first_E = np.zeros(len(user_E), dtype=bool)
        is_first_E[np.unique(user_E * data.num_classes + data.items_E, return_index=True)[1]] = True
        return float(np.mean(~is_first_E[self.held["test"][1]]))

    @property
    def description(self) -> str:
        data, held = self.data, {split: len(place) for split, (_, place) in self.held.items()}
        text = (
            f"{data.num_users:,} users, {data.num_classes:,} items, {self.rows_per_epoch:,} targets to train on,"
            f" {held['valid']:,} for validation, {held['test']:,} to test"
        )
        share = self.share_taken_before
        if self.config.ranking.exclude_seen and share >= _WORTH_TELLING:
            text += (
                f"; {100 * share:.0f} % of the test items were taken before by the same user, which"
                " ranking.exclude_seen=true counts as misses"
            )
        return text

    def about_data(self) -> dict[str, Any]:
        data = self.data
        return {
            "name": data.name,
            "variant": data.variant,
            "num_classes": data.num_classes,
            "users": data.num_users,
            "events": len(data.items_E),
            "train_targets": self.rows_per_epoch,
            **{f"{split}_events": len(place) for split, (_, place) in self.held.items()},
            "taken_before": self.share_taken_before,
            "never_trained_on": int(np.count_nonzero(self.training.label_counts_N == 0)),
            "label_frequency": label_frequency(self.training.label_counts_N),
        }


_VERBS = {"train": "train on", "valid": "validate on", "test": "test on"}


def _events(begin_U: np.ndarray, from_U: np.ndarray, to_U: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions from ``from_U`` to before ``to_U`` of all users, and where each one's user begins.

    Both (R,) int64; the beginnings come first.
    """
    count_U = to_U - from_U
    offset_U = np.cumsum(count_U) - count_U
    place_R = np.arange(int(count_U.sum()), dtype=np.int64) + np.repeat(from_U - offset_U, count_U)
    return np.repeat(begin_U, count_U), place_R


def _some(count: int, chosen: int) -> np.ndarray:
    """Return ``chosen`` of ``count`` numbers, ascending, the same for every seed."""
    return np.sort(rng.generator(0, rng.EVALUATE).permutation(count)[:chosen])

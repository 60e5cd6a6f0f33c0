"""Define the task of classifying sentence pairs, measured by accuracy and cross-entropy.

Published sets of pairs have training pairs and pairs to test on. The validation set is a share of the training pairs
(``dataset.valid_share``), the same for every seed, which training never sees. It alone decides which weights are kept
and when training stops. Accuracy and loss on test pairs are recorded during training too, for curves such as those of
the LGD paper's Figure 5, but no choice depends on them.

Legend: B pairs of a batch, R pairs of a split, N classes.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from runner import rng
from runner.contracts import ExampleDraw, Examples, Measure, TrainingFacts, steps_per_epoch
from runner.data import Pairs, PairsDataset
from runner.data.pairs.batches import PairBatch
from runner.errors import DataError, Diverged
from runner.lgd.pairs.bert import BertConfig
from runner.lgd.pairs.view import PairsView
from runner.options.settings import RunConfig
from runner.tasks.base import Task, label_frequency
from runner.tasks.classification import probe_rows

if TYPE_CHECKING:
    from runner.network import ClassNetwork, Network

_GLANCE_ROWS = 32
_SPLIT = 1  # tells the draw of the validation pairs from that of a probe's rows


class SentencePairs(Task):
    """Train on pairs of sentences and measure accuracy and cross-entropy.

    Raises DataError if there are too few training pairs to hold some out.
    """

    unit = "pair"
    shows_examples = True
    moves_vectors = True
    measures = (
        Measure(
            key="accuracy", label="accuracy", unit="%", scale=100, decimals=2, higher_is_better=True, headline=True
        ),
        Measure(
            key="loss", label="cross-entropy", unit="nats", scale=1, decimals=4, higher_is_better=False, headline=False
        ),
    )

    def __init__(self, config: RunConfig, data: PairsDataset) -> None:
        self.config, self.data = config, data
        train_R, valid_R = held_out(data, config.dataset.valid_share)
        self.train = PairBatch(pairs=data.train, rows_B=train_R)
        self.valid = PairBatch(pairs=data.train, rows_B=valid_R)
        self.test = PairBatch(pairs=data.test, rows_B=np.arange(data.test.num_pairs))
        self.examples = Examples(count=len(train_R))
        self.training = TrainingFacts.one_label_a_row(
            np.bincount(self.train.targets, minlength=data.num_classes),
            steps_per_epoch(len(train_R), config.batch_size),
        )
        self.num_features = 0  # the model brings its own vocabulary
        self.rows_per_step, self.rows_per_epoch = config.batch_size, len(train_R)
        self._view: PairsView | None = None
        # A missing checkpoint is found here, before kernels are compiled.
        self._encoder = config.model.title if isinstance(config.model, BertConfig) else config.model.name

    @classmethod
    def rehearsal(cls, config: RunConfig) -> Self:
        """Return the task on 24 arbitrary pairs, with a tiny model of random weights: no checkpoint is loaded."""
        labels_R = np.arange(24, dtype=np.int32) % 2
        labels_R.flags.writeable = False
        words = tuple("a" * (1 + number % 5) for number in range(24))
        split = Pairs(first=words, second=words[::-1], labels_R=labels_R)
        data = PairsDataset(
            name="rehearsal", train=split, test=split, num_classes=2, class_names=("0", "1"), checksum="", variant="",
        )  # fmt: skip
        return cls(replace(config, batch_size=8, model=config.model.rehearsal()), data)

    def batch(self, draw: ExampleDraw) -> PairBatch:
        """Return the drawn training pairs."""
        rows_B = self.train.rows_B[draw.rows_B]
        return PairBatch(pairs=self.data.train, rows_B=rows_B, weight_B=draw.weight_B(self.examples.count))

    def view(self, network: "Network[Any]") -> PairsView:
        """Return the view of a network; its stored vectors live as long as the network is the same."""
        if self._view is None or self._view.network is not network:
            self._view = PairsView(network, self.train)
        return self._view

    def probe(self, rows: int, split: Literal["train", "test"] = "test") -> PairBatch:
        batch = self.train if split == "train" else self.test
        return PairBatch(pairs=batch.pairs, rows_B=batch.rows_B[probe_rows(batch.num_rows, rows)])

    def glance(self) -> PairBatch:
        return self.probe(_GLANCE_ROWS)

    # ------------------------------------------------------------ measures

    def evaluate_subset(self, network: "ClassNetwork") -> dict[str, Any]:
        """Measure all validation pairs, and ``evaluation.rows`` of the test pairs (usually all) for curves."""
        test = self.probe(self.config.evaluation.rows)
        return {**evaluate(network, self.valid, "valid"), **evaluate(network, test, "test")}

    def evaluate_final(self, network: "ClassNetwork") -> dict[str, Any]:
        """Measure all test and validation pairs."""
        return {**evaluate(network, self.test, "test"), **evaluate(network, self.valid, "valid")}

    # ------------------------------------------------------------ words

    @property
    def description(self) -> str:
        return (
            f"{self.train.num_rows:,} training pairs, {self.valid.num_rows:,} for validation, {self.test.num_rows:,} to"
            f" test, {self.data.num_classes:,} classes; encoder {self._encoder}"
        )

    def about_data(self) -> dict[str, Any]:
        """Return the sizes; ``largest_class_of_test`` is the accuracy of always naming the most frequent class."""
        data, labels_R = self.data, self.test.targets
        return {
            "name": data.name,
            "variant": data.variant,
            "encoder": self._encoder,
            "num_classes": data.num_classes,
            "class_names": list(data.class_names),
            "num_train": self.train.num_rows,
            "num_valid": self.valid.num_rows,
            "num_test": self.test.num_rows,
            "largest_class_of_test": float(np.bincount(labels_R).max() / len(labels_R)),
            "label_frequency": label_frequency(self.training.label_counts_N),
        }


def held_out(data: PairsDataset, share: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of the pairs to train on and of those held out for validation, both ascending int64.

    The draw is the same for every seed. Raises DataError if there are fewer than two training pairs.
    """
    count = data.train.num_pairs
    if count < 2:
        raise DataError(f"{data.name} has {count} training pairs; at least 2 are needed, one of them for validation")
    order_R = rng.generator(0, rng.EVALUATE, _SPLIT).permutation(count)
    valid = min(count - 1, max(1, round(share * count)))
    return np.sort(order_R[valid:]), np.sort(order_R[:valid])


def evaluate(network: "ClassNetwork", batch: PairBatch, split: str) -> dict[str, float]:
    """Return ``<split>/accuracy`` (a fraction) and ``<split>/loss`` (mean cross-entropy, nats) of a batch's pairs.

    Raises Diverged if the loss is not a number.
    """
    head = network.head
    hidden_BD, target_B = network.encoder.encode(batch), batch.targets
    loss_B = head.layer.cross_entropy(hidden_BD, target_B, by_magnitude=head.loss.by_magnitude)
    if np.isnan(loss_B).any():
        raise Diverged(f"the cross-entropy of the {split} pairs is not a number; try a smaller optimizer.lr")
    return {
        f"{split}/accuracy": float(np.mean(head.top(hidden_BD, 1)[:, 0] == target_B)),
        f"{split}/loss": float(loss_B.mean()),
    }

"""Define the task of extreme classification: rows with sets of labels, measured by the ranking of all classes.

Legend: B rows of a batch, K labels of a row, N classes.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from tqdm import tqdm

from runner import rng
from runner.contracts import ExampleDraw, Examples, Measure, TrainingFacts, steps_per_epoch
from runner.data import LabelledRows, XmcDataset
from runner.data.rows.batches import RowBatch, take
from runner.data.shared.splits import hold_out
from runner.metrics import RANKS, inverse_propensity, ranking_metrics
from runner.options.settings import RunConfig
from runner.tasks.base import PROGRESS_BAR, Task, label_frequency

if TYPE_CHECKING:
    from runner.network import ClassNetwork

_EVALUATION_ROWS = 1024  # rows that are encoded and ranked at a time
_GLANCE_ROWS = 32
_LOSS = Measure(
    key="loss", label="Full softmax's loss", unit="nats", scale=1, decimals=3, higher_is_better=False, headline=False
)
_SPLIT = 1  # tells the draw of the validation rows from that of a probe's rows


class Classification(Task):
    """Train on sparse rows and measure P@k, RP@k, PSP@k and nDCG@k over all classes, and full softmax's loss.

    A share of the training rows may be held out for validation (``dataset.valid_share``): every choice is then made on
    these rows, and test rows are measured once, at the end. Without one, some test rows are measured during training.
    Propensities are those of the whole training set, since they belong to the measure. Raises DataError if there are
    too few rows to hold some out.
    """

    unit = "row"
    measures = (
        *(
            Measure(
                key=f"{key}@{k}", label=f"{label}@{k}", unit="%", scale=100, decimals=2, higher_is_better=True,
                headline=(key, k) == ("p", 1),
            )
            for key, label in (("p", "P"), ("rp", "RP"), ("psp", "PSP"), ("ndcg", "nDCG"))
            for k in RANKS
            if (key, k) != ("rp", 1)  # the same as P@1
        ),
        _LOSS,
    )  # fmt: skip

    def __init__(self, config: RunConfig, data: XmcDataset) -> None:
        self.config, self.data = config, data
        train = data.train
        label_counts_N = np.bincount(train.labels, minlength=data.num_classes)
        self.inverse_propensity_N = inverse_propensity(
            label_counts_N, train.num_rows, data.propensity_a, data.propensity_b
        )
        self.train_R = self.valid_R = None
        count = train.num_rows
        if self.validates(config):
            self.train_R, self.valid_R = hold_out(train.num_rows, config.dataset.valid_share, _SPLIT)
            count = len(self.train_R)
            held = take(train, self.valid_R).targets
            label_counts_N = label_counts_N - np.bincount(held, minlength=data.num_classes)
        self.examples = Examples(count=count)
        self.training = TrainingFacts(
            label_counts_N=label_counts_N,
            num_rows=count,
            steps_per_epoch=steps_per_epoch(count, config.batch_size),
        )
        self.num_features = data.num_features
        self.rows_per_step, self.rows_per_epoch = config.batch_size, count
        self.subset = probe_rows(data.test.num_rows, config.evaluation.rows)

    @classmethod
    def validates(cls, config: RunConfig) -> bool:
        return config.dataset.valid_share > 0

    @classmethod
    def rehearsal(cls, config: RunConfig) -> Self:
        from dataclasses import replace

        generator = np.random.default_rng(0)
        rows, features, classes = 24, 40, 80
        arrays: dict[str, Any] = {
            "indptr": np.arange(rows + 1, dtype=np.int64) * 3,
            "indices": generator.integers(0, features, 3 * rows).astype(np.int32),
            "values": np.full(3 * rows, 0.5, dtype=np.float32),
            "label_indptr": np.arange(rows + 1, dtype=np.int64),
            "labels": generator.integers(0, classes, rows).astype(np.int32),
        }
        for array in arrays.values():
            array.flags.writeable = False  # memory-mapped data are read-only, and kernels are compiled for that
        split = LabelledRows(**arrays)
        data = XmcDataset(
            name="rehearsal", train=split, test=split, num_features=features, num_classes=classes, propensity_a=0.55,
            propensity_b=1.5, checksum="", variant="",
        )  # fmt: skip
        config = replace(config, batch_size=8)
        if cls.validates(config):
            config = replace(config, dataset=replace(config.dataset, valid_share=0.25))
        return cls(config, data)

    def batch(self, draw: ExampleDraw) -> RowBatch:
        """Return the drawn training rows."""
        rows_B = draw.rows_B if self.train_R is None else self.train_R[draw.rows_B]
        return take(self.data.train, rows_B, draw.weight_B(self.examples.count))

    def probe(self, rows: int, split: Literal["train", "test"] = "test") -> RowBatch:
        if split == "test":
            return take(self.data.test, probe_rows(self.data.test.num_rows, rows))
        chosen = probe_rows(self.examples.count, rows)
        return take(self.data.train, chosen if self.train_R is None else self.train_R[chosen])

    def glance(self) -> RowBatch:
        return take(self.data.test, self.subset[:_GLANCE_ROWS])

    def evaluate_subset(self, network: "ClassNetwork") -> dict[str, Any]:
        """Measure ``evaluation.rows`` of the validation rows or, if none are held out, of the test rows."""
        if self.valid_R is None:
            return self._metrics(network, self.subset, "test_subset", "evaluating")
        some = self.valid_R[probe_rows(len(self.valid_R), self.config.evaluation.rows)]
        return self._metrics(network, some, "valid", "evaluating")

    def evaluate_final(self, network: "ClassNetwork") -> dict[str, Any]:
        """Measure all test rows, also by full softmax's loss, and all rows held out for validation."""
        metrics = self._metrics(network, np.arange(self.data.test.num_rows), "test", "final evaluation")
        metrics |= self.losses(network)
        if self.valid_R is not None:
            metrics |= self._metrics(network, self.valid_R, "valid", "validation rows")
        return metrics

    def top(self, network: "ClassNetwork", batch: RowBatch, k: int) -> np.ndarray:
        """Return the k best classes of each row, (B, k) int32, best first."""
        return network.head.top(network.encoder.encode(batch), k)

    def _metrics(self, network: "ClassNetwork", rows: np.ndarray, split: str, label: str) -> dict[str, float]:
        data = self.data.train if split == "valid" else self.data.test
        metrics = evaluate(partial(self.top, network), data, rows, self.inverse_propensity_N, label=label)
        return {f"{split}/{name}": value for name, value in metrics.items()}

    def losses(self, network: "ClassNetwork") -> dict[str, float]:
        """Return the mean cross-entropy of the test rows under the softmax over all classes, whatever was trained.

        That of a row is the mean over its labels.
        """
        test, total = self.data.test, 0.0
        for begin in range(0, test.num_rows, _EVALUATION_ROWS):
            batch = take(test, np.arange(begin, min(begin + _EVALUATION_ROWS, test.num_rows)))
            total += float(row_losses(network, network.encoder.encode(batch), batch).sum())
        return {f"test/{_LOSS.key}": total / test.num_rows}

    @property
    def description(self) -> str:
        data = self.data
        held = "" if self.valid_R is None else f" and {len(self.valid_R):,} for validation"
        left_out = "" if data.left_out is None else f"; {data.left_out}"
        return (
            f"{self.examples.count:,} training rows{held}, {data.num_features:,} features, {data.num_classes:,} classes"
            f"{left_out}"
        )

    def about_data(self) -> dict[str, Any]:
        data = self.data
        without_label = {"train": data.train.rows_dropped, "test": data.test.rows_dropped}  # they are left out
        return {
            "name": data.name,
            "num_classes": data.num_classes,
            "num_features": data.num_features,
            "num_train": self.examples.count,
            **({} if self.valid_R is None else {"num_valid": len(self.valid_R)}),
            "num_test": data.test.num_rows,
            **({"rows_without_label": without_label} if any(without_label.values()) else {}),
            "labels_per_row": len(data.train.labels) / data.train.num_rows,
            "features_per_row": len(data.train.indices) / data.train.num_rows,
            "label_frequency": label_frequency(self.training.label_counts_N),
        }


def row_losses(network: "ClassNetwork", hidden_BD: np.ndarray, batch: RowBatch) -> np.ndarray:
    """Return the cross-entropy of each row under the softmax over all classes, (B,) float64 in nats.

    One pass over all classes gives it for a row's first label. The others differ from it by their logits.
    """
    head = network.head
    first_B, count_B = batch.target_indptr[:-1], np.diff(batch.target_indptr)
    is_label_BK = np.arange(count_B.max()) < count_B[:, None]
    place_BK = first_B[:, None] + np.minimum(np.arange(count_B.max()), count_B[:, None] - 1)
    logits_BK = head.logits_of(hidden_BD, batch.targets[place_BK]).astype(np.float64)
    mean_B = (logits_BK * is_label_BK).sum(axis=1) / count_B
    first_loss_B = head.layer.cross_entropy(hidden_BD, batch.targets[first_B], by_magnitude=head.loss.by_magnitude)
    losses_B: np.ndarray = first_loss_B + logits_BK[:, 0] - mean_B
    return losses_B


def probe_rows(num_rows: int, rows: int) -> np.ndarray:
    """Return the row numbers of a probe, ascending, the same for every seed; larger probes contain smaller ones."""
    return np.sort(rng.generator(0, rng.EVALUATE).permutation(num_rows)[:rows])


def evaluate(
    top: Callable[[RowBatch, int], np.ndarray],
    data: LabelledRows,
    rows: np.ndarray,
    inverse_propensity_N: np.ndarray,
    *,
    label: str,
) -> dict[str, float]:
    """Return the ranking metrics of the given rows over all classes, computed in blocks of rows.

    ``top``: function that returns the best classes of a batch (``Classification.top``). ``inverse_propensity_N``:
    weights of the classes for PSP@k. ``label``: text of the progress bar.
    """
    k = min(max(RANKS), len(inverse_propensity_N))
    tops, indptrs, labels = [], [np.zeros(1, dtype=np.int64)], []
    chunks = range(0, len(rows), _EVALUATION_ROWS)
    for begin in tqdm(chunks, desc=label, leave=False, disable=len(chunks) < 8, **PROGRESS_BAR):
        batch = take(data, rows[begin : begin + _EVALUATION_ROWS])
        tops.append(top(batch, k))
        indptrs.append(batch.target_indptr[1:] + indptrs[-1][-1])
        labels.append(batch.targets)
    return ranking_metrics(np.concatenate(tops), np.concatenate(indptrs), np.concatenate(labels), inverse_propensity_N)

"""Define the task of language modelling: predict each token from those before it, measured by perplexity.

Perplexity is exp of the mean cross-entropy over all targets of a split; n tokens have n - 1 targets (see
``runner.data.text.batches``). It is that of the exact softmax for every loss, computed in blocks of classes. If the
loss trains the softmax of the logits' magnitudes, that softmax is measured. If training carries a recurrent state from
batch to batch, so does the evaluation.

Legend: n tokens of a split, B rows of a batch, b of them go on, T tokens of a window, D hidden size, N classes.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from tqdm import tqdm

from runner import rng
from runner.contracts import ExampleDraw, Measure, TrainingFacts, steps_per_epoch
from runner.data import TextDataset
from runner.data.shared.manifests import Int32s
from runner.data.text.batches import TextBatch, Windows, evaluation_batches
from runner.errors import DataError, Diverged
from runner.metrics import perplexity
from runner.models.recurrent import TextEncoder
from runner.options.settings import RunConfig
from runner.tasks.base import OF_CLASSES, PROGRESS_BAR, Task, label_frequency

if TYPE_CHECKING:
    from runner.network import ClassNetwork, Network

# Number of rows of an evaluation. Contiguous rows are few, because the first targets of each stream have few tokens
# before them; chunked sequences are independent in any case.
_EVALUATION_ROWS = {"contiguous": 10, "chunked": 32}
_PROBE_TOKENS = 16  # largest number of tokens in a window of a probe


class LanguageModelling(Task):
    """Train on windows of a text and measure perplexity.

    Raises ConfigError if the training text is too short for a step, DataError if another split has no target.
    """

    unit = "token"
    sections = OF_CLASSES | {"windows"}
    measures = (
        Measure(key="ppl", label="perplexity", unit="", scale=1, decimals=2, higher_is_better=False, headline=True),
    )

    def __init__(self, config: RunConfig, data: TextDataset) -> None:
        self.config, self.data = config, data
        windows = config.windows
        for split in ("valid", "test"):
            if len(getattr(data, f"{split}_T")) < 2:
                raise DataError(f"the {split} text of {data.name} has only one token, so there is nothing to predict")
        tokens = data.train_T
        self.windows = Windows(tokens_n=tokens, batch_size=config.batch_size, length=windows.length, cut=windows.cut)
        self.examples = self.windows.examples
        steps = steps_per_epoch(self.examples.count, config.batch_size)
        self.training = TrainingFacts(
            label_counts_N=np.bincount(tokens[1:], minlength=data.num_classes),
            num_rows=len(tokens) - 1,
            steps_per_epoch=steps,
            num_examples=self.examples.count,
            count_examples=partial(self.windows.count_examples, data.num_classes),
        )
        self.num_features = data.num_classes
        self.rows_per_step = config.batch_size * windows.length
        self.rows_per_epoch = self.examples.count * windows.length

    @classmethod
    def rehearsal(cls, config: RunConfig) -> Self:
        tokens_n = np.random.default_rng(0).integers(0, 80, 60).astype(np.int32)
        data = TextDataset(
            name="rehearsal", train_T=tokens_n, valid_T=tokens_n, test_T=tokens_n, num_classes=80,
            vocabulary_path=Path(), checksum="", variant="",
        )  # fmt: skip
        return cls(replace(config, batch_size=4, windows=replace(config.windows, length=4)), data)

    def batch(self, draw: ExampleDraw) -> TextBatch:
        """Return the drawn windows."""
        return self.windows.batch(draw.rows_B, draw.weight_B(self.examples.count))

    def probe(self, rows: int, split: Literal["train", "test"] = "test") -> TextBatch:
        """Return windows of a few tokens each, each without tokens before it.

        Windows are whole, so there may be a few more rows than asked for.
        """
        tokens_n = getattr(self.data, f"{split}_T")
        length = min(rows, _PROBE_TOKENS, self.config.windows.length, len(tokens_n) - 1)
        count = (len(tokens_n) - 1) // length
        chosen = np.sort(rng.generator(0, rng.EVALUATE).permutation(count)[: -(-rows // length)])
        place_BT = chosen[:, None] * length + np.arange(length)
        return TextBatch(tokens_BT=tokens_n[place_BT], targets_BT=tokens_n[place_BT + 1], starts_anew=True)

    def glance(self) -> TextBatch:
        return self.probe(32)

    # ------------------------------------------------------------ measures

    def cross_entropy(self, network: "ClassNetwork", tokens_n: np.ndarray, *, name: str, label: str) -> float:
        """Return the mean cross-entropy of a text's targets, in nats.

        ``name``: name of the text in errors. ``label``: text of the progress bar. Raises Diverged if the mean is not a
        number.
        """
        encoder, windows = network.encoder, self.config.windows
        assert isinstance(encoder, TextEncoder)
        rows = min(_EVALUATION_ROWS[windows.cut], max(1, (len(tokens_n) - 1) // windows.length))
        total, count, state = 0.0, len(tokens_n) - 1, encoder.start(rows)
        bar = tqdm(total=count, desc=label, leave=False, disable=count < 10**6, unit="token", **PROGRESS_BAR)
        with bar:
            for batch in evaluation_batches(tokens_n, rows, windows.length, windows.cut):
                hidden, state = encoder.go_on(batch, state)
                total += float(self._losses(network, hidden, batch.targets).sum())
                bar.update(batch.num_rows)
        if math.isnan(total):
            raise Diverged(f"the cross-entropy of the {name} text is not a number; try a smaller optimizer.lr")
        return total / count

    def _losses(self, network: "Network[Any]", hidden_BD: np.ndarray, target_B: np.ndarray) -> np.ndarray:
        """Return the cross-entropy of each row's target, (B,) float64 in nats."""
        head = network.head
        losses_B: np.ndarray = head.layer.cross_entropy(hidden_BD, target_B, by_magnitude=head.loss.by_magnitude)
        return losses_B

    def evaluate_subset(self, network: "ClassNetwork") -> dict[str, Any]:
        """Measure the whole validation text."""
        valid = self.cross_entropy(network, self.data.valid_T, name="valid", label="evaluating")
        return {"valid/ppl": perplexity(valid)}

    def evaluate_final(self, network: "ClassNetwork") -> dict[str, Any]:
        """Measure the test and validation texts, and the beginning of the training text up to the test text's length.

        All are measured without dropout, so that they compare. Raises Diverged if a perplexity exceeds what a float can
        hold.
        """
        data = self.data
        texts = {"test": data.test_T, "valid": data.valid_T, "train": data.train_T[: len(data.test_T)]}
        metrics = {
            f"{split}/ppl": perplexity(self.cross_entropy(network, text, name=split, label="final evaluation"))
            for split, text in texts.items()
        }
        for name, value in metrics.items():
            if isinstance(value, str):
                raise Diverged(f"{name} is too large for a float; try a smaller optimizer.lr")
        return metrics

    # ------------------------------------------------------------ continuing a text

    def hidden_after(self, network: "Network[Any]", contexts: Sequence[Int32s]) -> np.ndarray:
        """Return the hidden state after each of B contexts, (B, D) float32.

        ``contexts``: ids of words, at least one each. A model without a recurrent state sees the last
        ``windows.length`` of them, as many as in training; another one sees all, so many at a time.
        """
        encoder, length = network.encoder, self.config.windows.length
        assert isinstance(encoder, TextEncoder)
        state = encoder.start(len(contexts))
        rows = contexts if state else [context[-length:] for context in contexts]
        size_B = np.array([len(row) for row in rows])
        order_B = np.argsort(-size_B, kind="stable")  # so that rows that go on stay the first ones of a state
        hidden_BD = np.empty((len(rows), encoder.dim), dtype=np.float32)
        for begin in range(0, int(size_B.max()), length):
            going_b = order_B[size_B[order_B] > begin]
            end_b = np.minimum(size_B[going_b] - begin, length)
            tokens_bT = np.zeros((len(going_b), end_b[0]), dtype=np.int32)  # what follows a row's end does not matter
            for tokens_T, row, end in zip(tokens_bT, going_b, end_b, strict=True):
                tokens_T[:end] = rows[row][begin : begin + end]
            batch = TextBatch(tokens_BT=tokens_bT, targets_BT=tokens_bT, starts_anew=begin == 0)
            hidden, state = encoder.go_on(batch, state)
            # A row that goes on is written again by the next piece.
            hidden_BD[going_b] = hidden.reshape(*tokens_bT.shape, -1)[np.arange(len(going_b)), end_b - 1]
        return hidden_BD

    def likeliest(self, network: "Network[Any]", hidden_BD: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the k likeliest next words of each row, best first, and their log probabilities, (B, k) each.

        Probabilities are those that perplexity is measured by.
        """
        top_BK = network.head.top(hidden_BD, k)
        logit_BK = network.head.logits_of(hidden_BD, top_BK)
        log_first_B = -self._losses(network, hidden_BD, top_BK[:, 0])
        return top_BK, logit_BK - logit_BK[:, :1] + log_first_B[:, None]

    # ------------------------------------------------------------ words

    @property
    def description(self) -> str:
        data = self.data
        return (
            f"{len(data.train_T):,} training tokens, {len(data.valid_T):,} for validation, {len(data.test_T):,} to "
            f"test, {data.num_classes:,} classes"
        )

    def about_data(self) -> dict[str, Any]:
        data = self.data
        return {
            "name": data.name,
            "variant": data.variant,
            "num_classes": data.num_classes,
            "train_tokens": len(data.train_T),
            "valid_tokens": len(data.valid_T),
            "test_tokens": len(data.test_T),
            "label_frequency": label_frequency(self.training.label_counts_N),
        }

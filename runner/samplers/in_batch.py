"""Use in-batch negatives: every row's candidates are the targets of the batch's other rows.

The sampler draws nothing: the batch is the draw. Batches are random subsets of the training examples, each of which an
epoch visits once. An example is a row, or a window of a text or of a user's sequence, which has many rows. Take an
example that does not have class i. The other E - 1 examples of its batch come from the R - 1 others of the training
set, c_i of which have the class. So the class is in the batch unless all E - 1 miss it: its expected count is
1 - C(R-1-c_i, E-1) / C(R-1, E-1), the same for all rows. The logQ correction of two-tower recommenders (Yi et al. 2019)
is its first-order approximation, E c_i / R.

A class without training positives never comes up in training, so it is never pushed down. Its count is stated as if it
had one positive, because batches of other examples may hold it. A batch of one row has no negatives.

The count is not exact for two kinds of windows. The targets of a row's own window are certain to be in the batch, yet
they are stated like those of other windows, because one list of counts serves all rows. And streams of text
(``windows.cut=contiguous``) come in the same order in every epoch, so nothing about their batches is random.

@inproceedings{yi2019sampling, title={Sampling-Bias-Corrected Neural Modeling for Large Corpus Item Recommendations},
author={Yi, Xinyang and others}, booktitle={RecSys}, year={2019}}

Legend: B rows of a batch, N classes (in a ``Proposal``: candidates), M ids, P targets of the batch, U distinct numbers
of examples with a class, J draws of other examples.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from runner.contracts import Proposal, Query, TrainingFacts
from runner.output.layer import Layer
from runner.samplers.base import Sampler, SamplerConfig

_CERTAIN = 1 - 1e-15
_SIZES_KEPT = 4


@dataclass(frozen=True, kw_only=True)
class InBatchConfig(SamplerConfig):
    """Take the other rows' targets as each row's negatives."""

    # partition_estimate masks no hits, but a row's own targets are in its batch for certain, not by chance.
    losses: ClassVar[tuple[str, ...]] = tuple(name for name in SamplerConfig.losses if name != "partition_estimate")
    is_the_batch: ClassVar[bool] = True
    by_chance: ClassVar[bool] = False

    def build(self, *, layer: Layer, training: TrainingFacts, seed: int) -> Sampler:
        return InBatch(training)


class InBatch(Sampler):
    """Propose the batch's distinct targets to all its rows."""

    def __init__(self, training: TrainingFacts) -> None:
        self.num_examples = training.num_rows if training.num_examples is None else training.num_examples
        counts_N = training.label_counts_N if training.count_examples is None else training.count_examples()
        self.examples_with_class_N = np.maximum(counts_N, 1)
        self._log_counts: dict[int, np.ndarray] = {}  # by examples of a batch; an epoch's last one may be smaller

    def _log_count_N(self, query: Query) -> np.ndarray:
        examples = query.num_rows if query.num_examples is None else query.num_examples
        if examples not in self._log_counts:
            others = max(1, self.num_examples - 1)
            # A batch of one example is treated as one of two, so that its (masked) targets have a finite log count.
            drawn = min(max(examples, 2) - 1, others)
            having_U, position_N = np.unique(self.examples_with_class_N, return_inverse=True)
            # P(no draw has the class) = product over draws j of 1 - c / (others - j), which is 0 where too few
            # examples lack the class.
            left_J = others - np.arange(drawn, dtype=np.float64)
            log_miss_U = np.array([np.log1p(-np.minimum(c / left_J, _CERTAIN)).sum() for c in having_U.astype(float)])
            if len(self._log_counts) == _SIZES_KEPT:
                self._log_counts.clear()
            self._log_counts[examples] = np.log(-np.expm1(log_miss_U)).astype(np.float32)[position_N]
        return self._log_counts[examples]

    def sample(self, query: Query, step: int) -> Proposal:
        ids_M = np.unique(query.targets_P)
        return Proposal(ids_N=ids_M, log_expected_count_N=self._log_count_N(query)[ids_M])

    def log_expected_count(self, query: Query, ids_M: np.ndarray, step: int) -> np.ndarray:
        log_count_M = self._log_count_N(query)[ids_M]
        return np.broadcast_to(log_count_M, (query.num_rows, len(ids_M)))

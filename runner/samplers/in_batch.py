"""Use in-batch negatives: every row's candidates are the targets of the batch's other rows.

The sampler draws nothing: the batch is the draw. Batches are random subsets of the training rows, each of which an
epoch visits once. Take a row that does not have class i. The other B - 1 rows of its batch come from the R - 1 other
training rows, c_i of which have the class. So the class is in the batch unless all B - 1 rows miss it: its expected
count is 1 - C(R-1-c_i, B-1) / C(R-1, B-1), the same for all rows. The logQ correction of two-tower recommenders (Yi et
al. 2019) is its first-order approximation, B c_i / R.

A class without training positives never comes up in training, so it is never pushed down. Its count is stated as if it
had one positive, because batches of other rows may hold it. A batch of one row has no negatives.

Rows of a text or of a user's sequence come together, as a window. For them the stated counts are those of independent
rows, an approximation that is too high for items that a user takes again and again.

@inproceedings{yi2019sampling, title={Sampling-Bias-Corrected Neural Modeling for Large Corpus Item Recommendations},
author={Yi, Xinyang and others}, booktitle={RecSys}, year={2019}}

Legend: B rows of a batch, N classes (in a ``Proposal``: candidates), M ids, P targets of the batch, U distinct numbers
of positives, J draws of other rows.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from runner.contracts import Proposal, Query, TrainingFacts
from runner.samplers.base import Sampler, SamplerConfig

if TYPE_CHECKING:
    from runner.heads.output_layer import OutputLayer

_CERTAIN = 1 - 1e-15
_SIZES_KEPT = 4


@dataclass(frozen=True, kw_only=True)
class InBatchConfig(SamplerConfig):
    """Configure in-batch negatives; nothing is to set, as the batch's distinct targets are the candidates."""

    # partition_estimate masks no hits, but a row's own targets are in its batch for certain, not by chance.
    losses: ClassVar[tuple[str, ...]] = tuple(name for name in SamplerConfig.losses if name != "partition_estimate")
    is_the_batch: ClassVar[bool] = True
    by_chance: ClassVar[bool] = False

    def build(self, *, layer: "OutputLayer", training: TrainingFacts, seed: int) -> Sampler:
        return InBatch(training)


class InBatch(Sampler):
    """Propose the batch's distinct targets to all its rows."""

    def __init__(self, training: TrainingFacts) -> None:
        self.training = training
        # By number of rows: an epoch's last batch may be smaller, and every batch of sequences has its own number.
        self._log_counts: dict[int, np.ndarray] = {}

    def _log_count_N(self, num_rows: int) -> np.ndarray:
        if num_rows not in self._log_counts:
            others = max(1, self.training.num_rows - 1)
            # A batch of one row is treated as one of two, so that its (masked) targets have a finite log count.
            drawn = min(max(num_rows, 2) - 1, others)
            having_U, position_N = np.unique(np.maximum(self.training.label_counts_N, 1), return_inverse=True)
            # P(no draw has the class) = product over draws j of 1 - c / (others - j), which is 0 where too few rows
            # lack the class.
            left_J = others - np.arange(drawn, dtype=np.float64)
            log_miss_U = np.array([np.log1p(-np.minimum(c / left_J, _CERTAIN)).sum() for c in having_U.astype(float)])
            if len(self._log_counts) == _SIZES_KEPT:
                self._log_counts.clear()
            self._log_counts[num_rows] = np.log(-np.expm1(log_miss_U)).astype(np.float32)[position_N]
        return self._log_counts[num_rows]

    def sample(self, query: Query, step: int) -> Proposal:
        ids_M = np.unique(query.targets_P)
        return Proposal(ids_N=ids_M, log_expected_count_N=self._log_count_N(query.num_rows)[ids_M])

    def log_expected_count(self, query: Query, ids_M: np.ndarray, step: int) -> np.ndarray:
        log_count_M = self._log_count_N(query.num_rows)[ids_M]
        return np.broadcast_to(log_count_M, (query.num_rows, len(ids_M)))

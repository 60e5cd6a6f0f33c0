"""In-batch negatives: every row's candidates are the targets of the batch's other rows.

No draw is made: the batch is the draw. Batches are random subsets of the training rows (an epoch visits each once), so
class i with c_i training positives among R rows stands in a batch of B, one row of which is given and does not have
it, unless the other B - 1 rows all miss it: its expected count is 1 - C(R-1-c_i, B-1) / C(R-1, B-1), the same for all
rows. Two-tower recommenders' logQ correction (Yi et al. 2019) is its first order, B c_i / R.

A class without training positives never comes up in training, so it is never pushed down; it is stated as if it had one
(batches of other rows may hold it). A batch of one row has no negatives.

@inproceedings{yi2019sampling, title={Sampling-Bias-Corrected Neural Modeling for Large Corpus Item Recommendations},
author={Yi, Xinyang and others}, booktitle={RecSys}, year={2019}}
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from runner.contracts import Proposal, Query, TrainingFacts
from runner.samplers.base import Sampler, SamplerConfig

if TYPE_CHECKING:
    from runner.heads.output_layer import OutputLayer

_CERTAIN = 1 - 1e-15


@dataclass(frozen=True, kw_only=True)
class InBatchConfig(SamplerConfig):
    """Nothing to set: there are as many candidates as the batch has distinct targets."""

    # A partition estimate has no hits masked, and a row's own targets are certain to stand in its batch.
    losses: ClassVar[tuple[str, ...]] = tuple(name for name in SamplerConfig.losses if name != "partition_estimate")
    is_the_batch: ClassVar[bool] = True
    by_chance: ClassVar[bool] = False

    def build(self, *, layer: "OutputLayer", training: TrainingFacts, seed: int) -> Sampler:
        return InBatch(training)


class InBatch(Sampler):
    def __init__(self, training: TrainingFacts) -> None:
        self.training = training
        self._log_counts: dict[int, np.ndarray] = {}  # by rows of the batch; an epoch's last batch may be smaller

    def _log_count_N(self, num_rows: int) -> np.ndarray:
        if num_rows not in self._log_counts:
            others = max(1, self.training.num_rows - 1)
            # A batch of one is stated as one of two, so that its (masked) targets have a finite count.
            drawn = min(max(num_rows, 2) - 1, others)
            having_U, position_N = np.unique(np.maximum(self.training.label_counts_N, 1), return_inverse=True)
            # P(no draw has the class) = product over draws j of 1 - c / (others - j); 0 where draws must meet it.
            left_J = others - np.arange(drawn, dtype=np.float64)
            log_miss_U = np.array([np.log1p(-np.minimum(c / left_J, _CERTAIN)).sum() for c in having_U.astype(float)])
            self._log_counts[num_rows] = np.log(-np.expm1(log_miss_U)).astype(np.float32)[position_N]
        return self._log_counts[num_rows]

    def sample(self, query: Query, step: int) -> Proposal:
        ids_M = np.unique(query.targets_P)
        return Proposal(ids_N=ids_M, log_expected_count_N=self._log_count_N(query.num_rows)[ids_M])

    def log_expected_count(self, query: Query, ids_M: np.ndarray, step: int) -> np.ndarray:
        log_count_M = self._log_count_N(query.num_rows)[ids_M]
        return np.broadcast_to(log_count_M, (query.num_rows, len(ids_M)))

"""Losses by name. A loss is a pure function of logits and expected counts; it never sees where ids came from.

Multi-label rows: the target distribution is uniform over the row's true classes ("pick all labels",
normalised), the same reduction for every loss, so that only the estimate of the partition differs.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from runner.kernels import losses as kernels


@dataclass(frozen=True, kw_only=True)
class LossConfig:
    """``corrects_candidates`` / ``corrects_targets``: subtract the log expected count from their logits.

    ``by_magnitude``: logits stand for their absolute values, before corrections and in every ranking.
    """

    corrects_candidates: ClassVar[bool]
    by_magnitude: ClassVar[bool] = False
    name: str

    @property
    def corrects_targets(self) -> bool:
        return False

    def apply(
        self,
        target_indptr_B1: np.ndarray,
        target_P: np.ndarray,
        begin_B: np.ndarray,
        end_B: np.ndarray,
        candidate_N: np.ndarray,
    ) -> np.ndarray:
        """Per-row losses (B,); logits (already corrected, masked with -inf) are replaced by their gradients.

        Row b's candidates are ``candidate_N[begin_B[b] : end_B[b]]``.
        """
        return kernels.softmax_loss(target_indptr_B1, target_P, begin_B, end_B, candidate_N)


@dataclass(frozen=True, kw_only=True)
class FullLoss(LossConfig):
    """Cross-entropy under the softmax over all classes."""

    corrects_candidates = False


@dataclass(frozen=True, kw_only=True)
class ActiveSetLoss(LossConfig):
    """Softmax over targets and candidates without any correction (LNS; SLIDE)."""

    corrects_candidates = False


@dataclass(frozen=True, kw_only=True)
class SampledSoftmaxLoss(LossConfig):
    """Softmax with candidates at logit - log expected count (Bengio & Senecal 2008; Jean et al. 2015).

    ``correct_target``: correct the targets' logits by their own expected counts too (TensorFlow does; the
    papers reproduced here do not). A target that is seldom sampled then counts as easier than it is.
    """

    corrects_candidates = True
    correct_target: bool = False

    @property
    def corrects_targets(self) -> bool:
        return self.correct_target


@dataclass(frozen=True, kw_only=True)
class NceLoss(LossConfig):
    """Noise-contrastive estimation (Gutmann & Hyvarinen 2010): is it a target or noise of the stated count?"""

    corrects_candidates = True

    @property
    def corrects_targets(self) -> bool:
        return True

    def apply(
        self,
        target_indptr_B1: np.ndarray,
        target_P: np.ndarray,
        begin_B: np.ndarray,
        end_B: np.ndarray,
        candidate_N: np.ndarray,
    ) -> np.ndarray:
        return kernels.logistic_loss(target_indptr_B1, target_P, begin_B, end_B, candidate_N)


LOSSES: dict[str, type[LossConfig]] = {
    "full": FullLoss,
    "sampled_softmax": SampledSoftmaxLoss,
    "active_set": ActiveSetLoss,
    "nce": NceLoss,
}

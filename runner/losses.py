"""Losses by name. A loss is a pure function of logits and expected counts; it never sees where ids came from.

Multi-label rows: the target distribution is uniform over the row's true classes ("pick all labels",
normalised), the same reduction for every loss, so that only the estimate of the partition differs. Losses that are
sums over candidates (nce, negative_sampling, gbce, blackout) stay sums: no factor depends on their number.

@article{bengio2008adaptive, title={Adaptive Importance Sampling to Accelerate Training of a Neural
Probabilistic Language Model}, author={Bengio, Yoshua and Sen{\\'e}cal, Jean-S{\\'e}bastien},
journal={IEEE Transactions on Neural Networks}, year={2008}}
@inproceedings{jean2015using, title={On Using Very Large Target Vocabulary for Neural Machine Translation},
author={Jean, S{\\'e}bastien and Cho, Kyunghyun and Memisevic, Roland and Bengio, Yoshua}, booktitle={ACL}, year={2015}}
@article{levy2018lsh, title={LSH Softmax: Sub-Linear Learning and Inference of the Softmax Layer in Deep
Architectures}, author={Levy, Daniel and Chan, Danlu and Ermon, Stefano}, year={2018}}
@inproceedings{blanc2018adaptive, title={Adaptive Sampled Softmax with Kernel Based Sampling},
author={Blanc, Guy and Rendle, Steffen}, booktitle={ICML}, year={2018}}
@inproceedings{gutmann2010noise, title={Noise-Contrastive Estimation: A New Estimation Principle for Unnormalized
Statistical Models}, author={Gutmann, Michael and Hyv{\\"a}rinen, Aapo}, booktitle={AISTATS}, year={2010}}
@inproceedings{mikolov2013distributed, title={Distributed Representations of Words and Phrases and their
Compositionality}, author={Mikolov, Tomas and Sutskever, Ilya and Chen, Kai and Corrado, Greg and Dean, Jeffrey},
booktitle={NeurIPS}, year={2013}}
@inproceedings{petrov2023gsasrec, title={gSASRec: Reducing Overconfidence in Sequential Recommendation Trained with
Negative Sampling}, author={Petrov, Aleksandr and Macdonald, Craig}, booktitle={RecSys}, year={2023}}
@inproceedings{ji2016blackout, title={BlackOut: Speeding up Recurrent Neural Network Language Models With Very Large
Vocabularies}, author={Ji, Shihao and Vishwanathan, S. V. N. and Satish, Nadathur and Anderson, Michael J. and
Dubey, Pradeep}, booktitle={ICLR}, year={2016}}
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from runner.errors import require
from runner.kernels import losses as kernels


@dataclass(frozen=True, kw_only=True)
class LossConfig:
    """``corrects_candidates`` / ``corrects_targets``: subtract the log expected count from their logits.

    ``masks_hits``: a row's targets among its candidates (accidental hits) take no part as candidates, unless targets
    are corrected and candidates drawn with replacement (``masks_hits_where``).
    ``by_magnitude``: logits stand for their absolute values, before corrections and in every ranking.
    ``needs_every_class``: the sum over all classes is part of it, so that no sampler's candidates will do.
    ``like``: of a loss from outside this package, the built-in one whose samplers it goes with.
    ``kernel``: computes losses and gradients, in place.
    """

    kernel: ClassVar[Callable[..., np.ndarray]] = staticmethod(kernels.softmax_loss)
    corrects_candidates: ClassVar[bool]
    masks_hits: ClassVar[bool] = True
    by_magnitude: ClassVar[bool] = False
    needs_every_class: ClassVar[bool] = False
    like: ClassVar[str | None] = None
    name: str

    @property
    def corrects_targets(self) -> bool:
        return False

    def masks_hits_where(self, *, distinct: bool) -> bool:
        """Whether hits are masked among distinct candidates, or among draws with replacement.

        Which of a target and m draws with replacement is the target? Given how often each class is among the m + 1,
        class i with a probability proportional to p_i / (m q_i) for each time: hits count. Were they masked, likely
        classes would be learnt as likelier than they are. Distinct candidates and the target are a set, which has class
        i once.
        """
        return self.masks_hits and (distinct or not self.corrects_targets)

    def apply(
        self,
        target_indptr_B1: np.ndarray,
        target_P: np.ndarray,
        begin_B: np.ndarray,
        end_B: np.ndarray,
        candidate_N: np.ndarray,
        weight_B: np.ndarray,
        num_classes: int,
    ) -> np.ndarray:
        """Per-row losses (B,); logits (already corrected, masked with -inf) are replaced by their gradients.

        Row b's candidates are ``candidate_N[begin_B[b] : end_B[b]]``, out of ``num_classes``. Gradients are those of
        the sum of ``weight_B`` (B,) float32 times the losses returned.
        """
        return self.kernel(target_indptr_B1, target_P, begin_B, end_B, candidate_N, weight_B)


@dataclass(frozen=True, kw_only=True)
class FullLoss(LossConfig):
    """Cross-entropy under the softmax over all classes."""

    corrects_candidates = False
    needs_every_class = True


# ---------------------------------------------------------------- softmax over targets and candidates


@dataclass(frozen=True, kw_only=True)
class ActiveSetLoss(LossConfig):
    """Softmax over targets and candidates without any correction (LNS; SLIDE)."""

    corrects_candidates = False


@dataclass(frozen=True, kw_only=True)
class SampledSoftmaxLoss(LossConfig):
    """Softmax with candidates at logit - log expected count (Bengio & Senecal 2008; Jean et al. 2015).

    ``correct_target``: correct the targets' logits by their own expected counts too, as TensorFlow and MIDX's code do
    and none of the papers prints. A target that is seldom sampled then counts as easier than it is, but few draws a row
    are enough: without it, a class far likelier than its share of the draws is pulled up as a target and hardly ever
    pushed down.
    """

    corrects_candidates = True
    correct_target: bool = False

    @property
    def corrects_targets(self) -> bool:
        return self.correct_target


@dataclass(frozen=True, kw_only=True)
class AbsoluteSoftmaxLoss(LossConfig):
    """Sampled softmax of |logit| (Blanc & Rendle 2018): p proportional to exp(|o|), as symmetric as q ~ alpha o^2 + 1.

    A constant added to all logits matters here, unlike under softmax. ``correct_target``: as in sampled softmax.
    """

    corrects_candidates = True
    by_magnitude = True
    correct_target: bool = False

    @property
    def corrects_targets(self) -> bool:
        return self.correct_target


# ---------------------------------------------------------------- an estimate of the partition


@dataclass(frozen=True, kw_only=True)
class PartitionEstimateLoss(LossConfig):
    """-mean target logit + log of sum over candidates of exp(logit - log expected count) (Levy, Chan & Ermon 2018).

    The sum estimates the partition without bias, so targets are part of it only where they were drawn: no hit is
    masked, no target is added. With S at count 1 and a uniform tail it is LSH Softmax's estimator; with draws from a
    fixed distribution it is plain importance sampling. A row without candidates has loss 0 and no gradient.
    """

    kernel = staticmethod(kernels.partition_loss)
    corrects_candidates = True
    masks_hits = False


# ---------------------------------------------------------------- a binary problem for each target and candidate


@dataclass(frozen=True, kw_only=True)
class LogisticLoss(LossConfig):
    """-mean over targets of ``power`` log sigmoid(logit) - sum over candidates of log(1 - sigmoid(logit))."""

    kernel = staticmethod(kernels.logistic_loss)

    def power(self, num_candidates_B: np.ndarray, num_classes: int) -> np.ndarray:
        """(B,) power of sigmoid(target logit), from the numbers of candidates that are not masked."""
        return np.ones(len(num_candidates_B))

    def apply(
        self,
        target_indptr_B1: np.ndarray,
        target_P: np.ndarray,
        begin_B: np.ndarray,
        end_B: np.ndarray,
        candidate_N: np.ndarray,
        weight_B: np.ndarray,
        num_classes: int,
    ) -> np.ndarray:
        num_candidates_B = kernels.count_unmasked(begin_B, end_B, candidate_N)
        power_B = self.power(num_candidates_B, num_classes).astype(np.float32)
        return self.kernel(target_indptr_B1, target_P, begin_B, end_B, candidate_N, weight_B, power_B)


@dataclass(frozen=True, kw_only=True)
class NceLoss(LogisticLoss):
    """Noise-contrastive estimation (Gutmann & Hyvarinen 2010): is it a target or noise of the stated count?"""

    corrects_candidates = True

    @property
    def corrects_targets(self) -> bool:
        return True


@dataclass(frozen=True, kw_only=True)
class NegativeSamplingLoss(LogisticLoss):
    """Skip-gram's negative sampling (Mikolov et al. 2013): NCE's binary problems without any correction."""

    corrects_candidates = False


@dataclass(frozen=True, kw_only=True)
class GbceLoss(LogisticLoss):
    """Generalised binary cross-entropy (Petrov & Macdonald 2023): sigmoid(target logit) is raised to the power beta.

    Negative sampling with a sampling rate alpha = candidates / (n - 1) learns probabilities too high by 1 / alpha in
    the odds; beta = alpha (t (1 - 1/alpha) + 1/alpha) = 1 - t (1 - alpha) takes that back to the degree ``t``: 0 is
    plain binary cross-entropy, 1 calibrated. Made for uniform candidates. The paper divides a row's loss by its number
    of candidates plus one, a factor that Adam does not see where it is the same in all rows.
    """

    corrects_candidates = False
    t: float = 0.75

    def __post_init__(self) -> None:
        require(0 <= self.t <= 1, "loss.t must lie in [0, 1]")

    def power(self, num_candidates_B: np.ndarray, num_classes: int) -> np.ndarray:
        alpha_B = np.minimum(1, num_candidates_B / max(num_classes - 1, 1))  # repeats sample no more than all
        return 1 - self.t * (1 - alpha_B)


# ---------------------------------------------------------------- discriminative softmax


@dataclass(frozen=True, kw_only=True)
class BlackoutLoss(LossConfig):
    """BlackOut (Ji et al. 2016): -mean over targets of log p - sum over candidates of log(1 - p).

    p is the softmax over targets and candidates of logit - log expected count, targets included (the paper's weights
    1 / Q; a common factor, the number of draws, cancels).
    """

    kernel = staticmethod(kernels.blackout_loss)
    corrects_candidates = True

    @property
    def corrects_targets(self) -> bool:
        return True


LOSSES: dict[str, type[LossConfig]] = {
    "full": FullLoss,
    "sampled_softmax": SampledSoftmaxLoss,
    "absolute_softmax": AbsoluteSoftmaxLoss,
    "partition_estimate": PartitionEstimateLoss,
    "active_set": ActiveSetLoss,
    "nce": NceLoss,
    "negative_sampling": NegativeSamplingLoss,
    "gbce": GbceLoss,
    "blackout": BlackoutLoss,
}

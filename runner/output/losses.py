"""List losses by name. A loss is a pure function of logits and expected counts; it does not know how ids were drawn.

In a row with several labels, the target distribution is uniform over the row's true classes ("pick all labels",
normalised). Every loss uses this reduction, so that only the estimate of the partition differs. Losses that are sums
over candidates (nce, negative_sampling, gbce, blackout) stay sums: no factor depends on the number of candidates.

@article{bengio2008adaptive, title={Adaptive Importance Sampling to Accelerate Training of a Neural
Probabilistic Language Model}, author={Bengio, Yoshua and Sen{\\'e}cal, Jean-S{\\'e}bastien},
journal={IEEE Transactions on Neural Networks}, year={2008}}
@inproceedings{jean2015using, title={On Using Very Large Target Vocabulary for Neural Machine Translation},
author={Jean, S{\\'e}bastien and Cho, Kyunghyun and Memisevic, Roland and Bengio, Yoshua}, booktitle={ACL}, year={2015}}
@article{levy2018lsh, title={LSH Softmax: Sub-Linear Learning and Inference of the Softmax Layer in Deep
Architectures}, author={Levy, Daniel and Chen, Danlu and Ermon, Stefano}, year={2018}}
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

Legend: B rows of a batch, P targets of the batch, N candidates of all rows.
"""

from dataclasses import dataclass
from typing import ClassVar

from runner.contracts import Passed
from runner.options.fields import Options, option
from runner.output.row_logits import RowLogits


@dataclass(frozen=True, kw_only=True)
class LossConfig(Options):
    """Serve as the base of loss configs; a subclass says what it corrects and masks.

    corrects_candidates, corrects_targets: subtract the log expected count from the logits of candidates, or targets.
    masks_hits: leave out a row's targets among its candidates (accidental hits), unless targets are corrected and
    candidates are drawn with replacement (``masks_hits_where``).
    by_magnitude: take the absolute values of logits, before corrections and in every ranking.
    needs_every_class: the loss contains the sum over all classes, so candidates of a sampler are not enough.
    independent: each class is a problem of its own, so that the probability of a class is sigmoid(logit).
    like: for a loss from a plugin, the built-in loss whose samplers it goes with.
    """

    section: ClassVar[str] = "loss"
    corrects_candidates: ClassVar[bool]
    masks_hits: ClassVar[bool] = True
    by_magnitude: ClassVar[bool] = False
    needs_every_class: ClassVar[bool] = False
    independent: ClassVar[bool] = False
    like: ClassVar[str | None] = None
    name: str

    @property
    def corrects_targets(self) -> bool:
        """Tell whether the log expected counts of targets are subtracted from their logits."""
        return False

    def masks_hits_where(self, *, distinct: bool) -> bool:
        """Tell whether hits are masked, given whether candidates are distinct or draws with replacement.

        A corrected loss asks which of a target and m draws with replacement is the target. Given how often each class
        is among the m + 1, each occurrence of class i is the target with probability proportional to p_i / (m q_i). So
        hits must stay: if they were masked, likely classes would be learnt as likelier than they are. Distinct
        candidates and the target form a set, which has class i once, so there hits are masked.
        """
        return self.masks_hits and (distinct or not self.corrects_targets)

    def apply(self, rows: RowLogits) -> Passed:
        """Return the loss of each row, (B,) float32, and replace the logits by gradients."""
        return rows.softmax()


@dataclass(frozen=True, kw_only=True)
class FullLoss(LossConfig):
    """Compute the cross-entropy under the softmax over all classes."""

    corrects_candidates = False
    needs_every_class = True


# ---------------------------------------------------------------- softmax over targets and candidates


@dataclass(frozen=True, kw_only=True)
class ActiveSetLoss(LossConfig):
    """Take the softmax over targets and candidates without any correction (LNS; SLIDE)."""

    corrects_candidates = False


@dataclass(frozen=True, kw_only=True)
class SampledSoftmaxLoss(LossConfig):
    """Take the softmax with candidates at logit - log expected count (Bengio & Senecal 2008; Jean et al. 2015).

    TensorFlow and MIDX's code correct the targets' logits too; none of the papers prints it. A target that is rarely
    sampled then counts as easier than it is, but few draws a row are enough. Without it, a class far likelier than its
    share of the draws is pulled up as a target and hardly ever pushed down.
    """

    corrects_candidates = True
    correct_target: bool = option(False, "true: subtract the log expected count from the targets' logits too")

    @property
    def corrects_targets(self) -> bool:
        return self.correct_target


@dataclass(frozen=True, kw_only=True)
class AbsoluteSoftmaxLoss(LossConfig):
    """Take the sampled softmax of |logit| (Blanc & Rendle 2018), where p is proportional to exp(|o|).

    p is symmetric in o, like q ~ alpha o^2 + 1. A constant added to all logits matters here, unlike under softmax.
    """

    corrects_candidates = True
    by_magnitude = True
    correct_target: bool = option(False, "true: subtract the log expected count from the targets' magnitudes too")

    @property
    def corrects_targets(self) -> bool:
        return self.correct_target


# ---------------------------------------------------------------- an estimate of the partition


@dataclass(frozen=True, kw_only=True)
class PartitionEstimateLoss(LossConfig):
    """Compute -mean target logit + log of the estimated partition (Levy, Chen & Ermon 2018).

    The estimate is the sum over candidates of exp(logit - log expected count). It has no bias if targets are part of it
    only where they were drawn, so no hit is masked and no target is added. With S at count 1 and a uniform tail it is
    LSH Softmax's estimator; with draws from a fixed distribution it is plain importance sampling. A row without
    candidates has loss 0 and no gradient.
    """

    corrects_candidates = True
    masks_hits = False

    def apply(self, rows: RowLogits) -> Passed:
        return rows.partition()


# ---------------------------------------------------------------- a binary problem for each target and candidate


@dataclass(frozen=True, kw_only=True)
class LogisticLoss(LossConfig):
    """Compute -mean over targets of ``power`` log sigmoid(logit) - sum over candidates of log(1 - sigmoid(logit))."""

    def power(self, num_candidates_B: Passed, num_classes: int) -> Passed:
        """Return the power of sigmoid(target logit) in each row, (B,), for these numbers of unmasked candidates."""
        return 0.0 * num_candidates_B + 1.0

    def apply(self, rows: RowLogits) -> Passed:
        return rows.logistic(self.power)


@dataclass(frozen=True, kw_only=True)
class NceLoss(LogisticLoss):
    """Tell targets from noise with the stated counts: noise-contrastive estimation (Gutmann & Hyvarinen 2010)."""

    corrects_candidates = True

    @property
    def corrects_targets(self) -> bool:
        return True


@dataclass(frozen=True, kw_only=True)
class NegativeSamplingLoss(LogisticLoss):
    """Take NCE's binary problems without any correction: skip-gram's negative sampling (Mikolov et al. 2013)."""

    corrects_candidates = False
    independent = True


@dataclass(frozen=True, kw_only=True)
class GbceLoss(LogisticLoss):
    """Raise sigmoid(target logit) to the power beta: generalised binary cross-entropy (Petrov & Macdonald 2023).

    Negative sampling with a sampling rate alpha = candidates / (n - 1) learns odds that are too high by a factor
    1 / alpha. The power beta = alpha (t (1 - 1/alpha) + 1/alpha) = 1 - t (1 - alpha) corrects this to the degree ``t``:
    0 is plain binary cross-entropy, 1 is calibrated. The loss is made for uniform candidates. The paper divides a row's
    loss by its number of candidates plus one, a factor that has no effect under Adam if it is the same in all rows.
    """

    corrects_candidates = False
    independent = True
    t: float = option(
        0.75,
        "degree of calibration: 0 is plain binary cross-entropy, 1 corrects fully for the classes that were not drawn",
        low=0,
        high=1,
    )

    def power(self, num_candidates_B: Passed, num_classes: int) -> Passed:
        alpha_B = (num_candidates_B / max(num_classes - 1, 1)).clip(max=1)  # repeated draws could make it exceed 1
        return 1 - self.t * (1 - alpha_B)


# ---------------------------------------------------------------- discriminative softmax


@dataclass(frozen=True, kw_only=True)
class BlackoutLoss(LossConfig):
    """Compute -mean over targets of log p - sum over candidates of log(1 - p): BlackOut (Ji et al. 2016).

    p is the softmax over targets and candidates of logit - log expected count; targets are corrected too. These are the
    paper's weights 1 / Q, because the number of draws is a common factor and cancels.
    """

    corrects_candidates = True

    @property
    def corrects_targets(self) -> bool:
        return True

    def apply(self, rows: RowLogits) -> Passed:
        return rows.blackout()


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

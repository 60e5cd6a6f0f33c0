"""Say what a loss may ask of the logits of a batch; each engine computes it.

Legend: B rows of a batch, P targets of the batch that are held here, N candidates of all rows that are held here.
"""

from collections.abc import Callable
from typing import Protocol

from runner.contracts import Passed
from runner.output.across import Across

Power = Callable[[Passed, int], Passed]
"""A function that gives the power of sigmoid(target logit) of each row, (B,), from its numbers of unmasked candidates
and the number of classes."""


class RowLogits(Protocol):
    """Hold the logits of each row's targets and candidates, corrected already, and masked with -inf.

    Only the logits of classes that are held here are there. Each method takes statistics of the rows, combines them by
    ``across``, returns the losses of the rows, (B,) float32, and leaves gradients in place of the logits. Gradients are
    of the weighted sum of the losses. A loss is averaged over the row's targets; a row without targets has loss 0 and
    no gradient. Call one of the methods, once. ``num_classes``: of the task.
    """

    @property
    def num_classes(self) -> int: ...

    @property
    def across(self) -> Across: ...

    def softmax(self) -> Passed:
        """Return -mean over targets of log softmax, over the row's active set {targets} + {candidates}."""

    def partition(self) -> Passed:
        """Return log(sum over candidates of exp(logit)) - (mean over targets of the logit); targets are not in the sum.

        A row whose sum is empty has loss 0 and no gradient, like a row without targets.
        """

    def logistic(self, power: Power) -> Passed:
        """Return mean over targets of power * softplus(-logit) + sum over candidates of softplus(logit)."""

    def blackout(self) -> Passed:
        """Return -mean over targets of log p - sum over candidates of log(1 - p), p a softmax over both."""

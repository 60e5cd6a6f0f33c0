"""Compute gradients of a loss from draws of a sampler, and compare them with full softmax's.

Legend: B rows, N pairs of a row and a class (in ``exact_N`` and ``mean_N``: classes), D hidden size, R draws.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from runner.contracts import Proposal
from runner.heads.classes import estimate
from runner.machine.clock import StageClock
from runner.measures.truth import Truth
from runner.output.layer import CandidateScores
from runner.output.losses import LossConfig
from runner.samplers import Sampler

BELOW_NOISE = "below noise"  # statuses, used when there is no true number
INFINITE = "inf"


@njit(cache=True)
def _add_weighted_rows(row_N, ids_N, grad_N, weights_ND, out_BD):
    """Add grad * weights[id] to out[row] for each pair, in float64."""
    for i in range(row_N.shape[0]):
        for k in range(out_BD.shape[1]):
            out_BD[row_N[i], k] += np.float64(grad_N[i]) * np.float64(weights_ND[ids_N[i], k])


@dataclass(frozen=True, kw_only=True)
class Draw:
    """A draw is one proposal and the gradients of the loss for it.

    The part ``indptr_B1[b]`` to ``indptr_B1[b + 1]`` of ``ids_N`` and ``grad_N`` holds row b's classes and the
    gradients of their logits (float32); a class may be repeated. ``hidden_gradient_BD`` is float64.
    """

    proposal: Proposal
    hidden_gradient_BD: np.ndarray
    indptr_B1: np.ndarray
    ids_N: np.ndarray
    grad_N: np.ndarray

    def logit_gradient(self, row: int) -> tuple[np.ndarray, np.ndarray]:
        """Return a row's distinct classes and the gradient (float64) of each one's logit."""
        here = slice(self.indptr_B1[row], self.indptr_B1[row + 1])
        ids, position = np.unique(self.ids_N[here], return_inverse=True)
        return ids, np.bincount(position, weights=self.grad_N[here], minlength=len(ids))


def draw_with_gradients(sampler: Sampler, truth: Truth, loss: LossConfig, step: int) -> Draw | None:
    """Draw at ``step`` and compute the gradients, without any update; return None if the sampler takes every class."""
    layer, query = truth.layer, truth.query
    made = estimate(layer, sampler, loss, query, step, StageClock())
    if not isinstance(made.scores, CandidateScores):
        return None
    assert isinstance(made.proposal, Proposal)
    row_N, ids_N, grad_N = made.scores.logit_gradients()
    order = np.argsort(row_N, kind="stable")
    row_N, ids_N, grad_N = row_N[order], ids_N[order], grad_N[order] * np.float32(query.num_rows)  # not the batch mean
    hidden_BD = np.zeros((query.num_rows, layer.dim))
    _add_weighted_rows(row_N, ids_N, grad_N, layer.class_vectors(), hidden_BD)
    indptr = np.searchsorted(row_N, np.arange(query.num_rows + 1))
    return Draw(proposal=made.proposal, hidden_gradient_BD=hidden_BD, indptr_B1=indptr, ids_N=ids_N, grad_N=grad_N)


@dataclass(frozen=True, kw_only=True)
class GradientError:
    """The error of ``draws`` estimates of each row's gradient: |exact|^2, |mean - exact|^2 and summed variances."""

    draws: int
    squared_norm_B: np.ndarray
    squared_bias_B: np.ndarray
    variance_B: np.ndarray

    def record(self) -> dict[str, Any]:
        """Return relative errors as ``runner.measures.divergence`` defines them.

        Rows whose exact gradient is 0 are left out.
        """
        norm2 = self.squared_norm_B
        some = norm2 > 0
        if not some.any():
            return dict.fromkeys(("bias", "bias_deviation", "noise_floor", "bias_net", "std", "std_deviation"))
        bias_B = np.sqrt(self.squared_bias_B[some] / norm2[some])
        std_B = np.sqrt(self.variance_B[some] / norm2[some])
        net = (self.squared_bias_B - self.variance_B / self.draws).sum() / norm2.sum()
        return {
            **mean_over_rows("bias", bias_B),
            "noise_floor": float(std_B.mean() / np.sqrt(self.draws)),
            "bias_net": float(np.sqrt(net)) if net >= 0 else BELOW_NOISE,
            **mean_over_rows("std", std_B),
        }


def mean_over_rows(name: str, values_B: np.ndarray) -> dict[str, Any]:
    """Return mean and standard deviation over rows: a status if some are infinite, None if nothing was measured."""
    if np.isnan(values_B).any():
        return {name: None, f"{name}_deviation": None}
    if np.isinf(values_B).any():
        return {name: INFINITE, f"{name}_deviation": None}
    return {
        name: float(values_B.mean()),
        f"{name}_deviation": float(values_B.std(ddof=1)) if len(values_B) > 1 else None,
    }


def gradient_errors(draws: list[Draw], truth: Truth) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return the errors of the hidden gradient, and buffers (B,) for those of the class gradient.

    ``fill_class_errors`` fills the buffers row by row.
    """
    estimates_RBD = np.stack([draw.hidden_gradient_BD for draw in draws])
    exact_BD = truth.hidden_gradient_BD
    hidden = {
        "squared_norm_B": np.square(exact_BD).sum(1),
        "squared_bias_B": np.square(estimates_RBD.mean(0) - exact_BD).sum(1),
        "variance_B": estimates_RBD.var(0, ddof=1).sum(1),
    }
    return hidden, {name: np.empty(truth.query.num_rows) for name in hidden}


def fill_class_errors(into: dict[str, np.ndarray], draws: list[Draw], row: int, exact_N: np.ndarray) -> None:
    """Fill in one row's errors of the class gradient; ``exact_N`` is the exact gradient of the row's logits."""
    count = len(draws)
    found = [draw.logit_gradient(row) for draw in draws]
    ids, values = (np.concatenate(parts) for parts in zip(*found, strict=True))
    mean_N = np.bincount(ids, weights=values, minlength=len(exact_N)) / count
    into["squared_norm_B"][row] = np.square(exact_N).sum()
    into["squared_bias_B"][row] = np.square(mean_N - exact_N).sum()
    into["variance_B"][row] = max(0.0, np.square(values).sum() - count * np.square(mean_N).sum()) / (count - 1)

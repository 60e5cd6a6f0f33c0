"""Check what losses hand over: the rows' losses, and gradients in place of the logits.

Legend: B rows of a batch, P targets of the batch.
"""

import copy
from typing import Any

import numpy as np
from numba import njit

from runner.door.arrays import Wrong, as_array, check_array, demand, is_finite
from runner.door.guard import Guard, is_from_outside
from runner.output.losses import LossConfig
from runner.output.row_logits import Power, RowLogits

_ONCE = ("softmax", "partition", "logistic", "blackout")


def checked_loss(loss: LossConfig) -> LossConfig:
    """Return the loss, or one that is the same but checks what it returns, if it comes from outside."""
    if not is_from_outside(loss):
        return loss
    guard, real, checked = Guard.of(loss, "loss", loss.name), loss.apply, copy.copy(loss)

    def apply(rows: Any) -> Any:
        handed = _Rows(rows)
        logits_P = as_array(rows.target_P).copy()
        had = is_finite(logits_P) and _extent(rows)[1] < np.inf
        losses_B = guard.made(lambda: real(handed))
        guard.check(lambda: _check(losses_B, handed, logits_P, had))
        return losses_B

    object.__setattr__(checked, "apply", apply)
    return checked


def _check(losses_B: Any, handed: "_Rows", logits_P: np.ndarray, logits_were_finite: bool) -> None:
    rows: Any = handed.rows
    losses_B, target_P = as_array(losses_B), as_array(rows.target_P)
    check_array(losses_B, "the rows' losses", "float32", len(rows.num_targets_B))
    if not logits_were_finite:
        return  # the training diverged, which the loop says
    if len(logits_P) and np.array_equal(logits_P, target_P) and logits_P.any():
        raise Wrong("apply left the logits of the targets where their gradients belong")
    if not is_finite(losses_B):
        first = losses_B[np.argmin(np.isfinite(losses_B))]
        raise Wrong(f"a row's loss is {first}, though all logits are finite")
    demand(is_finite(target_P), "a gradient in target_P is not finite, though all logits are")
    demand(np.isfinite(_extent(rows)).all(), "a gradient in candidate_N is not finite, though all logits are")


def _extent(rows: Any) -> tuple[float, float]:
    if not hasattr(rows, "begin_B"):  # the torch engine has places for each row's candidates
        candidate_BM = as_array(rows.candidate_BM)
        largest = float(candidate_BM.max(initial=0))
        return float(candidate_BM.min(initial=0)), largest if largest == largest else np.inf
    least, largest = _extent_of(rows.candidate_N, rows.begin_B, rows.end_B)
    return float(least), float(largest)


@njit(cache=True)
def _extent_of(numbers_N, begin_B, end_B):
    """Return the least and the largest number of all rows, inf for NaN. Shared candidates have gaps between rows."""
    least, largest = np.float32(0), np.float32(0)
    for row in range(len(begin_B)):
        for place in range(begin_B[row], end_B[row]):
            number = numbers_N[place]
            if not number <= largest:
                largest = number if number == number else np.float32(np.inf)
            if number < least:
                least = number
    return least, largest


class _Rows:
    """Pass on what a loss asks of the logits, and count it."""

    def __init__(self, rows: RowLogits) -> None:
        self.rows, self.calls = rows, 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.rows, name)
        if name not in _ONCE:
            return found
        self.calls += 1
        demand(self.calls == 1, f"apply asks for {name} after the logits were replaced by gradients")
        return found if name != "logistic" else lambda power: found(_checked_power(power))


def _checked_power(power: Power) -> Power:
    def checked(num_candidates_B: Any, num_classes: int) -> Any:
        given = power(num_candidates_B, num_classes)
        power_B = as_array(given)
        is_array = isinstance(power_B, np.ndarray) and power_B.dtype.kind in "fiu"
        demand(is_array, f"power must return an array of numbers, not {type(power_B).__name__}")
        wanted = num_candidates_B.shape
        demand(power_B.shape == wanted, f"power must return an array of shape {wanted}, not {power_B.shape}")
        demand(is_finite(power_B), "power must be finite")
        return given

    return checked

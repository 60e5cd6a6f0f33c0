"""Combine numbers of rows over all that hold classes: one process, or the ranks of a group.

A loss first takes statistics of each row over the classes that are held here, then combines them by these functions,
and then takes gradients. One process holds every class, so for it each function returns what it is given.
``output.ranks`` has the same for many processes.

Legend: B rows of a batch, H holders of classes, K kept classes of a row.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from runner.contracts import Passed


class Across(Protocol):
    """Combine what each holder of classes knows of a batch's rows. All holders call the same functions in turn."""

    @property
    def place(self) -> int:
        """Return which of the holders this is, from 0."""

    @property
    def size(self) -> int:
        """Return the number of holders."""

    @property
    def leads(self) -> bool:
        """Tell whether this is the holder that decides what depends on a clock, and writes files."""

    def sum(self, values: Passed) -> Passed:
        """Return the sum of all holders' arrays, which have one shape and type; so has the result."""

    def log_sum_exp(self, top_B: Passed, sum_B: Passed) -> tuple[Passed, Passed]:
        """Return the largest of all maxima, and the sum of all sums of exp(x - maximum), relative to it.

        A maximum of -inf with the sum 0 is that of a holder without any x, and adds nothing. Types stay.
        """

    def gather(self, values_B: Passed) -> Passed:
        """Return all holders' arrays, of one shape, stacked on a new first axis in the order of their places."""

    def max(self, values: Passed) -> Passed:
        """Return the largest of all holders' values, place by place."""

    def concatenate(self, values: Passed, sizes: np.ndarray, axis: int = 0) -> Passed:
        """Return all holders' arrays one after another along an axis; ``sizes``: theirs, (H,), which all know."""

    def all(self, flag: bool) -> bool:
        """Tell whether the flag is true for every holder."""

    def leaders(self, numbers: np.ndarray) -> np.ndarray:
        """Return the numbers of the holder that leads; others bring an array of the same shape and type."""

    def wait(self) -> None:
        """Go on only when all holders have come here."""

    def follow(self, work: str, seconds: float) -> None:
        """Go on only when the holder that leads has come here, which may take long; ``work``: what it does for all."""

    def require_same(self, what: str, mine: Mapping[str, Any]) -> None:
        """Raise RunnerError unless all holders bring the same values; ``what`` names them."""

    def end(self) -> None:
        """Part from the others at the end of a run that went well."""

    def merge_top(
        self, ids_BK: np.ndarray, values_BK: np.ndarray, k: int, *, ranked: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids and values of the k largest values of all holders; of equal values the lower id wins.

        They are best first, or by ascending id if not ``ranked``; so is what each holder gives.
        """


def block_of(num_classes: int, place: int, size: int) -> tuple[int, int]:
    """Return the classes lo to hi - 1 that a rank holds: ceil(N / size) of them, and what is left for the last."""
    each = -(-num_classes // size)
    return min(num_classes, place * each), min(num_classes, (place + 1) * each)


class Alone:
    """Be the only holder of classes."""

    place, size, leads = 0, 1, True

    def sum(self, values: Passed) -> Passed:
        return values

    def max(self, values: Passed) -> Passed:
        return values

    def concatenate(self, values: Passed, sizes: np.ndarray, axis: int = 0) -> Passed:
        return values

    def all(self, flag: bool) -> bool:
        return flag

    def leaders(self, numbers: np.ndarray) -> np.ndarray:
        return numbers

    def wait(self) -> None:
        return

    def follow(self, work: str, seconds: float) -> None:
        return

    def require_same(self, what: str, mine: Mapping[str, Any]) -> None:
        return

    def end(self) -> None:
        return

    def log_sum_exp(self, top_B: Passed, sum_B: Passed) -> tuple[Passed, Passed]:
        return top_B, sum_B

    def gather(self, values_B: Passed) -> Passed:
        return values_B[None]

    def merge_top(
        self, ids_BK: np.ndarray, values_BK: np.ndarray, k: int, *, ranked: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        return ids_BK, values_BK


ALONE = Alone()

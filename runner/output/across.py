"""Combine numbers of rows over all that hold classes: one process, or later the ranks of a group.

A loss first takes statistics of each row over the classes that are held here, then combines them by these functions,
and then takes gradients. One process holds every class, so for it each function returns what it is given.

Legend: B rows of a batch, H holders of classes, K kept classes of a row.
"""

from typing import Protocol

import numpy as np

from runner.contracts import Passed


class Across(Protocol):
    """Combine what each holder of classes knows of a batch's rows. All holders call the same functions in turn."""

    @property
    def place(self) -> int:
        """Return which of the holders this is, from 0."""

    def sum(self, values: Passed) -> Passed:
        """Return the sum of all holders' arrays, which have one shape and type; so has the result."""

    def log_sum_exp(self, top_B: Passed, sum_B: Passed) -> tuple[Passed, Passed]:
        """Return the largest of all maxima, and the sum of all sums of exp(x - maximum), relative to it.

        A maximum of -inf with the sum 0 is that of a holder without any x, and adds nothing. Types stay.
        """

    def gather(self, values_B: Passed) -> Passed:
        """Return all holders' arrays, of one shape, stacked on a new first axis in the order of their places."""

    def merge_top(
        self, ids_BK: np.ndarray, values_BK: np.ndarray, k: int, *, ranked: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids and values of the k largest values of all holders; of equal values the lower id wins.

        They are best first, or by ascending id if not ``ranked``; so is what each holder gives.
        """


class Alone:
    """Be the only holder of classes."""

    place = 0

    def sum(self, values: Passed) -> Passed:
        return values

    def log_sum_exp(self, top_B: Passed, sum_B: Passed) -> tuple[Passed, Passed]:
        return top_B, sum_B

    def gather(self, values_B: Passed) -> Passed:
        return values_B[None]

    def merge_top(
        self, ids_BK: np.ndarray, values_BK: np.ndarray, k: int, *, ranked: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        return ids_BK, values_BK
